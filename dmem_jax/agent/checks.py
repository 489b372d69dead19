"""What the backend is handed: each argument checked by name before anything changes."""

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

_GREATEST = float(np.finfo(np.float32).max)


def text(name: str, given: Any, *, none: bool = False, blank: bool = False) -> Any:
    """`given`, a string that a database can hold; with `none` also None, with `blank` also one that says nothing."""
    if given is None and none:
        return None
    if not isinstance(given, str):
        raise ArgumentTypeError(f"{name}: expected a string, got {shown(given)}.")
    if not blank and not given.strip():
        raise ArgumentValueError(f"{name}: expected some text, got {shown(given)}.")
    if "\0" in given:
        raise ArgumentValueError(f"{name}: expected text without NUL characters, got {shown(given)}.")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ArgumentValueError(
            f"{name}: expected text that UTF-8 can hold, got half of a surrogate pair at position {error.start}."
        ) from None
    return given


def number(name: str, given: Any, *, least: float = -_GREATEST, above: float = -math.inf) -> float:
    """A finite number of float32."""
    if isinstance(given, (str, bytes, bool, list, tuple)) or getattr(given, "ndim", 0) != 0:
        raise ArgumentTypeError(f"{name}: expected a number, got {shown(given)}.")
    try:
        value = float(given)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name}: expected a number, got {shown(given)}.") from None
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or abs(value) > _GREATEST:
        raise ArgumentValueError(f"{name}: expected a finite float32, got {shown(given)}.")
    if value < least or value <= above:
        bound = f"at least {least:g}" if value < least else f"more than {above:g}"
        raise ArgumentValueError(f"{name}: expected {bound}, got {shown(given)}.")
    return value


def whole(name: str, given: Any, least: int) -> int:
    """A whole number, at least `least`."""
    try:
        if isinstance(given, bool):
            raise TypeError
        value = operator.index(given)
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected a whole number, got {shown(given)}.") from None
    if value < least:
        raise ArgumentValueError(f"{name}: expected at least {least}, got {shown(given)}.")
    return value


def several(name: str, given: Any) -> list[Any]:
    """The items of anything but a string."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ArgumentTypeError(f"{name}: expected memories or their ids, got {shown(given)}.")
    return list(given)


def vector(name: str, given: Any, dim: int) -> np.ndarray:
    """float32 [dim], finite, with a finite norm."""
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
            raise TypeError
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name}: expected numbers, got {shown(given)}.") from None
    if array.shape != (dim,):
        raise ArgumentValueError(
            f"{name}: expected the {dim} numbers of this memory's vectors, got {list(array.shape)}."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(array @ array):
            raise ArgumentValueError(f"{name}: expected finite numbers with a finite norm, got {shown(given)}.")
    return array


def check_encoder(encoder: Any) -> None:
    """Raises by name if it is none."""
    if not callable(encoder):
        raise ArgumentTypeError(f"encoder: expected one of dmem_jax.encoders, or alike, got {shown(encoder)}.")
    for attribute, kind in (("name", str), ("dim", int)):
        if not isinstance(getattr(encoder, attribute, None), kind):
            raise ArgumentTypeError(f"encoder.{attribute}: expected one of type {kind.__name__}, got {shown(encoder)}.")
