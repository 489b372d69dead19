"""A `MemoryBackend` used by many threads, and a database by many processes: nothing is lost, mixed up or half seen."""

import itertools
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from dmem_jax.agent import MemoryBackend
from dmem_jax.errors import DatabaseError
from tests.agents import Book, ask, held, ids
from tests.works_in_parallel import PARALLEL, now


@pytest.fixture
def either(database: str):
    book = Book(database, **PARALLEL)
    yield book
    book.backend.close()


def _many_users(book: Book, rounds: int) -> None:
    """8 threads, each of which adds to any of 20 users, and recalls of any."""
    backend = book.backend
    users = [f"user {i}" for i in range(20)]

    def work(number: int) -> list[tuple[str, int, str]]:
        draw, mine = random.Random(number), []
        for i in range(rounds):
            user, text = draw.choice(users), f"fact {i} of {number} {draw.random()}"
            added = backend.add_memory(text, reward=3.0, namespace=user, metadata={"user": user})
            assert added.id is not None
            mine.append((user, added.id, text))
            asked = draw.choice(users)
            found = backend.get_relevant_memories(f"fact {i}", k=4, namespace=asked)
            assert {memory.metadata["user"] for memory in found} <= {asked}
            assert {memory.namespace for memory in found} <= {asked}
            if i % 10 == 0:
                assert {memory.metadata["user"] for memory in backend.list(namespace=asked)} <= {asked}
        return mine

    with ThreadPoolExecutor(8) as pool:
        added = [one for mine in pool.map(work, range(8)) for one in mine]
    assert len(added) == 8 * rounds
    assert len(added) == len({(user, id_) for user, id_, _ in added})
    for _ in range(2):
        for user in users:
            here = {id_: text for name, id_, text in added if name == user}
            told = book.backend.list(namespace=user, limit=10**6)
            assert {memory.id: memory.observation for memory in told} == here
        book.reopen()


def test_eight_threads_and_twenty_users(either: Book):
    _many_users(either, 12)


@pytest.mark.slow
def test_eight_threads_a_thousand_times(tmp_path: Path):
    book = Book(str(tmp_path / "memory.db"), capacity=(8, 1016), params={"threshold_low": 0.0})
    _many_users(book, 1000)
    book.backend.close()


def test_what_another_backend_does_is_seen_at_once(either: Book):
    mine, other = either.backend, either.another()
    for i, backend in enumerate([mine, other] * 4):
        assert backend.add_memory(f"fact {i} of {i * i}", reward=3.0, metadata={"by": i % 2}).id == i
        assert held(mine) == held(other)
    other.delete([1, 2])
    assert held(mine) == held(other)
    assert list(held(mine)) == [0, 3, 4, 5, 6, 7]
    mine.update(3, observation="something else", metadata={})
    assert other.get(3) == mine.get(3)
    assert other.feedback([4], 2.0) == 1
    assert other.list() == mine.list()
    mine.get_relevant_memories("fact", k=2)
    other.consolidate()
    either.clock.move(days=1)
    assert other.list()[0].strength == mine.list()[0].strength
    other.close()


def test_a_namespace_that_another_backend_cleared_is_never_mixed_up_with_a_new_one(either: Book):
    mine, other = either.backend, either.another()
    mine.add_memory("likes green tea", reward=3.0, namespace="ann")
    assert other.clear("ann") == 1
    other.add_memory("hates loud bars", reward=3.0, namespace="bob")  # as many changes as there were of ann's
    assert held(mine, "ann") == {}
    other.add_memory("plays old chess", reward=3.0, namespace="ann")
    assert held(mine, "ann") == held(other, "ann") == {0: "plays old chess"}
    mine.add_memory("owns two cats", reward=3.0, namespace="ann")
    assert held(other, "bob") == {0: "hates loud bars"}
    assert held(mine, "ann") == held(other, "ann") == {0: "plays old chess", 1: "owns two cats"}
    other.close()


def test_two_backends_write_by_turns_that_nobody_arranged(either: Book):
    backends = [either.backend, either.another()]

    def work(number: int) -> list[int | None]:
        backend = backends[number % 2]
        return [backend.add_memory(f"fact {i} of {number}", f"{number}", 3.0).id for i in range(13)]

    with ThreadPoolExecutor(4) as pool:
        returned = [id_ for mine in pool.map(work, range(4)) for id_ in mine]
    assert sorted(returned, key=str) == sorted(range(52), key=str)
    expected = {f"fact {i} of {number}" for i in range(13) for number in range(4)}
    for backend in backends:
        assert set(held(backend).values()) == expected
    backends[1].close()


def test_many_backends_make_one_new_database(database: str):
    together, books, wrong = threading.Barrier(6), [], []

    def work(number: int) -> None:
        together.wait()
        try:
            book = Book(database, **PARALLEL)
            books.append(book)
            book.backend.add_memory(f"fact of {number}", reward=3.0)
        except DatabaseError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for book in books:
        assert set(held(book.backend).values()) == {f"fact of {number}" for number in range(6)}
        book.backend.close()


def test_threads_that_change_and_delete_the_same_memories(either: Book):
    backend = either.backend
    for i in range(24):
        backend.add_memory(f"fact {i} of {i * i}", reward=3.0)
    deleted: list[int] = []

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(20):
            some = draw.sample(range(24), 3)
            what = draw.choice(("delete", "feedback", "recall", "consolidate", "list"))
            if what == "delete":
                deleted.append(backend.delete(some[0]))
            elif what == "feedback":
                backend.feedback(some, draw.choice((1.0, 0.0, -1.0)))
            elif what == "recall":
                found = backend.get_relevant_memories(f"fact {some[0]}", k=30)
                assert len(set(ids(found))) == len(found)
            elif what == "consolidate":
                backend.consolidate("default")
            else:
                backend.list()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    kept = held(backend)
    assert len(kept) == 24 - sum(deleted)
    assert all(text == f"fact {i} of {i * i}" for i, text in kept.items())
    before = backend.list()
    assert either.reopen().list() == before


# ---- processes


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """What it is told, and what it says."""
    command = [sys.executable, "-m", "tests.works_in_parallel", *arguments]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.kill()


def _say(to: IO[str]) -> None:
    to.write("\n")
    to.flush()


def test_a_process_writes_to_the_namespace_of_this_one(tmp_path: Path):
    book = Book(str(tmp_path / "memory.db"), **PARALLEL)
    book.backend.add_memory("the first fact", reward=3.0)
    with _process("write", str(tmp_path / "memory.db"), "1", "25") as (tell, said):
        assert said.readline() == "ready\n"
        _say(tell)
        seen, mine = [now(book.backend)], {0: "the first fact"}
        for i in range(25):
            id_ = book.backend.add_memory(f"fact {i} of 2", "2", 3.0).id
            assert id_ is not None
            mine[id_] = f"fact {i} of 2"
            seen.append(now(book.backend))
            assert mine.items() <= seen[-1].items()
        theirs = {int(said.readline()): f"fact {i} of 1" for i in range(25)}
    assert held(book.backend) == held(book.reopen()) == mine | theirs
    for before, after in itertools.pairwise(seen):
        assert before.items() <= after.items()
    for found in seen:  # what was committed, up to some moment, without gaps
        assert sorted(found) == list(range(len(found)))
    book.backend.close()


@pytest.mark.slow
def test_processes_write_to_one_namespace_while_others_read(database: str):
    counts = 25
    watcher = Book(database, **PARALLEL)
    watcher.backend.add_memory("the first fact", reward=3.0)
    with (
        _process("read", database) as (ask_reader, reader),
        _process("write", database, "1", str(counts)) as (tell_one, one),
        _process("write", database, "2", str(counts)) as (tell_two, two),
    ):
        for said in reader, one, two:
            assert said.readline() == "ready\n"
        _say(tell_one)
        _say(tell_two)
        seen: list[dict[int, str]] = []
        while len(seen) < 3 or len(seen[-1]) < 2 * counts + 1:
            _say(ask_reader)
            seen.append(now(watcher.backend))
            seen.append({int(id_): text for id_, text in json.loads(reader.readline())})
            assert len(seen) < 2000
        returned = {
            int(said.readline()): f"fact {i} of {number}"
            for number, said in ((1, one), (2, two))
            for i in range(counts)
        }
    assert returned == {id_: text for id_, text in seen[-1].items() if id_}
    for before, after in zip(seen[0::2], seen[2::2], strict=False):  # of the watcher
        assert before.items() <= after.items()
    for before, after in zip(seen[1::2], seen[3::2], strict=False):  # of the reader
        assert before.items() <= after.items()
    for found in seen:  # what was committed, up to some moment, without gaps
        assert sorted(found) == list(range(len(found)))
    assert held(watcher.backend) == held(watcher.reopen())
    assert set(watcher.backend.namespaces()) == {"default", "of 1", "of 2"}
    watcher.backend.close()


def test_a_reader_that_may_not_write_follows(either: Book):
    writer = either.backend
    writer.add_memory("fact 0 of 0", reward=3.0)
    reader: MemoryBackend = either.another(read_only=True)
    for i in range(1, 10):
        writer.add_memory(f"fact {i} of {i * i}", reward=3.0)
        writer.get_relevant_memories("fact", k=3)
        assert held(reader) == held(writer)
        assert ids(ask(reader, "fact 3")) == ids(ask(writer, "fact 3"))
    reader.close()
