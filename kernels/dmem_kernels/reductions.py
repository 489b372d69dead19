"""Greatest and sum of what is computed on the way, so that XLA:CPU writes it nowhere.

XLA:CPU gives a maximum or a sum to a library, for which it first writes what is to be reduced to memory. A step written
out by hand it computes inside of the loop that makes its input, provided that the axis is short, and by vectors,
provided that it is not the last. Numbers that are none are left out on the way.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

RUN = 16  # the longest axis: a reduction over more is rewritten into one that is not fused
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
    if x.shape[axis] == 1:  # XLA would take the one for the result, be it NaN
        return kind.step(jnp.float32(kind.start), jnp.squeeze(x, axis))
    return jax.lax.reduce(x, np.float32(kind.start), kind.step, (axis,))


def run_of(size: int) -> int:
    """How many steps of an axis of this size to take at once: the most that divide it."""
    return max(run for run in range(1, RUN + 1) if size % run == 0)


def reduced_rows(kind: Reduction, x: Float[Array, "*rows n"]) -> Float[Array, "*rows 1"]:
    """Along the last axis, in runs over `_LANES` neighbours at a time."""
    *rows, n = x.shape
    lanes = math.gcd(n, _LANES)
    runs = jnp.reshape(x, (*rows, -1, run_of(n // lanes), lanes))
    parts = stepwise(kind, runs, runs.ndim - 2)
    return kind.of_few(jnp.reshape(parts, (*rows, -1)), axis=-1, keepdims=True)
