"""What tests of `dmem_jax.agent` share: an encoder that needs no model, a clock that stands, and a backend to reopen.

All use one size of vectors and memories, so that the programs of a process are compiled once.
"""

import functools
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from dmem_jax.agent import MemoryBackend, Recalled, Stored

DIM = 32
CAPACITY = (8, 56)
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@functools.cache
def _direction(word: str, dim: int) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dim).astype(np.float32)


class Words:
    """Bags of words: each word has a direction of its own, and a text is the sum, of length 1."""

    def __init__(self, dim: int = DIM, name: str = "words"):
        self.dim, self.name = dim, name

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        bags = [[_direction(word, self.dim) for word in text.lower().split()] for text in texts]
        sums = np.stack([np.sum(bag, axis=0) for bag in bags])
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)


class Clock:
    """It shows `now` until it is moved."""

    def __init__(self, now: datetime = START):
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


class Book:
    """A backend, `book.backend`, that can be closed and opened again as a new process would find it."""

    def __init__(self, database: str, **given: Any):
        self.clock = Clock()
        self._given = {"encoder": Words(), "capacity": CAPACITY, "signal": "reward", "clock": self.clock} | given
        self._database = database
        self.backend = MemoryBackend(database, **self._given)

    def another(self, **changes: Any) -> MemoryBackend:
        """A second backend on the same database."""
        return MemoryBackend(self._database, **(self._given | changes))

    def reopen(self, **changes: Any) -> MemoryBackend:
        self.backend.close()
        self.backend = self.another(**changes)
        return self.backend


def ids(memories: Sequence[Stored]) -> list[int]:
    return [memory.id for memory in memories]


def texts(memories: Sequence[Stored]) -> list[str]:
    return [memory.observation for memory in memories]


def ask(backend: MemoryBackend, text: str, **given: Any) -> list[Recalled]:
    """All that is recalled for `text`; the recall leaves no trace."""
    return backend.get_relevant_memories(text, **({"k": 1000, "count": False} | given))


def by_words(backend: MemoryBackend, text: str, **given: Any) -> list[int]:
    """Ids of the memories that have a word of `text`."""
    return ids([memory for memory in ask(backend, text, **given) if memory.keyword > 0])


def pages(backend: MemoryBackend, limit: int = 3, **given: Any) -> list[Stored]:
    """`list`, page by page."""
    found: list[Stored] = []
    while page := backend.list(limit=limit, after=found[-1].id if found else None, **given):
        assert len(page) <= limit
        found += page
    return found


def held(backend: MemoryBackend, namespace: str = "default") -> dict[int, str]:
    """Every memory by id, after asking on every path: all must tell of the same ones."""
    listed = pages(backend, namespace=namespace)
    told = {memory.id: memory.observation for memory in listed}
    assert ids(listed) == sorted(told), "in the order of their ids, none twice"
    upto = max(told, default=-1) + 3
    got = [backend.get(id_, namespace=namespace) for id_ in range(upto)]
    assert [memory for memory in got if memory is not None] == listed
    for asked in (
        ask(backend, "anything", namespace=namespace),
        ask(backend, "anything", namespace=namespace, filter={}),
        ask(backend, "anything", namespace=namespace, filter={"no such key": {"$ne": 1}}),
        ask(backend, "anything", namespace=namespace, min_similarity=-1.1),
        ask(backend, "anything", namespace=namespace, sign=1) + ask(backend, "anything", namespace=namespace, sign=-1),
    ):
        assert sorted(ids(asked)) == sorted(told)
        assert {memory.id: memory.observation for memory in asked} == told
        assert all(memory.namespace == namespace for memory in asked)
    for id_, text in told.items():
        assert id_ in by_words(backend, text, namespace=namespace)
    return told
