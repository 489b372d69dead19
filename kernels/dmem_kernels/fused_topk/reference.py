"""The truth, written as the formulas are: all scores of all slots, then the k best."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dmem_kernels.fused_topk.terms import MAX, Found, Operands, Rule, inverse_norm
from dmem_kernels.fused_topk.two_stages import candidates_of, in_int8
from dmem_kernels.selection import canonical, top_k


def search(rule: Rule, operands: Operands) -> Found:
    """Exact, whatever `rule.keep_per_tile` says."""
    cosines = all_cosines(operands)
    if rule.oversample is None:
        return _best(rule.k, all_scores(rule, operands, cosines))
    coarse = all_cosines(in_int8(operands))
    found = _best(candidates_of(rule, operands), all_scores(rule, operands, coarse))
    candidate = _marked(cosines.shape[-1], found)
    scores = all_scores(rule, operands, jnp.where(candidate, cosines, coarse))
    return _best(rule.k, jnp.where(candidate, scores, -jnp.inf))


def _best(k: int, scores: Float[Array, "A Q N"]) -> Found:
    best, index = jax.vmap(jax.vmap(lambda row: top_k(row, k)))(scores)
    return Found(best, jnp.where(best > -jnp.inf, index, scores.shape[-1]))


def _marked(slots: int, found: Found) -> Bool[Array, "A Q N"]:
    none = jnp.zeros(slots, jnp.bool_)
    return jax.vmap(jax.vmap(lambda index: none.at[index].set(True, mode="drop")))(found.indices)


def all_cosines(operands: Operands) -> Float[Array, "A Q N"]:
    """The cosine of every slot with every query; of an int8 query by whole numbers."""
    queries, embeddings = operands.queries, operands.embeddings
    kind = jnp.int32 if queries.dtype == jnp.int8 else jnp.float32
    dots = jnp.einsum(
        "aqd,and->aqn", queries.astype(kind), embeddings.astype(kind), precision=jax.lax.Precision.HIGHEST
    )
    return dots.astype(jnp.float32) * operands.inv_norm[:, None, :] * inverse_norm(queries.astype(jnp.float32))


def all_scores(rule: Rule, operands: Operands, cosines: Float[Array, "A Q N"]) -> Float[Array, "A Q N"]:
    """The canonical score of every slot for every query."""
    semantic, salience = cosines, operands.salience
    valued = operands.mask & (salience == salience)
    live = valued & (cosines == cosines)
    if rule.fusion == "softmax":
        semantic = _softmax(semantic / operands.semantic_temperature, live)
        salience = _softmax(salience / operands.salience_temperature, valued)
    scores = operands.weight * semantic + (1.0 - operands.weight) * salience
    return canonical(jnp.where(live, scores, -jnp.inf))


def _softmax(logits: Float[Array, "A q n"], mask: Bool[Array, "A s n"]) -> Float[Array, "A Q n"]:
    """Softmax over the slots that the mask admits; 0 elsewhere."""
    logits = jnp.where(mask, jnp.clip(logits, -MAX, MAX), -MAX)
    weights = jnp.where(mask, jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True)), 0.0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1.0)
