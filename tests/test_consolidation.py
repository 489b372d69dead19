"""Consolidation: its order, its report, and that it copies nothing. What it computes, lives hold against the oracle."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from benchmarks.hlo import whole_writes
from tests import jitted

DIM = 24


def config_of(**changes) -> dmem.Config:
    kinds = {"embedding_dim": DIM, "core_capacity": 3, "buffer_capacity": 5, "duplicates": "off", "scale": "none",
             "warmup": 0, "merge_rounds": 0}  # fmt: skip
    return dmem.Config(**(kinds | changes))


def lived(config: dmem.Config, rpes, places=None, **params) -> tuple[dmem.Params, dmem.Memory]:
    """A memory that met `rpes` in order, each in a place of its own or in `places`."""
    params = dmem.Params.default(config, **{"threshold_low": 0.0, "threshold_high": 50.0} | params)
    places = np.arange(len(rpes)) if places is None else np.array(places)
    experiences = dmem.experience(config, np.eye(DIM)[places], rpe=np.array(rpes, np.float32))
    # Written with one config whatever the upkeep will be: that is no business of a write.
    writes = dataclasses.replace(config, merge_rounds=0, moves=0, min_successes=0)
    memory, _ = jitted.write_many(writes, params, dmem.init(config), experiences)
    return params, memory


def balanced(memory: dmem.Memory) -> bool:
    s = memory.stats
    live = int((memory.core.id >= 0).sum() + (memory.buffer.id >= 0).sum())
    return int(s.stored) == live + int(s.evicted + s.forgotten + s.merged_later)


def test_weak_and_old_memories_are_forgotten():
    config = config_of()
    params, memory = lived(config, [100.0, 8.0, 1.0, 4.0], half_life=np.inf, disaster_half_life=np.inf)
    forgot, report = jitted.consolidate(config, dataclasses.replace(params, floor=jnp.float32(2.0)), memory)
    assert report.forgotten_ids.tolist() == [-1, -1, -1, -1, 2, -1, -1, -1]
    assert (forgot.stats.forgotten, forgot.buffer.id.tolist()) == (1, [1, -1, 3, -1, -1])
    assert balanced(forgot)
    ages = dataclasses.replace(params, buffer_max_age=jnp.float32(1.0), core_max_age=jnp.float32(3.0))
    forgot, report = jitted.consolidate(config, ages, memory)
    assert sorted(i for i in report.forgotten_ids.tolist() if i >= 0) == [1]
    later = dataclasses.replace(memory, clock=memory.clock + 1)
    assert sorted(i for i in jitted.consolidate(config, ages, later)[1].forgotten_ids.tolist() if i >= 0) == [0, 1, 2]


def test_duplicates_merge_closest_pair_first_into_the_lower_slot():
    config = config_of(merge_rounds=1, moves=0)
    params, memory = lived(config, [2.0, 3.0, 4.0, 2.5], [0, 1, 1, 0], half_life=np.inf)
    merged, report = jitted.consolidate(config, params, memory)
    assert report.merged_ids.tolist() == [[0, 3]]  # both pairs are equally close: the lower slots go first
    again, report = jitted.consolidate(config, params, merged)
    assert report.merged_ids.tolist() == [[1, 2]]
    assert again.buffer.id.tolist() == [0, 1, -1, -1, -1]
    np.testing.assert_allclose(again.buffer.rpe[:2], [2.25, 3.5])
    assert again.buffer.count.tolist()[:2] == [2, 2]
    assert (again.stats.merged_later, balanced(again)) == (2, True)
    assert jitted.consolidate(config, params, again)[1].merged == 0


def test_signs_and_tasks_never_merge():
    config = config_of(merge_rounds=1, moves=0)
    params, memory = lived(config, [2.0, -3.0], [0, 0])
    assert jitted.consolidate(config, params, memory)[1].merged == 0
    params, memory = lived(config, [2.0, 3.0], [0, 0])
    other = dataclasses.replace(memory, buffer=dataclasses.replace(memory.buffer, task=jnp.arange(5, dtype=jnp.int32)))
    assert jitted.consolidate(config, params, other)[1].merged == 0
    assert jitted.consolidate(config, params, memory)[1].merged == 1


def test_promotion_needs_success_for_a_free_slot_and_strength_for_a_full_core():
    config = config_of(moves=2, min_successes=2)
    params, memory = lived(config, [2.0, 9.0, 4.0])
    assert jitted.consolidate(config, params, memory)[1].promoted == 0
    proved = dataclasses.replace(memory.buffer, successes=jnp.array([2, 1, 3, 0, 0], jnp.int32))
    moved, report = jitted.consolidate(config, params, dataclasses.replace(memory, buffer=proved))
    assert report.promoted_ids.tolist() == [2, 0]  # the stronger first; 1 has not proved itself
    assert (moved.core.id.tolist(), moved.buffer.id.tolist()) == ([2, 0, -1], [-1, 1, -1, -1, -1])
    assert moved.core.successes.tolist()[:2] == [3, 2]

    params, memory = lived(config, [60.0, 70.0, 80.0, 9.0, 4.0], half_life=1e9)
    faded = dataclasses.replace(memory.core, strength=jnp.array([5.0, 1.0, 90.0], jnp.float32))
    swapped, report = jitted.consolidate(config, params, dataclasses.replace(memory, core=faded))
    assert (report.promoted_ids.tolist(), report.demoted_ids.tolist()) == ([3, -1], [1, -1])
    assert swapped.core.id.tolist() == [0, 3, 2]
    assert swapped.buffer.id.tolist() == [1, 4, -1, -1, -1]
    np.testing.assert_array_equal(swapped.core.embedding[1], np.eye(DIM)[3])
    assert balanced(swapped)


def test_a_fresh_rpe_prices_anew():
    config = config_of(moves=0)
    params, memory = lived(config, [20.0, 10.0, 4.0, 6.0], half_life=np.inf)
    priced, report = jitted.consolidate(config, params, memory, None, lambda batch: -0.5 * batch.rpe, reprice=2)
    assert report.repriced == 2
    fresh = [10 / (1 + np.exp(-8)), 5 / (1 + np.exp(-3))]
    np.testing.assert_allclose(priced.buffer.strength[:4], [*fresh, *memory.buffer.strength[2:4]], rtol=1e-6)
    assert priced.buffer.rpe.tolist() == memory.buffer.rpe.tolist()
    drawn, report = jitted.consolidate(config, params, memory, jax.random.key(0), lambda batch: jnp.zeros(32))
    assert report.repriced == 4
    assert (drawn.buffer.strength[:4] == 0).all()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"buffer_capacity": 0},
        {"moves": 0},
        {"merge_rounds": 3, "store_next": True},
        {"core_capacity": 1, "buffer_capacity": 1},
    ],
)
def test_an_empty_memory_stays_empty(changes):
    config = config_of(**changes)
    memory, report = jitted.consolidate(config, dmem.Params.default(config), dmem.init(config))
    assert not any(leaf.any() for leaf in (report.forgotten, report.merged, report.promoted, report.demoted))
    assert report.promoted_ids.shape == (config.moves,)
    assert (memory.core.id == -1).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((memory.core, memory.buffer)))


def test_agents_consolidate_as_one_by_one():
    config = config_of(merge_rounds=2, min_successes=0)
    alone = [lived(config, rpes, [0, 1, 0, 2]) for rpes in ([2.0, 9.0, 4.0, 7.0], [60.0, 1.0, 70.0, 3.0])]
    params = alone[0][0]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(memory for _, memory in alone))
    got = jax.jit(jax.vmap(dmem.consolidate, in_axes=(None, None, 0)))(config, params, together)
    expected = [jitted.consolidate(config, params, memory) for _, memory in alone]
    jax.tree.map(np.testing.assert_array_equal, got, jax.tree.map(lambda *leaves: jnp.stack(leaves), *expected))


@pytest.mark.parametrize("merge_rounds", [0, 2])
def test_no_embedding_is_copied_in_a_loop(merge_rounds):
    config = config_of(merge_rounds=merge_rounds, core_capacity=17, buffer_capacity=39)
    payload = jnp.zeros(5)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(memories, params):
        def body(memories, _):
            return jax.vmap(dmem.consolidate, in_axes=(None, None, 0))(config, params, memories)

        return jax.lax.scan(body, memories, None, length=3)

    memories = dmem.init(config, payload, batch_shape=(6,))
    text = loop.lower(memories, dmem.Params.default(config)).compile().as_text() or ""
    shapes = {f"f32[6,{n},{width}]" for n in (17, 39) for width in (DIM, 5)}
    assert not whole_writes(text, shapes)


def test_bad_input_is_named(unchecked):
    config = config_of()
    params, memory = lived(config, [1.0])
    for message, arguments in {
        "key: draws what rpe_fn": (jax.random.key(0),),
        "rpe_fn: expected a function": (None, 3),
        "key: expected a typed key": (jnp.ones(2), lambda batch: batch.rpe),
        r"rpe_fn\(batch\): expected shape": (None, lambda batch: jnp.ones(3)),
    }.items():
        with pytest.raises((TypeError, ValueError), match=message):
            dmem.consolidate(config, params, memory, *arguments)
    with pytest.raises(ValueError, match="reprice: expected at least 1"):
        dmem.consolidate(config, params, memory, None, lambda batch: batch.rpe, reprice=0)
