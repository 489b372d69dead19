"""From an RPE to its size: smoothing, and the running scale that makes sizes free of the unit of reward."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dmem_jax.config import Config
from dmem_jax.counting import add_saturating
from dmem_jax.params import Params
from dmem_jax.slots import put
from dmem_jax.types import Ring, Router

_MIN_NORMAL = float(np.finfo(np.float32).tiny)
_MAX = float(np.finfo(np.float32).max)
_LEAST_SLOPED = 1e-12  # reward units


def current_scale(config: Config, router: Router) -> Float[Array, ""]:
    """The current average surprise in reward units: the bias-corrected exponential mean of |rpe| over every valid
    experience so far, dropped ones too; 1 before the first one and where `Config.scale` is "none".

    Never the mean over what is kept: that one rises as weak memories leave, until nothing gets in any more.
    """
    if config.scale == "none":
        return jnp.ones_like(router.scale_mean)
    mean = jnp.clip(router.scale_mean, _MIN_NORMAL, _MAX)
    # 1 / scale^2, the slope of a size, overflows long before the size does: there the scale counts as a constant.
    mean = jnp.where(mean > _LEAST_SLOPED, mean, jax.lax.stop_gradient(mean))
    return jnp.where(router.scale_weight > 0, mean, 1.0)


def surprise_size(config: Config, router: Router, magnitude: Float[Array, ""]) -> Float[Array, ""]:
    """Size of an experience of |rpe| `magnitude`, before the router has seen it; >= 0, finite; the first one has 1."""
    smoothed = _smoothed(config, router, magnitude)
    if config.scale == "none":
        return smoothed
    size = jnp.minimum(smoothed / current_scale(config, router), _MAX)
    return jnp.where(router.scale_weight > 0, size, 1.0)


def observe(
    config: Config,
    params: Params,
    router: Router,
    magnitude: Float[Array, ""],
    size: Float[Array, ""],
    valid: Bool[Array, ""],
) -> Router:
    """The router after it has seen an experience, whatever became of it."""
    # A mean that moves towards what it sees stays where it is in a constant stream. A decayed sum over its decayed
    # weight would wander by a rounding, and sizes of 1.0000001 would pass for surprises.
    weight = (1 - params.scale_rate) * router.scale_weight + params.scale_rate
    mean = router.scale_mean + params.scale_rate / weight * (magnitude - router.scale_mean)
    magnitudes = router.magnitudes
    return dataclasses.replace(
        router,
        sizes=pushed(router.sizes, size, valid),
        magnitudes=magnitudes if config.smoothing == "none" else pushed(magnitudes, magnitude, valid),
        seen=add_saturating(router.seen, valid),
        scale_mean=jnp.where(valid, mean, router.scale_mean),
        scale_weight=jnp.where(valid, weight, router.scale_weight),
    )


def share_smaller(ring: Ring, seen: Array, value: Float[Array, ""]) -> Float[Array, ""]:
    """Percentile rank in [0, 1): the share of the ring's values strictly smaller than `value`; 0 for an empty ring.

    By counting, not by `jnp.quantile`, whose sort costs hundreds of times as much for a thousand agents.
    """
    held = jnp.arange(ring.values.shape[-1], dtype=jnp.int32) < seen
    smaller = jnp.sum(held & (ring.values < value), dtype=jnp.int32)
    return smaller.astype(jnp.float32) / jnp.maximum(jnp.sum(held, dtype=jnp.int32), 1).astype(jnp.float32)


def _smoothed(config: Config, router: Router, magnitude: Array) -> Array:
    ring = router.magnitudes
    if config.smoothing == "none":
        return magnitude
    if config.smoothing == "rank":
        return share_smaller(ring, router.seen, magnitude)
    last = put(ring.values, ring.cursor, magnitude)
    held = jnp.minimum(router.seen, config.smoothing_window - 1) + 1
    # Divided before the sum: n large magnitudes must not overflow.
    return jnp.sum(last / held.astype(jnp.float32))


def pushed(ring: Ring, value: Array, valid: Array) -> Ring:
    """`ring` with `value` in the place of its oldest, where `valid`."""
    length = ring.values.shape[-1]
    place = jnp.where(valid, ring.cursor, length)
    return Ring(
        values=put(ring.values, place, value),
        cursor=jnp.where(valid, (ring.cursor + 1) % length, ring.cursor),
    )
