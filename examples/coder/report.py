"""What came of the lives: numbers with intervals, a table, and the tale of one family of tasks."""

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from examples.coder.agent import PRIOR, Try
from examples.coder.tasks import DEFAULT, ROUTINE

RESAMPLES = 10_000
BLOCKS = 10  # of a learning curve
Interval = dict[str, Any]  # mean, low, high: numbers, or None where there was nothing to measure; n
Lives = dict[str, list[list[Try]]]  # by policy, a life for each seed


def firsts(life: list[Try]) -> list[Try]:
    """The first tries alone, one for each ticket."""
    return [one for one in life if one.attempt == 0]


def _mean(numbers: list[float]) -> float:
    return float(np.mean(numbers)) if numbers else float("nan")


def _solved(tries: list[Try]) -> float:
    return _mean([one.outcome.solved for one in tries])


def _hard(tries: list[Try]) -> list[Try]:
    return [one for one in tries if one.ticket.task.family != ROUTINE]


def _early(tries: list[Try]) -> list[Try]:
    return tries[: len(tries) // 2]


def _late(tries: list[Try]) -> list[Try]:
    return tries[len(tries) // 2 :]


MEASURES: dict[str, Callable[[list[Try]], float]] = {
    "solved": lambda life: _solved(firsts(life)),
    "solved_early": lambda life: _solved(_early(firsts(life))),
    "solved_late": lambda life: _solved(_late(firsts(life))),
    "traps_solved_early": lambda life: _solved(_hard(_early(firsts(life)))),
    "traps_solved_late": lambda life: _solved(_hard(_late(firsts(life)))),
    "routine_solved": lambda life: _solved([one for one in firsts(life) if one.ticket.task.family == ROUTINE]),
    "reward_early": lambda life: _mean([one.reward for one in _early(firsts(life))]),
    "reward_late": lambda life: _mean([one.reward for one in _late(firsts(life))]),
    "tries": lambda life: len(life) / len(firsts(life)),
}
"""Of one life: shares solved at the first try (by halves of the life; in routine tasks and in the others), mean reward
of the first try, tries a ticket."""


def interval(samples: np.ndarray) -> Interval:
    """Mean over seeds, with its 95 % bootstrap interval; of those where there was something to measure."""
    samples = samples[np.isfinite(samples)]
    if not samples.size:
        return {"mean": None, "low": None, "high": None, "n": 0}
    rng = np.random.default_rng(0)
    means = rng.choice(samples, (RESAMPLES, samples.size)).mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return {"mean": float(samples.mean()), "low": float(low), "high": float(high), "n": samples.size}


def summarise(lives: Lives, against: str) -> dict:
    """Everything that is reported, by policy. `against`: the policy whose difference to each is taken seed by seed."""
    found = {}
    numbers = {
        policy: {name: np.array([measure(life) for life in of_seeds]) for name, measure in MEASURES.items()}
        for policy, of_seeds in lives.items()
    }
    for policy, of_seeds in lives.items():
        found[policy] = {name: interval(samples) for name, samples in numbers[policy].items()}
        found[policy]["advantage"] = {
            name: interval(numbers[against][name] - samples) for name, samples in numbers[policy].items()
        }
        found[policy]["curve"] = [interval(block) for block in _curve(of_seeds)]
        found[policy]["held"] = float(np.mean([life[-1].held for life in of_seeds]))
    return found


def _curve(of_seeds: list[list[Try]]) -> np.ndarray:
    """[BLOCKS at most, seeds] shares of the tasks with traps that were solved at the first try, by part of the life."""
    solved = np.array([[one.outcome.solved for one in _hard(firsts(life))] for life in of_seeds], float)
    blocks = np.array_split(solved, min(BLOCKS, max(solved.shape[1], 1)), axis=1)
    return np.array([block.mean(1) for block in blocks if block.size])


def table(summary: dict, against: str, seeds: int) -> Table:
    """The results for a person."""
    grid = Table(title=f"First tries, means over {seeds} lives [95 % bootstrap interval]")
    grid.caption = (
        "traps: tickets whose first idea is wrong or slow; early, late: halves of a life; "
        f"advantage: {against} less this, in solved traps, late"
    )
    grid.add_column("memory", no_wrap=True)
    columns = ("traps_solved_early", "traps_solved_late", "routine_solved", "solved_late", "reward_late", "tries")
    for name in (*columns, "advantage", "held"):
        grid.add_column(name.replace("_", " "), justify="right")
    for policy, numbers in summary.items():
        advantage = "" if policy == against else _shown(numbers["advantage"]["traps_solved_late"], signed=True)
        grid.add_row(policy, *(_shown(numbers[name]) for name in columns), advantage, f"{numbers['held']:.0f}")
    return grid


def _shown(number: Interval, *, signed: bool = False) -> str:
    if not number["n"]:
        return "-"
    sign = "+" if signed else ""
    return f"{number['mean']:{sign}.2f} \\[{number['low']:{sign}.2f}, {number['high']:{sign}.2f}]"


def tale(life: list[Try], family: str) -> list[str]:
    """What was recalled, chosen, met and kept at each meeting with a family, and why: lines for a console."""
    lines = [f"[bold]One life's meetings with the family '{family}'[/]"]
    for one in life:
        if one.ticket.task.family != family:
            continue
        text = one.ticket.text if len(one.ticket.text) <= 150 else one.ticket.text[:147] + "..."
        lines.append(f"\n[bold]{one.ticket.task.name}[/], try {one.attempt + 1}: {escape(text)}")
        for hint in one.hints[:3]:
            scores = getattr(hint.source, "score", None)
            why = f"score {scores:.2f}, salience {hint.source.salience:.2f}, " if scores is not None else ""
            place = getattr(hint.source, "observation", "")[:60]
            lines.append(
                f"  recalled ({why}cosine {hint.similarity:.2f}, rpe {hint.rpe:+.2f}) {hint.action} at: {escape(place)}"
            )
        spoken = [f"{name} {vote:+.2f}" for name, vote in one.votes.items() if abs(vote) >= PRIOR / 10]
        lines.append(f"  votes: {', '.join(spoken) or 'none'} (prior: {DEFAULT} {PRIOR:+.2f})")
        outcome, kept = one.outcome, one.kept
        verdict = "solved" if outcome.solved else "too slow" if outcome.passed == outcome.tests else "failed"
        tests = f"{outcome.passed}/{outcome.tests} tests in {outcome.seconds:.2f} s"
        lines.append(
            f"  chose {one.choice.strategy}: {verdict}, {tests}; reward {one.reward:+.2f}, "
            f"rpe {kept.rpe:+.2f} = {kept.size:.1f} x the average surprise: {kept.route}"
        )
    return lines


def routes(lives: list[list[Try]]) -> dict[str, float]:
    """Share of all experiences by what became of them."""
    all_routes = [one.kept.route for life in lives for one in life]
    return {route: all_routes.count(route) / len(all_routes) for route in sorted(set(all_routes))}
