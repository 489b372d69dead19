"""Which memories may say the same as a newcomer, by a few numbers of each instead of all.

A projection makes no distance greater, and unit vectors with a cosine c are sqrt(2 - 2c) apart. So what lies further
from the newcomer than that in 32 dimensions cannot be its duplicate; the few that remain are compared in full. It is
exact, and reads a twelfth of the vectors of MiniLM; where too many remain, or novelty must be known, all are read.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax import duplicates
from dmem_jax.config import Config
from dmem_jax.params import Params
from dmem_jax.pool import gather, pooled
from dmem_jax.similarity import cosines, directions, inverse_norm, pool_cosines
from dmem_jax.surprise import closest_cosine
from dmem_jax.types import Memory, Probe, Store
from dmem_kernels import first_max, top_k

_SIZE = 32
_FEW = 64  # memories that are compared in full
_ROUNDING = 1e-3  # of a squared distance of at most 4


@functools.lru_cache
def _projection(dim: int) -> np.ndarray:
    """Orthonormal columns, float32 [dim, at most _SIZE]; a few dimensions are all kept."""
    if dim <= _SIZE:
        return np.eye(dim, dtype=np.float32)
    return np.linalg.qr(np.random.default_rng(0).standard_normal((dim, _SIZE)))[0].astype(np.float32)


def of_rows(rows: Store) -> Float[Array, "n S"]:
    """The sketch of each row."""
    return directions(rows.embedding, rows.inv_norm) @ _projection(rows.embedding.shape[-1])


@jax.jit
def of_memory(memory: Memory) -> Float[Array, "N S"]:
    """The sketch of every pool slot."""
    return jnp.concatenate([of_rows(memory.core), of_rows(memory.buffer)])


def probed(
    config: Config,
    params: Params,
    memory: Memory,
    sketch: Float[Array, "N S"],
    embedding: Float[Array, " D"],
    task: Int32[Array, ""],
    novelty: Bool[Array, ""],
) -> Memory:
    """`memory` with the probe that lets the next write know the duplicates of `embedding`, and, where `novelty` is
    asked for, how near the nearest memory is. The same that `Config.duplicates="search"` finds."""
    own = (embedding * inverse_norm(embedding)) @ _projection(embedding.shape[-1])
    live = pooled(memory, lambda tier: tier.id >= 0)
    apart = jnp.where(live, jnp.sum(jnp.square(sketch - own[None]), axis=-1), jnp.inf)
    near = apart <= 2.0 - 2.0 * params.duplicate_similarity + _ROUNDING
    many = jnp.sum(near, dtype=jnp.int32) > _FEW

    def among_all() -> tuple[Array, Array, Array]:
        every = pool_cosines(memory, embedding)
        nearest = duplicates.nearest(config, memory, every, task)
        return nearest.slot, nearest.similarity, closest_cosine(config, memory, every)

    def among_few() -> tuple[Array, Array, Array]:
        _, slot = top_k(-apart, min(_FEW, config.pool_capacity))
        slot = jnp.sort(slot)  # of equal ones the lower
        rows = gather(config, memory, lambda tier: (tier.embedding, tier.inv_norm, tier.task, tier.rpe, tier.id), slot)
        vectors, inv_norm, tasks, rpe, id_ = rows
        found = cosines(vectors, inv_norm, embedding)
        best = [
            first_max(jnp.where((id_ >= 0) & (tasks == task) & of_sign, found, -jnp.inf))
            for of_sign in (rpe >= 0, rpe < 0)
        ]
        similarity, where = (jnp.stack(each) for each in zip(*best, strict=True))
        return slot[where], similarity, jnp.float32(-jnp.inf)

    slot, similarity, closest = jax.lax.cond(many | novelty, among_all, among_few)
    probe = Probe(
        embedding=embedding, task=task, slot=slot, similarity=similarity, closest=closest, valid=jnp.bool_(True)
    )
    return dataclasses.replace(memory, probe=probe)
