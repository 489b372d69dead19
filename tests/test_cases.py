"""Faults that real users reported of systems like this one, and that must not happen here.

Each test is named after the report that it comes from.
"""

import dataclasses
import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import dmem_jax as dmem
from benchmarks.hlo import instructions, whole_writes
from dmem_jax import ArgumentValueError, Config, Params, Route, Tier, slots

# Sizes are |rpe| and scores are cosines, so that every number below can be done by hand: an |rpe| above 2 goes to core,
# above 1 to the buffer.
D, K = 4, 4
CONFIG = Config(
    embedding_dim=D, core_capacity=3, buffer_capacity=4, top_k=K, warmup=0, scale="none", duplicates="search",
    fusion="plain",
)  # fmt: skip
PROBED = dataclasses.replace(CONFIG, duplicates="probe")
PARAMS = Params.default(CONFIG, semantic_weight=1.0)
A, B, C, E = np.eye(D, dtype=np.float32)

write, recall, attend, reinforce, renew = (
    jax.jit(f) for f in (dmem.write, dmem.recall, dmem.attend, dmem.reinforce, dmem.renew)
)
TRACES = []


@jax.jit
def step(*arguments):
    TRACES.append(1)
    return dmem.step(*arguments)


BEST = np.array([1, 0, 0, 0], np.float32)  # `used`: all credit to the best recalled


def experience(embedding, rpe, **given):
    return dmem.experience(CONFIG, embedding, rpe=rpe, payload={"mark": np.float32(rpe)}, **given)


def empty() -> Any:
    return dmem.init(CONFIG, {"mark": np.float32(0)})


def holding(*embeddings, rpe=5.0) -> Any:
    """A memory that met `embeddings` in this order; each is new, so their ids count up from 0."""
    memory = empty()
    for i, embedding in enumerate(embeddings):
        memory, info = write(CONFIG, PARAMS, memory, experience(embedding, rpe))
        assert info.id == i
    return memory


def ask(memory, embedding, **filters):
    return recall(CONFIG, PARAMS, memory, dmem.query(CONFIG, embedding, **filters))


def found(result) -> list[int]:
    return result.id[result.valid].tolist()


def rows(memory) -> dict[int, dict[str, bytes]]:
    """What a memory holds: by id, each field to the bit."""
    held = {}
    for tier in (memory.core, memory.buffer):
        for slot in np.flatnonzero(tier.id >= 0):
            leaves = jax.tree_util.tree_leaves_with_path(tier)
            held[int(tier.id[slot])] = {jax.tree_util.keystr(p): np.asarray(x[slot]).tobytes() for p, x in leaves}
    return held


def same(a, b) -> bool:
    """To the bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def without_stats(memory):
    return dataclasses.replace(memory, stats=None)


# ---- Memory systems for agents ---------------------------------------------------------------------------------------


def test_mem0_4453_and_6883_the_best_match_comes_first():
    """A distance was taken for a similarity: the best match came last, and a threshold cut the wrong end."""
    near, far = A + 0.5 * B, A + 2 * B
    result = ask(holding(far, A, near), A)
    assert found(result) == [1, 2, 0]
    np.testing.assert_allclose(result.semantic[:3], [1, 1.25**-0.5, 5**-0.5], rtol=1e-6)
    semantic, valid = np.asarray(result.semantic), np.asarray(result.valid)
    kept = [result.id[valid & (semantic >= threshold)].tolist() for threshold in (0.4, 0.5, 0.9, 1.1)]
    assert kept == [[1, 2, 0], [1, 2], [1], []]


def test_mem0_1674_and_6515_the_same_again_is_one_memory():
    """Adding the same thing twice deleted it, or left two."""
    memory = holding(A)
    for _ in range(7):
        memory, info = write(CONFIG, PARAMS, memory, experience(A, 5.0))
        assert (info.route, info.merged_id) == (Route.REFRESHED, 0)
    assert found(ask(memory, A)) == [0]
    assert memory.core.count[0] == 8
    probed = empty()
    for i in range(8):  # each step asks for what the next one writes
        probed, info = step(PROBED, PARAMS, probed, experience(A, 5.0), A)
        assert info.write.route == (Route.REFRESHED if i else Route.CORE)
        assert found(info.recall) == [0]
    assert probed.core.count[0] == 8


def test_mem0_3065_and_1700_another_embedding_size_is_refused():
    """Embeddings of another size corrupted the store."""
    memory, wider = holding(A), dataclasses.replace(CONFIG, embedding_dim=2 * D)
    before = jax.tree.map(np.asarray, memory)
    both = rf"\b{D}\b.*\b{2 * D}\b"
    with pytest.raises(ArgumentValueError, match=rf"^embedding: .*{both}"):
        experience(np.ones(2 * D), 1.0)
    big = dmem.experience(wider, np.ones(2 * D), rpe=5.0, payload={"mark": np.float32(0)})
    with pytest.raises(ArgumentValueError, match=rf"^experience.embedding: .*{both}"):
        write(CONFIG, PARAMS, memory, big)
    with pytest.raises(ArgumentValueError, match=rf"^memory.*\b{2 * D}\b.*\b{D}\b"):
        write(wider, PARAMS, memory, big)
    with pytest.raises(ArgumentValueError, match=both):
        recall(CONFIG, PARAMS, memory, np.ones(2 * D))
    assert same(before, memory)


def test_mem0_3787_and_memos_881_what_is_gone_is_found_by_no_path():
    """A deleted, merged or purged memory came back by another way of reading."""
    places = np.random.default_rng(0).normal(size=(8, D)).astype(np.float32)  # one more than there are slots
    memory = empty()
    for place, rpe in zip(places[:7], [3, 5, 5, 5, 5, 5, 5], strict=True):
        memory, _ = write(CONFIG, PARAMS, memory, experience(place, rpe))
    while_there = ask(memory, places[0])
    assert found(while_there)[0] == 0
    memory, info = write(CONFIG, PARAMS, memory, experience(places[7], 9.0))
    assert (info.evicted_id, info.id) == (0, 7)
    assert sorted(rows(memory)) == [1, 2, 3, 4, 5, 6, 7]
    for filters in ({}, {"sign": 1}, {"task": 0}, {"min_age": 7}):
        assert 0 not in found(ask(memory, places[0], **filters))
    assert (attend(CONFIG, PARAMS, memory, dmem.query(CONFIG, places[0])).weights > 0).sum() == 7
    for after in (
        reinforce(CONFIG, PARAMS, memory, while_there, np.float32(1), BEST),
        renew(CONFIG, PARAMS, memory, while_there, BEST),
    ):
        assert same(without_stats(memory), without_stats(after))
        assert after.stats.stale == 1


def test_a_mem_32_a_rank_is_no_index():
    """The rank of a result was used as the index of a memory, so that feedback and merges hit the wrong one."""
    memory = holding(A, B, C)
    for query, order in ((3 * C + 2 * A + B, [2, 0, 1]), (3 * B + 2 * C + A, [1, 2, 0])):
        result = ask(memory, query)
        assert found(result) == order
        praised = reinforce(CONFIG, PARAMS, memory, result, np.float32(1), BEST)
        merged, info = write(CONFIG, PARAMS, memory, experience(np.eye(D)[order[0]], 9.0))
        assert (info.route, info.id) == (Route.MERGED, order[0])
        for changed in (praised, merged):
            assert {i for i, row in rows(changed).items() if row != rows(memory)[i]} == {order[0]}
    # When slots were reused, what stands there now is not what was recalled.
    result = ask(memory, A)
    for _ in range(3):
        memory, info = write(CONFIG, PARAMS, memory, experience(A + 9 * E, 9.0))
    assert memory.core.id.tolist() == [3, 1, 2]
    after = reinforce(CONFIG, PARAMS, memory, result, np.float32(1), BEST)
    assert same(without_stats(memory), without_stats(after))
    assert after.stats.stale == 1


def test_a_mem_35_a_merge_moves_all_that_recall_reads():
    """Consolidation updated the record and not the index: the old text was found, the new one was not."""
    memory, info = write(CONFIG, PARAMS, holding(A, B), experience(A + 0.2 * C, 9.0))
    assert (info.route, info.id) == (Route.MERGED, 0)
    merged = np.asarray(memory.core.embedding[0])
    np.testing.assert_allclose(memory.core.inv_norm[0], 1 / np.linalg.norm(merged), rtol=1e-6)
    result = ask(memory, merged)
    assert (found(result), result.rpe[0], result.payload["mark"][0]) == ([0, 1], 7.0, 9.0)
    np.testing.assert_allclose(result.semantic[0], 1, rtol=1e-6)
    assert 0.9 < ask(memory, A).semantic[0] < 0.999
    weights = attend(CONFIG, PARAMS, memory, dmem.query(CONFIG, merged)).weights
    assert np.argmax(weights) == 0


def test_langgraph_5150_reads_of_an_empty_memory_return_nothing():
    """Searching a fresh store hung."""
    memory = empty()
    result = ask(memory, A)
    attention = attend(CONFIG, PARAMS, memory, dmem.query(CONFIG, A))
    nothing = dmem.no_experience(CONFIG, {"mark": np.float32(0)})
    stepped, info = step(PROBED, PARAMS, memory, nothing, A)
    for nobody in (result, info.recall):
        assert not nobody.valid.any()
        assert (nobody.id == -1).all()
    assert not attention.weights.any()
    assert not attention.readout.any()
    assert stepped.probe.valid  # it was asked, and there was nothing
    assert same(memory, dataclasses.replace(stepped, probe=memory.probe))
    assert same(memory, reinforce(CONFIG, PARAMS, memory, result, np.float32(1), np.ones(K, np.float32)))
    assert same(memory, renew(CONFIG, PARAMS, memory, result, np.ones(K, np.float32)))


def test_langgraph_5150_k_may_be_0_or_more_than_there_is():
    """Asking for none, or for more than there is, hung."""
    with pytest.raises(ArgumentValueError, match=r"^Config\.top_k: expected k >= 1"):
        dataclasses.replace(CONFIG, top_k=0)
    memory, _ = write(CONFIG, PARAMS, holding(A, B), experience(A, -5.0))
    result = ask(memory, A)
    assert result.valid.tolist() == [True, True, True, False]
    disasters = dataclasses.replace(CONFIG, top_k=(0, 9))  # more rows than slots
    result = recall(disasters, PARAMS, memory, A)
    assert (result.valid.tolist(), result.id.tolist()) == ([True] + [False] * 8, [2] + [-1] * 8)


def test_langgraph_8835_nothing_stored_is_a_live_reference():
    """Changing what was put in, or what was returned, changed what was stored."""
    embedding, mark = A.copy(), np.ones(1, np.float32)
    given = dmem.experience(CONFIG, embedding, rpe=5.0, payload={"mark": mark})
    asked = dmem.query(CONFIG, embedding)
    embedding[:], mark[:] = 7, 7
    assert given.embedding.tolist() == A.tolist()
    assert asked.embedding.tolist() == A.tolist()
    assert given.payload["mark"] == 1
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(holding(A).core.embedding)[:] = 7


def test_llama_index_19050_recall_sees_what_was_just_written():
    """Recall did not see the newest message."""
    memory = holding(A, B)
    memory, info = step(PROBED, PARAMS, memory, experience(C, 5.0), C + 0.1 * A)
    assert found(info.recall)[0] == info.write.id == 2
    assert found(ask(memory, C, min_age=1)) == [0, 1]  # unless it is left out


def test_synthetic_heart_378_recall_alone_changes_no_order():
    """Recall boosted its own winners for ever."""
    memory, nothing = holding(A, B, C), dmem.no_experience(CONFIG, {"mark": np.float32(0)})
    query = 3 * B + 2 * C + A
    first = ask(memory, query)
    asked = memory
    for _ in range(999):
        asked, _ = step(PROBED, PARAMS, asked, nothing, query)
    asked, info = step(PROBED, PARAMS, asked, nothing, query)
    assert same(first, info.recall)
    assert asked.core.recalls.tolist() == [1000] * 3
    recalls = dataclasses.replace(memory.core, recalls=asked.core.recalls)
    assert same(asked, dataclasses.replace(memory, core=recalls, probe=asked.probe, stats=asked.stats))


# ---- Array memories in JAX -------------------------------------------------------------------------------------------


def test_flashbax_58_a_strength_is_not_rounded():
    """A priority of 2.7 became 3."""
    memory = holding(A, rpe=30.0)  # so great that its gate is 1
    assert memory.core.strength[0] == 30
    result = ask(memory, A)
    assert reinforce(CONFIG, PARAMS, memory, result, np.float32(2.7), BEST).core.strength[0] == np.float32(32.7)
    memory = holding(A, rpe=2.7)
    assert memory.core.rpe[0] == ask(memory, A).rpe[0] == np.float32(2.7)
    np.testing.assert_allclose(memory.core.strength[0], 2.7 / (1 + np.exp(-0.7)), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_flashbax_no_strength_is_poisoned(bad):
    """A NaN, infinite or negative priority was taken, and no repair helped."""
    memory = holding(A, B)
    result = ask(memory, A + 0.5 * B)
    ones = np.ones(K, np.float32)
    for rpe, used in ((bad, ones), (1.0, np.array([bad, bad, 0, 0], np.float32))):
        hit = reinforce(CONFIG, PARAMS, memory, result, np.float32(rpe), used)
        assert same(without_stats(memory), without_stats(hit))
        assert hit.stats.rejected == 2
        repaired = reinforce(CONFIG, PARAMS, hit, result, np.float32(1), BEST)
        assert same(
            without_stats(reinforce(CONFIG, PARAMS, memory, result, np.float32(1), BEST)), without_stats(repaired)
        )
    assert renew(CONFIG, PARAMS, memory, result, np.array([bad, bad, 0, 0], np.float32)).stats.rejected == 2


def test_jax_21708_two_dropped_writes_at_once_leave_the_last_row():
    """Writes to be dropped, two at a time, changed the last row where unique indices had been promised."""
    rows, slot = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([4, 4, 1], np.int32)
    after = jax.jit(slots.put)(rows, slot, -np.ones((3, 3), np.float32))
    assert after.tolist() == [[0, 1, 2], [-1, -1, -1], [6, 7, 8], [9, 10, 11]]
    memory = holding(A, B, C, E)  # core is full
    none = ask(memory, A, task=9)
    assert not none.valid.any()
    ones = np.ones(K, np.float32)
    assert same(memory, reinforce(CONFIG, PARAMS, memory, none, np.float32(1), ones))
    assert same(memory, renew(CONFIG, PARAMS, memory, none, ones))


def test_jax_29254_slots_are_never_flattened_beyond_int32():
    """Flat indices over agents and slots overflowed int32 in silence."""
    agents, capacity = 2**16, 2**15
    config = Config(embedding_dim=2, core_capacity=capacity, buffer_capacity=capacity, top_k=2)
    memories, experiences, queries, params = jax.eval_shape(
        lambda: (
            dmem.init(config, batch_shape=(agents,)),
            dmem.no_experience(config, batch_shape=(agents,)),
            dmem.query(config, np.zeros((agents, 2))),
            Params.default(config),
        )
    )
    assert agents * memories.core.id.shape[1] >= 2**31
    over_agents = jax.jit(jax.vmap(dmem.step, (None, None, 0, 0, 0)))
    text = over_agents.lower(config, params, memories, experiences, queries).as_text()
    sizes = {int(n) for shape in re.findall(r"tensor<((?:\d+x)+)", text) for n in shape.split("x") if n}
    assert {agents, capacity} <= sizes
    assert max(sizes) <= max(agents, 2 * capacity)
    with pytest.raises(ArgumentValueError, match=r"core_capacity.*int32"):
        Config(embedding_dim=2, core_capacity=2**30, buffer_capacity=2**30)


def test_jaxopt_451_one_trace():
    """A weak type in a fresh state cost a second compile."""
    traces_before = len(TRACES)
    types = jax.tree.map(jax.typeof, empty())
    memory, _ = step(PROBED, PARAMS, empty(), dmem.no_experience(CONFIG, {"mark": np.float32(0)}), A)
    for i in range(3):
        assert jax.tree.map(jax.typeof, memory) == types
        memory, _ = step(PROBED, PARAMS, memory, experience(np.eye(D)[i], 5.0), A)
        other = dmem.experience(CONFIG, [0, 0, 0, 1], rpe=5, task=1, time=i, payload={"mark": np.float32(1)})
        memory, _ = step(PROBED, PARAMS, memory, other, A)
    assert memory.stats.stored == 6
    assert len(TRACES) - traces_before <= 1  # none where another test came first


AGENTS = 8
PAYLOAD = {"mark": np.zeros(3, np.float32)}


def wide(config, memories) -> set[str]:
    """The types of the arrays that must not be touched whole, as a compiled text has them."""
    stores = [(tier.embedding, tier.payload) for tier in (memories.core, memories.buffer)]
    return {f"f32[{','.join(map(str, x.shape))}]" for x in jax.tree.leaves(stores)}


def test_flashbax_6_and_dejax_2_and_pgx_438_a_donated_write_is_in_place_and_branchless():
    """An add doubled the memory and cost O(capacity); a cond under vmap ran both branches over all of it."""
    config = dataclasses.replace(CONFIG, core_capacity=64, buffer_capacity=96)
    agents = dmem.make(config, PAYLOAD, agents=AGENTS)
    memories = agents.init()
    payload = {"mark": np.zeros((AGENTS, 3), np.float32)}
    experiences = dmem.experience(config, np.ones((AGENTS, D)), rpe=[1.5, 5] * (AGENTS // 2), payload=payload)
    jitted: Any = agents.write
    compiled = jitted.lower(PARAMS, memories, experiences).compile()
    selected = [shape for i in instructions(compiled.as_text()) if i.op == "select" for shape in i.shapes]
    assert selected  # rows are selected ...
    assert not set(selected) & wide(config, memories)  # ... and no store is
    assert "conditional(" not in compiled.as_text()

    before = memories
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((memories.core, memories.buffer))]
    memories, _ = compiled(PARAMS, memories, experiences)
    memories, info = compiled(PARAMS, memories, experiences)
    assert before.core.embedding.is_deleted()
    assert info.route.tolist() == [Route.REFRESHED] * AGENTS
    assert info.tier.tolist() == [Tier.BUFFER, Tier.CORE] * (AGENTS // 2)
    assert pointers == [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((memories.core, memories.buffer))]


@pytest.mark.parametrize("slots_of_core", [2**7, 2**15])
def test_openxla_45912_and_flashbax_62_a_loop_copies_no_store(slots_of_core):
    """A donated buffer was copied each time the loop read it, so that cost grew with capacity."""
    config = dataclasses.replace(PROBED, core_capacity=slots_of_core, buffer_capacity=2 * slots_of_core)

    def loop(memories, experiences, queries):
        def body(memories, now):
            memories, info = jax.vmap(dmem.step, (None, None, 0, 0, 0))(config, PARAMS, memories, *now)
            return memories, info.recall.id

        return jax.lax.scan(body, memories, (experiences, queries))

    shapes = jax.eval_shape(
        lambda: (
            dmem.init(config, PAYLOAD, batch_shape=(2,)),
            dmem.no_experience(config, PAYLOAD, batch_shape=(5, 2)),
            np.zeros((5, 2, D), np.float32),
        )
    )
    compiled: Any = jax.jit(loop, donate_argnums=0).lower(*shapes).compile()
    assert whole_writes(compiled.as_text(), wide(config, shapes[0])) == []
    stores = sum(x.size * 4 for x in jax.tree.leaves((shapes[0].core, shapes[0].buffer)))
    assert compiled.memory_analysis().temp_size_in_bytes < stores / 2


def test_jax_20381_and_28111_sharded_agents_gather_nothing():
    """A scatter into a sharded array gathered all of it on every device. (Plain jit still gathers the score matrix:
    `lax.top_k` has no partitioning rule there, so agents are sharded by `shard_map`.)"""
    devices, over_agents = jax.devices(), PartitionSpec("agents")
    assert len(devices) >= 4, "tests/conftest.py asks for four CPU devices"
    mesh = Mesh(np.array(devices[:4]), ("agents",))
    sharding = NamedSharding(mesh, over_agents)
    config = dataclasses.replace(PROBED, core_capacity=5, buffer_capacity=6)
    payload = {"mark": np.zeros((AGENTS, 3), np.float32)}
    state = jax.device_put(dmem.init(config, PAYLOAD, batch_shape=(AGENTS,)), sharding)
    met = jax.device_put(dmem.experience(config, np.ones((AGENTS, D)), rpe=[1.5, 5] * 4, payload=payload), sharding)
    asked = jax.device_put(dmem.query(config, np.ones((AGENTS, D))), sharding)

    def steps(memories, experiences, queries):
        return jax.vmap(dmem.step, (None, None, 0, 0, 0))(config, PARAMS, memories, experiences, queries)

    sharded = jax.shard_map(steps, mesh=mesh, in_specs=over_agents, out_specs=over_agents)
    compiled: Any = jax.jit(sharded, donate_argnums=0).lower(state, met, asked).compile()
    moved = r"= (\S+) (all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute)\("
    assert re.findall(moved, compiled.as_text()) == []
    state, info = compiled(state, met, asked)
    assert state.core.embedding.sharding.is_equivalent_to(sharding, 3)
    assert info.write.route.tolist() == [Route.BUFFER, Route.CORE] * 4


_WRITE_MANY = jax.jit(dmem.write_many)


@pytest.mark.parametrize("thresholds", ["fixed", "quantile"])
@pytest.mark.parametrize("reward", [0.1, 0.3, 1.0, 3.0, 7.0, 12.0, 1e-20, 1e20])
def test_a_constant_stream_is_no_surprise_in_any_unit(reward, thresholds):
    """A scale that wanders by a rounding would let sizes of 1.0000001 in: a routine wage would fill the memory."""
    config = dmem.Config(embedding_dim=2, duplicates="off", thresholds=thresholds)
    stream = dmem.experience(config, np.ones((1500, 2)), rpe=np.full(1500, reward, np.float32))
    memory, infos = _WRITE_MANY(config, dmem.Params.default(config), dmem.init(config), stream)
    assert (infos.size == 1).all()
    assert memory.stats.stored == config.warmup
