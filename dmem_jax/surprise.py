"""Surprise without a reward: how far an experience is from all that is remembered, and the paper's critic of that."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.counting import add_saturating
from dmem_jax.params import Params
from dmem_jax.pool import live, live_count
from dmem_jax.size import pushed
from dmem_jax.types import Experience, Memory

_MAX = float(np.finfo(np.float32).max)
# Of the D-MEM paper, arXiv 2603.14597, as its method section gives them.
_LEAST_MEMORIES = 5
_LEAST_DEVIATION = 0.01
_LEAST_UTILITY = 0.05
_BASE_SURPRISE = 0.4


def closest_cosine(config: Config, memory: Memory, cosines: Float[Array, " N"]) -> Float[Array, ""]:
    """The greatest cosine with a live memory of any task and sign; -inf for an empty memory."""
    return shards.greatest(config, jnp.max(jnp.where(live(memory), cosines, -jnp.inf)))


def resolve(
    config: Config,
    params: Params,
    memory: Memory,
    experience: Experience,
    closest: Float[Array, ""],
    known: Bool[Array, ""],
    valid: Bool[Array, ""],
) -> tuple[Memory, Experience]:
    """The experience with the RPE that `Config.signal` makes of it, and the memory that has looked at it.

    Args:
      closest: greatest cosine with a live memory, where `known`.
      valid: whether the experience counts at all.
    """
    if not config.reads_similarity:
        return memory, experience
    if config.signal == "novelty":
        novelty = jnp.where(closest > -jnp.inf, jnp.maximum(0.0, 1.0 - closest), 1.0)
        rpe = experience.rpe + params.novelty_weight * jnp.where(known, novelty, 0.0)
        return memory, dataclasses.replace(experience, rpe=jnp.clip(rpe, -_MAX, _MAX))

    router = memory.router
    met = valid & known & (closest > -jnp.inf)
    similarities = pushed(router.similarities, closest, met)
    router = dataclasses.replace(router, similarities=similarities, compared=add_saturating(router.compared, met))
    held = jnp.arange(similarities.values.shape[-1], dtype=jnp.int32) < router.compared
    n = jnp.maximum(jnp.sum(held, dtype=jnp.int32), 1).astype(jnp.float32)
    mean = jnp.sum(jnp.where(held, similarities.values, 0.0)) / n
    deviation = jnp.sqrt(jnp.sum(jnp.where(held, jnp.square(similarities.values - mean), 0.0)) / n)
    surprise = jax.nn.sigmoid((mean - closest) / jnp.maximum(deviation, _LEAST_DEVIATION))
    enough = met & (live_count(config, memory) >= _LEAST_MEMORIES) & (router.compared >= _LEAST_MEMORIES)
    surprise = jnp.where(enough, surprise, 1.0)
    utility = jnp.clip(experience.utility, 0.0, 1.0)
    rpe = jnp.where(utility >= _LEAST_UTILITY, jnp.minimum(1.0, utility * (surprise + _BASE_SURPRISE)), 0.0)
    return dataclasses.replace(memory, router=router), dataclasses.replace(experience, rpe=rpe)
