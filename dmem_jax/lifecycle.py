"""What proves useful is strengthened, what disappoints is weakened. Decay itself is in decay.py: it needs no step."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dmem_jax.config import Params
from dmem_jax.counting import add_saturating
from dmem_jax.decay import effective_strength
from dmem_jax.duplicates import relative_magnitude
from dmem_jax.slots import capacity, put, read
from dmem_jax.types import Memory, Recall, Store, Tier

_MAX = float(np.finfo(np.float32).max)


def strengthen(
    params: Params, memory: Memory, recall: Recall, rpe: Float[Array, ""], used: Float[Array, " K"]
) -> Memory:
    """See `memory.reinforce`."""
    now = memory.clock
    acts, memory = _credited(memory, recall, used, jnp.isfinite(rpe))
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

    return _each_recalled(memory, recall, acts & (rpe != 0), used, outcome_met)


def restore(params: Params, memory: Memory, recall: Recall, used: Float[Array, " K"]) -> Memory:
    """See `memory.renew`."""
    now = memory.clock
    acts, memory = _credited(memory, recall, used, jnp.ones_like(memory.clock, bool))

    def foretold(row: Store, used: Array) -> dict[str, Array]:
        strength = effective_strength(params, row, now)
        faded = jnp.maximum(0.0, row.written_strength - strength)
        return {
            "strength": jnp.minimum(strength + params.renew_rate * used * faded, _MAX),
            "touched": jnp.broadcast_to(now, row.touched.shape),
        }

    return _each_recalled(memory, recall, acts, used, foretold)


def count_recalled(memory: Memory, recall: Recall) -> Memory:
    """`memory` after `recall` was handed to the agent. Only counters move: recall must not boost its own winners."""

    def counted(row: Store, _: Array) -> dict[str, Array]:
        return {"recalls": add_saturating(row.recalls, jnp.ones_like(row.recalls))}

    memory = _each_recalled(memory, recall, recall.valid, recall.score, counted)
    total = jnp.sum(recall.valid, dtype=jnp.int32)
    return dataclasses.replace(
        memory, stats=dataclasses.replace(memory.stats, recalled=add_saturating(memory.stats.recalled, total))
    )


def _credited(
    memory: Memory, recall: Recall, used: Float[Array, " K"], finite: Bool[Array, ""]
) -> tuple[Bool[Array, " K"], Memory]:
    """Which recalled memories feedback acts on, and the memory with what is stale or not a number counted."""
    number = finite & jnp.isfinite(used)
    meant = recall.valid & number & (used > 0)
    meant = meant & (recall.tier != Tier.SHADOW)  # which isn't kept for what it is worth
    in_core = recall.tier == Tier.CORE
    id_now = jnp.where(in_core, _ids(memory.core, recall, Tier.CORE), _ids(memory.buffer, recall, Tier.BUFFER))
    present = id_now == recall.id
    stats = dataclasses.replace(
        memory.stats,
        stale=add_saturating(memory.stats.stale, jnp.sum(meant & ~present, dtype=jnp.int32)),
        rejected=add_saturating(memory.stats.rejected, jnp.sum(recall.valid & ~number, dtype=jnp.int32)),
    )
    return meant & present, dataclasses.replace(memory, stats=stats)


def _ids(tier: Store, recall: Recall, which: Tier) -> Array:
    return read(tier.id, jnp.where(recall.tier == which, recall.slot, capacity(tier)))


def _each_recalled(
    memory: Memory,
    recall: Recall,
    acts: Bool[Array, " K"],
    used: Float[Array, " K"],
    change: Callable[[Store, Array], dict[str, Array]],
) -> Memory:
    """`memory` with the fields that `change(rows, used)` gives for the recalled memories that `acts` names."""

    def in_tier(tier: Store, which: Tier) -> Store:
        here = acts & (recall.tier == which)
        slot = jnp.where(here, recall.slot, capacity(tier))
        changed = change(read(tier, slot), jnp.where(here, used, 0.0))
        return dataclasses.replace(tier, **{name: put(getattr(tier, name), slot, new) for name, new in changed.items()})

    core, buffer = in_tier(memory.core, Tier.CORE), in_tier(memory.buffer, Tier.BUFFER)
    return dataclasses.replace(memory, core=core, buffer=buffer)
