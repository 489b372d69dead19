"""int32 arithmetic that saturates: counters and clocks of a life longer than 2^31 steps stop, they never wrap."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

INT32_MAX = int(np.iinfo(np.int32).max)
_INT32_MIN = int(np.iinfo(np.int32).min)


def add_saturating(counter: Int32[Array, "*n"], amount: Array) -> Int32[Array, "*n"]:
    """counter + amount, at most 2^31 - 1; `amount` >= 0, an integer or a bool."""
    amount = amount.astype(jnp.int32)
    return jnp.where(counter > INT32_MAX - amount, INT32_MAX, counter + amount)


def subtract_saturating(left: Int32[Array, "*#n"], right: Int32[Array, "*#n"]) -> Int32[Array, "*n"]:
    """left - right, held within int32."""
    difference = left - right
    overflows = (right < 0) & (left > INT32_MAX + jnp.minimum(right, 0))
    underflows = (right > 0) & (left < _INT32_MIN + jnp.maximum(right, 0))
    return jnp.where(overflows, INT32_MAX, jnp.where(underflows, _INT32_MIN, difference))
