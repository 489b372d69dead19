"""The definition, by a full sort."""

import jax.numpy as jnp
from jaxtyping import Array

from dmem_kernels.decay import decayed_key
from dmem_kernels.selection import canonical


def evict_topk(
    strength: Array, touched: Array, half_life: Array, live: Array, now: Array, n: int
) -> tuple[Array, Array]:
    """As in `api`."""
    slots = strength.shape[0]
    key = canonical(decayed_key(strength, touched, half_life, live, now))
    slot = jnp.argsort(key, stable=True)[:n].astype(jnp.int32)
    beyond = (0, max(0, n - slots))
    return jnp.pad(key[slot], beyond, constant_values=jnp.inf), jnp.pad(slot, beyond, constant_values=slots)
