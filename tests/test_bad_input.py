"""What is no good on the host, for every argument of every public function: an error of `dmem_jax.errors` that names
the argument and says what came. What happens inside jit: test_bad_numbers.py.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import ArgumentTypeError, ArgumentValueError, Config, Params
from tests import jitted

D, K = 3, 2
CONFIG = Config(embedding_dim=D, core_capacity=3, buffer_capacity=4, top_k=K, warmup=4, store_next=True)
PAYLOAD = {"place": np.zeros(2, np.int32), "mark": np.float32(0)}
PARAMS = functools.cache(lambda: Params.default(CONFIG))


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
    key=Made(lambda: jax.random.key(0)), jax_complex=Made(lambda: jnp.complex64(1)), time=np.timedelta64(1, "s"),
    masked=np.ma.masked_array([1.0], [True]), masked_in_list=[np.ma.masked],
)  # fmt: skip
NOT_FINITE = values(
    nan=np.nan, inf=np.inf, minus_inf=-np.inf, overflow=1e300, jax_nan=Made(lambda: jnp.float32(np.nan))
)
NUMBER = KIND | NOT_FINITE | values(batched=np.ones(2), ragged=RAGGED)
RATE = NUMBER | values(above=1.5, below=-0.5)
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
FAR = values(far=2**62, unprintable=10**5000)
BATCH_SHAPE = NONE | kinds(int=2, text="2", floats=(2.0,), bools=(True,)) | values(
    negative=(-1,), bytes=(2**62,), axis=(2**63,),
)  # fmt: skip
CONFIGURATION = NONE | kinds(mapping={}, params=Made(lambda: PARAMS()), type=Config)
MESH = kinds(int=1, text="agents", mapping={"agents": 2}) | values(
    axes=Made(lambda: jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))),
)
BYTES = values(bytes=Config(2**31 - 1, core_capacity=2**31 - 1, buffer_capacity=0))  # 2**64 of them
PARAMETERS = NONE | kinds(mapping={}, config=CONFIG, type=Params) | values(batched=but("params", half_life=np.ones(2)))
IN_64_BITS = jax.dtypes.canonicalize_dtype(np.int64) == np.int64
LOST = {} if IN_64_BITS else values(overflow=2**31, array=np.array([2**40]), inf=1e300)  # no 32 bits hold them
HELD = kinds(
    text="a", object=object(), texts=np.array(["a"]), objects=np.array([None]), leaf={"place": "a"},
    key=Made(lambda: jax.random.key(0)), record=np.zeros(2, [("a", "f4")]), wide=np.longdouble(1),
    masked=np.ma.masked_array([1.0], [True]),
)  # fmt: skip
SPEC = HELD | kinds(
    object_spec=jax.ShapeDtypeStruct((), object),
    key_spec=Made(lambda: jax.eval_shape(lambda: jax.random.key(0))),
)  # fmt: skip
MEMORY = NONE | kinds(
    config=CONFIG, array=np.ones(D), type=dmem.Memory, store=Made(lambda: good()["memory"].core),
    float_id=but("memory", next_id=np.float32(0)), number=but("memory", clock=3), list_=but("memory", clock=[3]),
    no_core=but("memory", core=None), core_mapping=but("memory", core={}), no_probe=but("memory", probe="x"),
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
        number=but(name, rpe=1.0), list_=but(name, embedding=[1.0] * D), none_=but(name, embedding=None),
        payload_object=but(name, payload=payload | {"place": object()}),
    ) | values(
        rpe_shape=but(name, rpe=np.ones((*batch, 2), np.float32)),
        valid_shape=but(name, valid=np.ones((*batch, 2), bool)),
        next_shape=but(name, next_embedding=np.ones((*batch, D + 1), np.float32)),
        dim=but(name, embedding=np.ones((*batch, D + 1), np.float32)),
        no_payload=but(name, payload=None), payload_text=but(name, payload="x"),
        other_payload=but(name, payload={"mark": payload["mark"]}),
        payload_shape=but(name, payload=payload | {"place": np.zeros((*batch, 3), np.int32)}),
        more_axes=Made(lambda: jax.tree.map(lambda x: x[None], good()[name])),
    )  # fmt: skip


EXPERIENCE = wrong_experience("experience")
EXPERIENCES = wrong_experience("experiences", 1) | values(
    single=Made(lambda: good()["experience"]), rows=but("experiences", rpe=np.ones(2, np.float32))
)
QUERY = ONE_VECTOR | NONE | kinds(
    type=dmem.Query, experience=Made(lambda: good()["experience"]), task_kind=but("query", task=np.float32(1)),
    number=but("query", value=1.0),
) | values(
    task_shape=but("query", task=np.ones(2, np.int32)), dim=but("query", embedding=np.ones(D + 1, np.float32)),
    queries=Made(lambda: dmem.query(CONFIG, np.ones((2, D)))),
)  # fmt: skip
RECALL = NONE | kinds(array=np.ones(K), memory=Made(lambda: good()["memory"]), type=dmem.Recall) | values(
    rows=Made(lambda: a_recall(K + 1)), batched=Made(lambda: jax.tree.map(lambda x: x[None], a_recall(K))),
    id_rows=but("recall", id=np.ones(K + 1, np.int32)),
)  # fmt: skip
OVER = kinds(
    text="place", number=1, none=lambda _: None, mapping=lambda payload: payload, float=lambda _: 1.0,
    complex=lambda payload: payload["mark"].astype(np.complex64),
) | values(
    short=lambda payload: payload["mark"][:1], total=lambda payload: payload["mark"].sum(),
    turned=lambda payload: payload["place"].T,
)  # fmt: skip
KEY = kinds(number=0, seed=np.array([0, 1], np.uint32), text="x") | values(
    many=Made(lambda: jax.random.split(jax.random.key(0), 2))
)
BATCH = NONE | kinds(recall=Made(lambda: good()["recall"]), list_=but("batch", id=[1])) | values(
    batched=Made(lambda: jax.tree.map(lambda x: x[None], good()["batch"])), rows=but("batch", id=np.zeros(5, np.int32)),
)  # fmt: skip
USED = NONE | KIND | NOT_FINITE | values(long=np.ones(K + 1), batched=np.ones((2, K)), one_nan=np.array([1, np.nan]))
REAL = NONE | KIND  # shapes and ranges: test_signals_errors.py
UNIT = REAL | values(above=1.5, below=-0.1, nan=np.nan, array=np.ones(1))
STEPS_OF = {"rewards": REAL | values(scalar=1.0), "values": REAL | values(short=np.ones(3)), "discounts": REAL}

ACTS = {"config": CONFIGURATION, "params": PARAMETERS, "memory": MEMORY}
WRONG = {
    "experience": {
        "config": CONFIGURATION, "embedding": VECTOR | NONE, "rpe": NUMBER, "reward": NUMBER, "value": NUMBER,
        "discount": RATE, "next_embedding": ONE_VECTOR, "task": INTEGER | values(unset=dmem.UNSET), "time": INTEGER,
        "utility": RATE, "gate_logit": NUMBER,
        "payload": HELD | LOST, "valid": FLAG,    },
    "no_experience": {"config": CONFIGURATION, "payload": SPEC, "batch_shape": BATCH_SHAPE},
    "query": {
        "config": CONFIGURATION, "embedding": VECTOR | NONE, "value": NUMBER, "task": INTEGER,
        "sign": INTEGER | values(two=2, minus_two=-2), "min_age": INTEGER | values(above_max_age=2), "max_age": INTEGER,
        "time": INTEGER,
    },
    "init": {"config": CONFIGURATION | BYTES, "payload": SPEC, "batch_shape": BATCH_SHAPE},
    "nbytes": {"config": CONFIGURATION | BYTES, "payload": SPEC},
    "make": {"config": CONFIGURATION | BYTES, "payload": SPEC, "agents": COUNT | FAR, "mesh": MESH},
    "write": {**ACTS, "experience": EXPERIENCE},
    "write_many": {**ACTS, "experiences": EXPERIENCES},
    "step": {**ACTS, "experience": EXPERIENCE, "query": QUERY},
    "recall": {**ACTS, "query": QUERY},
    "attend": {**ACTS, "query": QUERY, "over": OVER},
    "reinforce": {**ACTS, "recall": RECALL, "rpe": NUMBER | NONE, "used": USED},
    "renew": {**ACTS, "recall": RECALL, "used": USED},
    "rebase": {"memory": NONE | kinds(
        config=CONFIG, array=np.ones(D), number=but("memory", clock=3), no_clock=but("memory", clock=None),
        no_core=but("memory", core=None),
    ), "by": INTEGER | NONE},
    "consolidate": {**ACTS, "key": KEY, "rpe_fn": {}, "reprice": COUNT | FAR},
    "replay": {**ACTS, "key": KEY | NONE, "size": COUNT | FAR, "replacement": {}},
    "reprioritize": {**ACTS, "batch": BATCH, "rpe": NUMBER | NONE, "overwrite": {}},
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


def a_batch(rows):
    """A replayed batch of fillers."""
    memory, params = dmem.init(CONFIG, PAYLOAD), PARAMS()
    like = jax.eval_shape(lambda: dmem.replay(CONFIG, params, memory, jax.random.key(0), rows))
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)


@functools.cache
def good() -> dict[str, Any]:
    """A good value for every argument of every function."""
    ones, zeros = np.ones(D), np.zeros(D)
    experience = dmem.experience(CONFIG, ones, rpe=1.0, payload=PAYLOAD)
    numbers = "rpe reward value discount utility gate_logit next_value potential next_potential gamma lambda_"
    integers = "task time sign min_age max_age agents by n"
    return dict.fromkeys(numbers.split(), 0.5) | dict.fromkeys(integers.split(), 1) | {
        "config": CONFIG, "params": PARAMS(), "memory": dmem.init(CONFIG, PAYLOAD), "payload": PAYLOAD,
        "embedding": ones, "next_embedding": ones, "valid": True, "batch_shape": (), "experience": experience,
        "experiences": jax.tree.map(lambda x: x[None], experience), "query": dmem.query(CONFIG, ones),
        "over": lambda payload: payload["mark"], "recall": a_recall(K), "used": np.ones(K), "batch": a_batch(4),
        "key": jax.random.key(0), "rpe_fn": lambda batch: batch.rpe, "size": 4, "reprice": 4, "replacement": True,
        "overwrite": False, "mesh": None,
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


@pytest.mark.quick
def test_what_64_bits_hold_is_not_cut_to_32(unchecked):
    given = dmem.experience(CONFIG, np.full(D, 2**33, np.int64), rpe=2**31, reward=np.uint64(2**63))
    assert given.embedding.tolist() == [2**33] * D
    assert (float(given.rpe), float(given.reward)) == (2**31, 2**63)
    memory, recall = good()["memory"], good()["recall"]
    assert dmem.reinforce(CONFIG, PARAMS(), memory, recall, 2**40, np.array([2**40, 1])).stats.rejected == 0
    assert float(dmem.outcome_error(np.int64(2**31), 2**33)) == 2**31 - 2**33
    assert float(dmem.td_error(np.int64(2**40), 0.0, 0.0, 1.0)) == 2**40
    assert dmem.experience(CONFIG, np.ones(D, np.longdouble), rpe=np.longdouble(2)).rpe == 2
    assert Params.default(CONFIG, half_life=jnp.bfloat16(3)).half_life == 3


@pytest.mark.quick
def test_lists_of_traced_numbers_are_arrays(unchecked):
    @jax.jit
    def of(a):
        given = dmem.experience(CONFIG, [[a, 1, 2.0], [a, a, a]], rpe=[a, 1])
        used: Any = [a, 0]
        kept = dmem.renew(CONFIG, PARAMS(), good()["memory"], good()["recall"], used)
        return given.embedding, given.rpe, Params.default(CONFIG, half_life=[a, 2]).half_life, kept.clock

    embedding, rpe, half_life, _ = of(jnp.float32(3))
    assert embedding.tolist() == [[3, 1, 2], [3, 3, 3]]
    assert rpe.tolist() == [3, 1]
    assert half_life.tolist() == [3, 2]
    with pytest.raises(ArgumentValueError, match=r"^rpe: .*got rows of several"):
        jax.jit(lambda a: dmem.experience(CONFIG, np.ones(D), rpe=[[a], a]).rpe)(1.0)
    with pytest.raises(ArgumentTypeError, match=r"^rpe: expected float32, got complex"):
        jax.jit(lambda a: dmem.experience(CONFIG, np.ones(D), rpe=[a, 1j * a]).rpe)(1.0)


@pytest.mark.quick
@pytest.mark.parametrize("bad", [1j, True, np.int32(1) == 1])
def test_a_traced_param_of_a_wrong_kind_is_named(bad, unchecked):
    with pytest.raises(ArgumentTypeError, match=r"^Params.half_life: expected float32, got (complex|bool)"):
        jax.jit(lambda x: Params.default(CONFIG, half_life=x).half_life)(bad)
    with pytest.raises(ArgumentValueError, match=r"^Params.half_life: .* got -1"):
        jax.jit(lambda: Params.default(CONFIG, half_life=-1).half_life)()  # not traced: its value is there to see


def stored(slot: Any, given: Any) -> Any:
    """What a store made for `slot` keeps of a payload."""
    config = Config(embedding_dim=D, warmup=1)
    memory, _ = dmem.write(
        config,
        Params.default(config),
        dmem.init(config, slot),
        dmem.experience(config, np.ones(D), rpe=1.0, payload=given),
    )
    return memory.buffer.payload[0]


@pytest.mark.quick
def test_a_payload_keeps_its_value_or_is_refused(unchecked):
    lost = [
        (np.int8(0), np.int32(300)), (np.int32(0), np.uint32(2**31 + 5)), (np.uint8(0), -1),
        (np.float16(0), np.float32(1e30)), (np.float32(0), np.int32(2**24 + 1)), (jnp.bfloat16(0), np.int32(257)),
    ]  # fmt: skip
    for slot, given in lost:
        with pytest.raises(ArgumentValueError, match=r"^experience.payload: expected .*int|float.* got "):
            stored(slot, given)
    kept = [
        (np.int8(0), 3), (np.uint8(0), 255), (np.float32(0), np.int32(2**24)), (np.float16(0), 0.5),
        (np.float16(0), np.inf), (jnp.bfloat16(0), np.int32(256)), (np.float32(0), True), (np.complex64(0), 1j),
    ]  # fmt: skip
    for slot, given in kept:
        assert np.asarray(stored(slot, given)) == np.asarray(given)
    assert stored(np.float16(0), 0.1) == np.float16(0.1)  # floats are rounded, as the store was asked for
    with pytest.raises(ArgumentTypeError, match=r"^experience.payload: expected int32, got float32"):
        stored(np.int32(0), np.float32(1))


@pytest.mark.quick
def test_inside_a_trace_a_payload_is_not_narrowed(unchecked):
    assert jax.jit(lambda: stored(np.int8(0), 3))() == 3  # known when tracing
    assert jax.jit(lambda x: stored(np.int8(0), x.astype(np.int8)))(np.int32(3)) == 3
    for slot in (np.int8(0), np.float32(0)):
        with pytest.raises(
            ArgumentTypeError, match=rf'^experience.payload: expected {slot.dtype}, got int32.* \.astype\("'
        ):
            jax.jit(lambda x, slot=slot: stored(slot, x))(np.int32(3))
    many = jax.tree.map(lambda x: np.stack([x, x]), good()["experience"].payload)
    experiences = dmem.experience(CONFIG, np.ones((2, D)), rpe=1.0, payload=many | {"mark": np.array([1, 2], np.int32)})
    memory, _ = dmem.write_many(CONFIG, PARAMS(), good()["memory"], experiences)  # on the host they are looked at
    assert memory.buffer.payload["mark"][:2].tolist() == [1, 2]


@pytest.mark.slow
def test_a_complex_payload_lives_a_whole_life(unchecked):
    config = Config(embedding_dim=D, core_capacity=1, buffer_capacity=2, top_k=2, warmup=2, shadow_capacity=2)
    params, memory, info = Params.default(config), dmem.init(config, np.complex64(0)), None
    for i in range(8):
        given = dmem.experience(config, np.eye(D)[i % D], rpe=1.0 + i % 4, payload=np.complex64(i + 1j))
        memory, info = jitted.step(config, params, memory, given, np.eye(D)[i % D])
    memory, _ = jitted.consolidate(config, params, memory)
    assert info is not None
    for found in (info.recall, dmem.replay(config, params, memory, jax.random.key(0), 4)):
        assert found.payload.dtype == np.complex64
        assert (np.asarray(found.payload.imag) == np.asarray(found.valid)).all()


@pytest.mark.quick
def test_errors_are_short_and_speak_no_jax(unchecked):
    with pytest.raises(ArgumentTypeError) as raised:
        Params.default(CONFIG, half_life=10**400)
    assert len(str(raised.value)) < 200
    with pytest.raises(ArgumentTypeError, match=r"^query: expected a Query or an embedding, got Experience"):
        dmem.recall(CONFIG, PARAMS(), good()["memory"], good()["experience"])
    with pytest.raises(ArgumentValueError, match=r"^rpe: expected shape \(\), got \(2,\)"):
        dmem.experience(CONFIG, np.ones(D), rpe=np.ones(2))
    bad = dataclasses.replace(good()["experience"], payload={"mark": np.float32(0)})
    with pytest.raises(
        ArgumentValueError, match=r"^experience.payload: .*\{'mark': \*, 'place': \*\}.*got \{'mark': \*\}\."
    ):
        dmem.write(CONFIG, PARAMS(), good()["memory"], bad)


# ---- Host: the bundle ------------------------------------------------------------------------------------------------


@functools.cache
def bundle() -> Any:
    return dmem.make(CONFIG, PAYLOAD, agents=2)


def of_two() -> dict[str, Any]:
    names = {
        "memories": "memory",
        "experiences": "experience",
        "queries": "query",
        "recalls": "recall",
        "batches": "batch",
    }
    two = {plural: jax.tree.map(lambda x: jnp.stack([x, x]), good()[name]) for plural, name in names.items()}
    return two | {
        "params": PARAMS(),
        "rpe": np.ones(2),
        "used": np.ones((2, K)),
        "keys": jax.random.split(jax.random.key(0)),
    }


def taken(method: Any) -> list[str]:
    parameters = inspect.signature(method).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind == parameter.POSITIONAL_OR_KEYWORD]


METHODS = [field.name for field in dataclasses.fields(dmem.Agents) if "memory" in WRONG.get(field.name, {})]


@pytest.mark.quick
@pytest.mark.parametrize("name", METHODS)
def test_a_bundle_takes_arguments_by_name_and_counts_them(name, unchecked):
    method, two = getattr(bundle(), name), of_two()
    given = {argument: two[argument] for argument in taken(method)}
    if name == "reprioritize":
        given["rpe"] = np.ones((2, 4))
    if name == "write_many":
        given["experiences"] = jax.tree.map(lambda x: x[:, None], given["experiences"])
    options = {"rpe_fn": lambda batch: batch.rpe} if name == "consolidate" else {}
    method.trace(**given, **options)
    method.trace(*given.values(), **options)
    with pytest.raises(
        ArgumentTypeError, match=rf"^{name}: expected \(params, memories, .* got .*missing .*'memories'"
    ):
        method(PARAMS())
    with pytest.raises(ArgumentTypeError, match=rf"^{name}: expected .* got .*too many"):
        method(*given.values(), 1)
    with pytest.raises(ArgumentTypeError, match=rf"^{name}: expected .* got .*'memory'"):
        method(**given, memory=1)
    with pytest.raises(ArgumentTypeError, match=r"^params: expected a dmem_jax.Params, got Config.* leave it out"):
        method(CONFIG, *given.values())
    with pytest.raises(ArgumentTypeError, match=r"^params: expected a dmem_jax.Params, got Memory"):
        method(**given | {"params": given["memories"]})
    for argument in given:
        with pytest.raises(ArgumentTypeError, match=rf"^{argument}: expected .* got "):
            method(**given | {argument: "hello"})
    with pytest.raises(
        ArgumentValueError, match=rf"^params: expected scalars, .* got \[2\].*jax.vmap\(dmem_jax.{name}"
    ):
        method(**given | {"params": jax.tree.map(lambda x: jnp.stack([x, x]), PARAMS())})


@pytest.mark.quick
def test_a_bundle_takes_lists_and_names_what_was_donated(unchecked):
    agents, config = dmem.make(CONFIG, agents=np.int64(2)), CONFIG  # type: ignore[arg-type]
    memories, experiences = agents.init(), dmem.experience(config, np.ones((2, D)), rpe=1.0)
    found = agents.recall(PARAMS(), memories, [[1] * D, [2**33] * D])
    assert found.id.tolist() == [[-1] * K] * 2
    agents.write(PARAMS(), memories, experiences)
    for function in (
        lambda: agents.write(PARAMS(), memories, experiences),
        lambda: agents.recall(PARAMS(), memories, np.ones((2, D))),
    ):
        with pytest.raises(ArgumentValueError, match=r"^memories: .* got what was donated"):
            function()
    with pytest.raises(ArgumentTypeError, match=r"^replay: expected hashable size.* got "):
        agents.replay(PARAMS(), agents.init(), of_two()["keys"], size=[1])


@pytest.mark.quick
@pytest.mark.slow
def test_a_bundle_replays_and_consolidates(unchecked):
    agents = dmem.make(CONFIG, agents=2)
    memories = agents.init()
    for i in range(3):
        experiences = dmem.experience(CONFIG, np.tile(np.eye(D)[i], (2, 1)), rpe=[1.0 + i, -1.0])
        memories, _ = agents.write(params=PARAMS(), memories=memories, experiences=experiences)
    keys = of_two()["keys"]
    batches = agents.replay(PARAMS(), memories, keys, size=2, replacement=False)
    assert batches.valid.shape == (2, 2)
    memories = agents.reprioritize(PARAMS(), memories, batches, np.full((2, 2), 7.0), overwrite=True)
    assert (memories.buffer.rpe == 7).sum() == 4
    memories, reports = agents.consolidate(PARAMS(), memories)
    assert reports.forgotten.tolist() == [0, 0]
    memories, reports = agents.consolidate(PARAMS(), memories, keys, rpe_fn=lambda batch: batch.rpe)
    assert reports.repriced.tolist() == [3, 3]


# ---- Host: every field of Config and Params --------------------------------------------------------------------------

NO_INTEGER = [True, 1.0, "1", None, np.ones(2)]
SIZES: dict[str, Any] = {
    "embedding_dim": 1,
    "core_capacity": 1,
    "buffer_capacity": 0,
    "smoothing_window": 1,
    "window": 1,
    "warmup": 0,
    "merge_rounds": 0,
    "moves": 0,
    "min_successes": 0,
    "shadow_capacity": 0,
}
CHOICES = [
    "signal", "smoothing", "scale", "thresholds", "duplicates", "buffer_eviction", "salience", "fusion", "store_dtype",
    "threshold_schedule", "weight_schedule",
]  # fmt: skip
BAD_FIELDS = [(name, bad, ArgumentTypeError) for name in SIZES for bad in NO_INTEGER]
BAD_FIELDS += [(name, least - 1, ArgumentValueError) for name, least in SIZES.items()]
BAD_FIELDS += [(name, far, ArgumentValueError) for name in SIZES for far in (2**31, 2**40, 10**400)]
BAD_FIELDS += [(name, bad, ArgumentValueError) for name in CHOICES for bad in ("other", "", None, 0, [], np.ones(2))]
BAD_FIELDS += [("slot_axis", bad, ArgumentTypeError) for bad in (1, 0.5, True, ["slots"])]
BAD_FIELDS += [("store_next", bad, ArgumentTypeError) for bad in (0, 1.0, "no", None)]
BAD_FIELDS += [("top_k", bad, ArgumentTypeError) for bad in (True, 2.0, "2", None, [1, 1], (1.0, 1), (True, 1))]
BAD_FIELDS += [("top_k", bad, ArgumentValueError) for bad in (0, -1, (0, 0), (2, -1), (1,), (1, 1, 1), ())]
BAD_FIELDS += [("top_k", bad, ArgumentValueError) for bad in (2**31, (2**30, 2**30))]
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


NO_NUMBER = [True, 1j, "1", None, object(), [None], 10**400]
OPEN_END = np.finfo(np.float32).tiny  # the least float32 above 0
RANGES = {
    **dict.fromkeys(["gate_scale", "threshold_low", "threshold_high"], (0.0, np.inf)),
    **dict.fromkeys(["threshold_low_start", "threshold_high_start"], (0.0, np.inf)),
    **dict.fromkeys(["duplicate_margin", "reinforce_rate", "floor", "replay_exponent"], (0.0, np.inf)),
    **dict.fromkeys(["quantile_low", "quantile_high", "weaken_rate", "renew_rate"], (0.0, 1.0)),
    **dict.fromkeys(["semantic_weight", "semantic_weight_start", "phase"], (0.0, 1.0)),
    **dict.fromkeys(["importance_exponent_start", "importance_exponent"], (0.0, 1.0)),
    **dict.fromkeys(["core_max_age", "buffer_max_age", "importance_steps"], (OPEN_END, np.inf)),
    **dict.fromkeys(["threshold_temperature"], (OPEN_END, np.inf)),
    **{"novelty_weight": (-np.inf, np.inf), "shadow_below": (-1.0, np.inf)},
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
    wrong = [np.nan, np.array([greatest, np.nan]), 1e300, -1e300, [[1.0], [1.0, 2.0]]]  # no float32 is 1e300
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
