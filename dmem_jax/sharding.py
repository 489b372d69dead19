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
import os
import sys
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, ProcessLostError, shown
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
    agents, slots = (axis if _devices(mesh, axis) > 1 else None for axis in (AGENTS, SLOTS))

    def of_memory(memory: Memory) -> Memory:
        batch = (agents, *(None,) * (memory.clock.ndim - 1)) if memory.clock.ndim else ()

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


def together(name: str) -> None:
    """Waits until all processes have come here. One that is gone is noticed here, also where steps exchange nothing.

    Args:
      name: of the place in the program, the same in all processes.

    Raises:
      ProcessLostError: another process has died, or has gone elsewhere.
    """
    try:
        multihost_utils.sync_global_devices(name)
    except (RuntimeError, ValueError) as error:
        raise ProcessLostError(
            f"{name}: another process of this run is gone ({_first_line(error)}). The others cannot go on without it: "
            "end them, and start all of them again from the last checkpoint."
        ) from error


def leave(status: int) -> None:
    """Ends this process at once, with exit status `status`, after another one was lost: an ordinary exit would wait for
    the lost one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


def on_mesh(mesh: Mesh, config: Config, function: Callable, *, whole: bool = False) -> Callable:
    """`function(config, params, *of_agents)`, without its first argument: each device does its part.

    Args:
      whole: it needs all slots of a memory at once; where these are divided the compiler is left to find out how.
    """

    def found(*given: PyTree) -> PyTree:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given)  # wherever they lie
        return jax.eval_shape(functools.partial(function, config), *shapes)

    slot_axis = SLOTS if _devices(mesh, SLOTS) > 1 else None
    if whole and slot_axis:

        def compiled(params: Any, *given: PyTree) -> PyTree:
            wanted = shardings(mesh, found(params, *given))
            if AxisType.Explicit in mesh.axis_types:
                return jax.sharding.auto_axes(functools.partial(function, config), out_sharding=wanted)(params, *given)
            return jax.lax.with_sharding_constraint(function(config, params, *given), wanted)

        return compiled

    def mapped(params: Any, *given: PyTree) -> PyTree:
        if AxisType.Explicit in mesh.axis_types:  # there nothing moves unless told
            given = jax.reshard(given, shardings(mesh, given))
        part = dataclasses.replace(config, slot_axis=slot_axis)
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
    divided, split = _devices(mesh, AGENTS), _devices(mesh, SLOTS)
    if agents % divided:
        raise ArgumentValueError(
            f'agents: expected a multiple of the {divided} devices of the mesh axis "{AGENTS}", got {agents}.'
        )
    if split > 1:
        dataclasses.replace(config, slot_axis=SLOTS)  # refuses what cannot be divided
        check_divisible(config, split)


def _devices(mesh: Mesh, axis: str) -> int:
    return dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)).get(axis, 1)


def _check_mesh(mesh: Mesh) -> None:
    if not isinstance(mesh, Mesh):
        raise ArgumentTypeError(f"mesh: expected a jax.sharding.Mesh, got {shown(mesh)}.")
    if not {AGENTS, SLOTS} & set(mesh.axis_names):
        raise ArgumentValueError(f'mesh: expected an axis "{AGENTS}" or "{SLOTS}", got {mesh.axis_names}.')
