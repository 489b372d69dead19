"""Many writes at once: who stays is decided one by one, among the few that can leave; then all rows move together.

`write_batches` equals a scan of `write`. What an experience is worth depends on those before it, by way of the router
alone, and where it goes on how strong the memories are: both are a few numbers, and only these go through loops. A
write by write spends its time on all slots' strengths and on rows instead.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax.accounting import account
from dmem_jax.config import Config
from dmem_jax.inputs import is_finite_experience
from dmem_jax.insertion import Placement, eviction_key, insert, priority
from dmem_jax.judging import Verdict, as_row, judge
from dmem_jax.params import Params
from dmem_jax.slots import after, capacity, last_of_each, over_rows, put, read
from dmem_jax.types import Experience, Memory, Router, Store, Tier, WriteInfo
from dmem_kernels import age, first_min
from dmem_kernels.evict_topk import evict_topk

_BATCH = 64  # experiences whose rows move together; longer ones are cut: what a batch costs grows with its square
_SPARE = 64  # slots more than the batch could fill, so that a clock that moves finds its weakest among them
_ROUNDING = 1e-6  # of the two terms of a key: the logarithm of a strength, and the half-lives since
_LARGEST_LOG2 = 150.0  # of any strength
_NONE = 1e30  # above every key


def equals_scan(config: Config) -> bool:
    """Whether what becomes of an experience depends on nothing stored but strengths: then a batch equals the scan."""
    reads_rows = config.duplicates != "off" or config.reads_similarity
    reads_others = config.threshold_schedule == "fill" or config.shadow_capacity > 0 or config.slot_axis is not None
    return not reads_rows and not reads_others


def write_batches(config: Config, params: Params, memory: Memory, experiences: Experience) -> tuple[Memory, WriteInfo]:
    """`memory` after all of `experiences` [B], in order, and an info [B] of each; for a config that `equals_scan`."""
    length = experiences.rpe.shape[0]
    if length <= _BATCH:
        return _write_batch(config, params, memory, experiences)
    batches = -(-length // _BATCH)

    def cut(leaf: Array) -> Array:  # padding is False in `valid`
        padded = jnp.pad(leaf, [(0, batches * _BATCH - length)] + [(0, 0)] * (leaf.ndim - 1))
        return padded.reshape(batches, _BATCH, *leaf.shape[1:])

    def body(memory: Memory, experiences: Experience) -> tuple[Memory, WriteInfo]:
        return _write_batch(config, params, memory, experiences)

    memory, infos = jax.lax.scan(body, memory, jax.tree.map(cut, experiences))
    return memory, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:length], infos)


def _write_batch(config: Config, params: Params, memory: Memory, experiences: Experience) -> tuple[Memory, WriteInfo]:
    judged, verdicts, clocks = _judge_each(config, params, memory, experiences)
    unknown_ids = jnp.full_like(clocks, -1)
    rows = jax.vmap(as_row, in_axes=(None, 0, 0, 0, 0))(config, experiences, verdicts, clocks, unknown_ids)
    placed, admitted = _place_each(config, params, judged, rows, verdicts)
    moved = _move_rows(judged, dataclasses.replace(rows, id=placed.id), placed)

    nothing = jnp.zeros_like(admitted)
    stats, infos = account(
        memory.stats, experiences, verdicts, placed,
        admitted=admitted, is_duplicate=nothing, is_contradiction=nothing, unprobed=nothing,
    )  # fmt: skip
    next_id = memory.next_id + jnp.sum(placed.stored, dtype=jnp.int32)
    probe = dataclasses.replace(memory.probe, valid=memory.probe.valid & ~jnp.any(verdicts.valid))
    return dataclasses.replace(moved, stats=stats, next_id=next_id, probe=probe), infos


def _judge_each(
    config: Config, params: Params, memory: Memory, experiences: Experience
) -> tuple[Memory, Verdict, Int32[Array, " B"]]:
    """`judge` in order, and the clock after each: of the memory only clock and router go through the loop."""
    valid = experiences.valid & jax.vmap(is_finite_experience, in_axes=(None, 0))(config, experiences)

    def body(carry: tuple[Router, Array], each: tuple[Experience, Array]) -> tuple[tuple, tuple[Verdict, Array]]:
        router, clock = carry
        judged, verdict = judge(config, params, dataclasses.replace(memory, router=router, clock=clock), *each)
        return (judged.router, judged.clock), (verdict, judged.clock)

    (router, clock), (verdicts, clocks) = jax.lax.scan(body, (memory.router, memory.clock), (experiences, valid))
    return dataclasses.replace(memory, router=router, clock=clock), verdicts, clocks


def _place_each(
    config: Config, params: Params, memory: Memory, rows: Store, verdicts: Verdict
) -> tuple[Placement, Bool[Array, " B"]]:
    """Where each of `rows` [B] goes, inserted in order, and whether it may go anywhere.

    By the clock after the batch no slot is weaker than the candidates, and there are more of them than rows: under one
    clock for all rows no other slot is ever asked for. Earlier the others were stronger, by what the longest half-life
    takes off at least: while a candidate is weaker than that, the weakest candidate is the weakest of all. If once
    none is, all slots become candidates.
    """
    # Without what is wide, which insertion only carries along. Places and ids come out: nothing that has a gradient.
    narrow = dataclasses.replace(memory, core=_narrow(memory.core), buffer=_narrow(memory.buffer))
    params, narrow, rows = jax.lax.stop_gradient((params, narrow, _narrow(rows)))

    def placed_among(n: int, verdicts: Verdict) -> tuple[Placement, Array, Array]:
        in_core = _candidates(config, params, Tier.CORE, narrow.core, memory.clock, n)
        in_buffer = _candidates(config, params, Tier.BUFFER, narrow.buffer, memory.clock, n)
        return _place_among(config, params, narrow, in_core, in_buffer, rows, verdicts)

    n, all_slots = rows.id.shape[0] + _SPARE, max(capacity(memory.core), capacity(memory.buffer))
    result = placed_among(n, verdicts)
    if n < all_slots:
        # Once or not at all. Of a `cond` both sides would run under vmap; and a body that needs nothing of the result
        # XLA would run before it looks whether to.
        def again(result: tuple[Placement, Array, Array]) -> tuple[Placement, Array, Array]:
            wrong = ~result[-1]
            return placed_among(all_slots, dataclasses.replace(verdicts, valid=verdicts.valid & wrong))

        result = jax.lax.while_loop(lambda result: ~result[-1], again, result)
    placed, admitted, _ = result
    return placed, admitted


def _narrow(store: Store) -> Store:
    no_embedding = store.embedding[..., :0]
    return dataclasses.replace(store, embedding=no_embedding, next_embedding=None, discount=None, payload=None)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Candidates:
    """The slots of a tier that may be given up."""

    slot: Int32[Array, " n"]  # ascending: of equally weak ones the lower goes first
    others: Float[Array, ""]  # least eviction key that any other slot may have, by the clock after the batch
    half_life: Float[Array, ""]  # the longest of any slot: before, a key was higher by what it takes off at least


def _candidates(
    config: Config, params: Params, tier: Tier, store: Store, last: Int32[Array, ""], n: int
) -> _Candidates:
    """The weakest, by the clock `last`; all slots of a tier that has no more than `n`."""
    if n >= capacity(store):
        slot = jnp.arange(capacity(store), dtype=jnp.int32)
        return _Candidates(slot=slot, others=jnp.float32(_NONE), half_life=jnp.float32(jnp.inf))
    worth, half_life = priority(config, params, tier, store)
    key, slot = evict_topk(worth, store.touched, half_life, store.id >= 0, last, n)
    # A maximum, for XLA:CPU knows its top-k no more if the last key is sliced off, and sorts the whole store.
    return _Candidates(slot=jnp.sort(slot), others=jnp.max(key), half_life=jnp.max(half_life))


def _place_among(
    config: Config,
    params: Params,
    memory: Memory,
    in_core: _Candidates,
    in_buffer: _Candidates,
    rows: Store,
    verdicts: Verdict,
) -> tuple[Placement, Bool[Array, " B"], Bool[Array, ""]]:
    """Where each goes, and whether it may go anywhere, if none but the candidates are asked; and whether that is so.

    The same `insert` as that of `write`, into tiers that hold the candidates alone.
    """

    def is_weakest(tier: Tier, few: Store, candidates: _Candidates, now: Array) -> Array:
        if capacity(few) == 0:
            return jnp.bool_(True)
        key, _ = first_min(eviction_key(config, params, tier, few, now))
        others = candidates.others + age(memory.clock, now) / candidates.half_life
        doubt = _ROUNDING * (_LARGEST_LOG2 + jnp.abs(candidates.others))
        return (key < others - doubt) | (key == -jnp.inf) | (now == memory.clock)

    def body(few: Memory, newcomer: tuple[Store, Verdict]) -> tuple[Memory, tuple[Placement, Array, Array]]:
        row, verdict = newcomer
        now = row.touched
        to_core, to_buffer = verdict.admitted(few.next_id)
        admitted = to_core | to_buffer
        right = is_weakest(Tier.CORE, few.core, in_core, now) & is_weakest(Tier.BUFFER, few.buffer, in_buffer, now)
        few, placed = insert(
            config, params, few, dataclasses.replace(row, id=few.next_id), now,
            to_core=to_core, to_buffer=to_buffer, duplicate=jnp.int32(0), is_duplicate=jnp.bool_(False),
        )  # fmt: skip
        few = dataclasses.replace(few, next_id=few.next_id + placed.stored.astype(jnp.int32))
        return few, (placed, admitted, right | ~admitted)

    core, buffer = read(memory.core, in_core.slot), read(memory.buffer, in_buffer.slot)
    few = dataclasses.replace(memory, core=core, buffer=buffer)
    _, (placed, admitted, right) = jax.lax.scan(body, few, (rows, verdicts))
    # From places among the candidates to slots; one beyond them is one beyond the slots.
    buffer_slot = jnp.concatenate([in_buffer.slot, jnp.full(1, capacity(memory.buffer), jnp.int32)])
    slot = jnp.where(placed.tier == Tier.CORE, read(in_core.slot, placed.slot), read(buffer_slot, placed.slot))
    placed = dataclasses.replace(placed, slot=slot, demoted_slot=read(buffer_slot, placed.demoted_slot))
    return placed, admitted, right.all()


def _move_rows(memory: Memory, rows: Store, placed: Placement) -> Memory:
    """`memory` with each of `rows` [B], and what they pushed out of core, where `placed` says."""
    core, buffer = memory.core, memory.buffer
    order = jnp.arange(rows.id.shape[0], dtype=jnp.int32)
    in_core, demotes = placed.stored & (placed.tier == Tier.CORE), placed.demoted_id >= 0
    in_buffer = placed.stored & ~in_core
    core_slot = jnp.where(in_core, placed.slot, capacity(core))
    buffer_slot = jnp.where(in_buffer, placed.slot, placed.demoted_slot)

    # What is pushed out of core is what the last one before put there, or else what was there at first.
    before = (core_slot[:, None] == core_slot[None, :]) & (order[:, None] > order[None, :])
    pusher = jnp.max(jnp.where(before, order[None, :], -1), axis=1, initial=-1)
    were_in_core = read(core, core_slot)
    was_there = demotes & (pusher < 0)
    to_buffer = jax.tree.map(
        lambda new, old: jnp.where(over_rows(was_there, old), old, new),
        read(rows, jnp.where(demotes & (pusher >= 0), pusher, order)),
        were_in_core,
    )

    def put_last(store: Store, slot: Array, acts: Array, rows: Store) -> Store:
        """Of several rows for one slot the last."""
        return put(store, jnp.where(last_of_each(slot, acts, capacity(store)), slot, capacity(store)), rows)

    core = put_last(core, core_slot, in_core, after(were_in_core, rows))
    if capacity(buffer) > 0:
        buffer = put_last(buffer, buffer_slot, in_buffer | demotes, to_buffer)
    return dataclasses.replace(memory, core=core, buffer=buffer)
