"""A small world with a wage, a find and dangers, in pure JAX: what an agent should remember, and what it should not.

Every agent has a hidden map of its own, `SIDE` x `SIDE` cells. One cell holds the find (+10), `DEADLY` cells kill (-10);
both end the day. A life has `DAYS` days of `HOURS` hours. Each morning the agent wakes anywhere and is paid its wage
(+12) on the spot: the largest reward of all, and the one that nobody needs to remember, because the hour foretells it.
What is worth remembering across days, the find and the dangers, is rarer and smaller. The find may move at half-time.

The functions are those of one agent; `jax.vmap` makes them thousands.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

SIDE = 12  # cells along one edge of the map
DEADLY = 8  # deadly cells on it
HOURS = 40  # steps in a day: one to wake, the others to walk
DAYS = 60  # episodes in a life
FIND, DEATH, WAGE = 10.0, -10.0, 12.0  # rewards
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left

PLACE_CELLS = 7  # an observation has PLACE_CELLS x PLACE_CELLS place cells ...
PLACE_WIDTH = 1.0  # ... each a Gaussian bump this wide [cells]: neighbouring places have a cosine of 0.7 to 0.87
MORNING = 2.0  # the size of the morning's feature; a place's features have norm 1
OBSERVATION_DIM = PLACE_CELLS**2 + 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class World:
    """The hidden map of one agent.

    find: the find's place [row, column] in the first and in the second half of life.
    deadly: where death waits.
    """

    find: Int[Array, "2 2"]
    deadly: Bool[Array, "SIDE SIDE"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Where one agent is, and what it just met there.

    place: [row, column]. hour: 0 (morning) .. HOURS - 1. day: 0 .. DAYS - 1.
    reward: what was met on arriving at this place and hour.
    awake: false once the day has ended early, in the find or in death; the rest of it is slept through.
    footprints: the places already visited today.
    """

    place: Int[Array, "2"]
    hour: Int[Array, ""]
    day: Int[Array, ""]
    reward: Float[Array, ""]
    awake: Bool[Array, ""]
    footprints: Bool[Array, "SIDE SIDE"]


def new_world(key: Key[Array, ""], moves: Bool[Array, ""]) -> World:
    """A random map. Where `moves` is true, the find is somewhere else in the second half of life."""
    cells = jax.random.choice(key, SIDE * SIDE, (DEADLY + 2,), replace=False)
    places = jnp.stack([cells // SIDE, cells % SIDE], axis=-1)
    first, second, dangers = places[0], places[1], places[2:]
    deadly = jnp.zeros((SIDE, SIDE), bool).at[dangers[:, 0], dangers[:, 1]].set(True)
    return World(find=jnp.stack([first, jnp.where(moves, second, first)]), deadly=deadly)


def find_place(world: World, day: Int[Array, ""]) -> Int[Array, "2"]:
    """Where the find is on that day."""
    return jnp.where(day < DAYS // 2, world.find[0], world.find[1])


def wake(key: Key[Array, ""], world: World, day: Int[Array, ""]) -> State:
    """A new morning at a random place that is neither deadly nor the find; the wage is paid."""
    find = find_place(world, day)
    taken = world.deadly.at[find[0], find[1]].set(True)
    cell = jnp.argmax(jnp.where(taken.reshape(-1), -1.0, jax.random.uniform(key, (SIDE * SIDE,))))
    place = jnp.stack([cell // SIDE, cell % SIDE]).astype(jnp.int32)
    footprints = jnp.zeros((SIDE, SIDE), bool).at[place[0], place[1]].set(True)
    return State(place, jnp.int32(0), day, jnp.float32(WAGE), jnp.bool_(True), footprints)


def day_ends(world: World, state: State) -> Bool[Array, ""]:
    """Whether this place, the find or a deadly one, ends the day."""
    at_find = (state.place == find_place(world, state.day)).all()
    return at_find | world.deadly[state.place[0], state.place[1]]


def step(world: World, state: State, move: Int[Array, ""]) -> State:
    """One hour later. `move` indexes `MOVES`; the map's edge stops a step. Whoever's day has ended stays and sleeps."""
    awake = state.awake & ~day_ends(world, state)
    place = jnp.clip(state.place + jnp.array(MOVES, jnp.int32)[move], 0, SIDE - 1)
    place = jnp.where(awake, place, state.place)
    at_find = (place == find_place(world, state.day)).all()
    met = jnp.where(at_find, FIND, jnp.where(world.deadly[place[0], place[1]], DEATH, 0.0))
    footprints = state.footprints.at[place[0], place[1]].set(True)
    return State(place, state.hour + 1, state.day, jnp.where(awake, met, 0.0), awake, footprints)


def observe(state: State) -> Float[Array, "OBSERVATION_DIM"]:
    """What the agent sees: place cells [PLACE_CELLS x PLACE_CELLS] (their norm is 1) and whether it is morning.

    Place cells fire around their centres, as those of the hippocampus do. Neighbouring places look alike but are told
    apart; the morning's feature lets a linear critic foretell the wage wherever it is paid.
    """
    centres = jnp.linspace(0, SIDE - 1, PLACE_CELLS)
    bumps = jnp.exp(-((state.place[:, None] - centres) ** 2) / (2 * PLACE_WIDTH**2))
    bumps = bumps / jnp.linalg.norm(bumps, axis=-1, keepdims=True)
    cells = (bumps[0][:, None] * bumps[1]).reshape(-1)
    return jnp.concatenate([cells, jnp.where(state.hour == 0, MORNING, 0.0)[None]])
