"""A Postgres server for the tests, of this machine's own programs, in a folder that goes with it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def _programs() -> Path | None:
    """Where initdb and pg_ctl are."""
    found = shutil.which("initdb")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return Path(found).parent if found else versions[-1].parent if versions else None


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The folder of its socket; user "postgres", no password. Raises RuntimeError: why none can be started here."""
    programs = _programs()
    if programs is None:
        raise RuntimeError("Postgres is not installed (initdb is neither on the path nor below /usr/lib/postgresql).")
    runs_as: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="dmem"))  # short: a socket's path has a hundred characters at most
    try:
        if os.geteuid() == 0:  # whom Postgres refuses
            try:
                shutil.chown(folder, "postgres")
            except LookupError:
                raise RuntimeError("Postgres does not run as root, and there is no user postgres.") from None
            runs_as = ["runuser", "-u", "postgres", "--"]

        def run(program: str, *arguments: str) -> None:
            command = [*runs_as, str(programs / program), "-D", str(folder / "data"), *arguments]
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")

        run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -F -c max_connections=200"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield str(folder)
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
