"""Dot products with rows that are kept in fewer bytes, summed in float32.

XLA:CPU has no fast product of narrow numbers. It widens all rows first, and writes them; or, told to multiply and sum,
it goes number by number. So there some rows at a time are widened, and multiplied while they are in the cache: of
int8 nothing else is read from memory, of bfloat16 one copy is made first. Elsewhere compilers fuse the widening with
what follows.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Shaped

_BLOCK = 2**19  # numbers that are widened at once
_HIGHEST = jax.lax.Precision.HIGHEST


def dots(rows: Shaped[Array, "N D"], vector: Float[Array, " D"]) -> Float[Array, " N"]:
    """Of each row with `vector`, in float32.

    Under `vmap` it is one larger product: of many memories with a vector each, or of one memory with many vectors. It
    has gradients, in `rows` where they are floats.
    """
    if rows.dtype == jnp.float32:
        return jnp.einsum("nd,d->n", rows, vector, precision=_HIGHEST)
    return _narrow(rows[None], vector[None, None])[0, 0]


def of_one_each(rows: Shaped[Array, "A N D"], vectors: Float[Array, "A D"]) -> Float[Array, "A N"]:
    """Of the rows of each memory with a vector of its own."""

    def fused(rows: Array, vectors: Array) -> Array:
        return jnp.sum(rows.astype(jnp.float32) * vectors[:, None, :], axis=-1)

    return _einsum("and,ad->an", rows, vectors, fused)


def of_many_each(order: str, rows: Shaped[Array, "A N D"], vectors: Float[Array, "A Q D"]) -> Float[Array, "A _ _"]:
    """Of the rows of each memory with several vectors, in `order` "anq" or "aqn"."""

    def fused(rows: Array, vectors: Array) -> Array:
        return jnp.einsum(f"and,aqd->{order}", rows.astype(jnp.float32), vectors, precision=_HIGHEST)

    return _einsum(f"and,aqd->{order}", rows, vectors, fused)


def _einsum(equation: str, rows: Array, vectors: Array, fused: Any) -> Array:
    if rows.dtype == jnp.float32 or rows.size == 0 or vectors.size == 0:
        return jnp.einsum(equation, rows.astype(jnp.float32), vectors, precision=_HIGHEST)
    return jax.lax.platform_dependent(rows, vectors, cpu=functools.partial(_by_blocks, equation), default=fused)


def _by_blocks(equation: str, rows: Shaped[Array, "A N D"], vectors: Float[Array, "A *Q D"]) -> Array:
    a, n, d = rows.shape
    by_memory = a > 1 and n * d <= _BLOCK
    letter, axis, size = ("a", 0, _BLOCK // (n * d)) if by_memory else ("n", 1, max(1, _BLOCK // (a * d)))
    length = rows.shape[axis]
    size = min(size, length)
    place = equation.partition("->")[2].index(letter)
    # Without an axis of one memory: XLA:CPU would take a change of shape into the write of a row, and write all again.
    widened, narrow = _widening(rows[0] if a == 1 else rows)

    def block(i: Array, found: Array) -> Array:
        start = jnp.minimum(i * size, length - size)  # the last one may do some rows again
        some = widened(jax.lax.dynamic_slice_in_dim(narrow, start, size, narrow.ndim - 3 + axis))
        some = jnp.reshape(some, (-1, *some.shape[-2:]))
        own = vectors if axis else jax.lax.dynamic_slice_in_dim(vectors, start, size)
        products = jnp.einsum(equation, some, own, precision=_HIGHEST)
        return jax.lax.dynamic_update_slice_in_dim(found, products, start, place)

    # All of it is overwritten: an array of the right shape, which varies over devices where either of these does.
    begin = jnp.einsum(equation, jnp.reshape(widened(narrow[..., :1]), (a, n, 1)), vectors[..., :1])
    return jax.lax.fori_loop(0, -(-length // size), block, begin)


def _widening(rows: Array) -> tuple[Callable[[Array], Array], Array]:
    """A function that makes float32 of narrow numbers, and these in the form that it wants."""
    if rows.dtype != jnp.bfloat16:
        return lambda x: x.astype(jnp.float32), rows

    def shifted(bits: Array) -> Array:
        return jax.lax.bitcast_convert_type(bits.astype(jnp.uint32) << jnp.uint32(16), jnp.float32)

    # The bits of a bfloat16 are the upper half of a float32's. Told to convert it, XLA:CPU would do so with all rows
    # before the loop; as bits it copies them.
    return shifted, jax.lax.bitcast_convert_type(rows, jnp.uint16)


@jax.custom_jvp
def _narrow(rows: Shaped[Array, "A N D"], vectors: Float[Array, "A Q D"]) -> Float[Array, "A Q N"]:
    return _as_one_product(rows, vectors)


@_narrow.defjvp
def _jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    rows, vectors = primals

    def linear(rows: Array, vectors: Array) -> Array:
        return jnp.einsum("and,aqd->aqn", rows.astype(jnp.float32), vectors, precision=_HIGHEST)

    change = linear(rows, tangents[1])
    if jnp.issubdtype(rows.dtype, jnp.floating):
        change = change + linear(tangents[0], vectors)
    return _narrow(rows, vectors), change


@custom_vmap
def _as_one_product(rows: Shaped[Array, "A N D"], vectors: Float[Array, "A Q D"]) -> Float[Array, "A Q N"]:
    if vectors.shape[1] == 1:
        return of_one_each(rows, vectors[:, 0])[:, None]
    return of_many_each("aqn", rows, vectors)


@_as_one_product.def_vmap
def _larger(size: int, batched: list[bool], rows: Array, vectors: Array) -> tuple[Array, bool]:
    *_, a, q, d = vectors.shape
    n = rows.shape[-2]
    if batched[0]:  # more memories
        vectors = vectors if batched[1] else jnp.broadcast_to(vectors, (size, a, q, d))
        found = _as_one_product(jnp.reshape(rows, (size * a, n, d)), jnp.reshape(vectors, (size * a, q, d)))
        return jnp.reshape(found, (size, a, q, n)), True
    vectors = jnp.reshape(jnp.moveaxis(vectors, 0, 1), (a, size * q, d))  # more vectors of the same memories
    found = jnp.reshape(_as_one_product(rows, vectors), (a, size, q, n))
    return jnp.moveaxis(found, 1, 0), True
