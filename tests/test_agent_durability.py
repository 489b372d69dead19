"""What a `MemoryBackend` bears: being killed, no room, no right to write, damaged files, hostile texts, being closed.

Whatever fails says so by an error of ours, and leaves the memory as it was.
"""

import asyncio
import contextlib
import inspect
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import sqlalchemy as sql
from sqlalchemy import event
from sqlalchemy import exc as errors

from dmem_jax.agent import MemoryBackend
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, ClosedError, DatabaseError, DmemError
from tests.adds_until_killed import NAMESPACES, adds
from tests.agents import DIM, Book, Words, ask, by_words, held


def fill(backend: MemoryBackend) -> None:
    for i, text in enumerate(["likes green tea", "hates loud bars", "plays old chess"]):
        backend.add_memory(text, "asked", 3.0 + i, metadata={"n": i})
    backend.add_memory("owns two cats", reward=-3.0, namespace="ann")


def everything(backend: MemoryBackend) -> Any:
    """All there is to see."""
    names = backend.namespaces()
    return {name: (backend.list(namespace=name), ask(backend, "green tea", namespace=name)) for name in names}


# ---- killed


def _killed(file: Path, seed: int) -> None:
    """Adds in another process, killed at some moment: all that returned is there, and at most one more."""
    draw = random.Random(seed)
    command = [sys.executable, "-m", "tests.adds_until_killed", str(file), str(seed)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        returned = [process.stdout.readline() for _ in range(draw.randrange(1, 200))]
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        returned += process.stdout.readlines()
    assert all(line.endswith("\n") for line in returned), "the other process failed by itself"

    there, expected = Book(str(file), signal="value"), Book(":memory:", signal="value")
    coming = adds(seed)
    for line in returned:
        added = expected.backend.add_memory(**next(coming))
        assert line.strip() == str(added.id)
    found = {name: there.backend.list(namespace=name) for name in NAMESPACES}
    if found != {name: expected.backend.list(namespace=name) for name in NAMESPACES}:
        expected.backend.add_memory(**next(coming))  # written, but not yet said
    for name in NAMESPACES:
        assert found[name] == expected.backend.list(namespace=name)
        assert list(held(there.backend, name)) == [memory.id for memory in found[name]]
    there.backend.close()
    expected.backend.close()


def test_what_was_added_is_there_after_a_kill(file: Path):
    _killed(file, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_what_was_added_is_there_after_many_kills(file: Path, seed: int):
    _killed(file, seed)


# ---- no room, no rights

CHANGES: dict[str, Callable[[MemoryBackend], object]] = {
    "add": lambda backend: backend.add_memory("rides a bike to work", reward=3.0),
    "add to a new namespace": lambda backend: backend.add_memory("rides a bike", reward=3.0, namespace="bob"),
    "merge": lambda backend: backend.add_memory("likes green tea", "asked", 9.0),
    "feedback": lambda backend: backend.feedback([0, 1], 2.0),
    "update": lambda backend: backend.update(0, observation="likes black coffee", metadata={}),
    "delete": lambda backend: backend.delete([0, 1]),
    "clear": lambda backend: backend.clear(),
    "consolidate": lambda backend: backend.consolidate("default"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_commit_that_fails_changes_nothing(either: Book, name: str):
    backend = either.reopen(params={"floor": 0.8})
    fill(backend)
    backend.add_memory("looked at the sky", rpe=0.01)
    either.clock.move(days=30)
    before = everything(backend)
    engine = backend._database._engine

    def fail(connection: sql.Connection) -> None:
        raise errors.OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))

    event.listen(engine, "commit", fail)
    for _ in range(2):
        with pytest.raises(DatabaseError, match="disk I/O error"):
            CHANGES[name](backend)
    event.remove(engine, "commit", fail)
    assert everything(backend) == before
    assert everything(either.reopen(params={"floor": 0.8})) == before
    CHANGES[name](either.backend)
    after = everything(either.backend)
    assert after != before
    assert everything(either.reopen(params={"floor": 0.8})) == after


def test_a_full_disk_changes_nothing(book: Book):
    fill(book.backend)
    before = everything(book.backend)

    def pages_at_most(count: int) -> None:
        with book.backend._database._engine.connect() as connection:  # the pool's one connection
            connection.exec_driver_sql(f"PRAGMA max_page_count={count}")

    pages_at_most(1)  # of those that there are, none more
    for i in range(3):
        with pytest.raises(DatabaseError, match="full"):
            book.backend.add_memory(f"number {i} " + "x" * 100_000, reward=3.0)
    assert everything(book.backend) == before
    pages_at_most(2**30)
    assert book.backend.add_memory("rides a bike", reward=3.0).id == 3
    after = everything(book.backend)
    assert everything(book.reopen()) == after


def test_what_is_opened_for_reading_only_is_not_written(book: Book, file: Path):
    fill(book.backend)
    book.reopen().close()
    before = file.read_bytes()
    backend = book.reopen(read_only=True)
    assert held(backend) == {0: "likes green tea", 1: "hates loud bars", 2: "plays old chess"}
    backend.get_relevant_memories("tea")
    for change in CHANGES.values():
        with pytest.raises(DatabaseError, match="for reading only"):
            change(backend)
    backend.close()
    assert file.read_bytes() == before


@pytest.fixture
def powerless() -> Iterator[Callable[[Path], None]]:
    """Takes the right to write to a folder and its files; from root too, by being nobody until the end."""
    folders = []

    def lose_rights(folder: Path) -> None:
        for path in (*folder.iterdir(), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        folders.append(folder)
        if os.getuid() == 0:
            os.setresuid(65534, 65534, 0)

    yield lose_rights
    if os.getresuid()[2] == 0:
        os.setresuid(0, 0, 0)
    for folder in folders:
        folder.chmod(0o755)


@pytest.fixture
def open_folder():
    """One that anyone can look into, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="dmem"))
    yield folder
    shutil.rmtree(folder)


def test_a_folder_without_rights(open_folder: Path, powerless: Callable[[Path], None]):
    book = Book(str(open_folder / "memory.db"))
    fill(book.backend)
    before = everything(book.backend)
    book.backend.close()
    powerless(open_folder)
    with pytest.raises(DatabaseError, match=r"memory\.db"):
        book.another()
    with pytest.raises(DatabaseError, match=r"other\.db"):
        Book(str(open_folder / "other.db"))
    reader = book.another(read_only=True)
    assert everything(reader) == before
    reader.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_that_is_none(tmp_path: Path, read_only: bool):
    for path in (tmp_path / "missing" / "memory.db", tmp_path):
        with pytest.raises(DatabaseError, match=tmp_path.name):
            Book(str(path), read_only=read_only)
    if read_only:
        with pytest.raises(DatabaseError, match="no such file"):
            Book(str(tmp_path / "memory.db"), read_only=True)
    assert list(tmp_path.iterdir()) == []
    for url in "mysql://localhost/x", "nonsense://", "postgresql+psycopg://nobody:secret@localhost:1/x":
        with pytest.raises((DatabaseError, ImportError)) as caught:
            Book(url)
        assert isinstance(caught.value, DmemError)
        assert "secret" not in str(caught.value)


# ---- damaged


def _use(book: Book) -> None:
    everything(book.backend)
    book.backend.add_memory("rides a bike", reward=3.0)
    everything(book.backend)
    book.backend.consolidate()


def _flipped(file: Path, seed: int) -> None:
    """Bytes of the file are others than they were: an error of ours, or it is read."""
    book = Book(str(file))
    fill(book.backend)
    book.backend.close()
    sound = file.read_bytes()
    draw = random.Random(seed)
    for _ in range(40):
        damaged = bytearray(sound)
        start = draw.choice((0, 0, *range(0, len(sound), 4096)))
        for _ in range(draw.choice((1, 3, 30))):
            damaged[start + draw.randrange(4096)] = draw.randrange(256)
        file.write_bytes(damaged)
        for leftover in file.parent.glob("*.db-*"):
            leftover.unlink()
        with contextlib.suppress(DatabaseError):
            book = Book(str(file))
            with contextlib.closing(book.backend):
                _use(book)


def test_a_damaged_file(unchecked: None, file: Path):
    _flipped(file, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 26))
def test_many_damaged_files(unchecked: None, file: Path, seed: int):
    _flipped(file, seed)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE dmem_documents SET metadata = '{'",
        "UPDATE dmem_documents SET metadata = '[]'",
        "UPDATE dmem_documents SET created = 9000000000000000000",
        "UPDATE dmem_documents SET observation = x'ff'",
        "UPDATE dmem_documents SET created = 'soon'",
        "DELETE FROM dmem_documents WHERE document = 1",
        "UPDATE dmem_slots SET embedding = x'00'",
        "UPDATE dmem_slots SET embedding = x''",
        "UPDATE dmem_slots SET embedding = 'text'",
        "UPDATE dmem_slots SET document = 1",
        "UPDATE dmem_slots SET id = 1",
        "UPDATE dmem_slots SET id = 99 WHERE id = 1",
        "UPDATE dmem_slots SET id = 1099511627776 WHERE id = 1",
        "UPDATE dmem_slots SET slot = -1 WHERE id = 1",
        "UPDATE dmem_slots SET slot = 1099511627776 WHERE id = 1",
        "UPDATE dmem_slots SET slot = 'x' WHERE id = 1",
        "UPDATE dmem_slots SET tier = 7 WHERE id = 1",
        "UPDATE dmem_slots SET count = 1099511627776",
        "UPDATE dmem_slots SET rpe = 'much'",
        "UPDATE dmem_namespaces SET state = x''",
        "UPDATE dmem_namespaces SET state = substr(state, 1, 2000)",
        "UPDATE dmem_namespaces SET revision = 'late'",
        "DELETE FROM dmem_meta",
        "DROP TABLE dmem_slots",
        "ALTER TABLE dmem_slots RENAME COLUMN rpe TO rpf",
    ],
)
def test_rows_that_make_no_sense(unchecked: None, book: Book, file: Path, damage: str):
    fill(book.backend)
    book.backend.close()
    with sqlite3.connect(file) as connection:
        connection.execute(damage)
    connection.close()
    with pytest.raises(DatabaseError, match=r"memory\.db"):
        _use(Book(str(file)))


@pytest.mark.parametrize("content", [b"no database at all" * 1000, b"SQLite format 3\0", bytes(10_000)])
def test_a_file_that_is_no_database(file: Path, content: bytes):
    file.write_bytes(content)
    with pytest.raises(DatabaseError, match=r"memory\.db"):
        Book(str(file))
    assert file.read_bytes() == content


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut(book: Book, file: Path, share: float):
    fill(book.backend)
    book.backend.close()
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(DatabaseError, match=r"memory\.db"):
        _use(Book(str(file)))


def test_a_file_of_a_newer_version_is_left_alone(book: Book, file: Path):
    fill(book.backend)
    book.backend.close()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE dmem_meta SET value = '99' WHERE key = 'version'")
    connection.close()
    before = file.read_bytes()
    for read_only in False, True:
        with pytest.raises(DatabaseError, match="version 99"):
            Book(str(file), read_only=read_only)
    assert file.read_bytes() == before


def test_a_capacity_too_small_for_what_there_is(book: Book):
    for i in range(20):
        book.backend.add_memory(f"fact {i} of {i * i}", reward=3.0)
    before = everything(book.backend)
    with pytest.raises(DatabaseError, match="capacity"):
        everything(book.reopen(capacity=(2, 3)))
    assert everything(book.reopen()) == before


# ---- what it is told

HOSTILE = (
    "'; DROP TABLE dmem_slots; --",
    "a') OR 1=1 --",
    '" OR "x"*',
    "NEAR(a b) NOT c:d ^",
    "%s :id ?1 {0}",
    "\\x00",
)
STRANGE = ("咖啡 ☕ très bon", "שלום עולם", "🏳️‍🌈", "e\u0301 ﷽ \u202e", "a\r\nb\tc", "x" * 100_000, "wort " * 20_000)


@pytest.mark.quick
def test_sql_and_queries_in_every_text(either: Book):
    backend = either.backend
    for text in HOSTILE:
        metadata = {text: text, "nested": {text: [text]}}
        backend.add_memory(text, text, 3.0, text, namespace=text, metadata=metadata)
    for _ in range(2):
        assert backend.namespaces() == sorted(HOSTILE)
        for text in HOSTILE:
            (found,) = ask(backend, text, namespace=text, filter={text: text})
            assert (found.observation, found.action, found.next_observation, found.namespace) == (text,) * 4
            assert found.metadata == {text: text, "nested": {text: [text]}}
            for other in HOSTILE:
                assert ask(backend, text, namespace=text, filter={other: {"$ne": 1}}) == [found]
                assert len(backend.list(namespace=text, filter={other: other})) == (other == text)
        backend = either.reopen()


@pytest.mark.quick
def test_texts_come_back_as_they_were(either: Book):
    for i, text in enumerate(STRANGE):
        assert either.backend.add_memory(text, text, 3.0, text, metadata={text: text}, namespace=text[:50]).id == 0, i
    for _ in range(2):
        for text in STRANGE:
            (found,) = ask(either.backend, text, namespace=text[:50])
            assert (found.observation, found.action, found.next_observation, found.metadata) == (text,) * 3 + (
                {text: text},
            )
            assert found.similarity == pytest.approx(1, abs=1e-5)
        either.reopen()
    assert by_words(either.backend, "咖啡", namespace=STRANGE[0]) == [0]


NO_TEXT = ("", "  \n", "\ud800", "tea \udfff", "tea\0", None, b"tea", 5, ["tea"])


@pytest.mark.quick
@pytest.mark.parametrize("text", NO_TEXT, ids=ascii)
def test_what_is_no_text_is_refused_by_name(unchecked: None, book: Book, text: Any):
    backend = book.backend
    fill(backend)
    before = everything(backend)
    refused = (ArgumentTypeError, ArgumentValueError)
    for name, call in {
        "observation": lambda: backend.add_memory(text, reward=3.0),
        "action": lambda: backend.add_memory("tea", "" if text is None else text, 3.0),
        "next_observation": lambda: backend.add_memory("tea", None, 3.0, "" if text is None else text),
        "namespace": lambda: backend.add_memory("tea", reward=3.0, namespace=text),
        "state": lambda: backend.get_relevant_memories(text),
    }.items():
        with pytest.raises(refused, match=rf"^{name}: expected"):
            call()
    if isinstance(text, str):
        with pytest.raises(refused, match=r"^observation: expected"):
            backend.update(0, observation=text)
    for call in (backend.get, backend.delete, backend.update):
        with pytest.raises(refused, match=r"^namespace: expected"):
            call(0, namespace=text)
    for call in (backend.list, backend.clear, backend.stats):
        with pytest.raises(refused, match=r"^namespace: expected"):
            call(namespace=text)
    assert everything(backend) == before


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("metadata", {"metadata": {"a": "\ud800"}}),
    ("metadata", {"metadata": {"\ud800": 1}}),
    ("metadata", {"metadata": {"a": float("nan")}}),
    ("metadata", {"metadata": {1: 2}}),
    ("metadata", {"metadata": [1]}),
    ("metadata", {"metadata": {"a": b"x"}}),
    ("reward", {"reward": float("nan")}),
    ("reward", {"reward": 1e300}),
    ("reward", {"reward": "3"}),
    ("rpe", {"rpe": float("inf")}),
    ("time", {"time": 5}),
    ("embedding", {"embedding": [float("nan")] * DIM}),
    ("embedding", {"embedding": [float("inf")] + [0.0] * (DIM - 1)}),
    ("embedding", {"embedding": np.full(DIM, 1e30, np.float32)}),
    ("embedding", {"embedding": np.zeros(DIM + 1, np.float32)}),
    ("embedding", {"embedding": np.zeros((1, DIM), np.float32)}),
    ("embedding", {"embedding": "vector"}),
    ("embedding", {"embedding": [None] * DIM}),
]


@pytest.mark.quick
@pytest.mark.parametrize(("name", "given"), WRONG, ids=[f"{name}-{i}" for i, (name, _) in enumerate(WRONG)])
def test_what_is_wrong_is_refused_by_name(unchecked: None, book: Book, name: str, given: dict[str, Any]):
    fill(book.backend)
    before = everything(book.backend)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=rf"^{name}"):
        book.backend.add_memory("tea", **cast(Any, {"reward": 3.0} | given))
    if name in ("metadata", "embedding"):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match=rf"^{name}"):
            book.backend.update(0, **given)
    assert everything(book.backend) == before
    assert book.backend.add_memory("rides a bike", reward=3.0).id == 3
    after = everything(book.backend)
    assert everything(book.reopen()) == after


@pytest.mark.parametrize("vector", [[float("nan")] * DIM, [1.0] * (DIM - 1), [[1.0] * DIM], None, "text"])
def test_an_encoder_that_errs(unchecked: None, book: Book, vector: Any):
    class Broken(Words):
        def __call__(self, texts: Any) -> Any:
            return [vector]

    fill(book.backend)
    before = everything(book.backend)
    backend = book.reopen(encoder=Broken())
    for call in (lambda: backend.add_memory("tea", reward=3.0), lambda: ask(backend, "tea")):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match="the encoder's vector"):
            call()
    assert everything(book.reopen()) == before


def test_an_encoder_that_raises_changes_nothing(book: Book):
    class Failing(Words):
        def __call__(self, texts: Any) -> Any:
            raise RuntimeError("out of memory")

    fill(book.backend)
    before = everything(book.backend)
    with pytest.raises(RuntimeError, match="out of memory"):
        book.reopen(encoder=Failing()).add_memory("tea", reward=3.0)
    assert everything(book.reopen()) == before


# ---- closed


def _calls() -> dict[str, dict[str, Any]]:
    """Every public method with arguments that it takes."""
    needs = {
        "add_memory": {"observation": "tea"},
        "get_relevant_memories": {"state": "tea"},
        "get": {"id": 0},
        "feedback": {"memories": [0], "rpe": 1.0},
        "update": {"id": 0},
        "delete": {"memories": [0]},
        "restore": {"lines": []},
    }
    public = [name for name, _ in inspect.getmembers(MemoryBackend, inspect.isfunction) if not name.startswith("_")]
    asynchronous = {name for name in public if inspect.iscoroutinefunction(getattr(MemoryBackend, name))}
    return {name: needs.get(name.removeprefix("a") if name in asynchronous else name, {}) for name in public}


@pytest.mark.parametrize("name", sorted(_calls().keys() - {"close", "aclose"}))
def test_what_is_closed_says_so(book: Book, name: str):
    book.backend.close()
    method = getattr(book.backend, name)

    def call() -> None:
        result = method(**_calls()[name])
        if inspect.iscoroutine(result):
            asyncio.run(result)

    with pytest.raises(ClosedError, match="closed"):
        call()


def test_closing_twice_does_nothing(either: Book):
    fill(either.backend)
    before = everything(either.backend)
    threads = [threading.Thread(target=either.backend.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    either.backend.close()
    asyncio.run(either.backend.aclose())
    assert everything(either.reopen()) == before


def test_closing_while_eight_threads_are_busy_loses_nothing(either: Book):
    backend = either.backend
    returned: list[tuple[str, int]] = []
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        name = f"user {number % 5}"
        try:
            for i in range(1000):
                added = backend.add_memory(f"fact {i} of {number}", reward=3.0, namespace=name)
                returned.append((name, added.id if added.id is not None else -1))
                ask(backend, "fact", namespace=name, k=3)
        except ClosedError:
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while len(returned) < 50 and not wrong:
        time.sleep(0.001)
    backend.close()
    at_close = len(returned)
    for thread in threads:
        thread.join()
    assert not wrong
    assert at_close < 8000
    kept = {name: held(either.reopen(), name) for name in {name for name, _ in returned}}
    assert [(name, id_) for name, id_ in returned if id_ not in kept[name]] == []
