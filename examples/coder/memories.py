"""What the policies remember, and how: nothing, the nearest of the latest experiences, or a dmem_jax backend."""

import collections
import datetime
from typing import Any, NamedTuple, Protocol

import numpy as np

from examples.encoding import Once

K = 8  # memories recalled
RATE = 0.2  # at which a baseline's expectation learns: as in the backend


class Hint(NamedTuple):
    """A recalled experience, as far as the vote goes."""

    action: str
    similarity: float
    rpe: float
    source: Any = None  # the memory's own record of it


class Kept(NamedTuple):
    """What became of an experience."""

    rpe: float
    size: float  # |rpe| in multiples of the average surprise; NaN where a memory knows none
    route: str


class Memory(Protocol):
    """What an agent asks of its memory."""

    def recall(self, text: str) -> list[Hint]: ...

    def keep(self, text: str, action: str, reward: float) -> Kept: ...

    def feedback(self, hints: list[Hint], rpe: float) -> None:
        """`hints` foretold what came, by and large (rpe 0), or came out worse by `rpe` < 0."""
        ...

    def rendered(self, hints: list[Hint]) -> str:
        """For a prompt."""
        ...

    def held(self) -> int:
        """Experiences in it."""
        ...

    def close(self) -> None: ...


class Nothing:
    """No memory."""

    def recall(self, text: str) -> list[Hint]:
        return []

    def keep(self, text: str, action: str, reward: float) -> Kept:
        return Kept(float("nan"), float("nan"), "none")

    def feedback(self, hints: list[Hint], rpe: float) -> None:
        pass

    def rendered(self, hints: list[Hint]) -> str:
        return ""

    def held(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Nearest(Nothing):
    """Plain similarity: the K nearest of the last `capacity` experiences (None: of all), whatever surprised.

    Its RPE is the reward less a linear expectation of the embedding, learnt as the backend learns its own, so that the
    same vote is fed with numbers of the same kind.
    """

    def __init__(self, encoder: Once, capacity: int | None):
        self._encoder = encoder
        self._experiences: collections.deque[tuple[np.ndarray, str, float, str]] = collections.deque(maxlen=capacity)
        self._weights = np.zeros(encoder.dim + 1, np.float32)  # the last: of the constant

    def recall(self, text: str) -> list[Hint]:
        if not self._experiences:
            return []
        cosines = np.array([vector for vector, *_ in self._experiences]) @ self._encoder([text])[0]
        hints = []
        for i in np.argsort(-cosines, kind="stable")[:K]:
            _, action, rpe, seen = self._experiences[i]
            hints.append(Hint(action, float(cosines[i]), rpe, seen))
        return hints

    def keep(self, text: str, action: str, reward: float) -> Kept:
        vector = self._encoder([text])[0]
        inputs = np.append(vector, np.float32(1))
        rpe = reward - float(self._weights @ inputs)
        self._weights += np.float32(RATE * rpe) * inputs
        self._experiences.append((vector, action, rpe, text))
        return Kept(rpe, float("nan"), "stored")

    def rendered(self, hints: list[Hint]) -> str:
        return "\n".join(f"- {hint.source} | tried: {hint.action} | surprise {hint.rpe:+.2f}" for hint in hints)

    def held(self) -> int:
        return len(self._experiences)


class Backend:
    """dmem_jax: what surprised stays."""

    def __init__(self, encoder: Once, capacity: tuple[int, int]):
        from dmem_jax.agent import MemoryBackend

        self._held = 0
        self._now = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        self._backend = MemoryBackend(":memory:", encoder=encoder, capacity=capacity, clock=lambda: self._now)

    def recall(self, text: str) -> list[Hint]:
        found = self._backend.get_relevant_memories(text, k=K)
        return [Hint(memory.action or "", memory.similarity, memory.rpe, memory) for memory in found]

    def keep(self, text: str, action: str, reward: float) -> Kept:
        self._now += datetime.timedelta(hours=1)
        added = self._backend.add_memory(text, action, reward)
        self._held += (added.route in ("core", "buffer")) - (added.evicted_id is not None)
        return Kept(added.rpe, added.size, added.route)

    def feedback(self, hints: list[Hint], rpe: float) -> None:
        if hints:
            self._backend.feedback([hint.source.id for hint in hints], rpe)

    def rendered(self, hints: list[Hint]) -> str:
        from dmem_jax.agent.prompt import render_prompt

        return render_prompt([hint.source for hint in hints])

    def held(self) -> int:
        return self._held

    def close(self) -> None:
        self._backend.close()
