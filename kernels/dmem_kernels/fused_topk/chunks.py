"""Work on a queries x memories matrix, so many queries at a time that the matrix stays small."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

_CHUNK_BYTES = 2**28  # of one float32 matrix: 64 queries x 1,000,000 memories


def map_queries(work: Callable[..., PyTree], slots: int, *per_query: Array) -> PyTree:
    """`work(*per_query)`, in chunks of queries.

    Args:
      work: takes arrays like `per_query`, returns arrays [A, queries, ...].
      slots: N; the matrix is float32 [A, queries, N].
      *per_query: [A, Q, ...], or [A, 1, ...] for what all queries share. The first has Q queries.
    """
    a, q = per_query[0].shape[:2]
    chunks = math.ceil(q / max(1, _CHUNK_BYTES // (4 * a * slots)))
    if chunks == 1:
        return work(*per_query)
    size = math.ceil(q / chunks)  # as even as can be: a copy pads the last

    def split(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, chunks * size - q)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(jnp.reshape(x, (a, chunks, size, *x.shape[2:])), 1, 0)

    def work_on(own: list[Array | None]) -> PyTree:
        return work(*(x if mine is None else mine for x, mine in zip(per_query, own, strict=True)))

    done = jax.lax.map(work_on, [None if x.shape[1] == 1 else split(x) for x in per_query])
    return jax.tree.map(
        lambda x: jnp.reshape(jnp.moveaxis(x, 0, 1), (a, chunks * size, *x.shape[3:]))[:, :q],
        done,
    )
