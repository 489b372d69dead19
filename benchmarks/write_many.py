"""`write_many` of 64 experiences into full stores that look for no duplicates. Floor: a scan of `write` over them.

A step is one call. Implementations, by how the clock goes, for that decides how much has to be looked at:

- `dmem_jax`: it counts the experiences, as where no time is given.
- `dmem_jax_one_time`: they all happen at one time.
- `dmem_jax_far_apart`: each happens ten half-lives after the one before, the worst case: all slots are looked at.
- `dmem_jax_call`: as the first, in one jitted call a step; its floor is so, too.
"""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

import dmem_jax as dmem
from benchmarks.output import Record
from benchmarks.streams import Stream, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import CallLoop, Contender, ScanLoop, race

DEFAULTS = {"agents": [1], "slots": [4096], "dim": [128]}
DEFAULT_PEERS = SWEEP_PEERS = ["one_time", "far_apart"]
MANY = 64
CALLS = 16  # of one round
FAR = 8000  # steps, ten half-lives


def sweep(top_k: int) -> list[Work]:
    return [Work(agents, 2**n, 128, top_k) for agents in (1, 64) for n in (8, 10, 12)]


def run(work: Work, peers: list[str], repeats: int) -> Iterator[Record]:
    rows = full_rows(work)
    subject = Subject(work, duplicates="off")
    stream = subject.stream(Stream(work, rows, CALLS * MANY))

    def timed(times: Callable[[jax.Array], jax.Array]) -> Callable[[int], dmem.Experience]:
        """Experiences [CALLS, agents, MANY] at the times of their numbers, counted through all rounds."""

        def calls(round: int) -> dmem.Experience:
            experiences, _ = stream(round)
            number = jnp.arange(CALLS * MANY, dtype=jnp.int32) + round * CALLS * MANY
            time = jnp.broadcast_to(times(number)[:, None], experiences.time.shape)
            experiences = dataclasses.replace(experiences, time=time)
            return jax.tree.map(lambda x: x.reshape(CALLS, MANY, *x.shape[1:]).swapaxes(1, 2), experiences)

        return calls

    counted = timed(lambda number: jnp.full_like(number, dmem.UNSET))
    clocks = {
        "one_time": timed(lambda number: work.slots + number // MANY * MANY),
        "far_apart": timed(lambda number: work.slots + number * FAR),
    }

    def batch(memory: dmem.Memory, experiences: dmem.Experience):
        return jax.vmap(dmem.write_many, in_axes=(None, None, 0, 0))(
            subject.config, subject.params, memory, experiences
        )

    def scan(memory: dmem.Memory, experiences: dmem.Experience):
        def write(memory: dmem.Memory, experience: dmem.Experience):
            return dmem.write(subject.config, subject.params, memory, experience)

        return jax.vmap(lambda *given: jax.lax.scan(write, *given))(memory, experiences)

    in_scan: dict[str, Contender] = {"dmem_jax": ScanLoop(batch, subject.full_memory(rows), counted)}
    for name in peers:
        in_scan[f"dmem_jax_{name}"] = ScanLoop(batch, subject.full_memory(rows), clocks[name])
    timings = race(ScanLoop(scan, subject.full_memory(rows), counted), in_scan, repeats)
    by_call: dict[str, Contender] = {"dmem_jax_call": CallLoop(batch, subject.full_memory(rows), counted)}
    timings |= race(CallLoop(scan, subject.full_memory(rows), counted), by_call, repeats)

    for name, timing in timings.items():
        sizes = dataclasses.asdict(work) | {"experiences": MANY}
        yield {"benchmark": "write_many", "implementation": name, "work": sizes, **timing.record()}
