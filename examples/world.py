"""A small world with a wage, a find and dangers, in pure JAX: what an agent should remember, and what it should not.

Every agent has a hidden map of its own, `SIDE` x `SIDE` cells. One cell holds the find (+10): who takes it is carried
off to a random place, and may come back for more. `DEADLY` cells kill (-10), and the day is over. Every tenth hour is
payday: wherever the agent is, it is paid its wage (+12), the largest reward of all, and the one that nobody needs to
remember, because the hour foretells it. What is worth remembering, the find and the dangers, is rarer and smaller.

A life has `DAYS` days of `HOURS` hours; each begins at a random place. The map stays the same, but for the find, which
may move at half-time. The functions are those of one agent; `jax.vmap` makes them thousands.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

SIDE = 12  # cells along one edge of the map
DEADLY = 8  # deadly cells on it
HOURS = 40  # steps in a day
DAYS = 60  # episodes in a life
FIND, DEATH, WAGE = 10.0, -10.0, 12.0  # rewards
PAYDAY = 10  # hours from wage to wage
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left

PLACE_CELLS = 7  # place cells along one edge; PLACE_CELLS x PLACE_CELLS tell where the agent is
PLACE_WIDTH = 1.0  # of their bumps [cells]: neighbouring places have a cosine of 0.7 to 0.87
PLACE_DIM = PLACE_CELLS**2
PAYDAY_FEATURE = 2.0  # beside a place's features of norm 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class World:
    """The hidden map of one agent; cells are numbered row by row.

    find: the find's cell in the first and in the second half of life.
    deadly: where death waits.
    safe: all other cells.
    """

    find: Int[Array, "2"]
    deadly: Bool[Array, "SIDE SIDE"]
    safe: Int[Array, " safe"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Where one agent is, and what it just met there.

    place: [row, column]. hour: 0 .. HOURS - 1. day: 0 .. DAYS - 1.
    reward: what was met on arriving at this place and hour.
    alive: false once the agent has died today; the rest of the day is lost.
    footprints: the places visited since it was last carried off.
    """

    place: Int[Array, "2"]
    hour: Int[Array, ""]
    day: Int[Array, ""]
    reward: Float[Array, ""]
    alive: Bool[Array, ""]
    footprints: Bool[Array, "SIDE SIDE"]


def new_world(key: Key[Array, ""], find_moves: Bool[Array, ""]) -> World:
    """A random map. Where `find_moves` is true, the find is somewhere else in the second half of life."""
    cells = jax.random.permutation(key, jnp.arange(SIDE * SIDE, dtype=jnp.int32))
    deadly = jnp.zeros(SIDE * SIDE, bool).at[cells[2 : 2 + DEADLY]].set(True).reshape(SIDE, SIDE)
    find = jnp.stack([cells[0], jnp.where(find_moves, cells[1], cells[0])])
    return World(find=find, deadly=deadly, safe=cells[2 + DEADLY :])


def find_place(world: World, day: Int[Array, ""]) -> Int[Array, "2"]:
    """Where the find is on that day, [row, column]."""
    return _place(jnp.where(day < DAYS // 2, world.find[0], world.find[1]))


def wake(key: Key[Array, ""], world: World, day: Int[Array, ""]) -> State:
    """A new morning at a random safe place; it is payday."""
    place = _random_place(key, world)
    hour = jnp.zeros_like(day)
    return State(place, hour, day, jnp.float32(WAGE), jnp.ones_like(hour, bool), _footprint(place))


def step(key: Key[Array, ""], world: World, state: State, move: Int[Array, ""]) -> State:
    """One hour later. `move` indexes `MOVES`; the map's edge stops a step. Who took the find is carried off instead."""
    carried = state.alive & (state.place == find_place(world, state.day)).all()
    alive = state.alive & ~_deadly(world, state.place)
    stepped = jnp.clip(state.place + jnp.array(MOVES, jnp.int32)[move], 0, SIDE - 1)
    place = jnp.where(carried, _random_place(key, world), jnp.where(alive, stepped, state.place))
    footprints = jnp.where(carried, False, state.footprints) | _footprint(place)
    hour = state.hour + 1
    found = jnp.where((place == find_place(world, state.day)).all(), FIND, 0.0)
    paid = jnp.where(hour % PAYDAY == 0, WAGE, 0.0)
    reward = jnp.where(_deadly(world, place), DEATH, found + paid)
    return State(place, hour, state.day, jnp.where(alive, reward, 0.0), alive, footprints)


def place_cells(place: Int[Array, "2"]) -> Float[Array, " PLACE_DIM"]:
    """Where the agent is, as place cells of the hippocampus tell it: bumps around centres, together of norm 1.

    Neighbouring places look alike, but are told apart.
    """
    centres = jnp.linspace(0, SIDE - 1, PLACE_CELLS)
    bumps = jnp.exp(-((place[:, None] - centres) ** 2) / (2 * PLACE_WIDTH**2))
    bumps = bumps / jnp.linalg.norm(bumps, axis=-1, keepdims=True)
    return (bumps[0][:, None] * bumps[1]).reshape(-1)


def observe(state: State) -> Float[Array, " PLACE_DIM+1"]:
    """All that the agent sees: its place, and whether it is payday."""
    payday = jnp.where(state.hour % PAYDAY == 0, PAYDAY_FEATURE, 0.0)
    return jnp.append(place_cells(state.place), payday)


def _place(cell: Array) -> Array:
    return jnp.stack([cell // SIDE, cell % SIDE])


def _random_place(key: Array, world: World) -> Array:
    return _place(jax.random.choice(key, world.safe))


def _footprint(place: Array) -> Array:
    return jnp.zeros((SIDE, SIDE), bool).at[place[0], place[1]].set(True)


def _deadly(world: World, place: Array) -> Array:
    return world.deadly[place[0], place[1]]
