"""The index: it follows whatever the core does, and what is recalled through it is what exact recall recalls."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmem_jax as dmem
from dmem_jax import ann, checkpoint, monitor

pytest.importorskip("hnswlib")

CONFIG = dmem.Config(
    embedding_dim=8, core_capacity=4, buffer_capacity=40, top_k=5, duplicates="search", scale="none", warmup=0
)
PARAMS = dmem.Params.default(CONFIG, threshold_low=0.0, threshold_high=20.0, duplicate_similarity=0.9)
PAYLOAD = {"place": jnp.int32(0)}
write_many = jax.jit(dmem.write_many)
consolidate = jax.jit(dmem.consolidate)
exact_recall = jax.jit(dmem.recall)


def experiences(config: dmem.Config, n: int, seed: int, centres: int = 12, **fields: Any) -> dmem.Experience:
    """Around some centres, of both signs, of three tasks, a few of them great."""
    random = np.random.default_rng(seed)
    around = np.random.default_rng(99).normal(size=(centres, config.embedding_dim))
    embedding = around[random.integers(0, centres, n)] + 0.3 * random.normal(size=(n, config.embedding_dim))
    rpe = random.uniform(0.5, 3, n) * random.choice([-1, 1], n) * np.where(random.random(n) < 0.03, 30, 1)
    given = {"rpe": rpe, "task": random.integers(0, 3, n).astype(np.int32)} | fields
    payload = {"place": np.arange(n, dtype=np.int32)}
    return jax.device_get(dmem.experience(config, embedding.astype(np.float32), payload=payload, **given))


def full(config: dmem.Config, n: int, seed: int = 0, **fields: Any) -> dmem.Memory:
    """`n` memories, all in the buffer, in the order they come."""
    params = dataclasses.replace(PARAMS, threshold_high=jnp.float32(1e6))
    return write_many(config, params, dmem.init(config, PAYLOAD), experiences(config, n, seed, **fields))[0]


def large(n: int = 2000, **changes: Any) -> dmem.Config:
    return dataclasses.replace(
        CONFIG, **({"embedding_dim": 16, "buffer_capacity": n, "duplicates": "off", "top_k": 10} | changes)
    )


@pytest.fixture(scope="module")
def of_many() -> tuple[dmem.Config, dmem.Memory, ann.Index]:
    config = large()
    memory = full(config, 2000, centres=100)
    index = ann.Index(config, threads=1)
    assert index.sync(memory) == 2000
    return config, memory, index


def check(index: ann.Index, memory: dmem.Memory) -> None:
    """The index holds the direction of every live memory under its slot, and nothing else can be found in it."""
    buffer = jax.device_get(memory.buffer)
    live = np.flatnonzero(buffer.id >= 0)
    assert index.live == live.size
    assert index._graph.element_count <= index.capacity == buffer.id.size
    if live.size:
        directions = buffer.embedding[live].astype(np.float32) * buffer.inv_norm[live, None]
        np.testing.assert_allclose(index._graph.get_items(live), directions, atol=1e-3)
        found = index.nearest(directions, index.capacity)
        assert set(found[found < index.capacity].tolist()) == set(live.tolist())


def equal(got: dmem.Recall, exact: dmem.Recall) -> None:
    for name in ("valid", "id", "slot", "tier", "rpe", "contradicted"):
        np.testing.assert_array_equal(getattr(got, name), getattr(exact, name), err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, got.payload, exact.payload)
    for name in ("score", "semantic", "salience"):
        np.testing.assert_allclose(getattr(got, name), getattr(exact, name), rtol=1e-5, atol=1e-6, err_msg=name)


def share(got: dmem.Recall, exact: dmem.Recall) -> float:
    hit = (np.asarray(got.id)[..., None, :] == np.asarray(exact.id)[..., :, None]) & np.asarray(exact.valid)[..., None]
    return hit.sum() / np.asarray(exact.valid).sum()


def many(config: dmem.Config, memory: dmem.Memory, query: dmem.Query) -> dmem.Recall:
    return jax.jit(jax.vmap(dmem.recall, in_axes=(None, None, None, 0)))(config, PARAMS, memory, query)


# ---- following


@pytest.mark.quick
@settings(max_examples=8)
@given(
    st.lists(st.sampled_from(["write", "one", "tidy", "forget", "branch", "rebase", "nothing"]), min_size=2, max_size=8)
)
def test_it_follows_whatever_the_core_does(events):
    memory = older = dmem.init(CONFIG, PAYLOAD)
    index = ann.Index(CONFIG, threads=1)
    assert index.sync(memory) == 0
    for seed, event in enumerate(events):
        if event in ("write", "one"):
            memory, _ = write_many(CONFIG, PARAMS, memory, experiences(CONFIG, 24 if event == "write" else 1, seed))
        elif event == "tidy":
            memory, _ = consolidate(CONFIG, PARAMS, memory)
        elif event == "forget":
            memory, _ = consolidate(CONFIG, dataclasses.replace(PARAMS, floor=jnp.float32(1.5)), memory)
        elif event == "branch":  # back to an earlier memory, and on from there
            memory, older = older, memory
            memory, _ = write_many(CONFIG, PARAMS, memory, experiences(CONFIG, 3, 50 + seed))
        elif event == "rebase":
            memory = dmem.rebase(memory, 5)
        index.sync(memory)
        check(index, memory)
        assert index.sync(memory) == 0
        embedding = jnp.asarray(experiences(CONFIG, 1, 200 + seed).embedding[0])
        exact = exact_recall(CONFIG, PARAMS, memory, embedding)
        equal(ann.recall(CONFIG, PARAMS, memory, index, embedding, candidates=40), exact)
        few = ann.recall(CONFIG, PARAMS, memory, index, embedding, candidates=5)
        assert set(np.asarray(few.id[few.valid]).tolist()) <= set(np.asarray(memory.buffer.id).tolist()) | set(
            np.asarray(memory.core.id).tolist()
        )


@pytest.mark.quick
def test_a_refreshed_memory_is_left_and_a_merged_one_moves():
    memory = full(CONFIG, 20)
    index = ann.Index(CONFIG, threads=1)
    index.sync(memory)
    twin = jax.tree.map(lambda leaf: leaf[3:4], experiences(CONFIG, 20, 0))
    refreshed, info = write_many(CONFIG, PARAMS, memory, twin)
    assert info.route[0] == dmem.Route.REFRESHED
    assert index.sync(refreshed) == 0
    near = dataclasses.replace(twin, rpe=2 * twin.rpe, embedding=twin.embedding + np.float32(0.05))
    merged, info = write_many(CONFIG, PARAMS, memory, near)
    assert info.route[0] == dmem.Route.MERGED
    assert index.sync(merged) == 1
    check(index, merged)


@pytest.mark.quick
def test_another_life_with_the_same_ids_is_seen():
    """As after a restart from an older checkpoint: ids, counts, times and norms are those that the index knows."""
    base = full(CONFIG, 10)
    index = ann.Index(CONFIG, threads=1)
    random = np.random.default_rng(3)
    vectors = np.sign(random.normal(size=(2, 6, 8))).astype(np.float32)  # all of one norm
    lives = []
    for life in vectors:
        one = dmem.experience(CONFIG, life, rpe=2.0, payload={"place": jnp.zeros(6, jnp.int32)})
        lives.append(write_many(dataclasses.replace(CONFIG, duplicates="off"), PARAMS, base, one)[0])
    np.testing.assert_array_equal(lives[0].buffer.id, lives[1].buffer.id)
    for memory in lives:
        index.sync(memory)
        check(index, memory)


def test_a_memory_can_be_donated_after_it_was_followed(of_many):
    config, memory, _ = of_many
    index = ann.Index(config)  # built by all threads
    own = jax.tree.map(jnp.copy, memory)
    index.sync(own)
    check(index, own)
    place = own.buffer.embedding.unsafe_buffer_pointer()
    new = jax.jit(dmem.write, donate_argnums=2)(
        config, PARAMS, own, jax.tree.map(lambda leaf: leaf[0], experiences(config, 1, 5))
    )[0]
    assert new.buffer.embedding.unsafe_buffer_pointer() == place


def nearest_found(index: ann.Index, memory: dmem.Memory, queries: np.ndarray, ef: int) -> float:
    """Recall@10 of the index alone."""
    index.ef = ef
    buffer = jax.device_get(memory.buffer)
    directions = buffer.embedding * buffer.inv_norm[:, None]
    cosines = np.where(buffer.id >= 0, queries @ directions.T, -np.inf)
    wanted = np.argsort(-cosines, axis=1)[:, :10]
    found = index.nearest((queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32), 10)
    return (found[:, :, None] == wanted[:, None, :]).any(axis=1).mean()


@pytest.mark.parametrize("n", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_replacing_all_of_it_again_and_again_neither_grows_nor_rots_it(n):
    config = large(n)
    params = dataclasses.replace(PARAMS, threshold_high=jnp.float32(1e6))
    memory, index = full(config, n, centres=n // 10), ann.Index(config, threads=1, ef_construction=100)
    index.sync(memory)
    queries = np.asarray(experiences(config, 200, 77, centres=n // 10).embedding)
    fresh = [nearest_found(index, memory, queries, ef) for ef in (16, 64)]
    size = index.summary()["ann/bytes"]
    for life in range(4):
        for part in range(6):
            rpe = 10.0 ** (life + 1) * np.random.default_rng(life).uniform(1, 3, n // 6)
            more = experiences(config, n // 6, 10 * life + part, centres=n // 10, rpe=rpe)
            memory, _ = write_many(config, params, memory, more)
            index.sync(memory)
        assert index.live == index._graph.element_count == n
        assert index.summary()["ann/bytes"] <= 1.01 * size
    kept = [nearest_found(index, memory, queries, ef) for ef in (16, 64)]
    assert kept[0] > fresh[0] - 0.05
    assert kept[1] > 0.99


def test_what_is_deleted_is_never_found_and_its_space_is_reclaimed(of_many):
    config, memory, _ = of_many
    index = ann.Index(config, threads=1)
    index.sync(memory)
    fading = dataclasses.replace(PARAMS, floor=jnp.float32(0.1))
    left, report = jax.jit(dmem.consolidate)(dataclasses.replace(config, merge_rounds=0), fading, memory)
    assert 0 < int(report.forgotten) < 1500
    assert index.sync(left) == int(report.forgotten)
    check(index, left)
    assert index.summary()["ann/deleted"] == int(report.forgotten)
    queries = jnp.asarray(experiences(config, 50, 4, centres=100).embedding)
    found = ann.recall(config, PARAMS, left, index, queries)
    gone = np.asarray(report.forgotten_ids)
    assert not np.isin(np.asarray(found.id), gone[gone >= 0]).any()
    assert ann.measured_recall(config, PARAMS, left, index, queries) > 0.97
    # Where most are gone it's built anew, without them.
    least = dataclasses.replace(PARAMS, floor=jnp.float32(20.0))
    left, report = jax.jit(dmem.consolidate)(dataclasses.replace(config, merge_rounds=0), least, left)
    index.sync(left)
    check(index, left)
    assert index.summary()["ann/deleted"] == 0
    # A free slot is taken again, also one that was deleted before.
    again, _ = write_many(config, dataclasses.replace(PARAMS, threshold_high=jnp.float32(1e6)), left,
                          experiences(config, 1000, 8, centres=100))  # fmt: skip
    index.sync(again)
    check(index, again)


def test_where_nearly_all_is_new_it_is_built_anew(of_many):
    config, memory, _ = of_many
    index = ann.Index(config, threads=1)
    index.sync(memory)
    built = index._graph
    other = full(config, 2000, seed=1, centres=100)
    assert index.sync(other) == 2000
    assert index._graph is not built
    check(index, other)


def test_duplicates_do_not_hide_others():
    config = large(1200)
    written = experiences(config, 1200, 2, centres=100)
    embedding = written.embedding.copy()
    embedding[::2] = np.repeat(embedding[:6], 100, axis=0)  # six memories, a hundred times each
    params = dataclasses.replace(PARAMS, threshold_high=jnp.float32(1e6))
    memory = write_many(config, params, dmem.init(config, PAYLOAD), dataclasses.replace(written, embedding=embedding))[
        0
    ]
    index = ann.Index(config, threads=1)
    index.sync(memory)
    others = np.arange(1, 1200, 2)
    directions = embedding[others] / np.linalg.norm(embedding[others], axis=1, keepdims=True)
    found = index.nearest(directions, 10)
    assert (found == others[:, None]).any(axis=1).mean() > 0.99


def test_a_larger_buffer_keeps_everything_and_the_index_follows(of_many):
    config, memory, index = of_many
    index = ann.Index(config, threads=1)
    index.sync(memory)
    larger, grown = ann.grow(config, memory, 3000)
    assert jax.tree.map(jnp.shape, grown) == jax.tree.map(jnp.shape, dmem.init(larger, PAYLOAD))
    queries = jnp.asarray(experiences(config, 20, 6, centres=100).embedding)
    for query in queries[:5]:
        before, after = exact_recall(config, PARAMS, memory, query), exact_recall(larger, PARAMS, grown, query)
        equal(after, before)
    with pytest.raises(ValueError, match=r"index: expected one of Config.buffer_capacity = 3000"):
        ann.recall(larger, PARAMS, grown, index, queries)
    assert index.sync(grown) == 0
    params = dataclasses.replace(PARAMS, threshold_high=jnp.float32(1e6))
    grown, info = write_many(larger, params, grown, experiences(larger, 900, 8, centres=100))
    assert (np.asarray(info.evicted_id) == -1).all()
    assert index.sync(grown) == 900
    check(index, grown)
    assert ann.measured_recall(larger, PARAMS, grown, index, queries) > 0.97


def test_many_agents_grow_and_a_step_goes_on():
    config = dataclasses.replace(CONFIG, duplicates="probe", store_dtype="int8", store_next=True, shadow_capacity=2)
    memories = dmem.init(config, PAYLOAD, batch_shape=(3,))
    step = jax.jit(jax.vmap(dmem.step, in_axes=(None, None, 0, 0, 0)))
    one = experiences(config, 3, 0)
    memories, _ = step(config, PARAMS, memories, one, one.embedding)
    larger, grown = ann.grow(config, memories, 64)
    assert jax.tree.map(jnp.shape, grown) == jax.tree.map(jnp.shape, dmem.init(larger, PAYLOAD, batch_shape=(3,)))
    here = dmem.init(dataclasses.replace(config, buffer_capacity=64), PAYLOAD, batch_shape=(3,))
    here, _ = step(larger, PARAMS, here, one, one.embedding)
    jax.tree.map(np.testing.assert_array_equal, grown, here)


# ---- recalling


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fusion": "plain", "store_dtype": "int8"},
        {"top_k": (2, 3), "shadow_capacity": 4, "thresholds": "fixed"},
        {"salience": "value", "store_dtype": "bfloat16", "top_k": (4, 0)},
        {"salience": "surprise", "weight_schedule": "fill"},
    ],
)
def test_where_the_candidates_are_all_it_is_exact_recall(changes):
    config = dataclasses.replace(CONFIG, **changes)
    params = dataclasses.replace(PARAMS, threshold_low=jnp.float32(0.7))
    memory, _ = write_many(config, params, dmem.init(config, PAYLOAD), experiences(config, 60, 1))
    index = ann.Index(config, threads=1)
    index.sync(memory)
    assert memory.buffer.embedding.dtype == jnp.dtype(config.store_dtype)
    embeddings = jnp.asarray(experiences(config, 6, 2).embedding)
    filters = dmem.query(
        config,
        embeddings,
        value=jnp.linspace(0.0, 1.0, 6),
        task=[dmem.UNSET, 1, dmem.UNSET, 2, dmem.UNSET, 7],
        sign=[0, 0, 1, -1, 0, 0],
        min_age=[0, 0, 3, 0, 10, 0],
        max_age=[2**31 - 1, 40, 2**31 - 1, 2**31 - 1, 30, 2**31 - 1],
        time=[dmem.UNSET] * 5 + [100],
    )
    got = ann.recall(config, params, memory, index, filters, candidates=40)
    whole = jax.jit(ann.recall, static_argnames="candidates")
    inside = whole(config, params, memory, index, filters, candidates=40) if "top_k" in changes else got
    for i in range(6):
        query = jax.tree.map(lambda leaf, i=i: leaf[i], filters)
        exact = exact_recall(config, params, memory, query)
        equal(jax.tree.map(lambda leaf, i=i: leaf[i], got), exact)
        equal(jax.tree.map(lambda leaf, i=i: leaf[i], inside), exact)
        equal(ann.recall(config, params, memory, index, query, candidates=40), exact)


def test_few_candidates_find_nearly_all_and_scores_are_nearly_those_of_all(of_many):
    config, memory, index = of_many
    queries = dmem.query(config, jnp.asarray(experiences(config, 60, 5, centres=100).embedding))
    exact = many(config, memory, queries)
    got = ann.recall(config, PARAMS, memory, index, queries)
    assert share(got, exact) > 0.97
    both = np.asarray(got.id == exact.id)
    ratio = np.asarray(got.score)[both] / np.asarray(exact.score)[both]
    assert abs(np.median(ratio) - 1) < 0.1
    # What matters most is found however far it lies: of these queries no candidate is near.
    greatest = exact.slot[0, 0]
    far = -memory.buffer.embedding[greatest]
    got = ann.recall(config, PARAMS, memory, index, far)
    assert got.id[0] == memory.buffer.id[greatest]
    assert got.semantic[0] == pytest.approx(-1)


def test_candidates_of_a_semantic_recall_are_the_nearest(of_many):
    config, memory, index = of_many
    params = dataclasses.replace(PARAMS, semantic_weight=jnp.float32(1.0))
    queries = dmem.query(config, jnp.asarray(experiences(config, 40, 5, centres=100).embedding))
    for query in (queries, dataclasses.replace(queries, sign=jnp.full(40, -1, jnp.int32))):
        exact = jax.jit(jax.vmap(dmem.recall, in_axes=(None, None, None, 0)))(config, params, memory, query)
        got = ann.recall(config, params, memory, index, query)
        assert share(got, exact) > 0.99
        np.testing.assert_allclose(got.semantic, exact.semantic, atol=2e-2)


@pytest.mark.parametrize("kept", [0.5, 0.2, 0.04, 0.0])
def test_filters_keep_what_they_keep(of_many, kept):
    _, memory, index = of_many
    config = large(top_k=10)
    task = (np.random.default_rng(1).random(2000) < kept).astype(np.int32)
    memory = dataclasses.replace(memory, buffer=dataclasses.replace(memory.buffer, task=jnp.asarray(task)))
    queries = dmem.query(config, jnp.asarray(experiences(config, 40, 5, centres=100).embedding), task=1)
    exact, got = many(config, memory, queries), ann.recall(config, PARAMS, memory, index, queries)
    np.testing.assert_array_equal(got.valid, exact.valid)
    if kept:
        assert np.isin(np.asarray(got.slot), np.flatnonzero(task)).all()
        assert share(got, exact) > 0.97


def test_a_filter_that_goes_with_the_place_is_looked_further_for(of_many):
    """Half of all may be found, and hardly any where the query is: the nearest ones that may be are far."""
    config, memory, index = of_many
    params = dataclasses.replace(PARAMS, semantic_weight=jnp.float32(1.0))
    queries = jnp.asarray(experiences(config, 10, 5, centres=100).embedding)
    for query in queries:
        nearness = np.asarray(memory.buffer.embedding @ query)
        task = (nearness < np.median(nearness)).astype(np.int32)
        there = dataclasses.replace(memory, buffer=dataclasses.replace(memory.buffer, task=jnp.asarray(task)))
        asked = dmem.query(config, query, task=1)
        exact, got = exact_recall(config, params, there, asked), ann.recall(config, params, there, index, asked)
        assert got.valid.all()
        assert share(got, exact) > 0.5


@pytest.mark.quick
def test_more_asked_for_than_there_is():
    """hnswlib #608, #465: it raises for k above what is left."""
    config = large(2000)
    memory = full(config, 1500, centres=100)
    index = ann.Index(config, threads=1)
    index.sync(memory)
    one = jnp.ones(16)
    kept = jnp.where(jnp.arange(2000) < 3, memory.buffer.id, -1)
    three = dataclasses.replace(memory, buffer=dataclasses.replace(memory.buffer, id=kept))
    stale = ann.recall(config, PARAMS, three, index, one)  # what the index has too much is not found
    np.testing.assert_array_equal(np.sort(stale.id[:3]), [0, 1, 2])
    index.sync(three)
    for candidates in (10, 500):
        got = ann.recall(config, PARAMS, three, index, one, candidates=candidates)
        np.testing.assert_array_equal(got.valid, np.arange(10) < 3)
        equal(got, exact_recall(config, PARAMS, three, one))
    found = index.nearest(np.ones((2, 16), np.float32), 10)
    assert sorted(found[0].tolist()) == [0, 1, 2] + [2000] * 7
    nothing = dmem.init(config, PAYLOAD)
    index.sync(nothing)
    assert not ann.recall(config, PARAMS, nothing, index, one).valid.any()
    assert not ann.recall(config, PARAMS, memory, ann.Index(config), one).valid[0:0].any()


@pytest.mark.quick
def test_a_query_that_is_no_number_finds_nothing(of_many):
    config, memory, index = of_many
    query = dmem.query(config, jnp.ones((2, 16)))
    query = dataclasses.replace(query, embedding=query.embedding.at[0, 3].set(jnp.nan))
    got = ann.recall(config, PARAMS, memory, index, query)
    assert not got.valid[0].any()
    assert got.valid[1].all()
    assert all(not np.isnan(leaf).any() for leaf in jax.tree.leaves(got))
    assert ann.recall(config, PARAMS, memory, index, jnp.zeros(16)).valid.all()


# ---- inside of jit


@pytest.mark.parametrize("n", [2000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_a_hundred_calls_inside_jit_all_return(n):
    """jax #24255: a callback that calls jax, or converts a large array of jax, may never return."""
    code = f"""
import dataclasses, jax, jax.numpy as jnp, numpy as np, dmem_jax as dmem
from dmem_jax import ann
config = dmem.Config(embedding_dim=16, core_capacity=4, buffer_capacity={n}, top_k=10)
params = dmem.Params.default(config)
memory = dmem.init(config)
embedding = jax.random.normal(jax.random.key(0), ({n}, 16))
ones = jnp.ones({n})
memory = dataclasses.replace(memory, buffer=dataclasses.replace(
    memory.buffer, embedding=embedding, inv_norm=1 / jnp.linalg.norm(embedding, axis=1), rpe=ones, strength=ones,
    count=jnp.ones({n}, jnp.int32), id=jnp.arange({n}, dtype=jnp.int32)))
index = ann.Index(config, ef_construction=20, M=4)
index.sync(memory)

@jax.jit
def run(memory, queries):
    return jax.lax.scan(lambda _, query: (None, ann.recall(config, params, memory, index, query).id), None, queries)[1]

queries = embedding[:50]
first = run(memory, queries)
second = jnp.stack([jax.jit(ann.recall)(config, params, memory, index, query).id for query in queries])
assert (first[:, 0] == jnp.arange(50)).mean() > .9, first[:, 0]
assert (first == second).mean() > .99
print("returned", len(first) + len(second))
"""
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert run.stdout == "returned 100\n", run.stderr


def test_inside_jit_it_is_what_it_is_outside(of_many, monkeypatch):
    config, memory, index = of_many
    queries = jnp.asarray(experiences(config, 30, 5, centres=100).embedding)
    outside = ann.recall(config, PARAMS, memory, index, queries)
    searches = []
    nearest = ann.Index.nearest

    def counted(self: ann.Index, directions: np.ndarray, *rest: Any, **more: Any) -> np.ndarray:
        searches.append(len(directions))
        return nearest(self, directions, *rest, **more)

    monkeypatch.setattr(ann.Index, "nearest", counted)
    inside = jax.jit(
        lambda memory, queries: jax.vmap(lambda query: ann.recall(config, PARAMS, memory, index, query))(queries)
    )(memory, queries)
    equal(inside, outside)
    assert searches == [30]
    whole = jax.jit(ann.recall)(config, PARAMS, memory, index, queries)
    equal(whole, outside)
    # With filters of their own, and few that one of them keeps.
    asked = dmem.query(config, queries[:3], sign=[1, 0, -1], min_age=[0, 1990, 0])
    outside = ann.recall(config, PARAMS, memory, index, asked)
    equal(jax.jit(ann.recall)(config, PARAMS, memory, index, asked), outside)


def test_plan_search_and_merge_are_recall(of_many):
    config, memory, index = of_many
    queries = dmem.query(config, jnp.asarray(experiences(config, 30, 5, centres=100).embedding), sign=1)
    plan = ann.plan(config, PARAMS, memory, jax.tree.map(lambda leaf: leaf[0], queries))
    slots = ann.search(config, memory, index, plan, queries.embedding)
    assert slots.shape == (30, 40)
    equal(ann.merge(config, PARAMS, memory, plan, queries, slots), ann.recall(config, PARAMS, memory, index, queries))


# ---- on disk


@pytest.fixture
def saved(of_many, tmp_path) -> Path:
    ann.save(tmp_path / "index", of_many[2])
    return tmp_path / "index"


def test_saved_loaded_and_brought_up_to_date(of_many, saved):
    config, memory, index = of_many
    loaded = ann.load(saved, config, threads=1)
    assert loaded.sync(memory) == 0
    check(loaded, memory)
    assert loaded.summary() == index.summary()
    queries = jnp.asarray(experiences(config, 20, 6, centres=100).embedding)
    equal(ann.recall(config, PARAMS, memory, loaded, queries), ann.recall(config, PARAMS, memory, index, queries))
    params = dataclasses.replace(PARAMS, threshold_high=jnp.float32(1e6))
    later, _ = write_many(config, params, memory, experiences(config, 50, 9, rpe=100.0))
    assert 0 < loaded.sync(later) <= 50
    check(loaded, later)
    # Saved again in the same place: the old files are gone.
    ann.save(saved, loaded)
    assert len(list(saved.iterdir())) == 3
    assert ann.load(saved, config).sync(later) == 0
    larger, grown = ann.grow(config, later, 2500)
    assert ann.load(saved, larger).sync(grown) == 0


def test_an_empty_index_is_saved_too(tmp_path):
    ann.save(tmp_path / "index", ann.Index(CONFIG))
    loaded = ann.load(tmp_path / "index", CONFIG, threads=1)
    assert loaded.live == 0
    memory = full(CONFIG, 20)
    assert loaded.sync(memory) == (memory.buffer.id >= 0).sum()
    check(loaded, memory)


def test_a_restart_in_a_new_process_restores_it(of_many, saved, tmp_path):
    config, memory, index = of_many
    checkpoint.save(tmp_path / "memory", config, PARAMS, memory)
    query = experiences(config, 1, 6, centres=100).embedding[0]
    code = f"""
import json, numpy as np
from dmem_jax import ann, checkpoint
was = checkpoint.restore("memory")
index = ann.load("index", was.config)
changed = index.sync(was.memory)
found = ann.recall(was.config, was.params, was.memory, index, np.array({query.tolist()}, np.float32))
print(json.dumps([changed, found.id.tolist()]))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    found = ann.recall(config, PARAMS, memory, index, jnp.asarray(query))
    assert json.loads(run.stdout) == [0, found.id.tolist()]


def test_truncated_or_altered_anywhere_is_a_clear_error(of_many, saved):
    config = of_many[0]
    for file in saved.iterdir():
        whole = file.read_bytes()
        regions = [0, 1, 7, 40, 95, 96, 200, len(whole) // 3, len(whole) // 2, len(whole) - 9, len(whole) - 1]
        for at in [at for at in regions if at < len(whole)]:
            flipped = bytearray(whole)
            flipped[at] ^= 0x15
            for spoilt in (bytes(flipped), whole[:at], whole[:at] + whole[at + 1 :], whole + whole[at:]):
                if file.suffix == ".json" and _same_json(spoilt, whole):
                    continue
                file.write_bytes(spoilt)
                with pytest.raises(dmem.CheckpointError, match="not what was written"):
                    ann.load(saved, config)
        file.unlink()
        with pytest.raises((dmem.CheckpointError, FileNotFoundError)):
            ann.load(saved, config)
        file.write_bytes(whole)
    ann.load(saved, config)


def _same_json(text: bytes, other: bytes) -> bool:
    try:
        return json.loads(text) == json.loads(other)
    except ValueError:
        return False


def test_a_writing_that_fails_leaves_the_one_before(of_many, saved, monkeypatch):
    config, memory, index = of_many
    before = {file.name: file.read_bytes() for file in saved.iterdir()}

    def full_disk(*_: Any) -> None:
        raise OSError("No space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, full_disk)
            with pytest.raises(OSError, match="No space left"):
                ann.save(saved, index)
        assert {name: (saved / name).read_bytes() for name in before} == before
        assert ann.load(saved, config).sync(memory) == 0
    ann.save(saved, index)
    assert len(list(saved.iterdir())) == 3


def test_a_config_that_does_not_fit_is_named(of_many, saved, tmp_path):
    config = of_many[0]
    with pytest.raises(ValueError, match=r"Config.embedding_dim: the index .* is of 16, got 8"):
        ann.load(saved, dataclasses.replace(config, embedding_dim=8))
    with pytest.raises(ValueError, match=r"Config.buffer_capacity: the index .* is of 2000 slots, got 1000"):
        ann.load(saved, dataclasses.replace(config, buffer_capacity=1000))
    with pytest.raises(FileNotFoundError, match="no index is there"):
        ann.load(tmp_path / "nothing", config)
    moved = shutil.copytree(saved, tmp_path / "moved")
    assert ann.load(moved, config).live == 2000


# ---- what it tells, and what it refuses


def test_its_recall_is_shown_in_monitor(of_many):
    config, memory, _ = of_many
    index = ann.Index(config, threads=1)
    index.sync(memory)
    assert monitor.summary(config, PARAMS, memory, index=index)["ann/recall"] == 0
    queries = jnp.asarray(experiences(config, 60, 5, centres=100).embedding)
    measured = ann.measured_recall(config, PARAMS, memory, index, queries)
    asked = dmem.query(config, queries)
    exact, got = many(config, memory, asked), ann.recall(config, PARAMS, memory, index, queries)
    assert measured == pytest.approx(share(got, exact))
    told = monitor.summary(config, PARAMS, memory, index=index)
    assert told["ann/recall"] == np.float32(measured)
    assert told["ann/live"] == 2000
    assert float(told["ann/bytes"]) > 2000 * 16 * 4
    assert told["fill/buffer"] == pytest.approx(1)
    assert all(np.asarray(value).dtype == np.float32 for value in told.values())
    with pytest.raises(TypeError, match="index: expected None inside of jit"):
        jax.jit(lambda memory: monitor.summary(config, PARAMS, memory, index=index))(memory)


@pytest.mark.quick
def test_bad_input_is_named(of_many, unchecked):
    config, memory, index = of_many
    one = jnp.ones(16)
    refused = {
        "M: expected at least 2": lambda: ann.Index(config, M=1),
        "ef: expected": lambda: ann.Index(config, ef=0),
        "threads: expected": lambda: ann.Index(config, threads=0.5),  # type: ignore[arg-type]
        "config: expected a dmem_jax.Config": lambda: ann.Index(None),  # type: ignore[arg-type]
        "Config.buffer_capacity: expected a buffer": lambda: ann.Index(dataclasses.replace(config, buffer_capacity=0)),
        "memory: expected a dmem_jax.Memory": lambda: index.sync(PARAMS),  # type: ignore[arg-type]
        "memory: expected one agent's": lambda: index.sync(dmem.init(config, batch_shape=(2,))),
        "memory: expected arrays, got tracers": lambda: jax.jit(lambda m: index.sync(m))(memory),
        r"memory.buffer.embedding: expected \[N, 16\]": lambda: index.sync(dmem.init(large(2000, embedding_dim=4))),
        "memory.buffer: expected at least the 2000 slots": lambda: index.sync(dmem.init(large(100))),
        "index: expected a dmem_jax.ann.Index": lambda: ann.recall(config, PARAMS, memory, None, one),  # type: ignore[arg-type]
        "candidates: expected": lambda: ann.recall(config, PARAMS, memory, index, one, candidates=0),
        "Config.fusion: expected": lambda: ann.recall(large(fusion="rank"), PARAMS, memory, index, one),
        r"query: expected \[D\] or \[Q, D\]": lambda: ann.recall(config, PARAMS, memory, index, jnp.ones((2, 2, 16))),
        "query: .*, got .0, 16": lambda: ann.recall(config, PARAMS, memory, index, jnp.ones((0, 16))),
        "query: expected shape": lambda: ann.recall(config, PARAMS, memory, index, jnp.ones(4)),
        "buffer_capacity: expected at least 2000": lambda: ann.grow(config, memory, 10),
        "path: expected a path": lambda: ann.load(3, config),  # type: ignore[arg-type]
        "index: expected a": lambda: ann.save("nowhere", memory),  # type: ignore[arg-type]
    }
    for message, call in refused.items():
        with pytest.raises((TypeError, ValueError), match=message):
            call()


@pytest.mark.quick
def test_without_hnswlib_everything_else_works(tmp_path):
    (tmp_path / "hnswlib.py").write_text("raise ImportError")
    code = """
import dmem_jax as dmem
from dmem_jax import ann, clusters, monitor
config = dmem.Config(embedding_dim=4)
larger, memory = ann.grow(config, dmem.init(config), 300)
assert memory.buffer.id.shape == (300,)
try:
    ann.Index(config)
except dmem.MissingExtraError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert run.stdout == "the index needs hnswlib: pip install 'dmem-jax[ann]', or hnswlib itself.\n", run.stderr


def test_two_lives_with_the_same_ids_norms_and_end_are_told_apart():
    config = dmem.Config(8, core_capacity=1, buffer_capacity=400, top_k=1, duplicates="off", warmup=10**6)
    params, random = dmem.Params.default(config), np.random.default_rng(0)

    def halves(n: int) -> np.ndarray:
        """Four of eight numbers are a half or minus a half: all norms are 1."""
        found = np.zeros((n, 8), np.float32)
        for row in found:
            row[random.permutation(8)[:4]] = random.choice([-0.5, 0.5], 4)
        return found

    @jax.jit
    def lived(memory: dmem.Memory, embeddings: jax.Array) -> dmem.Memory:
        experiences = dmem.experience(config, embeddings, rpe=jnp.ones(embeddings.shape[0], jnp.float32))
        return dmem.write_many(config, params, memory, experiences)[0]

    begun, last = lived(dmem.init(config), halves(200)), halves(1)
    one, other = (lived(lived(begun, halves(100)), last) for _ in range(2))
    index = ann.Index(config)
    index.sync(one)
    assert index.sync(other) > 80  # some of the hundred are alike
    assert index.sync(other) == 0


def test_what_search_and_merge_are_handed_is_checked(unchecked):
    config = dmem.Config(8, core_capacity=2, buffer_capacity=40, top_k=2)
    params, memory, index = dmem.Params.default(config), dmem.init(config), ann.Index(config)
    plan = ann.plan(config, params, memory, jnp.ones(8, jnp.float32))
    for wrong in (jnp.ones((1, 5), jnp.float32), jnp.ones(8, jnp.float32)):
        with pytest.raises(ValueError, match=r"embeddings: expected \[Q, 8\]"):
            ann.search(config, memory, index, plan, wrong)
    with pytest.raises(ValueError, match=r"query, slots: expected"):
        ann.merge(config, params, memory, plan, jnp.ones(8, jnp.float32), np.zeros((1, 3), np.int32))
    with pytest.raises(ValueError, match=r"queries: expected \[Q, D\]"):
        ann.measured_recall(config, params, memory, index, jnp.ones(8, jnp.float32))
