"""`sharding`: a step over 1, 2, 4, 8 forced host devices, agents or slots divided, and what it sends.

Each number of devices has a process of its own, for JAX decides on it when it starts. `sent` counts the collectives of
one compiled step and `sent_bytes` what a device hands to them; `copies` the arrays of a store that the loop writes.
Floor: one pass over the embeddings in the same scan on the same mesh, whose greatest scores are sent. Devices that are
forced on one host share its cores and its bus: what they tell is what dividing costs, not what it gains.
"""

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh

import dmem_jax as dmem
from benchmarks.copies import wide_shapes
from benchmarks.forced import on_devices
from benchmarks.hlo import instructions, whole_writes
from benchmarks.output import Record, print_json, progress
from benchmarks.streams import Stream, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import ScanLoop, race
from dmem_jax import sharding

DEVICES = [1, 2, 4, 8]
WORKS = {"agents": Work(agents=256, slots=512, dim=128), "slots": Work(agents=1, slots=2**16, dim=128)}
SMALL = {"agents": Work(agents=8, slots=256, dim=24), "slots": Work(agents=1, slots=1024, dim=24)}
COLLECTIVES = "all-", "reduce-scatter", "collective-"
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2}


def run(devices: list[int], small: bool, repeats: int) -> Iterator[Record]:
    for n in devices:
        progress(f"sharding: {n} devices")
        yield from on_devices(n, "benchmarks.sharding", "--repeats", str(repeats), *["--small"] * small)


def _here(small: bool, repeats: int) -> Iterator[Record]:
    for axis, work in (SMALL if small else WORKS).items():
        mesh = jax.make_mesh((jax.device_count(),), (axis,), axis_types=(AxisType.Auto,))
        yield _measured(axis, mesh, work, repeats)


def _measured(axis: str, mesh: Mesh, work: Work, repeats: int) -> Record:
    rows = full_rows(work)
    stream, subject = Stream(work, rows), Subject(work)
    memories, given = subject.full_memory(rows), subject.stream(stream)
    if axis == "slots":  # one memory, without an axis of agents
        memories, given = jax.tree.map(lambda x: x[0], memories), _of_first_agent(given)
    ours = ScanLoop(_step(axis, mesh, subject, memories), sharding.place(mesh, memories), given)
    text = str(ours.program.lower(ours.state, given(0)).compile().as_text())
    part = jax.tree.map(lambda leaf: leaf.addressable_shards[0].data, ours.state[0])
    shapes = wide_shapes(part.core) | wide_shapes(part.buffer)
    sent = [i for i in instructions(text) if i.op.startswith(COLLECTIVES)]
    timing = race(_one_pass(axis, mesh, rows, stream), {"dmem_jax": ours}, repeats)["dmem_jax"]
    return {
        "benchmark": "sharding",
        "implementation": "dmem_jax",
        "work": dataclasses.asdict(work) | {"axis": axis, "devices": mesh.size},
        **timing.record(),
        "sent": len(sent),
        "sent_bytes": sum(nbytes_of(shape) for i in sent for shape in i.shapes),
        "copies": len(whole_writes(text, shapes)),
    }


def _step(axis: str, mesh: Mesh, subject: Subject, memories: dmem.Memory) -> Callable:
    if axis == "agents":
        payload = jax.tree.map(lambda x: x[0, 0], memories.core.payload)
        agents = dmem.make(subject.config, payload, agents=subject.work.agents, mesh=mesh)

        def step(memories: dmem.Memory, x: tuple) -> tuple[dmem.Memory, dmem.Recall]:
            memories, info = agents.step(subject.params, memories, *x)
            return memories, info.recall

        return step

    config = dataclasses.replace(subject.config, slot_axis="slots" if mesh.size > 1 else None)

    def step_of_one(memory: dmem.Memory, x: tuple) -> tuple[dmem.Memory, dmem.Recall]:
        memory, info = dmem.step(config, subject.params, memory, *x)
        return memory, info.recall

    specs = sharding.specs(mesh, memories)
    return jax.shard_map(step_of_one, mesh=mesh, in_specs=(specs, jax.P()), out_specs=(specs, jax.P()))


def _of_first_agent(given: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda round: jax.tree.map(lambda x: x[:, 0], given(round))


def _one_pass(axis: str, mesh: Mesh, rows: dict[str, jax.Array], stream: Stream) -> ScanLoop:
    divided = jax.P("agents") if axis == "agents" else jax.P(None, "slots")
    of_agents = jax.P("agents") if axis == "agents" else jax.P()

    def best(embedding, query):
        found = jnp.einsum("and,ad->an", embedding, query).max(-1)
        return found if axis == "agents" else jax.lax.pmax(found, axis)

    read = jax.shard_map(best, mesh=mesh, in_specs=(divided, of_agents), out_specs=of_agents)
    embedding = jax.device_put(jnp.array(rows["embedding"], copy=True), jax.NamedSharding(mesh, divided))
    return ScanLoop(lambda embedding, x: (embedding, read(embedding, x.query)), embedding, stream)


def nbytes_of(shape: str) -> int:
    """Of an array in compiled text, as "f32[4,8]"."""
    kind, _, sizes = shape.partition("[")
    return _BYTES.get(kind, 4) * math.prod(int(n) for n in re.findall(r"\d+", sizes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print_json(_here(options.small, options.repeats))
