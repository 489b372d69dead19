"""Clusters: k-means, its upkeep, and a recall that finds what exact recall finds when it looks everywhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import clusters

CONFIG = dmem.Config(embedding_dim=16, core_capacity=4, buffer_capacity=600, duplicates="off", scale="none", warmup=0)
PARAMS = dmem.Params.default(CONFIG, threshold_low=0.0, threshold_high=50.0)
PAYLOAD = jnp.int32(0)
CENTRES = np.random.default_rng(0).normal(size=(12, 16)).astype(np.float32)
write = jax.jit(dmem.write)
fit = jax.jit(clusters.fit, static_argnames=("config", "count", "iterations", "slack"))
pruned = jax.jit(clusters.recall, static_argnames=("config", "probes", "salient"))


def experiences(n: int, seed: int) -> dmem.Experience:
    random = np.random.default_rng(seed)
    embedding = CENTRES[random.integers(0, 12, n)] + 0.2 * random.normal(size=(n, 16))
    rpe = random.uniform(0.5, 3, n) * np.where(np.arange(n) % 37 == 0, 30, 1)
    return jax.device_get(dmem.experience(CONFIG, embedding, rpe=rpe, payload=np.arange(n, dtype=np.int32)))


@pytest.fixture(scope="module")
def memory() -> dmem.Memory:
    return jax.jit(dmem.write_many)(CONFIG, PARAMS, dmem.init(CONFIG, PAYLOAD), experiences(500, 1))[0]


def check(found: clusters.Clusters, memory: dmem.Memory) -> None:
    """Every live memory of the buffer is in exactly the list that its home names, or in the spill."""
    count, n = found.size.shape[0], found.home.shape[0]
    lists = [row[row < n].tolist() for row in np.asarray(found.member)] + [found.spill[found.spill < n].tolist()]
    assert [len(slots) for slots in lists] == [*found.size.tolist(), int(found.spilled)]
    places = {slot: place for place, slots in enumerate(lists) for slot in slots}
    assert sum(map(len, lists)) == len(places)
    live = np.flatnonzero(np.asarray(memory.buffer.id) >= 0)
    home = np.asarray(found.home)
    assert set(places) == {slot for slot in live if home[slot] <= count}
    assert all(home[slot] == place for slot, place in places.items())
    norms = np.linalg.norm(np.asarray(found.centroid), axis=1)
    np.testing.assert_allclose(norms[np.asarray(found.size) > 0], 1, rtol=1e-5)


def test_k_means_finds_the_centres(memory):
    found = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24)
    check(found, memory)
    unit = CENTRES / np.linalg.norm(CENTRES, axis=1, keepdims=True)
    assert (unit @ np.asarray(found.centroid).T).max(axis=1).min() > 0.95
    again = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24)
    jax.tree.map(np.testing.assert_array_equal, found, again)


def test_looking_everywhere_finds_what_exact_recall_finds(memory):
    found = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24)
    plain = dataclasses.replace(CONFIG, fusion="plain")
    for seed in range(5):
        query = dmem.query(plain, experiences(1, 100 + seed).embedding[0], sign=1)
        exact = dmem.recall(plain, PARAMS, memory, query)
        got = pruned(plain, PARAMS, memory, found, query, probes=24)
        np.testing.assert_array_equal(got.id, exact.id)
        np.testing.assert_array_equal(got.payload, exact.payload)
        np.testing.assert_array_equal(got.slot, exact.slot)
        np.testing.assert_array_equal(got.tier, exact.tier)
        np.testing.assert_allclose(got.score, exact.score, rtol=1e-5)


def test_a_few_probes_find_most(memory):
    found = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24)
    queries = jnp.asarray(experiences(40, 3).embedding)
    shares = [
        float(clusters.measured_recall(CONFIG, PARAMS, memory, found, queries, probes=probes)) for probes in (1, 4, 24)
    ]
    assert shares == sorted(shares)
    assert shares[1] > 0.9
    # Here softmax over the candidates is softmax over all.
    assert shares[2] > 0.995


def test_updates_follow_writes(memory):
    found = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24, slack=1.2)
    update = jax.jit(clusters.update, static_argnames=("config",))
    stream = experiences(300, 9)
    for i in range(300):
        memory, info = write(CONFIG, PARAMS, memory, jax.tree.map(lambda leaf, i=i: leaf[i], stream))
        found = update(CONFIG, memory, found, info)
        if i % 50 == 0:
            check(found, memory)
    check(found, memory)
    assert int(memory.stats.demoted) > 0
    fresh = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24)
    kept_up, anew = (
        clusters.measured_recall(CONFIG, PARAMS, memory, lists, jnp.asarray(stream.embedding[:40]), probes=6)
        for lists in (found, fresh)
    )
    assert kept_up > 0.9 * anew


def test_more_clusters_than_memories_and_none_at_all():
    empty = dmem.init(CONFIG, PAYLOAD)
    found = fit(config=CONFIG, memory=empty, key=jax.random.key(0), count=8)
    check(found, empty)
    got = pruned(CONFIG, PARAMS, empty, found, jnp.ones(16), probes=3)
    assert not got.valid.any()
    one, _ = write(CONFIG, PARAMS, empty, jax.tree.map(lambda leaf: leaf[3], experiences(5, 4)))
    found = fit(config=CONFIG, memory=one, key=jax.random.key(0), count=8)
    check(found, one)
    assert pruned(CONFIG, PARAMS, one, found, jnp.ones(16), probes=8).id[0] == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_bad_input_is_named(memory, unchecked):
    found = fit(config=CONFIG, memory=memory, key=jax.random.key(0), count=24)
    for message, call in {
        "count: expected at most": lambda: clusters.fit(CONFIG, memory, jax.random.key(0), count=601),
        "key: expected a typed key": lambda: clusters.fit(CONFIG, memory, jnp.ones(2), count=6),  # type: ignore[arg-type]
        "slack: expected at least 1": lambda: clusters.fit(CONFIG, memory, jax.random.key(0), count=6, slack=0.5),
        "probes: expected at most 24": lambda: clusters.recall(CONFIG, PARAMS, memory, found, jnp.ones(16), probes=25),
        "info: expected a dmem_jax.WriteInfo": lambda: clusters.update(CONFIG, memory, found, None),  # type: ignore[arg-type]
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            call()
