"""The small programming tasks: families of bugs, and what might be done about each.

The texts lie in `tasks/*.txt`. A task has a description in one or two wordings, code with a hole `@@`, what the buggy
code has there, changes that fill it otherwise, helpers, and tests `expression == expected`. A change belongs to one of
the `STRATEGIES`, which all families share: what is right in one family is a trap in another. One change of each task is
right; the others are wrong (a test fails) or slow (all pass, and take far too long).
"""

import pathlib
import textwrap
from dataclasses import dataclass, field

STRATEGIES = {
    "smallest edit": "Change only the expression that the failing test points at.",
    "shift the bound": "Move the end of a range or a slice by one.",
    "build it fresh": "Make a new object in every call, where one was shared.",
    "allow a tolerance": "Compare numbers, or round them off, with a small tolerance.",
    "stay in whole numbers": "Compute in integers all the way.",
    "sort by an explicit key": "Give the sorting or the maximum a key.",
    "treat text literally": "Take special characters of a text as themselves.",
    "look up in a hash table": "Put what is searched into a set or a dictionary first.",
    "collect and join": "Gather the pieces and put them together once.",
    "bind at once": "Bind a value when the function is made, not when it is called.",
    "name the encoding": "Decode or encode with an encoding that is named.",
    "use aware times": "Give each time its zone, and compare in UTC.",
    "loop over a snapshot": "Loop over a copy while the original changes.",
    "replace the recursion": "Use a loop with a list of what is to be done.",
    "remember results": "Keep the results of earlier calls.",
    "catch the error": "Catch the exception and go on.",
    "special-case it": "Add a branch for the input that fails.",
    "convert the type": "Convert the value to another type.",
    "copy deeply": "Work on a copy of everything.",
    "round it": "Round the result.",
}
DEFAULT = "smallest edit"  # what is tried first where nothing is known; right in routine tasks alone
ROUTINE = "routine"  # the family of those tasks
HOLE = "@@"


@dataclass(frozen=True)
class Task:
    """One task; `kinds` says of each strategy on the menu whether it is "right", "wrong" or "slow"."""

    name: str
    family: str
    wordings: list[str]
    code: str  # with the hole
    bug: str
    changes: dict[str, str] = field(default_factory=dict)  # what fills the hole, by strategy
    kinds: dict[str, str] = field(default_factory=dict)
    helpers: str = ""
    tests: list[str] = field(default_factory=list)

    @property
    def right(self) -> str:
        """The strategy that solves it."""
        return next(strategy for strategy, kind in self.kinds.items() if kind == "right")

    def source(self, strategy: str | None) -> str:
        """The code after a change; None: the buggy code."""
        return _filled(self.code, self.bug if strategy is None else self.changes[strategy])


def _filled(code: str, piece: str) -> str:
    """`code` with its hole filled; a hole that stands alone on its line passes its indentation on."""
    lines = []
    for line in code.split("\n"):
        indentation = line[: len(line) - len(line.lstrip())]
        alone = line.strip() == HOLE
        lines.append(textwrap.indent(piece, indentation) if alone else line.replace(HOLE, piece))
    return "\n".join(lines) + "\n"


def load_tasks() -> list[Task]:
    """All tasks, in the order of the files and in them."""
    files = sorted((pathlib.Path(__file__).parent / "tasks").glob("*.txt"))
    return [_parsed(block) for file in files for block in file.read_text(encoding="utf-8").split("\n== ")]


def _parsed(block: str) -> Task:
    heading, *sections = block.strip().removeprefix("== ").split("\n-- ")
    title, _, description = heading.partition("\n")
    name, _, family = title.partition(" | ")
    parts = {label: text for label, _, text in (section.partition("\n") for section in sections)}
    changes = {label: text for label, text in parts.items() if ": " in label}
    split = {strategy: (kind, text) for label, text in changes.items() for kind, _, strategy in [label.partition(": ")]}
    return Task(
        name=name,
        family=family,
        wordings=description.split("\nor\n"),
        code=parts["code"],
        bug=parts["bug"],
        changes={strategy: text for strategy, (_, text) in split.items()},
        kinds={strategy: kind for strategy, (kind, _) in split.items()},
        helpers=parts.get("helpers", ""),
        tests=parts["tests"].split("\n"),
    )
