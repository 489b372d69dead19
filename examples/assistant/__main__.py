"""A dialogue assistant that, weeks later, still avoids what harmed and offers what delighted.

    python -m examples.assistant            (--quick: six short dialogues)

Users talk with it for weeks; an allergy, another harm and a delight come up once each among hundreds of exchanges.
Weeks later a question comes where they matter, in other words. Printed, and written to `out/assistant/`: how often the
right memory came back, for D-MEM and for others of the same capacity, pictures, and one dialogue in full. No network
and no chat model are needed; with OPENAI_BASE_URL and OPENAI_API_KEY set, a chat model writes the answers (OPENAI_MODEL
names another).
"""

import argparse
import json
import pathlib
import time

from rich.console import Console
from rich.progress import track
from rich.table import Table

from dmem_jax import Params
from examples import encoding
from examples.assistant import chat, life, memories, pictures, scoring, walk, world

DIALOGUES, WEEKS, SEED = 60, 8, 7919
QUICK_DIALOGUES, QUICK_WEEKS, QUICK_SEED = 6, 4, 100
RECALLED = 8  # memories per question, the backend's default


def run(
    dialogues: list[world.Dialogue], encoder: encoding.Once, console: Console
) -> tuple[dict[str, list[scoring.Outcome]], list[life.Life]]:
    """Each dialogue with each memory."""
    outcomes: dict[str, list[scoring.Outcome]] = {policy: [] for policy in memories.POLICIES}
    lives = []
    for dialogue in track(dialogues, "dialogues", console=console):
        encoder([exchange.reply for exchange in dialogue.exchanges])  # at once, which is faster
        for policy in memories.POLICIES[1:]:
            outcomes[policy] += life.outcomes(policy, encoder, dialogue, RECALLED)
        found, lived = life.watched(encoder, dialogue, RECALLED)
        outcomes[memories.POLICIES[0]] += found
        lives.append(lived)
    return outcomes, lives


def table(summary: dict, what: str) -> Table:
    """One rate of all memories, for a person."""
    titles = {
        "recalled": f"The fact is among the {RECALLED} recalled",
        "heads": "It is also the first of its sign: it heads the delights, or the disasters, of the prompt",
    }
    grid = Table(title=f"{titles[what]}; 95 % intervals over dialogues")
    grid.add_column("memory", no_wrap=True)
    for name in (*scoring.GROUPS, "dmem_jax - this"):
        grid.add_column(name, justify="right", no_wrap=True)

    def shown(numbers: dict[str, float]) -> str:
        return f"{numbers['mean']:.2f} [{numbers['low']:.2f}, {numbers['high']:.2f}]"

    for policy, rates in summary.items():
        behind = "" if policy == memories.POLICIES[0] else shown(rates["behind"][what])
        grid.add_row(policy, *(shown(rates[what][group]) for group in scoring.GROUPS), behind)
    return grid


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; its folder exists from here on."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.assistant", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_DIALOGUES} dialogues of {QUICK_WEEKS} weeks")
    parser.add_argument("--dialogues", type=int, help=f"how many, >= 2 (default {DIALOGUES})")
    parser.add_argument("--seed", type=int, help=f"of the first dialogue (default {SEED}; --quick: {QUICK_SEED})")
    parser.add_argument(
        "--encoder",
        help=encoding.HELP,
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/assistant"), help="default %(default)s")
    parsed = parser.parse_args(arguments)
    parsed.dialogues = parsed.dialogues or (QUICK_DIALOGUES if parsed.quick else DIALOGUES)
    parsed.seed = (QUICK_SEED if parsed.quick else SEED) if parsed.seed is None else parsed.seed
    if parsed.dialogues < 2:
        parser.error(f"--dialogues: expected at least 2, for an interval, got {parsed.dialogues}")
    try:
        parsed.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: expected a folder, got {parsed.out}: {error}")
    return parsed


def main(arguments: list[str] | None = None) -> dict:
    """Run all; print tables and one dialogue; write results and pictures. Returns what is in results.json."""
    asked = parse(arguments)
    console, start = Console(width=max(180, Console().width)), time.perf_counter()
    encoder = encoding.Once(encoding.load(asked.encoder))
    weeks = QUICK_WEEKS if asked.quick else WEEKS
    dialogues = [world.dialogue(seed, weeks) for seed in range(asked.seed, asked.seed + asked.dialogues)]
    exchanges = sum(len(dialogue.exchanges) for dialogue in dialogues)
    console.print(
        f"{len(dialogues)} dialogues of {weeks} weeks, {exchanges} exchanges; {memories.CAPACITY} memories per user "
        f"(everything: no limit); encoder {encoder.name}"
    )
    outcomes, lives = run(dialogues, encoder, console)
    summary = scoring.summary(outcomes)
    for what in scoring.RATES:
        console.print(table(summary, what))
    params = Params.default(lives[0].config, **memories.PARAMS)
    answers = walk.tell(lives[0], params, console)
    pictures.draw_all(summary, lives, params, asked.out)
    results = {
        "dialogues": len(dialogues),
        "weeks": weeks,
        "first_seed": asked.seed,
        "exchanges": exchanges,
        "encoder": encoder.name,
        "capacity": memories.CAPACITY,
        "recalled": RECALLED,
        "params": memories.PARAMS,
        "keyword_weight": memories.KEYWORD_WEIGHT,
        "policies": summary,
        "outcomes": {policy: [vars(each) for each in theirs] for policy, theirs in outcomes.items()},
        "answered_by": "chat model" if chat.available() else "template",
        "answers": answers,
        "seconds": time.perf_counter() - start,
    }
    (asked.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"{results['seconds']:.0f} s; results.json and pictures are in {asked.out}/")
    return results


if __name__ == "__main__":
    main()
