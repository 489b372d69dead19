"""The shadow: a ring of what was dropped, asked when the memory has nothing like the query (arXiv 2603.14597)."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax.config import SHADOW_ROWS, Config
from dmem_jax.filters import asked_for
from dmem_jax.params import Params
from dmem_jax.similarity import cosines, inverse_norm
from dmem_jax.size import current_scale
from dmem_jax.slots import keep_rows, put, read
from dmem_jax.types import Experience, Memory, Query, Recall, Tier
from dmem_kernels import canonical, top_k

_LEAST_COSINE = 0.2  # of an item that is worth mentioning, as in the paper


def keep_dropped(memory: Memory, experience: Experience, dropped: Bool[Array, ""]) -> Memory:
    """`memory` with the experience in its shadow, where `dropped`; the oldest one there makes room."""
    shadow = memory.shadow
    if shadow is None:
        return memory
    places = shadow.rpe.shape[-1]
    names = ("embedding", "inv_norm", "rpe", "task", "time", "payload")
    row = (
        experience.embedding,
        inverse_norm(experience.embedding),
        experience.rpe,
        experience.task,
        memory.clock,
        experience.payload,
    )
    kept = put(tuple(getattr(shadow, name) for name in names), jnp.where(dropped, shadow.cursor, places), row)
    shadow = dataclasses.replace(
        shadow,
        **dict(zip(names, kept, strict=True)),
        cursor=jnp.where(dropped, (shadow.cursor + 1) % places, shadow.cursor),
        filled=jnp.minimum(shadow.filled + dropped.astype(jnp.int32), places),
    )
    return dataclasses.replace(memory, shadow=shadow)


def with_shadow(
    config: Config,
    params: Params,
    memory: Memory,
    query: Query,
    now: Int32[Array, ""],
    answerable: Bool[Array, ""],
    best_cosine: Float[Array, ""],
    recall: Recall,
) -> Recall:
    """`recall` and up to three items of the shadow that `query` asks for, if `best_cosine`, the greatest in the memory,
    is below `shadow_below`. Their score is their cosine."""
    shadow = memory.shadow
    if shadow is None:
        return recall
    near = cosines(shadow.embedding, shadow.inv_norm, query.embedding)
    filled = jnp.arange(shadow.rpe.shape[-1], dtype=jnp.int32) < shadow.filled
    worth = (
        filled
        & asked_for(query, shadow, now)
        & (near > _LEAST_COSINE)
        & answerable
        & (best_cosine < params.shadow_below)
    )
    score, place = top_k(canonical(jnp.where(worth, near, -jnp.inf)), SHADOW_ROWS)
    valid = score > -jnp.inf
    rpe, payload = keep_rows(valid, read((shadow.rpe, shadow.payload), place))
    rows = Recall(
        slot=jnp.where(valid, place, config.buffer_capacity),
        tier=jnp.where(valid, jnp.int32(Tier.SHADOW), jnp.int32(Tier.BUFFER)),
        id=jnp.full_like(place, -1),
        score=score,
        semantic=jnp.where(valid, score, 0.0),
        salience=jnp.minimum(jnp.abs(rpe) / current_scale(config, memory.router), jnp.finfo(jnp.float32).max),
        rpe=rpe,
        contradicted=jnp.zeros_like(valid),
        valid=valid,
        payload=payload,
    )
    return jax.tree.map(lambda ours, theirs: jnp.concatenate([ours, theirs]), recall, rows)
