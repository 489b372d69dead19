"""A memory, or thousands of them, as flat scalars and histograms for a log."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.conversion import is_concrete
from dmem_jax.decay import effective_strength
from dmem_jax.errors import ArgumentTypeError
from dmem_jax.gating import gate
from dmem_jax.params import Params
from dmem_jax.quantiles import quantiles
from dmem_jax.size import current_scale
from dmem_jax.types import Memory, Stats, Store
from dmem_kernels import elapsed

if TYPE_CHECKING:
    from dmem_jax.ann import Index

QUANTILES = {"q10": 0.1, "q50": 0.5, "q90": 0.9, "q98": 0.98}
BINS = 32


def summary(
    config: Config, params: Params, memory: Memory, index: "Index | None" = None
) -> dict[str, Float32[Array, "*n"]]:
    """What there is to see of a memory, or of many with leading axes: means over agents, quantiles and histograms over
    all their memories. A pure function, also under jit.

    Args:
      index: a `dmem_jax.ann.Index` of the memory: what its `summary` says is told, too. Outside of jit alone.

    Returns:
      float32, never NaN; 0 where there is nothing to tell. Scalars, by name:
        agents; clock: mean, clock units; fill/core, fill/buffer: share of slots in use;
        rpe_abs/q10 .. q98: of what is kept, reward units; rpe/delights: share with rpe >= 0;
        reward/sparsity: share kept whose reward is 0; reward/mean_abs, value/error_rms (reward - value): reward units;
        surprise/scale: mean over agents; size/q10 .. q98: of the last sizes, dropped ones too; gate/opening: mean;
        route/...: share of all experiences that were invalid, dropped, refused, refreshed, merged, stored;
        lost/... and moved/...: evicted, forgotten, merged_later, promoted, demoted per memory stored;
        strength/q10 .. q98: effective, in current scales; age/q10 .. q98: clock units since it happened; idle/q50:
        since touched; recall/per_step: memories returned per clock unit; recall/hit_rate: share ever
        returned; recall/success_rate: successes per time returned; contradicted/share; stats/...: unprobed, stale,
        rejected, exhausted per experience.
      Histograms, [BINS] counts and [BINS + 1] edges: histogram/NAME and histogram/NAME/edges for rpe, size, strength,
      age.

    Raises:
      ArgumentTypeError: named.
    """
    for name, given, kind in (("config", config, Config), ("params", params, Params), ("memory", memory, Memory)):
        if not isinstance(given, kind):
            raise ArgumentTypeError(f"{name}: expected a dmem_jax.{kind.__name__}, got {type(given).__name__}.")
    shards.whole_only(config, "monitor.summary")
    told = _summary(config, params, one_axis(memory))
    if index is None:
        return told
    if not is_concrete(memory.clock):
        raise ArgumentTypeError("index: expected None inside of jit, where what it tells would never change again.")
    return told | index.summary()


def one_axis(memory: Memory) -> Memory:
    """`memory`, of one agent or with any batch axes, with one axis of agents."""
    batch = memory.clock.shape
    return jax.tree.map(lambda leaf: jnp.reshape(leaf, (math.prod(batch), *leaf.shape[len(batch) :])), memory)


def _summary(config: Config, params: Params, memory: Memory) -> dict[str, Array]:
    """Of memories [A]."""
    pool = _pool(memory)
    kept = pool.id >= 0
    scale = jax.vmap(lambda router: current_scale(config, router))(memory.router)
    strength = jax.vmap(lambda tier, now: effective_strength(params, tier, now))(pool, memory.clock) / scale[:, None]
    age, idle = (jax.vmap(elapsed)(memory.clock, times).astype(jnp.float32) for times in (pool.time, pool.touched))
    sizes = memory.router.sizes.values
    seen = jnp.arange(sizes.shape[-1], dtype=jnp.int32)[None, :] < memory.router.seen[:, None]
    stats = memory.stats
    told = {
        "agents": jnp.float32(kept.shape[0]),
        "clock": _mean(memory.clock),
        "fill/core": _share(memory.core.id >= 0),
        "fill/buffer": _share(memory.buffer.id >= 0),
        **_quantiles("rpe_abs", jnp.abs(pool.rpe), kept),
        "rpe/delights": _share(pool.rpe >= 0, kept),
        "reward/sparsity": _share(pool.reward == 0, kept),
        "reward/mean_abs": _mean(jnp.abs(pool.reward), kept),
        "value/error_rms": jnp.sqrt(_mean(jnp.square(pool.reward - pool.value), kept)),
        "surprise/scale": _mean(scale),
        **_quantiles("size", sizes, seen),
        "gate/opening": _mean(gate(params, sizes), seen),
        **_per("route", stats, stats.seen, "invalid", "dropped", "refused", "refreshed", "merged", "stored"),
        **_per("lost", stats, stats.stored, "evicted", "forgotten", "merged_later"),
        **_per("moved", stats, stats.stored, "promoted", "demoted"),
        **_per("stats", stats, stats.seen, "unprobed", "stale", "rejected", "exhausted"),
        **_quantiles("strength", strength, kept),
        **_quantiles("age", age, kept),
        "idle/q50": _quantiles("idle", idle, kept)["idle/q50"],
        "recall/per_step": _ratio(stats.recalled, jnp.maximum(memory.clock, 0)),
        "recall/hit_rate": _share(pool.recalls > 0, kept),
        "recall/success_rate": _ratio(jnp.where(kept, pool.successes, 0), jnp.where(kept, pool.recalls, 0)),
        "contradicted/share": _share(pool.contradicted, kept),
    }
    drawn = {"rpe": (pool.rpe, kept), "size": (sizes, seen), "strength": (strength, kept), "age": (age, kept)}
    for name, (values, there) in drawn.items():
        told |= _histogram(name, values, there)
    return told


def _pool(memory: Memory) -> Store:
    """The small arrays of both tiers, joined on the axis of slots; the wide ones are left out."""
    small = [
        dataclasses.replace(tier, embedding=tier.embedding[..., :0], payload=None, next_embedding=None, discount=None)
        for tier in (memory.core, memory.buffer)
    ]
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), *small)


def _mean(values: Array, there: Bool[Array, "..."] | None = None) -> Array:
    values = values.astype(jnp.float32)
    there = jnp.ones(values.shape, bool) if there is None else there
    n = jnp.maximum(jnp.sum(there, dtype=jnp.int32), 1).astype(jnp.float32)
    return jnp.sum(jnp.where(there, values / n, 0.0))  # divided first: huge numbers must not overflow


def _share(flags: Array, there: Array | None = None) -> Array:
    return _mean(flags, there)


def _ratio(part: Array, whole: Array) -> Array:
    total = jnp.sum(whole.astype(jnp.float32))
    return jnp.sum(part.astype(jnp.float32)) / jnp.where(total > 0, total, 1.0)


def _per(prefix: str, stats: Stats, whole: Array, *names: str) -> dict[str, Array]:
    return {f"{prefix}/{name}": _ratio(getattr(stats, name), whole) for name in names}


def _quantiles(name: str, values: Array, there: Array) -> dict[str, Array]:
    return {f"{name}/{level}": value for level, value in quantiles(values, there, QUANTILES).items()}


def _histogram(name: str, values: Array, there: Array) -> dict[str, Array]:
    least = jnp.min(jnp.where(there, values, jnp.inf))
    greatest = jnp.max(jnp.where(there, values, -jnp.inf))
    some = greatest > least
    least = jnp.where(there.any(), least, 0.0)
    width = jnp.where(some, greatest / BINS - least / BINS, 1.0)
    bin_ = jnp.clip(jnp.floor((values - least) / width), 0, BINS - 1)
    counts = jnp.stack([jnp.sum(there & (bin_ == i), dtype=jnp.float32) for i in range(BINS)])
    edges = least + width * jnp.arange(BINS + 1, dtype=jnp.float32)
    return {f"histogram/{name}": counts, f"histogram/{name}/edges": edges}
