"""How often the right memory came back: rates over facts, with bootstrap intervals over dialogues."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from examples.assistant.memories import Found
from examples.assistant.world import KINDS, Fact

RESAMPLES = 10_000
RATES = ("recalled", "heads")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one question to one memory."""

    dialogue: int  # its seed
    kind: str
    topic: str
    stumbled: bool
    recalled: bool  # the fact is among the k recalled
    heads: bool  # and it is the first of its sign: it heads the delights, or the disasters, of a prompt


GROUPS: dict[str, Callable[[Outcome], bool]] = {
    "all": lambda outcome: True,
    **{kind: lambda outcome, kind=kind: outcome.kind == kind for kind in KINDS},
    "stumbled": lambda outcome: outcome.stumbled,
    "in passing": lambda outcome: not outcome.stumbled,
}


def outcome(seed: int, fact: Fact, statement: str, found: Sequence[Found]) -> Outcome:
    """Compares what a memory recalled to what it should have."""
    delights = fact.kind == "delight"
    of_its_sign = [each.observation for each in found if (each.surprise > 0) == delights]
    return Outcome(
        seed,
        fact.kind,
        fact.topic,
        fact.stumbled,
        recalled=any(each.observation == statement for each in found),
        heads=of_its_sign[:1] == [statement],
    )


def rate(outcomes: Sequence[Outcome], what: str, group: str, against: Sequence[Outcome] = ()) -> dict[str, float]:
    """Share of the group's facts that were `what`, with its 95 % interval over resampled dialogues.

    With `against`, the difference to what another memory reached in the same dialogues.
    """
    chosen = [each for each in outcomes if GROUPS[group](each)]
    seeds = sorted({each.dialogue for each in outcomes})
    place = {seed: index for index, seed in enumerate(seeds)}
    facts, right = np.zeros(len(seeds)), np.zeros(len(seeds))
    for each in chosen:
        facts[place[each.dialogue]] += 1
        right[place[each.dialogue]] += getattr(each, what)
    for each in against:
        if GROUPS[group](each):
            right[place[each.dialogue]] -= getattr(each, what)
    drawn = np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))
    resampled = right[drawn].sum(1) / np.maximum(facts[drawn].sum(1), 1)
    low, high = np.quantile(resampled, (0.025, 0.975)).tolist()
    return {"mean": float(right.sum() / max(facts.sum(), 1)), "low": low, "high": high, "n": int(facts.sum())}


def summary(outcomes: dict[str, list[Outcome]]) -> dict:
    """Of each policy each rate in each group, and how far the first policy is ahead of it."""
    first = next(iter(outcomes.values()))
    return {
        policy: {what: {group: rate(theirs, what, group) for group in GROUPS} for what in RATES}
        | {"behind": {what: rate(first, what, "all", against=theirs) for what in RATES}}
        for policy, theirs in outcomes.items()
    }
