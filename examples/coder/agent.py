"""An agent that meets tickets, picks a change from a menu by what it recalls, runs the tests and remembers.

The vote: a recalled delight speaks for the strategy that was tried, a disaster against it, each with its RPE times a
power of the similarity. What nothing speaks for or against has the prior: the smallest edit first, the rest by chance.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from examples.coder.memories import Hint, Kept, Memory
from examples.coder.sandbox import Outcome
from examples.coder.tasks import DEFAULT, Task
from examples.coder.world import Ticket, reward_of

TRIES = 3  # at each ticket
SHARPNESS = 3.0  # power of the similarity in the vote
PRIOR = 0.05  # what speaks for the first idea, where a memory of the very place speaks with its RPE


class Choice(NamedTuple):
    """What to do about a ticket."""

    strategy: str
    code: str | None = None  # written by a model; None: the change on the menu


class Try(NamedTuple):
    """One try at a ticket, with all that led to it."""

    ticket: Ticket
    attempt: int
    menu: list[str]
    hints: list[Hint]
    votes: dict[str, float]
    choice: Choice
    outcome: Outcome
    reward: float
    kept: Kept
    held: int


def weight_of(hint: Hint) -> float:
    """What a recalled experience says for its strategy, or against it."""
    return max(hint.similarity, 0.0) ** SHARPNESS * hint.rpe


def votes_of(hints: list[Hint], menu: list[str]) -> dict[str, float]:
    """What the recalled say for (> 0) or against each strategy on the menu."""
    votes = dict.fromkeys(menu, 0.0)
    for hint in hints:
        if hint.action in votes:
            votes[hint.action] += weight_of(hint)
    return votes


class Voter:
    """Chooses by the vote, from what was not tried yet; ties by chance. `prior`: what speaks for the first idea."""

    def __init__(self, prior: float, rng: np.random.Generator):
        self._prior, self._rng = prior, rng

    def __call__(self, ticket: Ticket, menu: list[str], hints: list[Hint], advice: str) -> Choice:
        votes = votes_of(hints, menu)
        order = [menu[i] for i in self._rng.permutation(len(menu))]
        return Choice(max(order, key=lambda strategy: votes[strategy] + self._prior * (strategy == DEFAULT)))


Chooser = Callable[[Ticket, list[str], list[Hint], str], Choice]  # of a ticket, its menu, what is recalled, as text too
Run = Callable[[Task, Choice], Outcome]  # the tests of a task on what was chosen


def live(
    tickets: list[Ticket], memory: Memory, choose: Chooser, run: Run, seed: int, *, advised: bool = False
) -> list[Try]:
    """All tries of one life. `advised`: the chooser reads what is recalled as text."""
    menus = np.random.default_rng((seed, 1))
    tries = []
    for number, ticket in enumerate(tickets):
        left = [str(strategy) for strategy in menus.permutation(sorted(ticket.task.changes))]
        for attempt in range(TRIES):
            hints = memory.recall(ticket.text)
            choice = choose(ticket, left, hints, memory.rendered(hints) if advised else "")
            outcome = run(ticket.task, choice)
            reward = reward_of(outcome, np.random.default_rng((seed, 2, number, attempt)))
            kept = memory.keep(ticket.text, choice.strategy, reward)
            _learn(memory, hints, left, choice, outcome, kept.rpe)
            votes = votes_of(hints, left)
            tries.append(Try(ticket, attempt, left, hints, votes, choice, outcome, reward, kept, memory.held()))
            left = [strategy for strategy in left if strategy != choice.strategy]
            if outcome.solved:
                break
    return tries


def _learn(memory: Memory, hints: list[Hint], menu: list[str], choice: Choice, outcome: Outcome, rpe: float) -> None:
    """Feedback for the memories that the choice stood on: those of its strategy, and warnings that were heeded.

    Only those count that say something about this place: at least half as much as the loudest one.
    """
    speaks = [hint for hint in hints if hint.action in menu]
    loudest = max((abs(weight_of(hint)) for hint in speaks), default=0.0)
    said = [hint for hint in speaks if abs(weight_of(hint)) >= loudest / 2 > 0]
    relied_on = [hint for hint in said if hint.action == choice.strategy and hint.rpe > 0]
    heeded = [hint for hint in said if hint.action != choice.strategy and hint.rpe < 0]
    if outcome.solved:
        memory.feedback(relied_on + heeded, 0.0)
    elif rpe < 0:
        memory.feedback(relied_on, rpe)
