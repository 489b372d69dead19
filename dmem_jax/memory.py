"""D-MEM: the pieces composed. Every function takes and returns one agent's immutable `Memory`; `jax.vmap` makes them
thousands, and `make` bundles jitted, vmapped, donated versions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

from dmem_jax import batch_writes, duplicates, inputs, lifecycle, retrieval, surprise
from dmem_jax.accounting import account
from dmem_jax.checks import check_acting, check_asked, check_experience, check_experiences, check_memory, check_recall
from dmem_jax.config import Config
from dmem_jax.counting import subtract_saturating
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.insertion import insert
from dmem_jax.judging import as_row, judge
from dmem_jax.params import Params
from dmem_jax.shadow import keep_dropped
from dmem_jax.similarity import pool_cosines
from dmem_jax.types import (
    UNSET,
    Attention,
    Experience,
    Memory,
    Probe,
    Query,
    Recall,
    Route,
    StepInfo,
    Store,
    WriteInfo,
)

_PROBE_TOLERANCE = 1e-10  # of ||e - q||^2 against ||q||^2, for the probe of the last query to serve a write


def write(config: Config, params: Params, memory: Memory, experience: Experience) -> tuple[Memory, WriteInfo]:
    """`memory` after it met `experience`, and what became of it.

    The surprise decides: the RPE is scaled to a size, the size routes it to core, buffer or nowhere, and what is kept
    merges with its duplicate, or takes a free slot, or the slot of the weakest.

    Args:
      memory, experience: of one agent.

    Returns:
      The memory, and a `WriteInfo`.

    Raises:
      ArgumentValueError, ArgumentTypeError: at trace time, for shapes, dtypes or a payload that do not fit. Numbers
      that are not finite raise nothing: the experience is counted in `stats.invalid` and changes nothing else.
    """
    memory, info = _write(config, params, memory, experience)
    spent = info.route != Route.INVALID
    return dataclasses.replace(memory, probe=dataclasses.replace(memory.probe, valid=memory.probe.valid & ~spent)), info


def write_many(config: Config, params: Params, memory: Memory, experiences: Experience) -> tuple[Memory, WriteInfo]:
    """`write` for each of `experiences` [B] in order; the infos are stacked on a leading axis [B].

    With `Config.duplicates="off"` it is some four times as fast as the writes one by one: they then move no rows until
    it is decided, for all of them, who stays (batch_writes.py says what else a config must leave off). Most so where
    all happen at one time, or the clock moves by little against the half-lives. The result is the same.
    """
    params = check_acting(config, params, memory)
    experiences = check_experiences(config, memory.core.payload, experiences)
    if batch_writes.equals_scan(config):
        return batch_writes.write_batches(config, params, memory, experiences)

    def body(memory: Memory, experience: Experience) -> tuple[Memory, WriteInfo]:
        return write(config, params, memory, experience)

    return jax.lax.scan(body, memory, experiences)


def recall(config: Config, params: Params, memory: Memory, query: Query | Array) -> Recall:
    """The memories that matter for `query`, best first. Changes nothing.

    Args:
      query: a `Query`, or a bare embedding [D].

    Returns:
      A `Recall` of `Config.recalled` rows; those beyond what was found are not `valid`.

    Raises:
      ArgumentValueError: at trace time for shapes, and outside of jit for a bare embedding that is not finite. Inside
      jit such a query finds nothing.
    """
    params, query, answerable = check_asked(config, params, memory, query)
    return retrieval.search(config, params, memory, query, answerable, pool_cosines(memory, query.embedding))


def step(
    config: Config, params: Params, memory: Memory, experience: Experience, query: Query | Array
) -> tuple[Memory, StepInfo]:
    """`write`, then `recall`, then the recall is counted: what a training loop calls.

    It makes one pass over the embeddings, for the recall, which also learns on the way which memories the query would
    be a duplicate of (`Config.duplicates="probe"`); the next write uses that if it writes the same embedding.
    """
    params, query, answerable = check_asked(config, params, memory, query)
    memory, written = _write(config, params, memory, experience)
    cosines = pool_cosines(memory, query.embedding)
    recalled = retrieval.search(config, params, memory, query, answerable, cosines)
    memory = lifecycle.count_recalled(config, memory, recalled)
    if config.duplicates == "probe":
        memory = dataclasses.replace(memory, probe=_probe(config, memory, query, answerable, cosines))
    return memory, StepInfo(write=written, recall=recalled)


def reinforce(
    config: Config,
    params: Params,
    memory: Memory,
    recall: Recall,
    rpe: ArrayLike,
    used: ArrayLike,
) -> Memory:
    """`memory` after the outcome that recalled memories foretold was met. Call it once, when it is met.

    rpe > 0 strengthens: strength + reinforce_rate * used * rpe, capped at strength_cap times what was written.
    rpe < 0 weakens: strength * (1 - weaken_rate * used * min(1, |rpe| / |its rpe|)).

    Args:
      recall: as `recall` or `step` returned it, from this memory; memories that have left since are counted in
        `stats.stale`.
      rpe: scalar, reward units: better or worse than what was foretold.
      used: [K] weights >= 0, which of the recalled the decision stood on. Crediting all of them each step ratchets
        junk up.
    """
    params = check_acting(config, params, memory)
    check_recall(config, recall)
    rpe = inputs.feedback("rpe", rpe, ())
    used = inputs.feedback("used", used, (config.recalled,))
    return lifecycle.strengthen(config, params, memory, recall, rpe, used)


def renew(config: Config, params: Params, memory: Memory, recall: Recall, used: ArrayLike) -> Memory:
    """`memory` after recalled memories proved right again: a danger avoided, a delight found as foretold.

    Gives back `renew_rate` of the strength that has faded since writing. Arguments as in `reinforce`.
    """
    params = check_acting(config, params, memory)
    check_recall(config, recall)
    used = inputs.feedback("used", used, (config.recalled,))
    return lifecycle.restore(config, params, memory, recall, used)


def attend(
    config: Config,
    params: Params,
    memory: Memory,
    query: Query | Array,
    *,
    over: Callable[[PyTree], Array] | None = None,
) -> Attention:
    """A differentiable recall: softmax over all live memories by meaning, salience and strength.

    Args:
      over: picks a payload leaf to read out, e.g. `lambda payload: payload["action"]`; None reads the embeddings.

    Returns:
      An `Attention`: readout, of the leaf's shape without the slot axis, and weights [core + buffer slots].
    """
    params, query, answerable = check_asked(config, params, memory, query)
    if over is not None and not callable(over):
        raise ArgumentTypeError(f"over: expected a function of a payload, got {over!r}.")
    if over is not None and memory.core.payload is None:
        raise ArgumentValueError("over: this memory was made without a payload.")
    cosines = pool_cosines(memory, query.embedding)
    return retrieval.attention(config, params, memory, query, answerable, cosines, over)


def rebase(memory: Memory, by: Any) -> Memory:
    """`memory` with `by` (int32, clock units) taken off its clock and all its times, so that a clock never runs out.

    Ages stay as they are; times that would leave int32 saturate. A "step" schedule reads the clock, and goes back with
    it. Works on any batch of memories.
    """
    check_memory(memory)
    by = inputs.shift(by, memory.clock.shape)

    def store(tier: Store) -> Store:
        time, touched = (subtract_saturating(times, by[..., None]) for times in (tier.time, tier.touched))
        return dataclasses.replace(tier, time=time, touched=touched)

    shadow = memory.shadow
    if shadow is not None:
        shadow = dataclasses.replace(shadow, time=subtract_saturating(shadow.time, by[..., None]))
    return dataclasses.replace(
        memory,
        core=store(memory.core),
        buffer=store(memory.buffer),
        shadow=shadow,
        clock=subtract_saturating(memory.clock, by),
    )


def _write(config: Config, params: Params, memory: Memory, experience: Experience) -> tuple[Memory, WriteInfo]:
    """One experience, from top to bottom: valid? clock, size, route, contradiction, duplicate, insertion, counters."""
    params = check_acting(config, params, memory)
    experience = check_experience(config, memory.core.payload, experience)
    valid = experience.valid & inputs.is_finite_experience(config, experience)

    nearest, closest, probed = _nearest(config, memory, experience)
    memory, experience = surprise.resolve(config, params, memory, experience, closest, probed, valid)
    memory, verdict = judge(config, params, memory, experience, valid)
    to_core, to_buffer = verdict.admitted(memory.next_id)
    admitted = to_core | to_buffer

    alike = nearest.similarity >= params.duplicate_similarity
    own = (experience.rpe < 0).astype(jnp.int32)
    is_duplicate = admitted & alike[own]
    is_contradiction = admitted & alike[1 - own] & (experience.rpe != 0)
    if config.duplicates != "off":
        memory = duplicates.contradict(config, params, memory, experience.rpe, nearest.slot[1 - own], is_contradiction)

    now = memory.clock
    memory, placed = insert(
        config, params, memory, as_row(config, experience, verdict, now, memory.next_id), now,
        to_core=to_core, to_buffer=to_buffer, duplicate=nearest.slot[own], is_duplicate=is_duplicate,
    )  # fmt: skip
    memory = keep_dropped(memory, experience, valid & ~admitted)
    stats, info = account(
        memory.stats, experience, verdict, placed,
        admitted=admitted, is_duplicate=is_duplicate, is_contradiction=is_contradiction, unprobed=admitted & ~probed,
    )  # fmt: skip
    next_id = memory.next_id + placed.stored.astype(jnp.int32)
    return dataclasses.replace(memory, next_id=next_id, stats=stats), info


def _nearest(config: Config, memory: Memory, experience: Experience) -> tuple[duplicates.Nearest, Array, Array]:
    """The memories nearest to the experience for each sign, the greatest cosine of all, and whether they could be told.

    Each is found only where something reads it.
    """
    if config.duplicates == "probe":
        return _from_probe(memory.probe, experience)
    nearest, closest = duplicates.nowhere(config, memory), jnp.float32(-jnp.inf)
    if config.duplicates == "search" or config.reads_similarity:
        cosines = pool_cosines(memory, experience.embedding)
        if config.duplicates == "search":
            nearest = duplicates.nearest(config, memory, cosines, experience.task)
        if config.reads_similarity:
            closest = surprise.closest_cosine(config, memory, cosines)
    return nearest, closest, jnp.bool_(True)


def _from_probe(probe: Probe, experience: Experience) -> tuple[duplicates.Nearest, Array, Array]:
    apart = jnp.sum(jnp.square(experience.embedding - probe.embedding))
    same = apart <= _PROBE_TOLERANCE * jnp.sum(jnp.square(probe.embedding))
    usable = probe.valid & same & (experience.task == probe.task)
    similarity = jnp.where(usable, probe.similarity, -jnp.inf)
    return duplicates.Nearest(slot=probe.slot, similarity=similarity), probe.closest, usable


def _probe(config: Config, memory: Memory, query: Query, answerable: Array, cosines: Array) -> Probe:
    """What the answered query tells the next write."""
    task = jnp.where(query.task == UNSET, 0, query.task)
    near = duplicates.nearest(config, memory, cosines, task)
    return Probe(
        embedding=query.embedding,
        task=task,
        slot=near.slot,
        similarity=near.similarity,
        closest=surprise.closest_cosine(config, memory, cosines) if config.reads_similarity else memory.probe.closest,
        valid=answerable,
    )
