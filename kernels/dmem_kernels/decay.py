"""What fades by half-lives, in log space: there it keeps its order long after the number itself underflowed to 0."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

INT32_MAX = int(np.iinfo(np.int32).max)
_LEAST = float(np.finfo(np.float32).min)


def elapsed(now: Int32[Array, ""], then: Int32[Array, "*n"]) -> Int32[Array, "*n"]:
    """now - then, held within int32, for `then` <= `now`: the difference is then right as an unsigned number."""
    apart = now.astype(jnp.uint32) - then.astype(jnp.uint32)
    return jnp.minimum(apart, jnp.uint32(INT32_MAX)).astype(jnp.int32)


def age(now: Int32[Array, ""], then: Int32[Array, "*n"]) -> Float[Array, "*n"]:
    """now - then as a float, for `then` <= `now`."""
    return elapsed(now, then).astype(jnp.float32)


def log2_decayed(strength: Float[Array, "*n"], half_lives: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """log2(strength * 2^-half_lives); -inf where `strength` is 0."""
    some = strength > 0
    # The select stands between the logarithm, which ends in a product, and the difference: XLA:CPU makes one rounding
    # of a product and a difference in one fusion and two in another, and a tie would fall both ways in one write.
    return jnp.where(some, jnp.log2(jnp.where(some, strength, 1.0)), -jnp.inf) - half_lives


def decayed_key(
    strength: Float[Array, "*n"],
    touched: Int32[Array, "*n"],
    half_life: Float[Array, "*n"],
    live: Bool[Array, "*n"],
    now: Int32[Array, ""],
) -> Float[Array, "*n"]:
    """The order in which slots are given up, the least first: log2 of what is left of the strength.

    -inf is a free slot; a live one of strength 0 stands just above. Strengths that differ by less than some 1e-6 of
    themselves have one logarithm in float32, and tie.
    """
    key = log2_decayed(strength, age(now, touched) / half_life)
    return jnp.where(live, jnp.maximum(key, _LEAST), -jnp.inf)
