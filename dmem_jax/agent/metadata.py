"""What callers keep with a memory for themselves, a JSON object, and the filters that ask for it.

A filter is `{"key": value}` or `{"key": {"$gte": 3, "$lt": 9}}`; all of it must hold.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

Filter = Mapping[str, Any] | Callable[[dict[str, Any]], bool]

_MISSING = object()
_DEEPEST = 64  # levels: what reads it later may stand deep in a stack itself


def check_metadata(metadata: Any) -> dict[str, Any]:
    """A copy of `metadata`, with no reference to it, as JSON has it: tuples are lists. None: nothing.

    Raises:
      ArgumentTypeError: no dict with str keys at every depth, or a value that is none of JSON's.
      ArgumentValueError: a NaN or an infinity, a dict within itself or too deep, a number of thousands of digits.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise ArgumentTypeError(f"metadata: expected a dict, got {shown(metadata)}.")
    if _depth(metadata) > _DEEPEST:
        raise ArgumentValueError(f"metadata: expected at most {_DEEPEST} levels, one within the other.")
    copy = _copied("metadata", metadata, allow_nan=False)
    try:
        json.dumps(copy, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ArgumentValueError("metadata: expected text that UTF-8 can hold, got half of a surrogate pair.") from None
    # JSON would make a str of a number.
    for key in _keys(metadata):
        if not isinstance(key, str):
            raise ArgumentTypeError(f"metadata: expected keys that are str, got {shown(key)}.")
    return copy


def matching(filter: Filter | None) -> Callable[[dict[str, Any]], bool]:
    """What tells whether metadata satisfies `filter`: a function tells it itself. None or an empty one: all does.

    `{"key": value}` asks for a value equal to it, nested ones as a whole: 1 is 1.0, but neither True nor "1". `$eq`,
    `$ne`, `$gt`, `$gte`, `$lt`, `$lte` and `$in` (a list) may stand together. A key that is not there satisfies `$ne`
    and nothing else, not even None. Only numbers and numbers, and str and str, have an order; whatever else meets
    satisfies none of the four.

    Raises:
      ArgumentTypeError: no dict with str keys, an operand that is none of JSON's or has no order, or no list for `$in`.
      ArgumentValueError: an unknown operator.
    """
    if filter is None:
        return lambda metadata: True
    if callable(filter):
        return filter
    if not isinstance(filter, Mapping):
        raise ArgumentTypeError(f"filter: expected a dict or a function, got {shown(filter)}.")
    checks = [(key, *check) for key, condition in filter.items() for check in _checks(key, condition)]
    return lambda metadata: all(_OPERATORS[name](metadata.get(key, _MISSING), given) for key, name, given in checks)


def _checks(key: Any, condition: Any) -> Iterator[tuple[str, Any]]:
    """Operator and operand, one by one."""
    if not isinstance(key, str):
        raise ArgumentTypeError(f"filter: expected keys that are str, got {shown(key)}.")
    if not isinstance(condition, Mapping) or not any(str(name).startswith("$") for name in condition):
        yield "$eq", _copied(f"filter[{shown(key)}]", condition)
        return
    for name, given in condition.items():
        where = f"filter[{shown(key)}]"
        if name not in _OPERATORS:
            raise ArgumentValueError(f"{where}: unknown operator {shown(name)}; there are {', '.join(_OPERATORS)}.")
        if name == "$in" and not isinstance(given, list | tuple | set | frozenset):
            raise ArgumentTypeError(f"{where}: expected a list for $in, got {shown(given)}.")
        if name in _ORDERS and not (_is_number(given) or isinstance(given, str)):
            raise ArgumentTypeError(f"{where}: expected a number or a str for {name}, got {shown(given)}.")
        yield name, _copied(where, list(given) if name == "$in" else given)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _order(a: Any, b: Any) -> int | None:
    """-1, 0 or 1; None where there is none, a NaN included."""
    if not (_is_number(a) and _is_number(b)) and not (isinstance(a, str) and isinstance(b, str)):
        return None
    return -1 if a < b else 1 if a > b else 0 if a == b else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_ORDERS: dict[str, tuple[int, ...]] = {"$gt": (1,), "$gte": (0, 1), "$lt": (-1,), "$lte": (-1, 0)}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": _equal,
    "$ne": lambda stored, given: not _equal(stored, given),
    **{name: lambda stored, given, signs=signs: _order(stored, given) in signs for name, signs in _ORDERS.items()},
    "$in": lambda stored, given: any(_equal(stored, one) for one in given),
}


def _copied(name: str, value: Any, allow_nan: bool = True) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=allow_nan))
    except TypeError as error:
        raise ArgumentTypeError(f"{name}: expected str, numbers, bool, None, lists and dicts: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise ArgumentValueError(f"{name}: expected what JSON can hold: {error}.") from error


def _depth(value: Any) -> int:
    """Levels of dicts and lists, counted up to one more than is allowed."""
    level, deep = [value], 0
    while level and deep <= _DEEPEST:
        containers = [part for part in level if isinstance(part, (dict, list, tuple))]
        level = [x for part in containers for x in (part.values() if isinstance(part, dict) else part)]
        deep += bool(containers)
        if not containers:
            break
    return deep


def _keys(value: Any) -> Iterator[Any]:
    """At every depth."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield from part
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
