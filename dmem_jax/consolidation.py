"""Tidying up: prices anew, forgets what is weak or old, merges what says the same, promotes what proved itself."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray

from dmem_jax import inputs
from dmem_jax.checks import check_acting, check_key
from dmem_jax.config import Config, Params
from dmem_jax.counting import add_saturating
from dmem_jax.decay import age, effective_strength
from dmem_jax.duplicates import merged
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.insertion import strength_key
from dmem_jax.pool import gather, live, place, pooled
from dmem_jax.sampling import replay, reprioritize, strongest
from dmem_jax.size import current_scale
from dmem_jax.slots import after, capacity, choose, put, read
from dmem_jax.types import ConsolidationReport, Memory, ReplayBatch, Store, Tier
from dmem_kernels import canonical, first_max, first_min

_ROWS = 8  # whose cosines with the pool are computed at once, so that the pairs need no memory of pool x pool


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
    params = check_acting(config, params, memory)
    repriced = jnp.zeros_like(memory.clock)
    if rpe_fn is not None:
        memory, repriced = _price_anew(config, params, memory, key, rpe_fn, inputs.positive("reprice", reprice))
    elif key is not None:
        raise ArgumentValueError("key: draws what rpe_fn prices anew, expected an rpe_fn with it, got None.")
    memory, forgotten_ids = _forget(config, params, memory)
    memory, merged_ids = _merge_leftovers(config, params, memory)
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


def _merge_leftovers(config: Config, params: Params, memory: Memory) -> tuple[Memory, Int32[Array, "R 2"]]:
    """Duplicates that no probe told of, merged pair by pair; the lower pool slot keeps place and id."""
    if config.merge_rounds == 0:
        return memory, jnp.zeros((0, 2), jnp.int32)

    def merge_closest(memory: Memory, _: None) -> tuple[Memory, Array]:
        first, second, cosine = _closest_pair(config, memory)
        found = cosine >= params.duplicate_similarity
        # Read both, write both: the first becomes the merged row, the second is free.
        pair = jnp.where(found, jnp.stack([first, second]), config.pool_capacity)
        rows = gather(memory, lambda tier: tier, pair)
        keeps, goes = (jax.tree.map(lambda leaf, i=i: leaf[i], rows) for i in (0, 1))
        memory = _put_pooled(memory, pair[0], merged(params, keeps, goes, memory.clock))
        core, buffer = (
            dataclasses.replace(tier, id=put(tier.id, _within(memory, which, pair[1]), jnp.int32(-1)))
            for which, tier in ((Tier.CORE, memory.core), (Tier.BUFFER, memory.buffer))
        )
        ids = jnp.where(found, jnp.stack([keeps.id, goes.id]), -1)
        return dataclasses.replace(memory, core=core, buffer=buffer), ids

    return jax.lax.scan(merge_closest, memory, None, length=config.merge_rounds)


def _closest_pair(config: Config, memory: Memory) -> tuple[Int32[Array, ""], Int32[Array, ""], Float[Array, ""]]:
    """The two live memories of one task and sign with the greatest cosine, the lower pool slots on ties; and it."""
    n = config.pool_capacity
    alive = live(memory)
    task, disaster = pooled(memory, lambda tier: tier.task), pooled(memory, lambda tier: tier.rpe < 0)
    inv_norm = pooled(memory, lambda tier: tier.inv_norm)
    later = jnp.arange(n, dtype=jnp.int32)

    def partners(start: Array) -> tuple[Array, Array]:
        slot = start + jnp.arange(_ROWS, dtype=jnp.int32)
        mine, my_norm = gather(memory, lambda tier: (tier.embedding, tier.inv_norm), slot)
        dots = [
            jnp.einsum("rd,nd->rn", mine, tier.embedding, precision=jax.lax.Precision.HIGHEST)
            for tier in (memory.core, memory.buffer)
        ]
        cosine = jnp.concatenate(dots, axis=1) * inv_norm[None, :] * my_norm[:, None]

        def comparable(slot: Array) -> Bool[Array, " N"]:
            alike = (task == read(task, slot)) & (disaster == read(disaster, slot))
            return alike & alive & read(alive, slot) & (later > slot)

        return jax.vmap(first_max)(canonical(jnp.where(jax.vmap(comparable)(slot), cosine, -jnp.inf)))

    best, partner = jax.lax.map(partners, jnp.arange(0, n, _ROWS, dtype=jnp.int32))
    cosine, first = first_max(best.reshape(-1)[:n])
    return first, read(partner.reshape(-1), first), cosine


def _promote(config: Config, params: Params, memory: Memory) -> tuple[Memory, Int32[Array, " V"], Int32[Array, " V"]]:
    """The strongest of the buffer into core."""
    promoted, demoted = [], []
    for _ in range(config.moves if config.buffer_capacity else 0):
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
        memory = dataclasses.replace(memory, core=core, buffer=buffer)
        promoted.append(jnp.where(moves, candidate.id, -1))
        demoted.append(jnp.where(moves & full, out.id, -1))

    def of_each(ids: list[Array]) -> Array:
        ids = ids or [jnp.int32(-1)] * config.moves  # no buffer to promote from
        return jnp.stack(ids) if ids else jnp.zeros(0, jnp.int32)

    return memory, of_each(promoted), of_each(demoted)


def _put_pooled(memory: Memory, slot: Int32[Array, ""], row: Store) -> Memory:
    """`memory` with `row` at a pool slot; nothing happens at the pool's capacity."""

    def in_tier(tier: Store, which: Tier) -> Store:
        within = _within(memory, which, slot)
        return put(tier, within, after(read(tier, within), row))

    core, buffer = in_tier(memory.core, Tier.CORE), in_tier(memory.buffer, Tier.BUFFER)
    return dataclasses.replace(memory, core=core, buffer=buffer)


def _within(memory: Memory, which: Tier, slot: Int32[Array, ""]) -> Int32[Array, ""]:
    """The slot of tier `which` that a pool slot is; its capacity where it is another tier's."""
    tier, within = place(memory, slot)
    return jnp.where(tier == which, within, capacity(memory.core if which == Tier.CORE else memory.buffer))
