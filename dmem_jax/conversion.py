"""What was given, as a strongly typed array: reals as float32, whole numbers as int32, flags as bool.

NumPy reads all that is no jax array yet: jax cuts 64 bits to 32 before it looks, and 2**31 would come out negative.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float32

from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

INT32 = np.iinfo(np.int32)
KINDS = "bifc"  # of dtypes: bool, integer, floating, complex; each holds those before it

Kind = Literal["b", "i", "f"]
_TYPED: dict[Kind, tuple[type, str]] = {"b": (np.bool_, "b"), "i": (np.int32, "i"), "f": (np.float32, "if")}


def is_concrete(array: Any) -> bool:
    """Whether its numbers are there to see, that is outside of a trace."""
    return not isinstance(array, Tracer)


def whole_number(name: str, given: Any, least: int) -> int:
    """A size or a count that shapes the program: a Python or NumPy integer of 32 bits, >= `least`."""
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)):
        raise ArgumentTypeError(f"{name}: expected an integer, got {shown(given)}.")
    if given < least:
        raise ArgumentValueError(f"{name}: expected at least {least}, got {shown(given)}.")
    if given > INT32.max:
        raise ArgumentValueError(f"{name}: expected an int32, at most {INT32.max}, got {shown(given)}.")
    return int(given)


def positive(name: str, given: Any) -> int:
    """`whole_number` >= 1."""
    return whole_number(name, given, 1)


def as_float32(name: str, given: Any) -> Float32[Array, "..."]:
    """`given`, of any shape, as a strongly typed float32 array; an error names it where it holds no real numbers."""
    return typed(name, given, "f")


def filled(name: str, given: Any, shape: tuple[int, ...], kind: Kind) -> Array:
    """`given` as a strongly typed array of `shape`, a scalar spread over all of it."""
    array = typed(name, given, kind)
    if array.shape not in ((), shape):
        expected = f"{shape} or ()" if shape else "()"
        raise ArgumentValueError(f"{name}: expected shape {expected}, got {array.shape}.")
    return jnp.broadcast_to(array, shape)


def typed(name: str, given: Any, kind: Kind) -> Array:
    """`given`, of any shape, as a strongly typed array: "f" float32, "i" int32, "b" bool. Floats beyond float32 become
    infinite; what else would change a value is refused."""
    dtype, accepted = _TYPED[kind]
    expected = np.dtype(dtype).name
    if isinstance(given, (list, tuple)) and any(map(_needs_reading, jax.tree.leaves(given))):
        rows = [typed(name, row, kind) for row in given]
        if len({row.shape for row in rows}) > 1:
            raise _ragged(name, expected)
        return jnp.stack(rows)
    array = as_array(name, given, expected)
    if kind_of(array.dtype) not in accepted:
        raise ArgumentTypeError(f"{name}: expected {expected}, got {_came(given, array)}.")
    if kind == "i" and array.size and not np.can_cast(array.dtype, np.int32) and is_concrete(array):
        expect_within(name, np.asarray(array), INT32)
    if isinstance(array, jax.Array):
        return lax.convert_element_type(array, dtype)  # not astype: it also takes off a weak type
    with np.errstate(over="ignore"):
        return jnp.asarray(array.astype(dtype))


def as_array(name: str, given: Any, expected: str) -> Array | np.ndarray:
    """`given` as an array of whatever dtype; `expected` is what the error says."""
    if isinstance(given, jax.Array):
        return given
    if given is None or isinstance(given, (str, bytes)):
        raise ArgumentTypeError(f"{name}: expected {expected}, got {shown(given)}.")
    if isinstance(given, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{name}: expected {expected}, got a masked array. Fill it: its mask would be lost.")
    try:
        return np.asarray(given)
    except ValueError as error:
        raise _ragged(name, expected) from error
    except TypeError as error:
        raise ArgumentTypeError(f"{name}: expected {expected}, got {type(given).__name__}.") from error


def kind_of(dtype: Any) -> str:
    """One of KINDS, or "other" for a dtype of no numbers: objects, texts, records, times, PRNG keys."""
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":  # NumPy counts a timedelta as an integer
        return "other"
    abstract = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    kinds = (kind for kind, numbers in zip(KINDS, abstract, strict=True) if jnp.issubdtype(dtype, numbers))
    return next(kinds, "other")


def expect_within(name: str, given: np.ndarray, bounds: Any) -> None:
    """Raises by name where an integer is beyond the `bounds` of a dtype, as iinfo tells them."""
    if given.size and (given.min() < bounds.min or given.max() > bounds.max):
        raise ArgumentValueError(f"{name}: expected {bounds.dtype}, got values in [{given.min()}, {given.max()}].")


def first(array: Any, wrong: np.ndarray | np.bool_) -> str:
    """The first number that is `wrong`, and where it stands."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{np.asarray(array)[index]}" + (f" at index {index}" if index else "")


def _needs_reading(item: Any) -> bool:
    """Whether NumPy must not read a list with it: it cannot see traced numbers, and drops a mask."""
    return isinstance(item, (jax.Array, np.ma.MaskedArray))


def _came(given: Any, array: Array | np.ndarray) -> str:
    if getattr(array.dtype, "kind", "") != "O":
        return str(array.dtype)
    return shown(given) if isinstance(given, (int, list, tuple, np.ndarray)) else type(given).__name__


def _ragged(name: str, expected: str) -> ArgumentValueError:
    return ArgumentValueError(f"{name}: expected {expected} of one shape, got rows of several.")
