"""The works of `fused_topk`: their sizes, what they must read and compute, their stores, and a stream of queries."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import larger_rounds
from dmem_kernels.fused_topk.arg_specs import BENCHMARKED, ArgSpec, arguments

Store = dict[str, jax.Array]  # embeddings [A, N, D]; inv_norm, salience and mask [A, N]
Queries = dict[str, Any]  # query [A, Q, D], and weight, temperature []; of one round each with an axis [T] in front
SOME_AGENTS = 64  # stores of so many are drawn, and repeated for the rest: what a search costs doesn't depend on them


def work(
    agents: int, queries: int, memories: int, dim: int, top_k: int, fusion: str, dtype: str = "float32"
) -> ArgSpec:
    several = lambda size: size if size > 1 else None  # noqa: E731
    return ArgSpec(
        "", memories, dim, top_k, queries=several(queries), agents=several(agents), fusion=fusion, dtype=dtype
    )


def sweep() -> list[ArgSpec]:
    """From one query of 1,000,000 memories to 16,384 agents, each with one of 256; then dim and k, one at a time."""
    shapes = [(4096, 1, 512, 64), (16384, 1, 256, 32), (256, 8, 512, 128), (1, 256, 16384, 128)]
    shared = [(dim, 10) for dim in (32, 128, 1024)] + [(128, k) for k in (1, 32, 128)]
    return [
        *BENCHMARKED,
        *(work(*shape, 8, "softmax") for shape in shapes),
        *(work(1, 64, 100_000, *dim_and_k, fusion) for dim_and_k in shared for fusion in ("plain", "softmax")),
    ]


def shape(spec: ArgSpec) -> tuple[int, int, int, int]:
    """A, Q, N, D."""
    return spec.agents or 1, spec.queries or 1, spec.slots, spec.dim


def record(spec: ArgSpec) -> dict[str, Any]:
    sizes = dict(zip(("agents", "queries", "memories", "dim"), shape(spec), strict=True))
    return {**sizes, "top_k": spec.k, "fusion": spec.fusion, "dtype": spec.dtype}


def nbytes(spec: ArgSpec) -> int:
    """Of the embeddings: the least that a search must read."""
    a, _, n, d = shape(spec)
    return jnp.dtype(spec.dtype).itemsize * a * n * d


def scores_nbytes(spec: ArgSpec) -> int:
    """Of the matrix of all scores, which a fused search doesn't keep."""
    a, q, n, _ = shape(spec)
    return 4 * a * q * n


def operations(spec: ArgSpec) -> int:
    """Of the dot products: the least that a search must compute."""
    a, q, n, d = shape(spec)
    return 2 * a * q * n * d


def steps(spec: ArgSpec) -> int:
    """Searches of one round: two GB read or 16 G operations done, so that a round takes some tenths of a second on a
    CPU."""
    larger = larger_rounds()
    return int(np.clip(min(larger * 2**31 // nbytes(spec), larger * 2**34 // operations(spec)), 2, 64))


def store(spec: ArgSpec) -> Store:
    some = dataclasses.replace(spec, agents=min(spec.agents or 1, SOME_AGENTS))
    (_, *memory), _ = arguments(some)
    drawn = jnp.arange(spec.agents or 1) % SOME_AGENTS
    repeat = jax.jit(lambda x: x[drawn]) if len(drawn) > SOME_AGENTS else lambda x: x
    return dict(zip(("embeddings", "inv_norm", "salience", "mask"), map(repeat, memory), strict=True))


class Stream:
    """Calling it with a round's number gives that round's `Queries`, the same for every contender.

    Weight and temperature differ from step to step, so that no compiler can move the terms of salience out of a loop.
    """

    def __init__(self, spec: ArgSpec):
        a, q, _, d = shape(spec)
        t = steps(spec)

        def draw(round: jax.Array) -> Queries:
            keys = jax.random.split(jax.random.fold_in(jax.random.key(1), round), 3)
            return {
                "query": jax.random.normal(keys[0], (t, a, q, d)),
                "weight": jax.random.uniform(keys[1], (t,), minval=0.5, maxval=0.7),
                "temperature": jax.random.uniform(keys[2], (t,), minval=0.2, maxval=0.3),
            }

        self.draw = jax.jit(draw)

    def __call__(self, round: int) -> Queries:
        return self.draw(jnp.int32(round))
