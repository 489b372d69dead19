"""`write`: all agents' writes into full stores. Floor: a scan of the small arrays for the weakest row, which is set.

Implementations, by what they show:

- `dmem_jax`, where half of the stream is dropped by the gate, and `dmem_jax_ungated`, where all of it passes: a gate
  by index costs nothing, a conditional under vmap would run both branches and copy.
- `row_set_gated` and `row_set`, the same for the setting of one row and nothing else. `row_set` is also the part of a
  write that depends on the embedding size.
- `dmem_jax_call` and `dmem_jax_call_undonated`: one jitted call a write in place of a scan, with and without donation.
"""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.output import Record
from benchmarks.peers import copy_of
from benchmarks.streams import Stream, Stretch, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import CallLoop, Contender, ScanLoop, race

DEFAULTS = {"agents": [16], "slots": [2**15], "dim": [16, 128]}
DEFAULT_PEERS = SWEEP_PEERS = ["row_set", "row_set_gated"]
UNGATED = {"dmem_jax": "dmem_jax_ungated", "row_set_gated": "row_set"}
STEPS = 32  # of one round
HALF_LIFE = 800.0
Rows = dict[str, jax.Array]


def sweep(top_k: int) -> list[Work]:
    return [Work(16, 2**n, dim, top_k) for n in range(7, 16) for dim in (16, 128)]


def new_row(x: Stretch, clock: jax.Array) -> Rows:
    """A row [A, ...] for every field that SPEC 1 stores."""
    rpe = x.experience["rpe"]
    whole = jnp.ones_like(rpe, jnp.int32)
    return x.experience | {
        "inv_norm": 1 / jnp.linalg.norm(x.experience["embedding"], axis=-1),
        "reward": rpe,
        "value": 0 * rpe,
        "task": 0 * whole,
        "time": clock * whole,
        "strength": jnp.abs(rpe),
        "written_strength": jnp.abs(rpe),
        "touched": clock * whole,
        "recalls": 0 * whole,
        "successes": 0 * whole,
        "count": whole,
        "contradicted": rpe != rpe,
        "id": clock * whole,
    }


def put(rows: Rows, slot: jax.Array, row: Rows) -> Rows:
    """Row `slot` [A] of each agent; at the capacity nothing is written."""
    agent = jnp.arange(slot.shape[0])
    return {name: rows[name].at[agent, slot].set(row[name], mode="drop") for name in rows}


def replace_weakest(carry: tuple[jax.Array, Rows], x: Stretch):
    """The floor's body: the row of least effective strength (SPEC 8) gives way, whatever comes."""
    clock, rows = carry
    key = jnp.log2(rows["strength"]) - (clock - rows["touched"]).astype(jnp.float32) / HALF_LIFE
    key = jnp.where(rows["id"] < 0, -jnp.inf, key)
    # argmin over slots costs five times as much on XLA:CPU.
    slots = jax.lax.broadcasted_iota(jnp.int32, key.shape, 1)
    weakest = jnp.where(key == key.min(-1, keepdims=True), slots, key.shape[1]).min(-1)
    return (clock + 1, put(rows, weakest, new_row(x, clock))), weakest


def set_row(gated: bool) -> Callable:
    """Body of a ring write; where `gated`, only of what is surprising, by index."""

    def body(carry: tuple[jax.Array, Rows], x: Stretch):
        clock, rows = carry
        capacity = rows["id"].shape[1]
        slot = jnp.full(rows["id"].shape[:1], clock % capacity)
        if gated:
            slot = jnp.where(jnp.abs(x.experience["rpe"]) > 0.25, slot, capacity)
        return (clock + 1, put(rows, slot, new_row(x, clock))), slot

    return body


def run(work: Work, peers: list[str], repeats: int) -> Iterator[Record]:
    rows = full_rows(work)
    subject, ungated = Subject(work), Subject(work, threshold_low=0.0, threshold_high=0.0)
    stream = Stream(work, rows, STEPS)
    ours, all_surprising = subject.stream(stream), subject.stream(Stream(work, rows, STEPS, surprising=1.0))
    clock = jnp.int32(work.slots)

    plain = {"row_set": set_row(gated=False), "row_set_gated": set_row(gated=True)}
    in_scan: dict[str, Contender] = {
        "dmem_jax": ScanLoop(subject.write, subject.full_memory(rows), ours),
        "dmem_jax_ungated": ScanLoop(ungated.write, ungated.full_memory(rows), all_surprising),
    } | {name: ScanLoop(plain[name], (clock + 0, copy_of(rows)), stream) for name in plain if name in peers}
    floor = ScanLoop(replace_weakest, (clock + 0, copy_of(rows)), stream)
    timings = race(floor, in_scan, repeats)
    del in_scan, floor  # their stores, before the next ones are made

    by_call: dict[str, Contender] = {
        "dmem_jax_call": CallLoop(subject.write, subject.full_memory(rows), ours),
        "dmem_jax_call_undonated": CallLoop(subject.write, subject.full_memory(rows), ours, donate=False),
    }
    floor = CallLoop(replace_weakest, (clock + 0, copy_of(rows)), stream)
    del rows
    timings |= race(floor, by_call, repeats)

    for name, timing in timings.items():
        record = {"benchmark": "write", "implementation": name, "work": dataclasses.asdict(work), **timing.record()}
        if UNGATED.get(name) in timings:
            record["ratio_to_ungated"] = timing.ratio_to(timings[UNGATED[name]])
        yield record
