"""`clusters`: recall pruned to the nearest clusters against exact recall, in time and in what it finds.

On two kinds of data, since they differ: a mixture of 4,096 centres, as embeddings of real things cluster, and iid
Gaussian vectors, which have no clusters. Floor: exact recall of the same query. `score` is the share
of the exact top k that is found.
"""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp

import dmem_jax as dmem
from benchmarks.mixture import queries_near, vectors
from benchmarks.output import Record, progress
from benchmarks.timing import ScanLoop, race
from dmem_jax import clusters

QUERIES = 256
"""For the share found; times are of some at a time."""


def full_memory(embedding: jax.Array) -> tuple[dmem.Config, dmem.Memory]:
    memories, dim = embedding.shape
    config = dmem.Config(embedding_dim=dim, core_capacity=64, buffer_capacity=memories, duplicates="off")
    memory = dmem.init(config)
    rpe = 0.1 + jax.random.uniform(jax.random.key(1), (memories,))
    buffer = dataclasses.replace(
        memory.buffer,
        embedding=embedding,
        inv_norm=1 / jnp.linalg.norm(embedding, axis=-1),
        rpe=rpe,
        strength=rpe + 0,
        written_strength=rpe + 0,
        count=jnp.ones(memories, jnp.int32),
        id=jnp.arange(memories, dtype=jnp.int32),
    )
    return config, dataclasses.replace(memory, buffer=buffer, clock=jnp.int32(1), next_id=jnp.int32(memories))


def run(memories: int, dim: int, count: int, probes: list[int], repeats: int) -> Iterator[Record]:
    for kind in ("mixture", "iid"):
        embedding = vectors(kind, memories, dim)
        config, memory = full_memory(embedding)
        params = dmem.Params.default(config)
        queries = queries_near(embedding, QUERIES)
        progress(f"clusters: {kind}, k-means of {memories} x {dim} into {count}")
        fit = jax.jit(lambda memory, key: clusters.fit(config, memory, key, count=count))  # noqa: B023
        found = jax.block_until_ready(fit(memory, jax.random.key(4)))

        def stream(round: int, queries: jax.Array = queries) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(queries, 16 * round % QUERIES, 16)

        def exact(carry, query, config=config, params=params):
            return carry, dmem.recall(config, params, carry[0], query).id

        def own(memory: dmem.Memory = memory, found: clusters.Clusters = found):
            return jax.tree.map(jnp.copy, (memory, found))  # each donates what it holds

        floor = ScanLoop(exact, own(), stream)
        contenders = {}
        for n in probes:

            def pruned(carry, query, n=n, config=config, params=params):
                memory, found = carry
                return carry, clusters.recall(config, params, memory, found, query, probes=n).id

            contenders[f"{n} probes"] = ScanLoop(pruned, own(), stream)
        timings = race(floor, contenders, repeats)
        for n in probes:
            measure = jax.jit(clusters.measured_recall, static_argnames=("probes", "salient"))
            share = float(measure(config, params, memory, found, queries, probes=n))
            work = {"memories": memories, "dim": dim, "clusters": count, "probes": n, "data": kind}
            yield {
                "benchmark": "clusters",
                "implementation": "dmem_jax",
                "work": work | {"metric": "recall@8"},
                **timings[f"{n} probes"].record(),
                "score": share,
            }
