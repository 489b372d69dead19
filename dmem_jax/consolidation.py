"""Tidying up: prices anew, forgets what is weak or old, merges what says the same, promotes what proved itself."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Int32, PRNGKeyArray

from dmem_jax import inputs, shards
from dmem_jax.checks import check_acting, check_key
from dmem_jax.config import Config
from dmem_jax.counting import add_saturating
from dmem_jax.decay import effective_strength
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.insertion import strength_key
from dmem_jax.merging import merge_leftovers
from dmem_jax.params import Params
from dmem_jax.pool import pooled
from dmem_jax.sampling import replay, reprioritize, strongest
from dmem_jax.size import current_scale
from dmem_jax.slots import after, capacity, choose, put, read
from dmem_jax.types import ConsolidationReport, Memory, ReplayBatch, Store
from dmem_kernels import age, first_max, first_min


def consolidate(
    config: Config,
    params: Params,
    memory: Memory,
    key: PRNGKeyArray | None = None,
    rpe_fn: Callable[[ReplayBatch], ArrayLike] | None = None,
    *,
    reprice: int = 32,
) -> tuple[Memory, ConsolidationReport]:
    """`memory` after a rest: price anew, forget, merge, promote, in this order. The clock stands still.

    Price anew, if there is an `rpe_fn`: strengths of replayed memories as a fresh RPE would have written them. Forget:
    effective strength over scale below `floor`, or not touched for more than `core_max_age` / `buffer_max_age`. Merge:
    the closest pair of duplicates first, `Config.merge_rounds` pairs at most. Promote: the strongest of the buffer,
    `Config.moves` at most, into a free slot of core if it has `Config.min_successes`; a full core changes places with
    it if its weakest is weaker.

    Args:
      key: one typed PRNG key: draws what is priced anew by `replay`, without replacement. None: the strongest.
      rpe_fn: gives the fresh RPE [reprice], reward units, of a `ReplayBatch`; numbers that are not finite are counted
        in `stats.rejected`.
      reprice: memories to price anew, >= 1.

    Returns:
      The memory, and a `ConsolidationReport`.

    Raises:
      ArgumentTypeError, ArgumentValueError: named, at trace time.
    """
    shards.whole_only(config, "consolidate")
    params = check_acting(config, params, memory)
    repriced = jnp.zeros_like(memory.clock)
    if rpe_fn is not None:
        memory, repriced = _price_anew(config, params, memory, key, rpe_fn, inputs.positive("reprice", reprice))
    elif key is not None:
        raise ArgumentValueError("key: draws what rpe_fn prices anew, expected an rpe_fn with it, got None.")
    memory, forgotten_ids = _forget(config, params, memory)
    memory, merged_ids = merge_leftovers(config, params, memory)
    memory, promoted_ids, demoted_ids = _promote(config, params, memory)

    def count(ids: Array) -> Array:
        return jnp.sum(ids >= 0, dtype=jnp.int32)

    report = ConsolidationReport(
        repriced=repriced,
        forgotten=count(forgotten_ids),
        merged=count(merged_ids[:, 1]),
        promoted=count(promoted_ids),
        demoted=count(demoted_ids),
        forgotten_ids=forgotten_ids,
        merged_ids=merged_ids,
        promoted_ids=promoted_ids,
        demoted_ids=demoted_ids,
    )
    s = memory.stats
    stats = dataclasses.replace(
        s,
        forgotten=add_saturating(s.forgotten, report.forgotten),
        merged_later=add_saturating(s.merged_later, report.merged),
        promoted=add_saturating(s.promoted, report.promoted),
        demoted=add_saturating(s.demoted, report.demoted),
    )
    probe = dataclasses.replace(memory.probe, valid=jnp.zeros_like(memory.probe.valid))
    return dataclasses.replace(memory, stats=stats, probe=probe), report


def _price_anew(
    config: Config, params: Params, memory: Memory, key: PRNGKeyArray | None, rpe_fn: Callable, size: int
) -> tuple[Memory, Int32[Array, ""]]:
    if not callable(rpe_fn):
        raise ArgumentTypeError(f"rpe_fn: expected a function of a ReplayBatch, got {rpe_fn!r}.")
    if key is None:
        batch = strongest(config, params, memory, size)
    else:
        check_key("key", key)
        batch = replay(config, params, memory, key, size, replacement=False)
    rpe = inputs.feedback("rpe_fn(batch)", rpe_fn(batch), (size,))
    memory = reprioritize(config, params, memory, batch, rpe)
    return memory, jnp.sum(batch.valid & jnp.isfinite(rpe), dtype=jnp.int32)


def _forget(config: Config, params: Params, memory: Memory) -> tuple[Memory, Int32[Array, " N"]]:
    """Frees slots by their id alone: not an embedding is touched."""
    now, scale = memory.clock, current_scale(config, memory.router)

    def outlived(tier: Store, max_age: Array) -> Array:
        weak = effective_strength(params, tier, now) / scale < params.floor
        return (tier.id >= 0) & (weak | (age(now, tier.touched) > max_age))

    gone = {
        "core": outlived(memory.core, params.core_max_age),
        "buffer": outlived(memory.buffer, params.buffer_max_age),
    }
    ids = jnp.where(jnp.concatenate(list(gone.values())), pooled(memory, lambda tier: tier.id), -1)
    kept = {
        name: dataclasses.replace(tier, id=jnp.where(gone[name], -1, tier.id))
        for name, tier in (("core", memory.core), ("buffer", memory.buffer))
    }
    return dataclasses.replace(memory, **kept), ids


def _promote(config: Config, params: Params, memory: Memory) -> tuple[Memory, Int32[Array, " V"], Int32[Array, " V"]]:
    """The strongest of the buffer into core."""
    if config.buffer_capacity == 0:
        nothing = jnp.full(config.moves, -1, jnp.int32)
        return memory, nothing, nothing

    def move(memory: Memory, _: None) -> tuple[Memory, tuple[Array, Array]]:
        now, core, buffer = memory.clock, memory.core, memory.buffer
        weakest, there = first_min(strength_key(params, core, now))
        full = weakest > -jnp.inf
        proven = full | (buffer.successes >= config.min_successes)
        strongest, here = first_max(jnp.where(proven, strength_key(params, buffer, now), -jnp.inf))
        moves = (strongest > -jnp.inf) & (~full | (strongest > weakest))
        out, candidate = read(core, there), read(buffer, here)
        left = choose(full, out, dataclasses.replace(candidate, id=jnp.full_like(candidate.id, -1)))
        core = put(core, jnp.where(moves, there, capacity(core)), after(out, candidate))
        buffer = put(buffer, jnp.where(moves, here, capacity(buffer)), after(candidate, left))
        ids = jnp.where(moves, candidate.id, -1), jnp.where(moves & full, out.id, -1)
        return dataclasses.replace(memory, core=core, buffer=buffer), ids

    memory, (promoted, demoted) = jax.lax.scan(move, memory, None, length=config.moves)
    return memory, promoted, demoted
