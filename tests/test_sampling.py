"""Replay: drawn as often as strength says, whatever the strengths; and priced anew."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import value as learning
from dmem_jax.sampling import _drawn, replay_probabilities
from dmem_jax.types import Tier

CONFIG = dmem.Config(embedding_dim=2, core_capacity=3, buffer_capacity=300, store_next=True)
PARAMS = dmem.Params.default(CONFIG, half_life=np.inf, disaster_half_life=np.inf)
LIVE = np.arange(303) % 3 != 1
replay = jax.jit(dmem.replay, static_argnames=("size", "replacement"))


def memory_of(strength: np.ndarray, live: np.ndarray, config: dmem.Config = CONFIG) -> dmem.Memory:
    """Strengths and ids over the pool, core's slots first."""
    memory, core = dmem.init(config), config.core_capacity
    ids = np.where(live, np.arange(len(live)), -1).astype(np.int32)

    def filled(tier: dmem.Store, part: slice) -> dmem.Store:
        worth = jnp.asarray(strength[part], jnp.float32)
        rpe = jnp.asarray(ids[part], jnp.float32)
        return dataclasses.replace(tier, strength=worth, written_strength=worth + 0, id=jnp.asarray(ids[part]), rpe=rpe)

    tiers = filled(memory.core, slice(0, core)), filled(memory.buffer, slice(core, None))
    return dataclasses.replace(memory, core=tiers[0], buffer=tiers[1], next_id=jnp.int32(len(live)))


@pytest.fixture(scope="module")
def wide() -> tuple[np.ndarray, dmem.Memory]:
    strength = 10.0 ** np.random.default_rng(0).uniform(-6, 6, 303)
    return strength, memory_of(strength, LIVE)


@pytest.mark.quick
@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0, 2.0])
def test_probabilities_are_strengths_to_the_exponent_once(wide, exponent):
    strength, memory = wide
    exact = np.where(LIVE, strength.astype(np.float32).astype(np.float64) ** exponent, 0)
    params = dataclasses.replace(PARAMS, replay_exponent=jnp.float32(exponent))
    np.testing.assert_allclose(replay_probabilities(params, memory), exact / exact.sum(), rtol=3e-5, atol=1e-9)


@pytest.mark.parametrize("replacement", [True, False])
def test_draws_are_live_and_as_often_as_they_should(wide, replacement):
    strength, memory = wide
    params = dataclasses.replace(PARAMS, replay_exponent=jnp.float32(0.1))
    size = 2**17 if replacement else 1
    keys = jax.random.split(jax.random.key(3), 1 if replacement else 2**14)
    ids = np.concatenate(
        jax.device_get(jax.jit(jax.vmap(lambda key: dmem.replay(CONFIG, params, memory, key, size=size,
                                                               replacement=replacement).id))(keys))
    )  # fmt: skip
    exact = np.where(LIVE, strength**0.1, 0)
    expected = exact / exact.sum() * len(ids)
    counts = np.bincount(ids, minlength=303)
    assert (counts[~LIVE] == 0).all()
    chi = ((counts - expected)[LIVE] ** 2 / expected[LIVE]).sum() / (LIVE.sum() - 1)
    assert abs(chi - 1) < 4 * np.sqrt(2 / LIVE.sum())


@pytest.mark.quick
def test_without_replacement_each_once_and_no_more_than_there_are():
    strength = np.ones(303)
    strength[::2] = 0  # nothing is left of these
    batch = replay(CONFIG, PARAMS, memory_of(strength, LIVE), jax.random.key(0), size=303, replacement=False)
    drawable = np.flatnonzero(LIVE & (strength > 0))
    assert sorted(np.asarray(batch.id)[np.asarray(batch.valid)]) == drawable.tolist()
    assert (batch.id[len(drawable) :] == -1).all()
    assert not batch.valid[len(drawable) :].any()
    assert (batch.weight[len(drawable) :] == 0).all()


@pytest.mark.quick
def test_an_empty_memory_gives_filler():
    for memory in (dmem.init(CONFIG), memory_of(np.zeros(303), LIVE)):
        for replacement in (True, False):
            batch = replay(CONFIG, PARAMS, memory, jax.random.key(0), size=4, replacement=replacement)
            assert not batch.valid.any()
            assert (batch.id == -1).all()
            assert (batch.slot == CONFIG.buffer_capacity).all()
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(batch))


@pytest.mark.quick
def test_importance_weights():
    """(n P)^-b over the greatest; rlcode/per #4: finite at b = 1, also with priorities of 0."""
    strength = np.where(np.arange(303) % 2, 0.0, 1.0 + np.arange(303))
    memory = memory_of(strength, LIVE)
    for clock, exponent in ((0, 0.4), (50_000, 0.7), (100_000, 1.0), (10**9, 1.0)):
        batch = replay(CONFIG, PARAMS, dataclasses.replace(memory, clock=jnp.int32(clock)), jax.random.key(1), size=64)
        expected = (LIVE.sum() * np.asarray(batch.probability, np.float64)) ** -exponent
        np.testing.assert_allclose(batch.weight, expected / expected.max(), rtol=1e-4)
        assert batch.weight.max() == 1


@pytest.mark.quick
def test_a_dead_tail_of_millions_is_never_drawn():
    """jax #25498: 7e6 slots, the last 2e6 dead."""
    probability = jnp.where(jnp.arange(7_000_000) < 5_000_000, jnp.float32(1 / 5e6), 0.0)
    slots = jax.jit(_drawn, static_argnums=2)(jax.random.key(0), probability, 2**16)
    assert slots.max() < 5_000_000
    assert slots.max() > 4_900_000
    assert abs(slots.mean() / 2.5e6 - 1) < 0.02


@pytest.mark.quick
def test_running_sums_that_rise_over_dead_slots_draw_none():
    random = np.random.default_rng(1)
    for _ in range(20):
        probability = random.uniform(0, 1, 2000) * (random.random(2000) < 0.02) * 10.0 ** random.uniform(-8, 0, 2000)
        if probability.sum():
            slots = _drawn(jax.random.key(2), jnp.asarray(probability / probability.sum(), jnp.float32), 5000)
            assert (probability[np.asarray(slots)] > 0).all()


def test_a_thousand_rounds_of_new_priorities_do_not_drift():
    """flashbax #52, reverb #43; #58: a priority of 2.7 is 2.7."""
    config = dmem.Config(embedding_dim=1, core_capacity=1, buffer_capacity=4095, scale="none")
    params = dmem.Params.default(
        config, half_life=np.inf, disaster_half_life=np.inf, gate_scale=0.0, gate_bias=-100.0, replay_exponent=1.0
    )  # a gate that is wide open: strengths are |rpe|
    memory = memory_of(np.ones(4096), np.ones(4096, bool), config)

    def one_round(memory: dmem.Memory, key: jax.Array) -> tuple[dmem.Memory, None]:
        draw, size = jax.random.split(key)
        batch = dmem.replay(config, params, memory, draw, size=64)
        return dmem.reprioritize(
            config, params, memory, batch, 10 ** jax.random.uniform(size, (64,), minval=-6.0, maxval=6.0)
        ), None

    memory, _ = jax.jit(lambda m, k: jax.lax.scan(one_round, m, k))(memory, jax.random.split(jax.random.key(0), 1000))
    strength = np.append(memory.core.strength, memory.buffer.strength).astype(np.float64)
    np.testing.assert_allclose(replay_probabilities(params, memory), strength / strength.sum(), atol=1e-6)

    batch = dmem.replay(config, params, memory, jax.random.key(1), size=3, replacement=False)
    with pytest.raises(ValueError, match="rpe: expected finite"):
        dmem.reprioritize(config, params, memory, batch, np.array([2.7, np.nan, 0.5]))
    fresh = jnp.array([2.7, jnp.nan, 0.5])
    memory = jax.jit(lambda rpe: dmem.reprioritize(config, params, memory, batch, rpe))(fresh)
    worth = dict(
        zip(
            np.append(memory.core.id, memory.buffer.id).tolist(),
            np.append(memory.core.strength, memory.buffer.strength),
            strict=True,
        )
    )
    assert worth[int(batch.id[0])] == np.float32(2.7)
    assert np.isfinite(list(worth.values())).all()
    assert memory.stats.rejected == 1


@pytest.mark.quick
def test_reprioritize_takes_the_later_row_and_leaves_what_has_gone():
    memory = memory_of(np.ones(303), LIVE)
    batch = replay(CONFIG, PARAMS, memory, jax.random.key(1), size=3, replacement=False)
    twice = jax.tree.map(lambda leaf: leaf[jnp.array([0, 1, 0])], batch)
    gone = dataclasses.replace(twice, id=twice.id.at[1].set(10**6))
    after = dmem.reprioritize(CONFIG, PARAMS, memory, gone, jnp.array([5.0, 6.0, 7.0]))
    tier = memory.core if batch.tier[0] == Tier.CORE else memory.buffer
    changed = after.core if batch.tier[0] == Tier.CORE else after.buffer
    slot = int(batch.slot[0])
    gate = 1 / (1 + np.exp(-(1.0 - 2.0)))  # nothing was seen yet: the first size is 1
    np.testing.assert_allclose(changed.strength[slot], 7 * gate, rtol=1e-6)
    assert changed.rpe[slot] == tier.rpe[slot]
    assert after.stats.stale == 1
    assert (
        int(
            (after.core.strength != memory.core.strength).sum()
            + (after.buffer.strength != memory.buffer.strength).sum()
        )
        == 1
    )
    overwritten = dmem.reprioritize(CONFIG, PARAMS, memory, gone, jnp.array([5.0, 6.0, 7.0]), overwrite=True)
    assert (overwritten.core if batch.tier[0] == Tier.CORE else overwritten.buffer).rpe[slot] == 7


def test_a_critic_trains_from_replay():
    """Bootstrapped from what `store_next` keeps, with importance weights."""
    config = dmem.Config(
        embedding_dim=2, core_capacity=4, buffer_capacity=4, store_next=True, warmup=0, duplicates="off"
    )
    params = dmem.Params.default(config, threshold_low=0.0)
    memory = dmem.init(config)
    for place, reward in ((0, 5.0), (1, -5.0)):
        given = dmem.experience(
            config, jnp.eye(2)[place], rpe=reward, reward=reward, discount=0.0, next_embedding=jnp.zeros(2)
        )
        memory, _ = dmem.write(config, params, memory, given)
    learner_config = learning.LearnerConfig(embedding_dim=2, hidden=(16,), signal="td")
    learner = learning.init(learner_config, jax.random.key(0))

    def train(learner, key):
        batch = dmem.replay(config, params, memory, key, size=8)
        learner, info = learning.update(learner_config, learner, batch, importance_weights=batch.weight)
        return learner, jnp.abs(info.rpe).mean()

    _, errors = jax.jit(lambda learner, keys: jax.lax.scan(train, learner, keys))(
        learner, jax.random.split(jax.random.key(1), 400)
    )
    assert errors[-20:].mean() < 0.5 * errors[:20].mean()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: dmem.replay(CONFIG, PARAMS, m, jax.random.PRNGKey(0)), "key: expected a typed key"),
        (lambda m: dmem.replay(CONFIG, PARAMS, m, jax.random.split(jax.random.key(0))), "key: expected one key"),
        (lambda m: dmem.replay(CONFIG, PARAMS, m, jax.random.key(0), size=0), "size: expected at least 1"),
        (lambda m: dmem.replay(CONFIG, PARAMS, m, jax.random.key(0), size=2.0), "size: expected an integer"),  # type: ignore[arg-type]
        (lambda m: dmem.reprioritize(CONFIG, PARAMS, m, m, jnp.ones(3)), "batch: expected a dmem_jax.ReplayBatch"),
        (lambda m: dmem.reprioritize(CONFIG, PARAMS, m, replay(CONFIG, PARAMS, m, jax.random.key(0)), jnp.ones(3)),
         "rpe: expected shape"),
    ],
)  # fmt: skip
def test_bad_input_is_named(wide, call, message, unchecked):
    with pytest.raises((TypeError, ValueError), match=message):
        call(wide[1])
