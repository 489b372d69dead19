"""Greatest and sum of what is computed on the way, so that XLA:CPU writes it nowhere.

XLA:CPU gives a maximum or a sum to a library, for which it first writes what is to be reduced to memory. Steps written
out one by one it computes inside of the loop that makes their input, by vectors where the axis is not the last. They
are no reduction of our own making, either: where slots are sharded, devices could not join the results of one. Numbers
that are none are left out on the way.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

RUN = 16  # steps that are written out at most
_LANES = 64


class Reduction(NamedTuple):
    """A maximum or a sum that leaves NaN out."""

    start: float
    step: Callable[[Array, Array], Array]
    of_few: Callable[..., Array]  # the same in jnp, for results of `step`


def _greater(a: Array, b: Array) -> Array:
    return jnp.where((b > a) | (a != a), b, a)


def _sum(a: Array, b: Array) -> Array:
    return jnp.where(a == a, a, jnp.zeros_like(a)) + jnp.where(b == b, b, jnp.zeros_like(b))


GREATEST = Reduction(-math.inf, _greater, jnp.max)
SUM = Reduction(0.0, _sum, jnp.sum)


def stepwise(kind: Reduction, x: Float[Array, "*shape"], axis: int) -> Float[Array, "*rest"]:
    """Over an axis, which should be one of a few."""
    if not 1 <= x.shape[axis] <= RUN:
        return kind.of_few(jnp.where(x == x, x, kind.start), axis=axis, initial=kind.start)
    parts = (jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))
    return functools.reduce(kind.step, parts, jnp.float32(kind.start))


def run_of(size: int) -> int:
    """How many steps of an axis of this size to take at once: the most that divide it."""
    return max(run for run in range(1, RUN + 1) if size % run == 0)


def reduced_rows(kind: Reduction, x: Float[Array, "*rows n"]) -> Float[Array, "*rows 1"]:
    """Along the last axis, in runs over `_LANES` neighbours at a time."""
    *rows, n = x.shape
    lanes = math.gcd(n, _LANES)
    run = run_of(n // lanes)
    parts = stepwise(kind, jnp.reshape(x, (*rows, n // lanes // run, run, lanes)), len(rows) + 1)
    return kind.of_few(jnp.reshape(parts, (*rows, n // run)), axis=-1, keepdims=True)
