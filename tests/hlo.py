"""Reading compiled programs: which instructions of a loop body write a whole array."""

import re

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>[a-z0-9]+\[[\d,]*\])\S* (?P<op>[\w\-]+)\((?P<rest>.*)$"
)
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_PLUMBING = {"parameter", "get-tuple-element", "tuple", "bitcast", "while"}
_IN_PLACE = {"scatter", "dynamic-update-slice"}


def computations(text: str) -> dict[str, list[re.Match]]:
    """The instructions of each computation of a compiled module, by its name."""
    found: dict[str, list[re.Match]] = {}
    current: list[re.Match] = []
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            current = found.setdefault(start["name"], [])
        elif instruction := _INSTRUCTION.match(line):
            current.append(instruction)
    return found


def whole_writes(text: str, shapes: set[str]) -> list[str]:
    """Instructions, in any computation but the entry's, fusions' insides included, whose output has one of `shapes`
    (as "f32[4,8]") and that are neither an in-place update of one row nor tuple plumbing.

    A fusion counts by what its body does: one that ends in a scatter updates in place.
    """
    by_name = computations(text)
    entry = next(line for line in text.splitlines() if line.startswith("ENTRY"))
    entry_name = re.match(r"ENTRY %?([\w.\-]+)", entry)[1]  # type: ignore[index]
    guilty = []
    for name, instructions in by_name.items():
        if name == entry_name:
            continue
        for instruction in instructions:
            op = instruction["op"]
            if instruction["shape"] not in shapes or op in _PLUMBING | _IN_PLACE:
                continue
            called = re.search(r"calls=%?([\w.\-]+)", instruction["rest"])
            if op in {"fusion", "call"} and called and _updates_in_place(by_name[called[1]], instruction["shape"]):
                continue
            guilty.append(f"{name}: {instruction['name']} = {instruction['shape']} {op}")
    return guilty


def _updates_in_place(instructions: list[re.Match], shape: str) -> bool:
    whole = {i["op"] for i in instructions if i["shape"] == shape} - _PLUMBING
    return bool(whole) and whole <= _IN_PLACE
