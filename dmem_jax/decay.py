"""Forgetting costs nothing per step: what a strength is worth now is computed where it is read."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_jax.params import Params
from dmem_jax.types import Store
from dmem_kernels import age, log2_decayed


def half_life(params: Params, store: Store) -> Float[Array, "*n"]:
    """By which each memory fades, clock units."""
    return jnp.where(store.rpe < 0, params.disaster_half_life, params.half_life)


def half_lives_faded(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """How many half-lives each memory has faded since it was last touched."""
    return age(now, store.touched) / half_life(params, store)


def effective_strength(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """strength * 2^(-age / half_life), reward units."""
    # In two halves: a factor of its own would underflow long before the product of a great strength does.
    half = jnp.exp2(-0.5 * half_lives_faded(params, store, now))
    return store.strength * half * half


def log2_effective_strength(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """log2 of the effective strength, which orders memories long after the strength itself has underflowed to 0.

    -inf where strength is 0.
    """
    return log2_decayed(store.strength, half_lives_faded(params, store, now))
