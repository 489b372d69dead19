"""Who stays and who leaves: the insertion of a newcomer into two tiers of fixed capacity."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.decay import half_life
from dmem_jax.duplicates import updated
from dmem_jax.params import Params
from dmem_jax.slots import after, choose, put, read, with_wide_of
from dmem_jax.types import Memory, Store, Tier
from dmem_kernels import canonical, decayed_key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Placement:
    """Where an experience ended up, or each of many. Ids are -1 where none is meant."""

    stored: Bool[Array, "*b"]  # as a new memory
    merged: Bool[Array, "*b"]  # into its duplicate
    id: Int32[Array, "*b"]  # of the memory that holds it
    tier: Int32[Array, "*b"]
    slot: Int32[Array, "*b"]  # (Tier.BUFFER, its capacity) where nothing was written
    evicted_id: Int32[Array, "*b"]
    demoted_id: Int32[Array, "*b"]
    demoted_slot: Int32[Array, "*b"]  # of the buffer, its capacity where nothing was demoted


def eviction_key(config: Config, params: Params, tier: Tier, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """One float32 per slot: the least leaves first, and what wants to come in must exceed it.

    -inf is a free slot; a live memory of strength 0 stands just above. Strengths that differ by less than some 1e-6 of
    themselves have one logarithm in float32, and tie.
    """
    worth, fades_by = priority(config, params, tier, store)
    return canonical(decayed_key(worth, store.touched, fades_by, store.id >= 0, now))


def strength_key(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """The same by strength alone."""
    return canonical(decayed_key(store.strength, store.touched, half_life(params, store), store.id >= 0, now))


def priority(config: Config, params: Params, tier: Tier, store: Store) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """What a memory stays for, and the half-life by which it fades."""
    if tier == Tier.BUFFER and config.buffer_eviction == "age_frequency":
        worth = 1.0 + store.successes.astype(jnp.float32)
        return worth, jnp.full_like(worth, params.buffer_half_life)
    return store.strength, half_life(params, store)


def insert(
    config: Config,
    params: Params,
    memory: Memory,
    new: Store,
    now: Int32[Array, ""],
    *,
    to_core: Bool[Array, ""],
    to_buffer: Bool[Array, ""],
    duplicate: Int32[Array, ""],
    is_duplicate: Bool[Array, ""],
) -> tuple[Memory, Placement]:
    """`memory` with the row `new` in it, or with its duplicate updated.

    A newcomer takes the lowest free slot of its tier, else the slot of the weakest memory there if it is stronger.
    What core refuses, and what it pushes out, enters the buffer by the same rule.

    Args:
      new: the row to insert; its id is the one it gets if it is stored.
      to_core, to_buffer: the tier it wants; neither: nothing is written.
      duplicate: pool slot of the memory that says the same, where `is_duplicate` (which implies one of the above).
    """
    core, buffer = memory.core, memory.buffer
    core_capacity, buffer_capacity = shards.capacity(config, core), shards.capacity(config, buffer)
    in_core = is_duplicate & (duplicate < core_capacity)
    in_buffer = is_duplicate & ~in_core
    newcomer = (to_core | to_buffer) & ~is_duplicate

    # Each tier is read at one slot and written at the same one: the duplicate's or the victim's.
    weakest, victim = shards.weakest(config, core, eviction_key(config, params, Tier.CORE, core, now))
    core_slot = jnp.where(in_core, duplicate, victim)
    core_row = shards.read(config, core, core_slot)
    core_takes = newcomer & to_core & (eviction_key(config, params, Tier.CORE, new, now) > weakest)
    pushed_out = core_takes & (core_row.id >= 0)

    asks_buffer = pushed_out | (newcomer & ~core_takes)
    asking = choose(pushed_out, core_row, new)
    if buffer_capacity > 0:
        weakest, victim = shards.weakest(config, buffer, eviction_key(config, params, Tier.BUFFER, buffer, now))
        buffer_slot = jnp.where(in_buffer, duplicate - core_capacity, victim)
        buffer_row = shards.read(config, buffer, buffer_slot)
        buffer_takes = asks_buffer & (eviction_key(config, params, Tier.BUFFER, asking, now) > weakest)
    else:
        buffer_slot, buffer_row, buffer_takes = jnp.int32(0), core_row, jnp.zeros_like(asks_buffer)
    # The buffer's weakest leaves, or else what core pushed out and the buffer does not take.
    evicted_id = jnp.where(buffer_takes, buffer_row.id, jnp.where(pushed_out, core_row.id, -1))

    core_value, buffer_value, merges = new, asking, jnp.zeros_like(newcomer)
    if config.duplicates != "off":
        # Of each tier's own row. Were the row chosen first, each tier's write would read the other tier.
        known_in_core, core_merges = updated(params, core_row, new, now)
        known_in_buffer, buffer_merges = updated(params, buffer_row, new, now)
        merges = jnp.where(in_core, core_merges, buffer_merges)
        core_value, buffer_value = choose(in_core, known_in_core, new), choose(in_buffer, known_in_buffer, asking)
    buffer_written = jnp.where(in_buffer | buffer_takes, buffer_slot, buffer_capacity)
    core_waits_for = core_row
    if buffer_capacity > 0:
        own_slot = shards.here(config, buffer, buffer_written)
        buffer = put(buffer, own_slot, after(buffer_row, buffer_value))
        # XLA may read core's row anew in the buffer's write, so core's own waits for what that wrote. (Small arrays
        # wait for their row alone: to copy them costs little.)
        core_waits_for = with_wide_of(read(buffer, own_slot), core_row)
    core_written = jnp.where(in_core | core_takes, core_slot, core_capacity)
    core = put(core, shards.here(config, core, core_written), after(core_waits_for, core_value))

    holds_in_core = in_core | core_takes
    stored = core_takes | (newcomer & buffer_takes)
    known_id = jnp.where(in_core, core_row.id, buffer_row.id)
    placement = Placement(
        stored=stored,
        merged=is_duplicate & merges,
        id=jnp.where(is_duplicate, known_id, jnp.where(stored, new.id, -1)),
        tier=jnp.where(holds_in_core, jnp.int32(Tier.CORE), jnp.int32(Tier.BUFFER)),
        slot=jnp.where(holds_in_core, core_slot, buffer_written),
        evicted_id=evicted_id,
        demoted_id=jnp.where(pushed_out & buffer_takes, core_row.id, -1),
        demoted_slot=jnp.where(pushed_out, buffer_written, buffer_capacity),
    )
    return dataclasses.replace(memory, core=core, buffer=buffer), placement
