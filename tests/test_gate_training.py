"""The soft memory and the training through it: against plain NumPy in float64, its differences, and the hard memory."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import dmem_jax as dmem
from dmem_jax.gate_training import GateConfig, hard, init, update
from dmem_jax.soft import soft_attend, soft_memory, survival

D, T = 3, 14
CONFIG = dmem.Config(
    embedding_dim=D, core_capacity=2, buffer_capacity=3, thresholds="learned", duplicates="off", warmup=2
)
START = {"half_life": 9.0, "disaster_half_life": 9.0, "scale_rate": 0.1, "threshold_low": 0.2, "threshold_high": 0.45}
LEARNED = (
    "gate_scale", "gate_bias", "threshold_low", "threshold_high", "threshold_temperature", "semantic_weight",
    "semantic_temperature", "salience_temperature", "half_life", "disaster_half_life", "scale_rate",
)  # fmt: skip
TEMPERATURES = (0.01, 0.1, 1.0, 10.0)
ADAM = optax.adam(0.03)


@functools.cache
def stream(seed: int = 0, steps: int = T, dim: int = D) -> dmem.Experience:
    """Random experiences; the payload says which one it is."""
    random = np.random.default_rng(seed)
    config = dataclasses.replace(CONFIG, embedding_dim=dim)
    return dmem.experience(
        config,
        random.normal(size=(steps, dim)),
        rpe=random.exponential(size=steps) * random.choice([-1, 1], steps),
        value=random.normal(size=steps),
        gate_logit=random.normal(size=steps),
        payload={"what": np.arange(steps, dtype=np.float32)[:, None]},
    )


QUERY, PROBE = jnp.array([0.3, -1.0, 0.5]), jnp.array([1.0, -2.0, 0.5])  # what is asked, what a read-out is worth


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -500, 500)))


def slow_survival(log_strength, share, capacity, temperature):
    if share.sum() <= capacity:
        return np.ones_like(share)
    low, high = log_strength.min() - 40 * temperature - 1, log_strength.max() + 40 * temperature + 1
    cut = low
    for _ in range(200):
        cut = (low + high) / 2
        crowded = (share * sigmoid((log_strength - cut) / temperature)).sum() > capacity
        low, high = (cut, high) if crowded else (low, cut)
    return sigmoid((log_strength - cut) / temperature)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def slow_soft(config: dmem.Config, p: dict, met: dmem.Experience, logit, pressure: float, query=QUERY):
    """kept [T] and weights [T], in float64 and in so many words."""
    embedding, rpe = np.asarray(met.embedding, np.float64), np.asarray(met.rpe, np.float64)
    mean, weight, sizes = 0.0, 0.0, []
    for magnitude in np.abs(rpe):
        sizes.append(magnitude / mean if weight else 1.0)
        weight = (1 - p["scale_rate"]) * weight + p["scale_rate"]
        mean += p["scale_rate"] / weight * (magnitude - mean)
    opening = sigmoid(p["gate_scale"] * np.array(sizes) - p["gate_bias"] + logit)
    core, buffer = (sigmoid((opening - p[f"threshold_{t}"]) / p["threshold_temperature"]) for t in ("high", "low"))
    either, warming_up = np.maximum(core, buffer), np.arange(len(rpe)) < config.warmup
    core, either = np.where(warming_up, 0, core), np.where(warming_up, 1, either)
    half_life = np.where(rpe < 0, p["disaster_half_life"], p["half_life"])
    written = opening * np.abs(rpe) * 2.0 ** (-np.arange(len(rpe))[::-1] / half_life)
    in_core = core * slow_survival(np.log(written), core, config.core_capacity, pressure)
    rest = either - in_core
    kept = in_core + rest * slow_survival(np.log(written), rest, config.buffer_capacity, pressure)
    query = np.float64(query)
    cosine = embedding @ query / np.linalg.norm(embedding, axis=1) / np.linalg.norm(query)
    w, strength = p["semantic_weight"], kept * written
    logits = w * cosine / p["semantic_temperature"] + (1 - w) * strength / mean / p["salience_temperature"]
    with np.errstate(divide="ignore", invalid="ignore"):
        a = softmax(logits + np.log(strength))
        weights = np.where(kept > 0, a * kept / (kept + (1 - kept) * a), 0)
    return kept, weights


def differences(f, at, steps: float = 1e-6):
    """Central differences of a float64 function of an array, in each of its numbers."""
    at = np.array(at, np.float64)
    slopes = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        move = np.zeros_like(at)
        move[index] = steps * max(abs(at[index]), 0.1)
        slopes[index] = (f(at + move) - f(at - move)) / (2 * move[index])
    return slopes


def as_dict(params: dmem.Params) -> dict:
    return {field.name: float(getattr(params, field.name)) for field in dataclasses.fields(params)}


def worth(config: dmem.Config, params: dmem.Params, met: dmem.Experience, pressure):
    soft = soft_memory(config, params, met, pressure_temperature=pressure)
    return soft_attend(params, soft, QUERY).readout @ PROBE, soft.kept


slopes_of_worth = jax.jit(jax.value_and_grad(worth, argnums=(1, 3), has_aux=True), static_argnums=0)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("slots", [(2, 3), (20, 0)], ids=["full", "roomy"])
def test_the_gradient_is_the_difference_at_every_learnable_number(slots, temperature):
    config = dataclasses.replace(CONFIG, core_capacity=slots[0], buffer_capacity=slots[1], warmup=2 if slots[1] else 0)
    temperatures = dict.fromkeys(("threshold_temperature", "semantic_temperature", "salience_temperature"), temperature)
    params, met = dmem.Params.default(config, **START, **temperatures), stream()

    def slow(values) -> float:
        p = as_dict(params) | dict(zip(LEARNED, values[:-1], strict=True))
        _, weights = slow_soft(config, p, met, np.float64(met.gate_logit), values[-1])
        return float(weights @ np.float64(met.embedding) @ np.float64(PROBE))

    at = [float(getattr(params, name)) for name in LEARNED] + [float(jnp.float32(temperature))]
    (now, kept), (of_params, of_pressure) = slopes_of_worth(config, params, met, jnp.float32(temperature))
    np.testing.assert_allclose(kept, slow_soft(config, as_dict(params), met, met.gate_logit, at[-1])[0], atol=1e-4)
    np.testing.assert_allclose(now, slow(np.array(at)), rtol=1e-3, atol=1e-4)
    found = np.array([float(getattr(of_params, name)) for name in LEARNED] + [float(of_pressure)])
    # Relative to one per cent of the number, for a slope at .01 is a hundred times that at 1.
    np.testing.assert_allclose(found * at, differences(slow, at) * at, rtol=2e-2, atol=2e-3)
    used = {*LEARNED}
    others = {name: float(slope) for name, slope in as_dict(of_params).items() if name not in used}
    assert set(others.values()) == {0.0}


def test_the_gradient_is_the_difference_at_every_weight_of_the_learner():
    gate_config = GateConfig(D, hidden=(3,), learns=LEARNED, optimizer=ADAM)
    learner, met = init(gate_config, dmem.Params.default(CONFIG, **START), jax.random.key(0)), stream()
    random = np.random.default_rng(1)  # a fresh network says 0, which hides mistakes
    shaken = jax.tree.map(lambda x: x + jnp.asarray(random.normal(size=x.shape), jnp.float32), learner.weights)
    flat, unravel = ravel_pytree(shaken)

    def fast(flat):
        params, gate_logit = hard(gate_config, dataclasses.replace(learner, weights=unravel(flat)))
        given = dataclasses.replace(met, gate_logit=gate_logit(met.embedding))
        return worth(CONFIG, params, given, jnp.float32(1.0))[0]

    def slow(flat) -> float:
        weights = unravel_64(flat)
        x = weights["scalars"]
        p = as_dict(learner.params) | {name: float(np.exp(x[name])) for name in x}
        p |= {
            name: float(sigmoid(x[name]))
            for name in ("threshold_low", "threshold_high", "semantic_weight", "scale_rate")
        }
        p |= {"gate_scale": float(np.log1p(np.exp(x["gate_scale"]))), "gate_bias": float(x["gate_bias"])}
        layers = weights["network"]["params"]
        hidden = np.maximum(0, np.float64(met.embedding) @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"])
        logit = (hidden @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"])[:, 0]
        _, read = slow_soft(CONFIG, p, met, logit, 1.0)
        return float(read @ np.float64(met.embedding) @ np.float64(PROBE))

    leaves, structure = jax.tree.flatten(shaken)

    def unravel_64(flat):
        cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(np.split(flat, cuts), leaves, strict=True)]
        return jax.tree.unflatten(structure, parts)

    now, slopes = jax.jit(jax.value_and_grad(fast))(flat)
    np.testing.assert_allclose(now, slow(np.float64(flat)), rtol=1e-3)
    np.testing.assert_allclose(slopes, differences(slow, flat), rtol=1e-2, atol=1e-3)


# ---- dmem.attend


@functools.cache
def lived(steps: int) -> dmem.Memory:
    """A memory after `steps` of the stream; 5 slots."""
    config = attended("strength", "constant")
    params = dmem.Params.default(config, threshold_low=0.0)
    met = jax.tree.map(lambda leaf: leaf[:steps], stream())
    memory, _ = dmem.write_many(config, params, dmem.init(config, {"what": jnp.zeros(1)}), met)
    return memory


def attended(salience: Any, schedule: Any) -> dmem.Config:
    return dataclasses.replace(CONFIG, thresholds="fixed", salience=salience, weight_schedule=schedule)


def attention_worth(config, params, memory):
    return dmem.attend(config, params, memory, dmem.query(config, QUERY, value=0.4)).readout @ PROBE


slopes_of_attention = jax.jit(jax.value_and_grad(attention_worth, argnums=1), static_argnums=0)


def slow_attention(config: dmem.Config, p: dict, memory: dmem.Memory) -> float:
    """The worth of `attend`'s read-out in float64, for a memory that is not empty."""
    rows: dict = {}
    for name in ("embedding", "rpe", "value", "strength", "touched", "id"):
        rows[name] = np.concatenate([np.float64(getattr(tier, name)) for tier in (memory.core, memory.buffer)])
    rows = {name: column[rows["id"] >= 0] for name, column in rows.items()}
    half_life = np.where(rows["rpe"] < 0, p["disaster_half_life"], p["half_life"])
    faded = 2.0 ** (-(float(memory.clock) - rows["touched"]) / half_life)
    salience = faded * (rows["strength"] if config.salience == "strength" else np.abs(rows["rpe"]))
    if config.salience == "value":
        salience *= np.exp(-np.abs(0.4 - rows["value"]) / p["value_temperature"])
    done = {"constant": 1.0, "step": float(memory.clock) / p["schedule_steps"], "phase": p["phase"]}
    done["fill"] = len(rows["id"]) / config.pool_capacity
    w = p["semantic_weight"]
    w += (p["semantic_weight_start"] - w) * max(0.0, 1 - done[config.weight_schedule])
    query = np.float64(QUERY)
    cosine = rows["embedding"] @ query / np.linalg.norm(rows["embedding"], axis=1) / np.linalg.norm(query)
    logits = w * cosine / p["semantic_temperature"]
    logits += (1 - w) * salience / float(memory.router.scale_mean) / p["salience_temperature"]
    return float(softmax(logits + np.log(rows["strength"] * faded)) @ rows["embedding"] @ np.float64(PROBE))


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(
    ("salience", "schedule", "steps"),
    [
        ("strength", "constant", T),
        ("strength", "step", 3), ("surprise", "phase", T), ("value", "fill", 3),
    ],
)  # fmt: skip
def test_the_gradient_of_attend_is_the_difference_at_every_field(salience, schedule, steps, temperature):
    config, memory = attended(salience, schedule), lived(steps)
    names = ("semantic_temperature", "salience_temperature", "value_temperature")
    changes = dict.fromkeys(names, temperature) | {"half_life": 7.0, "disaster_half_life": 12.0, "phase": 0.3}
    params = dmem.Params.default(config, semantic_weight=0.4, semantic_weight_start=0.7, schedule_steps=20.0, **changes)
    fields = [name for name, value in as_dict(params).items() if np.isfinite(value)]
    at = np.array([as_dict(params)[name] for name in fields])

    def slow(values) -> float:
        return slow_attention(config, as_dict(params) | dict(zip(fields, values, strict=True)), memory)

    now, slopes = slopes_of_attention(config, params, memory)
    np.testing.assert_allclose(now, slow(at), rtol=1e-4, atol=1e-5)
    slopes = as_dict(slopes)
    found = np.array([slopes[name] for name in fields])
    np.testing.assert_allclose(found * at, differences(slow, at) * at, rtol=1e-2, atol=1e-3)
    assert all(np.isfinite(slope) for slope in slopes.values())
    has_slope = {"semantic_weight", "semantic_temperature", "salience_temperature", "half_life", "disaster_half_life"}
    if 0.05 < temperature < 5:
        assert has_slope <= {name for name, slope in slopes.items() if slope}


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_nothing_is_known_and_nothing_slopes_where_nothing_was_met(temperature):
    names = ("semantic_temperature", "salience_temperature", "threshold_temperature")
    config = attended("strength", "constant")
    params = dmem.Params.default(config, **dict.fromkeys(names, temperature))
    empty = dmem.init(config, {"what": jnp.zeros(1)})
    now, slopes = slopes_of_attention(config, params, empty)
    assert float(now) == 0
    assert set(as_dict(slopes).values()) == {0.0}

    padding = dataclasses.replace(stream(), valid=jnp.zeros(T, bool))
    params = dmem.Params.default(CONFIG, **dict.fromkeys(names, temperature))
    (now, kept), (of_params, of_pressure) = slopes_of_worth(CONFIG, params, padding, jnp.float32(temperature))
    assert (float(now), float(of_pressure), float(kept.sum())) == (0, 0, 0)
    assert set(as_dict(of_params).values()) == {0.0}


# ---- soft and hard


@pytest.mark.parametrize(("core", "buffer", "warmup"), [(3, 4, 5), (4, 0, 0)])
def test_as_temperatures_fall_the_soft_memory_becomes_the_hard_one(core, buffer, warmup):
    steps = 30
    config = dataclasses.replace(CONFIG, core_capacity=core, buffer_capacity=buffer, warmup=warmup)
    params = dmem.Params.default(config, threshold_temperature=1e-6, semantic_temperature=0.3)

    @jax.jit
    def both(met):
        memory, info = dmem.write_many(config, params, dmem.init(config, {"what": jnp.zeros(1)}), met)
        soft = soft_memory(config, params, met, pressure_temperature=1e-4)
        reads = soft_attend(params, soft, QUERY).readout, dmem.attend(config, params, memory, QUERY).readout
        return memory, info, soft, reads

    for seed in range(5):
        memory, info, soft, reads = both(stream(seed, steps))
        tiers = memory.core, memory.buffer
        kept_hard = np.concatenate([np.asarray(tier.payload["what"])[np.asarray(tier.id) >= 0, 0] for tier in tiers])
        np.testing.assert_allclose(soft.kept, np.isin(np.arange(steps), kept_hard), atol=1e-3)
        np.testing.assert_array_equal(soft.kept[np.asarray(info.route) == dmem.Route.DROPPED], 0)
        assert int(soft.memory.clock) == int(memory.clock)
        np.testing.assert_allclose(soft.memory.router.scale_mean, memory.router.scale_mean, rtol=1e-6)
        np.testing.assert_allclose(*reads, atol=2e-3)


def test_survival_fills_the_capacity_and_no_more():
    strengths, share = jnp.array(np.random.default_rng(0).normal(size=50), jnp.float32), jnp.full(50, 0.5)
    for temperature in TEMPERATURES:
        alive = survival(strengths, share, 8, jnp.float32(temperature))
        np.testing.assert_allclose(jnp.sum(share * alive), 8, rtol=1e-4)
        assert bool((jnp.diff(alive[jnp.argsort(strengths)]) >= 0).all())
    np.testing.assert_array_equal(survival(strengths, share, 25, jnp.float32(1.0)), 1)
    np.testing.assert_array_equal(survival(strengths, share, 0, jnp.float32(1.0)), 0)


@pytest.mark.quick
def test_what_is_kept_by_half_is_read_by_half_at_most():
    met, params = stream(), dmem.Params.default(CONFIG, semantic_temperature=0.01, semantic_weight=1.0)
    soft = soft_memory(CONFIG, params, met)
    weights = jax.vmap(lambda query: soft_attend(params, soft, query).weights)(met.embedding)
    assert bool((weights <= soft.kept[None] * (1 + 1e-5)).all())
    assert bool((weights.sum(1) <= 1 + 1e-5).all())
    np.testing.assert_allclose(jnp.diag(weights), soft.kept, atol=0.05)  # each asked for itself


def test_a_bad_number_reaches_neither_the_memory_nor_the_gradient():
    met, bad = stream(), 4
    broken = dataclasses.replace(
        met, embedding=met.embedding.at[bad].set(jnp.nan), gate_logit=met.gate_logit.at[bad].set(jnp.inf)
    )
    without = dataclasses.replace(met, valid=met.valid.at[bad].set(False))
    params = dmem.Params.default(CONFIG, **START)
    expected, got = (slopes_of_worth(CONFIG, params, given, jnp.float32(1.0)) for given in (without, broken))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(got))


# ---- training


def toy_loss(params, gate_logit, met, asked, right):
    """The first number of the embedding says what will be asked for; surprise says nothing."""
    given = dataclasses.replace(met, gate_logit=gate_logit(met.embedding))
    soft = soft_memory(CONFIG, params, given)
    reads = jax.vmap(lambda query: soft_attend(params, soft, query, over=lambda payload: payload["what"]).readout)(
        asked
    )
    return jnp.mean(jnp.square(reads - right))


def toy():
    random = np.random.default_rng(0)
    embedding = random.normal(size=(T, D))
    wanted = [3, 6, 9]
    embedding[:, 0] = np.where(np.isin(np.arange(T), wanted), 1.0, -1.0)
    what = random.normal(size=T).astype(np.float32)
    rpe = np.where(np.isin(np.arange(T), wanted), 0.1, 2.0)
    met = dmem.experience(CONFIG, embedding, rpe=rpe, payload={"what": what[:, None]})
    return met, jnp.asarray(embedding[wanted], jnp.float32), jnp.asarray(what[wanted, None])


def test_training_finds_what_will_be_asked_for_and_the_hard_memory_keeps_it():
    met, asked, right = toy()
    gate_config = GateConfig(D, hidden=(), optimizer=optax.adam(0.1))
    start = dmem.Params.default(CONFIG, gate_bias=0.0, gate_scale=0.1, semantic_weight=0.9)
    learner = init(gate_config, start, jax.random.key(0))
    np.testing.assert_allclose(hard(gate_config, learner)[1](met.embedding), 0)  # a new network says nothing
    step = jax.jit(update, static_argnums=(0, 2))
    losses = []
    for _ in range(150):
        learner, loss = step(gate_config, learner, toy_loss, met, asked, right)
        losses.append(float(loss))
    assert losses[1] < losses[0]
    assert losses[-1] < 0.05 * losses[0]
    assert (int(learner.updates), int(learner.skipped)) == (150, 0)

    params, gate_logit = hard(gate_config, learner)
    config = dataclasses.replace(CONFIG, warmup=0)
    given = dataclasses.replace(met, gate_logit=gate_logit(met.embedding))
    memory, _ = dmem.write_many(config, params, dmem.init(config, {"what": jnp.zeros(1)}), given)
    for query, answer in zip(asked, right, strict=True):
        read = dmem.attend(config, params, memory, query, over=lambda payload: payload["what"]).readout
        np.testing.assert_allclose(read, answer, atol=0.3)


def test_what_is_learned_stays_in_its_range_wherever_an_optimiser_goes():
    gate_config = GateConfig(D, hidden=None, learns=LEARNED, optimizer=ADAM)
    learner = init(gate_config, dmem.Params.default(CONFIG, **START), jax.random.key(0))
    for far in (-1e9, 1e9):
        scalars = jax.tree.map(lambda x, far=far: jnp.full_like(x, far), learner.weights["scalars"])
        params, _ = hard(gate_config, dataclasses.replace(learner, weights={"scalars": scalars, "network": {}}))
        within = {name: value for name, value in as_dict(params).items() if name not in ("gate_scale", "scale_rate")}
        dmem.Params.default(CONFIG, **within)  # raises where out of range


def test_a_learner_starts_from_the_params_that_it_is_given():
    gate_config = GateConfig(D, learns=LEARNED)
    start = dmem.Params.default(CONFIG, **START)
    params, _ = hard(gate_config, init(gate_config, start, jax.random.key(0)))
    for name, value in as_dict(start).items():
        np.testing.assert_allclose(getattr(params, name), value, rtol=1e-5, err_msg=name)


def test_a_loss_that_is_no_number_changes_nothing():
    gate_config = GateConfig(D, hidden=(), optimizer=ADAM)
    learner = init(gate_config, dmem.Params.default(CONFIG), jax.random.key(0))
    after, loss = update(gate_config, learner, lambda params, _: jnp.nan * params.gate_bias)
    assert np.isnan(loss)
    assert int(after.skipped) == 1
    jax.tree.map(np.testing.assert_array_equal, dataclasses.replace(after, skipped=learner.skipped), learner)


PARAMS, KEY = functools.cache(lambda: dmem.Params.default(CONFIG)), functools.cache(lambda: jax.random.key(0))
GATE = GateConfig(D, hidden=(), optimizer=ADAM)
BAD = {
    "GateConfig.embedding_dim": lambda: GateConfig(0),
    "GateConfig.hidden": lambda: GateConfig(D, hidden=[3]),  # pyright: ignore[reportArgumentType]
    "GateConfig.hidden: ": lambda: GateConfig(D, hidden=(0,)),
    "GateConfig.learns": lambda: GateConfig(D, learns=("strength_cap",)),
    "GateConfig.learns: ": lambda: GateConfig(D, learns="gate_bias"),  # pyright: ignore[reportArgumentType]
    "GateConfig.optimizer": lambda: GateConfig(D, optimizer=0.1),  # pyright: ignore[reportArgumentType]
    "gate_scale": lambda: init(GATE, dmem.Params.default(CONFIG, gate_scale=0.0), KEY()),
    "half_life": lambda: init(
        GateConfig(D, learns=("half_life",)), dmem.Params.default(CONFIG, half_life=np.inf), KEY()
    ),
    "semantic_weight": lambda: init(GATE, dmem.Params.default(CONFIG, semantic_weight=1.0), KEY()),
    "loss": lambda: update(GATE, init(GATE, PARAMS(), KEY()), lambda params, _: jnp.ones(2) * params.gate_bias),
    "embedding": lambda: hard(GATE, init(GATE, PARAMS(), KEY()))[1](jnp.ones(D + 1)),
    "Config.thresholds": lambda: soft_memory(dataclasses.replace(CONFIG, thresholds="fixed"), PARAMS(), stream()),
    "Config.signal": lambda: soft_memory(dataclasses.replace(CONFIG, signal="novelty"), PARAMS(), stream()),
    "Config.buffer_eviction": lambda: soft_memory(
        dataclasses.replace(CONFIG, buffer_eviction="age_frequency"), PARAMS(), stream()
    ),
    "Config.weight_schedule": lambda: soft_memory(
        dataclasses.replace(CONFIG, weight_schedule="fill"), PARAMS(), stream()
    ),
    "pressure_temperature": lambda: soft_memory(CONFIG, PARAMS(), stream(), pressure_temperature=0.0),
    "pressure_temperature: ": lambda: soft_memory(CONFIG, PARAMS(), stream(), pressure_temperature=np.ones(2)),
    "experiences.embedding": lambda: soft_memory(CONFIG, PARAMS(), jax.tree.map(lambda leaf: leaf[0], stream())),
    "experiences.embedding: ": lambda: soft_memory(CONFIG, PARAMS(), jax.tree.map(lambda leaf: leaf[:0], stream())),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_name(name):
    with pytest.raises((dmem.ArgumentValueError, dmem.ArgumentTypeError), match=name.rstrip(": ")):
        BAD[name]()
