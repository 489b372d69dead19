"""A larger buffer for a memory that has filled the one it has."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dmem_jax import allocation, inputs, shards
from dmem_jax.checks import check_memory
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentValueError
from dmem_jax.types import Memory


def grow(config: Config, memory: Memory, buffer_capacity: int) -> tuple[Config, Memory]:
    """The config and the memory, of one agent or of many, with free slots behind those that the buffer has.

    Everything keeps its slot, its id and its order; an index follows at its next `sync`. What is valid in a recall
    named before is still where it says.

    Args:
      buffer_capacity: slots, at least as many as now.

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """
    inputs.check_config(config)
    shards.whole_only(config, "ann.grow")
    check_memory(memory)
    n = inputs.positive("buffer_capacity", buffer_capacity)
    if n < config.buffer_capacity:
        raise ArgumentValueError(f"buffer_capacity: expected at least {config.buffer_capacity}, got {n}.")
    larger = dataclasses.replace(config, buffer_capacity=n)
    batch = memory.clock.shape
    axis = len(batch)

    def of_one_slot(leaf: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape[axis + 1 :], leaf.dtype)

    payload = jax.tree.map(of_one_slot, memory.buffer.payload)
    added = dataclasses.replace(config, core_capacity=1, shadow_capacity=0, buffer_capacity=n - config.buffer_capacity)
    free = allocation.init(added, payload, batch_shape=batch).buffer
    buffer = jax.tree.map(lambda old, new: jnp.concatenate([old, new], axis=axis), memory.buffer, free)
    # "No slot" is the pool's capacity, and that has grown.
    slot = memory.probe.slot
    probe = dataclasses.replace(
        memory.probe, slot=jnp.where(slot == config.pool_capacity, jnp.int32(larger.pool_capacity), slot)
    )
    return larger, dataclasses.replace(memory, buffer=buffer, probe=probe)
