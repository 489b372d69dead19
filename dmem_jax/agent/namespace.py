"""One user's memory, in step with the database: arrays of the core, the texts of its slots, and what was learnt.

Nothing here decides what is kept or recalled: it carries what the core decided into rows, and rows back into arrays.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmem_jax.agent import core, sketch
from dmem_jax.agent.database import Document, Found, Transaction
from dmem_jax.agent.learning import newborn
from dmem_jax.agent.records import Recalled, Stored
from dmem_jax.agent.rows import (
    Row,
    check_rows,
    columns_of,
    filled,
    packed,
    pool_slot_of,
    put,
    record,
    row_of,
    state_of,
    unpacked,
    with_state,
)
from dmem_jax.agent.texts import Texts, joined, task_of
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentValueError, DatabaseError
from dmem_jax.judging import Verdict
from dmem_jax.params import Params
from dmem_jax.types import ConsolidationReport, Memory, Query, Recall, Tier, WriteInfo

_FIRST_BUFFER = 256  # slots of a buffer at first; it doubles when it is full, up to what was asked for
_CHUNK = 64  # slots that are read or placed at once
_SANE = 1e30  # of what was learnt: beyond it the next difference would overflow
_RELOAD = 4096  # slots that another process may have changed before all are read anew


@dataclasses.dataclass(frozen=True)
class Rest:
    """What a consolidation makes of a namespace."""

    revision: int  # that it was made of
    memory: Memory
    report: ConsolidationReport
    differs: jax.Array  # bool [N]: slots that are not as they were


class Namespace:
    """The caller holds `lock` around everything, and a transaction around what changes it. Whatever fails in between
    may have left it half done: `forget` then, and the next `catch_up` reads all from the database."""

    def __init__(self, name: str, config: Config, params: Params, *, keywords: bool):
        self.name = name
        self.lock = threading.RLock()
        self.changed = False  # since it was consolidated
        self.params = params
        self._full_config = config
        self._with_keywords = keywords
        self._texts = Texts(keywords=keywords)
        self.forget()

    def forget(self) -> None:
        """All that it holds in this process."""
        self._id: int | None = None
        self._revision = -1
        self._uncounted: set[int] = set()  # slots of recalled memories, which the database doesn't know yet
        self._texts = Texts(keywords=self._with_keywords)
        first = min(self._full_config.buffer_capacity, _FIRST_BUFFER)
        self.config = dataclasses.replace(self._full_config, buffer_capacity=first)
        self._memory: Memory | None = None
        self._learner = None
        self._sketch = None  # of the arrays; None: is made when needed, for they have changed
        self._next_document = 0
        self._document_at = np.full(self.config.pool_capacity, -1, np.int32)
        self._id_at = np.full(self.config.pool_capacity, -1, np.int32)
        self.slot_of: dict[int, int] = {}
        """Pool slot of each memory, by id."""

    @property
    def memory(self) -> Memory:
        """The arrays as they are; what changes the namespace donates them."""
        assert self._memory is not None
        return self._memory

    # ---- in step with the database

    def catch_up(self, transaction: Transaction, database: str, *, create: bool = False) -> bool:
        """Whether there is such a namespace; it is then as the database has it. `database`: its name in messages."""
        if self._id is not None and transaction.revision(self._id) == self._revision:
            return True
        found = transaction.namespace(self.name)
        if found is None and create:
            self._memory, self._learner = core.empty(self.config), newborn(self.config.embedding_dim)
            found = transaction.add_namespace(self.name, self.state())
        if found is None:
            self.forget()
            return False
        try:
            self._read(transaction, found, database)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise DatabaseError(f"{database}: namespace {self.name!r} is damaged: {error}.") from error
        return True

    def save(self, transaction: Transaction, rows: dict[int, Row], new: Iterable[Document] = ()) -> None:
        """What changed: `rows` by pool slot, and the documents that are `new`, if a memory holds them. Recalls that
        were counted since go along."""
        assert self._id is not None
        uncounted = sorted(self._uncounted - set(rows))
        self._uncounted.clear()
        rows = rows | self._rows_at(uncounted)
        before = {int(self._document_at[slot]) for slot in rows}
        for slot, row in rows.items():
            self._note(slot, row["id"], row["document"])
        now = {int(self._document_at[slot]) for slot in rows}
        new, gone = [document for document in new if document.document in now], before - now - {-1}
        for document in new:
            self._texts.put(document)
        self._texts.drop(gone)
        self._revision += 1
        transaction.put_documents(self._id, new)
        transaction.put_slots(self._id, [columns_of(self.config, *each, self._revision) for each in rows.items()])
        transaction.drop_documents(self._id, gone)
        transaction.save_namespace(self._id, self._revision, self.state())
        self.changed = True

    @property
    def has_uncounted(self) -> bool:
        """Whether there are counts of recalls that the database does not have."""
        return bool(self._uncounted)

    def save_counts(self, transaction: Transaction) -> None:
        """Of recalls, if some are not in the database yet."""
        if self._uncounted:
            self.save(transaction, {})

    def fill(
        self, transaction: Transaction, database: str, state: bytes, rows: list[dict[str, Any]], texts: list[Document]
    ) -> None:
        """An empty one, with rows of the database."""
        if self._id is None or self.slot_of:
            raise ArgumentValueError(f"namespace: expected one that holds nothing, {self.name!r} holds memories.")
        try:
            held = unpacked(state, self._whole_state(), "lines[0]")
        except DatabaseError as error:
            raise ArgumentValueError(str(error)) from error
        for leaf in map(np.asarray, jax.tree.leaves(held)):
            if not np.isfinite(leaf).all() or (leaf.dtype == np.float32 and np.abs(leaf).max(initial=0.0) > _SANE):
                raise ArgumentValueError("lines[0].state: expected finite numbers of the size that rewards have.")
        next_id = held["memory"]["next_id"]
        if max((row["id"] for row in rows), default=-1) >= next_id:
            raise ArgumentValueError(f"lines: expected ids below {int(next_id)}, the first line's next one.")
        held["memory"]["next_id"] = jnp.maximum(next_id, self.memory.next_id)
        held["next_document"] = np.int32(max((document.document for document in texts), default=-1) + 1)
        self._make_room_for(rows, database)
        self._revision += 1
        transaction.put_documents(self._id, texts)
        transaction.put_slots(self._id, [row | {"revision": self._revision} for row in rows])
        transaction.save_namespace(self._id, self._revision, packed(held))
        self._revision = -1  # the next one to look reads it all

    def clear(self, transaction: Transaction) -> None:
        """As if it had just begun, but for its next id. To be forgotten by whoever asks for it."""
        assert self._id is not None
        fresh = dataclasses.replace(core.empty(self.config), next_id=self.memory.next_id)
        self._memory, self._learner, self._next_document = fresh, newborn(self.config.embedding_dim), 0
        transaction.clear_namespace(self._id, self._revision + 1, self.state())

    # ---- what the core is asked to do

    def write(self, transaction: Transaction, given: dict[str, Any], document: Document) -> WriteInfo:
        """An experience with its texts."""
        self._make_room()
        document = dataclasses.replace(document, document=self._next_document)
        self._next_document += 1
        if self._sketch is None:
            self._sketch = sketch.of_memory(self.memory)
        numbers = core.given(document=document.document, task=task_of(document), keep=document.key is not None, **given)
        self._memory, self._learner, self._sketch, info, changed = core.written(
            self.config, self.params, self._memory, self._learner, self._sketch, numbers
        )
        info, changed = jax.device_get((info, changed))
        documents = [document]
        if info.merged_id >= 0:
            documents = [joined(document, self.document_of(int(info.merged_id)))]
        rows = {slot: row_of(changed.rows, i) for i, slot in enumerate(changed.slot.tolist())}
        rows.pop(self.config.pool_capacity, None)  # there were fewer
        self.save(transaction, rows, documents)
        return info

    def recall(
        self, query: Query, k: int, *, text: str, keyword_weight: float, least: float, allowed: np.ndarray | None
    ) -> tuple[Recall, list[Recalled]]:
        """The `k` best, best first; and the recall as the core gave it, for `count`."""
        some = np.ones(self.config.pool_capacity, bool) if allowed is None else allowed
        keywords = self._texts.scores(text, some) if keyword_weight else np.zeros(some.size, np.float32)
        config = self._asking(k)
        recall, cosine = core.recalled(
            config, self.params, self._memory, query, jnp.asarray(np.float32(keyword_weight) * keywords),
            jnp.asarray(some), jnp.float32(least), jnp.int32(k),
        )  # fmt: skip
        found, cosine, slots = jax.device_get((recall, cosine, core.pool_slot(config, recall)))
        slots = slots[: int(found.valid.sum())].tolist()
        memories = [
            Recalled(
                **dataclasses.asdict(memory),
                score=float(found.score[i]),
                similarity=float(cosine[i]),
                keyword=float(keywords[slots[i]]),
                salience=float(found.salience[i]),
            )
            for i, memory in enumerate(self._stored_at(slots, int(query.time)))
        ]
        return recall, memories

    def count(self, recall: Recall) -> None:
        """It was handed to the agent. The database learns of it with the next change."""
        config = self._asking(recall.slot.size)
        slots = np.asarray(core.pool_slot(config, recall))
        self._memory = core.counted(config, self._memory, recall)
        self._uncounted |= set(slots[slots < config.pool_capacity].tolist())

    def reinforce(self, transaction: Transaction, used: dict[int, float], rpe: float, now: int) -> int:
        """What came of memories, by id, with the weight of each; how many of them there still are."""
        here = {self.slot_of[id_]: (id_, weight) for id_, weight in used.items() if id_ in self.slot_of}
        if not here:
            return 0
        config = self._asking(len(here))
        recall = core.recall_of(config, list(here), [id_ for id_, _ in here.values()])
        weights = np.zeros(config.recalled, np.float32)
        weights[: len(here)] = [weight for _, weight in here.values()]
        self._memory, rows = core.reinforced(
            config, self.params, self._memory, jnp.int32(now), recall, jnp.float32(rpe), jnp.asarray(weights)
        )
        rows = jax.device_get(rows)
        self.save(transaction, {slot: row_of(rows, i) for i, slot in enumerate(here)})
        return len(here)

    def replace(self, transaction: Transaction, id_: int, document: Document, embedding: np.ndarray | None) -> None:
        """Another text, action and, unless it is None, place for a memory."""
        slot, task = self.slot_of[id_], task_of(document)
        self._sketch = None
        if embedding is None:
            self._memory = core.retold(self.config, self._memory, jnp.int32(slot), jnp.int32(task))
        else:
            self._memory = core.moved(
                self.config, self._memory, jnp.int32(slot), jnp.asarray(embedding), jnp.int32(task)
            )
        self.save(transaction, self._rows_at([slot]), [document])

    def reprice(self, transaction: Transaction, id_: int, given: dict[str, Any]) -> Verdict:
        """Another outcome for a memory, and what the gate makes of that."""
        slot, document = self.slot_of[id_], self.document_of(id_)
        numbers = core.given(document=document.document, task=task_of(document), keep=document.key is not None, **given)
        self._memory, self._learner, verdict = core.repriced(
            self.config, self.params, self._memory, self._learner, jnp.int32(slot), numbers
        )
        document = dataclasses.replace(document, rewarded=document.rewarded or given["rewarded"])
        self.save(transaction, self._rows_at([slot]), [document])
        return jax.device_get(verdict)

    def remove(self, transaction: Transaction, ids: Iterable[int | None]) -> int:
        """How many of `ids` there were."""
        slots = sorted({self.slot_of[id_] for id_ in ids if id_ in self.slot_of})
        if slots:
            gone = np.zeros(self.config.pool_capacity, bool)
            gone[slots] = True
            self._memory = core.freed(self.config, self._memory, jnp.asarray(gone))
            self.save(transaction, self._rows_at(slots))
        return len(slots)

    def rest(self, now: int) -> Rest:
        """What a consolidation would make of it. It takes long, and changes nothing yet."""
        return Rest(self._revision, *core.consolidated(self.config, self.params, self.memory, jnp.int32(now)))

    def consolidate(self, transaction: Transaction, now: int, rest: Rest) -> dict[str, int]:
        """`rest`, or, if another process was faster, what it would be now. Counts of what it did."""
        if rest.revision != self._revision:
            rest = self.rest(now)
        # Which of two texts a merged memory goes on with the core says; the other one's document is still here.
        pairs = [tuple(pair) for pair in np.asarray(rest.report.merged_ids).tolist() if pair[1] >= 0]
        texts = {id_: self.document_of(id_) for pair in pairs for id_ in pair}
        self._memory, report = rest.memory, rest.report
        slots = np.flatnonzero(np.asarray(rest.differs)).tolist()
        self._sketch = None if slots else self._sketch
        rows = self._rows_at(slots)
        held = {row["id"]: row["document"] for row in rows.values()}
        for kept, gone in pairs:
            one, other = texts[kept], texts[gone]
            texts[kept] = joined(one, other) if held.get(kept) == one.document else joined(other, one)
        self.save(transaction, rows, [texts[kept] for kept, _ in pairs])  # without rows: the clock has gone on
        self.changed = bool(slots)
        return {name: int(getattr(report, name)) for name in ("forgotten", "merged", "promoted", "demoted")}

    # ---- what it holds

    def id_of(self, name: int | str) -> int | None:
        """Of the memory with this id or key; None where there is none."""
        if isinstance(name, str):
            slot = self._texts.slot_of(name)
            return None if slot is None else int(self._id_at[slot])
        return name if name in self.slot_of else None

    def document_of(self, id_: int) -> Document:
        """Of a memory that is there."""
        return self._texts[int(self._document_at[self.slot_of[id_]])]

    def allowed(
        self, fits: Callable[[dict[str, Any]], bool] | None, since: int | None, until: int | None
    ) -> np.ndarray | None:
        """bool [N]: slots of memories whose metadata fits, and which were made at that time (microseconds since 1970,
        both included); None: all."""
        if fits is None and since is None and until is None:
            return None
        some = np.zeros(self.config.pool_capacity, bool)
        for id_, slot in self.slot_of.items():
            document = self.document_of(id_)
            in_time = (since is None or since <= document.created) and (until is None or document.created <= until)
            some[slot] = in_time and (fits is None or fits(document.metadata))
        return some

    def rpe_of(self, id_: int) -> float:
        """Of a memory that is there."""
        return self._rows_at([self.slot_of[id_]])[self.slot_of[id_]]["rpe"]

    def stored(self, ids: Sequence[int], now: int) -> list[Stored]:
        """Memories that are there, by id, in the same order."""
        return self._stored_at([self.slot_of[id_] for id_ in ids], now)

    def all_rows(self) -> dict[int, Row]:
        """Numbers of all memories, by pool slot, in the order of their ids."""
        return self._rows_at([self.slot_of[id_] for id_ in sorted(self.slot_of)])

    def _stored_at(self, slots: Sequence[int], now: int) -> list[Stored]:
        found = []
        for slot, (row, strength) in zip(slots, self._told(slots, now), strict=True):
            tier = Tier.CORE if slot < self.config.core_capacity else Tier.BUFFER
            found.append(Stored(**record(self.name, tier, row, strength, self._texts[row["document"]])))
        return found

    def _rows_at(self, slots: Sequence[int]) -> dict[int, Row]:
        return {slot: row for slot, (row, _) in zip(slots, self._told(slots, 0), strict=True)}

    def _told(self, slots: Sequence[int], now: int) -> list[tuple[Row, float]]:
        found = []
        for i in range(0, len(slots), _CHUNK):
            some = np.asarray(slots[i : i + _CHUNK], np.int32)
            padded = np.pad(some, (0, _CHUNK - some.size), constant_values=self.config.pool_capacity)
            told = core.told(self.config, self.params, self._memory, jnp.int32(now), jnp.asarray(padded))
            rows, strength = jax.device_get(told)
            found += [(row_of(rows, j), float(strength[j])) for j in range(some.size)]
        return found

    # ---- within

    def _read(self, transaction: Transaction, found: Found, database: str) -> None:
        """What the database has and this process has not. Any other error than DatabaseError: rows make no sense."""
        changed = transaction.slots_since(found.id, self._revision) if found.id == self._id else None
        if changed is None or len(changed) > _RELOAD:
            self.forget()
            changed, documents = transaction.slots_since(found.id, -1), transaction.documents(found.id, None)
            check_rows(changed, documents)
            self._load(changed, documents, database)
        else:
            held = [columns["document"] for columns in changed if columns["id"] >= 0]
            documents = transaction.documents(found.id, held)
            check_rows(changed, documents)
            self._follow(changed, documents, database)
        state = unpacked(found.state, self._whole_state(), database)
        self._memory = with_state(self.memory, state["memory"])
        self._learner, self._next_document = state["learner"], int(state["next_document"])
        last = max(self.slot_of, default=-1)
        if last >= self.memory.next_id:
            raise ValueError(f"id {last}, where ids go up to {self.memory.next_id - 1}")
        self._id, self._revision = found.id, int(found.revision)

    def _load(self, slots: Sequence[Any], documents: Iterable[Document], database: str) -> None:
        """All of it, from rows of the database."""
        self._make_room_for(slots, database)
        core_, buffer = filled(self.config, slots)
        self._memory = dataclasses.replace(core.empty(self.config), core=core_, buffer=buffer)
        self._learner = newborn(self.config.embedding_dim)
        self._learn_of(slots, documents)

    def _follow(self, slots: Sequence[Any], documents: Iterable[Document], database: str) -> None:
        """What another process has changed."""
        self._make_room_for(slots, database)
        self._sketch = None
        for i in range(0, len(slots), _CHUNK):
            rows = jax.tree.map(np.array, jax.device_get(core.no_rows(self.config, self.memory, _CHUNK)))
            at = np.full(_CHUNK, self.config.pool_capacity, np.int32)
            for j, columns in enumerate(slots[i : i + _CHUNK]):
                at[j] = pool_slot_of(self.config, columns)
                put(rows, j, columns)
            self._memory = core.placed(self.config, self._memory, jnp.asarray(at), jax.tree.map(jnp.array, rows))
        self._learn_of(slots, documents)

    def _learn_of(self, slots: Sequence[Any], documents: Iterable[Document]) -> None:
        """Which memories the rows hold now."""
        before = {int(self._document_at[pool_slot_of(self.config, columns)]) for columns in slots}
        for document in documents:
            self._texts.put(document)
        for columns in slots:
            self._note(pool_slot_of(self.config, columns), columns["id"], columns["document"])
        self._texts.drop(before - {columns["document"] for columns in slots if columns["id"] >= 0} - {-1})

    def _note(self, slot: int, id_: int, document: int) -> None:
        """The slot holds this memory now; -1: none."""
        old = int(self._id_at[slot])
        if self.slot_of.get(old) == slot:
            del self.slot_of[old]
        self._id_at[slot], self._document_at[slot] = id_, document if id_ >= 0 else -1
        if id_ >= 0:
            self.slot_of[id_] = slot
            self._texts.settle(document, slot)

    def _make_room(self) -> None:
        """The buffer grows before it is full: until it has the size that was asked for nobody leaves it."""
        held = self.config.buffer_capacity
        if np.count_nonzero(self._id_at[self.config.core_capacity :] >= 0) + 2 > held:
            self._grow_to(held + 1)

    def _grow_to(self, slots: int) -> None:
        """At least so many slots of the buffer, or all that were asked for."""
        held, most = self.config.buffer_capacity, self._full_config.buffer_capacity
        larger = held
        while larger < min(slots, most):
            larger = min(2 * larger, most)
        if larger > held:
            self._sketch = None
            if self._memory is not None:
                self._memory = core.grown(self._memory, self.config, larger)
            self.config = dataclasses.replace(self.config, buffer_capacity=larger)
            more = (0, larger - held)
            self._document_at = np.pad(self._document_at, more, constant_values=-1)
            self._id_at = np.pad(self._id_at, more, constant_values=-1)

    def _make_room_for(self, slots: Sequence[Any], database: str) -> None:
        """Rows of the database."""
        most = {Tier.CORE: self._full_config.core_capacity, Tier.BUFFER: self._full_config.buffer_capacity}
        for tier in Tier.CORE, Tier.BUFFER:
            used = [columns["slot"] + 1 for columns in slots if columns["tier"] == tier and columns["id"] >= 0]
            if max(used, default=0) > most[tier]:
                raise DatabaseError(
                    f"{database}: namespace {self.name!r} uses {max(used)} slots of its {tier.name.lower()}, and was "
                    f"opened with a capacity of {most[tier]}. Open it with at least as many."
                )
            if tier == Tier.BUFFER:
                self._grow_to(max(used, default=0))

    def _asking(self, k: int) -> Config:
        """A config that recalls at least `k`: few programs serve them all."""
        rows = 8
        while rows < k:
            rows *= 2
        return dataclasses.replace(self.config, top_k=min(rows, self.config.pool_capacity))

    def _whole_state(self) -> dict[str, Any]:
        return {
            "memory": state_of(self.memory),
            "learner": self._learner,
            "next_document": np.int32(self._next_document),
        }

    def state(self) -> bytes:
        """All that no memory holds."""
        return packed(self._whole_state())
