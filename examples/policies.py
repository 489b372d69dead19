"""The memories that the demo compares: who keeps what.

All live in the same arrays, a `dmem_jax.Memory` of the same total capacity, all are read by `dmem_jax.recall`, and all
face the same agent (`agent.py`) in the same worlds. They differ in what a write does:

    dmem            D-MEM as SPEC has it, with its defaults; half of the slots are core, half buffer
    dmem_no_value   the same machinery, but the agent expects nothing: its RPE is the bare reward
    flat            a list of the largest |rpe|, without any life cycle
    reward          a list of the largest |reward|
    fifo            the latest experiences
    reservoir       a uniform sample of all experiences (Vitter's algorithm R, 1985)
    none            no memory

What sets two policies of one family apart is data (`Traits`), so that a family is compiled once.
"""

import dataclasses
import json
import math
import pathlib
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

import dmem_jax as dmem
from dmem_jax.size import observe
from dmem_jax.slots import put
from examples import world

CRITIC_RATE = 0.3  # step size of the critic, in (0, 1], where tuning names no other
TUNED = pathlib.Path(__file__).with_name("tuned.json")  # written by tune.py
RECALLED = 16  # memories per recall, for every policy
PAYLOAD = {"place": jax.ShapeDtypeStruct((2,), jnp.int32), "reward": jax.ShapeDtypeStruct((), jnp.float32)}

Family = Literal["dmem", "largest", "stream"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Traits:
    """What distinguishes the policies of one family."""

    expects: Bool[Array, ""]  # the RPE is reward - V; else it is the reward
    samples: Bool[Array, ""]  # of the streams: a reservoir, else the latest
    keeps: Bool[Array, ""]  # of the streams: false for none


@dataclasses.dataclass(frozen=True)
class Policy:
    """One memory under comparison."""

    name: str
    family: Family
    expects: bool = True
    samples: bool = False
    keeps: bool = True

    def traits(self) -> Traits:
        return Traits(jnp.bool_(self.expects), jnp.bool_(self.samples), jnp.bool_(self.keeps))


POLICIES = (
    Policy("dmem", "dmem"),
    Policy("dmem_no_value", "dmem", expects=False),
    Policy("flat", "largest"),
    Policy("reward", "largest", expects=False),
    Policy("fifo", "stream"),
    Policy("reservoir", "stream", samples=True),
    Policy("none", "stream", keeps=False),
)


def config_of(family: Family, slots: int) -> dmem.Config:
    """The program of a family with `slots` slots in all."""
    dim = world.PLACE_DIM
    if family == "dmem":
        core = slots // 2
        return dmem.Config(embedding_dim=dim, top_k=RECALLED, core_capacity=core, buffer_capacity=slots - core)
    return dmem.Config(
        embedding_dim=dim, top_k=RECALLED, core_capacity=slots, buffer_capacity=0, duplicates="off", warmup=0
    )


def tuned_for(policy: Policy, slots: int) -> dict[str, float]:
    """The settings that tuning found for a policy at a capacity: names of `dmem.Params`, and "critic_rate"."""
    return json.loads(TUNED.read_text()).get(policy.name, {}).get(str(slots), {})


def params_of(family: Family, config: dmem.Config, tuned: dict[str, Any]) -> dmem.Params:
    """D-MEM's defaults. For the others no surprise is too small, the gate is open (strength is the whole |rpe|, and the
    strongest stay), and nothing fades."""
    if family != "dmem":
        everything = {"threshold_low": 0.0, "threshold_high": 0.0, "gate_scale": 0.0, "gate_bias": -30.0}
        tuned = {**everything, "half_life": math.inf, "disaster_half_life": math.inf, **tuned}
    tuned = {name: value for name, value in tuned.items() if name != "critic_rate"}
    return dmem.Params.default(config, **tuned)


def remember(
    family: Family,
    traits: Traits,
    config: dmem.Config,
    params: dmem.Params,
    memory: dmem.Memory,
    experience: dmem.Experience,
    here: Float[Array, " D"],
    key: Key[Array, ""],
) -> tuple[dmem.Memory, dmem.Recall]:
    """Write the last experience by the policy's rule, then recall for the place of now."""
    if family != "stream":
        memory, info = dmem.step(config, params, memory, experience, here)
        return memory, info.recall
    memory = _stream_write(traits, config, params, memory, experience, key)
    return memory, dmem.recall(config, params, memory, here)


def _stream_write(
    traits: Traits,
    config: dmem.Config,
    params: dmem.Params,
    memory: dmem.Memory,
    experience: dmem.Experience,
    key: Key[Array, ""],
) -> dmem.Memory:
    """Every experience is kept in its turn: the oldest makes room, or the one that a reservoir draws."""
    slots, seen = config.core_capacity, memory.router.seen
    drawn = jnp.where(seen < slots, seen, jax.random.randint(key, (), 0, seen + 1))
    slot = jnp.where(traits.samples, jnp.minimum(drawn, slots), seen % slots)
    slot = jnp.where(experience.valid & traits.keeps, slot, slots)
    written = slot < slots
    magnitude = jnp.abs(experience.rpe)
    now = memory.clock + experience.valid
    zero = jnp.zeros_like(now)
    row = dmem.Store(
        embedding=experience.embedding,
        scale=None,
        inv_norm=1 / jnp.linalg.norm(experience.embedding),
        rpe=experience.rpe,
        reward=experience.reward,
        value=experience.value,
        task=experience.task,
        time=now,
        strength=magnitude,
        written_strength=magnitude,
        touched=now,
        recalls=zero,
        successes=zero,
        count=zero + 1,
        contradicted=jnp.zeros_like(written),
        id=memory.next_id,
        payload=experience.payload,
        next_embedding=None,
        discount=None,
    )
    stats = dataclasses.replace(
        memory.stats, seen=memory.stats.seen + experience.valid, stored=memory.stats.stored + written
    )
    return dataclasses.replace(
        memory,
        core=put(memory.core, slot, row),
        router=observe(config, params, memory.router, magnitude, magnitude, experience.valid),
        stats=stats,
        clock=now,
        next_id=memory.next_id + written,
    )


def knows(memory: dmem.Memory, place: Int[Array, "2"]) -> Bool[Array, ""]:
    """Whether a memory says that the find is at `place`."""

    def says(tier: dmem.Store) -> Array:
        there = (tier.payload["place"] == place).all(-1)
        of_find = (tier.payload["reward"] > 0) & (tier.payload["reward"] != world.WAGE)
        return ((tier.id >= 0) & (tier.rpe > 0) & there & of_find).any()

    return says(memory.core) | says(memory.buffer)
