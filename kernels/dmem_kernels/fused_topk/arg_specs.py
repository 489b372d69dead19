"""The argument shapes that matter, once: small ones for tests, the ones of real work for a benchmark."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dmem_kernels.storage import encode


@dataclass(frozen=True)
class ArgSpec:
    """One call of `fused_topk`, or one `vmap` of it over `agents`, each with a memory and one query of its own."""

    name: str
    slots: int
    dim: int
    k: int
    queries: int | None = None  # None: a query [D]
    agents: int | None = None
    fusion: str = "softmax"
    dtype: str = "float32"
    salience_per_query: bool = False
    mask_per_query: bool = False
    live: float = 0.75  # the share of slots that the mask admits


TESTED = [
    ArgSpec("one slot, more wanted", slots=1, dim=8, k=3, queries=2),
    ArgSpec("one query by groups", slots=2500, dim=8, k=5, fusion="plain"),
    ArgSpec("several tiles", slots=1300, dim=16, k=5, queries=3),
    ArgSpec("several blocks", slots=40, dim=8, k=3, queries=150, salience_per_query=True, mask_per_query=True),
    ArgSpec("bfloat16", slots=136, dim=64, k=4, queries=2, dtype="bfloat16"),
    ArgSpec("int8", slots=136, dim=64, k=4, queries=2, dtype="int8"),
    ArgSpec("int8 agents", slots=24, dim=8, k=3, agents=5, dtype="int8", fusion="plain"),
    ArgSpec("for every kernel", slots=136, dim=32, k=4, queries=2, mask_per_query=True, fusion="plain"),
    ArgSpec("agents", slots=24, dim=8, k=3, agents=5),
]

BENCHMARKED = [
    ArgSpec("shared", slots=100_000, dim=384, k=10, queries=64, fusion="plain"),
    ArgSpec("shared", slots=100_000, dim=384, k=10, queries=64),
    ArgSpec("one query", slots=1_000_000, dim=128, k=10),
    ArgSpec("agents", slots=512, dim=128, k=8, agents=1024),
    ArgSpec("many", slots=1_000_000, dim=128, k=10, queries=1024),
]


def arguments(spec: ArgSpec, seed: int = 0, integers: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `fused_topk` takes, positional and by name, all but `implementation`.

    With `integers` every product and sum of a plain score is exact in float32: embeddings and saliences are small
    integers, queries are +-1 in four places and so of norm 2, and inverse norms, of no embedding's, powers of two.
    Many scores are then equal.
    """
    random = np.random.default_rng(seed)
    agents = () if spec.agents is None else (spec.agents,)
    queries = () if spec.queries is None else (spec.queries,)
    per_query = {True: (*agents, *queries, spec.slots), False: (*agents, spec.slots)}
    mask = random.uniform(size=per_query[spec.mask_per_query]) < spec.live
    if integers:
        query = np.zeros((*agents, *queries, spec.dim))
        query[..., : min(4, spec.dim)] = random.choice([-1, 1], (*agents, *queries, min(4, spec.dim)))
        embeddings = random.integers(-3, 4, (*agents, spec.slots, spec.dim))
        inv_norm = 0.5 ** random.integers(1, 3, (*agents, spec.slots))
        salience = random.integers(0, 4, per_query[spec.salience_per_query])
    else:
        query = random.normal(size=(*agents, *queries, spec.dim))
        embeddings = random.normal(size=(*agents, spec.slots, spec.dim), scale=3.0)
        if spec.dtype == "int8":
            embeddings = np.asarray(encode(jnp.asarray(embeddings, jnp.float32), jnp.int8).values, np.float64)
        inv_norm = 1.0 / np.linalg.norm(embeddings, axis=-1)
        salience = random.exponential(size=per_query[spec.salience_per_query])
    named = {
        "k": spec.k,
        "weight": jnp.float32(0.5 if integers else 0.6),
        "semantic_temperature": jnp.float32(0.25),
        "salience_temperature": jnp.float32(2.0),
        "fusion": spec.fusion,
    }
    floats = [jnp.asarray(x, jnp.float32) for x in (query, embeddings, inv_norm, salience)]
    floats[1] = floats[1].astype(spec.dtype)
    return (*floats, jnp.asarray(mask)), named
