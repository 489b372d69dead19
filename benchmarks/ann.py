"""`ann`: recall through an hnswlib index, against hnswlib as it comes, faiss's HNSW and usearch.

Several queries at once, by all threads. `work` says what is asked: with `weight` 1 recall is by meaning alone, and the
answers are those of the others; at its default it is by salience too, and the answer set is dmem_jax's own. `score` is
the share of the exact top 10 that is found. After the curves over ef (`what` "curve") each has the least ef at which
that share is .95 ("at .95", with `ratio_to_hnswlib`, whole recalls over raw searches); then filters that keep a half
and a twenty-fifth; then to build, to insert, to replace and to delete, times of one memory. Floor: exact search by
NumPy; of building and changing: hnswlib's.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem
from benchmarks.ann_peers import installed
from benchmarks.clusters import full_memory
from benchmarks.mixture import queries_near, vectors
from benchmarks.output import Record, progress
from benchmarks.timing import Contender, Timing, race
from dmem_jax import ann

TOP_K = 10
WANTED = 0.95
SCORED = 500  # queries of which the share found is told
EXACT = 32  # queries of the floor
GREATEST_EF = 1024
CHANGED = 0.002  # of the memories, in one round of inserting, replacing or deleting

Search = Callable[[np.ndarray, int], np.ndarray]  # queries, ef -> slots [Q, k]


class Ours:
    """The memory, its index, and recalls by some params, of some task."""

    def __init__(self, embedding: jax.Array):
        config, memory = full_memory(embedding)
        self.config, self.memory = dataclasses.replace(config, top_k=TOP_K), memory
        self.index = ann.Index(self.config)
        self.made: dict[tuple[int, int, int | None], dmem.Query] = {}

    def asked(self, queries: np.ndarray, task: int | None) -> dmem.Query:
        """Made once: they are what is given, and no part of the search."""
        key = (id(queries.base if queries.base is not None else queries), len(queries), task)
        if key not in self.made:
            self.made[key] = jax.tree.map(np.asarray, dmem.query(self.config, queries, task=task))
        return self.made[key]

    def params(self, weight: float) -> dmem.Params:
        return dmem.Params.default(self.config, semantic_weight=weight)

    def search(self, weight: float, task: int | None, candidates: int | None) -> Search:
        params = self.params(weight)

        def run(queries: np.ndarray, ef: int) -> np.ndarray:
            self.index.ef = ef
            query = self.asked(queries, task)
            found = ann.recall(self.config, params, self.memory, self.index, query, candidates=candidates)
            return np.asarray(jax.block_until_ready(found).slot)

        return run

    def exact(self, weight: float, task: int | None, queries: np.ndarray) -> np.ndarray:
        """Slots [Q, k]."""

        def run(memory: dmem.Memory, query: dmem.Query) -> jax.Array:
            return jax.lax.map(lambda query: dmem.recall(self.config, self.params(weight), memory, query).slot, query)

        return np.asarray(jax.jit(run)(self.memory, self.asked(queries, task)))


def run(memories: int, dim: int, data: str, queries: int, efs: list[int], repeats: int) -> Iterator[Record]:
    about = {"memories": memories, "dim": dim, "data": data, "queries": queries, "top_k": TOP_K}
    progress(f"ann: {about}")
    room = memories + 2 * (repeats + 1) * max(1, round(CHANGED * memories))
    made = vectors(data, room + queries, dim)
    embedding, more = made[:memories], np.asarray(made[memories:room])
    near = np.asarray(queries_near(embedding, queries) if data == "mixture" else made[room:])
    ours, host = Ours(embedding), np.asarray(embedding)
    peers, built = {}, {}
    for name, peer in installed().items():
        progress(f"ann: {name} is built")
        peers[name], built[name] = _timed(lambda peer=peer: peer(host, room))
    progress("ann: dmem_jax is built")
    _, built["dmem_jax"] = _timed(lambda: ours.index.sync(ours.memory))
    sizes = {name: peer.nbytes() for name, peer in peers.items()}
    sizes["dmem_jax"] = int(ours.index.summary()["ann/bytes"])
    for name, seconds in built.items():
        yield _record(name, about | {"what": "build"}, seconds / memories, built.get("hnswlib", seconds) / memories) | {
            "bytes": sizes[name]
        }

    floor = _exact(host, near[:EXACT])
    task = (np.random.default_rng(5).random(memories) < 0.5).astype(np.int32)
    rare = np.where(np.random.default_rng(6).random(memories) < 0.04, 2, 3).astype(np.int32)
    settings = [
        ("none", None, None, [(1.0, TOP_K), (0.5, None)]),
        ("half", task, 1, [(1.0, TOP_K)]),
        ("a twenty-fifth", rare, 2, [(1.0, TOP_K)]),
    ]
    for kept_by, tasks, task_asked, kinds in settings:
        if tasks is not None:
            buffer = dataclasses.replace(ours.memory.buffer, task=jnp.asarray(tasks))
            ours.memory = dataclasses.replace(ours.memory, buffer=buffer)
        kept = None if tasks is None else tasks == task_asked
        searches: dict[tuple[str, float], tuple[Search, np.ndarray]] = {}
        progress(f"ann: exact recall, filter: {kept_by}")
        for weight, candidates in kinds:
            exact = ours.exact(weight, task_asked, near[:SCORED])
            searches["dmem_jax", weight] = ours.search(weight, task_asked, candidates), exact
            for name, peer in peers.items() if weight == 1 else ():
                if kept is None:
                    searches[name, weight] = (lambda q, ef, peer=peer: peer.search(q, TOP_K, ef)), exact
        if kept is not None and "faiss_hnsw" in peers:
            faiss, (_, exact) = peers["faiss_hnsw"], searches["dmem_jax", 1.0]
            searches["faiss_hnsw", 1.0] = (lambda q, ef: faiss.search(q, TOP_K, ef, kept)), exact  # noqa: B023
        if kept is not None and "hnswlib" in peers:  # without the filter, for that is what the others are measured at
            raw = peers["hnswlib"]
            of_all = ours.exact(1.0, None, near[:SCORED])
            searches["hnswlib", 1.0] = (lambda q, ef: raw.search(q, TOP_K, ef)), of_all  # noqa: B023
        work = about | {"filter": kept_by}
        if kept is None:
            yield from _curve(searches, near, efs, floor, work, repeats)
        yield from _at_wanted(searches, near, floor, work, repeats)
    yield from _alone(ours, peers, near, floor, about, repeats)
    if "hnswlib" in peers:
        yield from _changes(ours, peers, host, more, about, repeats)


def _curve(
    searches: dict, near: np.ndarray, efs: list[int], floor: Contender, work: dict, repeats: int
) -> Iterator[Record]:
    contenders, scores = {}, {}
    for (name, weight), (search, exact) in searches.items():
        for ef in efs:
            scores[name, weight, ef] = _share(search(near[:SCORED], ef), exact)
            contenders[name, weight, ef] = _contender(search, near, ef)
    progress(f"ann: {len(contenders)} points of the curves, {repeats} times")
    for (name, weight, ef), timing in race(floor, contenders, repeats).items():
        said = work | {"what": "curve", "weight": weight, "ef": ef}
        yield {"benchmark": "ann", "implementation": name, "work": said, **timing.record()} | {
            "score": scores[name, weight, ef]
        }


def _at_wanted(searches: dict, near: np.ndarray, floor: Contender, work: dict, repeats: int) -> Iterator[Record]:
    """Each at the least ef that finds `WANTED`, all in one race."""
    chosen = {}
    for key, (search, exact) in searches.items():
        chosen[key] = _least_ef(search, near[:SCORED], exact)
        progress(f"ann: {key} finds {chosen[key][1]:.3f} at ef {chosen[key][0]}")
    contenders = {key: _contender(searches[key][0], near, ef) for key, (ef, _) in chosen.items()}
    timings: dict[Any, Timing] = dict(race(floor, contenders, repeats))
    raw = timings.get(("hnswlib", 1.0))
    for (name, weight), timing in timings.items():
        ef, score = chosen[name, weight]
        said = work | {"what": f"at {WANTED}", "weight": weight, "ef": ef}
        record = {"benchmark": "ann", "implementation": name, "work": said, **timing.record(), "score": score}
        yield record | ({"ratio_to_hnswlib": timing.ratio_to(raw)} if raw else {})


def _alone(ours: Ours, peers: dict, near: np.ndarray, floor: Contender, about: dict, repeats: int) -> Iterator[Record]:
    """One query at a time."""
    params, some = ours.params(0.5), [jax.tree.map(lambda x, i=i: x[i], ours.asked(near, None)) for i in range(EXACT)]
    inside = jax.jit(ann.recall)

    def each(one: Callable[[int], Any]) -> Contender:
        return lambda round: _timed(lambda: [jax.block_until_ready(one(i)) for i in range(EXACT)])[1] / EXACT

    state = (ours.config, params, ours.memory, ours.index)
    ours.index.ef = 64
    contenders = {
        "dmem_jax": each(lambda i: ann.recall(*state, some[i])),
        "dmem_jax_jitted": each(lambda i: inside(*state, some[i])),
        "dmem_jax_exact": each(lambda i: exact(ours.config, params, ours.memory, some[i])),
    }
    exact = jax.jit(dmem.recall)
    if "hnswlib" in peers:
        contenders["hnswlib"] = each(lambda i: peers["hnswlib"].search(near[i : i + 1], TOP_K, 64))
    for name, timing in race(floor, contenders, repeats).items():
        said = about | {"what": "one at a time", "queries": 1, "ef": 64}
        yield {"benchmark": "ann", "implementation": name, "work": said, **timing.record()}


def _changes(
    ours: Ours, peers: dict, host: np.ndarray, more: np.ndarray, about: dict, repeats: int
) -> Iterator[Record]:
    """Some memories more, some others in their place, some fewer; by turns, round after round."""
    memories, some = len(host), max(1, round(CHANGED * len(host)))
    _, grown = ann.grow(ours.config, ours.memory, memories + len(more))
    held = {"memory": grown}
    ours.index.sync(grown)

    def put(slots: np.ndarray, vectors: np.ndarray | None) -> None:
        """The memory changes first: that is not the index's work."""
        buffer = held["memory"].buffer
        ids = jnp.full(len(slots), -1, jnp.int32)
        if vectors is not None:
            ids = jnp.asarray(slots + 10 * buffer.id.size, jnp.int32)
            buffer = dataclasses.replace(
                buffer,
                embedding=buffer.embedding.at[slots].set(vectors),
                inv_norm=buffer.inv_norm.at[slots].set(1 / np.linalg.norm(vectors, axis=1)),
            )
        buffer = dataclasses.replace(buffer, id=buffer.id.at[slots].set(ids))
        held["memory"] = jax.block_until_ready(dataclasses.replace(held["memory"], buffer=buffer))

    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(repeats):
        fresh = slice(turn * some, (turn + 1) * some)
        other = slice((repeats + turn) * some, (repeats + turn + 1) * some)
        new, old = np.arange(memories, memories + len(more))[fresh], np.arange(turn * some, (turn + 1) * some)
        for what, slots, rows in (("insert", new, more[fresh]), ("replace", old, more[other]), ("delete", old, None)):
            put(slots, rows)
            _, seconds = _timed(lambda: ours.index.sync(held["memory"]))
            times.setdefault((what, "dmem_jax"), []).append(seconds / some)
            for name, peer in peers.items():
                if hasattr(peer, what):
                    given = (slots,) if rows is None else (rows, slots)
                    _, seconds = _timed(lambda peer=peer, what=what, given=given: getattr(peer, what)(*given))
                    times.setdefault((what, name), []).append(seconds / some)
    for (what, name), seconds in times.items():
        timing = Timing(tuple(seconds), tuple(times[what, "hnswlib"]))
        said = about | {"what": what, "memories_changed": some}
        yield {"benchmark": "ann", "implementation": name, "work": said, **timing.record()}


def _least_ef(search: Search, queries: np.ndarray, exact: np.ndarray) -> tuple[int, float]:
    """The least ef, from the top k on, that finds `WANTED`, and what it finds; the greatest where none does."""
    low, high = TOP_K, GREATEST_EF
    while low < high:
        middle = (low + high) // 2 if low > TOP_K or high < GREATEST_EF else 4 * TOP_K  # most need few
        if _share(search(queries, middle), exact) >= WANTED:
            high = middle
        else:
            low = middle + 1
    return high, _share(search(queries, high), exact)


def _contender(search: Search, queries: np.ndarray, ef: int) -> Contender:
    return lambda round: _timed(lambda: search(queries, ef))[1] / len(queries)


def _exact(host: np.ndarray, queries: np.ndarray) -> Contender:
    """By NumPy: products, and a partition. Norms are left out."""

    def search() -> None:
        np.argpartition(queries @ host.T, -TOP_K, axis=1)

    return lambda round: _timed(search)[1] / len(queries)


def _share(found: np.ndarray, exact: np.ndarray) -> float:
    return float((found[:, :, None] == exact[:, None, :]).any(axis=1).mean())


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def _record(name: str, work: dict, seconds: float, floor: float) -> Record:
    timing = Timing((seconds,), (floor,))
    return {"benchmark": "ann", "implementation": name, "work": work, **timing.record()}
