"""The form for XLA: for the CPU, and wherever no kernel of ours fits. Exact, whatever `Rule.keep_per_tile` says.

The best k of many are among the members of k groups: those whose own best is greatest (of a group that is not among
them, no member is among the best k, as k other groups each have one that beats it). So nothing is sorted but the
groups' maxima and the members of k groups. Groups are runs of neighbouring slots, and the chosen ones are looked
through in order of slots, so that ties go to the lower slot as in a sort of all.

XLA:CPU takes a maximum over any axis but the last by vectors, so where queries share a memory, scores lie as
[slots, queries]. Only dot products are ever written to memory, of a chunk of queries at a time; what becomes of them
is computed anew in each sweep, which costs less than to write and read it.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_kernels.fused_topk.chunks import map_queries
from dmem_kernels.fused_topk.terms import (
    MAX,
    Normaliser,
    Operands,
    Rule,
    TopK,
    bonus_of,
    by_lanes,
    inverse_norm,
    log_positive,
    logits,
    score_of,
)
from dmem_kernels.selection import top_k

_LONG_ROW = 2048  # up to here the best of a row are found in the row itself
_HIGHEST = jax.lax.Precision.HIGHEST


def search(rule: Rule, operands: Operands) -> TopK:
    bonus = bonus_of(rule, operands)
    if operands.queries.shape[1] == 1:
        return _one_query_each(rule, operands, bonus)
    return _shared(rule, operands, bonus)


def _one_query_each(rule: Rule, operands: Operands, bonus: Float[Array, "A 1 N"]) -> TopK:
    """Rows of scores [A, N]: what takes time is to read the embeddings once."""
    query, bonus = operands.queries[:, 0], bonus[:, 0]
    weight, temperature = operands.weight[:, 0], operands.semantic_temperature[:, 0]
    cosines = _dots(operands.embeddings, query) * operands.inv_norm * inverse_norm(query)

    normaliser = None
    if rule.fusion == "softmax":
        normaliser = _normaliser(logits(cosines, temperature) + 0.0 * bonus, by_lanes)
    scores = score_of(cosines, bonus, weight, temperature, normaliser)

    best, index = jax.vmap(lambda row: _best_of_row(row, rule.k))(scores)
    index = jnp.where(best > -jnp.inf, index, scores.shape[1])
    found = jax.vmap(lambda row, i: row.at[i].get(mode="fill", fill_value=0))(cosines, index)
    return TopK(best[:, None], index[:, None], found[:, None])


def _dots(embeddings: Float[Array, "A N D"], query: Float[Array, "A D"]) -> Float[Array, "A N"]:
    if embeddings.dtype == jnp.float32:
        return jnp.einsum("and,ad->an", embeddings, query, precision=_HIGHEST)
    # XLA:CPU has no fast product of narrow floats, and widens a memory by copying it. A sum it fuses with both.
    return jnp.sum(embeddings.astype(jnp.float32) * query[:, None, :], axis=-1)


def _normaliser(x: Float[Array, "*shape"], reduce: Callable[..., Array]) -> Normaliser:
    """Of the softmax over logits, NaN where there is none; `reduce` takes what reduces, and of what."""
    top = reduce(jnp.max, jnp.where(x == x, x, -MAX))
    return Normaliser(top, log_positive(reduce(jnp.sum, jnp.where(x == x, jnp.exp(x - top), 0.0))))


def _best_of_row(scores: Float[Array, " N"], k: int) -> tuple[Float[Array, " k"], Int32[Array, " k"]]:
    n = scores.shape[0]
    if n <= _LONG_ROW:
        return top_k(scores, k)
    groups, size = _groups(n, k)
    chosen = _best_groups(jnp.max(jnp.reshape(scores[: groups * size], (groups, size)), axis=1), k)
    slots = _members(chosen, groups, size, n)
    best, place = top_k(scores.at[slots].get(mode="fill", fill_value=-jnp.inf), k)
    return best, slots.at[place].get(mode="fill", fill_value=n)


def _groups(n: int, k: int) -> tuple[int, int]:
    """How many groups of which size have the fewest maxima and members to look through. Slots may be left over."""
    size = max(1, math.isqrt(n // k))
    return n // size, size


def _best_groups(best: Float[Array, " groups"], k: int) -> Int32[Array, " chosen"]:
    """The k groups with the greatest maxima, in order of slots; `groups` in place of one that holds nothing."""
    groups = best.shape[0]
    # That the values are used, too, keeps this a top-k: XLA:CPU makes a whole sort of one whose values are not.
    best, index = top_k(best, min(k, groups))
    return jnp.sort(jnp.where(best > -jnp.inf, index, groups))


def _members(chosen: Int32[Array, " chosen"], groups: int, size: int, n: int) -> Int32[Array, " members"]:
    """The slots of the chosen groups and those in no group, in order; n where a group holds nothing."""
    within = jnp.arange(size, dtype=jnp.int32)[None, :]
    slots = jnp.where(chosen[:, None] < groups, chosen[:, None] * size + within, n)
    return jnp.concatenate([jnp.ravel(slots), jnp.arange(groups * size, n, dtype=jnp.int32)])


def _shared(rule: Rule, operands: Operands, bonus: Float[Array, "A R N"]) -> TopK:
    """Queries that share a memory."""
    embeddings, inv_norm = operands.embeddings, operands.inv_norm

    def search_chunk(*per_query: Array) -> TopK:
        arguments = embeddings, inv_norm, *per_query
        if embeddings.shape[0] > 1:
            return jax.vmap(functools.partial(_one_memory, rule))(*arguments)
        return TopK(*(x[None] for x in _one_memory(rule, *(x[0] for x in arguments))))

    per_query = operands.queries, operands.weight, operands.semantic_temperature, bonus
    return map_queries(search_chunk, embeddings.shape[1], *per_query)


def _one_memory(
    rule: Rule,
    embeddings: Float[Array, "N D"],
    inv_norm: Float[Array, " N"],
    queries: Float[Array, "Q D"],
    weight: Float[Array, "T 1"],
    temperature: Float[Array, "T 1"],
    bonus: Float[Array, "R N"],
) -> TopK:
    """Columns of scores [N, Q]."""
    n, q = embeddings.shape[0], queries.shape[0]
    groups, size = _groups(n, rule.k)
    inv_norm, bonus = inv_norm[:, None], bonus.T  # [N, 1], [N, R]
    inv_query_norm, weight, temperature = inverse_norm(queries).T, weight.T, temperature.T  # [1, Q], [1, T], [1, T]
    dots = jnp.einsum("nd,qd->nq", embeddings.astype(jnp.float32), queries, precision=_HIGHEST)

    def of_groups(reduce: Callable[..., Array], x: Array) -> Array:
        return reduce(jnp.reshape(x[: groups * size], (groups, size, q)), axis=1)  # [groups, Q]

    def of_all(reduce: Callable[..., Array], x: Array) -> Array:
        return reduce(jnp.concatenate([of_groups(reduce, x), x[groups * size :]]), axis=0, keepdims=True)  # [1, Q]

    normaliser = None
    if rule.fusion == "softmax":
        normaliser = _normaliser(logits(dots * inv_norm * inv_query_norm, temperature) + 0.0 * bonus, of_all)

    def scored(dots: Array, inv_norm: Array, bonus: Array) -> tuple[Array, Array]:
        cosines = dots * inv_norm * inv_query_norm
        return cosines, score_of(cosines, bonus, weight, temperature, normaliser)

    group_best = of_groups(jnp.max, scored(dots, inv_norm, bonus)[1])
    chosen = jax.vmap(lambda best: _best_groups(best, rule.k))(group_best.T)
    slots = jax.vmap(lambda chosen: _members(chosen, groups, size, n))(chosen).T  # [members, Q]
    query = jnp.arange(q)[None, :]

    def at_slots(x: Array) -> Array:
        column = query if x.shape[1] == q else 0
        return x.at[slots, column].get(mode="fill", fill_value=jnp.nan)  # what scores NaN scores -inf

    cosines, scores = scored(at_slots(dots), at_slots(inv_norm), at_slots(bonus))
    best, place = jax.vmap(lambda row: top_k(row, rule.k))(scores.T)
    place = jnp.where(best > -jnp.inf, place, slots.shape[0])
    return TopK(
        best,
        jnp.take_along_axis(slots.T, place, axis=1, mode="fill", fill_value=n),
        jnp.take_along_axis(cosines.T, place, axis=1, mode="fill", fill_value=0),
    )
