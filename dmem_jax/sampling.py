"""Prioritized replay (arXiv 1511.05952): drawing memories by what they are worth now, and pricing them anew.

Probabilities are computed from the strengths at each call. A sum tree that is kept up to date by differences drifts,
and one bad priority poisons it for good; a sum over a thousand slots costs less than the gathers that follow it.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray

from dmem_jax import inputs, lifecycle, shards
from dmem_jax.checks import check_acting, check_key, check_replay
from dmem_jax.config import Config
from dmem_jax.decay import log2_effective_strength
from dmem_jax.gating import gate
from dmem_jax.params import Params
from dmem_jax.pool import gather, live, live_count, place, pooled
from dmem_jax.schedules import importance_exponent
from dmem_jax.size import surprise_size
from dmem_jax.slots import last_of_each, read
from dmem_jax.storage import embeddings
from dmem_jax.types import Memory, ReplayBatch, Store, Tier
from dmem_kernels import canonical, masked_softmax, top_k

_BLOCK = 128  # slots that one draw looks at, once it knows the block


def replay(
    config: Config, params: Params, memory: Memory, key: PRNGKeyArray, size: int = 32, *, replacement: bool = True
) -> ReplayBatch:
    """Memories drawn with probability ~ effective strength ^ `replay_exponent`, for training on them.

    Args:
      key: one typed PRNG key, consumed.
      size: B, rows of the batch, >= 1.
      replacement: False draws each memory at most once; rows beyond what there is are not `valid`.

    Returns:
      A `ReplayBatch`; all rows of an empty memory are filler.

    Raises:
      ArgumentTypeError, ArgumentValueError: named, at trace time.
    """
    shards.whole_only(config, "replay")
    params = check_acting(config, params, memory)
    check_key("key", key)
    size = inputs.positive("size", size)
    probability = replay_probabilities(params, memory)
    if replacement:
        slot = _drawn(key, probability, size)
        valid = jnp.broadcast_to(jnp.any(probability > 0), (size,))
    else:
        some = probability > 0
        log = jnp.log(jnp.where(some, probability, 1.0)) + jax.random.gumbel(key, probability.shape, jnp.float32)
        score, slot = top_k(canonical(jnp.where(some, log, -jnp.inf)), size)
        valid = score > -jnp.inf
    return _batch(config, params, memory, probability, slot, valid)


def strongest(config: Config, params: Params, memory: Memory, size: int) -> ReplayBatch:
    """The `size` memories of greatest effective strength, as `replay` would hand them over."""
    log2 = pooled(memory, lambda tier: jnp.where(tier.id >= 0, _log2(params, tier, memory), -jnp.inf))
    score, slot = top_k(canonical(log2), size)
    return _batch(config, params, memory, replay_probabilities(params, memory), slot, score > -jnp.inf)


def replay_probabilities(params: Params, memory: Memory) -> Float[Array, " N"]:
    """P of each pool slot at one draw; 0 for free slots and for memories of strength 0. In log space: strengths may
    lie further apart than float32 reaches."""
    log2 = pooled(memory, lambda tier: _log2(params, tier, memory))
    some = live(memory) & (log2 > -jnp.inf)
    return masked_softmax(params.replay_exponent * math.log(2.0) * jnp.where(some, log2, 0.0), some)


def reprioritize(
    config: Config,
    params: Params,
    memory: Memory,
    batch: ReplayBatch,
    rpe: ArrayLike,
    *,
    overwrite: bool = False,
) -> Memory:
    """`memory` in which the replayed memories are worth what a fresh RPE says: strength as at writing, touched now.

    Args:
      batch: as `replay` returned it, from this memory; memories that have left since are counted in `stats.stale`. If
        one was drawn twice its later row counts.
      rpe: [B], reward units, e.g. the value learner's fresh errors on the batch.
      overwrite: store the fresh RPE, too. By default what was felt at the time stays.
    """
    shards.whole_only(config, "reprioritize")
    params = check_acting(config, params, memory)
    check_replay(batch)
    rpe = inputs.feedback("rpe", rpe, batch.valid.shape)
    acts, memory = lifecycle.still_there(config, memory, batch, batch.valid, jnp.isfinite(rpe))
    slot = jnp.where(batch.tier == Tier.CORE, batch.slot, batch.slot + config.core_capacity)
    acts = last_of_each(slot, acts, config.pool_capacity)
    magnitude = jnp.where(acts, jnp.abs(rpe), 0.0)
    size = jax.vmap(lambda one: surprise_size(config, memory.router, one))(magnitude)
    strength = gate(params, size) * magnitude

    def priced(row: Store, told: tuple[Array, Array]) -> dict[str, Array]:
        fresh, strength = told
        changed = {"strength": strength, "written_strength": strength, "touched": jnp.full_like(row.touched, now)}
        return changed | ({"rpe": fresh} if overwrite else {})

    now = memory.clock
    memory = lifecycle.change_each(config, memory, batch, acts, (rpe, strength), priced)
    return dataclasses.replace(
        memory, probe=dataclasses.replace(memory.probe, valid=jnp.zeros_like(memory.probe.valid))
    )


def _batch(
    config: Config,
    params: Params,
    memory: Memory,
    probability: Float[Array, " N"],
    slot: Int32[Array, " B"],
    valid: Bool[Array, " B"],
) -> ReplayBatch:
    """The memories at pool slots `slot`, as a learner reads them."""
    slot = jnp.where(valid, slot, config.pool_capacity)
    tier, tier_slot = place(config, memory, slot)
    rows = gather(config, memory, lambda tier: tier, slot)
    drawn = jnp.where(valid, read(probability, slot), 0.0)
    # (n P)^-b by logarithms, so that the greatest is exactly 1 and the others come out of no overflow.
    n = jnp.maximum(live_count(config, memory), 1).astype(jnp.float32)
    log = -importance_exponent(params, memory) * jnp.log(jnp.where(drawn > 0, n * drawn, 1.0))
    log = jnp.where(valid, log, -jnp.inf)
    greatest = jnp.max(log)
    weight = jnp.exp(log - jnp.where(greatest > -jnp.inf, greatest, 0.0))
    return ReplayBatch(
        embedding=embeddings(rows),
        rpe=rows.rpe,
        reward=rows.reward,
        value=rows.value,
        task=rows.task,
        time=rows.time,
        payload=rows.payload,
        next_embedding=rows.next_embedding,
        discount=rows.discount,
        slot=tier_slot,
        tier=tier,
        id=jnp.where(valid, rows.id, -1),
        probability=drawn,
        weight=jnp.where(valid, weight, 0.0),
        valid=valid,
    )


def _drawn(key: PRNGKeyArray, probability: Float[Array, " N"], size: int) -> Int32[Array, " size"]:
    """`size` slots drawn with replacement; meaningless where every probability is 0.

    First a block of slots, then a slot of it, each by inverting a running sum. XLA's float32 running sum may rise over
    a slot of probability 0, so what it points at is moved to the nearest slot before it that can be drawn.
    """
    n = probability.shape[0]
    blocks = -(-n // _BLOCK)
    of_block = jnp.pad(probability, (0, blocks * _BLOCK - n)).reshape(blocks, _BLOCK)
    block_key, slot_key = jax.random.split(key)
    mass = jnp.sum(of_block, axis=1)
    upto = jax.lax.cummax(jnp.cumsum(mass))
    point = jax.random.uniform(block_key, (size,), jnp.float32) * upto[-1]
    block = jnp.searchsorted(upto, point, side="right").astype(jnp.int32)
    block = read(_nearest_positive(mass), jnp.minimum(block, blocks - 1))

    rows = read(of_block, block)
    upto = jnp.cumsum(rows, axis=1)
    point = jax.random.uniform(slot_key, (size, 1), jnp.float32) * upto[:, -1:]
    slot = jnp.sum(upto <= point, axis=1, dtype=jnp.int32)
    slot = jnp.take_along_axis(jax.vmap(_nearest_positive)(rows), jnp.minimum(slot, _BLOCK - 1)[:, None], axis=1)
    return block * _BLOCK + slot[:, 0]


def _nearest_positive(values: Float[Array, " n"]) -> Int32[Array, " n"]:
    """For each index the last one at or before it whose value is above 0; the first such where there is none before."""
    n = values.shape[0]
    index = jnp.arange(n, dtype=jnp.int32)
    before = jax.lax.cummax(jnp.where(values > 0, index, -1))
    first = jnp.min(jnp.where(values > 0, index, n - 1))
    return jnp.where(before >= 0, before, first)


def _log2(params: Params, tier: Store, memory: Memory) -> Array:
    return log2_effective_strength(params, tier, memory.clock)
