"""The main job: thousands of agents live through the same worlds with different memories.

    python -m examples.demo            (or: make demo)

Prints a table, and writes `out/demo/results.json` and pictures beside it. `agent.py` says how the agents act,
`policies.py` what the memories keep, `world.py` where they live, `tune.py` how the free settings were found.
"""

import argparse
import functools
import itertools
import json
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import dmem_jax as dmem
from examples import agent, pictures, policies, world
from examples.policies import POLICIES, Policy

CAPACITIES = (8, 16, 64)  # slots in all
SETTINGS = ("stationary", "moved")  # the find stays, or is elsewhere from half-time on
WORLDS = 512  # independent ones, none of them seen in tuning
SEED = 7919
WORKERS = 2  # programs compiled or run at once
EXAMPLES = 64  # lives of which every hour is kept, for the pictures
LATE = world.DAYS * 3 // 4  # the last quarter of a life


class Lives(NamedTuple):
    """What is kept of many lives; leading axis: the lives, first all stationary ones, then all with the move."""

    memory: dmem.Memory  # at the end
    returns: np.ndarray | jax.Array  # [lives, DAYS]
    deaths: np.ndarray | jax.Array  # [lives, DAYS], bool
    again: np.ndarray | jax.Array  # [lives, DAYS], bool: deaths in a cell that had killed this agent before
    evenings: agent.Evening  # [lives, DAYS]
    hours: agent.Hour  # [EXAMPLES, DAYS, HOURS]


@functools.partial(jax.jit, static_argnames=("family",), donate_argnames=("memories",))
def _live(family, traits, config, params, critic_rate, memories, keys, moves):
    one = functools.partial(agent.live, family, traits, config, params, critic_rate)
    memories, hours, evenings = jax.vmap(one)(memories, keys, moves)
    deaths, again = jax.vmap(deaths_of)(hours)
    return Lives(memories, hours.reward.sum(-1), deaths, again, evenings, jax.tree.map(lambda x: x[:EXAMPLES], hours))


def deaths_of(hours: agent.Hour) -> tuple[jax.Array, jax.Array]:
    """Of one life [DAYS, HOURS]: whether each day ended in death, and in a cell that had killed before, [DAYS] each.

    The first death in a cell is the price of finding out; only a second one says that a memory failed.
    """
    died = hours.reward == world.DEATH  # once a day at most
    cell = jnp.where(died, hours.place[..., 0] * world.SIDE + hours.place[..., 1], -1).max(-1)
    earlier = jnp.tri(cell.size, k=-1, dtype=bool)
    return died.any(-1), died.any(-1) & ((cell[:, None] == cell[None, :]) & earlier).any(-1)


def live(policy: Policy, slots: int, worlds: int, seed: int) -> Lives:
    """`worlds` lives in which the find stays, and as many in the same worlds in which it moves."""
    config = policies.config_of(policy.family, slots)
    tuned = policies.tuned_for(policy, slots)
    params = policies.params_of(policy.family, config, tuned)
    keys = jax.random.split(jax.random.key(seed), worlds)
    return jax.device_get(
        _live(
            policy.family,
            policy.traits(),
            config,
            params,
            jnp.float32(tuned.get("critic_rate", policies.CRITIC_RATE)),
            dmem.init(config, policies.PAYLOAD, batch_shape=(2 * worlds,)),
            jnp.concatenate([keys, keys]),
            jnp.arange(2 * worlds) >= worlds,
        )
    )


def interval(samples: np.ndarray) -> dict[str, float]:
    """Mean over independent worlds, with its 95 % interval."""
    samples = samples.astype(np.float64)
    mean, half = samples.mean(), 1.96 * samples.std(ddof=1) / np.sqrt(samples.size)
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": samples.size}


def measure(lives: Lives, setting: str) -> dict[str, np.ndarray]:
    """One number per world."""
    half = lives.returns.shape[0] // 2
    chosen = slice(0, half) if setting == "stationary" else slice(half, None)
    stats = lives.memory.stats
    counts = {
        "written": stats.stored + stats.merged + stats.refreshed,
        "dropped": stats.dropped + stats.refused,
        "kept": lives.evenings.core[:, -1] + lives.evenings.buffer[:, -1],
    }
    return {
        "return": np.asarray(lives.returns[chosen, LATE:]).mean(-1),
        "deaths": 100.0 * np.asarray(lives.deaths[chosen, LATE:]).mean(-1),
        "deaths_in_life": 100.0 * np.asarray(lives.deaths[chosen]).mean(-1),
        "deaths_again": 100.0 * np.asarray(lives.again[chosen]).mean(-1),
        "find_known": np.asarray(lives.evenings.knows_find[chosen, -1]),
        **{name: np.asarray(count[chosen]) for name, count in counts.items()},
    }


def run(worlds: int, console: Console) -> dict[tuple[str, int], Lives]:
    """All policies at all capacities."""
    results: dict[tuple[str, int], Lives] = {}
    families = sorted({policy.family for policy in POLICIES})
    columns = TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(WORKERS) as workers:
        bar = progress.add_task("compiling", total=len(CAPACITIES) * len(POLICIES))

        def live_family(slots: int, family: str) -> None:
            # Policies of one family share a program. While one family lives, the next is compiled.
            for policy in POLICIES:
                if policy.family == family:
                    if policy.keeps or slots == CAPACITIES[-1]:
                        results[policy.name, slots] = live(policy, slots, worlds, SEED)
                    progress.update(bar, advance=1, description=f"{policy.name}, {slots} slots: done")

        for job in [workers.submit(live_family, *job) for job in itertools.product(CAPACITIES[::-1], families)]:
            job.result()
    for slots, policy in itertools.product(CAPACITIES, POLICIES):
        if not policy.keeps:  # no memory is the same at any capacity
            results[policy.name, slots] = results[policy.name, CAPACITIES[-1]]
    return results


def summarise(results: dict[tuple[str, int], Lives]) -> dict:
    """Everything that is reported, as it goes into results.json."""
    settings: dict = {}
    for setting, slots in itertools.product(SETTINGS, CAPACITIES):
        measured = {policy.name: measure(results[policy.name, slots], setting) for policy in POLICIES}
        settings.setdefault(setting, {})[str(slots)] = {
            name: {
                **{what: interval(samples) for what, samples in numbers.items()},
                "dmem_minus_this": interval(measured["dmem"]["return"] - numbers["return"]),
                "dmem_minus_this_deaths": interval(measured["dmem"]["deaths"] - numbers["deaths"]),
            }
            for name, numbers in measured.items()
        }
    shown = settings["stationary"]["16"]
    return {
        "policies": {name: numbers["return"] for name, numbers in shown.items()},
        "settings": settings,
        "tuned": json.loads(policies.TUNED.read_text()),
    }


def table(summary: dict, setting: str) -> Table:
    """The results of one setting for a person."""
    what = {"stationary": "The find stays", "moved": "The find moves at half-time"}[setting]
    grid = Table(title=f"{what}: last quarter of life, means over worlds; +- is half of the 95 % interval")
    grid.caption = "deaths: of 100 days; again: in a cell that had killed this agent before, of all days of its life"
    grid.add_column("slots", justify="right", no_wrap=True)
    grid.add_column("memory", no_wrap=True)
    for name in (
        "return a day",
        "dmem - this",
        "deaths, %",
        "again, %",
        "find known",
        "written",
        "dropped",
        "kept",
    ):
        grid.add_column(name, justify="right", no_wrap=True)

    def shown(numbers: dict[str, float], digits: int = 1) -> str:
        return f"{numbers['mean']:.{digits}f} +-{numbers['high'] - numbers['mean']:.{digits}f}"

    for slots, by_policy in summary["settings"][setting].items():
        for name, numbers in by_policy.items():
            grid.add_row(
                slots,
                name,
                shown(numbers["return"]),
                "" if name == "dmem" else shown(numbers["dmem_minus_this"]),
                shown(numbers["deaths"]),
                shown(numbers["deaths_again"]),
                f"{numbers['find_known']['mean']:.0%}",
                *(f"{numbers[count]['mean']:.0f}" for count in ("written", "dropped", "kept")),
                end_section=name == POLICIES[-1].name,
            )
    return grid


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; its folder exists from here on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=WORLDS, help="independent worlds, >= 2 (default %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/demo"), help="default %(default)s")
    parsed = parser.parse_args(arguments)
    if parsed.worlds < 2:
        parser.error(f"--worlds: expected at least 2, for an interval, got {parsed.worlds}")
    try:
        parsed.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: expected a folder, got {parsed.out}: {error}")
    return parsed


def main() -> None:
    """Run all, print the table, write results and pictures."""
    arguments = parse()
    console, start = Console(width=max(124, Console().width)), time.perf_counter()
    console.print(f"{2 * arguments.worlds} agents at once, each for {world.DAYS} days of {world.HOURS} hours")
    results = run(arguments.worlds, console)
    summary = summarise(results) | {"worlds": arguments.worlds, "seconds": time.perf_counter() - start}
    for setting in SETTINGS:
        console.print(table(summary, setting))
    (arguments.out / "results.json").write_text(json.dumps(summary, indent=1) + "\n")
    pictures.draw_all(summary, results, arguments.out)
    console.print(f"{time.perf_counter() - start:.0f} s; results.json and pictures are in {arguments.out}/")


if __name__ == "__main__":
    main()
