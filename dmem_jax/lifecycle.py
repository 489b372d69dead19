"""What proves useful is strengthened, what disappoints is weakened. Decay itself is in decay.py: it needs no step."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.counting import add_saturating
from dmem_jax.decay import effective_strength
from dmem_jax.duplicates import relative_magnitude
from dmem_jax.params import Params
from dmem_jax.slots import capacity, keep_rows, put, read
from dmem_jax.types import Memory, Recall, ReplayBatch, Store, Tier

Rows = Recall | ReplayBatch
"""Memories that were handed out, with place and id."""
Told = TypeVar("Told")

_MAX = float(np.finfo(np.float32).max)


def strengthen(
    config: Config, params: Params, memory: Memory, recall: Recall, rpe: Float[Array, ""], used: Float[Array, " K"]
) -> Memory:
    """See `memory.reinforce`."""
    now = memory.clock
    acts, memory = still_there(config, memory, recall, used > 0, jnp.isfinite(rpe) & jnp.isfinite(used))
    better = rpe > 0

    def outcome_met(row: Store, used: Array) -> dict[str, Array]:
        strength = effective_strength(params, row, now)
        # A gain never lifts above the cap, and what stands above it already stays.
        cap = jnp.minimum(params.strength_cap * row.written_strength, _MAX)
        gained = jnp.minimum(strength + params.reinforce_rate * used * rpe, cap)
        loss = params.weaken_rate * used * relative_magnitude(rpe, row.rpe)
        weakened = row.strength * jnp.maximum(0.0, 1.0 - loss)
        return {
            "strength": jnp.where(better, jnp.maximum(strength, gained), weakened),
            "touched": jnp.where(better, now, row.touched),
            "successes": add_saturating(row.successes, better),
        }

    return change_each(config, memory, recall, acts & (rpe != 0), used, outcome_met)


def restore(config: Config, params: Params, memory: Memory, recall: Recall, used: Float[Array, " K"]) -> Memory:
    """See `memory.renew`."""
    now = memory.clock
    acts, memory = still_there(config, memory, recall, used > 0, jnp.isfinite(used))

    def foretold(row: Store, used: Array) -> dict[str, Array]:
        strength = effective_strength(params, row, now)
        faded = jnp.maximum(0.0, row.written_strength - strength)
        return {
            "strength": jnp.minimum(strength + params.renew_rate * used * faded, _MAX),
            "touched": jnp.broadcast_to(now, row.touched.shape),
        }

    return change_each(config, memory, recall, acts, used, foretold)


def count_recalled(config: Config, memory: Memory, recall: Recall) -> Memory:
    """`memory` after `recall` was handed to the agent. Only counters move: recall must not boost its own winners."""

    def counted(row: Store, _: Array) -> dict[str, Array]:
        return {"recalls": add_saturating(row.recalls, jnp.ones_like(row.recalls))}

    memory = change_each(config, memory, recall, recall.valid, recall.score, counted)
    total = jnp.sum(recall.valid, dtype=jnp.int32)
    return dataclasses.replace(
        memory, stats=dataclasses.replace(memory.stats, recalled=add_saturating(memory.stats.recalled, total))
    )


def still_there(
    config: Config, memory: Memory, rows: Rows, meant: Bool[Array, " K"], number: Bool[Array, " K"]
) -> tuple[Bool[Array, " K"], Memory]:
    """Which of the memories that feedback is `meant` for are still in their places, and `memory` with those that are
    not counted as stale, and feedback that is no `number` as rejected."""
    kept = rows.valid & (rows.tier != Tier.SHADOW)  # a shadow isn't kept for what it is worth
    meant = meant & kept & number
    there = _own_slots(config, memory.core, rows, Tier.CORE), _own_slots(config, memory.buffer, rows, Tier.BUFFER)
    found = [
        (slot < capacity(tier)) & (read(tier.id, slot) == rows.id)
        for tier, slot in zip((memory.core, memory.buffer), there, strict=True)
    ]
    present = shards.total(config, (found[0] | found[1]).astype(jnp.int32)) > 0
    stats = dataclasses.replace(
        memory.stats,
        stale=add_saturating(memory.stats.stale, jnp.sum(meant & ~present, dtype=jnp.int32)),
        rejected=add_saturating(memory.stats.rejected, jnp.sum(kept & ~number, dtype=jnp.int32)),
    )
    return meant & present, dataclasses.replace(memory, stats=stats)


def change_each(
    config: Config,
    memory: Memory,
    rows: Rows,
    acts: Bool[Array, " K"],
    told: Told,
    change: Callable[[Store, Told], dict[str, Array]],
) -> Memory:
    """`memory` with the fields that `change(rows, told)` gives for the memories that `acts` names; `told` [K, ...] is
    what there is to say of each."""

    def in_tier(tier: Store, which: Tier) -> Store:
        meant = acts & (rows.tier == which)
        slot = jnp.where(meant, _own_slots(config, tier, rows, which), capacity(tier))
        changed = change(read(tier, slot), keep_rows(meant, told))
        return dataclasses.replace(tier, **{name: put(getattr(tier, name), slot, new) for name, new in changed.items()})

    core, buffer = in_tier(memory.core, Tier.CORE), in_tier(memory.buffer, Tier.BUFFER)
    return dataclasses.replace(memory, core=core, buffer=buffer)


def _own_slots(config: Config, tier: Store, rows: Rows, which: Tier) -> Array:
    """Their slots on this device; its capacity for rows that are not in this tier, or another device's."""
    return shards.here(config, tier, jnp.where(rows.tier == which, rows.slot, shards.capacity(config, tier)))
