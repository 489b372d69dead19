"""How strongly an experience is engraved, and where it goes: gate, thresholds, routing."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_jax.config import Config
from dmem_jax.params import Params
from dmem_jax.schedules import thresholds
from dmem_jax.size import share_smaller
from dmem_jax.types import Memory, Route


def gate(params: Params, size: Float[Array, "*n"], logit: Float[Array, "*n"] | float = 0.0) -> Float[Array, "*n"]:
    """Opening of the gate in (0, 1): sigmoid(alpha * size - beta + logit). Strength at writing is this times |rpe|.

    `logit` is what a gate network of the caller's says of the experience.
    """
    return jax.nn.sigmoid(params.gate_scale * size - params.gate_bias + logit)


def route(
    config: Config,
    params: Params,
    memory: Memory,
    magnitude: Float[Array, ""],
    size: Float[Array, ""],
    opening: Float[Array, ""],
) -> Int32[Array, ""]:
    """Where an experience wants to go: Route.DROPPED, BUFFER or CORE, by what the memory saw before it.

    fixed: size above threshold_high goes to core, above threshold_low to the buffer. learned: the same with the
    opening. quantile: with the rank of the size among the last W, quantile_low and quantile_high included. paper: as
    fixed, the thresholds included.

    Until `Config.warmup` sizes are seen every surprise goes to the buffer, or to core where there is no buffer: a scale
    over fewer experiences is noise. The paper's first experiences go to the buffer at least.
    """
    router = memory.router
    low, high = thresholds(config, params, memory)
    if config.thresholds == "fixed":
        to_core, to_buffer = size > high, size > low
    elif config.thresholds == "learned":
        to_core, to_buffer = opening > high, opening > low
    elif config.thresholds == "paper":
        to_core, to_buffer = size >= high, size >= low
    else:
        rank = share_smaller(router.sizes, router.seen, size)
        to_core, to_buffer = rank >= params.quantile_high, rank >= params.quantile_low
    warming_up = router.seen < config.warmup
    if config.thresholds == "paper":
        to_buffer = to_buffer | warming_up
    else:
        to_core = to_core & ~warming_up
        to_buffer = jnp.where(warming_up, magnitude > 0, to_buffer)
    if config.buffer_capacity == 0:
        to_core = to_core | (to_buffer & warming_up)
    dropped, buffer, core = jnp.int32(Route.DROPPED), jnp.int32(Route.BUFFER), jnp.int32(Route.CORE)
    return jnp.where(to_core, core, jnp.where(to_buffer, buffer, dropped))


def soft_membership(params: Params, opening: Float[Array, "*n"], threshold: Float[Array, ""]) -> Float[Array, "*n"]:
    """How far an opening is on the upper side of a learned threshold, in (0, 1): what training has in place of the step
    that `route` takes, and what comes near it as `threshold_temperature` falls."""
    return jax.nn.sigmoid((opening - threshold) / params.threshold_temperature)
