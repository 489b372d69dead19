"""From a vector a token to a vector a text. n rows, l tokens a row, h the hidden size."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len")
"""In the order in which sentence-transformers joins them, where a model has several."""


def pooled(how: str, x: Float32[Array, "n l h"], mask: Bool[Array, "n l"]) -> Float32[Array, "n h"]:
    """cls: that of the first token. Over all tokens: max, mean, and mean_sqrt_len, the sum over the root of the count.

    A row without a token gives zeros, except by "cls".
    """
    if how == "cls":
        return x[:, 0]
    count = jnp.maximum(mask.sum(axis=1, keepdims=True, dtype=jnp.int32), 1).astype(jnp.float32)
    if how == "max":
        highest = jnp.where(mask[:, :, None], x, -jnp.inf).max(axis=1)
        return jnp.where(mask.any(axis=1, keepdims=True), highest, 0.0)
    total = jnp.where(mask[:, :, None], x, 0.0).sum(axis=1)
    return total / (jnp.sqrt(count) if how == "mean_sqrt_len" else count)


def normalised(x: Float32[Array, "n h"]) -> Float32[Array, "n h"]:
    """Of length 1; zeros stay zeros, with a gradient that is finite."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, axis=-1, keepdims=True), 1e-24))
