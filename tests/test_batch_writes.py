"""`write_many` without duplicates is no scan, and equals it: same places, ids, counters and numbers."""

import dataclasses
import functools
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmem_jax as dmem
from dmem_jax import batch_writes
from tests.lives import assert_trees_equal

AGENTS, MANY, DIM = 24, 15, 3
INT_MAX = 2**31 - 1
PAYLOAD = {"mark": jax.ShapeDtypeStruct((2,), jnp.int32)}

# What these compute is exact in float32: gates are one half, and half-lives powers of two.
EXACT: dict[str, Any] = {"scale": "none"}
KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"core_capacity": 9, "buffer_capacity": 17, **EXACT},
    "no_buffer": {"core_capacity": 8, "buffer_capacity": 0, "warmup": 3, **EXACT},
    "one_slot_each": {"core_capacity": 1, "buffer_capacity": 1, "store_next": True, **EXACT},
    "age_frequency": {
        "core_capacity": 4,
        "buffer_capacity": 20,
        "buffer_eviction": "age_frequency",
        "thresholds": "quantile",
        "window": 8,
        **EXACT,
    },
}


def config_of(kind: str) -> dmem.Config:
    kinds: dict[str, Any] = {"warmup": 0} | KINDS[kind]
    return dmem.Config(embedding_dim=DIM, duplicates="off", top_k=2, **kinds)


def params_of(kind: str) -> dmem.Params:
    return dmem.Params.default(
        config_of(kind), gate_scale=0.0, gate_bias=0.0, threshold_low=1.0, threshold_high=4.0, half_life=16.0,
        disaster_half_life=64.0, buffer_half_life=8.0, quantile_low=0.25, quantile_high=0.5,
    )  # fmt: skip


def scan_of_write(config, params, memory, experiences):
    """What `write_many` is by definition."""
    return jax.lax.scan(lambda memory, one: dmem.write(config, params, memory, one), memory, experiences)


@functools.cache
def programs(kind: str):
    """The batch and the scan, for all agents. Stores are small, so there are few slots to spare."""
    config, params = config_of(kind), params_of(kind)
    forms = []
    for form in (dmem.write_many, scan_of_write):
        vmapped = jax.jit(jax.vmap(functools.partial(form, config, params)))
        with mock.patch.object(batch_writes, "_SPARE", 2):
            forms.append(vmapped.lower(*lives(kind, 0)).compile())
    return forms


def lives(kind: str, seed: int) -> tuple[dmem.Memory, dmem.Experience]:
    """Memories and experiences of all agents: no two in the same circumstances."""
    random = np.random.default_rng(seed)
    config = config_of(kind)
    agents = (AGENTS, 1)

    def numbers(shape, zeros: float) -> np.ndarray:
        return np.where(random.random(shape) < zeros, 0, np.exp2(random.integers(-3, 5, shape))).astype(np.float32)

    def floats(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    clock = random.choice([0, 3, 1000, INT_MAX - 4, INT_MAX], agents)
    fill = random.choice([0, 0.3, 0.9, 1], agents)  # of the slots

    def filled(tier: dmem.Store, first_id: int) -> dmem.Store:
        shape = tier.id.shape
        ids = first_id + random.permuted(np.tile(np.arange(shape[1]), (AGENTS, 1)), axis=1)
        touched = clock - random.choice([0, 1, 2, 16, 64], shape)
        # Free slots hold what consolidation left there.
        return dataclasses.replace(
            tier,
            embedding=floats(*shape, DIM),
            inv_norm=np.abs(floats(*shape)),
            rpe=numbers(shape, 0.1) * random.choice([-1, 1], shape).astype(np.float32),
            strength=numbers(shape, 0.2),
            touched=touched.astype(np.int32),
            time=touched.astype(np.int32),
            recalls=random.integers(0, 9, shape, np.int32),
            successes=(2 ** random.integers(0, 4, shape, np.int32) - 1).astype(np.int32),
            id=np.where(random.random(shape) < fill, ids, -1).astype(np.int32),
            payload={"mark": random.integers(0, 99, (*shape, 2), np.int32)},
        )

    memory = dmem.init(config, PAYLOAD, batch_shape=(AGENTS,))
    memory = dataclasses.replace(
        memory,
        core=filled(memory.core, 0),
        buffer=filled(memory.buffer, 100),
        clock=clock[:, 0].astype(np.int32),
        next_id=random.choice([200, 200, 200, INT_MAX - 3], AGENTS).astype(np.int32),
        probe=dataclasses.replace(memory.probe, valid=random.random(AGENTS) < 0.5),
    )

    shape = (AGENTS, MANY)
    # One time for all, later or earlier than the clock; the clock that counts; or times that move, by little or much.
    ticks = np.cumsum(random.choice([0, 0, 1, 5, 200], shape), axis=1)
    times = np.choose(
        random.integers(0, 4, agents),
        [np.minimum(clock + 7, INT_MAX), clock - 2, np.full(agents, dmem.UNSET), np.minimum(clock + ticks, INT_MAX)],
    )
    times = np.where(random.random(shape) < 0.1 * (random.random(agents) < 0.3), dmem.UNSET, times)
    rpe = numbers(shape, 0.1) * random.choice([-1, 1], shape).astype(np.float32)
    experience = dmem.experience(
        config,
        floats(*shape, DIM),
        rpe=rpe,
        reward=floats(*shape),
        next_embedding=floats(*shape, DIM),
        time=times.astype(np.int32),
        payload={"mark": random.integers(0, 99, (*shape, 2), np.int32)},
        valid=random.random(shape) < random.choice([0, 0.7, 1, 1], agents),
    )
    no_numbers = np.where(random.random(shape) < 0.05, np.float32(np.nan), rpe)
    return jax.tree.map(jnp.asarray, (memory, dataclasses.replace(experience, rpe=no_numbers)))


def assert_same_bits(a, b) -> None:
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))
        assert x.dtype == y.dtype


# Each compiles for half a minute: nightly does the others.
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k != "fixed")) for k in KINDS])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=12)
def test_it_equals_a_scan_of_write(kind, seed):
    batch, scan = programs(kind)
    given = lives(kind, seed)
    assert_same_bits(batch(*given), scan(*given))


def test_one_memory_and_more_experiences_than_a_batch():
    """As users call it: 150 that are no multiple of anything, with room for none, some and all of them."""
    config = dmem.Config(embedding_dim=DIM, core_capacity=20, buffer_capacity=200, duplicates="off", scale="none")
    params = dmem.Params.default(config, gate_scale=0.0, gate_bias=0.0, half_life=64.0, disaster_half_life=512.0)
    random = np.random.default_rng(0)
    batch, scan = (jax.jit(functools.partial(form, config, params)) for form in (dmem.write_many, scan_of_write))
    together = one_by_one = dmem.init(config)
    for round in range(4):
        size = np.exp2(random.integers(-3, 5, 150)) * random.choice([-1, 1], 150)
        many = dmem.experience(config, random.normal(size=(150, DIM)), rpe=size)
        if round == 3:  # all at one time, long after
            many = dataclasses.replace(many, time=jnp.full(150, 5000, jnp.int32))
        together, infos = batch(together, many)
        one_by_one, expected = scan(one_by_one, many)
        assert_same_bits((together, infos), (one_by_one, expected))
    assert int(together.stats.evicted) > 0
    assert int(together.stats.demoted) > 0


def test_no_experience_is_no_error():
    config = config_of("fixed")
    memory = dmem.init(config)
    none = dmem.no_experience(config, batch_shape=(0,))
    after, infos = jax.jit(dmem.write_many)(config, params_of("fixed"), memory, none)
    assert infos.route.shape == (0,)
    assert_same_bits(after, memory)


@pytest.mark.slow
def test_a_gradient_is_that_of_the_scan():
    """And, to rounding, so is what numbers like those of real life lead to."""
    sizes: dict[str, Any] = {"core_capacity": 7, "buffer_capacity": 21}
    config = dmem.Config(embedding_dim=DIM, duplicates="off", smoothing="mean", warmup=2, **sizes)
    params = dmem.Params.default(config, half_life=20.0, disaster_half_life=31.0)
    random = np.random.default_rng(1)
    many = dmem.experience(config, random.normal(size=(MANY, DIM)), rpe=random.normal(size=MANY))

    def loss(form, params, embedding):
        met = dataclasses.replace(many, embedding=embedding)
        memory, infos = form(config, params, dmem.init(config), met)
        readout = dmem.attend(config, params, memory, jnp.ones(DIM)).readout
        return jnp.square(readout).sum() + infos.gate.sum(), (memory, infos)

    def gradient(form):
        of_both = jax.jit(jax.grad(functools.partial(loss, form), argnums=(0, 1), has_aux=True))
        return of_both(params, many.embedding)

    of_batch, of_scan = gradient(dmem.write_many), gradient(scan_of_write)
    assert_trees_equal(of_batch, of_scan, rtol=1e-4)
    assert float(jnp.abs(of_batch[0][0].gate_bias)) > 0


@pytest.mark.parametrize(
    "reads_more",
    [
        {"duplicates": "probe"},
        {"duplicates": "search"},
        {"signal": "novelty"},
        {"threshold_schedule": "fill"},
        {"shadow_capacity": 4},
    ],
    ids=str,
)
def test_what_reads_more_than_strengths_is_written_one_by_one(reads_more):
    assert not batch_writes.equals_scan(dmem.Config(embedding_dim=DIM, **({"duplicates": "off"} | reads_more)))
