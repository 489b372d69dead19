"""Reading compiled programs, of any platform: which instructions of a loop body write a whole array."""

import re
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_NAMED = re.compile(r"^\s*(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.+)$")
_ARRAY = re.compile(r"[a-z][a-z0-9]*\[[\d,]*\]")
_OPERATION = re.compile(r"^\S* ?(?P<op>[\w\-]+)\((?P<rest>.*)$")
_OPERAND = re.compile(r"%?(?P<name>[\w.\-]+)(?:, |\))")
# Views; what only hands on what others made; and what runs a computation, whose instructions are looked at themselves.
_VIEWS = {"bitcast", "get-tuple-element"}
_PLUMBING = _VIEWS | {"parameter", "tuple", "opt-barrier", "constant", "while", "call"}
_PLUMBING |= {f"async-{state}" for state in ("start", "update", "done")} | {"copy-done"}
_IN_PLACE = {"scatter", "dynamic-update-slice"}


class Instruction(NamedTuple):
    name: str
    shapes: tuple[str, ...]  # of its outputs, as "f32[4,8]"
    op: str
    rest: str  # operands and attributes
    root: bool

    @property
    def operands(self) -> list[str]:
        """Names. Text with the operands' shapes in front of them has the same last words."""
        return _OPERAND.findall(self.rest.partition(")")[0] + ")")


class Module(NamedTuple):
    entry: str
    computations: dict[str, list[Instruction]]


def parse(text: str) -> Module:
    entry, found, current = "", {}, []
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            current = found.setdefault(start["name"], [])
            entry = start["name"] if start["entry"] else entry
        elif instruction := _instruction(line):
            current.append(instruction)
    return Module(entry, found)


def _instruction(line: str) -> Instruction | None:
    if not (named := _NAMED.match(line)):
        return None
    rest = named["rest"]
    end = _end_of_tuple(rest) if rest.startswith("(") else rest.find(" ")
    if not (operation := _OPERATION.match(rest[end:])):
        return None
    shapes = tuple(_ARRAY.findall(rest[:end]))
    return Instruction(named["name"], shapes, operation["op"], operation["rest"], bool(named["root"]))


def _end_of_tuple(text: str) -> int:
    """Behind the bracket that closes the first one. Layouts of a TPU have brackets of their own."""
    depth = 0
    for i, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return i + 1
    return len(text)


def instructions(text: str) -> list[Instruction]:
    """Of all computations of a compiled module."""
    return [instruction for body in parse(text).computations.values() for instruction in body]


def whole_writes(text: str, shapes: set[str]) -> list[str]:
    """Instructions, in any computation but the entry's, that write an array of one of `shapes` (as "f32[4,8]") and are
    neither an in-place update of some rows nor plumbing.

    A fusion counts by what its outputs are: one that ends in a scatter into an argument updates that in place. What is
    inside of a fusion and no output of it is written nowhere.
    """
    entry, by_name = parse(text)
    fused = {_called(i) for body in by_name.values() for i in body if i.op == "fusion"}
    guilty = []
    for name, body in by_name.items():
        if name == entry or name in fused:
            continue
        for i in body:
            if i.op in _PLUMBING | _IN_PLACE or not shapes.intersection(i.shapes):
                continue
            if "output_to_operand_aliasing" in i.rest:
                continue
            if i.op == "fusion" and _updates_in_place(by_name.get(_called(i), []), shapes):
                continue
            guilty.append(f"{name}: {i.name} = {' '.join(i.shapes)} {i.op}")
    return guilty


def _called(fusion: Instruction) -> str:
    called = re.search(r"calls=%?([\w.\-]+)", fusion.rest)
    return called[1] if called else ""


def _updates_in_place(body: list[Instruction], shapes: set[str]) -> bool:
    """Of a fusion's body: whether each output of one of `shapes` is an argument with rows set."""
    by_name = {i.name: i for i in body}
    (root,) = [i for i in body if i.root] or [None]
    if root is None:
        return False
    outputs = [by_name.get(name) for name in root.operands] if root.op == "tuple" else [root]
    wide = [i for i in outputs if i is None or shapes.intersection(i.shapes)]
    return all(i is not None and _set_rows(i, by_name, updated=False) for i in wide)


def _set_rows(instruction: Instruction, by_name: dict[str, Instruction], updated: bool) -> bool:
    if instruction.op == "parameter":
        return updated  # an argument that is an output as it is would be a copy
    if instruction.op not in _VIEWS | _IN_PLACE or not instruction.operands:
        return False
    first = by_name.get(instruction.operands[0])
    return first is not None and _set_rows(first, by_name, updated or instruction.op in _IN_PLACE)
