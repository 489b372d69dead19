"""What a kernel that works by tiles keeps of each, and how that is brought together."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_kernels.fused_topk.terms import Found, Rule
from dmem_kernels.selection import top_k


def kept(rule: Rule) -> int:
    """How many of a tile a kernel must keep; k make the result exact."""
    return rule.k if rule.keep_per_tile is None else min(rule.k, rule.keep_per_tile)


def merged(
    k: int,
    slots: int,
    scores: Float[Array, "A tiles Q keep"],
    indices: Int32[Array, "A tiles Q keep"],
) -> Found:
    """The k best of what the tiles kept. Within a tile ties are in order of slots, and so are the tiles."""
    a, tiles, q, keep = scores.shape

    def by_query(x: Array) -> Array:
        return jnp.reshape(jnp.moveaxis(x, 1, 2), (a, q, tiles * keep))

    best, place = jax.vmap(jax.vmap(lambda row: top_k(row, k)))(by_query(scores))
    place = jnp.where(best > -jnp.inf, place, tiles * keep)
    return Found(best, jnp.take_along_axis(by_query(indices), place, axis=2, mode="fill", fill_value=slots))
