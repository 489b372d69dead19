"""What a checkpoint says: arrays by name, whatever Python class held them, and back into the classes of today."""

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from dmem_jax import allocation, inputs
from dmem_jax.checkpoint.migrations import STATE_VERSION, About, Arrays
from dmem_jax.config import Config
from dmem_jax.conversion import kind_of
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.params import Params
from dmem_jax.sharding import shardings
from dmem_jax.types import Memory

_OfEach = Callable[[str, jax.ShapeDtypeStruct], jax.sharding.Sharding | None]
Shardings = jax.sharding.Mesh | jax.sharding.Sharding | _OfEach | None
"""As `sharding.place` does it on a mesh; one for every array of a memory; or of each, from its name ("core.embedding")
and its shape; None: on one device."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What was saved."""

    config: Config
    params: Params
    memory: Memory
    extra: PyTree = None  # what else the caller saved


# ---- to names


def named(config: Config, params: Params, memory: Memory, extra: PyTree) -> tuple[About, Arrays]:
    """What is to be saved. Raises ArgumentTypeError or ArgumentValueError, named."""
    for name, given, kind in (("config", config, Config), ("params", params, Params), ("memory", memory, Memory)):
        if not isinstance(given, kind):
            raise ArgumentTypeError(f"{name}: expected a dmem_jax.{kind.__name__}, got {type(given).__name__}.")
    _check_fits(config, memory)
    arrays: Arrays = {}
    keys: dict[str, str] = {}
    for part, tree in (("params", params), ("memory", memory), ("extra", extra)):
        for name, leaf in _by_name(part, tree):
            if name in arrays:
                raise ArgumentValueError(f"{name}: two arrays would have this name.")
            if _is_key(leaf):
                keys[name] = str(jax.random.key_impl(leaf))
            arrays[name] = _plain(name, leaf)
    about = {
        "state_version": STATE_VERSION,
        "config": dataclasses.asdict(dataclasses.replace(config, slot_axis=None)),
        "batch_shape": list(memory.clock.shape),
        "keys": keys,
    }
    return about, arrays


def _check_fits(config: Config, memory: Memory) -> None:
    """What `restore` will expect."""
    batch = memory.clock.shape
    of_one = lambda leaf: jax.ShapeDtypeStruct(leaf.shape[len(batch) + 1 :], leaf.dtype)  # noqa: E731
    payload = jax.tree.map(of_one, memory.core.payload)
    expected = dict(_by_name("memory", jax.eval_shape(lambda: allocation.init(config, payload, batch_shape=batch))))
    for name, leaf in _by_name("memory", memory):
        wanted = expected.pop(name, None)
        if wanted is None or (wanted.shape, wanted.dtype) != (leaf.shape, leaf.dtype):
            told = "nothing" if wanted is None else f"{wanted.dtype}{list(wanted.shape)}"
            raise ArgumentValueError(f"{name}: expected {told} by the config, got {leaf.dtype}{list(leaf.shape)}.")
    if expected:
        raise ArgumentValueError(f"{min(expected)}: expected by the config, got nothing.")


def _by_name(part: str, tree: PyTree) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield ".".join(filter(None, (part, jax.tree_util.keystr(path, simple=True, separator=".")))), leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(name: str, leaf: Any) -> Any:
    """A jax or NumPy array of numbers."""
    if _is_key(leaf):
        return jax.random.key_data(leaf)
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        raise ArgumentTypeError(f"{name}: expected an array or a number, got {shown(leaf)}.")
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if kind_of(array.dtype) == "other" or isinstance(leaf, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{name}: expected an array of numbers, got {type(leaf).__name__} of {array.dtype}.")
    return array if isinstance(array, jax.Array) else array.astype(array.dtype.newbyteorder("="), copy=False)


# ---- from names


def assembled(
    path: Path,
    about: About,
    arrays: Arrays,
    payload: PyTree,
    config: Config | None,
    extra: PyTree,
    sharding: Shardings,
) -> Checkpoint:
    """The inverse of `named`; see `checkpoint.restore`."""
    parts: dict[str, Arrays] = {"params": {}, "memory": {}, "extra": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = array
    saved_config = _config(path, about["config"], config)
    batch_shape = tuple(about["batch_shape"])
    if payload is None:
        payload = _payload_of(parts["memory"], len(batch_shape) + 1)
    spec = inputs.payload_spec(payload)
    empty = jax.eval_shape(lambda: allocation.init(saved_config, spec, batch_shape=batch_shape))
    choose = _chooser(sharding, empty)
    memory = _filled("payload", empty, parts["memory"], lambda name, spec: choose(name, spec))
    keys = {name.partition(".")[2]: kind for name, kind in about["keys"].items()}
    return Checkpoint(
        config=saved_config,
        params=_params(saved_config, parts["params"]),
        memory=memory,
        extra=_extra(extra, parts["extra"], keys),
    )


def _chooser(sharding: Shardings, empty: Memory) -> Callable[[str, Any], jax.sharding.Sharding | None]:
    if not (sharding is None or isinstance(sharding, (jax.sharding.Mesh, jax.sharding.Sharding)) or callable(sharding)):
        raise ArgumentTypeError(f"sharding: expected a Mesh, a Sharding, a function or None, got {shown(sharding)}.")
    if isinstance(sharding, jax.sharding.Mesh):
        of_each = dict(_by_name("", shardings(sharding, empty)))
        return lambda name, spec: of_each[name]
    return sharding if callable(sharding) else lambda name, spec: sharding


def _config(path: Path, saved: Mapping[str, Any], given: Config | None) -> Config:
    """The Config that was saved; fields that are new since then have their defaults."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
    unknown = sorted(fields.keys() - {field.name for field in dataclasses.fields(Config)})
    if unknown:
        told = ", ".join(f"{name}={fields[name]!r}" for name in unknown)
        raise ArgumentValueError(f"path: {path} was saved with fields that this Config does not have: {told}.")
    config = Config(**fields)
    if given is not None and not isinstance(given, Config):
        raise ArgumentTypeError(f"config: expected a dmem_jax.Config, got {type(given).__name__}.")
    here = config if given is None else dataclasses.replace(given, slot_axis=None)  # it may lie anywhere
    if here != config:
        ours = dataclasses.asdict(here)
        told = (
            f"{name} is {theirs!r} there and {ours[name]!r} here"
            for name, theirs in dataclasses.asdict(config).items()
            if theirs != ours[name]
        )
        raise ArgumentValueError(f"config: it disagrees with the one in {path}: {'; '.join(told)}.")
    return config


def _params(config: Config, saved: Arrays) -> Params:
    """As they were saved, batch axes included; those that are new since then have their defaults."""
    default = Params.default(config)
    unknown = saved.keys() - {field.name for field in dataclasses.fields(Params)}
    if unknown:
        raise ArgumentValueError(f"path: it was saved with Params.{min(unknown)}, which these Params do not have.")
    return dataclasses.replace(default, **{name: jnp.asarray(np.asarray(array)) for name, array in saved.items()})


def _payload_of(saved: Arrays, leading: int) -> PyTree:
    """Shapes and dtypes of the payload leaves of one memory, by name."""
    prefix = "core.payload"
    leaves = {name: leaf for name, leaf in saved.items() if name.startswith(prefix)}
    specs = {name: jax.ShapeDtypeStruct(leaf.shape[leading:], leaf.dtype) for name, leaf in leaves.items()}
    if list(specs) == [prefix]:
        return specs[prefix]  # a bare array
    return {name.removeprefix(f"{prefix}."): spec for name, spec in specs.items()} or None


def _filled(
    argument: str,
    like: PyTree,
    saved: Arrays,
    sharding: Callable[[str, Any], jax.sharding.Sharding | None],
    keys: Mapping[str, str] = types.MappingProxyType({}),
) -> Any:
    """The structure `like` with the arrays that were saved, in the classes of its leaves."""
    unexpected = saved.keys() - dict(_by_name("", like)).keys()
    if unexpected:
        raise ArgumentValueError(f"{argument}: {min(unexpected)} was saved, and is not expected.")

    def leaf(path: Any, spec: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        wanted = spec if hasattr(spec, "dtype") else np.asarray(spec)
        array = saved.get(name)
        if array is None and 0 in wanted.shape:
            array = np.zeros(wanted.shape, wanted.dtype)  # version 1 left them out
        if array is None:
            raise ArgumentValueError(f"{argument}: {name} is expected, and was not saved.")
        came = _as_saved(array, keys.get(name))
        native = wanted.dtype.newbyteorder("=") if isinstance(wanted.dtype, np.dtype) else wanted.dtype
        if (came.shape, came.dtype) != (wanted.shape, native):
            raise ArgumentValueError(
                f"{argument}: {name} was saved as {came.dtype}{list(came.shape)}, "
                f"expected {wanted.dtype}{list(wanted.shape)}."
            )
        if isinstance(spec, (jax.Array, jax.ShapeDtypeStruct)):
            return _typed(_placed(argument, name, array, sharding(name, spec)), keys.get(name))
        if isinstance(spec, np.ndarray):
            return np.asarray(array)
        return np.asarray(array)[()] if isinstance(spec, np.generic) else np.asarray(array).item()

    return jax.tree_util.tree_map_with_path(leaf, like)


def _as_saved(array: Any, kind: str | None) -> Any:
    """With the shape and dtype that the caller gave to `save`."""
    return jax.eval_shape(lambda: _typed(jnp.zeros(array.shape, array.dtype), kind)) if kind else array


def _typed(data: Any, kind: str | None) -> Any:
    return jax.random.wrap_key_data(data, impl=kind) if kind else data


def _placed(argument: str, name: str, array: Any, sharding: jax.sharding.Sharding | None) -> jax.Array:
    """A saved array on its devices, each of which reads what it needs."""
    dtype = np.dtype(array.dtype)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ArgumentValueError(f"{argument}: {name} was saved as {dtype}, which jax has only with jax_enable_x64.")
    if sharding is None:
        return jax.device_put(np.asarray(array))  # jnp.asarray would copy
    try:
        boxes = sharding.addressable_devices_indices_map(tuple(array.shape)).values()
    except (ValueError, IndexError) as error:  # the latter for an array of too few axes
        raise ArgumentValueError(f"sharding: it does not fit {name} {list(array.shape)}: {error}") from error
    read: dict[Any, np.ndarray] = {}  # devices with the same box share one reading
    for box in boxes:
        if _corners(box) not in read:
            read[_corners(box)] = array[box]
    return jax.make_array_from_callback(array.shape, sharding, lambda box: read[_corners(box)], dtype=dtype)


def _corners(box: Any) -> tuple[tuple[int | None, int | None], ...]:
    """Of slices, which cannot be hashed before Python 3.12."""
    return tuple((side.start, side.stop) for side in box)


def _extra(like: PyTree, saved: Arrays, keys: Mapping[str, str]) -> PyTree:
    """In the classes of `like`; without it NumPy arrays and typed keys by their names, or None if nothing was saved."""
    if like is None:
        return {name: _typed(np.asarray(array), keys.get(name)) for name, array in saved.items()} or None

    def sharding(_: str, spec: Any) -> jax.sharding.Sharding | None:
        return None if isinstance(spec, jax.Array) and not spec.committed else spec.sharding

    return _filled("extra", like, saved, sharding, keys)
