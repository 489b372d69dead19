"""One dialogue told to a person: what was stored, dropped and recalled, and why; and what the assistant answers."""

import collections

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dmem_jax import Params
from dmem_jax.agent import render_prompt
from examples.assistant import chat
from examples.assistant.life import Life, terms_of
from examples.assistant.rewards import reward

SHOWN = 3  # exchanges of a fate that are shown
BUDGET = 1000  # tokens of a prompt: room for all that is recalled


def tell(life: Life, params: Params, console: Console) -> list[dict[str, str]]:
    """Prints it all. Returns each question with the prompt and the answer to it."""
    dialogue = life.dialogue
    weeks = (dialogue.asked - dialogue.exchanges[0].time).days // 7
    console.rule(f"User {dialogue.seed}: {len(dialogue.exchanges)} exchanges in {weeks} weeks")
    fates = collections.Counter(added.route for added in life.added)
    console.print("What became of them: " + ", ".join(f"{count} {fate}" for fate, count in fates.most_common()))
    console.print(_named(life))
    console.print(_fates(life, params))
    answers = []
    for fact, recalled in zip(dialogue.facts, life.recalled, strict=True):
        console.print(_recalled(life, fact.question, params))
        prompt = render_prompt(recalled[: life.k], budget=BUDGET)
        answers.append(
            {
                "question": fact.question,
                "prompt": prompt,
                "answer": chat.answer(fact.question, prompt, recalled[: life.k]),
            }
        )
        console.print(f"[bold]The assistant:[/bold] {escape(answers[-1]['answer'])}\n")
    console.print("What the model is given with the last question:\n" + escape(answers[-1]["prompt"]), style="dim")
    return answers


def _named(life: Life) -> Table:
    table = Table(title="Named once, weeks before it matters")
    for name in ("kind", "day", "the assistant", "the user", "reward", "RPE", "size", "route"):
        table.add_column(name, justify="right" if name in ("day", "reward", "RPE", "size") else "left")
    for fact in life.dialogue.facts:
        exchange, added = life.dialogue.exchanges[fact.told], life.added[fact.told]
        day = (exchange.time - life.dialogue.exchanges[0].time).days
        numbers = f"{reward(exchange):+.2f}", f"{added.rpe:+.2f}", f"{added.size:.1f}"
        table.add_row(fact.kind, str(day), escape(exchange.action), escape(exchange.reply), *numbers, added.route)
    return table


def _fates(life: Life, params: Params) -> Table:
    """The most surprising exchanges of each fate, which shows where the thresholds lie."""
    low, high = float(params.threshold_low), float(params.threshold_high)
    table = Table(
        title=f"Up to size {low:g} an exchange is dropped, above {high:g} it goes to core; of each fate, the last"
    )
    for name in ("fate", "size", "RPE", "the user"):
        table.add_column(name, justify="right" if name in ("size", "RPE") else "left")
    pairs = list(zip(life.dialogue.exchanges, life.added, strict=True))
    for fate in ("dropped", "buffer", "core", "refused", "refreshed", "merged"):
        for exchange, added in [pair for pair in pairs if pair[1].route == fate][-SHOWN:]:
            table.add_row(fate, f"{added.size:.1f}", f"{added.rpe:+.2f}", escape(exchange.reply))
    return table


def _recalled(life: Life, question: str, params: Params) -> Table:
    place = [fact.question for fact in life.dialogue.facts].index(question)
    fact, recalled = life.dialogue.facts[place], life.recalled[place]
    statement = life.dialogue.exchanges[fact.told].reply
    held = any(memory.observation == statement for memory in recalled)
    rank = next((i for i, memory in enumerate(recalled, start=1) if memory.observation == statement), 0)
    fate = f"of rank {rank}" if held else "no longer held"
    table = Table(title=f"{escape(question)}   (the {fact.kind} is {fate})")
    for name in ("score", "meaning", "salience", "cosine", "strength", "RPE", "kept in", "memory"):
        table.add_column(name, justify="left" if name in ("kept in", "memory") else "right")
    for memory, meaning, salience in zip(recalled[: life.k], *terms_of(recalled, params), strict=False):
        numbers = memory.score, meaning, salience, memory.similarity, memory.strength
        style = "bold green" if memory.observation == statement else None
        cells = [f"{number:.2f}" for number in numbers] + [f"{memory.rpe:+.2f}", memory.tier]
        table.add_row(*cells, escape(memory.observation), style=style)
    return table
