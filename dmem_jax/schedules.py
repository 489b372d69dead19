"""What changes over a life: a value that goes from its start to its end with the clock, the fill or a phase."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from dmem_jax.config import Config, Schedule
from dmem_jax.params import Params
from dmem_jax.pool import live_count
from dmem_jax.types import Memory


def scheduled(
    config: Config,
    params: Params,
    memory: Memory,
    kind: Schedule,
    start: Float[Array, ""],
    end: Float[Array, ""],
) -> Float[Array, ""]:
    """end + (start - end) * max(0, 1 - x), x the share of the way that is done."""
    if kind == "constant":
        return end
    if kind == "step":
        done = memory.clock.astype(jnp.float32) / params.schedule_steps
    elif kind == "fill":
        done = live_count(config, memory).astype(jnp.float32) / config.pool_capacity
    else:
        done = params.phase
    return end + (start - end) * jnp.clip(1.0 - done, 0.0, 1.0)


def semantic_weight(config: Config, params: Params, memory: Memory) -> Float[Array, ""]:
    """w, the share of meaning in the score."""
    kind = config.weight_schedule
    return scheduled(config, params, memory, kind, params.semantic_weight_start, params.semantic_weight)


def importance_exponent(params: Params, memory: Memory) -> Float[Array, ""]:
    """b of replay's importance weights: it anneals with the clock, as in arXiv 1511.05952, section 3.4."""
    start, end = params.importance_exponent_start, params.importance_exponent
    return end + (start - end) * jnp.clip(1.0 - memory.clock.astype(jnp.float32) / params.importance_steps, 0.0, 1.0)


def thresholds(config: Config, params: Params, memory: Memory) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """threshold_low and threshold_high, now."""
    kind = config.threshold_schedule
    return (
        scheduled(config, params, memory, kind, params.threshold_low_start, params.threshold_low),
        scheduled(config, params, memory, kind, params.threshold_high_start, params.threshold_high),
    )
