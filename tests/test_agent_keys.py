"""Memories that the caller calls by name: kept whatever their surprise, changed in place, found by key everywhere."""

import sqlite3
from pathlib import Path

import pytest

from dmem_jax.errors import ArgumentValueError, DatabaseError, UnknownMemoryError
from tests.agents import CAPACITY, Book, Words

pytestmark = pytest.mark.quick


def test_what_has_a_key_is_kept_though_it_surprises_nobody(book: Book):
    for _ in range(40):
        book.backend.add_memory("a great day", "sang", reward=2.0)
    assert book.backend.add_memory("the sun rose", "got up", reward=0.0).route == "dropped"
    added = book.backend.add_memory("the sun rose", "got up", reward=0.0, key="sunrise")
    assert added.route == "buffer"
    assert added.id is not None
    book.reopen()
    memory = book.backend.get("sunrise")
    assert memory is not None
    assert (memory.id, memory.key) == (added.id, "sunrise")


def test_two_keys_of_one_text_are_two_memories_and_stay_so(book: Book):
    for key in "abc":
        book.backend.add_memory("the very same", "words", key=key)
    book.backend.add_memory("the very same", "words", reward=3.0)
    book.backend.add_memory("the very same", "words", reward=-3.0)
    book.backend.consolidate()
    assert [memory.key for memory in book.backend.list()] == ["a", "b", "c", None, None]
    assert not any(memory.contradicted for memory in book.backend.list() if memory.key)


def test_an_add_of_a_known_key_changes_it_in_its_place(book: Book):
    first = book.backend.add_memory("likes tea", key="drink", metadata={"of": "ann"}, reward=2.0)
    book.backend.add_memory("likes jazz", key="music", reward=1.0)
    book.clock.move(hours=1)
    again = book.backend.add_memory("likes coffee", key="drink", metadata={"hot": True})
    assert (again.id, again.route, again.rpe) == (first.id, "refreshed", 2.0)
    for _ in range(2):
        drink, music = book.backend.list()
        assert (drink.observation, drink.metadata, drink.reward) == ("likes coffee", {"hot": True}, 2.0)
        assert drink.created_at == music.created_at < drink.updated_at
        assert music.observation == "likes jazz"
        assert [found.key for found in book.backend.get_relevant_memories("coffee", 1)] == ["drink"]
        assert not any(found.keyword for found in book.backend.get_relevant_memories("tea"))
        book.reopen()


def test_a_new_outcome_of_a_key_is_what_it_is_worth_then(book: Book):
    book.backend.add_memory("deploy on friday", key="deploy", reward=2.0)
    again = book.backend.add_memory("deploy on friday", key="deploy", reward=-5.0)
    assert (again.rpe, again.size > 0, 0 < again.gate < 1) == (-5.0, True, True)
    for _ in range(2):
        (memory,) = book.backend.list()
        assert (memory.rpe, memory.reward) == (-5.0, -5.0)
        assert memory.strength == pytest.approx(again.gate * 5.0)
        book.reopen()


def test_a_key_does_for_an_id(book: Book):
    for key in "abc":
        book.backend.add_memory(f"memory {key}", key=key, reward=1.0)
    before = book.backend.get("b")
    assert book.backend.feedback(["b", "nobody"], rpe=1.0, used=[1.0, 1.0]) == 1
    after = book.backend.get("b")
    assert before is not None
    assert after is not None
    assert after.strength > before.strength
    assert book.backend.update("b", observation="memory of b").observation == "memory of b"
    assert book.backend.delete(["a", "nobody"]) == 1
    assert book.backend.delete("c") == 1
    assert [memory.key for memory in book.backend.list()] == ["b"]
    assert book.backend.get("a") is None
    book.backend.add_memory("memory a", key="a")
    assert [memory.key for memory in book.backend.list()] == ["b", "a"]
    with pytest.raises(UnknownMemoryError, match="'zzz'"):
        book.backend.update("zzz", observation="x")


def test_keys_are_of_their_namespace_and_cleared_with_it(book: Book):
    for name in "ann", "bob":
        book.backend.add_memory(f"{name} says hello", key="hello", namespace=name)
    assert book.backend.delete("hello", namespace="ann") == 1
    assert book.backend.get("hello", namespace="ann") is None
    assert book.backend.get("hello", namespace="bob") is not None
    book.backend.clear("bob")
    assert book.backend.get("hello", namespace="bob") is None
    book.backend.add_memory("again", key="hello", namespace="bob")
    assert book.backend.count("bob") == 1


def test_the_weakest_goes_where_there_is_no_room_and_its_key_with_it(book: Book):
    most = sum(CAPACITY)
    for number in range(most + 5):
        book.backend.add_memory(f"fact {number}", key=str(number), rpe=1.0 + number)
    held = {memory.key for memory in book.backend.list(limit=1000)}
    assert CAPACITY[1] <= len(held) == book.backend.count() < most + 5
    gone = {str(number) for number in range(most + 5)} - held
    assert all(book.backend.get(key) is None for key in gone)
    book.backend.add_memory("fact again", key=min(gone), rpe=1000.0)
    assert book.backend.get(min(gone)) is not None


def test_another_process_sees_keys(book: Book):
    other = book.another()
    book.backend.add_memory("one", key="a")
    assert other.get("a") is not None
    other.add_memory("two", key="a")
    memory = book.backend.get("a")
    assert memory is not None
    assert memory.observation == "two"
    other.delete("a")
    assert book.backend.get("a") is None
    book.backend.add_memory("three", key="a")
    assert other.count() == book.backend.count() == 1
    other.close()


def test_keys_are_exported_and_restored(book: Book):
    book.backend.add_memory("one", key="a", reward=1.0)
    book.backend.add_memory("two", reward=2.0)
    lines = list(book.backend.export())
    book.backend.restore(lines, namespace="copy")
    assert [memory.key for memory in book.backend.list(namespace="copy")] == ["a", None]
    assert book.backend.get("a", namespace="copy") is not None
    lines[2]["key"] = "a"
    with pytest.raises(ArgumentValueError, match="each key once"):
        book.backend.restore(lines, namespace="other")


def test_a_filter_may_be_a_function(book: Book):
    for number in range(6):
        book.backend.add_memory(f"fact {number}", key=str(number), metadata={"n": number})
    odd = lambda metadata: metadata["n"] % 2 == 1  # noqa: E731
    assert [memory.key for memory in book.backend.list(filter=odd)] == ["1", "3", "5"]
    assert {memory.key for memory in book.backend.get_relevant_memories("fact 2", filter=odd)} == {"1", "3", "5"}


def test_namespaces_by_prefix_and_whether_they_hold_anything(book: Book):
    for name in "users.ann", "users.Bob", "user_", "users%":
        book.backend.add_memory("hello", key="hello", namespace=name)
    book.backend.clear("users.ann")
    assert book.backend.namespaces("users.") == ["users.Bob", "users.ann"]
    assert book.backend.namespaces("users.", empty=False) == ["users.Bob"]
    assert book.backend.namespaces("user_") == ["user_"]
    assert book.backend.count("nobody") == 0
    assert "nobody" not in book.backend.namespaces()


def test_a_query_may_be_a_vector_alone(book: Book):
    book.backend.add_memory("red apples", key="red")
    book.backend.add_memory("green pears", key="green")
    (found,) = book.backend.get_relevant_memories("", 1, embedding=Words()(["green pears"])[0])
    assert (found.key, found.keyword) == ("green", 0.0)
    with pytest.raises(ArgumentValueError, match="state"):
        book.backend.get_relevant_memories("")


@pytest.mark.parametrize("bad", ["", " ", "\0", "\ud800"])
def test_a_key_is_text(book: Book, bad: str):
    with pytest.raises(ArgumentValueError, match="key"):
        book.backend.add_memory("hello", key=bad)
    assert book.backend.count() == 0


def test_a_file_of_version_1_is_brought_up_to_date(book: Book, file: Path):
    book.backend.add_memory("from long ago", reward=1.0)
    book.backend.close()
    with sqlite3.connect(file) as old:
        old.execute("DROP INDEX dmem_documents_key")
        old.execute("ALTER TABLE dmem_documents DROP COLUMN key")
        old.execute("UPDATE dmem_meta SET value = '1' WHERE key = 'version'")
    old.close()
    with pytest.raises(DatabaseError, match="of version 1: open it once for writing"):
        book.another(read_only=True)
    book.reopen()
    book.backend.add_memory("new", key="a")
    assert [memory.key for memory in book.backend.list()] == [None, "a"]
    with book.another(read_only=True) as other:
        assert other.count() == 2
