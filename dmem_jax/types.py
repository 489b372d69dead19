"""The pytrees of D-MEM. Every class is frozen and holds arrays only; D embedding size, N slots of a
tier, K recalled memories, W window, P any payload shape. Shapes are those of one agent; `*b` are the batch axes that
`init(batch_shape=...)`, `experience(...)` or `jax.vmap` put in front.

No field has a default: a Python scalar left in a leaf would be weakly typed and cost a second compile.
"""

import dataclasses
import enum
import typing

import jax
import jax.export
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32, PyTree, Shaped

UNSET = int(np.iinfo(np.int32).min)
"""The int32 that says "not given" for `Experience.time`, `Query.task` and `Query.time`."""


State = typing.TypeVar("State")


class Tier(enum.IntEnum):
    """Values of `Recall.tier` and `WriteInfo.tier`."""

    CORE = 0
    BUFFER = 1
    SHADOW = 2  # in a Recall alone: an experience that was dropped, from `Memory.shadow`


class Route(enum.IntEnum):
    """Values of `WriteInfo.route`: what became of an experience."""

    INVALID = 0  # a number that is not finite, or padding: nothing was written
    DROPPED = 1  # too small a surprise
    BUFFER = 2  # stored as a new memory in the buffer
    CORE = 3  # stored as a new memory in the core
    REFRESHED = 4  # a duplicate: its memory was confirmed
    MERGED = 5  # a more surprising duplicate: its memory took it in
    REFUSED = 6  # weaker than all that is kept


@typing.dataclass_transform(frozen_default=True)
def state(cls: type[State]) -> type[State]:
    """A frozen dataclass whose fields are pytree children. `==` is the ordinary one: of no use for arrays, and right
    for trees of types or shapes. Functions of it can be serialized by `jax.export`."""
    cls = jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))
    return jax.export.register_pytree_node_serialization(
        cls,
        serialized_name=f"dmem_jax.{cls.__name__}",
        serialize_auxdata=lambda _: b"",
        deserialize_auxdata=lambda _: (),
    )


@state
class Experience:
    """What an agent met, ready to be written. Build it with `dmem.experience(...)`."""

    embedding: Float32[Array, "*b D"]  # of the state where the outcome was met
    rpe: Float32[Array, "*b"]  # reward prediction error, signed, in reward units
    reward: Float32[Array, "*b"]  # reward units
    value: Float32[Array, "*b"]  # what was expected there, reward units
    discount: Float32[Array, "*b"]  # 0 at a terminal, else usually 1
    next_embedding: Float32[Array, "*b D"]  # of the state that followed; kept only with Config.store_next
    task: Int32[Array, "*b"]  # memories of different tasks are never duplicates of each other
    time: Int32[Array, "*b"]  # when it happened, in clock units; UNSET lets the clock count by one
    utility: Float32[Array, "*b"]  # use to the agent in [0, 1]; read by Config.signal "paper" alone
    gate_logit: Float32[Array, "*b"]  # what a gate network of the caller's adds to the gate's logit
    valid: Bool[Array, "*b"]  # False: padding, nothing happens
    payload: PyTree  # kept with the memory, returned by recall


@state
class Query:
    """What is asked of a memory. Build it with `dmem.query(...)`; recall also takes a bare embedding."""

    embedding: Float32[Array, "*b D"]
    value: Float32[Array, "*b"]  # value of the asking state, reward units; read by salience "value" alone
    task: Int32[Array, "*b"]  # only memories of this task; UNSET: of all
    sign: Int32[Array, "*b"]  # 1 delights only (rpe >= 0), -1 disasters only, 0 both
    min_age: Int32[Array, "*b"]  # clock units
    max_age: Int32[Array, "*b"]  # clock units
    time: Int32[Array, "*b"]  # recall happens at max(clock, time); UNSET: at the clock


@state
class Store:
    """One tier: N slots of memories. The same class without the slot axis is one memory (a row)."""

    embedding: Shaped[Array, "*b D"]  # as given, in the type of Config.store_dtype; merges move it
    scale: Float32[Array, "*b"] | None  # with int8: what was given is scale * embedding
    inv_norm: Float32[Array, "*b"]  # 1 / Euclidean norm of what `embedding` holds, 0 for norm 0
    rpe: Float32[Array, "*b"]  # signed, raw reward units
    reward: Float32[Array, "*b"]
    value: Float32[Array, "*b"]
    task: Int32[Array, "*b"]
    time: Int32[Array, "*b"]  # clock when written or last merged
    strength: Float32[Array, "*b"]  # priority as of `touched`, >= 0, reward units
    written_strength: Float32[Array, "*b"]  # strength at writing, or at the last merge, reward units
    touched: Int32[Array, "*b"]  # clock when last written, strengthened, renewed, refreshed or merged
    recalls: Int32[Array, "*b"]  # times returned by `step`
    successes: Int32[Array, "*b"]  # times reinforced by a good outcome
    count: Int32[Array, "*b"]  # experiences that it stands for, merged and refreshed ones included
    contradicted: Bool[Array, "*b"]  # a memory of opposite sign was met at this place since it was last confirmed
    id: Int32[Array, "*b"]  # identity, never reused; -1 where the slot is free
    payload: PyTree
    next_embedding: Float32[Array, "*b D"] | None  # with Config.store_next
    discount: Float32[Array, "*b"] | None  # with Config.store_next


@state
class Ring:
    """The last n values of a stream."""

    values: Float32[Array, "*b n"]
    cursor: Int32[Array, "*b"]  # where the next value goes, in [0, n)


@state
class Router:
    """What the gate knows of the stream so far, dropped experiences included: it decides sizes and thresholds."""

    sizes: Ring  # the last W sizes, for the quantile thresholds
    magnitudes: Ring  # the last |rpe|, for smoothing (empty where there is none)
    similarities: Ring  # the last 50 greatest cosines, for Config.signal "paper" (empty for others)
    compared: Int32[Array, "*b"]  # how many of them there were, saturating
    seen: Int32[Array, "*b"]  # sizes seen, saturating
    scale_mean: Float32[Array, "*b"]  # exponential mean of |rpe|, reward units, bias-corrected
    scale_weight: Float32[Array, "*b"]  # the weight that this mean has gathered, in [0, 1]


@state
class Probe:
    """What the last `step` learnt on the way about duplicates of the query it answered. Index 0 delight, 1 disaster."""

    embedding: Float32[Array, "*b D"]
    task: Int32[Array, "*b"]
    slot: Int32[Array, "*b 2"]  # pool slot of the nearest live memory of that sign and task
    similarity: Float32[Array, "*b 2"]  # its cosine, -inf where there is none
    closest: Float32[Array, "*b"]  # greatest cosine with any live memory; -inf unless Config.reads_similarity
    valid: Bool[Array, "*b"]


@state
class Stats:
    """Counters of a whole life, int32, saturating.

    seen = invalid + dropped + refused + refreshed + merged + stored, and
    stored = live + evicted + forgotten + merged_later.
    """

    seen: Int32[Array, "*b"]  # experiences handed to write with valid=True
    invalid: Int32[Array, "*b"]  # of these, with a number that is not finite
    dropped: Int32[Array, "*b"]  # too small a surprise
    refused: Int32[Array, "*b"]  # weaker than all that is kept
    refreshed: Int32[Array, "*b"]
    merged: Int32[Array, "*b"]
    stored: Int32[Array, "*b"]
    evicted: Int32[Array, "*b"]
    forgotten: Int32[Array, "*b"]  # by consolidate: too weak or too old
    merged_later: Int32[Array, "*b"]  # by consolidate: into a memory that says the same
    promoted: Int32[Array, "*b"]  # moved from the buffer into core, by consolidate
    demoted: Int32[Array, "*b"]  # moved from core into the buffer
    contradicted: Int32[Array, "*b"]  # memories weakened by an experience of opposite sign
    recalled: Int32[Array, "*b"]  # memories returned by step
    unprobed: Int32[Array, "*b"]  # stored without a duplicate check: the probe was of another query
    stale: Int32[Array, "*b"]  # feedback for a memory that is gone
    rejected: Int32[Array, "*b"]  # feedback that was not a finite number
    exhausted: Int32[Array, "*b"]  # not stored because the ids ran out (also counted in dropped)


@state
class Shadow:
    """The last M experiences that were dropped, with Config.shadow_capacity = M > 0."""

    embedding: Float32[Array, "*b M D"]
    inv_norm: Float32[Array, "*b M"]
    rpe: Float32[Array, "*b M"]  # signed, raw reward units
    task: Int32[Array, "*b M"]
    time: Int32[Array, "*b M"]
    payload: PyTree
    cursor: Int32[Array, "*b"]  # where the next one goes, in [0, M)
    filled: Int32[Array, "*b"]  # places in use


@state
class Memory:
    """One agent's memory: the whole state, an immutable pytree of fixed-capacity arrays."""

    core: Store
    buffer: Store
    router: Router
    probe: Probe
    shadow: Shadow | None  # with Config.shadow_capacity
    stats: Stats
    clock: Int32[Array, "*b"]  # steps, or the caller's unit of time
    next_id: Int32[Array, "*b"]


@state
class Recall:
    """The K recalled memories, best first, then those of the shadow, if it was asked.

    Rows that are not `valid` are filler: id -1, score -inf, (Tier.BUFFER, its capacity) for a place, all else 0.
    """

    slot: Int32[Array, "*b K"]  # within its tier
    tier: Int32[Array, "*b K"]  # a Tier
    id: Int32[Array, "*b K"]
    score: Float32[Array, "*b K"]
    semantic: Float32[Array, "*b K"]  # cosine with the query, in [-1, 1]
    salience: Float32[Array, "*b K"]  # in multiples of the current scale of surprise
    rpe: Float32[Array, "*b K"]  # signed, raw reward units
    contradicted: Bool[Array, "*b K"]
    valid: Bool[Array, "*b K"]
    payload: PyTree


@state
class WriteInfo:
    """What became of one experience, so that a host knows which payloads are gone. Ids are -1 where none is meant."""

    route: Int32[Array, "*b"]  # a Route
    id: Int32[Array, "*b"]  # of the memory that now holds it
    tier: Int32[Array, "*b"]  # a Tier
    slot: Int32[Array, "*b"]  # within its tier; (Tier.BUFFER, buffer_capacity) where nothing was written
    rpe: Float32[Array, "*b"]  # signed, reward units: as given, or as Config.signal makes it
    size: Float32[Array, "*b"]  # surprise in multiples of the current scale
    gate: Float32[Array, "*b"]  # in (0, 1)
    evicted_id: Int32[Array, "*b"]  # gone for good
    demoted_id: Int32[Array, "*b"]  # moved from core into the buffer
    merged_id: Int32[Array, "*b"]  # merged into, or refreshed


@state
class StepInfo:
    """What `step` did."""

    write: WriteInfo
    recall: Recall


@state
class ReplayBatch:
    """B memories drawn for training, with what `value.update` reads. Rows that are not `valid` are filler: id -1,
    (Tier.BUFFER, its capacity) for a place, all else 0."""

    embedding: Float32[Array, "*b B D"]
    rpe: Float32[Array, "*b B"]
    reward: Float32[Array, "*b B"]
    value: Float32[Array, "*b B"]
    task: Int32[Array, "*b B"]
    time: Int32[Array, "*b B"]
    payload: PyTree
    next_embedding: Float32[Array, "*b B D"] | None  # with Config.store_next
    discount: Float32[Array, "*b B"] | None  # with Config.store_next
    slot: Int32[Array, "*b B"]  # within its tier
    tier: Int32[Array, "*b B"]  # a Tier
    id: Int32[Array, "*b B"]
    probability: Float32[Array, "*b B"]  # of being drawn at one draw, in (0, 1]
    weight: Float32[Array, "*b B"]  # importance weight (n probability)^-b over its maximum in the batch, in [0, 1]
    valid: Bool[Array, "*b B"]


@state
class ConsolidationReport:
    """What `consolidate` did: counts, and ids for a host that keeps payloads by id (-1 where none is meant)."""

    repriced: Int32[Array, "*b"]
    forgotten: Int32[Array, "*b"]
    merged: Int32[Array, "*b"]
    promoted: Int32[Array, "*b"]
    demoted: Int32[Array, "*b"]
    forgotten_ids: Int32[Array, "*b N"]  # at the pool slot that it had
    merged_ids: Int32[Array, "*b R 2"]  # of each round: the one kept, the one gone
    promoted_ids: Int32[Array, "*b V"]  # of each move
    demoted_ids: Int32[Array, "*b V"]  # of each move: what it pushed out of core


@state
class Attention:
    """Differentiable recall over the whole pool (core's slots, then the buffer's)."""

    readout: Float32[Array, "..."]
    weights: Float32[Array, "*b N"]  # sums to 1, or all 0 for an empty memory
