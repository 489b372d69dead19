"""The shared data: full stores, and a stream of experiences and queries that takes every path of a step.

Shapes: A agents, N slots (both tiers), D embedding size, T steps of one round.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import larger_rounds

FEATURES = 32  # the payload is this many float32 and one int32, as much as a small observation and an action
PLACES = 16  # rows of the full store that queries return to


@dataclasses.dataclass(frozen=True)
class Work:
    agents: int
    slots: int
    dim: int
    top_k: int = 8

    @property
    def core_capacity(self) -> int:
        return max(1, self.slots // 4)

    @property
    def nbytes(self) -> int:
        """Bytes of the embeddings of all agents."""
        return 4 * self.agents * self.slots * self.dim

    @property
    def steps(self) -> int:
        """Steps of one round: two GB of embeddings read, so that a round takes some tenths of a second on a CPU."""
        return int(min(64, max(4, larger_rounds() * 2**31 // self.nbytes)))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["experience", "query"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Stretch:
    """One round of the stream, of arrays [T, A, ...]; or one step of it, [A, ...], by JAX or NumPy."""

    experience: dict[str, Any]  # a row's embedding [D], rpe, features [FEATURES], action
    query: Any  # [D]


@functools.partial(jax.jit, static_argnums=0)
def full_rows(work: Work) -> dict[str, jax.Array]:
    """Full stores of all agents as plain arrays [A, N, ...], one for every field that SPEC 1 stores.

    Core's rows (the first quarter) are stronger than the buffer's and weaker than most of what the stream sends to
    core, so that newcomers find a victim, and core's victim finds one in the buffer.
    """
    shape = (work.agents, work.slots)
    keys = jax.random.split(jax.random.key(0), 6)
    # Drawn for some agents and repeated for the rest: what a step costs doesn't depend on the numbers, and drawing
    # them for all would take longer than the measurement.
    drawn = jnp.arange(work.agents) % min(work.agents, 64)
    embedding = jax.random.normal(keys[0], (min(work.agents, 64), work.slots, work.dim))[drawn]
    in_core = jnp.broadcast_to(jnp.arange(work.slots) < work.core_capacity, shape)
    strength = jnp.where(in_core, 0.3, 0.05) + jax.random.uniform(keys[1], shape, maxval=0.25)
    sign = jax.random.rademacher(keys[2], shape, jnp.float32)
    rpe = sign * jax.random.uniform(keys[3], shape, minval=0.5, maxval=1.5)
    ids = jnp.broadcast_to(jnp.arange(work.slots, dtype=jnp.int32), shape)
    # A distinct computation for each: no two leaves may share a buffer, or donation fails.
    whole = lambda value: jnp.full(shape, value, jnp.int32)  # noqa: E731
    return {
        "embedding": embedding,
        "inv_norm": 1 / jnp.linalg.norm(embedding, axis=-1),
        "rpe": rpe,
        "reward": rpe + 0,
        "value": jnp.zeros(shape),
        "task": whole(0),
        "time": ids + 1,
        "strength": strength,
        "written_strength": strength * 1.5,
        "touched": ids + 1,
        "recalls": whole(0),
        "successes": whole(0),
        "count": whole(1),
        "contradicted": jnp.zeros(shape, bool),
        "id": ids,
        "features": jax.random.normal(keys[4], (min(work.agents, 64), work.slots, FEATURES))[drawn],
        "action": jax.random.randint(keys[5], shape, 0, 8),
    }


@functools.partial(jax.jit, static_argnums=0, static_argnames=("steps", "surprising"))
def _stretch(work: Work, places: jax.Array, round: jax.Array, steps: int, surprising: float) -> Stretch:
    shape = (steps, work.agents)
    keys = iter(jax.random.split(jax.random.fold_in(jax.random.key(1), round), 10))
    half = lambda: jax.random.bernoulli(next(keys), 0.5, shape)  # noqa: E731

    place = jax.random.randint(next(keys), shape, 0, places.shape[1])
    known = places[jnp.arange(work.agents)[None, :], place]
    query = jnp.where(half()[..., None], known, jax.random.normal(next(keys), (*shape, work.dim)))
    # Half of the experiences happen where the agent just asked, so that the probe knows their duplicates.
    elsewhere = jax.random.normal(next(keys), (*shape, work.dim))
    embedding = jnp.where(half()[..., None], jnp.roll(query, 1, axis=0), elsewhere)
    # With half of the stream at 0.5 .. 1.5 and the rest near nothing, the running scale is about a half, so that under
    # the default thresholds of 1 and 2 routine is dropped and surprises go to core and buffer in equal parts.
    size = jnp.where(
        jax.random.bernoulli(next(keys), surprising, shape),
        jax.random.uniform(next(keys), shape, minval=0.5, maxval=1.5),
        0.01,
    )
    experience = {
        "embedding": embedding,
        "rpe": size * jnp.where(half(), 1.0, -1.0),
        "features": jax.random.normal(next(keys), (*shape, FEATURES)),
        "action": jnp.broadcast_to(place % 8, shape),
    }
    return Stretch(experience, query)


class Stream:
    """Calling it with a round's number gives that round's `Stretch`, the same for every contender."""

    def __init__(self, work: Work, rows: dict[str, jax.Array], steps: int | None = None, surprising: float = 0.5):
        self.work, self.steps, self.surprising = work, steps or work.steps, surprising
        self.places = jnp.array(rows["embedding"][:, :: max(1, work.slots // PLACES)])  # from both tiers

    def __call__(self, round: int) -> Stretch:
        return _stretch(self.work, self.places, jnp.int32(round), steps=self.steps, surprising=self.surprising)
