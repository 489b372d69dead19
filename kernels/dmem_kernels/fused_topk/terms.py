"""What every implementation shares: the operands brought to one form, and the formulas of a score.

Letters: A memories, Q queries of each, N slots, D numbers in an embedding, k results. R, S and T are each 1 (one for
all queries of a memory) or Q.

    cosine   = (query . embedding) * inv_norm / |query|
    plain:     w * cosine + (1 - w) * salience
    softmax:   w * softmax(cosine / T1) + (1 - w) * softmax(salience / T2), both over the slots that the mask admits

The part of a score that no embedding enters, `bonus`, is small and made beforehand. It is NaN where the mask says no,
and so is then the score, which `canonical` turns into -inf: one array tells an inner loop both.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Shaped

from dmem_kernels.reductions import GREATEST, SUM, reduced_rows

MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rule:
    """What to compute; static."""

    k: int
    fusion: Literal["plain", "softmax"]
    keep_per_tile: int | None  # None: exact
    oversample: int | None = None  # None: in one stage


class Operands(NamedTuple):
    """A memories with Q queries each."""

    queries: Shaped[Array, "A Q D"]  # float32; int8 in a coarse pass
    embeddings: Shaped[Array, "A N D"]  # float32, bfloat16 or int8; all else float32
    inv_norm: Float[Array, "A N"]
    salience: Float[Array, "A R N"]
    mask: Bool[Array, "A S N"]
    weight: Float[Array, "A T 1"]
    semantic_temperature: Float[Array, "A T 1"]
    salience_temperature: Float[Array, "A T 1"]


class Found(NamedTuple):
    """The best slots of each query, best first. What is beyond the live slots has score -inf and index N."""

    scores: Float[Array, "A Q k"]
    indices: Int32[Array, "A Q k"]


class Normaliser(NamedTuple):
    """softmax(x) = exp((x - top) - log_total); apart, as their sum would lose `log_total` where `top` is huge."""

    top: Float[Array, "*batch"]
    log_total: Float[Array, "*batch"]


def inverse_norm(vectors: Float[Array, "*batch D"]) -> Float[Array, "*batch 1"]:
    """1 / Euclidean norm; 0 where the norm is 0, and with gradient 0 there."""
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    some = squares > 0
    return jnp.where(some, 1.0 / jnp.sqrt(jnp.where(some, squares, 1.0)), 0.0)


def at_slots(per_slot: Shaped[Array, "A N *rest"], indices: Int32[Array, "A Q k"]) -> Shaped[Array, "A Q k *rest"]:
    """What is said of the slots at `indices`; 0 at index N."""
    return jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0))(per_slot, indices)


def at_slots_of_queries(per_query: Float[Array, "A R N"], indices: Int32[Array, "A Q k"]) -> Float[Array, "A Q k"]:
    """What each query, or all of them, is told of the slots at `indices`; 0 at index N."""
    if per_query.shape[1] == 1:
        return at_slots(per_query[:, 0], indices)
    return jnp.take_along_axis(per_query, indices, axis=2, mode="fill", fill_value=0)


def cosines_at(operands: Operands, indices: Int32[Array, "A Q k"]) -> Float[Array, "A Q k"]:
    """The cosine of each query with the slots found for it; 0 at index N."""
    rows, queries = at_slots(operands.embeddings, indices).astype(jnp.float32), operands.queries.astype(jnp.float32)
    dots = jnp.einsum("aqkd,aqd->aqk", rows, queries, precision=jax.lax.Precision.HIGHEST)
    cosines = dots * at_slots(operands.inv_norm, indices) * inverse_norm(queries)
    return jnp.where(indices < operands.inv_norm.shape[1], cosines, 0.0)  # also where a query is no number


def logits(term: Float[Array, "*batch"], temperature: Float[Array, "*#batch"]) -> Float[Array, "*batch"]:
    """What a softmax is taken of; finite, or NaN where `term` is."""
    return jnp.clip(term / temperature, -MAX, MAX)


def softmax_term(x: Float[Array, "*batch"], normaliser: Normaliser) -> Float[Array, "*batch"]:
    return jnp.exp((x - normaliser.top) - normaliser.log_total)


def log_positive(total: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """ln(total), and 0 where nothing was summed: there nothing is scored either."""
    return jnp.log(some(total))


def joined(tops: Float[Array, "*batch n"], totals: Float[Array, "*batch n"]) -> Normaliser:
    """The normaliser of the whole from the greatest logit and the sum of exp(logit - greatest) of each of n parts."""
    top = jnp.max(tops, axis=-1, keepdims=True)
    total = jnp.sum(totals * jnp.exp(tops - top), axis=-1, keepdims=True)
    return Normaliser(top, log_positive(total))


def bonus_of(rule: Rule, operands: Operands) -> Float[Array, "A R N"]:
    """What salience adds to each score, NaN where the mask says no or the salience is NaN. R is 1 where it can be."""
    salience = jnp.where(operands.mask, operands.salience, jnp.nan)
    weight = 1.0 - operands.weight
    if rule.fusion == "plain":
        return weight * salience
    x = logits(salience, operands.salience_temperature)
    numerators = jnp.exp(x - jnp.maximum(reduced_rows(GREATEST, x), -MAX))
    return weight / some(reduced_rows(SUM, numerators)) * numerators


def output_type(operands: Operands, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """A kernel's output, which varies over the devices of a `shard_map` where any of the operands does."""
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=jax.typeof(_any_of(operands)).manual_axis_type)


def varying(operands: Operands, outputs: list[Array]) -> list[Array]:
    """The `outputs` of a kernel that cannot be told so beforehand."""
    either = _any_of(operands) > 0
    return [jnp.where(either, x, x) for x in outputs]


def _any_of(operands: Operands) -> Float[Array, ""]:
    """A number that comes of all of them."""
    return jnp.sum(jnp.stack([x[(0,) * x.ndim].astype(jnp.float32) for x in operands]))


def some(total: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A sum to divide by: where it is 0, nothing is divided."""
    return jnp.where(total > 0, total, 1.0)


def score_of(
    cosines: Float[Array, "*batch"],
    bonus: Float[Array, "*#batch"],
    weight: Float[Array, "*#batch"],
    temperature: Float[Array, "*#batch"],
    normaliser: Normaliser | None,
) -> Float[Array, "*batch"]:
    """Scores, not canonical yet; `normaliser` is that of the cosines' softmax, None under plain fusion."""
    semantic = cosines if normaliser is None else softmax_term(logits(cosines, temperature), normaliser)
    return weight * semantic + bonus
