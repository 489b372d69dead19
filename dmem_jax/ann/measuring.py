"""How much of exact recall the recall through an index finds."""

import jax
from jaxtyping import Array

from dmem_jax import inputs
from dmem_jax.ann.index import Index
from dmem_jax.ann.recalling import recall
from dmem_jax.checks import check_asked
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentValueError
from dmem_jax.params import Params
from dmem_jax.retrieval import search
from dmem_jax.similarity import pool_cosines
from dmem_jax.types import Memory, Query, Recall


def measured_recall(
    config: Config,
    params: Params,
    memory: Memory,
    index: Index,
    queries: Query | Array,
    *,
    candidates: int | None = None,
) -> float:
    """Share of the memories that exact recall gives for `queries` [Q] (some dozens: each is a pass over the memory)
    that `recall` gives, too; in [0, 1]. `index.summary()` tells it from then on. Raises as `recall` does."""
    queries = inputs.as_query(config, queries)
    if queries.embedding.ndim != 2:
        raise ArgumentValueError(f"queries: expected [Q, D], got {list(queries.embedding.shape)}.")
    found = recall(config, params, memory, index, queries, candidates=candidates)
    exact = _exact(config, params, memory, queries)
    hit = (exact.id[:, :, None] == found.id[:, None, :]) & exact.valid[:, :, None] & found.valid[:, None, :]
    wanted = int(exact.valid.sum())
    index.measured = int(hit.sum()) / wanted if wanted else 1.0
    return index.measured


@jax.jit
def _exact(config: Config, params: Params, memory: Memory, queries: Query) -> Recall:
    def one(query: Query) -> Recall:
        sound, asked, answerable = check_asked(config, params, memory, query)
        return search(config, sound, memory, asked, answerable, pool_cosines(memory, asked.embedding))

    return jax.lax.map(one, queries)
