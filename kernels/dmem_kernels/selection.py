"""Canonical float32 scores, and selection by them: the least, the greatest, the k best. Ties go to the lower index."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_FEW_LANES, _MANY_LANES = 8, 256  # between these a minimum is taken by halves
_SHORT, _FEW = 512, 16  # up to here selection by rounds is the faster one for many rows, not for a single one


def canonical(scores: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Scores that order the same way everywhere: NaN becomes -inf and -0 becomes +0.

    Written as selects because XLA folds `scores + 0.0` away, and top-k on some backends sorts +0 before -0 and
    returns whole rows of NaN. Eviction, recall and every kernel score through this one function.
    """
    return jnp.where(scores == scores, jnp.where(scores == 0, jnp.zeros_like(scores), scores), -jnp.inf)


def first_min(scores: Float[Array, " n"]) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The least score and the lowest index that has it. `scores` [n >= 1] must be canonical.

    A minimum and a second minimum over indices: on XLA:CPU five times as fast as `argmin`, which reduces pairs.
    """
    least = _least(scores)
    return least, _first_index(scores == least)


def first_max(scores: Float[Array, " n"]) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The greatest score and the lowest index that has it. `scores` [n >= 1] must be canonical."""
    greatest = jnp.max(scores)
    return greatest, _first_index(scores == greatest)


def _first_index(hit: Array) -> Int[Array, ""]:
    n = hit.shape[-1]
    # Up to 2^24 a float32 holds every index exactly, and XLA:CPU reduces floats faster than integers.
    kind = jnp.float32 if n <= 2**24 else jnp.int32
    return _least(jnp.where(hit, jnp.arange(n, dtype=kind), n - 1)).astype(jnp.int32)


def _least(numbers: Array) -> Array:
    """The minimum; of few numbers by halves, for XLA:CPU reduces more than 32 in windows, number by number."""
    while _FEW_LANES < numbers.shape[-1] <= _MANY_LANES and numbers.shape[-1] % 2 == 0:
        half = numbers.shape[-1] // 2
        numbers = jnp.minimum(numbers[:half], numbers[half:])
    return jnp.min(numbers)


def top_k(scores: Float[Array, " n"], k: int) -> tuple[Float[Array, " k"], Int[Array, " k"]]:
    """The `k` best canonical scores, best first, and their indices; rows beyond n are (-inf, n)."""
    n = scores.shape[-1]
    few = min(k, n)
    found, index = _top_k(scores, few)
    return (
        jnp.pad(found, (0, k - few), constant_values=-jnp.inf),
        jnp.pad(index, (0, k - few), constant_values=n),
    )


def _top_k(scores: Array, k: int) -> tuple[Array, Array]:
    def by_xla(scores: Array) -> tuple[Array, Array]:
        found, index = jax.lax.top_k(scores, k)
        return found, index

    if scores.shape[-1] > _SHORT or not 1 <= k <= _FEW:
        return by_xla(scores)
    return jax.lax.platform_dependent(scores, cpu=lambda s: _by_rounds(s, k), default=by_xla)


def _by_rounds(scores: Array, k: int) -> tuple[Array, Array]:
    """The best, then the best of the rest, and so on: for short rows faster on XLA:CPU than its top-k, which sorts
    them one by one on one thread.

    A loop, for what it reads is computed once, before it. Unrolled, XLA computes the scores anew in each fusion, not
    always to the same bit, and the best is then not found among them.
    """
    constant = jax.lax.stop_gradient(scores)
    order = jnp.arange(scores.shape[-1], dtype=jnp.int32)

    def round_of(taken: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        best = jnp.max(jnp.where(taken, -jnp.inf, constant))
        place = _first_index((constant == best) & ~taken)
        return taken | (order == place), (best, place)

    none = jnp.isnan(constant)  # as no canonical score is: an array that varies over devices where scores do
    _, (best, place) = jax.lax.scan(round_of, none, None, length=k)
    return _found_at(scores, place, best), place


@jax.custom_jvp
def _found_at(scores: Array, place: Array, best: Array) -> Array:
    """`best`, the scores at `place`, with their gradients: that of `lax.top_k`, where of equal scores the one that was
    found has all of it."""
    return best


@_found_at.defjvp
def _jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, place, best = primals
    return best, tangents[0].at[place].get(mode="clip", wrap_negative_indices=False)
