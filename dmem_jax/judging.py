"""What the gate makes of an experience, whatever place it finds: clock, size, route, and the row that it could be."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax.config import Config
from dmem_jax.counting import INT32_MAX, add_saturating
from dmem_jax.gating import gate, route
from dmem_jax.params import Params
from dmem_jax.size import observe, surprise_size
from dmem_jax.storage import as_stored
from dmem_jax.types import UNSET, Experience, Memory, Route, Store


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the gate makes of an experience, or of each of many, whatever is stored."""

    valid: Bool[Array, "*b"]  # neither padding nor with a number that is none; else all of the following is meaningless
    magnitude: Float[Array, "*b"]  # |rpe|, reward units
    size: Float[Array, "*b"]
    opening: Float[Array, "*b"]
    route: Int32[Array, "*b"]  # Route.DROPPED, BUFFER or CORE: where it wants to go

    def admitted(self, next_id: Int32[Array, ""]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether it may enter core, and whether the buffer; neither once the ids have run out."""
        may = self.valid & (next_id < INT32_MAX)
        return may & (self.route == Route.CORE), may & (self.route == Route.BUFFER)


def judge(
    config: Config, params: Params, memory: Memory, experience: Experience, valid: Bool[Array, ""]
) -> tuple[Memory, Verdict]:
    """Clock, size, route of an experience, `valid` or not; and the memory, whose clock and router have moved on."""
    timed = jnp.maximum(memory.clock, experience.time)
    counted = add_saturating(memory.clock, jnp.ones_like(memory.clock))
    now = jnp.where(valid, jnp.where(experience.time == UNSET, counted, timed), memory.clock)

    magnitude = jnp.where(valid, jnp.abs(experience.rpe), 0.0)
    size = surprise_size(config, memory.router, magnitude)
    opening = gate(params, size, experience.gate_logit)
    wanted = route(config, params, memory, magnitude, size, opening)
    router = observe(config, params, memory.router, magnitude, size, valid)
    verdict = Verdict(valid=valid, magnitude=magnitude, size=size, opening=opening, route=wanted)
    return dataclasses.replace(memory, router=router, clock=now), verdict


def as_row(
    config: Config, experience: Experience, verdict: Verdict, now: Int32[Array, ""], id_: Int32[Array, ""]
) -> Store:
    """The experience as a memory that could be stored."""
    zero = jnp.zeros_like(now)
    strength = verdict.opening * verdict.magnitude
    return Store(
        **as_stored(config.store_dtype, experience.embedding),
        rpe=experience.rpe,
        reward=experience.reward,
        value=experience.value,
        task=experience.task,
        time=now,
        strength=strength,
        written_strength=strength,
        touched=now,
        recalls=zero,
        successes=zero,
        count=zero + 1,
        contradicted=jnp.zeros_like(zero, bool),
        id=id_,
        payload=experience.payload,
        next_embedding=experience.next_embedding if config.store_next else None,
        discount=experience.discount if config.store_next else None,
    )
