"""`write_many` of 64 experiences into full stores that look for no duplicates. Floor: a scan of `write` over them.

A step is one call.

- `dmem_jax`: in a scan, as its floor.
- `dmem_jax_call`: in one jitted call a step, as its floor.
"""

import dataclasses
from collections.abc import Iterator

import jax

import dmem_jax as dmem
from benchmarks.output import Record
from benchmarks.streams import Stream, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import CallLoop, ScanLoop, Timing, race

DEFAULTS = {"agents": [1], "slots": [4096], "dim": [128]}
DEFAULT_PEERS = SWEEP_PEERS = []
MANY = 64
CALLS = 16  # of one round


def sweep(top_k: int) -> list[Work]:
    return [Work(agents, 2**n, 128, top_k) for agents in (1, 64) for n in (8, 10, 12)]


def run(work: Work, peers: list[str], repeats: int) -> Iterator[Record]:
    rows = full_rows(work)
    subject = Subject(work, duplicates="off")
    stream = subject.stream(Stream(work, rows, CALLS * MANY))

    def calls(round: int) -> dmem.Experience:
        """Experiences [CALLS, agents, MANY]."""
        experiences, _ = stream(round)
        return jax.tree.map(lambda x: x.reshape(CALLS, MANY, *x.shape[1:]).swapaxes(1, 2), experiences)

    def batch(memory: dmem.Memory, experiences: dmem.Experience):
        return jax.vmap(dmem.write_many, in_axes=(None, None, 0, 0))(
            subject.config, subject.params, memory, experiences
        )

    def scan(memory: dmem.Memory, experiences: dmem.Experience):
        def write(memory: dmem.Memory, experience: dmem.Experience):
            return dmem.write(subject.config, subject.params, memory, experience)

        return jax.vmap(lambda *given: jax.lax.scan(write, *given))(memory, experiences)

    timings: dict[str, Timing] = {}
    for name, loop in (("dmem_jax", ScanLoop), ("dmem_jax_call", CallLoop)):
        floor = loop(scan, subject.full_memory(rows), calls)
        timings |= race(floor, {name: loop(batch, subject.full_memory(rows), calls)}, repeats)

    for name, timing in timings.items():
        sizes = dataclasses.asdict(work) | {"experiences": MANY}
        yield {"benchmark": "write_many", "implementation": name, "work": sizes, **timing.record()}
