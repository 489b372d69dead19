"""What comes in and is no good, for every argument of every public function.

On the host: an error of `dmem_jax.errors` that names the argument and says what came. Inside jit: a counter moves and
nothing else does, bit for bit. Numbers that are good but extreme, and lives that run out of clock or ids, do no harm.
"""

import dataclasses
import functools
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import ArgumentTypeError, ArgumentValueError, Config, Params, Route

D, K = 3, 2
INT_MAX = 2**31 - 1
CONFIG = Config(embedding_dim=D, core_capacity=3, buffer_capacity=4, top_k=K, warmup=4, store_next=True)
PAYLOAD = {"place": np.zeros(2, np.int32), "mark": np.float32(0)}
PARAMS = functools.cache(lambda: Params.default(CONFIG))


@pytest.fixture
def unchecked():
    """Without the run-time shape checker of the tests, which users do not have: it would speak first."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


# ---- Host: what is wrong with an argument, by its kind ---------------------------------------------------------------


class Made:
    """A bad value that needs jax: made when its test runs."""

    def __init__(self, make: Callable[[], Any]):
        self.make = make


def kinds(**values: Any) -> dict:
    return {name: (value, ArgumentTypeError) for name, value in values.items()}


def values(**values: Any) -> dict:
    return {name: (value, ArgumentValueError) for name, value in values.items()}


def but(name: str, **fields: Any) -> Made:
    """What is good, but for fields that its user changed by hand."""
    return Made(lambda: dataclasses.replace(good()[name], **fields))


def memory_of(**changes: Any) -> Made:
    """A memory of another config."""
    return Made(lambda: dmem.init(dataclasses.replace(CONFIG, **changes), PAYLOAD))


NONE, RAGGED = kinds(none=None), [[1.0], [1.0, 2.0]]
KIND = kinds(
    bool=True, bools=np.array([True]), complex=1j, text="1", bytes=b"1", object=object(), mapping={}, far=10**39,
    key=Made(lambda: jax.random.key(0)), jax_complex=Made(lambda: jnp.complex64(1)),
)  # fmt: skip
NOT_FINITE = values(
    nan=np.nan, inf=np.inf, minus_inf=-np.inf, overflow=1e300, jax_nan=Made(lambda: jnp.float32(np.nan))
)
NUMBER = KIND | NOT_FINITE | values(batched=np.ones(2), ragged=RAGGED)
VECTOR = KIND | kinds(texts=np.array(["a"] * D), nothing=[None] * D) | values(
    long=np.ones(D + 1), short=np.ones(D - 1), scalar=1.0, ragged=RAGGED, swapped=np.ones((D, 2)),
    nan=[1, np.nan, 1], inf=[1, np.inf, 1], overflow=[1, 1e300, 1], infinite_norm=[1e20] * D,
    jax_nan=Made(lambda: jnp.full(D, np.nan)),
)  # fmt: skip
ONE_VECTOR = VECTOR | values(batched=np.ones((2, D)))
INTEGER = KIND | kinds(float=1.0, jax_float=Made(lambda: jnp.float32(1))) | values(
    overflow=2**31, underflow=-(2**31) - 1, array=np.array(2**40), batched=np.ones(2, np.int32),
    jax_unsigned=Made(lambda: jnp.uint32(2**31)),
)  # fmt: skip
FLAG = kinds(int=1, float=1.0, text="yes", ints=np.array([1])) | values(batched=np.ones(2, bool))
COUNT = NONE | kinds(bool=True, float=1.0, text="1", array=np.ones(2, np.int32)) | values(zero=0, negative=-1)
BATCH_SHAPE = NONE | kinds(int=2, text="2", floats=(2.0,), bools=(True,)) | values(negative=(-1,))
CONFIGURATION = NONE | kinds(mapping={}, params=Made(lambda: PARAMS()), type=Config)
PARAMETERS = NONE | kinds(mapping={}, config=CONFIG, type=Params) | values(batched=but("params", half_life=np.ones(2)))
IN_64_BITS = jax.dtypes.canonicalize_dtype(np.int64) == np.int64
LOST = {} if IN_64_BITS else values(overflow=2**31, array=np.array([2**40]))  # they do not fit what holds them
HELD = kinds(
    text="a", object=object(), texts=np.array(["a"]), objects=np.array([None]), leaf={"place": "a"},
    key=Made(lambda: jax.random.key(0)),
)  # fmt: skip
MEMORY = NONE | kinds(
    config=CONFIG, array=np.ones(D), type=dmem.Memory, store=Made(lambda: good()["memory"].core),
    float_id=but("memory", next_id=np.float32(0)),
) | values(
    batched=Made(lambda: dmem.init(CONFIG, PAYLOAD, batch_shape=(2,))),
    clock=but("memory", clock=np.zeros(2, np.int32)),
    core=memory_of(core_capacity=4), buffer=memory_of(buffer_capacity=0), dim=memory_of(embedding_dim=D + 1),
    swapped=memory_of(core_capacity=4, buffer_capacity=3), next=memory_of(store_next=False),
    window=memory_of(window=5), smoothing=memory_of(smoothing="mean"),
)  # fmt: skip


def wrong_experience(name: str, *batch: int) -> dict:
    """Of `experience` or of `experiences`, whose leading axes are `batch`."""
    place = PAYLOAD["place"]
    payload = {leaf: np.zeros((*batch, *x.shape), x.dtype) for leaf, x in PAYLOAD.items()}
    return NONE | kinds(
        array=np.ones(D), query=Made(lambda: good()["query"]), type=dmem.Experience,
        integer_rpe=but(name, rpe=np.ones(batch, np.int32)), float_task=but(name, task=np.ones(batch, np.float32)),
        number_valid=but(name, valid=np.ones(batch, np.float32)),
        payload_kind=but(name, payload=payload | {"place": np.ones((*batch, *place.shape), np.float32)}),
    ) | values(
        rpe_shape=but(name, rpe=np.ones((*batch, 2), np.float32)),
        valid_shape=but(name, valid=np.ones((*batch, 2), bool)),
        next_shape=but(name, next_embedding=np.ones((*batch, D + 1), np.float32)),
        dim=but(name, embedding=np.ones((*batch, D + 1), np.float32)),
        no_payload=but(name, payload=None), other_payload=but(name, payload={"mark": payload["mark"]}),
        payload_shape=but(name, payload=payload | {"place": np.zeros((*batch, 3), np.int32)}),
        more_axes=Made(lambda: jax.tree.map(lambda x: x[None], good()[name])),
    )  # fmt: skip


EXPERIENCE = wrong_experience("experience")
EXPERIENCES = wrong_experience("experiences", 1) | values(
    single=Made(lambda: good()["experience"]), rows=but("experiences", rpe=np.ones(2, np.float32))
)
QUERY = ONE_VECTOR | NONE | kinds(
    type=dmem.Query, experience=Made(lambda: good()["experience"]), task_kind=but("query", task=np.float32(1)),
) | values(
    task_shape=but("query", task=np.ones(2, np.int32)), dim=but("query", embedding=np.ones(D + 1, np.float32)),
    queries=Made(lambda: dmem.query(CONFIG, np.ones((2, D)))),
)  # fmt: skip
RECALL = NONE | kinds(array=np.ones(K), memory=Made(lambda: good()["memory"]), type=dmem.Recall) | values(
    rows=Made(lambda: a_recall(K + 1)), batched=Made(lambda: jax.tree.map(lambda x: x[None], a_recall(K))),
    id_rows=but("recall", id=np.ones(K + 1, np.int32)),
)  # fmt: skip
USED = NONE | KIND | NOT_FINITE | values(long=np.ones(K + 1), batched=np.ones((2, K)), one_nan=np.array([1, np.nan]))
REAL = NONE | KIND  # shapes and ranges: test_signals_errors.py
UNIT = REAL | values(above=1.5, below=-0.1, nan=np.nan, array=np.ones(1))
STEPS_OF = {"rewards": REAL | values(scalar=1.0), "values": REAL | values(short=np.ones(3)), "discounts": REAL}

ACTS = {"config": CONFIGURATION, "params": PARAMETERS, "memory": MEMORY}
WRONG = {
    "experience": {
        "config": CONFIGURATION, "embedding": VECTOR | NONE, "rpe": NUMBER, "reward": NUMBER, "value": NUMBER,
        "discount": NUMBER, "next_embedding": ONE_VECTOR, "task": INTEGER, "time": INTEGER, "utility": NUMBER,
        "payload": HELD | LOST, "valid": FLAG,
    },
    "no_experience": {"config": CONFIGURATION, "payload": HELD, "batch_shape": BATCH_SHAPE},
    "query": {
        "config": CONFIGURATION, "embedding": VECTOR | NONE, "value": NUMBER, "task": INTEGER,
        "sign": INTEGER | values(two=2, minus_two=-2), "min_age": INTEGER, "max_age": INTEGER, "time": INTEGER,
    },
    "init": {"config": CONFIGURATION, "payload": HELD, "batch_shape": BATCH_SHAPE},
    "nbytes": {"config": CONFIGURATION, "payload": HELD},
    "make": {"config": CONFIGURATION, "payload": HELD, "agents": COUNT},
    "write": {**ACTS, "experience": EXPERIENCE},
    "write_many": {**ACTS, "experiences": EXPERIENCES},
    "step": {**ACTS, "experience": EXPERIENCE, "query": QUERY},
    "recall": {**ACTS, "query": QUERY},
    "attend": {**ACTS, "query": QUERY, "over": kinds(text="place", number=1)},
    "reinforce": {**ACTS, "recall": RECALL, "rpe": NUMBER | NONE, "used": USED},
    "renew": {**ACTS, "recall": RECALL, "used": USED},
    "rebase": {"memory": NONE | kinds(config=CONFIG, array=np.ones(D)), "by": INTEGER | NONE},
    "td_error": {"reward": REAL, "value": REAL, "next_value": REAL, "discount": REAL, "gamma": UNIT},
    "outcome_error": {"reward": REAL, "value": REAL},
    "potential_shaping": {"potential": REAL, "next_potential": REAL, "discount": REAL, "gamma": UNIT},
    "n_step_error": {**STEPS_OF, "n": COUNT, "gamma": UNIT},
    "lambda_error": {**STEPS_OF, "lambda_": UNIT, "gamma": UNIT},
}  # fmt: skip
PUBLIC = {name: f for name in dmem.__all__ if inspect.isfunction(f := getattr(dmem, name))}


def a_recall(rows):
    """A recall that found nothing."""
    config, params = dataclasses.replace(CONFIG, top_k=rows), PARAMS()
    like = jax.eval_shape(lambda: dmem.recall(config, params, dmem.init(CONFIG, PAYLOAD), jnp.ones(D)))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)


@functools.cache
def good() -> dict[str, Any]:
    """A good value for every argument of every function."""
    ones, zeros = np.ones(D), np.zeros(D)
    experience = dmem.experience(CONFIG, ones, rpe=1.0, payload=PAYLOAD)
    numbers = "rpe reward value discount utility next_value potential next_potential gamma lambda_"
    integers = "task time sign min_age max_age agents by n"
    return dict.fromkeys(numbers.split(), 0.5) | dict.fromkeys(integers.split(), 1) | {
        "config": CONFIG, "params": PARAMS(), "memory": dmem.init(CONFIG, PAYLOAD), "payload": PAYLOAD,
        "embedding": ones, "next_embedding": ones, "valid": True, "batch_shape": (), "experience": experience,
        "experiences": jax.tree.map(lambda x: x[None], experience), "query": dmem.query(CONFIG, ones),
        "over": lambda payload: payload["mark"], "recall": a_recall(K), "used": np.ones(K),
        "rewards": zeros, "values": np.zeros(D + 1), "discounts": zeros,
    }  # fmt: skip


def good_call(function: str) -> dict[str, Any]:
    return {name: good()[name] for name in WRONG[function]}


def test_every_argument_of_every_function_is_tried():
    arguments = {name: set(inspect.signature(f).parameters) for name, f in PUBLIC.items()}
    assert arguments == {name: set(bad) for name, bad in WRONG.items()}


@pytest.mark.quick
@pytest.mark.parametrize("function", PUBLIC)
def test_what_is_good_is_taken(function, unchecked):
    # So that in the test below only the one bad argument is to blame. Abstract: nothing is compiled.
    given = good_call(function)
    if function in ("make", "nbytes"):
        PUBLIC[function](**given)
    else:
        jax.eval_shape(lambda: PUBLIC[function](**given))


CASES = [(f, argument, label) for f, arguments in WRONG.items() for argument, bad in arguments.items() for label in bad]


@pytest.mark.quick
@pytest.mark.parametrize(("function", "argument", "label"), CASES)
def test_a_bad_argument_is_named(function, argument, label, unchecked):
    value, error = WRONG[function][argument][label]
    given = good_call(function) | {argument: value.make() if isinstance(value, Made) else value}
    with pytest.raises(error) as raised:
        PUBLIC[function](**given)
    assert re.match(rf"{argument}\b.*\bgot\b", str(raised.value), re.DOTALL), raised.value


@pytest.mark.quick
def test_rebase_takes_one_number_for_each_of_many_agents(unchecked):
    memories = dmem.init(CONFIG, batch_shape=(3,))  # as many agents as core has slots
    moved = dmem.rebase(memories, np.array([1, 2, 3]))
    assert moved.clock.tolist() == [-1, -2, -3]
    assert moved.core.time.tolist() == [[-1] * 3, [-2] * 3, [-3] * 3]


@pytest.mark.quick
@pytest.mark.parametrize("missing", ["reward", "value"])
def test_what_an_rpe_is_computed_from_is_required(missing, unchecked):
    given = {"reward": 1.0, "value": 1.0}
    del given[missing]
    with pytest.raises(ArgumentValueError, match=rf"^{missing}: required"):
        dmem.experience(Config(embedding_dim=D, signal="outcome"), np.ones(D), **given)
    with pytest.raises(ArgumentValueError, match=r"^rpe: required"):
        dmem.experience(CONFIG, np.ones(D), **given)
    with pytest.raises(ArgumentValueError, match=r"^rpe: .* got inf"):
        dmem.experience(Config(embedding_dim=D, signal="outcome"), np.ones(D), reward=3e38, value=-3e38)


@pytest.mark.quick
def test_padding_may_hold_anything(unchecked):
    # On the host too: what is not valid is not read.
    padded = dmem.experience(CONFIG, np.full((2, D), [[1.0], [np.nan]]), rpe=[1.0, np.inf], valid=[True, False])
    assert padded.valid.tolist() == [True, False]
    with pytest.raises(ArgumentValueError, match=r"^embedding: .* got .*nan.* at index "):
        dmem.experience(CONFIG, np.full((2, D), [[1.0], [np.nan]]), rpe=1.0)


@pytest.mark.quick
def test_a_query_without_the_value_that_salience_compares(unchecked):
    config = dataclasses.replace(CONFIG, salience="value")
    with pytest.raises(ArgumentValueError, match=r"^value: required"):
        dmem.query(config, np.ones(D))
    with pytest.raises(ArgumentValueError, match=r"^(query|value): .*required"):
        dmem.recall(config, PARAMS(), good()["memory"], jnp.ones(D))


@pytest.mark.quick
def test_a_payload_is_needed_to_read_one_out(unchecked):
    with pytest.raises(ArgumentValueError, match=r"^over: .* without a payload"):
        dmem.attend(CONFIG, PARAMS(), dmem.init(CONFIG), jnp.ones(D), over=lambda payload: payload)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["memories", "experiences", "queries", "recalls", "rpe", "used"])
def test_a_bundle_names_what_is_of_another_number_of_agents(name, unchecked):
    def of(agents: int) -> dict[str, Any]:
        many = lambda tree: jax.tree.map(lambda x: jnp.stack([x] * agents), tree)  # noqa: E731
        given = {"memories": "memory", "experiences": "experience", "queries": "query", "recalls": "recall"}
        trees = {plural: many(good()[single]) for plural, single in given.items()}
        return trees | {"rpe": np.ones(agents), "used": np.ones((agents, K))}

    bundle: Any = dmem.make(CONFIG, PAYLOAD, agents=2)
    takes = {"experiences": bundle.write, "memories": bundle.write, "queries": bundle.recall}
    method = takes.get(name, bundle.reinforce)
    arguments = {
        bundle.write: ["experiences"],
        bundle.recall: ["queries"],
        bundle.reinforce: ["recalls", "rpe", "used"],
    }
    given = of(2) | {name: of(3)[name]}
    with pytest.raises(ArgumentValueError, match=rf"^{name}\b.*\b2\b.*\bgot\b.*\b3\b"):
        method.trace(PARAMS(), *(given[argument] for argument in ["memories", *arguments[method]]))


# ---- Host: every field of Config and Params --------------------------------------------------------------------------

NO_INTEGER = [True, 1.0, "1", None, np.ones(2)]
SIZES: dict[str, Any] = {
    "embedding_dim": 1,
    "core_capacity": 1,
    "buffer_capacity": 0,
    "smoothing_window": 1,
    "window": 1,
    "warmup": 0,
}
CHOICES = [
    "signal", "smoothing", "scale", "thresholds", "duplicates", "buffer_eviction", "salience", "fusion",
    "weight_schedule",
]  # fmt: skip
BAD_FIELDS = [(name, bad, ArgumentTypeError) for name in SIZES for bad in NO_INTEGER]
BAD_FIELDS += [(name, least - 1, ArgumentValueError) for name, least in SIZES.items()]
BAD_FIELDS += [(name, bad, ArgumentValueError) for name in CHOICES for bad in ("other", "", None, 0, [], np.ones(2))]
BAD_FIELDS += [("store_next", bad, ArgumentTypeError) for bad in (0, 1.0, "no", None)]
BAD_FIELDS += [("top_k", bad, ArgumentTypeError) for bad in (True, 2.0, "2", None, [1, 1], (1.0, 1), (True, 1))]
BAD_FIELDS += [("top_k", bad, ArgumentValueError) for bad in (0, -1, (0, 0), (2, -1), (1,), (1, 1, 1), ())]
BAD_FIELDS += [("core_capacity", 2**31 - 192, ArgumentValueError)]  # with the buffer's 192: no slot of an int32


@pytest.mark.quick
@pytest.mark.parametrize(("name", "bad", "error"), BAD_FIELDS)
def test_a_bad_config_field_is_named(name, bad, error, unchecked):
    fields: dict[str, Any] = {"embedding_dim": D, name: bad}
    with pytest.raises(error) as raised:
        Config(**fields)
    assert re.match(rf"Config\.{name}\b.*\bgot\b", str(raised.value)), raised.value


def test_every_config_field_is_tried_and_takes_its_least(unchecked):
    assert {name for name, _, _ in BAD_FIELDS} == {field.name for field in dataclasses.fields(Config)}
    with pytest.raises(ArgumentValueError, match=r'^Config.smoothing="rank" .* Config.scale="none"'):
        Config(embedding_dim=D, smoothing="rank", scale="running")
    assert Config(**SIZES, top_k=(0, 1)).recalled == 1
    numpy_sizes: dict[str, Any] = {name: np.int64(least) for name, least in SIZES.items()}
    assert Config(**numpy_sizes) == Config(**SIZES)


NO_NUMBER = [True, 1j, "1", None, object(), [None], [[1.0], [1.0, 2.0]]]
OPEN_END = np.finfo(np.float32).tiny  # the least float32 above 0
RANGES = {
    **dict.fromkeys(["gate_scale", "threshold_low", "threshold_high"], (0.0, np.inf)),
    **dict.fromkeys(["duplicate_margin", "reinforce_rate"], (0.0, np.inf)),
    **dict.fromkeys(["quantile_low", "quantile_high", "weaken_rate", "renew_rate"], (0.0, 1.0)),
    **dict.fromkeys(["semantic_weight", "semantic_weight_start"], (0.0, 1.0)),
    **dict.fromkeys(["half_life", "disaster_half_life", "buffer_half_life", "schedule_steps"], (OPEN_END, np.inf)),
    **dict.fromkeys(["semantic_temperature", "salience_temperature", "value_temperature"], (OPEN_END, np.inf)),
    **{"gate_bias": (-np.inf, np.inf), "duplicate_similarity": (-1.0, np.inf)},
    **{"strength_cap": (1.0, np.inf), "scale_rate": (OPEN_END, 1.0)},
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", RANGES)
def test_a_bad_param_is_named(name, unchecked):
    least, greatest = RANGES[name]
    below = 0.0 if least == OPEN_END else np.nextafter(np.float32(least), -np.inf)
    wrong = [np.nan, np.array([greatest, np.nan])]
    wrong += [below, np.array([greatest, below])] if np.isfinite(least) else []
    wrong += [np.nextafter(np.float32(greatest), np.inf)] if np.isfinite(greatest) else []
    for error, bad in [(ArgumentValueError, bad) for bad in wrong] + [(ArgumentTypeError, bad) for bad in NO_NUMBER]:
        with pytest.raises(error) as raised:
            Params.default(CONFIG, **{name: bad})
        assert re.match(rf"Params\.{name}\b.*\bgot\b", str(raised.value)), raised.value


def test_every_param_is_tried_and_takes_its_ends(unchecked):
    assert set(RANGES) == {field.name for field in dataclasses.fields(Params)}
    for name, ends in RANGES.items():
        for end in (x for x in ends if np.isfinite(x)):
            param = getattr(Params.default(CONFIG, **{name: end}), name)
            assert (param, param.dtype, param.weak_type) == (np.float32(end), jnp.float32, False)
    with pytest.raises(ArgumentTypeError, match="half_lifes"):
        Params.default(CONFIG, half_lifes=1.0)
    for bad, _ in CONFIGURATION.values():
        with pytest.raises(ArgumentTypeError, match=r"^config: .*\bgot\b"):
            Params.default(bad.make() if isinstance(bad, Made) else bad)


# ---- Inside jit: nothing changes but a counter -----------------------------------------------------------------------

LIVES, UNITS, STEPS = 4, 6, 120
AGENTS = LIVES * UNITS  # each life is lived in each unit of reward


# Lived a few times only, so it should rather compile fast: this takes half the time.
@functools.partial(jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})
def live(config, params, memories, stream):
    """[AGENTS] agents write, recall for what comes next, and give feedback on the best recalled, [STEPS] times."""

    def step(memory, now):
        experience = dmem.experience(
            config, now["embedding"], rpe=now["rpe"], reward=now["rpe"], value=now["value"],
            next_embedding=now["embedding"], payload={"place": jnp.zeros(2, jnp.int32), "mark": now["rpe"]},
        )  # fmt: skip
        memory, info = dmem.step(config, params, memory, experience, now["query"])
        used = (jnp.arange(config.recalled) == 0).astype(jnp.float32)
        memory = dmem.reinforce(config, params, memory, info.recall, now["feedback"], used)
        return dmem.renew(config, params, memory, info.recall, used * now["renewed"]), info

    return jax.vmap(lambda memory, own: jax.lax.scan(step, memory, own))(memories, stream)


def a_stream(units=(1.0,) * UNITS) -> dict[str, np.ndarray]:
    """[AGENTS, STEPS] of LIVES lives, each in every unit of reward: five places met again and again, much routine."""
    random = np.random.default_rng(0)
    shape = (LIVES, STEPS)
    embedding = random.normal(size=(5, D))[random.integers(0, 5, shape)]
    unscaled = {
        "embedding": embedding,
        "query": np.roll(embedding, -1, axis=1),  # what comes next, so that the probe serves the next write
        "renewed": random.random(shape) < 0.2,
    }
    scaled = {
        "rpe": random.normal(size=shape) * random.choice([0.1, 1, 5], shape),
        "value": random.normal(size=shape),
        "feedback": random.normal(size=shape) * (random.random(shape) < 0.3),
    }
    unit = np.repeat(np.array(units, np.float32), LIVES)[:, None]
    tiled = {
        name: np.tile(x, (UNITS,) + (1,) * (x.ndim - 1)).astype(np.float32) for name, x in (unscaled | scaled).items()
    }
    return tiled | {name: tiled[name] * unit for name in scaled}


def fresh(config=CONFIG) -> Any:
    return dmem.init(config, PAYLOAD, batch_shape=(AGENTS,))


def agent(tree, i=0) -> Any:
    return jax.tree.map(lambda x: np.asarray(x)[i], tree)


@functools.cache
def lived():
    """A full memory, with a probe that points at what it holds."""
    memory = agent(live(CONFIG, PARAMS(), fresh(), a_stream())[0])
    assert (memory.core.id >= 0).all()
    assert (memory.buffer.id >= 0).all()
    assert memory.probe.valid
    return memory


def differences(a, b) -> set[str]:
    """The paths of the leaves that differ in any bit."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True)
    return {
        jax.tree_util.keystr(path)[1:] for (path, x), y in pairs if np.asarray(x).tobytes() != np.asarray(y).tobytes()
    }


def assert_sound(memory):
    """Of one agent: no number that is none, no id twice, and every experience accounted for."""
    for path, x in jax.tree_util.tree_leaves_with_path(memory):
        allowed = np.isneginf(x) & (
            jax.tree_util.keystr(path) == ".probe.similarity"
        )  # there was nothing to be near to
        assert x.dtype.kind != "f" or (np.isfinite(x) | allowed).all(), jax.tree_util.keystr(path)
    ids = np.concatenate([tier.id[tier.id >= 0] for tier in (memory.core, memory.buffer)])
    assert len(set(ids)) == len(ids)
    s = memory.stats
    assert s.seen == s.invalid + s.dropped + s.refused + s.refreshed + s.merged + s.stored
    assert s.stored == len(ids) + s.evicted
    for tier in (memory.core, memory.buffer):
        assert (tier.strength >= 0).all()
        assert (tier.time <= memory.clock).all()
        assert (tier.touched <= memory.clock).all()


def assert_all_sound(memories):
    for i in range(AGENTS):
        assert_sound(agent(memories, i))


def assert_nothing_found(recall):
    assert not recall.valid.any()
    assert (recall.id == -1).all()
    assert np.isneginf(recall.score).all()
    assert (recall.tier == 1).all()
    assert (recall.slot == CONFIG.buffer_capacity).all()
    rest = dataclasses.replace(recall, id=None, score=None, tier=None, slot=None)
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(rest))


def altered(model, *changes):
    """`model` once for each (field, value), with that field replaced; stacked."""
    full = [dataclasses.replace(model, **{name: np.full_like(getattr(model, name), x)}) for name, x in changes]
    return jax.tree.map(lambda *x: np.stack(x), *full)


def an_experience(**given):
    """Of the place that the probe of `lived` is about."""
    return dmem.experience(CONFIG, lived().probe.embedding, payload=PAYLOAD, **given)


recall_each = jax.jit(jax.vmap(dmem.recall, (None, None, None, 0)))
BAD_EXPERIENCES = [("valid", False)]
BAD_EXPERIENCES += [(name, x) for name in ("rpe", "reward", "value", "discount") for x in (np.nan, np.inf, -np.inf)]
BAD_EXPERIENCES += [(name, x) for name in ("embedding", "next_embedding") for x in (np.nan, np.inf, -np.inf, 1e20)]
BAD_QUERIES = [("embedding", x) for x in (np.nan, np.inf, -np.inf, 1e20)] + [("value", x) for x in (np.nan, np.inf)]


@functools.cache
def writes():
    """`lived` after it met each bad experience, and a good one."""
    met = altered(an_experience(rpe=9.0), *BAD_EXPERIENCES, ("valid", True))
    written = jax.jit(jax.vmap(dmem.write, (None, None, None, 0)))(CONFIG, PARAMS(), lived(), met)
    return [agent(written, i) for i in range(len(BAD_EXPERIENCES) + 1)]


@pytest.mark.quick
def test_a_bad_experience_changes_a_counter_and_nothing_else():
    for (memory, info), (name, value) in zip(writes()[:-1], BAD_EXPERIENCES, strict=True):
        # The probe too stays, as does all that is in the windows: nothing was written.
        counted = set() if name == "valid" else {"stats.seen", "stats.invalid"}
        assert differences(lived(), memory) == counted, (name, value)
        assert memory.stats.invalid == lived().stats.invalid + (name != "valid")
        assert_sound(memory)
        assert (info.route, info.id, info.evicted_id, info.demoted_id, info.merged_id) == (
            Route.INVALID,
            -1,
            -1,
            -1,
            -1,
        )
        assert (info.tier, info.slot, info.size, info.gate) == (1, CONFIG.buffer_capacity, 0, 0)


@functools.cache
def steps():
    """`lived` after a step with: each bad experience and a good query, then a good experience and each bad query."""
    experiences = altered(an_experience(rpe=9.0), *BAD_EXPERIENCES, *[("valid", True)] * len(BAD_QUERIES))
    ask = dmem.query(CONFIG, lived().core.embedding[0])
    queries = altered(ask, *[("sign", 0)] * len(BAD_EXPERIENCES), *BAD_QUERIES)
    stepped = jax.jit(jax.vmap(dmem.step, (None, None, None, 0, 0)))(CONFIG, PARAMS(), lived(), experiences, queries)
    return [agent(stepped, i) for i in range(len(BAD_EXPERIENCES) + len(BAD_QUERIES))]


@pytest.mark.quick
def test_a_step_with_a_bad_experience_is_a_step_with_none():
    (none, found), *bad = steps()[: len(BAD_EXPERIENCES)]
    changed = differences(lived(), none)
    assert {"stats.recalled", "probe.embedding", "probe.slot", "probe.similarity", "core.recalls"} <= changed
    assert changed <= {
        "stats.recalled",
        "probe.embedding",
        "probe.slot",
        "probe.similarity",
        "core.recalls",
        "buffer.recalls",
    }
    assert found.recall.valid.all()
    for (memory, info), change in zip(bad, BAD_EXPERIENCES[1:], strict=True):
        assert differences(none, memory) == {"stats.seen", "stats.invalid"}, change
        assert not differences(found, info), change


@pytest.mark.quick
def test_a_bad_query_finds_nothing_and_leaves_no_probe():
    written, wrote = writes()[-1]
    assert wrote.route > Route.DROPPED
    for (memory, info), change in zip(steps()[len(BAD_EXPERIENCES) :], BAD_QUERIES, strict=True):
        # The write took place all the same.
        assert not differences(wrote, info.write), change
        assert {path for path in differences(written, memory) if not path.startswith("probe")} == set(), change
        assert not memory.probe.valid
        assert_sound(memory)
        assert_nothing_found(info.recall)
    queries = altered(dmem.query(CONFIG, np.ones(D)), ("sign", 0), *BAD_QUERIES)
    recalls = recall_each(CONFIG, PARAMS(), lived(), queries)
    attention = jax.jit(jax.vmap(dmem.attend, (None, None, None, 0)))(CONFIG, PARAMS(), lived(), queries)
    assert recalls.valid[0].all()
    assert attention.weights[0].any()
    assert_nothing_found(jax.tree.map(lambda x: x[1:], recalls))
    assert not attention.weights[1:].any()
    assert not attention.readout[1:].any()


def test_a_bad_query_has_no_gradient_that_is_no_number():
    def readout(params, embedding, memory):
        return dmem.attend(CONFIG, params, memory, dmem.query(CONFIG, embedding)).readout.sum()

    vectors = np.stack([np.full(D, x, np.float32) for x in (np.nan, np.inf, 1e20, 0.0)])
    gradients = jax.jit(jax.vmap(jax.grad(readout, (0, 1)), (None, 0, None)))
    of_params, of_embedding = gradients(PARAMS(), vectors, lived())
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(of_params))
    assert np.isfinite(of_embedding).all()


@pytest.mark.quick
def test_bad_feedback_is_counted_and_changes_nothing_else():
    recall = steps()[0][1].recall
    assert recall.valid.all()
    nan, inf = np.nan, np.inf
    cases = [  # rpe, used, and what then counts as rejected
        (1, [1, 1], 0), (nan, [1, 1], 2), (inf, [1, 1], 2), (-inf, [0, 1], 2), (1, [nan, nan], 2), (1, [inf, -inf], 2),
        (1, [nan, 0], 1), (1, [nan, 1], 1), (1, [0, 1], 0), (1, [0, 0], 0), (1, [-1, -0.0], 0), (-1, [-1, 0], 0),
        (3e38, [3e38, 3e38], 0), (-3e38, [3e38, 3e38], 0),
    ]  # fmt: skip
    rpe, used, rejected = (np.array(x, np.float32) for x in zip(*cases, strict=True))
    reinforced = jax.jit(jax.vmap(dmem.reinforce, (None, None, None, None, 0, 0)))(
        CONFIG, PARAMS(), lived(), recall, rpe, used
    )
    renewed = jax.jit(jax.vmap(dmem.renew, (None, None, None, None, 0)))(CONFIG, PARAMS(), lived(), recall, used)
    moved = differences(lived(), agent(reinforced))
    assert any(path.endswith("strength") for path in moved)
    for i, case in enumerate(cases):
        memory = agent(reinforced, i)
        assert memory.stats.rejected == rejected[i]
        assert_sound(memory)
        if i and not (np.isfinite(rpe[i]) and (used[i] > 0).any()):
            assert differences(lived(), memory) == ({"stats.rejected"} if rejected[i] else set()), case
        renewed_memory = agent(renewed, i)
        assert_sound(renewed_memory)
        assert renewed_memory.stats.rejected == np.sum(~np.isfinite(used[i]))
    # What is good in the feedback still acts: [nan, 1] as [0, 1].
    assert differences(agent(reinforced, 7), agent(reinforced, 8)) == {"stats.rejected"}
    assert differences(agent(renewed, 7), agent(renewed, 8)) == {"stats.rejected"}


# ---- Numbers that are good but extreme -------------------------------------------------------------------------------


def decisions(infos):
    w, r = infos.write, infos.recall
    return w.route, w.id, w.tier, w.slot, w.evicted_id, w.demoted_id, w.merged_id, r.id, r.tier, r.slot, r.valid


OTHER_KINDS = Config(
    embedding_dim=D, core_capacity=3, buffer_capacity=4, top_k=(1, 2), warmup=4, window=30, thresholds="quantile",
    duplicates="search", buffer_eviction="age_frequency", salience="surprise", fusion="rank", smoothing="mean",
)  # fmt: skip

KINDS = ["defaults", "other_kinds"]


@pytest.mark.parametrize("config", [CONFIG, OTHER_KINDS], ids=KINDS)
def test_the_unit_of_reward_changes_no_decision(config):
    units = [1.0, 10.0, 2.0**10, 2.0**-100, 1e-30, 1e30]  # 2**-100 is about 1e-30
    memories, infos = jax.tree.map(np.asarray, live(config, PARAMS(), fresh(config), a_stream(units)))
    routes = set(infos.write.route[:LIVES].flat)
    assert {Route.DROPPED, Route.BUFFER, Route.CORE, Route.REFRESHED, Route.MERGED} <= routes
    for i, unit in enumerate(units):
        mine = slice(i * LIVES, (i + 1) * LIVES)
        for one, other in zip(decisions(infos), decisions(infos), strict=True):
            assert (one[:LIVES] == other[mine]).all(), unit
        np.testing.assert_allclose(infos.write.size[mine], infos.write.size[:LIVES], rtol=1e-4)
        np.testing.assert_allclose(memories.core.strength[mine], unit * memories.core.strength[:LIVES], rtol=1e-4)
    power = slice(2 * LIVES, 3 * LIVES)  # 2**10: exact, so all is the same to the bit
    for name in ("size", "gate"):
        assert (getattr(infos.write, name)[power] == getattr(infos.write, name)[:LIVES]).all()
    for name in ("score", "semantic", "salience"):
        assert (getattr(infos.recall, name)[power] == getattr(infos.recall, name)[:LIVES]).all()
    for name in ("strength", "written_strength", "rpe", "reward", "value"):
        assert (getattr(memories.core, name)[power] == 2**10 * getattr(memories.core, name)[:LIVES]).all()
    assert (memories.buffer.embedding[power] == memories.buffer.embedding[:LIVES]).all()
    assert_all_sound(memories)


MOST, NORMAL, DENORMAL = np.finfo(np.float32).max, np.finfo(np.float32).tiny, np.float32(1e-45)
EXTREMES = np.array([0, -0.0, DENORMAL, -DENORMAL, NORMAL, -NORMAL, 1e-30, 1e30, 1e38, -1e38, MOST, -MOST], np.float32)


@pytest.mark.parametrize("config", [pytest.param(CONFIG, marks=pytest.mark.quick), OTHER_KINDS], ids=KINDS)
def test_extreme_numbers_leave_only_numbers(config):
    random, stream = np.random.default_rng(1), a_stream()
    shape = stream["rpe"].shape
    for name in ("rpe", "value", "feedback"):
        stream[name] = np.where(random.random(shape) < 0.5, random.choice(EXTREMES, shape), stream[name])
    # Lengths up to the greatest whose square is a float32, and down to where the square is 0.
    lengths = np.array([0, -0.0, DENORMAL, 1e-30, 1e-20, 1e-19, 1, 1e10, 1e18, 1e19], np.float32)
    length = random.choice(lengths, (*shape, 1))
    unit_vectors = stream["embedding"] / np.linalg.norm(stream["embedding"], axis=-1, keepdims=True)
    stream["embedding"] = unit_vectors * length
    stream["query"] = np.roll(stream["embedding"], -1, axis=1)
    memories, infos = jax.tree.map(np.asarray, live(config, PARAMS(), fresh(config), stream))
    assert_all_sound(memories)
    assert not memories.stats.invalid.any()
    assert not memories.stats.rejected.any()
    assert np.isfinite(infos.write.size).all()
    assert np.isfinite(infos.write.gate).all()
    found = infos.recall
    for x in (found.score, found.semantic, found.salience):
        assert np.isfinite(x[found.valid]).all()
    assert (np.abs(found.semantic) <= 1 + 1e-6).all()
    assert found.valid[:, -1].any(axis=-1).all()


@pytest.mark.parametrize(("name", "end"), [(name, end) for name, ends in RANGES.items() for end in ends])
def test_params_at_the_ends_of_their_ranges_leave_only_numbers(name, end):
    try:
        params = dataclasses.replace(PARAMS(), **{name: getattr(Params.default(CONFIG, **{name: end}), name)})
    except ArgumentValueError:
        assert np.isinf(end)  # an end that is open may as well be refused
        return
    stream = a_stream((1.0, 1e-30, 1e-37, 1e30, 1e37, 0.0))
    stream["rpe"][:, ::7] *= 0  # a surprise of exactly nothing
    memories, infos = jax.tree.map(np.asarray, live(CONFIG, params, fresh(), stream))
    assert_all_sound(memories)
    assert np.isfinite(infos.recall.score[infos.recall.valid]).all()
    assert np.isfinite(infos.write.gate).all()


@pytest.mark.quick
def test_a_zero_vector_is_like_nothing_and_still_a_memory():
    stream = a_stream()
    stream["embedding"], stream["query"] = np.zeros_like(stream["embedding"]), np.zeros_like(stream["query"])
    memories, infos = jax.tree.map(np.asarray, live(CONFIG, PARAMS(), fresh(), stream))
    assert not infos.recall.semantic.any()
    assert infos.recall.valid[:, -1].all()
    assert not (memories.stats.merged + memories.stats.refreshed + memories.stats.contradicted).any()
    assert (memories.core.id >= 0).all()
    assert_all_sound(memories)


# ---- Clocks and ids that run out -------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_clock_near_the_end_saturates_and_can_be_set_back():
    start, early = fresh(), live(CONFIG, PARAMS(), fresh(), a_stream())
    room = STEPS // 2
    late_start = dataclasses.replace(start, clock=np.full(AGENTS, INT_MAX - room, np.int32))
    late = live(CONFIG, PARAMS(), late_start, a_stream())
    for one, other in zip(decisions(early[1]), decisions(late[1]), strict=True):
        assert (np.asarray(one)[:, :room] == np.asarray(other)[:, :room]).all()
    assert (late[0].clock == INT_MAX).all()
    assert late[0].stats.seen[0] == STEPS  # what is met after the end is written all the same
    assert_all_sound(jax.tree.map(np.asarray, late[0]))
    back = dmem.rebase(late[0], np.int32(INT_MAX - room))
    assert (back.clock == room).all()
    assert (back.core.touched == late[0].core.touched - (INT_MAX - room)).all()
    assert differences(late[0], back) == {"clock"} | {
        f"{t}.{f}" for t in ("core", "buffer") for f in ("time", "touched")
    }
    far = dmem.rebase(dmem.rebase(back, np.int32(INT_MAX)), np.int32(INT_MAX))
    assert (far.clock == dmem.UNSET).all()  # saturates at the other end, which is int32's least
    oldest = dataclasses.replace(agent(far), clock=np.int32(INT_MAX))
    ask = dmem.query(CONFIG, np.ones(D), min_age=INT_MAX)
    recall = recall_each(CONFIG, PARAMS(), oldest, altered(ask, *[("sign", 0)] * (len(BAD_QUERIES) + 1)))
    assert recall.valid.all()  # an age beyond int32 is the greatest int32
    assert np.isfinite(recall.score).all()


@pytest.mark.quick
def test_ids_that_run_out_end_the_writing_and_harm_nothing():
    left = 3
    last = dataclasses.replace(fresh(), next_id=np.full(AGENTS, INT_MAX - left, np.int32))
    memories, infos = jax.tree.map(np.asarray, live(CONFIG, PARAMS(), last, a_stream()))
    assert (memories.next_id == INT_MAX).all()
    assert (memories.stats.stored == left).all()
    assert set(memories.buffer.id[memories.buffer.id >= 0]) <= set(range(INT_MAX - left, INT_MAX))
    assert (memories.stats.exhausted > 0).all()
    assert (memories.stats.exhausted <= memories.stats.dropped).all()
    assert (infos.write.route[:, -20:] == Route.DROPPED).all()
    assert infos.recall.valid[:, -1].any()
    assert_all_sound(memories)


@pytest.mark.quick
def test_counters_stop_at_their_end():
    full = jax.tree.map(lambda x: np.full_like(x, INT_MAX), fresh().stats)
    counts = {f: np.full_like(getattr(lived().core, f), INT_MAX) for f in ("recalls", "successes", "count")}
    core = dataclasses.replace(lived().core, **counts)
    starts = jax.tree.map(lambda x: np.stack([x] * AGENTS), dataclasses.replace(lived(), core=core))
    starts = dataclasses.replace(starts, stats=full)
    memories, _ = jax.tree.map(np.asarray, live(CONFIG, PARAMS(), starts, a_stream()))
    assert all((x == INT_MAX).all() for x in jax.tree.leaves(memories.stats))
    assert (memories.router.seen >= STEPS).all()
    for name in counts:
        assert (getattr(memories.core, name) >= 0).all()


# ---- The smallest memories, and 64 bits ------------------------------------------------------------------------------


def test_a_memory_of_one_slot_and_more_asked_than_it_holds():
    config = Config(embedding_dim=D, core_capacity=1, buffer_capacity=0, top_k=3, warmup=0)
    memories, infos = jax.tree.map(np.asarray, live(config, PARAMS(), fresh(config), a_stream()))
    assert_all_sound(memories)
    assert memories.buffer.embedding.shape == (AGENTS, 0, D)
    assert set(infos.write.route.flat) == {Route.DROPPED, Route.CORE, Route.REFRESHED, Route.MERGED, Route.REFUSED}
    assert memories.stats.evicted.any()
    assert not memories.stats.demoted.any()
    found = infos.recall
    assert found.valid[:, -1].tolist() == [[True, False, False]] * AGENTS
    assert (found.id[~found.valid] == -1).all()
    assert (found.tier[~found.valid] == 1).all()
    assert (found.slot[~found.valid] == 0).all()  # the buffer's capacity
    assert np.isneginf(found.score[~found.valid]).all()


@pytest.mark.quick
def test_empty_batches_are_no_error():
    assert dmem.experience(CONFIG, np.zeros((0, D)), rpe=np.zeros(0)).rpe.shape == (0,)
    assert dmem.no_experience(CONFIG, PAYLOAD, batch_shape=(2, 0)).payload["place"].shape == (2, 0, 2)
    assert dmem.query(CONFIG, np.zeros((0, D))).sign.shape == (0,)
    assert dmem.init(CONFIG, PAYLOAD, batch_shape=(0,)).core.embedding.shape == (0, 3, D)
    none = dmem.no_experience(CONFIG, PAYLOAD, batch_shape=(0,))
    memory, infos = jax.jit(dmem.write_many)(CONFIG, PARAMS(), lived(), none)
    assert infos.route.shape == (0,)
    assert differences(lived(), memory) <= {"probe.valid"}


LIFE_IN_64_BITS = """
import json, jax, numpy as np, jax.numpy as jnp, dmem_jax as dmem
assert jnp.zeros(1).dtype == np.float64
config = dmem.Config(embedding_dim=3, core_capacity=2, buffer_capacity=2, top_k=2, warmup=2, duplicates="search")
params, memory = dmem.Params.default(config), dmem.init(config, 0.0)
before = jax.tree.map(jax.typeof, memory)
@jax.jit
def met(memory, embedding, rpe):
    experience = dmem.experience(config, embedding, rpe=rpe, payload=jnp.float64(1))
    return dmem.step(config, params, memory, experience, embedding)
routes = []
for x in [1.0, -3.0, 1e-300, 1e300, np.nan, 7.0, 9.0]:
    memory, info = met(memory, np.array([x % 2, 1.0, 0.0]) if np.isfinite(x) else np.ones(3), x)
    routes.append(int(info.write.route))
memory = jax.jit(dmem.reinforce)(config, params, memory, info.recall, 1e300, np.ones(2))
same = jax.tree.map(jax.typeof, memory) == before
errors = []
for bad in [dict(rpe=1e300), dict(task=2**31), dict(task=jnp.int64(2**31)), dict(time=2**40)]:
    try:
        dmem.experience(config, np.ones(3), **{"rpe": 1.0, **bad})
    except dmem.ArgumentValueError as error:
        errors.append(str(error).split(":")[0])
print(json.dumps([same, routes, errors, int(memory.stats.invalid), int(memory.stats.rejected)]))
"""


def test_in_64_bits_too():
    # 1e300 is a float64 there, and no float32: refused as infinite numbers are. 1e-300 is 0 and dropped.
    path = os.pathsep.join(p for p in sys.path if p)
    env = os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": path, "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    ran = subprocess.run([sys.executable, "-c", LIFE_IN_64_BITS], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    same, routes, errors, invalid, rejected = json.loads(ran.stdout)
    assert same
    assert routes[2:5] == [Route.DROPPED, Route.INVALID, Route.INVALID]
    assert routes[-1] not in (Route.INVALID, Route.DROPPED)
    assert errors == ["rpe", "task", "task", "time"]  # the second task comes as a jax array
    assert (invalid, rejected) == (2, 2)
