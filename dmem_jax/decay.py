"""Forgetting costs nothing per step: what a strength is worth now is computed where it is read."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_jax.counting import elapsed
from dmem_jax.params import Params
from dmem_jax.types import Store


def age(now: Int32[Array, ""], then: Int32[Array, "*n"]) -> Float[Array, "*n"]:
    """now - then in clock units, as a float."""
    return elapsed(now, then).astype(jnp.float32)


def half_lives_faded(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """How many half-lives each memory has faded since it was last touched."""
    half_life = jnp.where(store.rpe < 0, params.disaster_half_life, params.half_life)
    return age(now, store.touched) / half_life


def effective_strength(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """strength * 2^(-age / half_life), reward units."""
    # In two halves: a factor of its own would underflow long before the product of a great strength does.
    half = jnp.exp2(-0.5 * half_lives_faded(params, store, now))
    return store.strength * half * half


def log2_effective_strength(params: Params, store: Store, now: Int32[Array, ""]) -> Float[Array, "*n"]:
    """log2 of the effective strength, which orders memories long after the strength itself has underflowed to 0.

    -inf where strength is 0.
    """
    some = store.strength > 0
    log2 = jnp.log2(jnp.where(some, store.strength, 1.0)) - half_lives_faded(params, store, now)
    return jnp.where(some, log2, -jnp.inf)
