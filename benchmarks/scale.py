"""`scale`: what a step takes of each of 64 accelerators for 1e9 memories: bytes, bandwidth, collectives.

Nothing of that size is run: the step is compiled for a mesh of as many devices, forced on the host, from shapes alone,
and the compiled program says what a device must hold (`device_bytes`, `temp_bytes`) and what it sends (`sent`
collectives of `sent_bytes` a step). `pass_seconds` is one pass over a device's embeddings at `--bandwidth`, to which
the measured ratios of `step` and `recall` apply. Each layout is also run, as small as a laptop can, on as many devices:
it is `checked` where the results are those of one device, and as many collectives are sent.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

import dmem_jax as dmem
from benchmarks.forced import on_devices
from benchmarks.hlo import instructions
from benchmarks.output import Record, print_json, progress
from benchmarks.sharding import COLLECTIVES, nbytes_of
from dmem_jax import sharding

BANDWIDTH = 4.8e12  # bytes a second; an H200's, as its maker states it
DEVICES = 64
MEMORIES, AGENTS = 10**9, 10**6


class Layout(NamedTuple):
    """Agents, each with a memory of its own, over the devices of a mesh."""

    name: str
    agents: int | None  # None: one memory, for all
    slots: int  # of each
    agent_devices: int
    slot_devices: int


def layouts(devices: int) -> list[Layout]:
    side = int(devices**0.5)
    groups = AGENTS // 1000
    return [
        Layout("a memory for each agent", AGENTS, MEMORIES // AGENTS, devices, 1),
        Layout("one memory for all", None, MEMORIES, 1, devices),
        Layout("a memory for each thousand agents", groups, MEMORIES // groups, side, devices // side),
    ]


def run(devices: int, bandwidth: float, small: bool) -> Iterator[Record]:
    progress(f"scale: compiling for {devices} devices")
    yield from on_devices(devices, "benchmarks.scale", "--bandwidth", str(bandwidth), *["--small"] * small)


def _here(bandwidth: float, small: bool) -> Iterator[Record]:
    devices = jax.device_count()
    for layout in _tiny(devices) if small else layouts(devices):
        for dtype in ("float32", "int8"):
            yield _planned(layout, dmem.Config(embedding_dim=128, store_dtype=dtype), bandwidth)


def _tiny(devices: int) -> list[Layout]:
    """As the large ones, as small as they can be."""
    side = int(devices**0.5)
    return [
        Layout("a memory for each agent", 2 * devices, 8, devices, 1),
        Layout("one memory for all", None, 8 * devices, 1, devices),
        Layout("a memory for each thousand agents", 2 * side, 8 * (devices // side), side, devices // side),
    ]


def _planned(layout: Layout, config: dmem.Config, bandwidth: float) -> Record:
    tiny = next(small for small in _tiny(jax.device_count()) if small.name == layout.name)
    compiled, memory = _compiled(layout, _sized(layout, config))
    checked, sent_by_tiny = _checked(tiny, _sized(tiny, dataclasses.replace(config, embedding_dim=16)))
    sent = _sent(compiled)
    analysis = compiled.memory_analysis()
    embeddings = sum(_device_bytes(tier.embedding) for tier in (memory.core, memory.buffer))
    return {
        "benchmark": "scale",
        "implementation": "dmem_jax",
        "work": layout._asdict() | {"dim": config.embedding_dim, "store_dtype": config.store_dtype},
        "bytes_a_memory": sum(map(_device_bytes, jax.tree.leaves((memory.core, memory.buffer))))
        * layout.agent_devices * layout.slot_devices / (layout.slots * (layout.agents or 1)),
        "device_bytes": analysis.argument_size_in_bytes,
        "temp_bytes": analysis.temp_size_in_bytes,
        "pass_seconds": embeddings / bandwidth,
        "sent": len(sent),
        "sent_bytes": sum(sent),
        "checked": checked and len(sent) == sent_by_tiny,
    }  # fmt: skip


def _sized(layout: Layout, config: dmem.Config) -> dmem.Config:
    core = layout.slots // 4 // layout.slot_devices * layout.slot_devices
    buffer = (layout.slots - core) // layout.slot_devices * layout.slot_devices
    return dataclasses.replace(config, core_capacity=core, buffer_capacity=buffer, warmup=0)


def _mesh(layout: Layout) -> Mesh:
    axes = {"agents": layout.agent_devices, "slots": layout.slot_devices}
    axes = {name: n for name, n in axes.items() if n > 1}
    return jax.make_mesh((*axes.values(),), (*axes,), axis_types=(AxisType.Auto,) * len(axes))


def _batch(layout: Layout) -> tuple[int, ...]:
    return () if layout.agents is None else (layout.agents,)


def _step(layout: Layout, config: dmem.Config) -> tuple[Callable, Mesh]:
    """The step over a mesh, and this."""
    mesh, params = _mesh(layout), dmem.Params.default(config)
    if layout.agents is not None:
        agents = dmem.make(config, agents=layout.agents, mesh=mesh)
        return lambda *given: agents.step(params, *given), mesh
    split = dataclasses.replace(config, slot_axis="slots")
    specs = sharding.specs(mesh, jax.eval_shape(lambda: dmem.init(config)))
    one = lambda *given: dmem.step(split, params, *given)  # noqa: E731
    return jax.shard_map(one, mesh=mesh, in_specs=(specs, jax.P(), jax.P()), out_specs=(specs, jax.P())), mesh


def _compiled(layout: Layout, config: dmem.Config) -> tuple[Any, dmem.Memory]:
    """From shapes alone; and the memory's, with where they lie."""
    step, mesh = _step(layout, config)
    empty = jax.eval_shape(lambda: dmem.init(dataclasses.replace(config, core_capacity=4, buffer_capacity=4)))
    given = jax.eval_shape(lambda: (_memory_like(empty, layout, config), *_met(layout, config)))
    where = (sharding.shardings(mesh, given[0]), *(_where(mesh, layout, x) for x in given[1:]))
    placed = jax.tree.map(lambda x, to: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=to), given, where)
    return jax.jit(step, donate_argnums=0).lower(*placed).compile(), placed[0]


def _memory_like(empty: dmem.Memory, layout: Layout, config: dmem.Config) -> dmem.Memory:
    """`init` refuses what no machine holds; as shapes it may be."""

    def zeros(x: Any, slots: int | None = None) -> jax.Array:
        shape = x.shape if slots is None else (slots, *x.shape[1:])
        return jnp.zeros((*_batch(layout), *shape), x.dtype)

    tiers = {
        "core": jax.tree.map(lambda x: zeros(x, config.core_capacity), empty.core),
        "buffer": jax.tree.map(lambda x: zeros(x, config.buffer_capacity), empty.buffer),
    }
    return dataclasses.replace(jax.tree.map(zeros, empty), **tiers)


def _met(layout: Layout, config: dmem.Config) -> tuple[dmem.Experience, dmem.Query]:
    keys = jax.random.split(jax.random.key(0), 2)
    shape = (*_batch(layout), config.embedding_dim)
    embedding, rpe = jax.random.normal(keys[0], shape), jax.random.normal(keys[1], _batch(layout))
    return dmem.experience(config, embedding, rpe=rpe), dmem.query(config, embedding)


def _where(mesh: Mesh, layout: Layout, tree: Any) -> Any:
    if layout.agents is not None:
        return sharding.shardings(mesh, tree)
    return jax.tree.map(lambda _: jax.NamedSharding(mesh, jax.P()), tree)


def _checked(layout: Layout, config: dmem.Config) -> tuple[bool, int]:
    """Whether some steps over the mesh do what they do on one device; and the collectives that one sends."""
    compiled, _ = _compiled(layout, config)
    step, mesh = _step(layout, config)
    one = _step_of_one_device(config, layout)
    whole = dmem.init(config, batch_shape=_batch(layout))
    divided = sharding.place(mesh, jax.tree.map(jnp.copy, whole))
    on_mesh, on_one, equal = jax.jit(step), jax.jit(one), True
    for _ in range(3):
        met = _met(layout, config)
        (divided, found), (whole, expected) = on_mesh(divided, *met), on_one(whole, *met)
        equal &= bool(np.array_equal(found.recall.id, expected.recall.id))
        equal &= bool(np.array_equal(found.write.slot, expected.write.slot))
    return equal, len(_sent(compiled))


def _step_of_one_device(config: dmem.Config, layout: Layout) -> Callable:
    params = dmem.Params.default(config)
    one = lambda *given: dmem.step(config, params, *given)  # noqa: E731
    return one if layout.agents is None else jax.vmap(one)


def _sent(compiled: Any) -> list[int]:
    """Bytes that a device hands to each collective of a program."""
    return [
        sum(map(nbytes_of, i.shapes)) for i in instructions(str(compiled.as_text())) if i.op.startswith(COLLECTIVES)
    ]


def _device_bytes(x: Any) -> int:
    return int(np.prod(x.sharding.shard_shape(x.shape))) * x.dtype.itemsize


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--bandwidth", type=float, default=BANDWIDTH)
    options = parser.parse_args()
    print_json(_here(options.bandwidth, options.small))
