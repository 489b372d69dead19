"""`MemoryBackend` in a SQLite file, and LangGraph's InMemoryStore, with the same vectors; an encoder's time is in none.

- `get`: the 8 best of all memories. Floor: one NumPy pass over the vectors.
- `add`: an experience with a reward, committed. Floor: the same among 1,000 memories (LangGraph's, its own put there).
"""

import base64
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.output import Record, progress
from benchmarks.timing import HostLoop, race
from dmem_jax.agent import MemoryBackend
from dmem_jax.storage import as_stored

CALLS = 16  # of a round
TOP_K = 8
FEW = 1_000
DEFAULT_PEERS = ["langgraph"]
_WORDS = 12  # of a text
_SLOW_CALLS = 2  # of a round, where each takes seconds


class Vectors:
    """The "encoder": texts are "vector 17 and some words", and its vector has been made before."""

    name = "vectors of the benchmark"

    def __init__(self, vectors: np.ndarray):
        self.vectors = vectors
        self.dim = vectors.shape[1]

    def __call__(self, texts: Any) -> np.ndarray:
        return self.vectors[[int(text.split()[1]) for text in texts]]


class Texts:
    """Texts of Zipf's words, and unit vectors around as many centres as there are hundreds of them."""

    def __init__(self, memories: int, dim: int):
        rng = np.random.default_rng(0)
        n = memories + FEW + 64 * CALLS
        centres = rng.standard_normal((max(1, memories // 100), dim), np.float32)
        vectors = centres[rng.integers(len(centres), size=n)] + rng.standard_normal((n, dim), np.float32)
        self.encoder = Vectors(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        share = 1 / np.arange(1, 20_001)
        words = rng.choice(20_000, (n, _WORDS), p=share / share.sum())
        self.texts = [f"vector {i} " + " ".join(f"word{word}" for word in row) for i, row in enumerate(words)]
        self.memories = memories

    def round(self, number: int) -> np.ndarray:
        """Texts [CALLS] that are not stored."""
        first = self.memories + FEW + number % 64 * CALLS
        return np.arange(first, first + CALLS)


def backend(texts: Texts, memories: int, folder: Path, **options: Any) -> MemoryBackend:
    """With room for `memories` and what a run adds, and so many in it."""
    made = MemoryBackend(
        folder / f"{memories}.db", encoder=texts.encoder, capacity=(256, memories + 64 * CALLS), **options
    )
    made.add_memory(texts.texts[-1], rpe=1.0, namespace="other")
    made.restore(_lines(texts, memories, next(made.export("other"))))
    return made


def run(memories: int, dim: int, peers: list[str], repeats: int) -> Iterator[Record]:
    texts = Texts(memories, dim)
    vectors = texts.encoder.vectors[:memories]
    with tempfile.TemporaryDirectory() as folder:
        progress(f"backend: fills {memories} memories")
        ours = backend(texts, memories, Path(folder))
        semantic = backend(texts, memories, Path(folder) / _made(folder, "semantic"), keyword_weight=0.0)
        few = backend(texts, FEW, Path(folder) / _made(folder, "few"))

        def get(of: MemoryBackend) -> HostLoop:
            return HostLoop(lambda i: of.get_relevant_memories(texts.texts[i], TOP_K), texts.round)

        def add(of: MemoryBackend) -> HostLoop:
            return HostLoop(lambda i: of.add_memory(texts.texts[i], reward=float(i % 7)), texts.round)

        one_pass = HostLoop(lambda i: vectors @ texts.encoder.vectors[i], texts.round)
        getters = {"dmem_jax": get(ours), "dmem_jax_semantic": get(semantic)}
        adders, floors = {"dmem_jax": add(ours)}, {"dmem_jax": add(few)}
        if "langgraph" in peers:
            progress(f"backend: fills LangGraph's store with {memories}")
            theirs, their_few = _langgraph(texts, memories), _langgraph(texts, FEW)
            getters["langgraph"] = HostLoop(
                lambda i: theirs.search(("user",), query=texts.texts[i], limit=TOP_K),
                lambda number: texts.round(number)[:_SLOW_CALLS],
            )
            adders["langgraph"], floors["langgraph"] = (
                HostLoop(lambda i, to=to: to.put(("user",), f"new {i}", {"text": texts.texts[i]}), texts.round)
                for to in (theirs, their_few)
            )
        work = {"memories": memories, "dim": dim, "top_k": TOP_K}
        for name, timing in race(one_pass, getters, repeats).items():
            yield {"benchmark": "backend", "implementation": name, "work": work | {"what": "get"}, **timing.record()}
        for name, adder in adders.items():
            timing = race(floors[name], {name: adder}, repeats)[name]
            yield {"benchmark": "backend", "implementation": name, "work": work | {"what": "add"}, **timing.record()}
        for made in (ours, semantic, few):
            made.close()


def _made(folder: str, name: str) -> str:
    (Path(folder) / name).mkdir()
    return name


def _lines(texts: Texts, memories: int, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rows = jax.device_get(as_stored("float32", jnp.asarray(texts.encoder.vectors[:memories])))
    same: dict[str, Any] = {
        "action": None, "next_observation": None, "rewarded": True, "metadata": {}, "tier": "buffer", "value": 0.0,
        "written_strength": 1.0, "task": 0, "time": 0, "touched": 0, "recalls": 0, "successes": 0, "count": 1,
        "contradicted": False, "scale": None,
    }  # fmt: skip
    yield header | {"state": _with_next_id(header["state"], memories)}
    for i in range(memories):
        surprise = 1.0 + i % 13 / 13
        yield same | {
            "id": i, "slot": i, "observation": texts.texts[i], "created": i, "updated": i,
            "inv_norm": float(rows["inv_norm"][i]), "rpe": surprise, "reward": surprise, "strength": surprise,
            "embedding": base64.b64encode(rows["embedding"][i].tobytes()).decode(),
        }  # fmt: skip


def _with_next_id(state: str, next_id: int) -> str:
    with np.load(io.BytesIO(base64.b64decode(state))) as arrays:
        held: dict[str, Any] = dict(arrays)
    held["['memory']['next_id']"] = np.int32(next_id)
    file = io.BytesIO()
    np.savez(file, **held)
    return base64.b64encode(file.getvalue()).decode()


def _langgraph(texts: Texts, memories: int) -> Any:
    from langgraph.store.memory import InMemoryStore

    def embed(given: list[str]) -> list[list[float]]:
        return texts.encoder(given).tolist()

    index: Any = {"dims": texts.encoder.dim, "embed": embed, "fields": ["text"]}
    store = InMemoryStore(index=index)
    for i in range(memories):
        store.put(("user",), str(i), {"text": texts.texts[i]})
    return store
