"""Run by test_agent_durability.py: adds memories to the database that it is given, and says so after each."""

import random
import sys
from collections.abc import Iterator
from typing import Any

from tests.agents import Book

NAMESPACES = ("ann", "bob")
_WORDS = ("tea", "coffee", "bars", "chess", "cats", "dogs", "Paris", "Lisbon", "noon", "night", "bike", "rain", "red")


def adds(seed: int, count: int = 200) -> Iterator[dict[str, Any]]:
    """Arguments of `add_memory`, with repeats, so that some merge, contradict and push others out."""
    draw = random.Random(seed)
    for i in range(count):
        text = " ".join(draw.sample(_WORDS, draw.choice((1, 2, 2, 4))))
        yield {
            "observation": text,
            "action": draw.choice((None, "went", "stayed")),
            "reward": draw.choice((None, draw.gauss(0, 5))),
            "metadata": {"number": i},
            "namespace": draw.choice(NAMESPACES),
        }


if __name__ == "__main__":
    book = Book(sys.argv[1], signal="value")
    for given in adds(int(sys.argv[2])):
        print(book.backend.add_memory(**given).id, flush=True)
    sys.stdin.read()  # until it is killed
