"""The soft memory of an episode: what a memory would keep of it, as degrees between 0 and 1, so that it can be trained.

Every experience is kept to a degree: how far its opening is above the learned thresholds, times how likely it is to
survive the others, of whom only `capacity` find a place. What is lost fades out of the read-out instead of vanishing,
and so a later loss has a gradient at all that decided over it: gate, thresholds, and what a network adds to the gate.

This memory lies over the episode's own inputs, with one row for each. Its gradient needs memory for a row per
experience, where that of a scan of writes needs a whole memory per experience.

Lower `Params.threshold_temperature` and `pressure_temperature` are nearer to the hard memory and give less of a
gradient; near 0 both keep the same, but for duplicates: the soft memory keeps them apart, and ignores what contradicts.

`gate_training.py` trains with it. T experiences of one agent's episode, D embedding size, Q queries.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Float32, PyTree

from dmem_jax.allocation import init
from dmem_jax.checks import check_acting, check_experiences
from dmem_jax.config import Config
from dmem_jax.conversion import as_float32, is_concrete
from dmem_jax.counting import add_saturating
from dmem_jax.decay import log2_effective_strength
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.gating import gate, soft_membership
from dmem_jax.inputs import check_config, is_finite_experience
from dmem_jax.memory import attend
from dmem_jax.params import Params
from dmem_jax.schedules import thresholds
from dmem_jax.size import observe, surprise_size
from dmem_jax.storage import as_stored
from dmem_jax.types import UNSET, Attention, Experience, Memory, Query

_NEGLIGIBLE = 1e-15  # degrees below it count as 0: the square of anything above is still a float32


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SoftMemory:
    """An episode as one memory with a slot for each of its T experiences."""

    config: Config  # of `memory`: T slots of core
    memory: Memory  # after the last experience; strengths are kept * opening * |rpe|
    kept: Float32[Array, " T"]  # how likely each is to be in the hard memory, in [0, 1]


def soft_attend(
    params: Params, soft: SoftMemory, query: Query | Array, *, over: Callable[[PyTree], Array] | None = None
) -> Attention:
    """`attend` to a soft memory: the read-out to be expected if each experience is there as likely as it is kept.

    Differentiable in all that decides over it. What is kept by half is read by half at most, however well it fits: its
    weight is kept * e^logit / (e^logit + the sum of kept * e^logit of the others). What the weights lack to a sum of 1
    is no longer known.

    Args:
      query, over: as for `attend`. vmap over queries.

    Returns:
      An `Attention`; weights [T] over the experiences, their sum at most about 1.
    """
    if not isinstance(soft, SoftMemory):
        raise ArgumentTypeError(f"soft: expected a SoftMemory, as soft_memory gives, got {type(soft).__name__}.")
    attention = attend(soft.config, params, soft.memory, query, over=over)
    # Its softmax has `kept` in the strengths: weights / kept is e^logit over the sum of all.
    weights, kept = attention.weights, soft.kept
    known = (weights > _NEGLIGIBLE) & (kept > _NEGLIGIBLE)
    weights = jnp.where(known, weights * kept / jnp.where(known, kept + (1.0 - kept) * weights, 1.0), 0.0)
    store = soft.memory.core
    values = (store.embedding if over is None else over(store.payload)).astype(jnp.float32)
    values = jnp.where(_along(known, values), values, 0.0)  # a payload may hold anything, also where no weight is
    return Attention(readout=jnp.einsum("t,t...->...", weights, values), weights=weights)


def soft_memory(
    config: Config, params: Params, experiences: Experience, *, pressure_temperature: ArrayLike = 1.0
) -> SoftMemory:
    """What an empty memory would keep of an episode, and how likely.

    Of the two tiers only who finds a place is left: an experience is kept to the degree to which it is admitted to core
    and survives there, plus that to which it is admitted to the buffer, or has no place in core, and survives there.

    Args:
      config: with thresholds "learned" and what a memory of the episode's own inputs can know: a signal "given" or
        "outcome", buffer_eviction "strength", no schedule by fill. Its capacities are the pressure.
      experiences: [T], T >= 1, in the order in which they are met by an empty memory; `gate_logit` included.
      pressure_temperature: scalar > 0, in units of ln strength: how sharply strength decides who survives.

    Raises:
      ArgumentValueError, ArgumentTypeError: naming what does not fit.
    """
    temperature = _check_soft(config, pressure_temperature)
    if not isinstance(experiences, Experience):
        raise ArgumentTypeError(f"experiences: expected a dmem_jax.Experience, got {type(experiences).__name__}.")
    shape = np.shape(experiences.embedding)
    if len(shape) != 2 or not shape[0]:
        expected = f"[T, {config.embedding_dim}] with T >= 1"
        raise ArgumentValueError(f"experiences.embedding: expected {expected}, got {list(shape)}.")
    steps = shape[0]
    over_episode = dataclasses.replace(config, core_capacity=steps, buffer_capacity=0, store_dtype="float32")
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), experiences.payload)
    empty = init(over_episode, one)
    params = check_acting(over_episode, params, empty)
    experiences = check_experiences(config, empty.core.payload, experiences)
    valid = experiences.valid & jax.vmap(lambda given: is_finite_experience(config, given))(experiences)
    # Zeros, since a masked NaN still makes a NaN gradient: 0 * NaN.
    experiences = jax.tree.map(lambda leaf: jnp.where(_along(valid, leaf), leaf, jnp.zeros_like(leaf)), experiences)
    magnitude = jnp.abs(experiences.rpe)

    def meet(memory: Memory, met: tuple[Array, Array, Array]) -> tuple[Memory, tuple[Array, ...]]:
        """Clock, size and thresholds as in `write`."""
        magnitude, time, valid = met
        size = surprise_size(config, memory.router, magnitude)
        decides = (*thresholds(over_episode, params, memory), memory.router.seen < config.warmup)
        counted = add_saturating(memory.clock, jnp.ones_like(memory.clock))
        now = jnp.where(time == UNSET, counted, jnp.maximum(memory.clock, time))
        clock = jnp.where(valid, now, memory.clock)
        router = observe(config, params, memory.router, magnitude, size, valid)
        return dataclasses.replace(memory, router=router, clock=clock), (clock, size, *decides)

    bare = dataclasses.replace(empty, core=empty.buffer)  # a scan must not carry the slots
    met = magnitude, experiences.time, valid
    end, (times, size, low, high, warming_up) = jax.lax.scan(meet, bare, met)

    opening = gate(params, size, experiences.gate_logit)
    written = jnp.where(valid, opening * magnitude, 0.0)
    row_ids = jnp.where(valid, jnp.arange(steps, dtype=jnp.int32), -1)
    stored = dataclasses.replace(
        empty.core,
        **as_stored("float32", experiences.embedding),
        strength=written,
        written_strength=written,
        time=times,
        touched=times,
        count=jnp.ones_like(times),
        id=row_ids,
        next_embedding=experiences.next_embedding if config.store_next else None,
        discount=experiences.discount if config.store_next else None,
        **{name: getattr(experiences, name) for name in ("rpe", "reward", "value", "task", "payload")},
    )
    strong = written > 0  # what has no strength takes nobody's place and is not read
    log_strength = jnp.where(strong, math.log(2.0) * log2_effective_strength(params, stored, end.clock), 0.0)
    core, either = _admitted(config, params, opening, low, high, warming_up)
    core, either = jnp.where(strong, core, 0.0), jnp.where(strong, either, 0.0)
    in_core = core * survival(log_strength, core, config.core_capacity, temperature)
    elsewhere = either - in_core
    kept = in_core + elsewhere * survival(log_strength, elsewhere, config.buffer_capacity, temperature)
    stored = dataclasses.replace(stored, strength=kept * written, written_strength=written)
    memory = dataclasses.replace(end, core=stored, buffer=empty.buffer, next_id=jnp.int32(steps))
    return SoftMemory(config=over_episode, memory=memory, kept=kept)


def survival(
    log_strength: Float[Array, " T"], share: Float[Array, " T"], capacity: int, temperature: Float[Array, ""]
) -> Float[Array, " T"]:
    """How likely each is to be among the strongest `capacity`, in [0, 1]: sigmoid((log_strength - cut) / temperature).

    The cut is where sum(share * survival) = capacity; all survive where there is place for all. As the temperature
    falls, this becomes what a tier does that lets its weakest go.

    Args:
      share: in [0, 1], how far each is there at all.
      temperature: > 0, in units of ln strength.
    """
    if capacity == 0:
        return jnp.zeros_like(share)

    def held(log_strength: Array, share: Array, cut: Array) -> Array:
        return jnp.sum(share * jax.nn.sigmoid((log_strength - cut) / temperature))

    fixed = jax.lax.stop_gradient((log_strength, share))
    margin = 20.0 * jax.lax.stop_gradient(temperature)  # beyond the last strength by this much the sigmoid is 0 or 1

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (bounds[0] + bounds[1])
        too_many = jax.lax.stop_gradient(held(*fixed, middle)) > capacity
        return jnp.where(too_many, middle, bounds[0]), jnp.where(too_many, bounds[1], middle)

    bounds = jnp.min(fixed[0]) - margin, jnp.max(fixed[0]) + margin
    low, high = jax.lax.fori_loop(0, 30, halve, bounds)
    cut = 0.5 * (low + high)
    # The cut's value has no gradient; by the implicit function theorem it moves by what is held over how fast that
    # changes with the cut.
    slope = jax.lax.stop_gradient(jax.grad(held, 2)(log_strength, share, cut))
    excess = held(log_strength, share, cut)
    cut = cut + (excess - jax.lax.stop_gradient(excess)) / jnp.maximum(-slope, 1e-6)
    crowded = jnp.sum(share) > capacity
    return jnp.where(crowded, jax.nn.sigmoid((log_strength - cut) / temperature), 1.0)


def _admitted(
    config: Config, params: Params, opening: Array, low: Array, high: Array, warming_up: Array
) -> tuple[Array, Array]:
    """How far `gating.route` lets each in: into core, and at all. [T], in [0, 1]."""
    core, buffer = (jax.vmap(soft_membership, (None, 0, 0))(params, opening, limit) for limit in (high, low))
    core_at_first = 0.0 if config.buffer_capacity else 1.0
    return jnp.where(warming_up, core_at_first, core), jnp.where(warming_up, 1.0, jnp.maximum(core, buffer))


def _check_soft(config: Config, pressure_temperature: ArrayLike) -> Array:
    """The temperature, if the memory that `config` describes has a soft form."""
    check_config(config)
    possible: dict[str, tuple[str, ...]] = {
        "thresholds": ("learned",),
        "signal": ("given", "outcome"),
        "buffer_eviction": ("strength",),
        "threshold_schedule": ("constant", "step", "phase"),
        "weight_schedule": ("constant", "step", "phase"),
    }
    for name, kinds in possible.items():
        if getattr(config, name) not in kinds:
            expected = ", ".join(map(repr, kinds))
            raise ArgumentValueError(f"Config.{name}: a soft memory expects {expected}; got {getattr(config, name)!r}.")
    temperature = as_float32("pressure_temperature", pressure_temperature)
    if temperature.shape != ():
        raise ArgumentValueError(f"pressure_temperature: expected a scalar, got shape {list(temperature.shape)}.")
    # Asks what was given: inside jit even the array made from a Python number is a tracer.
    if is_concrete(pressure_temperature) and not 0 < np.asarray(pressure_temperature) < math.inf:
        raise ArgumentValueError(f"pressure_temperature: expected a number > 0, got {shown(pressure_temperature)}.")
    return temperature


def _along(valid: Array, leaf: Array) -> Array:
    return valid.reshape(valid.shape + (1,) * (leaf.ndim - 1))
