"""The stream of tickets that an agent meets, and what each change is worth to it.

Most tickets are routine, where the first idea works. The others come from families of bugs, whose tasks are told in
other words each time and where the first idea is a trap. All of it was laid down before any result was seen.
"""

from typing import NamedTuple

import numpy as np

from examples.coder.sandbox import Outcome
from examples.coder.tasks import ROUTINE, Task

ROUTINE_SHARE = 0.7  # of all tickets
MEETINGS = 2  # with each task that is not routine, each time in another wording
OPENINGS = ("", "From support: ", "Mara writes: ", "Seen in the nightly run: ", "Reported twice this week: ", "Again: ")
CLOSINGS = ("", " Please have a look.", " A customer is waiting.", " No hurry.", " It came up in the review.")

TESTS, SPEED, RATING = 0.5, 0.3, 0.2  # what the parts of a reward weigh
STARS = {"solved": 4.6, "slow": 2.4, "failed": 1.8}  # a user's rating, 1 to 5, on average ...
STARS_NOISE = 1.0  # ... and its standard deviation before it is rounded and clipped


class Ticket(NamedTuple):
    """One meeting with a task."""

    task: Task
    text: str  # what the agent sees: the description and the failing test's message


def stream(tasks: list[Task], messages: dict[str, str], seed: int) -> list[Ticket]:
    """The tickets of one life in random order. `messages`: of the failing test of each task's buggy code, by name."""
    rng = np.random.default_rng((seed, 0))
    hard = [task for task in tasks if task.family != ROUTINE]
    routine = [task for task in tasks if task.family == ROUTINE]
    met = [(task, task.wordings[i % len(task.wordings)]) for task in hard for i in range(MEETINGS)]
    for i in range(round(len(met) * ROUTINE_SHARE / (1 - ROUTINE_SHARE))):
        task = routine[i % len(routine)]
        met.append((task, task.wordings[i // len(routine) % len(task.wordings)]))
    tickets = []
    for place in rng.permutation(len(met)):
        task, wording = met[place]
        dressed = f"{rng.choice(OPENINGS)}{wording}{rng.choice(CLOSINGS)}"
        tickets.append(Ticket(task, f"{dressed} Failing test: {messages[task.name]}"))
    return tickets


def reward_of(outcome: Outcome, rng: np.random.Generator) -> float:
    """In [-1, 1]: the tests (1, or minus the share that fails), the run time of a change that passes, and a rating.

    Tests that never ended cost the full time, too. The rating is noisy: one to five stars.
    """
    passes = outcome.passed == outcome.tests
    tests = 1.0 if passes else outcome.passed / outcome.tests - 1.0
    speed = 0.0 if outcome.fast and not passes else 1.0 if outcome.fast else -1.0
    kind = "solved" if outcome.solved else "slow" if passes else "failed"
    stars = np.clip(np.rint(rng.normal(STARS[kind], STARS_NOISE)), 1, 5)
    return float(TESTS * tests + SPEED * speed + RATING * (stars - 3) / 2)
