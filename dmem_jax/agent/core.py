"""What the backend asks of the core, compiled once for each size of memory. All that decides is the core's own.

A host that keeps a memory in a database must know what to write anew: what changes a memory here also says which slots
it changed. N slots of the pool (core's, then the buffer's), D embedding size, K rows.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax import inputs, lifecycle, retrieval, value
from dmem_jax.agent import sketch as sketches
from dmem_jax.agent.learning import learner_config
from dmem_jax.allocation import init
from dmem_jax.checks import check_asked
from dmem_jax.config import Config
from dmem_jax.consolidation import consolidate
from dmem_jax.counting import add_saturating
from dmem_jax.decay import effective_strength
from dmem_jax.inputs import experience
from dmem_jax.judging import Verdict, as_row, judge
from dmem_jax.learner import Batch, Learner
from dmem_jax.memory import reinforce, renew, write
from dmem_jax.params import Params
from dmem_jax.pool import gather, pooled
from dmem_jax.similarity import directions, inverse_norm, pool_cosines
from dmem_jax.slots import capacity, put
from dmem_jax.storage import as_stored
from dmem_jax.types import ConsolidationReport, Experience, Memory, Query, Recall, Store, Tier, WriteInfo

WRITE_CHANGES = 4  # slots at most: newcomer, what it pushed out of core, what it contradicts, and one to spare
_LEAST_RPE = np.float32(1e-6)  # reward units
_WRITTEN = ("id", "strength", "touched", "count", "contradicted")  # a write changes one of these at least
_TELLING = (*_WRITTEN, "time", "recalls", "successes", "task")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Given:
    """An experience as the backend has it."""

    embedding: Float[Array, " D"]
    reward: Float[Array, ""]
    rewarded: Bool[Array, ""]  # False: there was none, and nothing is learnt
    expected: Float[Array, ""]  # reward units, by a critic of the user's
    has_critic: Bool[Array, ""]  # False: by what was learnt
    rpe: Float[Array, ""]  # reward units, told by the user
    has_rpe: Bool[Array, ""]  # False: reward - expected, 0 without a reward
    novelty_weight: Float[Array, ""]  # reward units, >= 0, by which what is unlike all that is known surprises more
    keep: Bool[Array, ""]  # whatever its surprise, and as a memory of its own: it can be asked for by name
    task: Int32[Array, ""]  # of the action, or of the name
    time: Int32[Array, ""]
    document: Int32[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Changed:
    """Slots that are not as they were."""

    slot: Int32[Array, " K"]  # of the pool; its capacity: none
    rows: Store  # what they hold now


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(2, 3, 4))
def written(
    config: Config, params: Params, memory: Memory, learner: Learner, sketch: Float[Array, "N S"], given: Given
) -> tuple[Memory, Learner, Float[Array, "N S"], WriteInfo, Changed]:
    """`dmem_jax.write` of what was met; and a reward is learnt from."""
    met = _met(config, learner, given)
    # A disaster is not made smaller by being new.
    weight = jnp.where(met.rpe < 0, -given.novelty_weight, given.novelty_weight)
    params = dataclasses.replace(
        params,
        novelty_weight=weight,
        threshold_low=jnp.where(given.keep, jnp.float32(-1.0), params.threshold_low),
        duplicate_similarity=jnp.where(given.keep, jnp.float32(2.0), params.duplicate_similarity),  # no cosine is
    )
    memory = sketches.probed(config, params, memory, sketch, given.embedding, given.task, given.novelty_weight != 0)
    after, info = write(config, params, memory, met)
    differs = _differs(memory, after, _WRITTEN)
    _, slot = jax.lax.top_k(differs.astype(jnp.float32), min(WRITE_CHANGES, config.pool_capacity))
    slot = jnp.where(differs[slot], slot, config.pool_capacity)
    changed = Changed(slot=slot, rows=rows(config, after, slot))
    return after, _taught(config, learner, given), put(sketch, slot, sketches.of_rows(changed.rows)), info, changed


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(2, 3))
def repriced(
    config: Config, params: Params, memory: Memory, learner: Learner, slot: Int32[Array, ""], given: Given
) -> tuple[Memory, Learner, Verdict]:
    """The memory at the pool slot `slot` is worth what its new outcome says; and the reward is learnt from."""
    met = _met(config, learner, given)
    memory, verdict = judge(config, params, memory, met, inputs.is_finite_experience(config, met))
    row = as_row(config, met, verdict, memory.clock, memory.next_id)
    names = ("rpe", "reward", "value", "strength", "written_strength", "touched", "contradicted")
    new = {name: getattr(row, name) for name in names}
    slot = jnp.where(verdict.valid, slot, config.pool_capacity)
    return _changed_at(config, memory, slot, new), _taught(config, learner, given), verdict


def _met(config: Config, learner: Learner, given: Given) -> Experience:
    expected = value.value(learner_config(config.embedding_dim), learner, _place(given))
    expected = jnp.where(given.has_critic, given.expected, expected)
    surprise = jnp.where(given.rewarded, given.reward - expected, jnp.float32(0.0))
    rpe = jnp.where(given.has_rpe, given.rpe, surprise)
    return experience(
        config,
        given.embedding,
        # What is kept may surprise nobody, but nothing with an RPE of 0 is ever stored.
        rpe=jnp.where(given.keep & (jnp.abs(rpe) < _LEAST_RPE), _LEAST_RPE, rpe),
        reward=given.reward,
        value=expected,
        task=given.task,
        time=given.time,
        payload=given.document,
    )


def _taught(config: Config, learner: Learner, given: Given) -> Learner:
    batch = Batch(embedding=_place(given)[None], reward=given.reward[None], valid=given.rewarded[None])
    return value.update(learner_config(config.embedding_dim), learner, batch)[0]


def _place(given: Given) -> Array:
    return directions(given.embedding, inverse_norm(given.embedding))


@functools.partial(jax.jit, static_argnums=0)
def empty(config: Config) -> Memory:
    """`dmem_jax.init`: compiled, as it is made for every user."""
    return init(config, jnp.int32(0))


@functools.partial(jax.jit, static_argnums=0)
def recalled(
    config: Config,
    params: Params,
    memory: Memory,
    query: Query,
    keywords: Float[Array, " N"],
    allowed: Bool[Array, " N"],
    least: Float[Array, ""],
    k: Int32[Array, ""],
) -> tuple[Recall, Float[Array, " K"]]:
    """`dmem_jax.recall` among the slots that are `allowed` and have a cosine of at least `least`, the first `k`.

    Args:
      keywords: what comes on top of each slot's cosine.

    Returns:
      The recall, whose semantic term is cosine and keywords together; the cosines alone.
    """
    params, query, answerable = check_asked(config, params, memory, query)
    cosines = pool_cosines(memory, query.embedding)
    some = _only(memory, allowed & (cosines >= least))
    found = retrieval.search(config, params, some, query, answerable, cosines + keywords)
    found = dataclasses.replace(found, valid=found.valid & (jnp.arange(config.recalled, dtype=jnp.int32) < k))
    slot = pool_slot(config, found)
    cosine = jnp.where(found.valid, cosines.at[slot].get(mode="clip"), jnp.float32(0.0))
    return found, cosine


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def counted(config: Config, memory: Memory, found: Recall) -> Memory:
    """The recall is counted."""
    return lifecycle.count_recalled(config, memory, found)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def reinforced(
    config: Config,
    params: Params,
    memory: Memory,
    now: Int32[Array, ""],
    found: Recall,
    rpe: Float[Array, ""],
    used: Float[Array, " K"],
) -> tuple[Memory, Store]:
    """`dmem_jax.reinforce`, or, where the outcome was as foretold, `dmem_jax.renew`; and the rows of `found` then."""
    memory = _at(memory, now)
    as_foretold = rpe == 0
    memory = reinforce(config, params, memory, found, rpe, jnp.where(as_foretold, jnp.float32(0.0), used))
    memory = renew(config, params, memory, found, jnp.where(as_foretold, used, jnp.float32(0.0)))
    return memory, rows(config, memory, pool_slot(config, found))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def moved(
    config: Config, memory: Memory, slot: Int32[Array, ""], embedding: Float[Array, " D"], task: Int32[Array, ""]
) -> Memory:
    """The memory at the pool slot `slot` is of another place and action from now on; all else stays."""
    return _changed_at(config, memory, slot, as_stored(config.store_dtype, embedding) | {"task": task})


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def retold(config: Config, memory: Memory, slot: Int32[Array, ""], task: Int32[Array, ""]) -> Memory:
    """The same for the action alone."""
    return _changed_at(config, memory, slot, {"task": task})


def _changed_at(config: Config, memory: Memory, slot: Array, new: dict[str, Any]) -> Memory:
    def in_tier(tier: Store, at: Array) -> Store:
        at = jnp.where((at >= 0) & (at < capacity(tier)), at, capacity(tier))
        changed = {name: put(getattr(tier, name), at, each) for name, each in new.items() if each is not None}
        return dataclasses.replace(tier, **changed)

    core, buffer = in_tier(memory.core, slot), in_tier(memory.buffer, slot - config.core_capacity)
    return dataclasses.replace(memory, core=core, buffer=buffer)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def freed(config: Config, memory: Memory, gone: Bool[Array, " N"]) -> Memory:
    """Without the memories in the slots that are `gone`; they count as forgotten."""
    stats = memory.stats
    count = jnp.sum(gone & (pooled(memory, lambda tier: tier.id) >= 0), dtype=jnp.int32)
    stats = dataclasses.replace(stats, forgotten=add_saturating(stats.forgotten, count))
    return dataclasses.replace(_only(memory, ~gone), stats=stats)


@functools.partial(jax.jit, static_argnums=0)
def consolidated(
    config: Config, params: Params, memory: Memory, now: Int32[Array, ""]
) -> tuple[Memory, ConsolidationReport, Bool[Array, " N"]]:
    """`dmem_jax.consolidate`, and which slots it changed."""
    after, report = consolidate(config, params, _at(memory, now))
    return after, report, _differs(memory, after)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def placed(config: Config, memory: Memory, slot: Int32[Array, " K"], new: Store) -> Memory:
    """With the rows `new` at the pool slots `slot`, which differ; none where one is the pool's capacity."""
    in_core = jnp.where(slot < config.core_capacity, slot, config.core_capacity)
    in_buffer = jnp.where(slot < config.core_capacity, config.buffer_capacity, slot - config.core_capacity)
    core, buffer = put(memory.core, in_core, new), put(memory.buffer, in_buffer, new)
    return dataclasses.replace(memory, core=core, buffer=buffer)


@functools.partial(jax.jit, static_argnums=0)
def told(
    config: Config, params: Params, memory: Memory, now: Int32[Array, ""], slot: Int32[Array, " K"]
) -> tuple[Store, Float[Array, " K"]]:
    """What the pool slots `slot` hold, and how strong it is by now."""
    found = rows(config, memory, slot)
    return found, effective_strength(params, found, jnp.maximum(memory.clock, now))


@functools.partial(jax.jit, static_argnums=0)
def rows(config: Config, memory: Memory, slot: Int32[Array, " K"]) -> Store:
    """What the pool slots `slot` hold; zeros where one is the pool's capacity."""
    return gather(config, memory, lambda tier: tier, slot)


def pool_slot(config: Config, found: Recall) -> Int32[Array, " K"]:
    """Where in the pool the recalled are; its capacity where none is."""
    slot = jnp.where(found.tier == Tier.CORE, found.slot, found.slot + config.core_capacity)
    return jnp.where(found.valid, slot, config.pool_capacity)


def given(**numbers: Any) -> Given:
    """Of Python's and NumPy's numbers."""
    floats = ("embedding", "reward", "expected", "rpe", "novelty_weight")
    flags = ("rewarded", "has_critic", "has_rpe", "keep")
    kinds = {**dict.fromkeys(floats, np.float32), **dict.fromkeys(flags, np.bool_)}
    return Given(**{name: jnp.asarray(number, kinds.get(name, np.int32)) for name, number in numbers.items()})


def recall_of(config: Config, slots: Sequence[int], ids: Sequence[int]) -> Recall:
    """As if the memories at these pool slots had been recalled with `config`."""
    k, n = config.recalled, len(slots)
    slot = np.pad(np.asarray(slots, np.int32), (0, k - n), constant_values=config.pool_capacity)
    in_core = slot < config.core_capacity
    nothing = jnp.zeros(k, jnp.float32)
    return Recall(
        slot=jnp.asarray(np.where(in_core, slot, slot - config.core_capacity).astype(np.int32)),
        tier=jnp.asarray(np.where(in_core, Tier.CORE, Tier.BUFFER).astype(np.int32)),
        id=jnp.asarray(np.pad(np.asarray(ids, np.int32), (0, k - n), constant_values=-1)),
        valid=jnp.arange(k, dtype=jnp.int32) < n,
        contradicted=jnp.zeros(k, bool),
        payload=jnp.zeros(k, jnp.int32),
        **dict.fromkeys(("score", "semantic", "salience", "rpe"), nothing),
    )


def no_rows(config: Config, memory: Memory, count: int) -> Store:
    """`count` rows of zeros."""
    return rows(config, memory, jnp.full(count, config.pool_capacity, jnp.int32))


def grown(memory: Memory, config: Config, slots: int) -> Memory:
    """With a buffer of `slots`: the new ones are free."""
    larger = empty(dataclasses.replace(config, buffer_capacity=slots))
    held = config.buffer_capacity
    buffer = jax.tree.map(lambda old, new: jnp.concatenate([old, new[held:]]), memory.buffer, larger.buffer)
    return dataclasses.replace(memory, buffer=buffer, probe=larger.probe)


def _at(memory: Memory, now: Array) -> Memory:
    return dataclasses.replace(memory, clock=jnp.maximum(memory.clock, now))


def _only(memory: Memory, kept: Array) -> Memory:
    """As if all other slots were free."""
    n = capacity(memory.core)
    core = dataclasses.replace(memory.core, id=jnp.where(kept[:n], memory.core.id, -1))
    buffer = dataclasses.replace(memory.buffer, id=jnp.where(kept[n:], memory.buffer.id, -1))
    return dataclasses.replace(memory, core=core, buffer=buffer)


def _differs(before: Memory, after: Memory, names: Sequence[str] = _TELLING) -> Bool[Array, " N"]:
    def in_tier(old: Store, new: Store) -> Array:
        return functools.reduce(jnp.logical_or, [getattr(old, name) != getattr(new, name) for name in names])

    return jnp.concatenate([in_tier(before.core, after.core), in_tier(before.buffer, after.buffer)])
