"""Quantiles of what a mask leaves, with fixed shapes."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def quantiles(
    values: Float[Array, "*n"], there: Bool[Array, "*n"], levels: Mapping[str, float]
) -> dict[str, Float[Array, ""]]:
    """The quantiles of `values` where `there`, by the names of their `levels` in [0, 1]: interpolated linearly, as
    `jnp.quantile` does; 0 where nothing is there."""
    ordered = jnp.sort(jnp.where(there, values, jnp.inf).reshape(-1))
    last = jnp.maximum(jnp.sum(there, dtype=jnp.int32) - 1, 0)

    def quantile(level: float) -> Array:
        position = level * last.astype(jnp.float32)
        below = jnp.floor(position).astype(jnp.int32)
        low, high = ordered[below], ordered[jnp.minimum(below + 1, last)]
        return jnp.where(there.any(), low + (position - jnp.floor(position)) * (high - low), 0.0)

    return {name: quantile(level) for name, level in levels.items()}
