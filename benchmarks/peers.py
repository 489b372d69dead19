"""What others would write: plain JAX, flashbax, batched NumPy, and one faiss or hnswlib index per agent.

Each peer is a class made from the work and the full rows, with `step(stretch)` and `recall(stretch)` giving contenders.
All hold the same embeddings and payload, write one row and bring back the payload of `top_k` rows per agent and step.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.streams import Stream, Stretch, Work
from benchmarks.timing import Contender, HostLoop, ScanLoop

ROW = ("embedding", "features", "action")
INDEX_BYTES = 2**27  # index-per-agent loops run as many agents as hold this much, beyond any cache


def copy_of(rows: dict[str, Any], *names: str) -> dict[str, jax.Array]:
    """Rows of one's own: contenders donate what they hold."""
    return {name: jnp.array(rows[name], copy=True) for name in names or rows}


def one_pass(rows: dict[str, jax.Array], stream: Stream) -> ScanLoop:
    """The floor of `step` and `recall`: reads every embedding once, by the einsum that runs at memory bandwidth."""

    def body(embedding, x: Stretch):
        return embedding, jnp.einsum("and,ad->an", embedding, x.query).max(-1)

    return ScanLoop(body, jnp.array(rows["embedding"], copy=True), stream)


class PlainJax:
    """Ring write, einsum, `lax.top_k`, gather of the payload."""

    def __init__(self, work: Work, rows: dict[str, jax.Array]):
        self.work, self.carry = work, (jnp.int32(0), copy_of(rows, *ROW))

    def read(self, rows: dict[str, jax.Array], query: jax.Array):
        scores = jnp.einsum("and,ad->an", rows["embedding"], query)
        score, slot = jax.lax.top_k(scores, min(self.work.top_k, self.work.slots))
        agent = jnp.arange(self.work.agents)[:, None]
        return score, slot, rows["features"][agent, slot], rows["action"][agent, slot]

    def step(self, stream: Stream) -> Contender:
        def body(carry, x: Stretch):
            i, rows = carry
            # Write first: read, then write, would copy the whole carried buffer on XLA:CPU.
            rows = {name: rows[name].at[:, i].set(x.experience[name]) for name in ROW}
            return ((i + 1) % self.work.slots, rows), self.read(rows, x.query)

        return ScanLoop(body, self.carry, stream)

    def recall(self, stream: Stream) -> Contender:
        return ScanLoop(lambda carry, x: (carry, self.read(carry[1], x.query)), self.carry, stream)


class Flashbax:
    """A trajectory buffer of the same bytes: a uniform sample takes the place of the search, nothing is scored."""

    add_first: bool

    def __init__(self, work: Work, rows: dict[str, jax.Array]):
        import flashbax

        self.buffer = flashbax.make_trajectory_buffer(
            add_batch_size=work.agents,
            sample_batch_size=work.agents * work.top_k,  # as many rows as a recall of all agents brings back
            sample_sequence_length=1,
            period=1,
            min_length_time_axis=1,
            max_length_time_axis=work.slots,
        )
        rows = copy_of(rows, *ROW)
        state = self.buffer.init({name: row[0, 0] for name, row in rows.items()})
        self.carry = state.replace(experience=rows, is_full=jnp.array(True)), jax.random.key(2)

    def step(self, stream: Stream) -> Contender:
        def body(carry, x: Stretch):
            state, key = carry
            key, sample_key = jax.random.split(key)
            new = {name: x.experience[name][:, None] for name in ROW}
            if self.add_first:
                state = self.buffer.add(state, new)
                return (state, key), self.buffer.sample(state, sample_key).experience
            sample = self.buffer.sample(state, sample_key).experience
            return (self.buffer.add(state, new), key), sample

        return ScanLoop(body, self.carry, stream)


class FlashbaxAddSample(Flashbax):
    add_first = True


class FlashbaxSampleAdd(Flashbax):
    add_first = False


class NumpyBatched:
    """All agents in each NumPy call: ring write, matmul, argpartition, gather."""

    def __init__(self, work: Work, rows: dict[str, jax.Array]):
        self.work, self.i = work, 0
        self.rows = {name: np.array(rows[name]) for name in ROW}
        self.agent = np.arange(work.agents)[:, None]

    def write(self, x: Stretch) -> None:
        for name in ROW:
            self.rows[name][:, self.i] = x.experience[name]
        self.i = (self.i + 1) % self.work.slots

    def read(self, x: Stretch):
        k = min(self.work.top_k, self.work.slots)
        scores = np.matmul(self.rows["embedding"], x.query[:, :, None])[:, :, 0]
        slot = np.argpartition(scores, -k, axis=1)[:, -k:]
        slot = np.take_along_axis(slot, np.argsort(-scores[self.agent, slot], axis=1), axis=1)
        return (scores[self.agent, slot], *(self.rows[name][self.agent, slot] for name in ("features", "action")))

    def step(self, stream: Stream) -> Contender:
        return HostLoop(lambda x: (self.write(x), self.read(x)), stream)

    def recall(self, stream: Stream) -> Contender:
        return HostLoop(self.read, stream)


class IndexPerAgent:
    """One index per agent, visited in a Python loop: replace the oldest row, search, gather the payload.

    Runs as many agents as hold INDEX_BYTES and is scaled up to all; its work says `agents_run`.
    """

    def __init__(self, work: Work, rows: dict[str, jax.Array]):
        self.work = work
        self.agents_run = min(work.agents, max(1, INDEX_BYTES * work.agents // work.nbytes))
        self.rows = {name: np.array(rows[name][: self.agents_run]) for name in ROW}
        self.k = min(work.top_k, work.slots)
        self.i = 0

    def write_one(self, agent: int, slot: int, embedding: np.ndarray) -> None:
        raise NotImplementedError

    def search(self, agent: int, query: np.ndarray) -> np.ndarray:
        """Slots [k] of the nearest."""
        raise NotImplementedError

    def write(self, x: Stretch) -> None:
        for agent in range(self.agents_run):
            self.write_one(agent, self.i, x.experience["embedding"][agent])
            for name in ("features", "action"):
                self.rows[name][agent, self.i] = x.experience[name][agent]
        self.i = (self.i + 1) % self.work.slots

    def read(self, x: Stretch) -> list:
        found = []
        for agent in range(self.agents_run):
            slot = self.search(agent, x.query[agent])
            found.append((slot, self.rows["features"][agent][slot], self.rows["action"][agent][slot]))
        return found

    def step(self, stream: Stream) -> Contender:
        return HostLoop(lambda x: (self.write(x), self.read(x)), stream, self.agents_run / self.work.agents)

    def recall(self, stream: Stream) -> Contender:
        return HostLoop(self.read, stream, self.agents_run / self.work.agents)


class FaissPerAgent(IndexPerAgent):
    """`IndexFlatIP`, the fastest of faiss at these sizes; rows are replaced in the index's own memory, since faiss's
    `remove_ids` moves all that follow."""

    def __init__(self, work: Work, rows: dict[str, jax.Array]):
        import faiss

        super().__init__(work, rows)
        faiss.omp_set_num_threads(1)  # waking a second thread takes longer than one query
        self.indices, self.stored = [], []
        for embedding in self.rows["embedding"]:
            index = faiss.IndexFlatIP(work.dim)
            index.add(embedding)
            self.indices.append(index)
            stored = faiss.rev_swig_ptr(index.get_xb(), work.slots * work.dim)
            self.stored.append(stored.reshape(work.slots, work.dim))

    def write_one(self, agent: int, slot: int, embedding: np.ndarray) -> None:
        self.stored[agent][slot] = embedding

    def search(self, agent: int, query: np.ndarray) -> np.ndarray:
        return self.indices[agent].search(query[None], self.k)[1][0]


class HnswlibPerAgent(IndexPerAgent):
    """hnswlib with its documented way of replacing: mark the oldest as deleted, add into the freed place."""

    def __init__(self, work: Work, rows: dict[str, jax.Array]):
        import hnswlib

        super().__init__(work, rows)
        self.indices = []
        for embedding in self.rows["embedding"]:
            index = hnswlib.Index(space="ip", dim=work.dim)
            index.init_index(
                work.slots,
                M=16,
                ef_construction=64,
                allow_replace_deleted=True,  # pyright: ignore[reportCallIssue]  (its stub is behind its code)
            )
            index.set_ef(max(64, self.k))
            index.add_items(embedding, np.arange(work.slots), num_threads=1)
            self.indices.append(index)

    def write_one(self, agent: int, slot: int, embedding: np.ndarray) -> None:
        self.indices[agent].mark_deleted(slot)
        self.indices[agent].add_items(embedding[None], np.array([slot]), num_threads=1, replace_deleted=True)

    def search(self, agent: int, query: np.ndarray) -> np.ndarray:
        return self.indices[agent].knn_query(query[None], self.k, num_threads=1)[0][0].astype(np.int64)


PEERS: dict[str, tuple[Callable, str | None]] = {
    "plain_jax": (PlainJax, None),
    "flashbax_add_sample": (FlashbaxAddSample, "flashbax"),
    "flashbax_sample_add": (FlashbaxSampleAdd, "flashbax"),
    "numpy_batched": (NumpyBatched, None),
    "faiss_per_agent": (FaissPerAgent, "faiss"),
    "hnswlib_per_agent": (HnswlibPerAgent, "hnswlib"),
}


def make_peers(
    names: list[str], kind: str, work: Work, rows: dict, stream: Stream
) -> tuple[dict[str, Contender], dict[str, dict]]:
    """Contenders of `kind` ("step" or "recall") for the named peers, and what their works say beyond `work`.

    A peer that isn't installed is named on stderr; one that has no such kind (flashbax doesn't recall) is left out.
    """
    contenders, more = {}, {}
    for name in names:
        peer, module = PEERS[name]
        if not hasattr(peer, kind):
            continue
        try:
            if module:
                importlib.import_module(module)
        except ImportError:
            print(f'{name}: {module} is not installed; in the checkout: pip install -e ".[bench]"', file=sys.stderr)
            continue
        made = peer(work, rows)
        contenders[name] = getattr(made, kind)(stream)
        if isinstance(made, IndexPerAgent) and made.agents_run < work.agents:
            more[name] = {"agents_run": made.agents_run}
    return contenders, more
