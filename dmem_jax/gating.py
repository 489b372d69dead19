"""How strongly an experience is engraved, and where it goes: gate, thresholds, routing."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_jax.config import Config, Params
from dmem_jax.size import share_smaller
from dmem_jax.types import Route, Router


def gate(params: Params, size: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Gate strength in (0, 1): sigmoid(alpha * size - beta). Strength at writing is this times |rpe|."""
    return jax.nn.sigmoid(params.gate_scale * size - params.gate_bias)


def route(
    config: Config, params: Params, router: Router, magnitude: Float[Array, ""], size: Float[Array, ""]
) -> Int32[Array, ""]:
    """Where an experience wants to go: Route.DROPPED, BUFFER or CORE, by what the router saw before it.

    fixed: size above threshold_high goes to core, above threshold_low to the buffer. quantile: the same with the rank
    of the size among the last W, quantile_low and quantile_high included. Until `Config.warmup` sizes are seen every
    surprise goes to the buffer, or to core where there is no buffer: a scale over fewer experiences is noise.
    """
    if config.thresholds == "fixed":
        to_core, to_buffer = size > params.threshold_high, size > params.threshold_low
    else:
        rank = share_smaller(router.sizes, router.seen, size)
        to_core, to_buffer = rank >= params.quantile_high, rank >= params.quantile_low
    warming_up = router.seen < config.warmup
    to_core = to_core & ~warming_up
    to_buffer = jnp.where(warming_up, magnitude > 0, to_buffer)
    dropped, buffer, core = jnp.int32(Route.DROPPED), jnp.int32(Route.BUFFER), jnp.int32(Route.CORE)
    if config.buffer_capacity == 0:
        to_core = to_core | (to_buffer & warming_up)
    return jnp.where(to_core, core, jnp.where(to_buffer, buffer, dropped))
