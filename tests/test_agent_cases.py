"""Faults that real users reported of memories for agents, and that must not happen in `MemoryBackend`.

Each test is named after the report that it comes from. "Everywhere" is every path that reads: recall by meaning and by
words, with filters and without, get, list, and all of that after closing and opening again.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from dmem_jax.agent import MemoryBackend
from dmem_jax.errors import ArgumentValueError, ClosedError, DatabaseError, UnknownMemoryError
from tests.agents import DIM, START, Book, Words, ask, by_words, held, ids, pages, texts


@pytest.mark.quick
@pytest.mark.parametrize("forget", ["clear", "delete"])
def test_mem0_3928_3746_deleting_what_is_of_one_user_leaves_the_others(either: Book, forget: str):
    for user, text in ("ann", "likes green tea"), ("bob", "likes black coffee"):
        assert either.backend.add_memory(text, reward=3.0, namespace=user).id == 0  # ids alone tell users not apart
    if forget == "clear":
        assert either.backend.clear("ann") == 1
    else:
        assert either.backend.delete(0, namespace="ann") == 1
    for _ in range(2):
        assert held(either.backend, "ann") == {}
        assert held(either.backend, "bob") == {0: "likes black coffee"}
        assert texts(ask(either.backend, "likes green tea", namespace="bob")) == ["likes black coffee"]
        either.reopen()


@pytest.mark.parametrize("change", ["feedback", "delete"])
def test_mem0_3928_a_memory_of_one_user_is_none_of_another(book: Book, change: str):
    book.backend.add_memory("likes green tea", reward=3.0, namespace="ann")
    book.backend.add_memory("likes black coffee", reward=3.0)
    before = held(book.backend), book.backend.list()
    found = ask(book.backend, "tea", namespace="ann")
    act = {"delete": book.backend.delete, "feedback": lambda memories: book.backend.feedback(memories, 1.0)}[change]
    with pytest.raises(ArgumentValueError, match="'ann'"):
        act(found)  # whose id is one of "default", too
    assert (held(book.backend), book.backend.list()) == before
    assert len(held(book.backend, "ann")) == 1


@pytest.mark.quick
def test_mem0_5160_changing_the_text_keeps_all_else(book: Book):
    book.backend.add_memory("lives in Paris", reward=3.0, action="asked", metadata={"category": "x"})
    book.backend.add_memory("owns two cats", reward=3.0)
    before = book.backend.get(0)
    book.clock.move(hours=1)
    after = book.backend.update(0, observation="moved near Lisbon")
    assert before is not None
    for _ in range(2):
        assert book.backend.get(0) == after
        assert after.metadata == {"category": "x"}
        assert (after.created_at, after.updated_at) == (before.created_at, START + timedelta(hours=1))
        assert (after.reward, after.rpe, after.count, after.action) == (3.0, 3.0, 1, "asked")
        found = ask(book.backend, "moved near Lisbon", filter={"category": "x"})
        assert ids(found) == [0]
        assert found[0].similarity == pytest.approx(1, abs=1e-5)  # the vector is new
        assert ask(book.backend, "lives in Paris", min_similarity=0.9) == []
        assert by_words(book.backend, "Paris") == []
        assert by_words(book.backend, "Lisbon") == [0]
        assert held(book.backend) == {0: "moved near Lisbon", 1: "owns two cats"}
        book.reopen()


def test_mem0_4453_6883_the_nearest_comes_first_and_a_threshold_drops_the_farthest(book: Book):
    book.backend.close()
    near_to_far = ["red green blue cyan", "red green blue grey", "red green pink grey", "dog cat bird fish"]
    book.reopen(params={"semantic_weight": 1.0}, keyword_weight=0.0)
    for text in reversed(near_to_far):
        book.backend.add_memory(text, reward=3.0)
    for _ in range(2):
        found = ask(book.backend, near_to_far[0])
        assert texts(found) == near_to_far
        cosines = [memory.similarity for memory in found]
        assert cosines == sorted(cosines, reverse=True)
        assert cosines[0] == pytest.approx(1, abs=1e-5)
        exact = Words()(near_to_far) @ Words()(near_to_far[:1])[0]
        np.testing.assert_allclose(cosines, exact, atol=1e-5)
        assert texts(ask(book.backend, near_to_far[0], min_similarity=0.9)) == near_to_far[:1]
        for kept in range(5):
            bound = 1.1 if kept == 0 else cosines[kept - 1] - 1e-3
            assert texts(ask(book.backend, near_to_far[0], min_similarity=bound)) == near_to_far[:kept]
        book.reopen(params={"semantic_weight": 1.0}, keyword_weight=0.0)


@pytest.mark.quick
def test_mem0_3787_a_deleted_memory_is_never_found(either: Book):
    for text in "likes green tea", "hates loud bars", "plays old chess":
        either.backend.add_memory(text, reward=3.0)
    assert either.backend.delete(1) == 1
    assert either.backend.delete(1) == 0
    for _ in range(2):
        assert sorted(ids(ask(either.backend, "hates loud bars", k=3))) == [0, 2]
        assert by_words(either.backend, "hates loud bars") == []
        assert either.backend.get(1) is None
        assert held(either.backend) == {0: "likes green tea", 2: "plays old chess"}
        with pytest.raises(UnknownMemoryError, match="1"):
            either.backend.update(1, observation="hates no bars")
        assert either.backend.feedback(1, 1.0) == 0
        either.reopen()
    assert either.backend.add_memory("sleeps until noon", reward=3.0).id == 3, "an id is never used again"


@pytest.mark.parametrize("signal", ["value", "reward", "novelty"])
def test_mem0_6515_threads_that_add_the_same_make_one_memory(either: Book, signal: str):
    backend = either.reopen(signal=signal)
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda _: backend.add_memory("likes green tea", "served it", 3.0), range(8)))
    assert {one.id for one in added} == {0}
    for _ in range(2):
        assert held(either.backend) == {0: "likes green tea"}
        memory = either.backend.get(0)
        assert memory is not None
        assert memory.count == 8
        either.reopen(signal=signal)


@pytest.mark.parametrize("signal", ["value", "reward", "novelty"])
@pytest.mark.parametrize("reward", [3.0, -3.0, 0.0, None])
def test_mem0_1674_the_same_twice_is_one_memory(book: Book, signal: str, reward: float | None):
    backend = book.reopen(signal=signal)
    for known, text in enumerate(["likes green tea", "hates loud bars at night", "owns a dog that is fond of cats"]):
        first, second = (backend.add_memory(text, reward=reward).id for _ in range(2))
        if signal != "novelty" and reward == 0.0:
            assert (first, second) == (None, None)  # nothing surprising about it
        else:
            assert first == known
            assert second in (known, None)  # None: what is known already surprises no more
            assert held(backend)[known] == text
            assert len(held(backend)) == known + 1
    before = held(backend)
    assert held(book.reopen(signal=signal)) == before


def test_mem0_3065_1700_another_size_of_vector_changes_nothing(either: Book):
    either.backend.add_memory("likes green tea", reward=3.0)
    before = either.backend.list()
    either.backend.close()
    with pytest.raises(DatabaseError, match=rf"'{DIM}'.*'16'"):
        either.another(encoder=Words(16))
    either.reopen()
    with pytest.raises(ArgumentValueError, match=rf"embedding: expected the {DIM} .*\[16\]"):
        either.backend.add_memory("hates loud bars", reward=3.0, embedding=np.ones(16, np.float32))
    with pytest.raises(ArgumentValueError, match=rf"embedding: expected the {DIM} .*\[16\]"):
        either.backend.update(0, observation="hates loud bars", embedding=np.ones(16, np.float32))
    with pytest.raises(ArgumentValueError, match=rf"embedding: expected the {DIM} .*\[16\]"):
        ask(either.backend, "tea", embedding=np.ones(16, np.float32))
    assert either.backend.list() == before
    assert held(either.reopen()) == {0: "likes green tea"}
    with pytest.raises(DatabaseError, match=r"'words'.*'other words'"):
        either.another(encoder=Words(name="other words"))


def test_mem0_7196_6619_one_writes_and_four_read_until_it_is_closed(either: Book):
    backend, returned, wrong, busy = either.backend, [], [], threading.Barrier(6)

    def write() -> None:
        busy.wait()
        for i in range(1000):
            returned.append((backend.add_memory(f"fact number {i} of {i * i}", reward=3.0).id, i))

    def read() -> None:
        busy.wait()
        while True:
            known = len(returned)
            found = backend.list(limit=1000)
            if len(found) < min(known, 64):
                wrong.append((known, len(found)))
            ask(backend, "fact number 7", k=5)

    def until_closed(work) -> None:
        try:
            work()
        except ClosedError:
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=until_closed, args=(work,)) for work in (write, read, read, read, read)]
    for thread in threads:
        thread.start()
    busy.wait()
    while len(returned) < 20 and not wrong:
        time.sleep(0.001)
    backend.close()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 20 <= len(returned) < 1000
    kept = held(either.reopen())
    for id_, i in returned[-20:]:
        assert kept[id_] == f"fact number {i} of {i * i}"


def test_mem0_4294_numbers_are_numbers_that_json_takes(book: Book):
    book.backend.add_memory("likes green tea", "served it", 3.0, "was glad", metadata={"n": 1})
    book.backend.add_memory("hates loud bars")
    wholes, floats = ("id", "count", "recalls"), ("rpe", "strength", "score", "similarity", "keyword", "salience")
    for asked in ({}, {"filter": {"n": 1}}, {"sign": 1}, {"min_similarity": 0.5}):
        for memory in ask(book.backend, "likes green tea", **asked):
            assert [type(getattr(memory, name)) for name in wholes] == [int] * len(wholes)
            assert [type(getattr(memory, name)) for name in floats] == [float] * len(floats)
            assert type(memory.contradicted) is bool
            json.dumps({name: getattr(memory, name) for name in (*wholes, *floats, "reward", "tier", "metadata")})
    added = book.backend.add_memory("plays old chess", reward=1.0)
    assert [type(each) for each in (added.id, added.rpe, added.size, added.gate)] == [int, float, float, float]
    json.dumps([book.backend.consolidate(), book.backend.stats()])


def test_a_mem_32_a_rank_is_no_index(book: Book):
    a, b, c = "likes green tea", "hates loud bars", "plays old chess"
    for text in a, "sleeps until noon", b, c:
        book.backend.add_memory(text, reward=3.0)
    book.backend.delete(1)  # the next one takes a slot that was another's
    book.backend.add_memory("rides a bike", reward=3.0)
    for _ in range(2):
        before = {memory.observation: memory for memory in book.backend.list()}
        found = ask(book.backend, f"{c} {c} {a}")
        assert texts(found)[:2] == [c, a]
        assert book.backend.feedback(found[:1], 1.0) == 1
        assert book.backend.add_memory(c, reward=9.0).route == "merged"
        after = {memory.observation: memory for memory in book.backend.list()}
        assert {text for text in before if before[text] != after[text]} == {c}
        assert (after[c].id, after[c].count) == (before[c].id, before[c].count + 1)
        book.reopen()
        book.clock.move(days=1)
        book.backend.delete(before[b].id)
        book.backend.add_memory(b, reward=3.0)


@pytest.mark.quick
def test_a_mem_35_a_merge_changes_what_every_path_finds(either: Book):
    either.backend.add_memory("lives in Paris", reward=3.0, metadata={"from": "first"})
    either.backend.add_memory("moved near Lisbon", reward=4.0, metadata={"from": "second"})
    either.backend.add_memory("owns two cats", reward=3.0)
    either.backend.update(0, embedding=Words()(["moved near Lisbon"])[0])  # their places are one now
    merged = either.backend.consolidate()
    assert merged["merged"] == 1
    for _ in range(2):
        kept = held(either.backend)
        assert sorted(kept.values()) == ["moved near Lisbon", "owns two cats"]
        assert by_words(either.backend, "Paris") == []
        assert ask(either.backend, "lives in Paris", min_similarity=0.9) == []
        (found,) = ask(either.backend, "moved near Lisbon", min_similarity=0.9)
        assert found.count == 2
        assert by_words(either.backend, "Lisbon") == [found.id]
        assert ids(ask(either.backend, "lives", filter={"from": found.metadata["from"]})) == [found.id]
        either.reopen()


def test_graphiti_893_naive_and_aware_times_meet(book: Book):
    tokyo = timezone(timedelta(hours=9))
    naive, aware = datetime(2026, 2, 1, 3), datetime(2026, 2, 1, 13, tzinfo=tokyo)  # the second an hour later
    book.backend.add_memory("likes green tea", reward=3.0, time=naive)
    book.backend.add_memory("hates loud bars", reward=3.0, time=aware)
    for _ in range(2):
        first, second = book.backend.list()
        assert first.created_at == datetime(2026, 2, 1, 3, tzinfo=UTC)
        assert second.created_at - first.created_at == timedelta(hours=1)
        assert {first.created_at.utcoffset(), second.created_at.utcoffset()} == {timedelta(0)}
        between = datetime(2026, 2, 1, 3, 30)
        for moment in between, between.replace(tzinfo=UTC).astimezone(tokyo):
            assert ids(ask(book.backend, "tea", since=moment)) == [1]
            assert ids(ask(book.backend, "tea", until=moment)) == [0]
        assert sorted(ids(ask(book.backend, "tea", since=naive, until=aware))) == [0, 1]
        book.reopen()
    strength = book.backend.list()[0].strength
    later = book.reopen(clock=lambda: datetime(2026, 6, 1))  # a naive clock: decay goes on
    assert later.list()[0].strength < strength


def test_letta_1648_no_page_has_a_row_twice_or_lacks_one(either: Book):
    for i in range(10):
        either.backend.add_memory(f"fact number {i} of {i * i}", reward=3.0, metadata={"odd": i % 2})
    for _ in range(2):
        assert ids(pages(either.backend, 4)) == list(range(10))
        assert ids(pages(either.backend, 2, filter={"odd": 1})) == [1, 3, 5, 7, 9]
        assert either.backend.list(limit=0) == []
        assert ids(either.backend.list(limit=2, after=8)) == [9]
        assert either.backend.list(after=10**12) == []
        either.reopen()
    first = either.backend.list(limit=4)
    either.backend.delete([1, 5])
    either.backend.add_memory("fact number 10 of 100", reward=3.0)
    either.backend.update(2, observation="fact number 2 of 4 anew")
    assert ids(either.backend.list(limit=4, after=first[-1].id)) == [4, 6, 7, 8]
    assert ids(either.backend.list(limit=4, after=8)) == [9, 10]


def test_letta_3146_times_are_read_from_the_clock_at_each_call(book: Book):
    book.backend.add_memory("likes green tea", reward=3.0)
    book.clock.move(days=1)
    book.backend.add_memory("hates loud bars", reward=3.0)
    first, second = book.backend.list()
    assert second.created_at - first.created_at == timedelta(days=1)
    assert ids(ask(book.backend, "tea", since=book.clock.now)) == [1]
    book.clock.move(days=1)
    assert ask(book.backend, "tea", since=book.clock.now) == []


@pytest.mark.quick
def test_memos_881_memoria_10_what_was_merged_or_purged_is_gone(book: Book):
    backend = book.reopen(params={"floor": 0.05, "half_life": 86400.0, "disaster_half_life": 86400.0})
    backend.add_memory("owns two cats", reward=1.0)
    book.clock.move(days=30)
    backend.add_memory("lives in Paris", reward=3.0)
    backend.add_memory("moved near Lisbon", reward=4.0)
    backend.update(1, embedding=Words()(["moved near Lisbon"])[0])
    did = backend.consolidate("default")
    assert (did["merged"], did["forgotten"]) == (1, 1)
    for _ in range(2):
        assert list(held(backend).values()) == ["moved near Lisbon"]
        for gone in "owns two cats", "lives in Paris":
            assert by_words(backend, gone) == []
            assert texts(ask(backend, gone)) == ["moved near Lisbon"]
        backend = book.reopen()


def test_synthetic_heart_378_recall_alone_changes_no_order(book: Book):
    for i, text in enumerate(["likes green tea", "likes black tea", "likes tea", "hates loud bars"]):
        book.backend.add_memory(text, reward=2.0 + i)
    before = ask(book.backend, "tea please")
    for i in range(1000):
        found = book.backend.get_relevant_memories("tea please", k=2)
        assert ids(found) == ids(before)[:2]
        if i % 400 == 399:
            book.reopen()
    after = ask(book.backend, "tea please")
    assert [memory.recalls for memory in after] == [1000, 1000, 0, 0]
    assert ids(after) == ids(before)
    for name in "score", "strength", "salience", "similarity", "keyword":
        assert [getattr(memory, name) for memory in after] == [getattr(memory, name) for memory in before], name


def test_a_store_that_nobody_wrote_to_is_empty_on_every_path(either: Book):
    for _ in range(2):
        for namespace in "default", "nobody":
            assert held(either.backend, namespace) == {}
            assert either.backend.stats(namespace) == {}
            assert (either.backend.delete(0, namespace=namespace), either.backend.clear(namespace)) == (0, 0)
            assert either.backend.feedback([0, 1], 1.0, namespace=namespace) == 0
        assert set(either.backend.consolidate().values()) == set(either.backend.consolidate("nobody").values()) == {0}
        assert either.backend.namespaces() == []
        either.reopen()


def test_what_comes_back_is_a_copy(book: Book):
    metadata = {"tags": ["a"]}
    book.backend.add_memory("likes green tea", reward=3.0, metadata=metadata)
    metadata["tags"].append("b")
    for memory in (*ask(book.backend, "tea"), *book.backend.list(), book.backend.get(0)):
        assert memory is not None
        memory.metadata["tags"].append("c")
    assert [memory.metadata for memory in book.backend.list()] == [{"tags": ["a"]}]


def test_a_backend_without_keywords_answers_as_well(book: Book):
    backend: MemoryBackend = book.reopen(keyword_weight=0.0)
    backend.add_memory("likes green tea", reward=3.0)
    assert [memory.keyword for memory in ask(backend, "green tea")] == [0.0]
    assert by_words(book.reopen(), "green") == [0]
