"""The memories under comparison. All see the same replies and rewards and share one encoder; they differ in what stays.

dmem_jax      `MemoryBackend`: what surprised stays; recalled by meaning and salience
fifo          the latest exchanges, recalled by cosine
similarity    a uniform sample of all exchanges (Vitter's reservoir, 1985), recalled by cosine: plain similarity
strongest     the exchanges of the largest |reward|, recalled by cosine: the gate without the rest
everything    every exchange, recalled by cosine: similarity without a limit, so not of the same capacity
"""

import dataclasses
import datetime
import random
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dmem_jax.agent import Added, MemoryBackend, Recalled
from dmem_jax.encoders import Encoder

CAPACITY = 32  # memories of one user, core and buffer together
CORE_SLOTS = 16  # of them
# The backend's own settings, but for two that were chosen on development dialogues (seeds 100 .. 123), never on the
# reported ones. What was felt months ago still counts; and no keywords, for a question in other words shares none with
# what it is about. Together they gave .47 recalled there, against .39; temperatures and weights made no difference.
HALF_LIFE = 360 * 86_400.0  # seconds
PARAMS = {"half_life": HALF_LIFE, "disaster_half_life": HALF_LIFE}
KEYWORD_WEIGHT = 0.0


@dataclasses.dataclass(frozen=True)
class Found:
    """A recalled exchange; `surprise` tells a delight from a disaster by its sign."""

    observation: str
    surprise: float


class Memories(Protocol):
    """What the assistant asks of a memory."""

    def add(self, observation: str, action: str, reward: float, time: datetime.datetime) -> None: ...

    def recall(self, state: str, k: int, time: datetime.datetime) -> list[Found]:
        """At most k, best first."""
        ...


class Surprises:
    """`dmem_jax`, as any assistant would use it; remembers what became of each exchange, for the pictures."""

    def __init__(self, encoder: Encoder, **settings: Any):
        """`settings` go to the backend, in place of those here."""
        self._now = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        usual = {
            "capacity": (CORE_SLOTS, CAPACITY - CORE_SLOTS),
            "params": PARAMS,
            "keyword_weight": KEYWORD_WEIGHT,
            "clock": lambda: self._now,
        }
        self.backend = MemoryBackend(":memory:", encoder=encoder, **(usual | settings))
        self.added: list[Added] = []

    def add(self, observation: str, action: str, reward: float, time: datetime.datetime) -> None:
        self._now = time
        self.added.append(self.backend.add_memory(observation, action, reward))

    def ask(self, state: str, k: int, time: datetime.datetime) -> list[Recalled]:
        """The same as `recall`, with all that the backend tells."""
        self._now = time
        return self.backend.get_relevant_memories(state, k)

    def recall(self, state: str, k: int, time: datetime.datetime) -> list[Found]:
        return [Found(memory.observation, memory.rpe) for memory in self.ask(state, k, time)]


# Of |reward| of what is held, |reward| of the newcomer, and how many came before it: the place that it takes, or -1.
Rule = Callable[[np.ndarray, float, int], int]


class Nearest:
    """A list that a rule keeps at its capacity, recalled by cosine alone."""

    def __init__(self, encoder: Encoder, capacity: int | None, rule: Rule):
        self._encoder, self._capacity, self._rule = encoder, capacity, rule
        self._texts: list[str] = []
        self._rewards: list[float] = []
        self._seen = 0

    def add(self, observation: str, action: str, reward: float, time: datetime.datetime) -> None:
        if self._capacity is None or len(self._texts) < self._capacity:
            self._texts.append(observation)
            self._rewards.append(reward)
        elif (place := self._rule(np.abs(self._rewards), abs(reward), self._seen)) >= 0:
            self._texts[place], self._rewards[place] = observation, reward
        self._seen += 1

    def recall(self, state: str, k: int, time: datetime.datetime) -> list[Found]:
        cosines = self._encoder(self._texts) @ self._encoder([state])[0]
        best = np.argsort(-cosines, kind="stable")[:k]
        return [Found(self._texts[place], self._rewards[place]) for place in best]


def fifo(held: np.ndarray, newcomer: float, seen: int) -> int:
    """The oldest makes room."""
    return seen % held.size


def reservoir(seed: int) -> Rule:
    """Each exchange so far is held with the same probability."""
    chance = random.Random(f"reservoir {seed}")

    def rule(held: np.ndarray, newcomer: float, seen: int) -> int:
        drawn = chance.randrange(seen + 1)
        return drawn if drawn < held.size else -1

    return rule


def strongest(held: np.ndarray, newcomer: float, seen: int) -> int:
    """The smallest |reward| makes room for a larger one."""
    least = int(held.argmin())
    return least if newcomer > held[least] else -1


POLICIES = ("dmem_jax", "fifo", "similarity", "strongest", "everything")


def make(policy: str, encoder: Encoder, seed: int) -> Memories:
    """An empty memory for one user."""
    match policy:
        case "dmem_jax":
            return Surprises(encoder)
        case "fifo":
            return Nearest(encoder, CAPACITY, fifo)
        case "similarity":
            return Nearest(encoder, CAPACITY, reservoir(seed))
        case "strongest":
            return Nearest(encoder, CAPACITY, strongest)
        case "everything":
            return Nearest(encoder, None, fifo)
    raise AssertionError(policy)
