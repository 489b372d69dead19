"""Runs a candidate's code against its tests in a subprocess that cannot hang or harm this one.

The subprocess is an isolated Python (`-I`) in an empty temporary folder, with an empty environment, limits on processor
time, memory, files and processes where the platform has them, and a limit by the wall clock. It is no container: code
still reads what this user may read and reaches the network, so run a model that you do not trust inside a container.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from examples.coder.tasks import Task

RUNNER = pathlib.Path(__file__).with_name("runner.py")
CPU_SECONDS = 3  # whole seconds, as the system counts them
WALL_SECONDS = 30.0  # generous: a busy machine must not fail a right change
MEGABYTES = 512
BUDGET = 0.1  # seconds of processor time that all tests of a task may take together


class Outcome(NamedTuple):
    """What the tests of one change said."""

    passed: int
    tests: int
    seconds: float  # of processor time, in all tests that ended, and CPU_SECONDS if one did not
    message: str  # of the first test that fails; empty if none does

    @property
    def fast(self) -> bool:
        return self.seconds <= BUDGET

    @property
    def solved(self) -> bool:
        """All tests pass, within the time that they may take."""
        return self.passed == self.tests and self.fast


def run_tests(
    source: str,
    tests: list[str],
    helpers: str = "",
    *,
    cpu_seconds: int = CPU_SECONDS,
    wall_seconds: float = WALL_SECONDS,
) -> Outcome:
    """Runs `tests`, lines `expression == expected`, on `source` in a sandbox.

    A test that does not end in time fails, and so do those after it.
    """
    job = {
        "source": source,
        "helpers": helpers,
        "tests": tests,
        "cpu_seconds": cpu_seconds,
        "megabytes": MEGABYTES,
    }
    with tempfile.TemporaryDirectory(prefix="coder-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(RUNNER)],  # -S: an editable install is not importable either
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(json.dumps(job).encode(), timeout=wall_seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            output, _ = process.communicate()
    return _read(output.decode("utf-8", "replace"), tests, cpu_seconds)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The subprocess and what it may have started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _read(output: str, tests: list[str], cpu_seconds: int) -> Outcome:
    results = [json.loads(line) for line in output.splitlines() if line.endswith("]")][: len(tests)]
    passed = sum(bool(ok) for ok, _, _ in results)
    seconds = sum(float(took) for _, took, _ in results)
    message = next((text for ok, _, text in results if not ok), "")
    if len(results) < len(tests):
        seconds += cpu_seconds
        message = message or f"{tests[len(results)].rpartition(' == ')[0]}: no answer in {cpu_seconds} s"
    elif passed == len(tests) and seconds > BUDGET:
        message = f"{tests[-1].rpartition(' == ')[0]}: right, but the tests took too long"
    return Outcome(passed, len(tests), seconds, message)


def measure(
    tasks: list[Task], workers: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[tuple[str, str | None], Outcome]:
    """The outcome of every change of every task, and of the buggy code (None), by (task's name, strategy).

    Up to run time they are what they are, so that one run of each serves all seeds and policies.
    """
    jobs = [(task, strategy) for task in tasks for strategy in (None, *task.changes)]
    outcomes = {}
    with ThreadPoolExecutor(workers) as pool:
        running = {
            pool.submit(run_tests, task.source(strategy), task.tests, task.helpers): (task.name, strategy)
            for task, strategy in jobs
        }
        for done, future in enumerate(as_completed(running), start=1):
            outcomes[running[future]] = future.result()
            progress(done, len(jobs))
    return outcomes
