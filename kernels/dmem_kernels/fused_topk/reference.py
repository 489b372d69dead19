"""The truth, written as the formulas are: all scores of all slots, then the k best."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dmem_kernels.fused_topk.terms import MAX, Found, Operands, Rule, inverse_norm
from dmem_kernels.selection import canonical, top_k


def search(rule: Rule, operands: Operands) -> Found:
    """Exact, whatever `rule.keep_per_tile` says."""
    scores = all_scores(rule, operands)
    best, index = jax.vmap(jax.vmap(lambda row: top_k(row, rule.k)))(scores)
    return Found(best, jnp.where(best > -jnp.inf, index, scores.shape[-1]))


def all_scores(rule: Rule, operands: Operands) -> Float[Array, "A Q N"]:
    """The canonical score of every slot for every query."""
    queries, embeddings = operands.queries, operands.embeddings.astype(jnp.float32)
    dots = jnp.einsum("aqd,and->aqn", queries, embeddings, precision=jax.lax.Precision.HIGHEST)
    cosines = dots * operands.inv_norm[:, None, :] * inverse_norm(queries)

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
