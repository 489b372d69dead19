"""Random lives of a `MemoryBackend`, closed and opened again at any moment: all is as it was, bit for bit, and as the
core alone would have it."""

import dataclasses
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import dmem_jax as dmem
from dmem_jax import retrieval, value
from dmem_jax.agent import MemoryBackend
from dmem_jax.agent.database import Document
from dmem_jax.agent.learning import learner_config, newborn
from dmem_jax.agent.namespace import Namespace
from dmem_jax.agent.texts import task_of
from dmem_jax.agent.times import seconds
from dmem_jax.config import Config
from dmem_jax.learner import Batch
from tests import jitted
from tests.agents import DIM, START, Book, Clock, Words, ask, held, ids

SMALL = (3, 5)
# Some are near to others, so that memories merge and contradict; a mean of two may lie near a third.
TEXTS = ("tea", "tea tea tea coffee", "coffee", "bars at night", "bars at night night", "old chess")
NAMESPACES = ("ann", "bob")
PARAMS = {"duplicate_similarity": 0.9, "floor": 0.01, "half_life": 5 * 86400.0, "disaster_half_life": 5 * 86400.0}

_texts, _names = st.sampled_from(TEXTS), st.sampled_from(NAMESPACES)
_numbers = st.sampled_from((-20.0, -5.0, -1.0, -0.01, 0.0, 0.5, 3.0, 8.0, 40.0))
_some = st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True)
ADDING = st.tuples(
    st.just("add"),
    _names,
    _texts,
    st.sampled_from((None, "went", "stayed")),
    st.none() | _numbers,
    st.none() | _numbers,
)
ACTS = st.one_of(
    ADDING,
    ADDING,
    ADDING,
    st.tuples(st.just("recall"), _names, _texts, st.integers(1, 4)),
    st.tuples(st.just("feedback"), _names, _some, _numbers),
    st.tuples(st.just("update"), _names, st.integers(0, 12), st.none() | _texts),
    st.tuples(st.just("delete"), _names, _some),
    st.tuples(st.just("consolidate"), _names),
    st.tuples(st.just("clear"), _names),
    st.tuples(st.just("wait"), st.sampled_from((1.0, 3600.0, 86400.0, 40 * 86400.0))),
    st.tuples(st.just("reopen")),
)


def do(backend: MemoryBackend, clock: Clock, act: tuple[Any, ...]) -> object:
    match act:
        case ("add", name, text, action, reward, rpe):
            return backend.add_memory(text, action, reward, namespace=name, rpe=rpe, metadata={"act": str(act)})
        case ("recall", name, text, k):
            return backend.get_relevant_memories(text, k, namespace=name)
        case ("feedback", name, some, rpe):
            return backend.feedback(some, rpe, namespace=name, used=[1.0 / (1 + i) for i in range(len(some))])
        case ("update", name, id_, text):
            if backend.get(id_, namespace=name) is None:
                return None
            return backend.update(id_, observation=text, metadata={"changed": True}, namespace=name)
        case ("delete", name, some):
            return backend.delete(some, namespace=name)
        case ("consolidate", name):
            return backend.consolidate(name)
        case ("clear", name):
            return backend.clear(name)
        case ("wait", by):
            return clock.move(seconds=by)
    raise AssertionError(act)


def space(backend: MemoryBackend, name: str) -> Namespace | None:
    """As it is in this process, in step with the database."""
    backend.list(namespace=name, limit=0)
    return backend._spaces._loaded.get(name)


def arrays(backend: MemoryBackend, name: str) -> dict[str, bytes]:
    """Every array of a namespace that means anything: what is in a free slot, and the probe, never do."""
    there = space(backend, name)
    if there is None:
        return {}
    memory = jax.device_get(there.memory)

    def tier(store: Any) -> Any:
        kept = store.id >= 0
        pick = jax.tree.map(lambda leaf: leaf[kept] + leaf.dtype.type(0), store)  # -0 is stored as 0
        return np.flatnonzero(kept), pick

    parts = {name: getattr(memory, name) for name in ("router", "stats", "clock", "next_id")}
    parts |= {"core": tier(memory.core), "buffer": tier(memory.buffer), "learner": jax.device_get(there._learner)}
    parts["next document"] = np.int32(there._next_document)
    return {jax.tree_util.keystr(path): leaf.tobytes() for path, leaf in jax.tree_util.tree_leaves_with_path(parts)}


def seen(backend: MemoryBackend) -> Any:
    names = backend.namespaces()
    return {name: (backend.list(namespace=name), arrays(backend, name)) for name in names}


def assert_same(after: Any, before: Any) -> None:
    assert after.keys() == before.keys()
    for name in before:
        assert after[name][0] == before[name][0]
        different = [leaf for leaf in before[name][1] if before[name][1][leaf] != after[name][1].get(leaf)]
        assert not different, name


LIFE = {"capacity": SMALL, "params": PARAMS, "signal": "value"}


# Found examples are long anyway, and shrinking one takes minutes.
_unshrunk = hypothesis.settings(phases=[hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate])


def _live(database: str, acts: list[tuple[Any, ...]]) -> None:
    """One backend is closed and opened again where the acts say so, another one never."""
    book = Book(database, **LIFE)
    whole = Book(":memory:", **LIFE)
    try:
        for act in acts:
            if act == ("reopen",):
                before = seen(book.backend)
                assert_same(seen(book.reopen()), before)
            else:
                assert do(book.backend, book.clock, act) == do(whole.backend, whole.clock, act), act
        assert_same(seen(book.reopen()), seen(whole.backend))
        for name in book.backend.namespaces():
            held(book.backend, name)
    finally:
        book.backend.close()
        whole.backend.close()


LIVES = st.lists(ACTS, min_size=10, max_size=30)


@hypothesis.settings(_unshrunk, max_examples=8)
@hypothesis.given(acts=LIVES)
def test_a_life_with_restarts_is_one_without(tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[Any, ...]]):
    _live(str(tmp_path_factory.mktemp("life") / "memory.db"), acts)


@pytest.mark.slow
@hypothesis.settings(_unshrunk, max_examples=300)
@hypothesis.given(acts=LIVES)
def test_many_lives_with_restarts(tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[Any, ...]]):
    _live(str(tmp_path_factory.mktemp("life") / "memory.db"), acts)


def test_a_life_on_postgres(postgres_url: str):
    acts = [("add", "ann", text, action, reward, None) for reward in (3.0, -9.0, 20.0) for text in TEXTS
            for action in (None, "went")]  # fmt: skip
    book, whole = Book(postgres_url, **LIFE), Book(":memory:", **LIFE)
    for i, act in enumerate(acts):
        assert do(book.backend, book.clock, act) == do(whole.backend, whole.clock, act)
        if i % 5 == 4:
            for other in (("recall", "ann", "tea", 3), ("feedback", "ann", [i, i - 1, i - 3], 2.0), ("wait", 86400.0),
                          ("consolidate", "ann"), ("delete", "ann", [i - 2])):  # fmt: skip
                assert do(book.backend, book.clock, other) == do(whole.backend, whole.clock, other)
            assert_same(seen(book.reopen()), seen(whole.backend))
    whole.backend.close()
    book.backend.close()


# ---- law 9: the core decides


@hypothesis.settings(_unshrunk, max_examples=8)
@hypothesis.given(st.lists(ADDING, min_size=5, max_size=40))
def test_the_core_alone_keeps_the_same(acts: list[tuple[Any, ...]]):
    """`dmem_jax.write`, handed what the backend was told, keeps the same memories with the same strengths."""
    book = Book(":memory:", **LIFE)
    config = Config(embedding_dim=DIM, core_capacity=3, buffer_capacity=5, duplicates="search", signal="novelty")
    params, critic = dmem.Params.default(config, **PARAMS), learner_config(DIM)
    payload = jnp.int32(0)
    memory, learner = dmem.init(config, payload), newborn(DIM)
    encoder = Words()
    for number, (_, _, text, action, reward, rpe) in enumerate(acts):
        added = book.backend.add_memory(text, action, reward, rpe=rpe)
        embedding = jnp.asarray(encoder([text])[0])
        place = embedding / jnp.linalg.norm(embedding)
        expected = value.value(critic, learner, place)
        told = rpe if rpe is not None else 0.0 if reward is None else np.float32(reward) - np.float32(expected)
        met = dmem.experience(
            config, embedding, rpe=jnp.float32(told), reward=jnp.float32(reward or 0.0), value=expected,
            task=jnp.int32(task_of(Document(number, text, action, None, True, {}, 0, 0))),
            time=jnp.int32(seconds(START)), payload=jnp.int32(number),
        )  # fmt: skip
        weight = float(params.novelty_weight) if rpe is None and reward is None else 0.0
        memory, info = jitted.write(
            config, dataclasses.replace(params, novelty_weight=jnp.float32(weight)), memory, met
        )
        if reward is not None:
            batch = Batch(place[None], jnp.float32(reward)[None], jnp.ones(1, bool))
            learner, _ = value.update(critic, learner, batch)
        assert added.route == dmem.Route(int(info.route)).name.lower(), number
        assert added.id == (int(info.id) if info.id >= 0 else None)
        assert added.evicted_id == (int(info.evicted_id) if info.evicted_id >= 0 else None)
        np.testing.assert_allclose((added.rpe, added.size, added.gate), (info.rpe, info.size, info.gate), 1e-5, 1e-6)
    there = space(book.backend, "default")
    assert there is not None
    for ours, pure in (there.memory.core, memory.core), (there.memory.buffer, memory.buffer):
        np.testing.assert_array_equal(ours.id, pure.id)
        live = np.asarray(pure.id) >= 0
        for name in "strength", "written_strength", "rpe", "reward":
            np.testing.assert_allclose(getattr(ours, name)[live], getattr(pure, name)[live], 1e-5, 1e-6, err_msg=name)
        for name in "count", "contradicted", "task", "time", "touched":
            np.testing.assert_array_equal(getattr(ours, name)[live], getattr(pure, name)[live], err_msg=name)
    book.backend.close()


def test_the_score_is_the_cores(monkeypatch: pytest.MonkeyPatch):
    """Turned around in the core, it is turned around here."""

    def order(buffer: int) -> list[int]:  # each of its own size: other programs are compiled already
        book = Book(":memory:", capacity=(3, buffer), params={"semantic_weight": 1.0}, keyword_weight=0.0)
        for i, text in enumerate(TEXTS):
            book.backend.add_memory(text, f"action {i}", 3.0)
        found = ids(ask(book.backend, "tea coffee coffee night"))
        book.backend.close()
        return found

    before = order(6)
    assert len(before) == len(TEXTS)
    search = retrieval.search

    def turned_around(config: Any, params: Any, memory: Any, query: Any, answerable: Any, cosines: Any) -> Any:
        return search(config, params, memory, query, answerable, -cosines)

    monkeypatch.setattr(retrieval, "search", turned_around)
    after = order(7)
    assert sorted(after) == sorted(before)
    assert after == before[::-1]


def test_a_buffer_that_grew_is_one_that_was_large_from_the_start(tmp_path, monkeypatch: pytest.MonkeyPatch):
    large = Book(":memory:", capacity=(3, 60), signal="value")
    monkeypatch.setattr("dmem_jax.agent.namespace._FIRST_BUFFER", 8)
    small = Book(str(tmp_path / "memory.db"), capacity=(3, 60), signal="value")
    draw = np.random.default_rng(0)
    words = ("tea", "coffee", "bars", "chess", "cats", "dogs", "Paris", "Lisbon", "noon", "night", "bike", "train")
    for i in range(90):
        text, reward = " ".join(draw.choice(words, 3)), float(draw.normal() * 5)
        assert small.backend.add_memory(text, reward=reward) == large.backend.add_memory(text, reward=reward), i
        if i % 10 == 9:
            assert small.backend.list() == large.backend.list()
            for question in "tea", "cats noon":
                assert ids(ask(small.backend, question)) == ids(ask(large.backend, question))
        if i in (15, 50):
            small.reopen()
        if i % 30 == 29:
            assert small.backend.consolidate() == large.backend.consolidate()
            assert small.backend.delete([i - 1, i - 2]) == large.backend.delete([i - 1, i - 2])
    there = space(small.backend, "default")
    assert there is not None
    assert there.config.buffer_capacity > 8
    assert_same(seen(small.reopen()), seen(large.backend))
    small.backend.close()
    large.backend.close()
