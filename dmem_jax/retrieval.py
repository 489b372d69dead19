"""What is recalled: similarity and salience brought to one measure, mixed, and the k best; a differentiable form."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.conversion import kind_of
from dmem_jax.decay import effective_strength, half_lives_faded, log2_effective_strength
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.filters import asked_for
from dmem_jax.params import Params
from dmem_jax.pool import best, gather, joined, place, pooled, read_pooled
from dmem_jax.schedules import semantic_weight
from dmem_jax.shadow import with_shadow
from dmem_jax.size import current_scale
from dmem_jax.slots import capacity, read
from dmem_jax.storage import embeddings
from dmem_jax.types import Attention, Memory, Query, Recall, Store
from dmem_kernels import canonical, masked_softmax, top_k

_MAX = float(np.finfo(np.float32).max)
_RRF_OFFSET = 60.0  # of reciprocal rank fusion, as Cormack, Clarke and Buettcher (SIGIR 2009) have it


def search(
    config: Config,
    params: Params,
    memory: Memory,
    query: Query,
    answerable: Bool[Array, ""],
    cosines: Float[Array, " N"],
) -> Recall:
    """The best memories for `query`, whose cosine with every pool slot is `cosines`; none where not `answerable`."""
    now = time_of_recall(memory, query)
    asked = matches(memory, query, now) & answerable
    salience = pool_salience(config, params, memory, query, now)
    terms = (
        normalised(config, params.semantic_temperature, cosines, asked),
        normalised(config, params.salience_temperature, salience, asked),
    )
    return best_of(config, params, memory, query, answerable, None, asked, cosines, salience, terms)


def best_of(
    config: Config,
    params: Params,
    memory: Memory,
    query: Query,
    answerable: Bool[Array, ""],
    slots: Int32[Array, " C"] | None,
    asked: Bool[Array, " C"],
    cosines: Float[Array, " C"],
    salience: Float[Array, " C"],
    terms: tuple[Float[Array, " C"], Float[Array, " C"]],
) -> Recall:
    """The best of the candidates that are `asked` for, at the pool slots `slots` (None: all of the pool's); of equal
    ones that which stands first. `terms`: cosines and salience as `normalised` over all that the caller knows of.
    """
    w = semantic_weight(config, params, memory)
    score = canonical(jnp.where(asked, w * terms[0] + (1.0 - w) * terms[1], -jnp.inf))

    def rpe_of(tier: Store) -> Array:
        return tier.rpe

    if slots is None:
        rpe, choose = pooled(memory, rpe_of), functools.partial(best, config, memory)
    else:
        rpe, choose = gather(config, memory, rpe_of, slots), top_k
    scores, found = _best(config, score, rpe, choose)
    valid = scores > -jnp.inf
    slot = jnp.where(valid, found if slots is None else read(slots, found), config.pool_capacity)
    tier, tier_slot = place(config, memory, slot)
    # Free of the embeddings: only what a recall returns is gathered.
    rows = gather(config, memory, lambda tier: (tier.id, tier.rpe, tier.contradicted, tier.payload), slot)
    id_, rpe, contradicted, payload = rows
    if slots is None:
        semantic, salience = read_pooled(config, memory, (cosines, salience), slot)
    else:
        semantic, salience = (jnp.where(valid, term, 0.0) for term in read((cosines, salience), found))
    recall = Recall(
        slot=tier_slot,
        tier=tier,
        id=jnp.where(valid, id_, -1),
        score=scores,
        semantic=semantic,
        salience=salience,
        rpe=rpe,
        contradicted=contradicted,
        valid=valid,
        payload=payload,
    )
    best_cosine = jnp.float32(-jnp.inf)
    if config.shadow_capacity:
        best_cosine = shards.greatest(config, jnp.max(jnp.where(asked, cosines, -jnp.inf)))
    now = time_of_recall(memory, query)
    return with_shadow(config, params, memory, query, now, answerable, best_cosine, recall)


def attention(
    config: Config,
    params: Params,
    memory: Memory,
    query: Query,
    answerable: Bool[Array, ""],
    cosines: Float[Array, " N"],
    over: Callable[[PyTree], Array] | None = None,
) -> Attention:
    """Softmax read-out over the live memories that `query` asks for.

    logits = w cos / T_semantic + (1 - w) salience / T_salience + ln(effective strength), so that gate and thresholds,
    which set the strengths, receive a gradient from what is made of the read-out.
    """
    now = time_of_recall(memory, query)
    w = semantic_weight(config, params, memory)
    salience = pool_salience(config, params, memory, query, now)
    log2_strength = pooled(memory, lambda tier: log2_effective_strength(params, tier, now))
    asked = matches(memory, query, now) & answerable & (log2_strength > -jnp.inf)
    logits = w * cosines / params.semantic_temperature + (1.0 - w) * salience / params.salience_temperature
    logits = jnp.where(asked, jnp.clip(logits, -_MAX, _MAX) + math.log(2.0) * log2_strength, 0.0)
    weights = masked_softmax(logits, asked, config.slot_axis)
    if over is None:
        tiers = embeddings(memory.core), embeddings(memory.buffer)
    else:
        tiers = _picked(over, memory.core), _picked(over, memory.buffer)
    values = [tier.astype(jnp.float32).reshape(tier.shape[0], math.prod(tier.shape[1:])) for tier in tiers]
    parts = jnp.split(weights, [capacity(memory.core)])
    if over is not None:  # a payload may hold anything, also where no weight is
        values = [jnp.where(part[:, None] > 0, value, 0.0) for part, value in zip(parts, values, strict=True)]
    of_core, of_buffer = (jnp.einsum("n,nf->f", part, value) for part, value in zip(parts, values, strict=True))
    readout = shards.total(config, of_core + of_buffer)
    weights = jnp.concatenate([jnp.ravel(x) for x in shards.everywhere(config, parts)])
    return Attention(readout=jnp.reshape(readout, tiers[0].shape[1:]), weights=weights)


def time_of_recall(memory: Memory, query: Query) -> Int32[Array, ""]:
    """max(clock, query.time)."""
    return jnp.maximum(memory.clock, query.time)  # UNSET is the least int32


def matches(memory: Memory, query: Query, now: Int32[Array, ""]) -> Bool[Array, " N"]:
    """Which pool slots hold a memory that the query asks for."""

    def of_tier(tier: Store) -> Array:
        return (tier.id >= 0) & asked_for(query, tier, now)

    return pooled(memory, of_tier)


def pool_salience(
    config: Config, params: Params, memory: Memory, query: Query, now: Int32[Array, ""]
) -> Float[Array, " N"]:
    """Salience of every pool slot in multiples of the current scale of surprise, by `Config.salience`."""
    scale = current_scale(config, memory.router)

    def of_tier(tier: Store) -> Array:
        if config.salience == "strength":
            salience = effective_strength(params, tier, now)
        else:
            salience = jnp.abs(tier.rpe) * jnp.exp2(-half_lives_faded(params, tier, now))
        if config.salience == "value":
            salience = salience * jnp.exp(-jnp.abs(query.value - tier.value) / params.value_temperature)
        return jnp.minimum(salience / scale, _MAX)

    return pooled(memory, of_tier)


def _picked(over: Callable[[PyTree], Array], tier: Store) -> Array:
    """The leaf that a caller's `over` reads out of a tier, if it is one."""
    picked, slots = over(tier.payload), tier.id.shape
    expected = f"over: expected an array of real numbers with a leading axis of {slots[0]}, a tier's slots"
    if not isinstance(picked, (jax.Array, np.ndarray)):
        raise ArgumentTypeError(f"{expected}, got {type(picked).__name__}.")
    if kind_of(picked.dtype) not in ("b", "i", "f"):
        raise ArgumentTypeError(f"{expected}, got {picked.dtype}.")
    if picked.shape[:1] != slots:
        raise ArgumentValueError(f"{expected}, got {picked.dtype}{list(picked.shape)}.")
    return jnp.asarray(picked)


def normalised(config: Config, temperature: Array, term: Array, mask: Array) -> Array:
    """One score term brought to a measure that the other can be weighed against, over the masked slots."""
    if config.fusion == "softmax":
        return masked_softmax(term / temperature, mask, config.slot_axis)
    if config.fusion == "min_max":
        least = -shards.greatest(config, jnp.max(jnp.where(mask, -term, -jnp.inf)))
        spread = shards.greatest(config, jnp.max(jnp.where(mask, term, -jnp.inf))) - least
        some = spread > 0
        return jnp.where(some & mask, (term - least) / jnp.where(some, spread, 1.0), 0.0)
    if config.fusion == "rank":
        order = jnp.argsort(canonical(jnp.where(mask, term, -jnp.inf)), descending=True, stable=True)
        rank = jnp.argsort(order, stable=True).astype(jnp.float32) + 1.0
        return 1.0 / (_RRF_OFFSET + rank)
    return term


def _best(
    config: Config, score: Array, rpe: Array, choose: Callable[[Array, int], tuple[Array, Array]]
) -> tuple[Array, Array]:
    """The k best scores that `choose` gives, and where; with a quota, those of each sign, joined best first."""
    if not isinstance(config.top_k, tuple):
        return choose(score, config.top_k)
    delight = rpe >= 0
    found = [
        choose(jnp.where(sign, score, -jnp.inf), k) for sign, k in zip((delight, ~delight), config.top_k, strict=True)
    ]
    scores, slot = (jnp.concatenate(of_both) for of_both in zip(*found, strict=True))
    return joined(scores, slot, sum(config.top_k))
