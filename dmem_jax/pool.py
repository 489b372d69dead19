"""Both tiers as one pool: core's slots, then the buffer's. Per-slot numbers of both, and rows from either."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, PyTree

from dmem_jax.slots import capacity, read
from dmem_jax.types import Memory, Store, Tier

Fields = TypeVar("Fields")


def pooled(memory: Memory, of_tier: Callable[[Store], Array]) -> Array:
    """What `of_tier` gives for each slot, [N] over the pool."""
    return jnp.concatenate([of_tier(memory.core), of_tier(memory.buffer)])


def live(memory: Memory) -> Bool[Array, " N"]:
    """Which slots hold a memory."""
    return pooled(memory, lambda tier: tier.id >= 0)


def live_count(memory: Memory) -> Int32[Array, ""]:
    """How many slots hold a memory."""
    return jnp.sum(live(memory), dtype=jnp.int32)


def place(memory: Memory, slot: Int32[Array, "*k"]) -> tuple[Int32[Array, "*k"], Int32[Array, "*k"]]:
    """Tier and slot within it of pool slots; the pool's capacity becomes (Tier.BUFFER, its capacity)."""
    core_capacity = capacity(memory.core)
    in_core = slot < core_capacity
    tier = jnp.where(in_core, jnp.int32(Tier.CORE), jnp.int32(Tier.BUFFER))
    return tier, jnp.where(in_core, slot, slot - core_capacity)


def gather(memory: Memory, fields: Callable[[Store], Fields], slot: Int32[Array, "*k"]) -> Fields:
    """The `fields` at pool slots `slot`; zeros at the pool's capacity."""
    core_capacity, pool = capacity(memory.core), capacity(memory.core) + capacity(memory.buffer)
    in_core, in_buffer = slot < core_capacity, (slot >= core_capacity) & (slot < pool)
    from_core = read(fields(memory.core), slot)
    from_buffer = read(fields(memory.buffer), jnp.maximum(0, slot - core_capacity))

    def either(a: Array, b: Array) -> Array:
        return jnp.where(over_rows(in_core, a), a, jnp.where(over_rows(in_buffer, b), b, jnp.zeros_like(b)))

    return jax.tree.map(either, from_core, from_buffer)


def keep_rows(valid: Bool[Array, "*k"], rows: PyTree) -> PyTree:
    """`rows` where `valid`, zeros elsewhere."""
    return jax.tree.map(lambda leaf: jnp.where(over_rows(valid, leaf), leaf, jnp.zeros_like(leaf)), rows)


def over_rows(flag: Array, rows: Array) -> Array:
    """`flag` [*k] with axes of 1, so that it goes with `rows` [*k, ...]."""
    return flag.reshape(flag.shape + (1,) * (rows.ndim - flag.ndim))
