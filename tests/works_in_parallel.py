"""Run by test_agent_threads.py: a process that reads or writes the database that it is given.

usage: read DATABASE | write DATABASE NUMBER COUNT
"""

import json
import sys

from dmem_jax.agent import MemoryBackend
from tests.agents import Book, ask

PARALLEL = {"params": {"threshold_low": 0.0}}
"""Arguments of a `MemoryBackend` that takes in all that the tests add, however usual."""


def now(backend: MemoryBackend) -> dict[int, str]:
    """What there is at one moment, by id."""
    found = backend.list(limit=1000)
    assert len(found) == len({memory.id for memory in found})
    return {memory.id: memory.observation for memory in found}


if __name__ == "__main__":
    what, database, *numbers = sys.argv[1:]
    backend = Book(database, **PARALLEL).backend
    backend.list()
    if what == "read":  # for each line it says what there is
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(list(now(backend).items())), flush=True)
    else:
        number, count = map(int, numbers)
        backend.add_memory("to compile", reward=3.0, namespace=f"of {number}")
        ask(backend, "fact", namespace=f"of {number}")
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range(count):
            print(backend.add_memory(f"fact {i} of {number}", f"{number}", 3.0).id, flush=True)
            if i % 10 == 0:
                ask(backend, "fact", k=3)
    backend.close()
