"""What may matter in a dialogue: `harms.py` and `delights.py` list such topics.

In one dialogue one thing of a topic is the fact; the `usual` ones are the assistant's everyday suggestions about the
same matter, before and after. Statements hardly ever use a word of their topic's questions, and the world takes no pair
that does.
"""

import dataclasses
from typing import Literal

Kind = Literal["allergy", "harm", "delight"]


@dataclasses.dataclass(frozen=True)
class Topic:
    """One matter in which something may harm or delight; `{thing}` and `{usual}` stand for words of its lists."""

    name: str
    kind: Kind
    things: tuple[str, ...]  # what may harm or delight
    statements: tuple[str, ...]  # the user's words for it
    stumbles: tuple[str, ...]  # the assistant, not knowing, comes up with it
    questions: tuple[str, ...]  # where it matters, weeks later
    usual: tuple[str, ...]  # of no importance
    offers: tuple[str, ...]  # the assistant suggests that


def lines(text: str) -> tuple[str, ...]:
    """Each line of it."""
    return tuple(line.strip() for line in text.strip().splitlines())


def listed(text: str) -> tuple[str, ...]:
    """What stands between its commas."""
    return tuple(" ".join(item.split()) for item in text.split(","))
