"""An empty memory: every array that an agent will ever need, allocated once."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from dmem_jax import inputs
from dmem_jax.config import Config
from dmem_jax.types import Memory, Probe, Ring, Router, Shadow, Stats, Store

SIMILARITY_WINDOW = 50  # of Config.signal "paper": the values that its critic compares with


def init(config: Config, payload: PyTree = None, *, batch_shape: tuple[int, ...] = ()) -> Memory:
    """An empty memory.

    Args:
      payload: what each slot keeps beside the embedding: None, or any pytree of examples or ShapeDtypeStructs of one
        memory, without batch axes.
      batch_shape: leading axes of every array, e.g. (1024,) for a thousand agents.

    Returns:
      A `Memory` in which no two leaves share a buffer, so that it can be donated.
    """
    inputs.check_config(config)
    inputs.check_batch_shape(batch_shape)
    spec = inputs.payload_spec(payload)
    needed = nbytes(config, spec) * math.prod(batch_shape)
    inputs.check_bytes("batch_shape", batch_shape, needed)
    return _empty(config, spec, batch_shape)


def nbytes(config: Config, payload: PyTree = None) -> int:
    """Bytes of one agent's memory.

    >>> nbytes(Config(embedding_dim=128, core_capacity=64, buffer_capacity=192)) // 1024
    145
    """
    inputs.check_config(config)
    leaves, structure = jax.tree.flatten(inputs.payload_spec(payload))
    needed = _nbytes(config, tuple(leaves), structure)
    inputs.check_bytes("config", config, needed)
    return needed


@functools.lru_cache
def _nbytes(config: Config, leaves: tuple[jax.ShapeDtypeStruct, ...], structure: Any) -> int:
    spec = jax.tree.unflatten(structure, leaves)
    arrays = jax.tree.leaves(jax.eval_shape(lambda: _empty(config, spec, ())))
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def _empty(config: Config, spec: PyTree, batch_shape: tuple[int, ...]) -> Memory:
    def filled(shape: tuple[int, ...], dtype: Any, value: Any = 0) -> Array:
        return jnp.full((*batch_shape, *shape), value, dtype)

    def scalars(n: tuple[int, ...], *names: str, dtype: Any) -> dict[str, Array]:
        return {name: filled(n, dtype) for name in names}

    def store(slots: int) -> Store:
        n = (slots,)
        wide = (slots, config.embedding_dim)
        return Store(
            embedding=filled(wide, config.store_dtype),
            scale=filled(n, jnp.float32) if config.store_dtype == "int8" else None,
            id=filled(n, jnp.int32, -1),
            contradicted=filled(n, bool),
            payload=jax.tree.map(lambda leaf: filled((slots, *leaf.shape), leaf.dtype), spec),
            next_embedding=filled(wide, jnp.float32) if config.store_next else None,
            discount=filled(n, jnp.float32) if config.store_next else None,
            **scalars(n, "inv_norm", "rpe", "reward", "value", "strength", "written_strength", dtype=jnp.float32),
            **scalars(n, "task", "time", "touched", "recalls", "successes", "count", dtype=jnp.int32),
        )

    def ring(length: int) -> Ring:
        return Ring(values=filled((length,), jnp.float32), cursor=filled((), jnp.int32))

    def shadow(places: int) -> Shadow:
        n = (places,)
        return Shadow(
            embedding=filled((places, config.embedding_dim), jnp.float32),
            payload=jax.tree.map(lambda leaf: filled((places, *leaf.shape), leaf.dtype), spec),
            **scalars(n, "inv_norm", "rpe", dtype=jnp.float32),
            **scalars(n, "task", "time", dtype=jnp.int32),
            **scalars((), "cursor", "filled", dtype=jnp.int32),
        )

    return Memory(
        core=store(config.core_capacity),
        buffer=store(config.buffer_capacity),
        router=Router(
            sizes=ring(config.window),
            magnitudes=ring({"none": 0, "mean": config.smoothing_window, "rank": config.window}[config.smoothing]),
            similarities=ring(SIMILARITY_WINDOW if config.signal == "paper" else 0),
            compared=filled((), jnp.int32),
            seen=filled((), jnp.int32),
            **scalars((), "scale_mean", "scale_weight", dtype=jnp.float32),
        ),
        probe=Probe(
            embedding=filled((config.embedding_dim,), jnp.float32),
            task=filled((), jnp.int32),
            slot=filled((2,), jnp.int32, config.pool_capacity),
            similarity=filled((2,), jnp.float32, -jnp.inf),
            closest=filled((), jnp.float32, -jnp.inf),
            valid=filled((), bool),
        ),
        shadow=shadow(config.shadow_capacity) if config.shadow_capacity else None,
        stats=Stats(**scalars((), *(field.name for field in dataclasses.fields(Stats)), dtype=jnp.int32)),
        clock=filled((), jnp.int32),
        next_id=filled((), jnp.int32),
    )
