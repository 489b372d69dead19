"""`MemoryBackend`: the memory of an agent that speaks, in a file (or a Postgres database), for many users.

What is kept, where, and what is recalled the core decides; here texts become embeddings, rewards become surprises, and
what changed is committed before a call returns.
"""

import collections
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from dmem_jax import inputs
from dmem_jax.agent import transfer
from dmem_jax.agent.asynchronous import AsyncTwins
from dmem_jax.agent.checks import check_encoder, number, several, text, vector, whole
from dmem_jax.agent.database import Database, Document, Transaction
from dmem_jax.agent.metadata import Filter, check_metadata, matching
from dmem_jax.agent.namespace import Namespace
from dmem_jax.agent.records import Added, Recalled, Stored
from dmem_jax.agent.spaces import Spaces
from dmem_jax.agent.times import Clock, microseconds, now_in_utc, seconds, utc
from dmem_jax.agent.upkeep import Upkeep
from dmem_jax.config import Config, StoreDtype
from dmem_jax.encoders import Encoder
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, UnknownMemoryError, shown
from dmem_jax.params import Params
from dmem_jax.types import Route

Critic = Callable[[str, str | None, float | None, str | None], float]
Signal = Literal["value", "reward", "novelty"]

_DAY = 86_400.0  # seconds, the clock's unit
_HALF_LIFE = 90 * _DAY


class MemoryBackend(AsyncTwins):
    """An agent's memory that outlives the process. Any number of threads may use one; several processes may open the
    same database, and each sees what the others have committed.

        with MemoryBackend("memory.db", encoder=TextEncoder.from_pretrained("all-MiniLM-L6-v2")) as backend:
            backend.add_memory("I am allergic to peanuts", reward=-5.0, namespace="ann")
            backend.get_relevant_memories("What shall we cook?", namespace="ann")

    Every method has an async twin: `aadd_memory` and so on.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] = "memory.db",
        *,
        encoder: Encoder,
        capacity: tuple[int, int] = (256, 3840),
        signal: Signal | Critic = "value",
        params: Mapping[str, float] | None = None,
        keyword_weight: float = 0.5,
        store_dtype: StoreDtype = "float32",
        clock: Clock = now_in_utc,
        upkeep_every: float | None = None,
        read_only: bool = False,
    ):
        """Opens the database, or makes it.

        Args:
          database: path of a SQLite file; ":memory:"; or a URL of SQLAlchemy's, "postgresql+psycopg://...".
          encoder: texts to vectors; see `dmem_jax.encoders`. The database remembers its name.
          capacity: memories that the core and the buffer of each namespace hold.
          signal: where surprise comes from. "value": reward - what was expected there, which is learnt from the
            rewards as they come; "reward": the reward itself; "novelty": how unlike all that is known it is, which
            makes the former greater if there is a reward; a function (observation, action, reward, next_observation)
            -> the reward that was to be expected. Without a reward it is novelty in any case.
          params: changes of `Params`, by name. Times are in seconds; half-lives are 90 days by default.
          keyword_weight: of BM25 (over the best one's), on top of the cosine, >= 0; 0: no keywords.
          store_dtype: as `Config.store_dtype`; "int8" takes a quarter of the bytes.
          clock: gives the time; without a zone it is UTC.
          upkeep_every: seconds between consolidations in the background; None: only when asked.
          read_only: never writes; recalls are not counted then.

        Raises:
          ArgumentTypeError, ArgumentValueError: named. DatabaseError: it cannot be opened, is damaged, is of a newer
          version, or was made with another encoder, or size of vector.
        """
        check_encoder(encoder)
        self._encoder = encoder
        if not isinstance(capacity, tuple) or len(capacity) != 2:
            raise ArgumentTypeError(f"capacity: expected (core, buffer), got {shown(capacity)}.")
        if signal not in ("value", "reward", "novelty") and not callable(signal):
            raise ArgumentValueError(
                f'signal: expected "value", "reward", "novelty" or a function, got {shown(signal)}.'
            )
        self._signal = signal
        self._keyword_weight = number("keyword_weight", keyword_weight, least=0.0)
        if not callable(clock):
            raise ArgumentTypeError(f"clock: expected a function that gives a datetime, got {shown(clock)}.")
        self._clock = clock
        core, buffer = capacity
        self.config = Config(
            embedding_dim=encoder.dim,
            core_capacity=core,
            buffer_capacity=buffer,
            signal="novelty",  # with a weight of 0 where it does not count
            duplicates="probe",  # which the backend sets before each write (agent/sketch.py)
            store_dtype=store_dtype,
        )
        if upkeep_every is not None:
            upkeep_every = number("upkeep_every", upkeep_every, above=0.0)
        if not isinstance(params, Mapping | None):
            raise ArgumentTypeError(f"params: expected a dict of changes of Params, got {shown(params)}.")
        half_lives = {"half_life": _HALF_LIFE, "disaster_half_life": _HALF_LIFE}
        self._params = Params.default(self.config, **(half_lives | dict(params or {})))
        self._novelty_weight = float(self._params.novelty_weight)
        about = {"encoder": encoder.name, "embedding size": str(encoder.dim), "store_dtype": store_dtype}
        self._database = Database(database, about=about, read_only=read_only)
        keywords = self._keyword_weight > 0
        self._spaces = Spaces(
            self._database, lambda name: Namespace(name, self.config, self._params, keywords=keywords)
        )
        self._upkeep = None
        if upkeep_every is not None and not read_only:
            self._upkeep = Upkeep(self._look_after, upkeep_every)

    # ---- adding

    def add_memory(
        self,
        observation: str,
        action: str | None = None,
        reward: float | None = None,
        next_observation: str | None = None,
        *,
        namespace: str = "default",
        key: str | None = None,
        rpe: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        time: datetime | None = None,
        embedding: Any = None,
    ) -> Added:
        """An experience: kept if it surprises. When it returns, what became of it is in the database.

        The same action in nearly the same place is one memory, which counts how often; with the opposite outcome it
        contradicts, and both are kept.

        What has a `key` is a document: kept whatever its surprise, until it is the weakest where there is no room,
        and a memory of its own beside whatever is like it. If there is one of this key, it takes the new texts,
        metadata and embedding, and, where a reward or rpe is given, is worth what that says; its id, its place in
        `list` and the time of its making stay, and the route is "refreshed".

        Args:
          observation: where the outcome was met: what was seen, asked, or to be done. This is what later queries are
            compared with.
          action: what was done.
          reward: how well it went, in any unit, but always the same.
          next_observation: what followed.
          key: what the caller calls it; unique in its namespace, taken wherever an id is.
          rpe: the surprise itself, if the caller knows it better; reward units, signed.
          metadata: JSON, for filters.
          time: when it happened; without a zone it is UTC. Default: now.
          embedding: of the observation, [D], if the caller has it already.

        Raises:
          ArgumentTypeError, ArgumentValueError: named; nothing is changed then. DatabaseError: it could not be
          written; the memory is as it was. ClosedError.
        """
        self._check_open()
        observation = text("observation", observation)
        action, next_observation = (
            text("action", action, none=True),
            text("next_observation", next_observation, none=True),
        )
        metadata = check_metadata({} if metadata is None else metadata)
        namespace, key = text("namespace", namespace), text("key", key, none=True)
        at = self._now() if time is None else utc(time, "time")
        given = self._surprise(observation, action, reward, next_observation, rpe)
        given |= {
            "embedding": self._embedding("observation", observation, embedding),
            # What lies ahead is remembered as of now: the core's clock never goes back.
            "time": min(seconds(at, "clock()" if time is None else "time"), seconds(self._now(), "clock()")),
        }
        stamp = microseconds(at)
        document = Document(
            document=-1, observation=observation, action=action, next_observation=next_observation,
            rewarded=reward is not None, metadata=metadata, created=stamp, updated=stamp, key=key,
        )  # fmt: skip
        with self._spaces.writing(namespace, create=True) as (space, transaction):
            known = None if key is None else space.id_of(key)
            if known is not None:
                return _told_again(space, transaction, known, document, given)
            info = space.write(transaction, given, document)
            _check_judged(bool(info.route != Route.INVALID), given)
        route = Route(int(info.route))
        return Added(
            id=int(info.id) if info.id >= 0 else None,
            route=route.name.lower(),
            rpe=float(info.rpe),
            size=float(info.size),
            gate=float(info.gate),
            evicted_id=int(info.evicted_id) if info.evicted_id >= 0 else None,
        )

    # ---- asking

    def get_relevant_memories(
        self,
        state: str,
        k: int = 8,
        *,
        namespace: str = "default",
        filter: Filter | None = None,
        sign: int = 0,
        min_similarity: float | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        count: bool = True,
        embedding: Any = None,
    ) -> list[Recalled]:
        """What matters for `state`, best first: nearness of meaning and of words, mixed with how surprising it was and
        how well it has proved itself.

        Args:
          k: how many at most, >= 0.
          filter: of metadata, {"key": value} or {"key": {"$gt": value}}, see `dmem_jax.agent.metadata`; or a function
            of the metadata, which it must leave as it is.
          sign: 1 delights only (rpe >= 0), -1 disasters only.
          min_similarity: least cosine.
          since, until: when it happened (`created_at`), both included.
          count: the recall is counted (in `recalls`): only counts move.
          embedding: of the state, [D], if the caller has it already.

        Returns:
          At most `k` memories; none for a namespace that does not exist, which does not make it.
        """
        self._check_open()
        state, namespace = text("state", state, blank=embedding is not None), text("namespace", namespace)
        k = whole("k", k, 0)
        fits = None if filter is None else matching(filter)
        if sign not in (-1, 0, 1):
            raise ArgumentValueError(f"sign: expected -1, 0 or 1, got {shown(sign)}.")
        least = -2.0 if min_similarity is None else number("min_similarity", min_similarity)
        now = seconds(self._now(), "clock()")
        first = None if since is None else microseconds(utc(since, "since"))
        last = None if until is None else microseconds(utc(until, "until"))
        if first is not None and last is not None and first > last:
            raise ArgumentValueError(f"since: expected a time before until, got {since} and {until}.")
        vector_ = self._embedding("state", state, embedding)
        query = inputs.query(self.config, vector_, sign=sign, time=now)
        with self._spaces.reading(namespace) as space:
            if space is None or not space.slot_of or k == 0:
                return []
            recall, found = space.recall(
                query, min(k, len(space.slot_of)), text=state, keyword_weight=self._keyword_weight, least=least,
                allowed=space.allowed(fits, first, last),
            )  # fmt: skip
            if count and not self._database.read_only:
                space.count(recall)
            return found

    def get(self, id: int | str, *, namespace: str = "default") -> Stored | None:
        """The memory of this id or key; None where there is none."""
        self._check_open()
        name = _name("id", id)
        with self._spaces.reading(text("namespace", namespace)) as space:
            if space is None or (id_ := space.id_of(name)) is None:
                return None
            return space.stored([id_], seconds(self._now(), "clock()"))[0]

    def count(self, namespace: str = "default") -> int:
        """How many memories it holds."""
        self._check_open()
        namespace = text("namespace", namespace)
        with self._database.reading() as transaction:
            found = transaction.namespace(namespace)
            return 0 if found is None else transaction.live(found.id)

    def namespaces(self, prefix: str = "", *, empty: bool = True) -> list[str]:
        """Those whose names begin with `prefix`, in order: all that hold, or held, a memory; without the `empty` ones,
        those that hold one."""
        self._check_open()
        prefix = text("prefix", prefix, blank=True)
        with self._database.reading() as transaction:
            return [name for name in transaction.names(empty=empty) if name.startswith(prefix)]

    def stats(self, namespace: str = "default") -> dict[str, float]:
        """`dmem_jax.monitor.summary` of a namespace, flat numbers for a log; {} where there is none."""
        from dmem_jax import monitor

        self._check_open()
        with self._spaces.reading(text("namespace", namespace)) as space:
            if space is None:
                return {}
            told = monitor.summary(space.config, space.params, space.memory)
            return {name: float(value) for name, value in told.items() if np.ndim(value) == 0}

    def list(
        self,
        *,
        namespace: str = "default",
        limit: int = 100,
        after: int | None = None,
        filter: Filter | None = None,
    ) -> list[Stored]:
        """A page of all memories, in the order in which they came: the `limit` next ones with ids beyond `after`. With
        the last id of each page as the next `after` no memory comes twice, and none that stays is left out, whatever
        happens meanwhile."""
        self._check_open()
        limit, after = whole("limit", limit, 0), -1 if after is None else whole("after", after, -1)
        namespace = text("namespace", namespace)
        fits = matching(filter or {})
        with self._spaces.reading(namespace) as space:
            if space is None:
                return []
            ids = sorted(id_ for id_ in space.slot_of if id_ > after)
            page: list[int] = []
            for id_ in ids:
                if len(page) == limit:
                    break
                if filter is None or fits(space.document_of(id_).metadata):
                    page.append(id_)
            now = seconds(self._now(), "clock()")
            return space.stored(page, now)

    # ---- changing

    def feedback(
        self,
        memories: Iterable[Stored | int | str] | Stored | int | str,
        rpe: float,
        *,
        namespace: str = "default",
        used: Sequence[float] | None = None,
    ) -> int:
        """What came of what was recalled: it led to something better (rpe > 0) or worse than it foretold, which
        strengthens or weakens it; or to just that (0), which renews it.

        Args:
          memories: recalled ones, or their ids or keys: those that the decision stood on.
          rpe: reward units.
          used: weight of each, >= 0; default 1.

        Returns:
          How many of them there still are.
        """
        self._check_open()
        namespace = text("namespace", namespace)
        names = _names(memories, namespace)
        rpe = number("rpe", rpe)
        weights = [1.0] * len(names) if used is None else [number("used", each, least=0.0) for each in used]
        if len(weights) != len(names):
            raise ArgumentValueError(f"used: expected a weight for each of {len(names)} memories, got {len(weights)}.")
        now = seconds(self._now(), "clock()")
        with self._spaces.writing(namespace) as (space, transaction):
            if space is None:
                return 0
            used_ = {space.id_of(name): weight for name, weight in zip(names, weights, strict=True)}
            used_.pop(None, None)
            return space.reinforce(transaction, used_, rpe, now)

    def update(
        self,
        id: int | str,
        *,
        observation: str | None = None,
        action: str | None = None,
        next_observation: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        namespace: str = "default",
        embedding: Any = None,
    ) -> Stored:
        """A memory with another text, or other metadata; what is not given stays, the time of its making too.

        Raises:
          UnknownMemoryError: there is none of this id or key.
        """
        self._check_open()
        name, namespace = _name("id", id), text("namespace", namespace)
        changes: dict[str, Any] = {
            name: text(name, given)
            for name, given in (
                ("observation", observation),
                ("action", action),
                ("next_observation", next_observation),
            )
            if given is not None
        }
        if metadata is not None:
            changes["metadata"] = check_metadata(metadata)
        moved = None
        if observation is not None or embedding is not None:
            moved = self._embedding("observation", observation or "", embedding)
        at = self._now()
        with self._spaces.writing(namespace) as (space, transaction):
            if space is None or (id_ := space.id_of(name)) is None:
                raise UnknownMemoryError(f"id: namespace {namespace!r} has no memory {shown(name)}.")
            document = dataclasses.replace(space.document_of(id_), updated=microseconds(at), **changes)
            space.replace(transaction, id_, document, moved)
            return space.stored([id_], seconds(at, "clock()"))[0]

    def delete(self, memories: Iterable[Stored | int | str] | Stored | int | str, *, namespace: str = "default") -> int:
        """Forgets them for good, by every path. How many there were."""
        self._check_open()
        namespace = text("namespace", namespace)
        names = _names(memories, namespace)
        with self._spaces.writing(namespace) as (space, transaction):
            return 0 if space is None else space.remove(transaction, [space.id_of(name) for name in names])

    def clear(self, namespace: str = "default") -> int:
        """Forgets a namespace, and what was learnt in it; no other is touched. How many memories there were. Ids are
        never used again, and its name stays known."""
        self._check_open()
        return self._spaces.clear(text("namespace", namespace))

    def consolidate(self, namespace: str | None = None) -> dict[str, int]:
        """A rest: forgets what is weak, merges what says the same, promotes what proved itself; of one namespace, or of
        all. Counts of what it did."""
        self._check_open()
        names = self.namespaces() if namespace is None else [text("namespace", namespace)]
        total: collections.Counter[str] = collections.Counter(forgotten=0, merged=0, promoted=0, demoted=0)
        for name in names:
            with self._spaces.reading(name) as known:
                if known is None:
                    continue
                now = seconds(self._now(), "clock()")
                rest = known.rest(now)  # it compares all with all: meanwhile nobody waits to write elsewhere
                with self._spaces.writing(name) as (space, transaction):
                    total.update(space.consolidate(transaction, now, rest))
        return dict(total)

    def export(self, namespace: str = "default") -> Iterator[dict[str, Any]]:
        """A namespace as JSON objects, one a line: the first tells of the whole, each other one is a memory. With
        `restore` they are the same memory again."""
        self._check_open()
        with self._spaces.reading(text("namespace", namespace)) as space:
            return iter([] if space is None else [*transfer.lines(space, self._encoder.name)])

    def restore(self, lines: Iterable[Mapping[str, Any]], *, namespace: str = "default") -> int:
        """What `export` gave, into a namespace that holds nothing. How many memories there are.

        Raises:
          ArgumentValueError: a line is not one of ours, of another encoder, or the namespace is not empty; nothing is
          changed then.
        """
        self._check_open()
        dtype = np.dtype(jnp.dtype(self.config.store_dtype))
        read = transfer.read_all(lines, self._encoder.name, self.config.embedding_dim, dtype)
        with self._spaces.reading(text("namespace", namespace)) as known:
            held = 0 if known is None else len(known.slot_of)
        if held:
            raise ArgumentValueError(
                f"namespace: expected one that holds nothing, {namespace!r} holds {held} memories."
            )
        with self._spaces.writing(namespace, create=True) as (space, transaction):
            space.fill(transaction, self._database.name, *read)
        return len(read[1])

    # ---- its life

    def close(self) -> None:
        """Waits for what is under way, writes what is left to write, and lets go of the database. What is called
        afterwards raises ClosedError; a second close does nothing."""
        if self._spaces.closed:
            return
        if self._upkeep is not None:
            self._upkeep.stop()
        try:
            self._spaces.close()
        finally:
            self._database.close()

    def __enter__(self) -> "MemoryBackend":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- within

    def _check_open(self) -> None:
        self._spaces.check_open()

    def _now(self) -> datetime:
        return utc(self._clock(), "clock()")

    def _embedding(self, name: str, text_: str, given: Any) -> np.ndarray:
        if given is None:
            given = self._encoder([text_])[0]
            name = f"the encoder's vector of {name}"
        else:
            name = "embedding"
        return vector(name, given, self.config.embedding_dim)

    def _surprise(
        self,
        observation: str,
        action: str | None,
        reward: float | None,
        next_observation: str | None,
        rpe: float | None,
    ) -> dict[str, Any]:
        """What the core is told of it."""
        reward_ = 0.0 if reward is None else number("reward", reward)
        expected, told = 0.0, None if rpe is None else number("rpe", rpe)
        critic = callable(self._signal)
        if callable(self._signal):
            expected = number("signal(...)", self._signal(observation, action, reward, next_observation))
        elif self._signal == "reward" and reward is not None and told is None:
            told = reward_
        by_novelty = told is None and (reward is None or self._signal == "novelty")
        return {
            "reward": reward_,
            "rewarded": reward is not None,
            "expected": expected,
            "has_critic": critic,
            "rpe": 0.0 if told is None else told,
            "has_rpe": told is not None,
            "novelty_weight": self._novelty_weight if by_novelty else 0.0,
        }

    def _look_after(self) -> None:
        """What the upkeep does: a rest for each namespace that has changed since its last one."""
        params = self._params
        ages = bool(params.floor > 0 or jnp.isfinite(jnp.minimum(params.core_max_age, params.buffer_max_age)))
        for name in self._spaces.to_consolidate(idle=ages):
            self.consolidate(name)


def _told_again(
    space: Namespace, transaction: Transaction, id_: int, document: Document, given: dict[str, Any]
) -> Added:
    """A memory that has the document's key takes its texts and place, and, if there is one, its outcome."""
    old = space.document_of(id_)
    document = dataclasses.replace(document, document=old.document, created=old.created, rewarded=old.rewarded)
    space.replace(transaction, id_, document, given["embedding"])
    size = gate = 0.0
    if given["rewarded"] or given["has_rpe"]:
        verdict = space.reprice(transaction, id_, given)
        _check_judged(bool(verdict.valid), given)
        size, gate = float(verdict.size), float(verdict.opening)
    rpe = space.rpe_of(id_)
    return Added(id=id_, route="refreshed", rpe=rpe, size=size, gate=gate, evicted_id=None)


def _check_judged(valid: bool, given: dict[str, Any]) -> None:
    if not valid:  # all else was looked at before
        raise ArgumentValueError(
            f"reward: expected one whose distance from what was expected fits a float32, got {shown(given['reward'])}."
        )


def _name(name: str, given: Any) -> int | str:
    """An id or a key."""
    return text(name, given) if isinstance(given, str) else whole(name, given, 0)


def _names(memories: Any, namespace: str) -> list[int | str]:
    """Ids are of a namespace: those of a memory of another one would mean others here."""
    each = [memories] if isinstance(memories, (Stored, int, str)) else several("memories", memories)
    stranger = next((one for one in each if isinstance(one, Stored) and one.namespace != namespace), None)
    if stranger is not None:
        raise ArgumentValueError(
            f"memories: expected those of namespace {namespace!r}, got one of {stranger.namespace!r}."
        )
    return [memory.id if isinstance(memory, Stored) else _name("memories", memory) for memory in each]
