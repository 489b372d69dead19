"""dmem_jax itself, as contenders: full stores of every agent, and its step, write and recall as loop bodies."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import dmem_jax as dmem
from benchmarks.streams import FEATURES, Stream, Stretch, Work
from dmem_jax.config import Duplicates, StoreDtype
from dmem_jax.storage import as_stored


class Subject:
    """D-MEM with every default (demotion, softmax fusion, where not told otherwise probe duplicates) over the rows that
    its peers hold."""

    def __init__(
        self, work: Work, duplicates: Duplicates = "probe", store_dtype: StoreDtype = "float32", **params: float
    ):
        self.work = work
        # No warm-up: the stores are full, so this is the middle of a life.
        self.config = dmem.Config(
            embedding_dim=work.dim,
            core_capacity=work.core_capacity,
            buffer_capacity=work.slots - work.core_capacity,
            top_k=work.top_k,
            warmup=0,
            duplicates=duplicates,
            store_dtype=store_dtype,
        )
        self.params = dmem.Params.default(self.config, **params)

    def full_memory(self, rows: dict[str, jax.Array]) -> dmem.Memory:
        """A memory of all agents whose stores hold `rows`, core's first."""
        specs = {"features": jnp.zeros(FEATURES), "action": jnp.int32(0)}
        empty = dmem.init(self.config, specs, batch_shape=(self.work.agents,))
        core = self.work.core_capacity
        clock = jnp.full_like(empty.clock, self.work.slots)

        def fill(store: dmem.Store, part: slice) -> dmem.Store:
            # Copies: what jax slices whole is the same buffer, and this one is donated.
            fields = {name: jnp.array(row[:, part], copy=True) for name, row in rows.items()}
            payload = {name: fields.pop(name) for name in ("features", "action")}
            if self.config.store_dtype != "float32":
                fields |= as_stored(self.config.store_dtype, fields["embedding"])
            return dataclasses.replace(store, payload=payload, **fields)

        return dataclasses.replace(
            empty,
            core=fill(empty.core, slice(0, core)),
            buffer=fill(empty.buffer, slice(core, None)),
            clock=clock,
            next_id=jnp.array(clock, copy=True),
        )

    def stream(self, stream: Stream) -> Callable[[int], tuple[dmem.Experience, jax.Array]]:
        """The stream as experiences and queries; building them is the caller's part of a loop and isn't timed."""

        def stretch(round: int) -> tuple[dmem.Experience, jax.Array]:
            x: Stretch = stream(round)
            fields = dict(x.experience)
            payload = {name: fields.pop(name) for name in ("features", "action")}
            embedding, rpe = fields["embedding"], fields["rpe"]
            return dmem.experience(self.config, embedding, rpe=rpe, reward=rpe, value=0.0, payload=payload), x.query

        return stretch

    def step(self, memory: dmem.Memory, x: tuple[dmem.Experience, jax.Array]) -> tuple[dmem.Memory, Any]:
        memory, info = jax.vmap(dmem.step, in_axes=(None, None, 0, 0, 0))(self.config, self.params, memory, *x)
        return memory, info.recall

    def write(self, memory: dmem.Memory, x: tuple[dmem.Experience, jax.Array]) -> tuple[dmem.Memory, Any]:
        memory, info = jax.vmap(dmem.write, in_axes=(None, None, 0, 0))(self.config, self.params, memory, x[0])
        return memory, info.route

    def recall(self, memory: dmem.Memory, x: tuple[dmem.Experience, jax.Array]) -> tuple[dmem.Memory, Any]:
        return memory, jax.vmap(dmem.recall, in_axes=(None, None, 0, 0))(self.config, self.params, memory, x[1])
