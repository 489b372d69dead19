"""Both tiers as one pool: core's slots, then the buffer's. Per-slot numbers of both, and rows from either."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.slots import capacity, keep_rows, over_rows, read
from dmem_jax.types import Memory, Store, Tier
from dmem_kernels import first_max, top_k

Fields = TypeVar("Fields")


def pooled(memory: Memory, of_tier: Callable[[Store], Array]) -> Array:
    """What `of_tier` gives for each slot, [N] over the pool."""
    return jnp.concatenate([of_tier(memory.core), of_tier(memory.buffer)])


def live(memory: Memory) -> Bool[Array, " N"]:
    """Which slots hold a memory."""
    return pooled(memory, lambda tier: tier.id >= 0)


def live_count(config: Config, memory: Memory) -> Int32[Array, ""]:
    """How many slots hold a memory."""
    return shards.total(config, jnp.sum(live(memory), dtype=jnp.int32))


def place(config: Config, memory: Memory, slot: Int32[Array, "*k"]) -> tuple[Int32[Array, "*k"], Int32[Array, "*k"]]:
    """Tier and slot within it of pool slots; the pool's capacity becomes (Tier.BUFFER, its capacity)."""
    core_capacity = shards.capacity(config, memory.core)
    in_core = slot < core_capacity
    tier = jnp.where(in_core, jnp.int32(Tier.CORE), jnp.int32(Tier.BUFFER))
    return tier, jnp.where(in_core, slot, slot - core_capacity)


def gather(config: Config, memory: Memory, fields: Callable[[Store], Fields], slot: Int32[Array, "*k"]) -> Fields:
    """The `fields` at pool slots `slot`; zeros at the pool's capacity."""
    tier, within = place(config, memory, slot)

    def of_tier(which: Tier, store: Store) -> tuple[Bool[Array, "*k"], Fields]:
        elsewhere = shards.capacity(config, store)
        own = shards.here(config, store, jnp.where(tier == which, within, elsewhere))
        return own < capacity(store), read(fields(store), own)

    in_core, from_core = of_tier(Tier.CORE, memory.core)
    in_buffer, from_buffer = of_tier(Tier.BUFFER, memory.buffer)

    def either(a: Array, b: Array) -> Array:
        return jnp.where(over_rows(in_core, a), a, jnp.where(over_rows(in_buffer, b), b, jnp.zeros_like(b)))

    return shards.sent(config, jax.tree.map(either, from_core, from_buffer))


def read_pooled(config: Config, memory: Memory, values: Fields, slot: Int32[Array, "*k"]) -> Fields:
    """Numbers of each slot, as `pooled` gives them, at pool slots `slot`; zeros at the pool's capacity."""
    core, buffer = memory.core, memory.buffer
    tier, within = place(config, memory, slot)
    in_core = tier == Tier.CORE
    own_core, own_buffer = (shards.here(config, store, within) for store in (core, buffer))
    own = jnp.where(in_core, own_core, capacity(core) + own_buffer)
    mine = jnp.where(in_core, own_core < capacity(core), own_buffer < capacity(buffer))
    return shards.sent(config, keep_rows(mine, read(values, own)))


def best(
    config: Config, memory: Memory, scores: Float[Array, " N"], k: int
) -> tuple[Float[Array, " k"], Int32[Array, " k"]]:
    """The k best canonical scores of the pool, best first, and their slots; the lower slot on ties."""
    found, slot = top_k(scores, k)
    if config.slot_axis is None:
        return found, slot
    core, buffer = memory.core, memory.buffer
    in_buffer = shards.capacity(config, core) + shards.first(config, buffer) + slot - capacity(core)
    slot = jnp.where(slot < capacity(core), shards.first(config, core) + slot, in_buffer)
    all_found, all_slots = shards.everywhere(config, (found, slot))
    return joined(jnp.ravel(all_found), jnp.ravel(all_slots), k)


def first_best(config: Config, memory: Memory, scores: Float[Array, " N"]) -> tuple[Float[Array, ""], Int32[Array, ""]]:
    """The best canonical score of the pool and the lowest slot that has it."""
    if config.slot_axis is None:
        return first_max(scores)
    found, slot = best(config, memory, scores, 1)
    return found[0], slot[0]


def joined(
    scores: Float[Array, " n"], slot: Int32[Array, " n"], k: int
) -> tuple[Float[Array, " k"], Int32[Array, " k"]]:
    """The k best of what was found in several places, by score, then slot."""
    descending, slot = jax.lax.sort((-scores, slot), num_keys=2)
    return -descending[:k], slot[:k]
