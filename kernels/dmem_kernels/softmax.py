"""Softmax over some of a row."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dmem_kernels.reductions import GREATEST, SUM, reduced_rows

_MAX = float(np.finfo(np.float32).max)


def masked_softmax(
    logits: Float[Array, "*rows n"], mask: Bool[Array, "*rows n"], axis_name: str | None = None
) -> Float[Array, "*rows n"]:
    """Softmax over what the mask admits, 0 elsewhere; all 0, with gradient 0, where it admits nothing.

    With `axis_name` rows go on over the devices of that mesh axis, inside `jax.shard_map`.
    """
    logits = jnp.where(mask, jnp.clip(logits, -_MAX, _MAX), -jnp.inf)
    greatest = jax.lax.stop_gradient(reduced_rows(GREATEST, jax.lax.stop_gradient(logits)))
    if axis_name is not None:
        greatest = jax.lax.pmax(greatest, axis_name)
    numerators = jnp.exp(logits - jnp.maximum(greatest, -_MAX))
    total = _total(numerators)
    if axis_name is not None:
        total = jax.lax.psum(total, axis_name)
    return numerators / jnp.where(total > 0, total, 1.0)


@jax.custom_jvp
def _total(x: Float[Array, "*rows n"]) -> Float[Array, "*rows 1"]:
    return reduced_rows(SUM, x)


@_total.defjvp
def _jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _total(*primals), jnp.sum(tangents[0], axis=-1, keepdims=True)
