"""Four processes on one mesh: one is killed, the others say so, and all that start again end as if nothing had been."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROCESSES, DAYS = 4, 6
SECONDS = 240  # for a run that hangs, on a slow machine
NOTICED = 30  # seconds until the others have ended, of which 10 are `--patience`
# What we say where processes meet; and JAX, of one that waits elsewhere, as for the others' part of a checkpoint.
GONE = "another process of this run is gone", "indicates that another task died"


class Run:
    """`examples.many_processes`, started as often as there are processes."""

    def __init__(self, folder: Path, cache: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.logs = [folder.with_name(f"{folder.name}-{port}-{i}.log") for i in range(PROCESSES)]
        # They compile as tests do, once for all; and each has one device.
        flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
        flags = f"{flags} --xla_force_host_platform_device_count=1"
        environment = {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
        options = ("--processes", PROCESSES, "--folder", folder, "--coordinator", f"127.0.0.1:{port}")
        options += ("--agents", 8, "--days", DAYS, "--patience", 10)
        self.processes = []
        for i, log in enumerate(self.logs):
            command = [sys.executable, "-m", "examples.many_processes", "--process", str(i), *map(str, options)]
            with log.open("w") as said:
                self.processes.append(
                    subprocess.Popen(command, env=os.environ | environment, stdout=said, stderr=subprocess.STDOUT)
                )

    def says(self, i: int) -> str:
        return self.logs[i].read_text()

    def wait_for(self, i: int, words: str) -> None:
        end = time.monotonic() + SECONDS
        while words not in self.says(i):
            assert self.processes[i].poll() is None, self.says(i)
            assert time.monotonic() < end, self.says(i)
            time.sleep(0.02)

    def end(self, seconds: float = SECONDS) -> list[int]:
        """Exit statuses, once all have ended."""
        end = time.monotonic() + seconds
        try:
            return [process.wait(max(0.0, end - time.monotonic())) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()

    def digests(self) -> list[str]:
        return [re.findall(r"digest (\w{64})", self.says(i))[0] for i in range(PROCESSES)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The cache of what was compiled, and the digests."""
    folder = tmp_path_factory.mktemp("processes")
    run = Run(folder / "undisturbed", folder / "cache")
    assert run.end() == [0] * PROCESSES, run.says(0)
    assert len(set(run.digests())) == PROCESSES
    return folder / "cache", run.digests()


@pytest.mark.parametrize(
    ("killed", "day"),
    [(2, 3), *(pytest.param(i, day, marks=pytest.mark.slow) for i, day in ((0, 1), (0, 4), (1, 2), (3, 5)))],
)
def test_a_killed_process_is_noticed_and_the_run_goes_on_as_if_it_had_lived(killed, day, undisturbed, tmp_path):
    cache, digests = undisturbed
    run = Run(tmp_path / "lives", cache)
    run.wait_for(killed, f"day {day}:")
    run.processes[killed].kill()
    statuses = run.end(NOTICED)
    assert statuses.pop(killed) == -9
    assert 0 not in statuses
    for i in {*range(PROCESSES)} - {killed}:
        assert any(words in run.says(i) for words in GONE), run.says(i)

    again = Run(tmp_path / "lives", cache)
    assert again.end() == [0] * PROCESSES, again.says(0)
    assert again.digests() == digests
    if day >= 4:
        assert "going on after day" in again.says(0)
