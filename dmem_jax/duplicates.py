"""One fact, one memory: the nearest memories of a newcomer's place, and what becomes of them."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax import shards
from dmem_jax.config import Config
from dmem_jax.counting import add_saturating
from dmem_jax.decay import effective_strength
from dmem_jax.params import Params
from dmem_jax.pool import first_best
from dmem_jax.similarity import inverse_norm
from dmem_jax.slots import choose, put, read
from dmem_jax.storage import as_stored, embeddings, norms
from dmem_jax.types import Memory, Store
from dmem_kernels import canonical


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Nearest:
    """The nearest live memory of one task, for each sign of RPE: index 0 delight (rpe >= 0), 1 disaster."""

    slot: Int32[Array, " 2"]  # pool slot, meaningless where similarity is -inf
    similarity: Float[Array, " 2"]


def nearest(config: Config, memory: Memory, cosines: Float[Array, " N"], task: Int32[Array, ""]) -> Nearest:
    """For each sign, the live memory of `task` with the greatest cosine; the lower slot on ties."""

    def found(of_sign: Callable[[Store], Array]) -> tuple[Array, Array]:
        comparable = [(tier.id >= 0) & (tier.task == task) & of_sign(tier) for tier in (memory.core, memory.buffer)]
        return first_best(config, memory, canonical(jnp.where(jnp.concatenate(comparable), cosines, -jnp.inf)))

    best, slot = zip(found(lambda tier: tier.rpe >= 0), found(lambda tier: tier.rpe < 0), strict=True)
    return Nearest(slot=jnp.stack(slot), similarity=jnp.stack(best))


def nowhere(config: Config, memory: Memory) -> Nearest:
    """The answer where nothing may be a duplicate."""
    pool = shards.capacity(config, memory.core) + shards.capacity(config, memory.buffer)
    return Nearest(slot=jnp.full(2, pool, jnp.int32), similarity=jnp.full(2, -jnp.inf, jnp.float32))


def contradict(
    config: Config,
    params: Params,
    memory: Memory,
    rpe: Float[Array, ""],
    opposite: Int32[Array, ""],
    found: Bool[Array, ""],
) -> Memory:
    """`memory` after an experience of `rpe` spoke against the memory at pool slot `opposite`, where `found`.

    It loses up to `weaken_rate` of its strength, by how the two surprises compare, and is marked. It is not removed:
    a delight and a disaster in one place are two facts.
    """
    core_capacity = shards.capacity(config, memory.core)

    def weaken(tier: Store, slot: Array, is_there: Array) -> Store:
        slot = shards.here(config, tier, jnp.where(is_there, slot, shards.capacity(config, tier)))
        old_rpe, strength = read((tier.rpe, tier.strength), slot)
        strength = strength * jnp.maximum(0.0, 1.0 - params.weaken_rate * relative_magnitude(rpe, old_rpe))
        strength, contradicted = put((tier.strength, tier.contradicted), slot, (strength, jnp.bool_(True)))
        return dataclasses.replace(tier, strength=strength, contradicted=contradicted)

    in_core = opposite < core_capacity
    core = weaken(memory.core, opposite, found & in_core)
    buffer = weaken(memory.buffer, opposite - core_capacity, found & ~in_core)
    return dataclasses.replace(memory, core=core, buffer=buffer)


def relative_magnitude(rpe: Float[Array, ""], old_rpe: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """min(1, |rpe| / |old_rpe|); 1 where the old one is 0."""
    old = jnp.abs(old_rpe)
    smaller = jnp.abs(rpe) < old
    return jnp.where(smaller, jnp.abs(rpe) / jnp.where(smaller, old, 1.0), 1.0)


def updated(params: Params, old: Store, new: Store, now: Int32[Array, ""]) -> tuple[Store, Bool[Array, ""]]:
    """The row `old` after its duplicate `new`, and whether it was merged (else refreshed).

    It merges when the newcomer is more surprising by `duplicate_margin`.
    """
    merges = jnp.abs(new.rpe) > (1.0 + params.duplicate_margin) * jnp.abs(old.rpe)
    return choose(merges, merged(params, old, new, now), refreshed(params, old, new, now)), merges


def merged(params: Params, old: Store, new: Store, now: Int32[Array, ""]) -> Store:
    """The row `old` after it took in its duplicate `new`, a newcomer or a memory.

    Count-weighted means for what was experienced, the greater strength, and the payload of the greater surprise.
    """
    strength = jnp.maximum(effective_strength(params, old, now), effective_strength(params, new, now))
    taken_in = new.count.astype(jnp.float32)
    n = old.count.astype(jnp.float32) + taken_in

    def mean(a: Array, b: Array) -> Array:
        # Neither the sum nor the difference of two huge numbers, which could overflow.
        return a + (b / n * taken_in - a / n * taken_in)

    embedding = mean(embeddings(old), embeddings(new))
    norm = mean(norms(old), norms(new))
    # The mean of two directions is shorter than either: back to the mean length.
    embedding = embedding * (norm * inverse_norm(embedding))
    more_surprising = jnp.abs(new.rpe) > jnp.abs(old.rpe)
    return dataclasses.replace(
        old,
        **as_stored(old.embedding.dtype, embedding),
        rpe=mean(old.rpe, new.rpe),
        reward=mean(old.reward, new.reward),
        value=mean(old.value, new.value),
        time=now,
        strength=strength,
        written_strength=strength,
        touched=now,
        recalls=add_saturating(old.recalls, new.recalls),
        successes=add_saturating(old.successes, new.successes),
        count=add_saturating(old.count, new.count),
        contradicted=jnp.zeros_like(old.contradicted),
        payload=choose(more_surprising, new.payload, old.payload),
        next_embedding=choose(more_surprising, new.next_embedding, old.next_embedding),
        discount=choose(more_surprising, new.discount, old.discount),
    )


def refreshed(params: Params, old: Store, new: Store, now: Int32[Array, ""]) -> Store:
    """The row `old` after its duplicate `new` confirmed it."""
    return dataclasses.replace(
        old,
        strength=jnp.maximum(effective_strength(params, old, now), new.strength),
        touched=now,
        count=add_saturating(old.count, new.count),
        contradicted=jnp.zeros_like(old.contradicted),
    )
