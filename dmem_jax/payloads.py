"""What a user keeps with each memory: payloads, their structure and dtypes those that `init` was given."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from dmem_jax.conversion import KINDS, as_array, expect_within, first, is_concrete, kind_of
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

_TOO_WIDE = {np.dtype(np.longdouble), np.dtype(np.clongdouble)} - {np.dtype(np.float64), np.dtype(np.complex128)}


def payload_spec(payload: PyTree) -> PyTree:
    """Shape and dtype of each payload leaf of one memory, from examples or ShapeDtypeStructs."""

    def spec(path: Any, leaf: Any) -> jax.ShapeDtypeStruct:
        name = "payload" + jax.tree_util.keystr(path)
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(leaf.shape, _held_dtype(name, leaf.dtype))
        leaf = _held(name, leaf)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    return jax.tree_util.tree_map_with_path(spec, payload)


def batched_payload(payload: PyTree, batch: tuple[int, ...]) -> PyTree:
    """`payload` as strongly typed arrays, each with the leading axes `batch`."""

    def leaf(path: Any, given: Any) -> Array:
        name = "payload" + jax.tree_util.keystr(path)
        array = _held(name, given)
        if array.shape[: len(batch)] != batch:
            raise ArgumentValueError(f"{name}: expected leading axes {batch} as the embedding's, got {array.shape}.")
        return array

    return jax.tree_util.tree_map_with_path(leaf, payload)


def as_stored(stored: PyTree, payload: PyTree, batch: tuple[int, ...], name: str) -> PyTree:
    """`payload`, with the leading axes `batch`, in the dtypes of the store. Raises by name what cannot be written.

    `stored`: the payload leaves of a tier, [N, ...]; their axis N is not compared.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(stored)
    given = jax.tree.structure(payload)
    if given != structure:
        came = type(payload).__name__ if jax.tree_util.treedef_is_leaf(given) else _drawn(given)
        raise ArgumentValueError(
            f"{name}: expected the structure given to init, {_drawn(structure)} (* is a leaf), got {came}."
        )
    leaves = []
    for (path, slots), leaf in zip(expected, jax.tree.leaves(payload), strict=True):
        where = name + jax.tree_util.keystr(path)
        array, shape = _held(where, leaf), (*batch, *slots.shape[1:])
        if array.shape != shape:
            raise ArgumentValueError(f"{where}: expected shape {shape} as given to init, got {array.shape}.")
        leaves.append(_cast(where, array, slots.dtype))
    return jax.tree.unflatten(structure, leaves)


def _drawn(structure: Any) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


def _held_dtype(name: str, dtype: Any) -> np.dtype:
    """The dtype in which jax holds a payload leaf of `dtype`: without x64 the one of 32 bits."""
    if kind_of(dtype) in KINDS and dtype not in _TOO_WIDE:
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    raise ArgumentTypeError(f"{name}: expected numbers that jax can hold, got {dtype}. Keep host objects by memory id.")


def _held(name: str, given: Any) -> Array:
    """A payload leaf as a strongly typed array; what would change its value is refused."""
    if not isinstance(given, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        came = shown(given)
        raise ArgumentTypeError(f"{name}: expected an array, got {came}. Keep host objects by memory id.")
    array = as_array(name, given, "an array")
    dtype = _held_dtype(name, array.dtype)
    if isinstance(array, jax.Array):
        return _cast(name, array, dtype)
    with jax.ensure_compile_time_eval():  # what is known inside a trace can then be looked at when it is stored
        return _cast(name, array, dtype)


def _cast(name: str, given: Array | np.ndarray, dtype: np.dtype) -> Array:
    """`given` in `dtype`, strongly typed. Rounding of floats apart, what would change a value is refused: by its value
    where that is there to see, by its dtype inside a trace."""
    if not np.can_cast(given.dtype, dtype):
        if KINDS.index(kind_of(given.dtype)) > KINDS.index(kind_of(dtype)):
            raise ArgumentTypeError(f"{name}: expected {dtype}, got {given.dtype}.")
        if not is_concrete(given):
            raise ArgumentTypeError(
                f"{name}: expected {dtype}, got {given.dtype}, whose numbers may not fit and can't be seen inside a "
                f'trace. Cast it: .astype("{dtype}").'
            )
        _expect_to_fit(name, np.asarray(given), dtype)
    if isinstance(given, jax.Array):
        return lax.convert_element_type(given, dtype)
    return jnp.asarray(given.astype(dtype))


def _expect_to_fit(name: str, given: np.ndarray, dtype: np.dtype) -> None:
    if kind_of(given.dtype) == kind_of(dtype) == "i":
        expect_within(name, given, jnp.iinfo(dtype))
        return
    with np.errstate(all="ignore"):
        kept = given.astype(dtype)
        if kind_of(given.dtype) == "i":
            lost = kept.astype(np.float64) != given
        else:
            lost = np.isfinite(given) & ~np.isfinite(kept)
    if lost.any():
        raise ArgumentValueError(f"{name}: expected what {dtype} can hold, got {first(given, lost)}.")
