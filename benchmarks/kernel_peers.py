"""Who else finds the best slots: matmul and `lax.top_k`, `approx_max_k`, faiss, usearch, NumPy.

All but `unfused` find the largest inner products, without salience, mask, norms or softmax: less than `fused_topk`
does. Each is made from the work and its store, and has `find`, which gives the slots [A, Q, k] that a step's queries
find, and `contender`.
"""

import importlib
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernel_works import Queries, Store, Stream, nbytes, shape
from benchmarks.output import progress
from benchmarks.timing import Contender, HostLoop, ReadLoop
from dmem_kernels.fused_topk import fused_topk
from dmem_kernels.fused_topk.api import Implementation
from dmem_kernels.fused_topk.arg_specs import ArgSpec

INDEX_BYTES = 2**27  # peers that visit one agent after another run as many as hold this much, beyond any cache
THREADS = tuple({1, os.cpu_count() or 1})


def dots(equation: str, *factors: jax.Array) -> jax.Array:
    """As one would write them: with all bits of float32, but queries rounded where embeddings are of bfloat16."""
    dtype = min((x.dtype for x in factors), key=lambda dtype: dtype.itemsize)
    narrow = (x.astype(dtype) for x in factors)
    return jnp.einsum(equation, *narrow, precision="highest", preferred_element_type=jnp.float32)


class Fused:
    """`fused_topk`, under `jax.vmap` where there are agents."""

    implementation: Implementation | None = None

    def __init__(self, spec: ArgSpec, store: Store):
        self.spec, self.store = spec, store

    def read(self, store: Store, x: Queries) -> Any:
        """Scores, indices and what else there is, each [A, Q, k]. All of it is to be used, as `lax.top_k` of XLA:CPU
        without its values is a sort."""

        def one(query: jax.Array, store: Store):
            return fused_topk(
                query,
                *(store[name] for name in ("embeddings", "inv_norm", "salience", "mask")),
                k=self.spec.k,
                weight=x["weight"],
                semantic_temperature=x["temperature"],
                salience_temperature=8 * x["temperature"],
                fusion=self.spec.fusion,
                implementation=self.implementation,
            )

        query = x["query"][:, 0] if x["query"].shape[1] == 1 else x["query"]
        if query.shape[0] == 1:
            found = one(query[0], {name: rows[0] for name, rows in store.items()})
        else:
            found = jax.vmap(one)(query, store)
        return jax.tree.map(lambda y: y.reshape(*x["query"].shape[:2], -1), found)

    def find(self, x: Queries) -> jax.Array:
        return jax.jit(self.read)(self.store, x)[1]

    def contender(self, stream: Stream) -> ReadLoop:
        return ReadLoop(self.read, self.store, stream)


class Unfused(Fused):
    """The same formulas, written down as they are: a matrix of all scores, then `lax.top_k`."""

    implementation = "reference"


class ByXla(Fused):
    """The form for XLA, where the platform has a kernel of its own."""

    implementation = "xla"


class MatmulTopK(Fused):
    top_k = staticmethod(jax.lax.top_k)

    def read(self, store: Store, x: Queries) -> Any:
        products = dots("aqd,and->aqn", x["query"], store["embeddings"])
        return self.top_k(products, min(self.spec.k, self.spec.slots))


class ApproxMaxK(MatmulTopK):
    """At the expected recall of .95 that is its default. Off TPU it's exact, and no faster than `lax.top_k`."""

    top_k = staticmethod(jax.lax.approx_max_k)


class Host:
    """Libraries and NumPy, which read the embeddings of the agents they run in NumPy's arrays.

    Of its `settings` each takes the quickest, by a trial: which one that is depends on the work, the release and the
    machine, up to a factor of ten.
    """

    all_at_once = False  # or one agent after another
    settings: tuple[Any, ...] = (None,)

    def __init__(self, spec: ArgSpec, store: Store):
        agents, queries, *_ = shape(spec)
        self.k = min(spec.k, spec.slots)
        self.agents_run = agents if self.all_at_once else min(agents, max(1, INDEX_BYTES * agents // nbytes(spec)))
        self.share = self.agents_run / agents
        self.embeddings = np.asarray(store["embeddings"][: self.agents_run])
        self.prepare()
        query = np.resize(self.embeddings[0], (queries, spec.dim))
        self.setting = min(self.settings, key=lambda setting: self.trial(setting, query))

    def prepare(self) -> None:
        pass

    def use(self, setting: Any) -> None:
        """Before searches."""

    def search(self, agent: int, query: np.ndarray) -> np.ndarray:
        """Slots [Q, k] of the nearest to [Q, D]."""
        raise NotImplementedError

    def trial(self, setting: Any, query: np.ndarray) -> float:
        if len(self.settings) == 1:
            return 0.0
        self.use(setting)
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            self.search(0, query)
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    def find(self, x: Queries) -> np.ndarray:
        query = np.asarray(x["query"])
        self.use(self.setting)
        return np.stack([self.search(agent, query[agent]) for agent in range(self.agents_run)])

    def contender(self, stream: Stream) -> Contender:
        return HostLoop(self.find, stream, self.share)


class FaissFlat(Host):
    """`IndexFlatIP`. Its settings: how many threads, and from how many queries on it multiplies by BLAS."""

    settings = tuple(itertools.product(THREADS, (1, 2**30)))

    def prepare(self) -> None:
        import faiss

        self.faiss, self.indices = faiss, []
        for embeddings in self.embeddings:
            self.indices.append(faiss.IndexFlatIP(embeddings.shape[1]))
            self.indices[-1].add(embeddings)

    def use(self, setting: tuple[int, int]) -> None:
        threads, blas_threshold = setting
        self.faiss.omp_set_num_threads(threads)
        self.faiss.cvar.distance_compute_blas_threshold = blas_threshold

    def search(self, agent: int, query: np.ndarray) -> np.ndarray:
        return self.indices[agent].search(query, self.k)[1]


class UsearchExact(Host):
    """`search(..., exact=True)`. Its setting: how many threads."""

    settings = THREADS

    def prepare(self) -> None:
        from usearch import index

        self.search_exact, self.metric = index.search, index.MetricKind.IP  # pyright: ignore[reportPrivateImportUsage]  (documented so)

    def use(self, setting: int) -> None:
        self.threads = setting

    def search(self, agent: int, query: np.ndarray) -> np.ndarray:
        found = self.search_exact(self.embeddings[agent], query, self.k, self.metric, exact=True, threads=self.threads)
        return found.keys.reshape(len(query), self.k)


class Numpy(Host):
    """All agents in each call: matmul, argpartition, and a sort of the k best."""

    all_at_once = True

    def find(self, x: Queries) -> np.ndarray:
        dots = np.asarray(x["query"]) @ self.embeddings.swapaxes(1, 2)
        slot = np.argpartition(dots, -self.k, axis=-1)[..., -self.k :]
        order = np.argsort(-np.take_along_axis(dots, slot, -1), axis=-1)
        return np.take_along_axis(slot, order, -1)


PEERS: dict[str, tuple[Callable, str | None]] = {
    "unfused": (Unfused, None),
    "matmul_top_k": (MatmulTopK, None),
    "approx_max_k": (ApproxMaxK, None),
    "faiss_flat": (FaissFlat, "faiss"),
    "usearch_exact": (UsearchExact, "usearch"),
    "numpy": (Numpy, None),
}


def make_peers(names: list[str], spec: ArgSpec, store: Store) -> dict[str, Any]:
    """The named peers; one that isn't installed is named on stderr and left out."""
    made = {}
    for name in names:
        peer, module = PEERS[name]
        try:
            if module:
                importlib.import_module(module)
        except ImportError:
            progress(f'{name}: {module} is not installed; in the checkout: pip install -e ".[bench]"')
            continue
        made[name] = peer(spec, store)
    return made
