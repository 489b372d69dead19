"""Bad numbers inside jit: a counter moves and nothing else does, bit for bit. Numbers that are good but extreme, and
lives that run out of clock or ids, do no harm.
"""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import ArgumentValueError, Config, Params, Route
from tests.test_bad_input import CONFIG, PARAMS, PAYLOAD, RANGES, D

INT_MAX = 2**31 - 1

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
        # -inf: there was nothing to be near to
        allowed = np.isneginf(x) & (jax.tree_util.keystr(path) in (".probe.similarity", ".probe.closest"))
        assert x.dtype.kind != "f" or (np.isfinite(x) | allowed).all(), jax.tree_util.keystr(path)
    ids = np.concatenate([tier.id[tier.id >= 0] for tier in (memory.core, memory.buffer)])
    assert len(set(ids)) == len(ids)
    s = memory.stats
    assert s.seen == s.invalid + s.dropped + s.refused + s.refreshed + s.merged + s.stored
    assert s.stored == len(ids) + s.evicted + s.forgotten + s.merged_later
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
