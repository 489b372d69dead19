"""Runs inside the sandbox's subprocess, alone: reads a job from stdin, runs the code and its tests, and writes one JSON
line `[passed, seconds, message]` for each test that ended. The code's own output goes nowhere.
"""

import contextlib
import json
import os
import sys
import time

MEGABYTE = 2**20


def limit_resources(cpu_seconds: int, megabytes: int) -> None:
    """As far as the platform has limits: a loop ends, memory and files stay small, no process is started."""
    try:
        import resource
    except ImportError:  # Windows: the sandbox's wall clock alone
        return
    limits = {
        "RLIMIT_CPU": cpu_seconds,
        "RLIMIT_AS": megabytes * MEGABYTE,
        "RLIMIT_FSIZE": MEGABYTE,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_NPROC": 0,
        "RLIMIT_CORE": 0,
    }
    for name, limit in limits.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (limit, limit))


def shown(value: object) -> str:
    """A short form of any value, even one that has none."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(error).__name__} in repr>"
    return text if len(text) <= 80 else text[:77] + "..."


def judged(test: str, names: dict[str, object]) -> tuple[bool, str]:
    """Whether one test `expression == expected` holds, and a message if not."""
    expression, _, expected = test.rpartition(" == ")
    try:
        got = eval(expression, names)
        wanted = eval(expected, names)
        if got == wanted:
            return True, ""
        return False, f"{expression}: expected {shown(wanted)}, got {shown(got)}"
    except BaseException as error:  # SystemExit, too
        return False, f"{expression}: {type(error).__name__}: {str(error)[:120]}"


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    limit_resources(job["cpu_seconds"], job["megabytes"])
    names: dict[str, object] = {"__name__": "candidate"}
    broken = ""
    try:
        exec(compile(job["source"], "candidate.py", "exec"), names)
        exec(compile(job["helpers"], "helpers.py", "exec"), names)
    except BaseException as error:
        broken = f"the code cannot be run: {type(error).__name__}: {str(error)[:120]}"
    for test in job["tests"]:
        start = time.process_time()
        passed, message = (False, broken) if broken else judged(test, names)
        results.write(json.dumps([passed, time.process_time() - start, message]) + "\n")
        results.flush()


main()
