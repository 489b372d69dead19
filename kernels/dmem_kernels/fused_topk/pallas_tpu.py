"""The kernel for TPUs: a tile of slots is read once, scored by all queries, and gives its best few to a last top-k.

The grid is memories x tiles x blocks of queries, the last varying fastest, so that a tile of embeddings stays in VMEM
while every block of queries meets it. Under softmax fusion a sweep before it takes each tile's greatest logit and sum.
The best of a tile are taken one by one, as maximum and lowest slot that has it; k of each tile make the result exact,
fewer make it the approximate top-k of arXiv 2506.04165, which generalises TPU-KNN, arXiv 2206.14286.

Blocks have last two sizes that are multiples of (8, 128) or the whole axis. What lies beyond the last slot is masked.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from dmem_kernels.fused_topk.merging import kept, merged
from dmem_kernels.fused_topk.terms import (
    MAX,
    Found,
    Normaliser,
    Operands,
    Rule,
    bonus_of,
    inverse_norm,
    joined,
    logits,
    output_type,
    score_of,
)
from dmem_kernels.fused_topk.tiles import TILES, slots_per_tile
from dmem_kernels.selection import canonical

_MOST_KEPT = 128  # more rounds than that cost more than a sort


def unsupported(rule: Rule, operands: Operands) -> str | None:
    """Why this kernel cannot do it, if it cannot."""
    if rule.oversample is not None:
        return "recall in two stages is left to XLA"
    if kept(rule) > _MOST_KEPT:
        return f"it takes the best of a tile one by one, {_MOST_KEPT} at most, and k is {rule.k}"
    dim = operands.queries.shape[2]
    if slots_per_tile(TILES["tpu"], 128, dim) == 0:
        return f"128 embeddings of {dim} numbers do not fit into a tile"
    return None


def search(rule: Rule, operands: Operands, interpret: bool = False) -> Found:
    """`interpret` runs the kernel as plain XLA, anywhere."""
    a, q, dim = operands.queries.shape
    n = operands.inv_norm.shape[1]
    bonus, inv_query_norm = bonus_of(rule, operands), inverse_norm(operands.queries)
    tile = TILES["tpu"]
    slots, queries = slots_per_tile(tile, n, dim), min(tile.queries, q)
    tiles = pl.cdiv(n, slots)
    keep = min(kept(rule), slots)

    inputs = operands.queries, operands.embeddings, operands.inv_norm[:, None], bonus

    def by_query(columns: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, queries, columns), lambda a, t, b: (a, b, 0))

    def by_slot(shared: bool) -> pl.BlockSpec:
        if shared:
            return pl.BlockSpec((None, 1, slots), lambda a, t, b: (a, 0, t))
        return pl.BlockSpec((None, queries, slots), lambda a, t, b: (a, b, t))

    def run(kernel: Callable[..., None], per_query: list[Array], width: int, dtypes: list[Any]) -> list[Array]:
        """Outputs [A, tiles, Q, width] of the given dtypes, which `kernel` makes tile by tile."""
        columns = jnp.concatenate([jnp.broadcast_to(x, (a, q, 1)) for x in per_query], axis=2)
        embeddings = pl.BlockSpec((None, slots, dim), lambda a, t, b: (a, t, 0))
        output = pl.BlockSpec((None, None, queries, width), lambda a, t, b: (a, t, b, 0))
        return list(
            pl.pallas_call(
                functools.partial(kernel, n),
                grid=(a, tiles, pl.cdiv(q, queries)),
                in_specs=[
                    by_query(dim),
                    embeddings,
                    by_slot(shared=True),
                    by_slot(shared=bonus.shape[1] == 1),
                    by_query(len(per_query)),
                ],
                out_specs=[output for _ in dtypes],
                out_shape=[output_type(operands, (a, tiles, q, width), dtype) for dtype in dtypes],
                interpret=interpret,
            )(*inputs, columns)
        )

    known = [inv_query_norm, operands.weight, operands.semantic_temperature]
    if rule.fusion == "softmax":
        tops, totals = run(_sum_tile, known, 1, [jnp.float32, jnp.float32])
        known += joined(*(jnp.moveaxis(x[..., 0], 1, 2) for x in (tops, totals)))
    return merged(rule.k, n, *run(_rank_tile, known, keep, [jnp.float32, jnp.int32]))


def _cosines(query_ref, embedding_ref, inv_norm_ref, per_query: list[Array]) -> Float[Array, "q n"]:
    dots = jax.lax.dot_general(
        query_ref[...],
        embedding_ref[...].astype(jnp.float32),
        (((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return dots * inv_norm_ref[...] * per_query[0]


def _columns(per_query_ref) -> list[Array]:
    per_query = per_query_ref[...]
    return [per_query[:, i : i + 1] for i in range(per_query.shape[1])]


def _slots(shape: tuple[int, ...]) -> Array:
    return pl.program_id(1) * shape[1] + jax.lax.broadcasted_iota(jnp.int32, shape, 1)


def _sum_tile(n, query_ref, embedding_ref, inv_norm_ref, bonus_ref, per_query_ref, top_ref, total_ref):
    """The greatest logit of a tile, and the sum of exp(logit - greatest)."""
    per_query = _columns(per_query_ref)
    x = logits(_cosines(query_ref, embedding_ref, inv_norm_ref, per_query), per_query[2])
    bonus = bonus_ref[...]
    known = (x == x) & (bonus == bonus) & (_slots(x.shape) < n)
    x = jnp.where(known, x, -MAX)
    top = jnp.max(x, axis=1, keepdims=True)
    top_ref[...] = top
    total_ref[...] = jnp.sum(jnp.where(known, jnp.exp(x - top), 0.0), axis=1, keepdims=True)


def _rank_tile(n, query_ref, embedding_ref, inv_norm_ref, bonus_ref, per_query_ref, score_ref, index_ref):
    """The best of a tile, best first: score and slot."""
    per_query = _columns(per_query_ref)
    cosines = _cosines(query_ref, embedding_ref, inv_norm_ref, per_query)
    normaliser = Normaliser(*per_query[3:]) if len(per_query) > 3 else None
    scores = canonical(score_of(cosines, bonus_ref[...], per_query[1], per_query[2], normaliser))
    slots = _slots(scores.shape)
    scores = jnp.where(slots < n, scores, -jnp.inf)
    column = jax.lax.broadcasted_iota(jnp.int32, score_ref.shape, 1)

    def take_best(i, carry):
        scores, found, index = carry
        best = jnp.max(scores, axis=1, keepdims=True)
        slot = jnp.min(jnp.where(scores == best, slots, n), axis=1, keepdims=True)
        chosen, here = slots == slot, column == i
        found = jnp.where(here, best, found)
        index = jnp.where(here, slot, index)
        return jnp.where(chosen, -jnp.inf, scores), found, index

    nothing = jnp.zeros(score_ref.shape, jnp.float32), jnp.zeros(score_ref.shape, jnp.int32)
    _, score_ref[...], index_ref[...] = jax.lax.fori_loop(0, score_ref.shape[1], take_best, (scores, *nothing))
