"""Recall in two stages: a coarse pass in int8 chooses candidates, and those alone are scored exactly.

int8 by int8, summed in int32, is what matrix units multiply fastest, and a coarse cosine is off by a thousandth or so:
the order is wrong among near neighbours only, and a few times k candidates hold nearly all of the k best.

Under softmax fusion the sum over all slots is that of the coarse pass, in which the candidates' coarse terms give way
to their exact ones. What is left coarse matters little at any temperature: at a low one the candidates are nearly all
of the sum, and at a high one the terms hardly depend on a cosine's last digits.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_kernels.fused_topk.chunks import map_queries
from dmem_kernels.fused_topk.terms import (
    Found,
    Normaliser,
    Operands,
    Rule,
    at_slots_of_queries,
    cosines_at,
    logits,
    softmax_term,
)
from dmem_kernels.selection import canonical, top_k
from dmem_kernels.storage import encode

_ROUNDED = 1e-5  # of a sum: less than that may be what rounding left


def in_int8(operands: Operands) -> Operands:
    """With the queries, too, in int8; their scale drops out of a cosine."""
    return operands._replace(queries=encode(operands.queries, jnp.int8).values)


def candidates_of(rule: Rule, operands: Operands) -> int:
    """How many the coarse pass chooses."""
    assert rule.oversample is not None
    return min(rule.oversample * rule.k, operands.inv_norm.shape[1])


def refined(
    rule: Rule,
    operands: Operands,
    bonus: Float[Array, "A R N"],
    rank: Callable[[int, Operands], tuple[Found, Normaliser | None]],
) -> Found:
    """`rank` finds the best slots, as many as it is told, and says what the softmax over all slots was divided by."""
    coarse = in_int8(operands)
    found, normaliser = rank(candidates_of(rule, operands), coarse)
    candidates = jnp.sort(found.indices, axis=-1)  # so that ties go to the lower slot

    def cosines_of(indices: Int32[Array, "A q c"], *queries: Array) -> list[Array]:
        return [cosines_at(operands._replace(queries=x), indices) for x in queries]

    numbers = candidates.shape[-1] * operands.queries.shape[-1]  # of a query's candidates, brought together
    semantic, coarsely = map_queries(cosines_of, numbers, candidates, operands.queries, coarse.queries)
    live = candidates < operands.inv_norm.shape[1]
    if normaliser is not None:

        def logits_of(cosines: Array) -> Array:
            return jnp.where(live, logits(cosines, operands.semantic_temperature), -jnp.inf)

        semantic = _softmax(logits_of(semantic), logits_of(coarsely), normaliser)
    scores = operands.weight * semantic + at_slots_of_queries(bonus, candidates)
    best, place = jax.vmap(jax.vmap(lambda row: top_k(row, rule.k)))(canonical(jnp.where(live, scores, jnp.nan)))
    place = jnp.where(best > -jnp.inf, place, candidates.shape[-1])
    slots = jnp.take_along_axis(candidates, place, axis=2, mode="fill", fill_value=operands.inv_norm.shape[1])
    return Found(best, slots)


def _softmax(
    exact: Float[Array, "A Q c"], coarse: Float[Array, "A Q c"], normaliser: Normaliser
) -> Float[Array, "A Q c"]:
    """Of the exact logits of the candidates, where all other slots, the rest, have their coarse ones."""
    rest = 1.0 - jnp.sum(softmax_term(coarse, normaliser), axis=-1, keepdims=True)  # of the coarse sum
    rest = jnp.log(jnp.where(rest > _ROUNDED, rest, 0.0))
    x = (exact - normaliser.top) - normaliser.log_total
    top = jnp.maximum(jnp.max(x, axis=-1, keepdims=True), rest)
    terms = jnp.exp(x - top)
    return terms / (jnp.exp(rest - top) + jnp.sum(terms, axis=-1, keepdims=True))
