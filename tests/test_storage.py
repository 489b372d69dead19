"""Embeddings kept in fewer bytes: what is lost, and that all else works on them as on float32."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dmem_jax as dmem
from dmem_jax import checkpoint, clusters, storage
from dmem_kernels.storage import decode, encode
from tests.lives import assert_trees_equal

DIM = 24
NARROW = ["bfloat16", "int8"]
KEPT_ALL: dict[str, Any] = {"threshold_low": 0.0, "threshold_high": 2.0}
magnitudes = st.floats(1e-30, 1e18, allow_subnormal=False)
vectors = st.builds(
    lambda x, size: np.float32(size) * x,
    hnp.arrays(np.float32, (3, 7), elements=st.floats(-1, 1, width=16)),
    magnitudes,
)


def config_of(dtype: str) -> dmem.Config:
    kinds: dict[str, Any] = {"scale": "none", "duplicates": "off", "store_dtype": dtype}
    return dmem.Config(embedding_dim=DIM, core_capacity=6, buffer_capacity=26, warmup=0, **kinds)


def experiences(config: dmem.Config, n: int = 32, seed: int = 0) -> dmem.Experience:
    random = np.random.default_rng(seed)
    rpe = random.uniform(0.5, 4, n) * random.choice([-1, 1], n)
    return dmem.experience(config, 5 * random.normal(size=(n, DIM)), rpe=rpe, payload=np.arange(n, dtype=np.int32))


@functools.cache
def full(dtype: str) -> tuple[dmem.Config, dmem.Params, dmem.Memory]:
    config = config_of(dtype)
    params = dmem.Params.default(config, **KEPT_ALL)
    memory = dmem.init(config, jnp.int32(0))
    return config, params, jax.jit(dmem.write_many)(config, params, memory, experiences(config))[0]


@pytest.mark.quick
@given(vectors)
def test_int8_is_within_half_a_level_and_stays_as_it_is(x):
    stored = encode(jnp.asarray(x), jnp.int8)
    back = np.asarray(decode(stored))
    scale = np.abs(x).max(axis=1) / 127
    underflows = 127 * np.finfo(np.float32).tiny  # its scale does, and it is stored as 0
    assert (np.abs(back - x) <= 0.5001 * scale[:, None] + underflows).all()
    again = encode(jnp.asarray(back), jnp.int8)
    np.testing.assert_array_equal(again.values, stored.values)
    assert np.isfinite(back).all()


@pytest.mark.quick
def test_what_has_no_norm_is_stored_as_nothing():
    x = jnp.outer(jnp.array([0.0, 1e-38, 1e-30], jnp.float32), jnp.ones(7, jnp.float32))
    for dtype in ("float32", *NARROW):
        fields = storage.as_stored(dtype, x)
        assert (fields["inv_norm"] == 0).all()
        assert np.isfinite(np.asarray(decode(encode(x, dtype)))).all()


@pytest.mark.parametrize("dtype", NARROW)
def test_recall_finds_what_it_finds_in_float32(dtype):
    exact_config, params, exact = full("float32")
    config, _, memory = full(dtype)
    found = jax.jit(jax.vmap(dmem.recall, in_axes=(None, None, None, 0)), static_argnums=0)
    asked = experiences(config, 40, seed=3).embedding
    expected, got = found(exact_config, params, exact, asked), found(config, params, memory, asked)
    np.testing.assert_allclose(got.semantic.max(1), expected.semantic.max(1), atol=0.01)
    share = (got.id[:, :, None] == expected.id[:, None, :]).any(1).mean()
    assert share > 0.97
    for field in ("id", "rpe", "strength", "payload"):  # what is stored beside an embedding is the same
        np.testing.assert_array_equal(getattr(memory.core, field), getattr(exact.core, field))
    kept, given_ = storage.embeddings(memory.buffer), exact.buffer.embedding
    np.testing.assert_allclose(kept, given_, atol=float(jnp.abs(given_).max()) / 200)
    np.testing.assert_allclose(storage.norms(memory.buffer), storage.norms(exact.buffer), rtol=0.01)
    read, _ = (dmem.attend(c, params, m, asked[0]).readout for c, m in ((config, memory), (exact_config, exact)))
    assert read.dtype == jnp.float32


@pytest.mark.parametrize("dtype", NARROW)
def test_many_writes_equal_one_by_one(dtype):
    config, params, memory = full(dtype)
    given_ = experiences(config, 20, seed=1)
    one_by_one = jax.jit(lambda m, xs: jax.lax.scan(lambda m, x: dmem.write(config, params, m, x), m, xs))
    assert_trees_equal(jax.jit(dmem.write_many)(config, params, memory, given_), one_by_one(memory, given_))


@pytest.mark.parametrize("dtype", NARROW)
def test_it_is_saved_replayed_and_searched_by_clusters(dtype, tmp_path):
    config, params, memory = full(dtype)
    checkpoint.save(tmp_path / "memory", config, params, memory)
    restored = checkpoint.restore(tmp_path / "memory", np.int32(0))
    assert restored.config.store_dtype == dtype
    jax.tree.map(np.testing.assert_array_equal, restored.memory, memory)

    batch = dmem.replay(config, params, memory, jax.random.key(0), size=9)
    assert batch.embedding.dtype == jnp.float32
    tier = jax.tree.map(lambda *x: jnp.concatenate(x), memory.core, memory.buffer)
    kept = dict(zip(tier.id.tolist(), np.asarray(storage.embeddings(tier)), strict=True))
    np.testing.assert_array_equal(batch.embedding, np.stack([kept[i] for i in batch.id.tolist()]))

    found = clusters.fit(config, memory, jax.random.key(0), count=4)
    share = clusters.measured_recall(
        config, params, memory, found, experiences(config, 8, seed=2).embedding, probes=4, salient=0
    )
    assert share == 1


@pytest.mark.quick
def test_bytes_are_those_of_the_type():
    sizes = {dtype: dmem.nbytes(config_of(dtype)) for dtype in ("float32", *NARROW)}
    slots = 32
    assert sizes["float32"] - sizes["bfloat16"] == slots * 2 * DIM
    assert sizes["float32"] - sizes["int8"] == slots * (3 * DIM - 4)


def test_a_memory_of_another_type_is_refused():
    config, params, memory = full("int8")
    other = dataclasses.replace(config, store_dtype="float32")
    with pytest.raises(TypeError, match=r"memory\.core\.embedding: expected float32"):
        dmem.recall(other, params, memory, jnp.ones(DIM))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_memory_of_one_tier_and_no_agents(dtype):
    config = dmem.Config(embedding_dim=4, buffer_capacity=0, store_dtype=dtype)
    params, memory = dmem.Params.default(config), dmem.init(config)
    assert not dmem.recall(config, params, memory, jnp.ones(4)).valid.any()
    recall = jax.vmap(dmem.recall, in_axes=(None, None, None, 0))
    assert recall(config, params, memory, jnp.ones((0, 4))).id.shape == (0, config.top_k)
    nobody = dmem.init(config, batch_shape=(0,))
    recall = jax.vmap(dmem.recall, in_axes=(None, None, 0, 0))
    assert recall(config, params, nobody, jnp.ones((0, 4))).id.shape == (0, config.top_k)
