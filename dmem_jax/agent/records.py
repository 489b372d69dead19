"""What the backend gives back."""

import dataclasses
from datetime import datetime
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A memory as it is kept."""

    id: int  # of the namespace; never used again for another
    key: str | None = None  # what the caller calls it; no other memory of the namespace has the same
    observation: str
    action: str | None
    next_observation: str | None
    reward: float | None  # as told, of several experiences their mean (without one: 0); None: none was
    rpe: float  # reward units, signed: how much better (worse, below 0) it turned out than expected
    strength: float  # reward units, faded to the moment of reading
    contradicted: bool  # the same action met the opposite outcome later
    count: int  # experiences that it stands for, 1 or more
    recalls: int
    tier: str  # "core" or "buffer"
    created_at: datetime  # aware, UTC
    updated_at: datetime  # aware, UTC
    metadata: dict[str, Any]  # a copy: changing it changes nothing that is stored
    namespace: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recalled(Stored):
    """A memory that was asked for, and why it came."""

    score: float  # by which memories are ordered, the greatest first
    similarity: float  # cosine of meaning, -1 .. 1
    keyword: float  # share of the best match by words, 0 .. 1
    salience: float  # how much it matters, whatever was asked


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What became of an experience."""

    id: int | None  # of the memory that has it now; None: no memory has
    route: str  # "core" "buffer" "dropped" "refused" "refreshed" "merged"
    rpe: float  # reward units, signed
    size: float  # |rpe| over its running mean, which the thresholds look at
    gate: float  # 0 .. 1, share of |rpe| that became its strength
    evicted_id: int | None  # of the memory that had to go for it
