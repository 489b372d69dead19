"""The index: which slots of the buffer lie near a vector.

What searches is NumPy and hnswlib alone: it is called back from inside of jit, where a call of jax may never return.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from dmem_jax import inputs, shards
from dmem_jax.checks import check_memory
from dmem_jax.config import Config
from dmem_jax.conversion import is_concrete
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError
from dmem_jax.types import Memory, Store

_ROWS = 2**16  # whose vectors are copied at once
_LEAST = 1024  # elements that are always made room for, and dead ones that do not matter
_SAMPLE = 256  # vectors that show whether a memory is still the same one
_JITTER = 1e-4  # length of what is added to each vector in the graph


@jax.tree_util.register_static
class Index:
    """An hnswlib graph over the directions of one agent's buffer: label = slot of the buffer.

    A static argument of jit, like `Config`; unlike it, it changes in place. One thread at a time may `sync` it, and
    none may search it meanwhile.
    """

    def __init__(
        self,
        config: Config,
        *,
        M: int = 16,
        ef_construction: int = 200,
        ef: int = 64,
        threads: int | None = None,
    ):
        """An empty one; `sync` fills it.

        Args:
          config: with a buffer.
          M: links of an element in each layer of the graph (twice as many in the lowest), >= 2. More find more in
            many dimensions, and take bytes and time.
          ef_construction: candidates looked at when an element is linked, >= 1.
          ef: candidates looked at in a search, >= 1. More find more, and take longer; settable later, as `index.ef`.
          threads: that build and search; None: as many as the machine has. With 1 the same syncs give the same graph.

        Raises:
          ArgumentTypeError, ArgumentValueError: named. MissingExtraError: hnswlib is not installed.
        """
        inputs.check_config(config)
        shards.whole_only(config, "ann.Index")
        if config.buffer_capacity == 0:
            raise ArgumentValueError("Config.buffer_capacity: expected a buffer to index, got 0 slots.")
        self.dim = config.embedding_dim
        self.M = inputs.positive("M", M)
        if self.M < 2:
            raise ArgumentValueError(f"M: expected at least 2, got {M}.")
        self.ef_construction = inputs.positive("ef_construction", ef_construction)
        self.ef = inputs.positive("ef", ef)
        self.threads = -1 if threads is None else inputs.positive("threads", threads)
        self.measured: float | None = None
        """What `measured_recall` found last, in [0, 1]."""
        self._seen = _Columns.of_nothing(config.buffer_capacity)
        self._digest = np.zeros(config.buffer_capacity, np.uint64)  # of the vector that can be found; 0 where none
        self._linked = np.zeros(config.buffer_capacity, bool)  # where the graph has an element, be it a deleted one
        self._random = np.random.default_rng(0)
        self._graph = self._empty(0)
        self._settle()

    @property
    def capacity(self) -> int:
        """Slots of the buffer that it follows."""
        return self._digest.size

    @property
    def live(self) -> int:
        """Memories that it can find."""
        return self._live

    def summary(self) -> dict[str, Float32[Array, ""]]:
        """Flat scalars for a log.

        ann/live: memories that it can find; ann/deleted: elements that are marked as deleted and wait for a memory in
        their slot; ann/bytes: of its elements; ann/ef; ann/recall: share of what exact recall finds, as last measured
        by `measured_recall`, 0 before that.
        """
        told = {
            "ann/live": self.live,
            "ann/deleted": self._graph.element_count - self.live,
            "ann/bytes": self._graph.index_file_size(),
            "ann/ef": self.ef,
            "ann/recall": 0.0 if self.measured is None else self.measured,
        }
        return {name: jnp.float32(value) for name, value in told.items()}

    def sync(self, memory: Memory) -> int:
        """Follows the buffer of `memory`, whatever became of it since: adds what is new, moves what was merged, deletes
        what is gone. It compares a few numbers of each slot, and touches the vectors of changed ones alone. That a
        memory is another one with the same ids it sees by a sample: better make an index of its own for each.

        Args:
          memory: of one agent, outside of jit; its buffer may have grown.

        Returns:
          How many memories were added, moved or deleted.

        Raises:
          ArgumentTypeError, ArgumentValueError: named.
        """
        buffer = self._checked(memory)
        seen = _Columns.of(buffer)
        more = (0, seen.id.size - self.capacity)
        self._seen = self._seen.grown(seen.id.size)
        self._digest, self._linked = np.pad(self._digest, more), np.pad(self._linked, more)
        live = seen.id >= 0
        suspect = live & self._seen.differ(seen)
        if self._is_of_another_life(buffer, np.where(live & ~suspect, seen.id, -1)):
            suspect = live
        changed, gone = self._moved(buffer, np.flatnonzero(suspect)), np.flatnonzero(~live & (self._digest != 0))
        count = int(np.count_nonzero(live))
        moved, dead = np.count_nonzero(self._linked[changed]), np.count_nonzero(self._linked & ~live)
        if moved > max(count // 4, _LEAST) or dead > max(count, _LEAST):
            # To move an element takes four times as long as to add one; and each search finds its way through the dead.
            self._graph = self._empty(count)
            self._digest[:], self._linked[:] = 0, False
            self._put(buffer, np.flatnonzero(live))
        else:
            self._put(buffer, changed)
            for slot in gone.tolist():
                self._graph.mark_deleted(slot)
            self._digest[gone] = 0
        self._settle()
        self._seen = seen
        return changed.size + gone.size

    def nearest(
        self, directions: np.ndarray, count: int, *, asked: np.ndarray | None = None, at_least: int = 1
    ) -> np.ndarray:
        """Slots of the nearest memories.

        Args:
          directions: [Q, D] float32, of length 1 or 0.
          count: how many, >= 1.
          asked: bool [N], the slots that may be found; None: all.
          at_least: how many must be found of those that may, at most `count`: it looks further for queries that
            found fewer.

        Returns:
          int32 [Q, count], in no order; the capacity where no more were found.
        """
        n, live = self.capacity, self.live
        may = self._held if asked is None else asked & self._held
        kept = int(np.count_nonzero(may))
        found = np.full((len(directions), count), n, np.int32)
        if kept == 0:
            return found
        may, share = np.append(may, False), kept / live
        # As many as are likely to hold `count` that may be found.
        fetch = count if kept == live else math.ceil((count + 1.5 * math.sqrt(count)) / share)
        left = np.arange(len(directions))
        while left.size:
            fetch = min(fetch, live)
            slots = self._query(directions[left], fetch, math.ceil(self.ef / share))
            keep = may[slots]
            rank = np.cumsum(keep, axis=1)
            keep &= rank <= count
            enough = (rank[:, -1] >= min(at_least, kept)) | (fetch == live)
            row, column = np.nonzero(keep & enough[:, None])
            found[left[row], rank[row, column] - 1] = slots[row, column]
            left, fetch = left[~enough], 2 * fetch
        return found

    def _checked(self, memory: Memory) -> Store:
        check_memory(memory)
        store = memory.buffer
        if not is_concrete(store.id):
            raise ArgumentTypeError("memory: expected arrays, got tracers: `sync` is called outside of jit.")
        if store.id.ndim != 1:
            raise ArgumentValueError(f"memory: expected one agent's, got {list(memory.clock.shape)} of them.")
        if store.embedding.shape[-1] != self.dim:
            raise ArgumentValueError(
                f"memory.buffer.embedding: expected [N, {self.dim}], got {list(store.embedding.shape)}."
            )
        if store.id.size < self.capacity:
            raise ArgumentValueError(
                f"memory.buffer: expected at least the {self.capacity} slots that the index follows, "
                f"got {store.id.size}."
            )
        return store

    def _is_of_another_life(self, buffer: Store, known: np.ndarray) -> bool:
        """Whether memories that look known are others: a memory was restored and has gone on differently since, with
        the same ids. The one that was written last then differs, or some of a sample."""
        slots = np.flatnonzero(known >= 0)
        if slots.size == 0:
            return False
        some = np.unique(np.append(self._random.choice(slots, min(_SAMPLE, slots.size)), np.argmax(known)))
        return bool((_digests(_directions(buffer, some)) != self._digest[some]).any())

    def _settle(self) -> None:
        """Which slots can be found, after the digests have changed."""
        self._held = self._digest != 0
        self._live = int(np.count_nonzero(self._held))

    def _moved(self, buffer: Store, slots: np.ndarray) -> np.ndarray:
        """Those of `slots` whose vector is not the one in the graph: a refreshed memory lies where it lay."""
        pieces = np.split(slots, range(_ROWS, slots.size, _ROWS))
        return np.concatenate([some[_digests(_directions(buffer, some)) != self._digest[some]] for some in pieces])

    def _put(self, buffer: Store, slots: np.ndarray) -> None:
        """The vectors that the buffer has at `slots` into the graph.

        Also where one was or has been deleted: its element takes the new vector, so there is never more than one
        element a slot. hnswlib's own replacing of deleted elements would lose labels that come back.
        """
        for some in np.split(slots, range(_ROWS, slots.size, _ROWS)):
            if some.size:
                vectors = _directions(buffer, some)
                self._make_room(some)
                self._linked[some] = True
                self._graph.add_items(self._apart(vectors), some, num_threads=self.threads)
                self._digest[some] = _digests(vectors)

    def _apart(self, vectors: np.ndarray) -> np.ndarray:
        """Moved by next to nothing, but no two alike: equal vectors link to each other alone, and what lies behind
        them is not found any more (.29 of the others with groups of a thousand, .001 so)."""
        noise = self._random.standard_normal(vectors.shape, np.float32)
        return vectors + np.float32(_JITTER / math.sqrt(self.dim)) * noise

    def _make_room(self, slots: np.ndarray) -> None:
        needed = self._graph.element_count + np.count_nonzero(~self._linked[slots])
        if needed > self._graph.max_elements:
            self._graph.resize_index(min(self.capacity, max(needed, 2 * self._graph.max_elements)))

    def _empty(self, elements: int) -> Any:
        graph = graph_class()(space="ip", dim=self.dim)
        room = min(self.capacity, max(elements, _LEAST))
        graph.init_index(room, M=self.M, ef_construction=self.ef_construction)
        return graph

    def _query(self, directions: np.ndarray, count: int, ef: int) -> np.ndarray:
        """Slots [Q, count], nearest first; the capacity where there are no more."""
        found = np.full((len(directions), count), self.capacity, np.int32)
        while count:
            self._graph.set_ef(max(ef, count))
            try:
                slots, _ = self._graph.knn_query(directions, count, num_threads=self.threads)
            except RuntimeError:  # fewer can be reached: hnswlib has no rows of different lengths
                count -= max(1, count // 16)
            else:
                found[:, :count] = slots
                break
        return found


class _Columns:
    """Numbers of each slot by which one sees, without its vector, whether the vector may be another.

    In one life a slot's vector changes with its id, or by a merge, which raises the count. Times and norms tell lives
    apart that share ids.
    """

    def __init__(self, **columns: np.ndarray):
        self.columns = columns
        self.id = columns["id"]

    @classmethod
    def of(cls, buffer: Store) -> "_Columns":
        # Copies: a view would keep the memory's arrays from being donated.
        return cls(**{name: np.array(getattr(buffer, name)) for name in ("id", "count", "time", "inv_norm")})

    @classmethod
    def of_nothing(cls, n: int) -> "_Columns":
        whole = {name: np.full(n, -1, np.int32) for name in ("id", "count", "time")}
        return cls(**whole, inv_norm=np.zeros(n, np.float32))

    def grown(self, n: int) -> "_Columns":
        more = n - self.id.size
        return _Columns(**{name: np.pad(x, (0, more), constant_values=-1) for name, x in self.columns.items()})

    def differ(self, other: "_Columns") -> np.ndarray:
        found = np.zeros(self.id.size, bool)
        for name, column in self.columns.items():
            found |= column != other.columns[name]
        return found


def _directions(buffer: Store, slots: np.ndarray) -> np.ndarray:
    """As `similarity.directions` has them, in NumPy: float32 [S, D]."""
    rows = np.asarray(buffer.embedding)[slots].astype(np.float32)
    return rows * np.asarray(buffer.inv_norm)[slots][:, None]


def _digests(vectors: np.ndarray) -> np.ndarray:
    """A number for each vector, uint64, never 0; others for others."""
    factors = np.random.default_rng(0).integers(1, 2**63, vectors.shape[1], dtype=np.uint64) | np.uint64(1)
    return (vectors.view(np.uint32).astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64) | np.uint64(1)


def graph_class() -> Any:
    """hnswlib's."""
    try:
        import hnswlib
    except ImportError as error:
        raise MissingExtraError("the index needs hnswlib: pip install 'dmem-jax[ann]', or hnswlib itself.") from error
    return hnswlib.Index
