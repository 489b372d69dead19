"""Cosines between one vector and all embeddings of a memory: the one pass over the embeddings that a step makes."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from dmem_jax.types import Memory
from dmem_kernels import dots


def inverse_norm(vector: Float[Array, "*b D"]) -> Float[Array, "*b"]:
    """1 / Euclidean norm in float32; 0 where the norm is 0, and with gradient 0 there."""
    squares = jnp.sum(jnp.square(vector), axis=-1)
    some = squares > 0
    return jnp.where(some, 1.0 / jnp.sqrt(jnp.where(some, squares, 1.0)), 0.0)


def directions(embedding: Shaped[Array, "*n D"], inv_norm: Float[Array, "*n"]) -> Float[Array, "*n D"]:
    """What a `Store` holds, at length 1; 0 where a norm is 0."""
    return embedding.astype(jnp.float32) * inv_norm[..., None]


def pool_cosines(memory: Memory, vector: Float[Array, " D"]) -> Float[Array, " N"]:
    """Cosine of `vector` with every slot, core's first; 0 where a norm is 0. Free slots hold whatever was there."""
    tiers = memory.core, memory.buffer
    return jnp.concatenate([cosines(tier.embedding, tier.inv_norm, vector) for tier in tiers])


def cosines(
    embedding: Shaped[Array, "n D"], inv_norm: Float[Array, " n"], vector: Float[Array, " D"]
) -> Float[Array, " n"]:
    """Cosine of `vector` with each row of `embedding`, whose inverse norms are given."""
    return dots(embedding, vector) * inv_norm * inverse_norm(vector)
