"""A coding agent that learns from test results, run times and ratings which fixes help and which are traps.

    python -m examples.coder                 (some minutes; --quick: half a minute)

Each life is a stream of small tickets, most of them routine. At each the agent picks a change from a menu, has at most
three tries, and remembers how they went; policies differ in nothing but what they remember. Prints a table and one
family's tale, writes results.json and a picture. The tests of every change really run, in a sandbox, once for all
lives: but for its run time a change does the same each time.

With OPENAI_BASE_URL and OPENAI_API_KEY a chat model chooses, or writes, the changes in one life with and one without
the memory.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import time
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dmem_jax.errors import DmemError
from examples import encoding
from examples.coder import pictures, report
from examples.coder.agent import PRIOR, Choice, Try, Voter, live
from examples.coder.chat import ChatChooser, ChatError
from examples.coder.memories import Backend, Memory, Nearest, Nothing
from examples.coder.sandbox import Outcome, measure, run_tests
from examples.coder.tasks import ROUTINE, Task, load_tasks
from examples.coder.world import Ticket, stream

# Memories of dmem_jax and of `similarity`: one in six of a life's experiences. There are 42 tasks with traps and two
# things to know of each; with 32 dmem_jax solves twice as many traps as `similarity`, but in all hardly more than no
# memory does, since warnings from other tasks spoil routine ones.
CAPACITY = 64
CORE = 4  # of dmem_jax's slots one in so many is core
FIRST_SEED = 7000  # of the reported lives; settings were found on seeds below 100
SEEDS = 20
OURS = "dmem_jax"
POLICIES = (OURS, "similarity", "similarity, all", "none", "random")
QUICK_FAMILIES = 4


def make_memory(policy: str, encoder: encoding.Once, capacity: int) -> Memory:
    """A new one."""
    if policy == OURS:
        return Backend(encoder, (capacity // CORE, capacity - capacity // CORE))
    if policy.startswith("similarity"):
        return Nearest(encoder, None if policy.endswith("all") else capacity)
    return Nothing()


class World(NamedTuple):
    """What all lives share."""

    tasks: list[Task]
    outcomes: dict[tuple[str, str | None], Outcome]  # by a task's name and a strategy; None: of the buggy code
    encoder: encoding.Once

    def tickets(self, seed: int) -> list[Ticket]:
        """Of one life."""
        return stream(self.tasks, {task.name: self.outcomes[task.name, None].message for task in self.tasks}, seed)

    def run(self, task: Task, choice: Choice) -> Outcome:
        """The tests of what was chosen; those of a change on the menu have run already."""
        if choice.code is None:
            return self.outcomes[task.name, choice.strategy]
        return run_tests(choice.code, task.tests, task.helpers)


def run_life(world: World, policy: str, capacity: int, seed: int) -> list[Try]:
    """One life of a policy that votes."""
    choose = Voter(0.0 if policy == "random" else PRIOR, np.random.default_rng((seed, 3)))
    with contextlib.closing(make_memory(policy, world.encoder, capacity)) as memory:
        return live(world.tickets(seed), memory, choose, world.run, seed)


def run_chat(world: World, policy: str, capacity: int, seed: int, chooser: ChatChooser, tickets: int) -> list[Try]:
    """The start of one life in which a chat model chooses."""
    with contextlib.closing(make_memory(policy, world.encoder, capacity)) as memory:
        return live(world.tickets(seed)[:tickets], memory, chooser, world.run, seed, advised=True)


def few(tasks: list[Task]) -> list[Task]:
    """For a quick look: some families, and routine."""
    families = sorted({task.family for task in tasks} - {ROUTINE})[:QUICK_FAMILIES]
    return [task for task in tasks if task.family in (*families, ROUTINE)]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; its folder exists from here on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help=f"lives of each policy, >= 2 (default {SEEDS}; quick 2)")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="default %(default)s")
    parser.add_argument("--encoder", help=encoding.HELP)
    parser.add_argument("--capacity", type=int, default=CAPACITY, help="memories (default %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="sandboxes at once (default %(default)s)")
    parser.add_argument("--tickets", type=int, default=40, help="in a chat model's life (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few tasks and lives, hashed words")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/coder"), help="default %(default)s")
    parsed = parser.parse_args(arguments)
    parsed.seeds = parsed.seeds if parsed.seeds is not None else 2 if parsed.quick else SEEDS
    if parsed.quick and parsed.encoder is None:
        parsed.encoder = encoding.HASHED
    for name, least in (("seeds", 2), ("capacity", CORE), ("workers", 1), ("tickets", 1)):
        if getattr(parsed, name) < least:
            parser.error(f"--{name}: expected at least {least}, got {getattr(parsed, name)}")
    try:
        parsed.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: expected a folder, got {parsed.out}: {error}")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    """Run all, print the table, write results and the picture."""
    asked = parse(arguments)
    console, start = Console(width=max(180, Console().width)), time.perf_counter()
    tasks = few(load_tasks()) if asked.quick else load_tasks()
    encoder, chooser = encoding.Once(encoding.load(asked.encoder)), ChatChooser.from_environment()
    console.print(f"{len(tasks)} tasks, {asked.capacity} memories at most, encoder {encoder.name}")
    columns = TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("tests of all changes")
        outcomes = measure(tasks, asked.workers, lambda done, of: progress.update(bar, completed=done, total=of))
        lives = _live_all(asked, World(tasks, outcomes, encoder), chooser, progress)
    summary, dmem_lives = report.summarise(lives, OURS), lives[OURS]
    written = {
        "policies": summary,
        "routes": report.routes(dmem_lives),
        "tasks": len(tasks),
        "seeds": len(dmem_lives),
        "encoder": encoder.name,
        "capacity": asked.capacity,
        "seconds": time.perf_counter() - start,
    }
    (asked.out / "results.json").write_text(json.dumps(written, indent=1) + "\n")
    pictures.draw(summary, dmem_lives, asked.out / "coder.png")
    for line in report.tale(dmem_lives[0], _told_family(dmem_lives[0])):
        console.print(line, highlight=False)
    console.print(report.table(summary, OURS, len(dmem_lives)))
    shares = ", ".join(f"{route} {share:.0%}" for route, share in written["routes"].items())
    console.print(f"{OURS}'s experiences: {shares}")
    if chooser:
        console.print(f"replies that named nothing on the menu: {chooser.unusable}")
    console.print(f"{time.perf_counter() - start:.0f} s; results.json and coder.png are in {asked.out}/")


def _live_all(asked: argparse.Namespace, world: World, chooser: ChatChooser | None, progress: Progress) -> report.Lives:
    """A chat model lives once with each of two policies, the vote with each policy once for each seed."""
    policies = (OURS, "none") if chooser else POLICIES
    seeds = range(asked.first_seed, asked.first_seed + (1 if chooser else asked.seeds))
    bar = progress.add_task("encoding", total=len(policies) * len(seeds))
    world.encoder([ticket.text for seed in seeds for ticket in world.tickets(seed)])
    lives: report.Lives = {policy: [] for policy in policies}
    for policy, seed in itertools.product(policies, seeds):
        progress.update(bar, description=f"lives: {policy}")
        if chooser:
            lives[policy].append(run_chat(world, policy, asked.capacity, seed, chooser, asked.tickets))
        else:
            lives[policy].append(run_life(world, policy, asked.capacity, seed))
        progress.advance(bar)
    return lives


def _told_family(life: list[Try]) -> str:
    """The family with traps that was met most, the first of them."""
    met = [one.ticket.task.family for one in report.firsts(life) if one.ticket.task.family != ROUTINE]
    return max(sorted(set(met)), key=met.count, default=ROUTINE)


if __name__ == "__main__":
    try:
        main()
    except (DmemError, ChatError) as error:  # an encoder that is not installed, a server that does not answer
        raise SystemExit(str(error)) from error
