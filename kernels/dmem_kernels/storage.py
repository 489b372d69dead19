"""Vectors in fewer bytes: as float32, bfloat16, or int8 with a scale for each."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Shaped

_LEVELS = 127.0  # of int8 on either side of 0


class Stored(NamedTuple):
    """vector = scale * values."""

    values: Shaped[Array, "*b D"]
    scale: Float[Array, "*b"] | None  # int8 alone


def encode(vectors: Float[Array, "*b D"], dtype: DTypeLike) -> Stored:
    """`vectors`, finite float32, as near as the dtype holds them. A row of int8 spans -127 .. 127."""
    if jnp.dtype(dtype) != jnp.int8:
        return Stored(vectors.astype(dtype), None)
    scale = jnp.max(jnp.abs(vectors), axis=-1) / _LEVELS
    # What is so small that its scale underflows is stored as 0.
    some = scale > 0
    levels = jnp.round(vectors / jnp.where(some, scale, 1.0)[..., None])
    levels = jnp.where(some[..., None], jnp.clip(levels, -_LEVELS, _LEVELS), 0.0)
    return Stored(levels.astype(jnp.int8), scale)


def decode(stored: Stored) -> Float[Array, "*b D"]:
    """The vectors, in float32."""
    vectors = stored.values.astype(jnp.float32)
    return vectors if stored.scale is None else stored.scale[..., None] * vectors
