"""Cosines and gradients at the slots that a search found, computed from those slots alone.

Which slots are found has no gradient. Under plain fusion a score depends on its own slot only. Under softmax fusion
it depends on every slot through the two normalisers; they are computed anew too, over a chunk of queries at a time,
and once more when the gradient comes back, so that no matrix of logits is kept. A chunk counts the queries of a call;
those that a `vmap` around the differentiated call adds are all taken at once.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_kernels.fused_topk.chunks import map_queries
from dmem_kernels.fused_topk.terms import (
    MAX,
    Normaliser,
    Operands,
    Rule,
    at_slots_of_queries,
    inverse_norm,
    log_positive,
    logits,
    softmax_term,
)

_HIGHEST = jax.lax.Precision.HIGHEST


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def with_gradient(
    rule: Rule,
    operands: Operands,
    cosines: Float[Array, "A Q k"],
    indices: Int32[Array, "A Q k"],
    scores: Float[Array, "A Q k"],
) -> Float[Array, "A Q k"]:
    """`scores`, which a search found at `indices`, as a function of the operands and of the `cosines` there."""
    return scores


@with_gradient.defjvp
def _jvp(rule: Rule, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    operands, cosines, indices, _ = primals
    anew = functools.partial(_scores_at, rule, indices)
    return with_gradient(rule, *primals), jax.jvp(anew, (operands, cosines), tangents[:2])[1]


def _scores_at(rule: Rule, indices: Int32[Array, "A Q k"], operands: Operands, cosines: Float[Array, "A Q k"]) -> Array:
    found = indices < operands.inv_norm.shape[1]
    salience = at_slots_of_queries(operands.salience, indices)
    semantic = cosines
    if rule.fusion == "softmax":

        def softmaxed(term: Array, temperature: Array, normaliser: Normaliser) -> Array:
            x = jnp.where(found, logits(term, temperature), normaliser.top)  # so that exp has a gradient everywhere
            return softmax_term(x, normaliser)

        of_cosines, of_salience = _normalisers(operands)
        semantic = softmaxed(cosines, operands.semantic_temperature, of_cosines)
        salience = softmaxed(salience, operands.salience_temperature, of_salience)
    return jnp.where(found, operands.weight * semantic + (1.0 - operands.weight) * salience, 0.0)


def _normalisers(operands: Operands) -> tuple[Normaliser, Normaliser]:
    """Of the cosines' and of the salience's softmax, each [A, Q, 1]."""
    # What no query may see may hold anything, and 0 times that is not 0 in a gradient.
    seen = jnp.any(operands.mask, axis=1)
    embeddings = jnp.where(seen[..., None], operands.embeddings.astype(jnp.float32), 0.0)
    inv_norm = jnp.where(seen, operands.inv_norm, 0.0)[:, None, :]

    @jax.checkpoint
    def of_chunk(queries: Array, mask: Array, salience: Array, *temperatures: Array) -> tuple[Normaliser, Normaliser]:
        dots = jnp.einsum("aqd,and->aqn", queries, embeddings, precision=_HIGHEST)
        terms = dots * inv_norm * inverse_norm(queries), salience
        mask = mask & (salience == salience)
        shape = (*queries.shape[:2], 1)
        found = (_normaliser(term, t, mask) for term, t in zip(terms, temperatures, strict=True))
        of_cosines, of_salience = (Normaliser(*(jnp.broadcast_to(x, shape) for x in one)) for one in found)
        return of_cosines, of_salience

    per_query = operands.queries, operands.mask, operands.salience
    temperatures = operands.semantic_temperature, operands.salience_temperature
    return map_queries(of_chunk, embeddings.shape[1], *per_query, *temperatures)


def _normaliser(
    term: Float[Array, "A q N"], temperature: Float[Array, "A t 1"], mask: Bool[Array, "A s N"]
) -> Normaliser:
    known = mask & (term == term)
    x = jnp.where(known, logits(jnp.where(known, term, 0.0), temperature), -MAX)
    top = jax.lax.stop_gradient(jnp.max(x, axis=-1, keepdims=True))  # it cancels out
    total = jnp.sum(jnp.where(known, jnp.exp(x - top), 0.0), axis=-1, keepdims=True)
    return Normaliser(top, log_positive(total))
