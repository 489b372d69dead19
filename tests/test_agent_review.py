"""Faults that a reading of the backend found: each was seen to happen before it was mended."""

import base64
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmem_jax.agent import MemoryBackend, spaces
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, DatabaseError
from tests.agents import Book, ask


def ids(found: Any) -> set[int]:
    return {memory.id for memory in found}


def test_since_and_until_ask_when_it_happened(book: Book):
    backend, now = book.backend, book.clock()
    backend.add_memory("likes green tea", reward=3.0)
    year_ago = now - timedelta(days=365)
    backend.add_memory("likes black tea", "told", 3.0, time=year_ago)  # after a newer one
    assert ids(ask(backend, "tea", until=year_ago + timedelta(days=1))) == {1}
    assert ids(ask(backend, "tea", since=now - timedelta(days=1))) == {0}
    backend.add_memory("likes white tea", "foretold", 3.0, time=now + timedelta(days=1))
    assert ids(ask(backend, "tea", since=now - timedelta(hours=1), until=now)) == {0}
    assert ids(ask(backend, "tea", since=now + timedelta(hours=1))) == {2}
    assert ids(ask(backend, "tea", since=datetime(1955, 1, 1))) == {0, 1, 2}


def test_a_memory_of_the_future_lets_no_other_fade(book: Book):
    backend = book.backend
    backend.add_memory("likes green tea", reward=3.0)
    before = backend.list()[0].strength
    backend.add_memory("the comet returns", "foretold", 3.0, time=datetime(2061, 7, 28))
    first, second = backend.list()
    assert first.strength == before
    assert second.created_at == datetime(2061, 7, 28, tzinfo=UTC)


def test_ids_are_never_used_again(book: Book):
    backend = book.backend
    for place in "tea", "jazz", "chess":
        backend.add_memory(f"likes {place}", reward=3.0)
    lines = [*backend.export()]
    assert backend.clear() == 3
    assert backend.list() == []
    assert backend.add_memory("likes cats", reward=3.0).id == 3
    backend.delete(3)
    assert backend.restore(lines) == 3
    assert backend.add_memory("likes dogs", "told", 3.0).id == 4
    book.reopen()
    assert [memory.id for memory in book.backend.list()] == [0, 1, 2, 4]


WRONG: list[tuple[str, Callable[[list[Any]], Any], str]] = [
    ("an id to come", lambda lines: lines[1].update(id=99), "ids below 1"),
    ("a time that is none", lambda lines: lines[1].update(created="yesterday"), "created"),
    ("a time beyond all", lambda lines: lines[1].update(created=10**30), "created"),
    ("no text", lambda lines: lines[1].update(observation=" "), "observation"),
    ("half a surrogate pair", lambda lines: lines[1].update(action="\ud800"), "action"),
    ("a vector of NaN", lambda lines: lines[1].update(embedding=_nan(lines[1]["embedding"])), "embedding"),
    ("endless strength", lambda lines: lines[1].update(strength=float("inf")), "strength"),
    ("a strength beyond float32", lambda lines: lines[1].update(strength=1e300), "strength"),
    ("a negative norm", lambda lines: lines[1].update(inv_norm=-5.0), "inv_norm"),
    ("a count of none", lambda lines: lines[1].update(count=0), "count"),
    ("an endless count", lambda lines: lines[1].update(count=float("inf")), "count"),
    ("a damaged state", lambda lines: lines[0].update(state=lines[0]["state"][:100]), "damaged"),
    ("another type of store", lambda lines: lines[0].update(store_dtype="int8"), "store_dtype"),
]


def _nan(vector: str) -> str:
    numbers = np.frombuffer(base64.b64decode(vector), np.float32) * np.float32(np.nan)
    return base64.b64encode(numbers.tobytes()).decode()


@pytest.mark.parametrize(("spoil", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_what_makes_no_sense_is_not_restored(book: Book, spoil: Callable[[list[Any]], Any], said: str):
    book.backend.add_memory("likes green tea", reward=3.0)
    lines = json.loads(json.dumps([*book.backend.export()]))
    spoil(lines)
    with pytest.raises((ArgumentValueError, ArgumentTypeError), match=said):
        book.backend.restore(lines, namespace="other")
    assert book.backend.list(namespace="other") == []
    assert book.backend.restore([*book.backend.export()], namespace="other") == 1


def test_a_damaged_namespace_can_be_cleared(book: Book, tmp_path: Path):
    import sqlite3

    book.backend.add_memory("likes green tea", reward=3.0)
    book.backend.close()
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        connection.execute("UPDATE dmem_namespaces SET state = x'00'")
    connection.close()
    book.reopen()
    with pytest.raises(DatabaseError, match="damaged"):
        book.backend.list()
    assert book.backend.clear() == 1
    book.backend.add_memory("likes black tea", reward=3.0)
    assert len(book.backend.list()) == 1


def test_who_has_to_go_takes_nothing_along(
    book: Book, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Its counts cannot be written; whoever asked for another namespace doesn't hear of it, and later changes of other
    processes are seen."""
    monkeypatch.setattr(spaces, "_LOADED", 1)
    backend, other = book.backend, book.another()
    backend.add_memory("likes green tea", reward=3.0, namespace="ann")
    ask(backend, "tea", namespace="ann")
    writing = backend._database.writing

    def fail() -> Any:
        raise DatabaseError("no room")

    monkeypatch.setattr(backend._database, "writing", fail)
    with caplog.at_level(logging.CRITICAL, "dmem_jax"):
        assert ask(backend, "tea", namespace="bob") == []
        other.add_memory("peanuts harm", reward=-9.0, namespace="bob")
        assert len(ask(backend, "peanuts", namespace="bob")) == 1
    monkeypatch.setattr(backend._database, "writing", writing)
    other.add_memory("likes loud bars", reward=3.0, namespace="ann")
    backend.add_memory("plays old chess", reward=3.0, namespace="ann")
    assert len(other.list(namespace="ann")) == len(backend.list(namespace="ann")) == 3
    other.close()


def test_a_merge_at_rest_keeps_metadata_and_the_older_time(book: Book):
    backend: MemoryBackend = book.reopen(params={"duplicate_similarity": 2.0})  # nothing is a duplicate yet
    backend.add_memory("likes green tea", "told", 3.0, metadata={"user": "ann"})
    book.clock.move(days=2)
    backend.add_memory("likes green tea", "told", rpe=5.0, metadata={"from": "mail"})
    made = backend.list()[0].created_at
    backend = book.reopen()
    assert backend.consolidate()["merged"] == 1
    for _ in range(2):
        (memory,) = backend.list()
        assert memory.metadata == {"user": "ann", "from": "mail"}
        assert (memory.created_at, memory.count) == (made, 2)
        backend = book.reopen()


def test_a_rest_keeps_nobody_from_writing(book: Book, monkeypatch: pytest.MonkeyPatch):
    """What it computes it computes before it writes; if another process writes meanwhile, it computes again."""
    from dmem_jax.agent import core

    backend, other = book.backend, book.another()
    backend.add_memory("likes green tea", reward=3.0)
    computed, compute = [], core.consolidated

    def consolidated(*given: Any) -> Any:
        if not computed:
            other.add_memory("plays old chess", reward=3.0)
            other.add_memory("plays old chess", reward=3.0, namespace="bob")
        computed.append(given)
        return compute(*given)

    monkeypatch.setattr(core, "consolidated", consolidated)
    backend.consolidate("default")
    assert len(computed) == 2
    assert len(backend.list()) == len(other.list()) == 2
    other.close()


def test_a_new_disaster_is_no_smaller_for_being_new(book: Book):
    backend = book.reopen(signal="novelty")
    backend.add_memory("likes green tea", reward=1.0)
    added = backend.add_memory("peanuts harm", reward=-1.0)
    assert added.rpe < -1.0
