"""LoCoMo (snap-research, CC BY-NC 4.0): dialogues over many sessions, and questions whose answers stand in known turns.

Its text is read from a folder that the user names, and neither it nor what is made of it is kept here.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from dmem_jax.errors import ArgumentValueError


@dataclasses.dataclass(frozen=True)
class Dialogue:
    """turns: texts, in their order. questions: texts, and for each the turns that answer it, at least one."""

    turns: list[str]
    questions: list[str]
    evidence: list[list[int]]


def read(folder: str | Path) -> list[Dialogue]:
    """Of every *.json in `folder` that is a list of LoCoMo's dialogues.

    Raises:
      ArgumentValueError: there is none, or one is something else; named.
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise ArgumentValueError(f"--folder: expected a folder with LoCoMo's JSON, got {str(folder)!r}.")
    found = []
    for file in files:
        try:
            found += [_dialogue(sample) for sample in json.loads(file.read_text())]
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentValueError(f"--folder: {file} holds no LoCoMo dialogues: {error!r}.") from error
    return found


def _dialogue(sample: dict[str, Any]) -> Dialogue:
    sessions = sample["conversation"]
    names = sorted((name for name in sessions if re.fullmatch(r"session_\d+", name)), key=lambda name: int(name[8:]))
    turns = {turn["dia_id"]: _told(sessions[f"{name}_date_time"], turn) for name in names for turn in sessions[name]}
    place = {name: i for i, name in enumerate(turns)}
    questions, evidence = [], []
    for asked in sample["qa"]:
        known = sorted({place[name] for name in _turns_named(asked["evidence"]) if name in place})
        if known:
            questions.append(asked["question"])
            evidence.append(known)
    return Dialogue(list(turns.values()), questions, evidence)


def _told(date: str, turn: dict[str, Any]) -> str:
    caption = f" and shared {turn['blip_caption']}." if turn.get("blip_caption") else ""
    return f'({date}) {turn["speaker"]} said, "{turn["text"]}"{caption}'


def _turns_named(evidence: list[str]) -> list[str]:
    """As turns are called; "D8:6; D9:17", "D:11:26" and "D30:05" occur."""
    pairs = re.findall(r"D:?(\d+):(\d+)", " ".join(evidence))
    return [f"D{int(session)}:{int(turn)}" for session, turn in pairs]
