"""Run by test_agent_threads.py: a process that reads or writes the database that it is given.

usage: read DATABASE | write DATABASE NUMBER COUNT
"""

import json
import sys

from tests.agents import Book, ask, held

PARALLEL = (8, 248)  # room for all that the tests add
"""Capacity."""

if __name__ == "__main__":
    what, database, *numbers = sys.argv[1:]
    backend = Book(database, capacity=PARALLEL).backend
    backend.list()
    if what == "read":  # for each line it says what there is
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(list(held(backend).items())), flush=True)
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
