"""Memories over a mesh of devices, and over the processes that hold them.

    mesh = jax.make_mesh((4, 2), ("agents", "slots"))
    agents = dmem.make(config, payload, agents=1024, mesh=mesh)
    memories = agents.init()  # lies on the mesh, and agents.step runs on it

Agents are divided over the axis "agents": a step then moves nothing between devices. The slots of each memory are
divided over the axis "slots": for memories that are too large for one device. A write goes to the device that holds its
slot, a recall takes the best of the best of each device, and only rows, candidates and a few numbers are sent. A mesh
may have one of the two axes or both; whatever has no axis of its own is the same on all devices.

In a `shard_map` of your own, call the functions with `dataclasses.replace(config, slot_axis="slots")` and take the
specs of a memory from here:

    specs = sharding.specs(mesh, memory)  # one memory, whose slots are divided
    body = lambda memory, queries: jax.vmap(dmem.recall, (None, None, None, 0))(split, params, memory, queries)
    recalls = jax.shard_map(body, mesh=mesh, in_specs=(specs, jax.P()), out_specs=jax.P())(memory, queries)
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.shards import check_divisible
from dmem_jax.types import Memory, Store

AGENTS, SLOTS = "agents", "slots"
"""The axes of a mesh that have a meaning here."""


def specs(mesh: Mesh, tree: PyTree) -> PyTree:
    """A `PartitionSpec` for each array of `tree`, as `jax.shard_map` takes them.

    Args:
      mesh: with an axis "agents", "slots", or both.
      tree: a `Memory`, of one agent or with a leading axis of agents; or anything else whose leaves all have that axis,
        with memories in it or not. Arrays or ShapeDtypeStructs.

    Returns:
      The same tree: arrays are divided along their axis of agents, and those of a tier along their slots; what a mesh
      has no axis for is whole on every device.
    """
    _check_mesh(mesh)
    agents, slots = (axis if axis in mesh.axis_names else None for axis in (AGENTS, SLOTS))

    def of_memory(memory: Memory) -> Memory:
        batch = (agents,) * memory.clock.ndim

        def of_part(part: Any) -> Any:
            spec = PartitionSpec(*batch, slots) if isinstance(part, Store) else PartitionSpec(*batch)
            return jax.tree.map(lambda _: spec, part)

        return jax.tree.map(of_part, memory, is_leaf=lambda x: x is not memory)

    def of_any(x: Any) -> Any:
        return of_memory(x) if isinstance(x, Memory) else PartitionSpec(agents)

    return jax.tree.map(of_any, tree, is_leaf=lambda x: isinstance(x, Memory))


def shardings(mesh: Mesh, tree: PyTree) -> PyTree:
    """The same as `NamedSharding`s, as `jax.device_put`, `jax.jit` and `checkpoint.restore` take them."""
    return jax.tree.map(functools.partial(NamedSharding, mesh), specs(mesh, tree))


def place(mesh: Mesh, tree: PyTree) -> PyTree:
    """`tree`, memories or what belongs to agents, on the devices of `mesh`."""
    return jax.device_put(tree, shardings(mesh, tree))


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_timeout_seconds: int = 30,
    **options: Any,
) -> None:
    """Starts this process as one of several whose devices make one mesh. Call it first, before JAX is used.

    `jax.distributed.initialize` with what a memory needs: collectives between CPUs (gloo), and a shorter time until the
    death of a process is noticed, after which the others fail with an error that says so.

    Args:
      coordinator_address: "host:port" of process 0, num_processes, process_id: as jax takes them; on clusters that it
        knows (Slurm, TPU, Open MPI, Kubernetes) they may be left out.
      heartbeat_timeout_seconds: seconds without a sign of life after which a process counts as dead.
      options: others of `jax.distributed.initialize`.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address,
        num_processes,
        process_id,
        heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        **options,
    )


def on_mesh(mesh: Mesh, config: Config, function: Callable, *, whole: bool = False) -> Callable:
    """`function(config, params, *of_agents)`, without its first argument: each device does its part.

    Args:
      whole: it needs all slots of a memory at once; where these are divided the compiler is left to find out how.
    """

    def found(*given: PyTree) -> PyTree:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given)  # wherever they lie
        return jax.eval_shape(functools.partial(function, config), *shapes)

    if whole and SLOTS in mesh.axis_names:

        def compiled(params: Any, *given: PyTree) -> PyTree:
            wanted = shardings(mesh, found(params, *given))
            if AxisType.Explicit in mesh.axis_types:
                return jax.sharding.auto_axes(functools.partial(function, config), out_sharding=wanted)(params, *given)
            return jax.lax.with_sharding_constraint(function(config, params, *given), wanted)

        return compiled

    def mapped(params: Any, *given: PyTree) -> PyTree:
        if AxisType.Explicit in mesh.axis_types:  # there nothing moves unless told
            given = jax.reshard(given, shardings(mesh, given))
        part = dataclasses.replace(config, slot_axis=SLOTS if SLOTS in mesh.axis_names else None)
        return jax.shard_map(
            functools.partial(function, part),
            mesh=mesh,
            in_specs=(PartitionSpec(), *specs(mesh, given)),
            out_specs=specs(mesh, found(params, *given)),
        )(params, *given)

    return mapped


def check_divides(mesh: Mesh, config: Config, agents: int) -> None:
    """Every device gets as many agents, and as many slots of their tiers."""
    _check_mesh(mesh)
    devices = dict(zip(mesh.axis_names, mesh.devices.shape, strict=True))
    if agents % devices.get(AGENTS, 1):
        raise ArgumentValueError(
            f'agents: expected a multiple of the {devices[AGENTS]} devices of the mesh axis "{AGENTS}", got {agents}.'
        )
    if SLOTS in devices:
        dataclasses.replace(config, slot_axis=SLOTS)  # refuses what cannot be divided
        check_divisible(config, devices[SLOTS])


def _check_mesh(mesh: Mesh) -> None:
    if not isinstance(mesh, Mesh):
        raise ArgumentTypeError(f"mesh: expected a jax.sharding.Mesh, got {shown(mesh)}.")
    if not {AGENTS, SLOTS} & set(mesh.axis_names):
        raise ArgumentValueError(f'mesh: expected an axis "{AGENTS}" or "{SLOTS}", got {mesh.axis_names}.')
