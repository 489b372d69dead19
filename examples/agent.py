"""The agent of the demo: a small critic, an acting rule over what is recalled, and a whole life as one scan.

The critic foretells the reward of a state, V(s) = w . observation, and learns online; the surprise of an experience is
r - V at the state where the outcome was met. The agent acts from nothing but its recall, what it sees, and the
footprints of the day: it walks to the delight that pulls most and keeps off the cells where it remembers disaster.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

import dmem_jax as dmem
from dmem_jax.size import surprise_size
from examples import world
from examples.policies import PAYLOAD, Family, Traits, knows, remember

PULL = 0.9  # of a delight per cell of distance
STRAIGHT_ON = 0.5  # an explorer's liking for its heading, where a fresh cell is worth 1 and chance up to 1


class Decision(NamedTuple):
    """A move, and the memories that it stood on."""

    move: Int[Array, ""]
    recall: dmem.Recall
    target: Float[Array, " K"]  # 1 for the delight walked to
    avoided: Float[Array, " K"]  # 1 for the disasters that changed the move


class Hour(NamedTuple):
    """What happened in one hour of a life."""

    reward: Float[Array, ""]
    rpe: Float[Array, ""]
    size: Float[Array, ""]  # |rpe| in multiples of the current average surprise
    alive: Bool[Array, ""]
    place: Int[Array, "2"]


class Evening(NamedTuple):
    """How a memory stands at the end of a day."""

    core: Int[Array, ""]  # memories held
    buffer: Int[Array, ""]
    knows_find: Bool[Array, ""]


def decide(key: Key[Array, ""], state: world.State, recall: dmem.Recall, heading: Int[Array, ""]) -> Decision:
    """Walk to the delight that pulls most, explore where none does, and avoid remembered disasters.

    A memory is worth score x rpe to the decision, in so far as it still has strength, and nothing if it tells of a mere
    relief or disappointment: an outcome that was better than expected and yet not good, or worse and yet not bad.
    """
    place, reward = recall.payload["place"], recall.payload["reward"]
    tells = recall.valid & (recall.rpe * reward > 0)
    worth = jnp.where(tells, recall.score * jnp.minimum(recall.salience, 1.0) * recall.rpe, 0.0)

    cells = state.place + jnp.array(world.MOVES, jnp.int32)  # [4, 2]
    outside = ((cells < 0) | (cells >= world.SIDE)).any(-1)
    within = jnp.clip(cells, 0, world.SIDE - 1)
    fresh = ~state.footprints[within[:, 0], within[:, 1]]

    distance = jnp.abs(place - state.place).sum(-1)
    tried = state.footprints[place[:, 0], place[:, 1]]
    pull = jnp.where(tried, 0.0, jnp.maximum(worth, 0.0) * PULL**distance)
    best = jnp.argmax(pull)
    pulled = pull[best] > 0

    nearer = -2.0 * jnp.abs(cells - place[best]).sum(-1)  # one cell is worth more than chance
    curious = fresh + STRAIGHT_ON * (jnp.arange(4) == heading)
    appeal = jnp.where(pulled, nearer, curious) + jax.random.uniform(key, (4,)) - 1000.0 * outside
    at = (place == cells[:, None]).all(-1)  # [4, K]: which memories are of which cell
    feared = (at * worth).sum(-1) < 0
    wish, move = jnp.argmax(appeal), jnp.argmax(appeal - 100.0 * feared)
    return Decision(
        move=move.astype(jnp.int32),
        recall=recall,
        target=(pulled & (jnp.arange(worth.shape[0]) == best)).astype(jnp.float32),
        avoided=(at[wish] & (worth < 0) & (move != wish)).astype(jnp.float32),
    )


def learn_from_outcome(
    config: dmem.Config,
    params: dmem.Params,
    memory: dmem.Memory,
    state: world.State,
    last: Decision,
    expected: Float[Array, ""],
) -> dmem.Memory:
    """Credit where it is due: to the delight that was walked to, once the agent stands there, and to dangers avoided.

    Found as foretold, a delight is reinforced by what was better than expected, and renewed; not found, it is weakened
    by what it foretold.
    """
    acted = state.alive & (state.hour > 0)
    arrived = acted * last.target * (last.recall.payload["place"] == state.place).all(-1)
    foretold = (arrived * last.recall.rpe).sum()
    kept = state.reward >= foretold / 2
    rpe = jnp.where(kept, jnp.maximum(state.reward - expected, 0.0), -foretold)
    memory = dmem.reinforce(config, params, memory, last.recall, rpe, arrived)
    return dmem.renew(config, params, memory, last.recall, arrived * kept + acted * last.avoided)


class Life(NamedTuple):
    """What an agent carries from hour to hour."""

    memory: dmem.Memory
    experience: dmem.Experience  # of the last hour, not yet written
    critic: Float[Array, " PLACE_DIM+1"]  # its weights
    last: Decision


def born(config: dmem.Config, params: dmem.Params, memory: dmem.Memory) -> Life:
    """An agent with an empty `memory`, which has met nothing yet."""
    nothing = jnp.zeros(config.recalled)
    no_recall = dmem.recall(config, params, memory, jnp.ones(config.embedding_dim))
    return Life(
        memory=memory,
        experience=dmem.no_experience(config, PAYLOAD),
        critic=jnp.zeros(world.PLACE_DIM + 1),
        last=Decision(jnp.int32(0), no_recall, nothing, nothing),
    )


def live_a_day(
    family: Family,
    traits: Traits,
    config: dmem.Config,
    params: dmem.Params,
    critic_rate: Float[Array, ""],
    the_world: world.World,
    life: Life,
    number: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Life, tuple[Hour, Evening]]:
    """One agent's day `number`: its hours [HOURS] and its evening."""

    def hour(carry: tuple[Life, world.State], key: Array) -> tuple[tuple[Life, world.State], Hour]:
        (memory, experience, critic, last), state = carry
        write_key, decide_key, step_key = jax.random.split(key, 3)
        seen = world.observe(state)
        here = world.place_cells(state.place)
        value = jnp.where(traits.expects, critic @ seen, 0.0)
        if family == "dmem":
            memory = learn_from_outcome(config, params, memory, state, last, value)
        # What is written is the experience of an hour ago, met at the place that was asked about an hour ago: the
        # probe of that query serves the write. What is met here is formed now and written an hour later.
        memory, recall = remember(family, traits, config, params, memory, experience, here, write_key)
        rpe = dmem.outcome_error(state.reward, value)
        experience = dmem.experience(
            config,
            here,
            rpe=rpe,
            reward=state.reward,
            value=value,
            payload={"place": state.place, "reward": state.reward},
            valid=state.alive,
        )
        error = jnp.where(state.alive, state.reward - value, 0.0)
        critic = critic + critic_rate * error * seen / (seen @ seen)  # normalised least mean squares
        size = surprise_size(config, memory.router, jnp.abs(rpe))
        met = Hour(reward=state.reward, rpe=rpe, size=size, alive=state.alive, place=state.place)
        decision = decide(decide_key, state, recall, last.move)
        life = Life(memory, experience, critic, decision)
        return (life, world.step(step_key, the_world, state, decision.move)), met

    wake_key, hours_key = jax.random.split(key)
    morning = world.wake(wake_key, the_world, number)
    (life, _), hours = jax.lax.scan(hour, (life, morning), jax.random.split(hours_key, world.HOURS))
    memory = life.memory
    find_known = knows(memory, world.find_place(the_world, number))
    return life, (hours, Evening((memory.core.id >= 0).sum(), (memory.buffer.id >= 0).sum(), find_known))


def live(
    family: Family,
    traits: Traits,
    config: dmem.Config,
    params: dmem.Params,
    critic_rate: Float[Array, ""],
    memory: dmem.Memory,
    key: Key[Array, ""],
    find_moves: Bool[Array, ""],
) -> tuple[dmem.Memory, Hour, Evening]:
    """One agent's whole life in a world of its own.

    Args:
      memory: an empty one.
      critic_rate: step size of the critic, in (0, 1].
      find_moves: whether the find is elsewhere in the second half.

    Returns:
      The memory at the end, every hour [DAYS, HOURS] and every evening [DAYS].
    """
    world_key, life_key = jax.random.split(key)
    the_world = world.new_world(world_key, find_moves)

    def day(life: Life, number_and_key: tuple[Array, Array]) -> tuple[Life, tuple[Hour, Evening]]:
        return live_a_day(family, traits, config, params, critic_rate, the_world, life, *number_and_key)

    days = jnp.arange(world.DAYS, dtype=jnp.int32), jax.random.split(life_key, world.DAYS)
    life, (hours, evenings) = jax.lax.scan(day, born(config, params, memory), days)
    return life.memory, hours, evenings
