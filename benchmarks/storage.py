"""`storage`: what embeddings in float32, bfloat16 and int8 find, take and cost.

Of a mixture with near neighbours: `recall` is the share of float32's best 10 that is found, `bytes` what a memory takes
(int8 has a scale beside it). Floor: float32's search, exact, by cosine alone. `ratio` is that of one query,
`ratio_shared` of 64 queries at once, and `step_ratio` of a whole step of agents to that of float32. int8 is searched
exactly, by the coarse order alone, and in two stages (`oversample` of `fused_topk`).

With `--data locomo` memories are what people said: `recall` is over the turns of all dialogues, and `score` the share
of the turns that answer a question among the best 10 of its dialogue, mean over dialogues (`low`, `high`: worst and
best of them). No times: so few vectors lie in a cache.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import kernel_works
from benchmarks.locomo import Dialogue
from benchmarks.mixture import queries_near, vectors
from benchmarks.output import Record, progress
from benchmarks.streams import Stream, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import ReadLoop, ScanLoop, Timing, race
from dmem_jax.config import StoreDtype
from dmem_jax.encoders import Encoder
from dmem_jax.storage import as_stored
from dmem_kernels.fused_topk import TopK, fused_topk

TOP_K = 10
SHARED = 64
STEP = Work(agents=256, slots=512, dim=128)
SEARCHES: dict[str, tuple[StoreDtype, int | None]] = {
    "float32": ("float32", None),
    "bfloat16": ("bfloat16", None),
    "int8": ("int8", None),
    "int8, coarse": ("int8", 1),  # as many candidates as are wanted: their exact scores change nothing
    "int8, two stages": ("int8", 4),
}

Memory = dict[str, Any]  # as `as_stored` makes it of all memories


class Search:
    """The best of a memory, by cosine alone."""

    def __init__(self, memory: Memory, oversample: int | None):
        self.memory, self.oversample = memory, oversample

    def read(self, memory: Memory, queries: jax.Array) -> TopK:
        """For queries [D] or [Q, D]."""
        n = len(memory["embedding"])
        nothing, all_of_it = jnp.zeros(n), jnp.ones(n, bool)
        rows = memory["embedding"], memory["inv_norm"], nothing, all_of_it
        return fused_topk(queries, *rows, k=min(TOP_K, n), weight=1.0, fusion="plain", oversample=self.oversample)

    def find(self, queries: jax.Array) -> jax.Array:
        return jax.jit(self.read)(self.memory, queries).indices


def run(memories: int, dim: int, queries: int, repeats: int) -> Iterator[Record]:
    embedding = vectors("mixture", memories, dim)
    near = queries_near(embedding, queries)
    searches = searches_of(embedding)
    recalls = recalls_of(searches, near)
    progress(f"storage: recall {recalls}")
    alone, shared = (timed(searches, memories, dim, at_once, repeats) for at_once in (1, SHARED))
    steps = timed_steps(repeats)
    for name, search in searches.items():
        record = {
            "benchmark": "storage",
            "implementation": name,
            "work": {"memories": memories, "dim": dim, "queries": queries, "top_k": TOP_K},
            "recall": recalls[name],
            "bytes": bytes_of_one(search.memory),
            **alone[name].record(),
            "ratio_shared": shared[name].record()["ratio"],
        }
        yield record | ({"step_ratio": steps[name].record()["ratio"]} if name in steps else {})


def run_on_dialogues(dialogues: Sequence[Dialogue], encoder: Encoder) -> Iterator[Record]:
    turns, questions = ([encoder(getattr(dialogue, part)) for dialogue in dialogues] for part in ("turns", "questions"))
    searches = searches_of(jnp.asarray(np.concatenate(turns)))
    asked = jnp.asarray(np.concatenate(questions))
    recalls = recalls_of(searches, asked)
    alone = [searches_of(jnp.asarray(vectors)) for vectors in turns]
    for name, search in searches.items():
        scores = [
            share_answered(np.asarray(own[name].find(jnp.asarray(vectors))), dialogue.evidence)
            for own, vectors, dialogue in zip(alone, questions, dialogues, strict=True)
        ]
        yield {
            "benchmark": "storage",
            "implementation": name,
            "work": {"data": "locomo", "encoder": encoder.name, "memories": sum(map(len, turns)), "dim": encoder.dim,
                     "queries": len(asked), "top_k": TOP_K},
            "recall": recalls[name],
            "bytes": bytes_of_one(search.memory),
            "score": float(np.mean(scores)),
            "low": min(scores),
            "high": max(scores),
        }  # fmt: skip


def searches_of(embedding: jax.Array) -> dict[str, Search]:
    stored = {dtype: as_stored(dtype, embedding) for dtype in ("float32", "bfloat16", "int8")}
    return {name: Search(stored[dtype], oversample) for name, (dtype, oversample) in SEARCHES.items()}


def recalls_of(searches: dict[str, Search], queries: jax.Array) -> dict[str, float]:
    """Of float32's best, the share that each finds."""
    wanted = searches["float32"].find(queries)
    return {name: share_found(search.find(queries), wanted) for name, search in searches.items()}


def share_answered(found: np.ndarray, evidence: list[list[int]]) -> float:
    """Of each question's turns the share that is found [questions, TOP_K], mean over questions."""
    return float(np.mean([np.isin(turns, best).mean() for best, turns in zip(found, evidence, strict=True)]))


def bytes_of_one(memory: Memory) -> int:
    """Of its embedding, and of its scale if it has one."""
    return sum(x[0].nbytes for x in (memory["embedding"], memory["scale"]) if x is not None)


def share_found(found: jax.Array, wanted: jax.Array) -> float:
    return float(jnp.mean(jnp.any(found[:, :, None] == wanted[:, None, :], axis=1)))


def timed(searches: dict[str, Search], memories: int, dim: int, at_once: int, repeats: int) -> dict[str, Timing]:
    shape = (dim,) if at_once == 1 else (at_once, dim)
    steps = kernel_works.steps(kernel_works.work(1, at_once, memories, dim, TOP_K, "plain"))
    draw = jax.jit(lambda round: jax.random.normal(jax.random.fold_in(jax.random.key(4), round), (steps, *shape)))

    def loop(search: Search) -> ReadLoop:
        return ReadLoop(search.read, search.memory, lambda round: draw(jnp.int32(round)))

    return race(loop(searches["float32"]), {name: loop(search) for name, search in searches.items()}, repeats)


def timed_steps(repeats: int) -> dict[str, Timing]:
    rows = full_rows(STEP)
    stream = Stream(STEP, rows)

    def loop(dtype: StoreDtype) -> ScanLoop:
        subject = Subject(STEP, store_dtype=dtype)
        return ScanLoop(subject.step, subject.full_memory(rows), subject.stream(stream))

    return race(loop("float32"), {dtype: loop(dtype) for dtype in ("float32", "bfloat16", "int8")}, repeats)
