"""Tidying up: prices anew, forgets what is weak or old, merges what says the same, promotes what proved itself."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray

from dmem_jax import inputs
from dmem_jax.checks import check_acting, check_key
from dmem_jax.config import Config
from dmem_jax.counting import add_saturating
from dmem_jax.decay import age, effective_strength
from dmem_jax.duplicates import merged
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.insertion import strength_key
from dmem_jax.params import Params
from dmem_jax.pool import gather, live, place, pooled
from dmem_jax.sampling import replay, reprioritize, strongest
from dmem_jax.similarity import pool_cosines
from dmem_jax.size import current_scale
from dmem_jax.slots import after, capacity, choose, put, read
from dmem_jax.types import ConsolidationReport, Memory, ReplayBatch, Store, Tier
from dmem_kernels import canonical, first_max, first_min

_ROWS = 32  # whose cosines with the pool are computed at once: the pairs need no memory of pool x pool
_FAR = 1e9  # beyond any cosine


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

    def merge_closest(carry: tuple[Memory, _Partners], _: None) -> tuple[tuple[Memory, _Partners], Array]:
        memory, partners = carry
        partners = _looked_up(memory, partners, params.duplicate_similarity)
        cosine, first = first_max(partners.cosine)
        found = cosine >= params.duplicate_similarity
        # Read both, write both: the first becomes the merged row, the second is free.
        pair = jnp.where(found, jnp.stack([first, read(partners.slot, first)]), config.pool_capacity)
        rows = gather(memory, lambda tier: tier, pair)
        keeps, goes = (jax.tree.map(lambda leaf, i=i: leaf[i], rows) for i in (0, 1))
        memory = _put_pooled(memory, pair[0], merged(params, keeps, goes, memory.clock))
        core, buffer = (
            dataclasses.replace(tier, id=put(tier.id, _within(memory, which, pair[1]), jnp.int32(-1)))
            for which, tier in ((Tier.CORE, memory.core), (Tier.BUFFER, memory.buffer))
        )
        memory = dataclasses.replace(memory, core=core, buffer=buffer)
        ids = jnp.where(found, jnp.stack([keeps.id, goes.id]), -1)
        return (memory, choose(found, _after_merge(memory, partners, *pair), partners)), ids

    start = memory, _all_partners(memory)
    (memory, _), ids = jax.lax.scan(merge_closest, start, None, length=config.merge_rounds)
    return memory, ids


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Partners:
    """For each pool slot the nearest of the live memories in later slots that it could merge with.

    All pairs are compared once, before the first merge, and only for how near the nearest may be; who it is, those
    look up whose turn comes. A look-up costs a pass over the embeddings, all pairs some fifty.
    """

    cosine: Float[Array, "*n"]  # below -1 where there is none; where the nearest is not known: at least its cosine
    slot: Int32[Array, "*n"]
    known: Bool[Array, "*n"]


def _all_partners(memory: Memory) -> _Partners:
    alive = live(memory)
    n = alive.shape[0]

    def nearest(start: Array) -> Array:
        slot = start + jnp.arange(_ROWS, dtype=jnp.int32)
        mine, inv_norm, task, rpe = gather(memory, lambda m: (m.embedding, m.inv_norm, m.task, m.rpe), slot)
        mine = mine * inv_norm[:, None]
        after_slot = slot.astype(jnp.float32) + 1

        def in_tier(tier: Store, first: int) -> Array:
            place = jnp.arange(first, first + capacity(tier), dtype=jnp.float32)
            dots = jnp.einsum("nd,rd->nr", tier.embedding, mine, precision=jax.lax.Precision.HIGHEST)
            # What may not merge is lowered by subtraction: a select is several times as slow here, and this is the
            # whole cost. Great task numbers may round to one float: a bound that is too high is only looked up.
            apart = jnp.abs(tier.task.astype(jnp.float32)[:, None] - task.astype(jnp.float32)[None, :])
            apart = apart + jnp.abs(_sign(tier.rpe)[:, None] - _sign(rpe)[None, :])
            apart = apart + jnp.maximum(after_slot[None, :] - place[:, None], 0.0)
            dead = jnp.where(tier.id < 0, _FAR, 0.0)
            return jnp.max(dots * tier.inv_norm[:, None] - dead[:, None] - _FAR * apart, axis=0, initial=-_FAR)

        return jnp.maximum(in_tier(memory.core, 0), in_tier(memory.buffer, capacity(memory.core)))

    bound = jax.lax.map(nearest, jnp.arange(0, n, _ROWS, dtype=jnp.int32)).reshape(-1)[:n]
    return _Partners(
        cosine=canonical(jnp.where(alive, bound, -jnp.inf)),
        slot=jnp.full(n, n, jnp.int32),
        known=jnp.zeros(n, bool),
    )


def _looked_up(memory: Memory, partners: _Partners, enough: Float[Array, ""]) -> _Partners:
    """`partners` in which the nearest pair is known, if there may be one of at least `enough`."""

    def in_doubt(partners: _Partners) -> Bool[Array, ""]:
        cosine, first = first_max(partners.cosine)
        return (cosine >= enough) & ~read(partners.known, first)

    def look_up(partners: _Partners) -> _Partners:
        _, first = first_max(partners.cosine)
        return put(partners, first, _nearest_later(_likeness(memory, first), first))

    return jax.lax.while_loop(in_doubt, look_up, partners)


def _after_merge(memory: Memory, partners: _Partners, keeps: Int32[Array, ""], gone: Int32[Array, ""]) -> _Partners:
    """`partners` after the memory at `gone` was merged into that at `keeps`."""
    slot = jnp.arange(partners.cosine.shape[0], dtype=jnp.int32)
    known = partners.known & (partners.slot != keeps) & (partners.slot != gone)
    near = _likeness(memory, keeps)
    # Earlier ones may have it as their nearest now; of equally near ones the lower slot is.
    nearer = (near > partners.cosine) | ((near == partners.cosine) & known & (keeps < partners.slot))
    nearer = nearer & (slot < keeps) & (near > -jnp.inf)
    cosine = jnp.where(slot == gone, -jnp.inf, jnp.where(nearer, near, partners.cosine))
    partners = _Partners(cosine=cosine, slot=jnp.where(nearer, keeps, partners.slot), known=known | nearer)
    return put(partners, keeps, _nearest_later(near, keeps))


def _nearest_later(near: Float[Array, " N"], slot: Int32[Array, ""]) -> _Partners:
    """Whom the memory at `slot`, whose likeness to all is `near`, would merge with."""
    later = jnp.arange(near.shape[0], dtype=jnp.int32) > slot
    cosine, partner = first_max(jnp.where(later, near, -jnp.inf))
    return _Partners(cosine=cosine, slot=partner, known=jnp.bool_(True))


def _likeness(memory: Memory, slot: Int32[Array, ""]) -> Float[Array, " N"]:
    """Cosines of the memory at a pool slot with all that it could merge with; -inf for others, itself too."""
    mine, task, rpe, id_ = gather(memory, lambda m: (m.embedding, m.task, m.rpe, m.id), slot)

    def comparable(tier: Store) -> Array:
        return (tier.task == task) & ((tier.rpe < 0) == (rpe < 0)) & (tier.id >= 0) & (tier.id != id_)

    return canonical(jnp.where(pooled(memory, comparable), pool_cosines(memory, mine), -jnp.inf))


def _sign(rpe: Float[Array, " n"]) -> Float[Array, " n"]:
    return (rpe < 0).astype(jnp.float32)


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
