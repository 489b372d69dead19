"""What is told of an experience once its place is known, and the counters after it."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool

from dmem_jax.counting import add_saturating
from dmem_jax.insertion import Placement
from dmem_jax.judging import Verdict
from dmem_jax.types import Experience, Route, Stats, Tier, WriteInfo


def account(
    stats: Stats,
    experience: Experience,
    verdict: Verdict,
    placed: Placement,
    *,
    admitted: Bool[Array, "*b"],
    is_duplicate: Bool[Array, "*b"],
    is_contradiction: Bool[Array, "*b"],
    unprobed: Bool[Array, "*b"],
) -> tuple[Stats, WriteInfo]:
    """What is told of an experience, and the counters after it; or of many at once, all of them with axes [*b]."""
    kept_as = jnp.where(placed.tier == Tier.CORE, jnp.int32(Route.CORE), jnp.int32(Route.BUFFER))
    kept_as = jnp.where(placed.stored, kept_as, jnp.int32(Route.REFUSED))
    kept_as = jnp.where(is_duplicate, jnp.int32(Route.REFRESHED), kept_as)
    kept_as = jnp.where(placed.merged, jnp.int32(Route.MERGED), kept_as)
    kept_as = jnp.where(admitted, kept_as, jnp.int32(Route.DROPPED))
    became = jnp.where(verdict.valid, kept_as, jnp.int32(Route.INVALID))
    info = WriteInfo(
        route=became,
        id=placed.id,
        tier=placed.tier,
        slot=placed.slot,
        rpe=jnp.where(verdict.valid, experience.rpe, 0.0),
        size=jnp.where(verdict.valid, verdict.size, 0.0),
        gate=jnp.where(verdict.valid, verdict.opening, 0.0),
        evicted_id=placed.evicted_id,
        demoted_id=placed.demoted_id,
        merged_id=jnp.where(is_duplicate, placed.id, -1),
    )
    happened = {
        "seen": experience.valid,
        "invalid": experience.valid & ~verdict.valid,
        "dropped": became == Route.DROPPED,
        "refused": became == Route.REFUSED,
        "refreshed": became == Route.REFRESHED,
        "merged": became == Route.MERGED,
        "stored": placed.stored,
        "evicted": placed.evicted_id >= 0,
        "demoted": placed.demoted_id >= 0,
        "contradicted": is_contradiction,
        "unprobed": unprobed,
        "exhausted": verdict.valid & ~admitted & (verdict.route != Route.DROPPED),
    }
    raised = {
        name: add_saturating(getattr(stats, name), jnp.sum(times, dtype=jnp.int32)) for name, times in happened.items()
    }
    return dataclasses.replace(stats, **raised), info
