"""Duplicates that no probe told of: found by comparing all pairs once, merged the closest pair first."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax.config import Config
from dmem_jax.duplicates import merged
from dmem_jax.params import Params
from dmem_jax.pool import gather, live, place, pooled
from dmem_jax.similarity import directions, pool_cosines
from dmem_jax.slots import after, capacity, choose, put, read
from dmem_jax.types import Memory, Store, Tier
from dmem_kernels import canonical, first_max
from dmem_kernels.products import of_many_each

_ROWS = 32  # whose cosines with the pool are computed at once: the pairs need no memory of pool x pool
_FAR = 1e9  # beyond any cosine
_ROUNDING = 1e-5  # more than two ways of computing one cosine differ by


def merge_leftovers(config: Config, params: Params, memory: Memory) -> tuple[Memory, Int32[Array, "R 2"]]:
    """Duplicates that no probe told of, merged pair by pair; the lower pool slot keeps place and id."""
    if config.merge_rounds == 0:
        return memory, jnp.zeros((0, 2), jnp.int32)

    def merge_closest(carry: tuple[Memory, _Partners], _: None) -> tuple[tuple[Memory, _Partners], Array]:
        memory, partners = carry
        partners = _looked_up(config, memory, partners, params.duplicate_similarity)
        cosine, first = first_max(partners.cosine)
        found = cosine >= params.duplicate_similarity
        # Read both, write both: the first becomes the merged row, the second is free.
        pair = jnp.where(found, jnp.stack([first, read(partners.slot, first)]), config.pool_capacity)
        rows = gather(config, memory, lambda tier: tier, pair)
        keeps, goes = (jax.tree.map(lambda leaf, i=i: leaf[i], rows) for i in (0, 1))
        memory = _put_pooled(config, memory, pair[0], merged(params, keeps, goes, memory.clock))
        core, buffer = (
            dataclasses.replace(tier, id=put(tier.id, _within(config, memory, which, pair[1]), jnp.int32(-1)))
            for which, tier in ((Tier.CORE, memory.core), (Tier.BUFFER, memory.buffer))
        )
        memory = dataclasses.replace(memory, core=core, buffer=buffer)
        ids = jnp.where(found, jnp.stack([keeps.id, goes.id]), -1)
        return (memory, choose(found, _after_merge(config, memory, partners, *pair), partners)), ids

    start = memory, _all_partners(config, memory)
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


def _all_partners(config: Config, memory: Memory) -> _Partners:
    alive = live(memory)
    n = alive.shape[0]

    def nearest(start: Array) -> Array:
        slot = start + jnp.arange(_ROWS, dtype=jnp.int32)
        mine, inv_norm, task, rpe = gather(config, memory, lambda m: (m.embedding, m.inv_norm, m.task, m.rpe), slot)
        mine = directions(mine, inv_norm)
        after_slot = slot.astype(jnp.float32) + 1

        def in_tier(tier: Store, first: int) -> Array:
            place = jnp.arange(first, first + capacity(tier), dtype=jnp.float32)
            dots = of_many_each("anq", tier.embedding[None], mine[None])[0]
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
        cosine=canonical(jnp.where(alive, bound + _ROUNDING, -jnp.inf)),
        # Arrays that vary over the devices of a mesh where memories do.
        slot=jnp.where(alive, jnp.int32(n), jnp.int32(n)),
        known=alive & ~alive,
    )


def _looked_up(config: Config, memory: Memory, partners: _Partners, enough: Float[Array, ""]) -> _Partners:
    """`partners` in which the nearest pair is known, if there may be one of at least `enough`."""

    def in_doubt(partners: _Partners) -> Bool[Array, ""]:
        cosine, first = first_max(partners.cosine)
        return (cosine >= enough) & ~read(partners.known, first)

    def look_up(partners: _Partners) -> _Partners:
        _, first = first_max(partners.cosine)
        return put(partners, first, _nearest_later(_likeness(config, memory, first), first))

    return jax.lax.while_loop(in_doubt, look_up, partners)


def _after_merge(
    config: Config, memory: Memory, partners: _Partners, keeps: Int32[Array, ""], gone: Int32[Array, ""]
) -> _Partners:
    """`partners` after the memory at `gone` was merged into that at `keeps`."""
    slot = jnp.arange(partners.cosine.shape[0], dtype=jnp.int32)
    known = partners.known & (partners.slot != keeps) & (partners.slot != gone)
    near = _likeness(config, memory, keeps)
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


def _likeness(config: Config, memory: Memory, slot: Int32[Array, ""]) -> Float[Array, " N"]:
    """Cosines of the memory at a pool slot with all that it could merge with; -inf for others, itself too."""
    fields = gather(config, memory, lambda m: (m.embedding, m.inv_norm, m.task, m.rpe, m.id), slot)
    mine, inv_norm, task, rpe, id_ = fields
    mine = jnp.where(inv_norm > 0, mine.astype(jnp.float32), 0.0)

    def comparable(tier: Store) -> Array:
        return (tier.task == task) & ((tier.rpe < 0) == (rpe < 0)) & (tier.id >= 0) & (tier.id != id_)

    return canonical(jnp.where(pooled(memory, comparable), pool_cosines(memory, mine), -jnp.inf))


def _sign(rpe: Float[Array, " n"]) -> Float[Array, " n"]:
    return (rpe < 0).astype(jnp.float32)


def _put_pooled(config: Config, memory: Memory, slot: Int32[Array, ""], row: Store) -> Memory:
    """`memory` with `row` at a pool slot; nothing happens at the pool's capacity."""

    def in_tier(tier: Store, which: Tier) -> Store:
        within = _within(config, memory, which, slot)
        return put(tier, within, after(read(tier, within), row))

    core, buffer = in_tier(memory.core, Tier.CORE), in_tier(memory.buffer, Tier.BUFFER)
    return dataclasses.replace(memory, core=core, buffer=buffer)


def _within(config: Config, memory: Memory, which: Tier, slot: Int32[Array, ""]) -> Int32[Array, ""]:
    """The slot of tier `which` that a pool slot is; its capacity where it is another tier's."""
    tier, within = place(config, memory, slot)
    return jnp.where(tier == which, within, capacity(memory.core if which == Tier.CORE else memory.buffer))
