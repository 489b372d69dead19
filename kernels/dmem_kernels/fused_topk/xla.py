"""The form for XLA: for the CPU, and wherever no kernel of ours fits. Exact, whatever `Rule.keep_per_tile` says.

XLA:CPU reduces any axis but the last by vectors, so where queries share a memory, scores lie as [slots, queries]. One
such matrix is all that is ever written to memory, for a chunk of queries at a time: dot products, or in their place
the numerators of a softmax, as exp is too slow to be computed twice (of int8 both, for half as many queries). What
becomes of them is computed by the sweeps that reduce it.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, Shaped

from dmem_kernels.fused_topk.chunks import map_queries
from dmem_kernels.fused_topk.groups import best_members, groups_of, reduced_all, reduced_groups
from dmem_kernels.fused_topk.terms import (
    MAX,
    Found,
    Normaliser,
    Operands,
    Rule,
    bonus_of,
    inverse_norm,
    log_positive,
    logits,
    some,
)
from dmem_kernels.fused_topk.two_stages import refined
from dmem_kernels.products import of_many_each, of_one_each
from dmem_kernels.reductions import GREATEST, SUM, reduced_rows
from dmem_kernels.selection import canonical, top_k

_LONG_ROW = 2048  # up to here the best of a row are found in the row itself


def search(rule: Rule, operands: Operands) -> Found:
    bonus = bonus_of(rule, operands)
    rank = functools.partial(_rank, rule.fusion, bonus)
    if rule.oversample is None:
        return rank(rule.k, operands)[0]
    return refined(rule, operands, bonus, rank)


def _rank(fusion: str, bonus: Float[Array, "A R N"], k: int, operands: Operands) -> tuple[Found, Normaliser | None]:
    """The k best slots, and what the softmax of the cosines was divided by."""
    find = _one_query_each if operands.queries.shape[1] == 1 else _shared
    (best, index), normaliser = find(fusion, bonus, k, operands)
    return Found(best, jnp.where(best > -jnp.inf, index, operands.inv_norm.shape[1])), normaliser


def _one_query_each(
    fusion: str, bonus: Float[Array, "A 1 N"], k: int, operands: Operands
) -> tuple[Found, Normaliser | None]:
    """Rows of scores [A, N]: what takes time is to read the embeddings once."""
    # No matrix unit takes part here, and XLA:CPU sums floats faster than integers.
    query, bonus = operands.queries[:, 0].astype(jnp.float32), bonus[:, 0]
    weight, temperature = operands.weight[:, 0], operands.semantic_temperature[:, 0]
    semantic, normaliser = of_one_each(operands.embeddings, query) * operands.inv_norm * inverse_norm(query), None
    if fusion == "softmax":
        x = logits(semantic, temperature) + 0.0 * bonus  # NaN where that is
        top = jnp.maximum(reduced_rows(GREATEST, x), -MAX)
        semantic = jnp.exp(x - top)
        total = reduced_rows(SUM, semantic)
        weight = weight / some(total)
        normaliser = Normaliser(top[:, None], log_positive(total)[:, None])
    best, index = jax.vmap(lambda row: _best_of_row(row, k))(canonical(weight * semantic + bonus))
    return Found(best[:, None], index[:, None]), normaliser


def _best_of_row(scores: Float[Array, " N"], k: int) -> tuple[Float[Array, " k"], Int32[Array, " k"]]:
    n = scores.shape[0]
    if n <= _LONG_ROW:
        return top_k(scores, k)
    groups = groups_of(n, k)
    rows = jnp.reshape(scores[: groups.number * groups.size], (groups.number, groups.size))
    members = best_members(groups, jnp.max(rows, axis=1), k)
    best, place = top_k(scores.at[members].get(mode="fill", fill_value=-jnp.inf), k)
    return best, members.at[place].get(mode="fill", fill_value=n)


def _shared(fusion: str, bonus: Float[Array, "A R N"], k: int, operands: Operands) -> tuple[Found, Normaliser | None]:
    """Queries that share a memory."""
    embeddings, inv_norm = operands.embeddings, operands.inv_norm

    def search_chunk(*per_query: Array) -> tuple[Found, Normaliser | None]:
        arguments = embeddings, inv_norm, *per_query
        one_memory = functools.partial(_one_memory, fusion, k)
        if embeddings.shape[0] > 1:
            return jax.vmap(one_memory)(*arguments)
        return jax.tree.map(lambda x: x[None], one_memory(*(x[0] for x in arguments)))

    per_query = operands.queries, operands.weight, operands.semantic_temperature, bonus
    # Numerators take the place of dot products, but not of those that are whole numbers or made block by block.
    matrices = 2 if fusion == "softmax" and embeddings.dtype == jnp.int8 else 1
    return map_queries(search_chunk, matrices * embeddings.shape[1], *per_query)


def _one_memory(
    fusion: str,
    k: int,
    embeddings: Shaped[Array, "N D"],
    inv_norm: Float[Array, " N"],
    queries: Shaped[Array, "Q D"],
    weight: Float[Array, "T 1"],
    temperature: Float[Array, "T 1"],
    bonus: Float[Array, "R N"],
) -> tuple[Found, Normaliser | None]:
    """Columns of scores [N, Q]."""
    n, q = embeddings.shape[0], queries.shape[0]
    groups = groups_of(n, k)
    inv_norm, bonus = inv_norm[:, None], bonus.T  # [N, 1], [N, R]
    inv_query_norm = inverse_norm(queries.astype(jnp.float32)).T  # [1, Q]
    weight, temperature = weight.T, temperature.T  # [1, T]
    dots = _products(embeddings, queries)

    def cosines_of(dots: Array, inv_norm: Array) -> Array:
        return dots.astype(jnp.float32) * inv_norm * inv_query_norm

    def logits_of(dots: Array, inv_norm: Array, bonus: Array) -> Array:
        return logits(cosines_of(dots, inv_norm), temperature) + 0.0 * bonus  # NaN where that is

    def plain(dots: Array, inv_norm: Array, bonus: Array) -> Array:
        return weight * cosines_of(dots, inv_norm) + bonus

    def softmaxed(numerators: Array, bonus: Array) -> Array:
        return share * numerators + bonus

    per_slot, score_of, normaliser = (dots, inv_norm, bonus), plain, None
    if fusion == "softmax":
        top = jnp.maximum(reduced_all(groups, GREATEST, logits_of, *per_slot), -MAX)
        numerators = jnp.exp(logits_of(*per_slot) - top)
        total = reduced_all(groups, SUM, lambda x: x, numerators)
        share = weight / some(total)
        normaliser = Normaliser(top.T, log_positive(total).T)
        per_slot, score_of = (numerators, bonus), softmaxed

    best = canonical(reduced_groups(groups, GREATEST, score_of, *per_slot))
    members = jax.vmap(lambda best: best_members(groups, best, k), in_axes=1, out_axes=1)(best)  # [members, Q]

    def at_members(x: Array) -> Array:
        column = jnp.arange(q)[None, :] if x.shape[1] == q else 0
        # Beyond the last slot a float is NaN, and what scores NaN scores -inf.
        return x.at[members, column].get(mode="fill")

    scores = canonical(score_of(*(at_members(x) for x in per_slot)))
    best, place = jax.vmap(lambda column: top_k(column, k), in_axes=1)(scores)
    return Found(best, jnp.take_along_axis(members.T, place, axis=1, mode="fill", fill_value=n)), normaliser


def _products(
    embeddings: Shaped[Array, "N D"], queries: Shaped[Array, "Q D"]
) -> Float[Array, "N Q"] | Int32[Array, "N Q"]:
    if queries.dtype == jnp.int8:
        return jnp.einsum("nd,qd->nq", embeddings, queries, preferred_element_type=jnp.int32)
    if embeddings.dtype == jnp.float32:
        return jnp.einsum("nd,qd->nq", embeddings, queries, precision=jax.lax.Precision.HIGHEST)
    return of_many_each("anq", embeddings[None], queries[None])[0]
