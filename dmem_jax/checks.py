"""What the public functions were handed: the class, and every shape and dtype, against what the config asks for.

Shapes and dtypes are there to see inside a trace too, so this costs nothing in a compiled program.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from dmem_jax import allocation, inputs, shards
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.params import Params, sound
from dmem_jax.types import Experience, Memory, Query, Recall, ReplayBatch, Store

_MANY = "For many agents wrap the function in jax.vmap, or use dmem_jax.make(config, payload, agents=...)."
_OTHER_RECALL_DTYPES = {
    **dict.fromkeys(["score", "semantic", "salience", "rpe"], jnp.float32),
    **dict.fromkeys(["contradicted", "valid"], jnp.bool_),
}

Types = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and dtype of each leaf, by its path."""
_MAY_BE_NONE = ("shadow", "scale", "next_embedding", "discount", "payload")
_PARAMS_TYPES: Types = {f".{field.name}": ((), np.dtype(np.float32)) for field in dataclasses.fields(Params)}


def check_acting(config: Config, params: Params, memory: Memory) -> Params:
    """The three that every function of a memory takes; of one agent. Gives back the params, each in its range."""
    inputs.check_config(config)
    _check_class("params", params, Params)
    _check_types("params", _types("params", params), _PARAMS_TYPES)
    types = check_memory(memory)
    leaves, structure = jax.tree.flatten(memory.core.payload)
    payload = tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
    _check_types("memory", types, _memory_types(shards.part(config), payload, structure))
    return sound(params)


def check_memory(memory: Memory) -> Types:
    """Arrays wherever they belong, of whatever config and for however many agents; gives back what they are."""
    _check_class("memory", memory, Memory)
    for tier in ("core", "buffer"):
        _check_class(f"memory.{tier}", getattr(memory, tier), Store)
    return _types("memory", memory, payload=True)


def check_key(name: str, key: Any) -> None:
    """One typed PRNG key."""
    if not jnp.issubdtype(getattr(key, "dtype", object), jax.dtypes.prng_key):
        raise ArgumentTypeError(f"{name}: expected a typed key, as jax.random.key makes, got {type(key).__name__}.")
    if key.shape != ():
        raise ArgumentValueError(f"{name}: expected one key, got {list(key.shape)} of them. {_MANY}")


def check_replay(batch: ReplayBatch) -> None:
    """Where the memories are, of one agent."""
    _check_class("batch", batch, ReplayBatch)
    size = np.shape(batch.valid)
    dtypes = {"slot": jnp.int32, "tier": jnp.int32, "id": jnp.int32, "valid": jnp.bool_}
    given = {path: type_ for path, type_ in _types("batch", batch).items() if path[1:] in dtypes}
    if len(size) != 1:
        raise ArgumentValueError(f"batch.valid: expected bool[B], got {list(size)}. {_MANY}")
    _check_types("batch", given, {f".{name}": (size, np.dtype(dtype)) for name, dtype in dtypes.items()})


def check_asked(config: Config, params: Params, memory: Memory, query: Any) -> tuple[Params, Query, Array]:
    """The params in their ranges, the query, and whether it can be answered; where it can't its numbers are 0, so that
    no NaN gets anywhere."""
    params = check_acting(config, params, memory)
    query = inputs.as_query(config, query)
    check_query(config, query)
    answerable = inputs.is_finite_query(query)
    embedding, value = (jnp.where(answerable, x, 0.0) for x in (query.embedding, query.value))
    return params, dataclasses.replace(query, embedding=embedding, value=value), answerable


def check_query(config: Config, query: Query) -> None:
    """Of one agent."""
    _check_types("query", _types("query", query), _query_types(config))


def check_experience(
    config: Config,
    stored_payload: PyTree,
    experience: Experience,
    name: str = "experience",
    batch: tuple[int, ...] = (),
) -> Experience:
    """Of one agent; its payload comes back in the dtypes of the store."""
    _check_class(name, experience, Experience)
    _check_types(name, _types(name, experience), _experience_types(config, batch))
    return inputs.with_stored_payload(stored_payload, experience, name, batch)


def check_experiences(config: Config, stored_payload: PyTree, experiences: Experience) -> Experience:
    """Of one agent, many of them on a leading axis; the payload comes back in the dtypes of the store."""
    _check_class("experiences", experiences, Experience)
    shape, _ = _types("experiences", experiences)[".embedding"]
    if len(shape) != 2:
        raise ArgumentValueError(f"experiences.embedding: expected [B, {config.embedding_dim}], got {list(shape)}.")
    return check_experience(config, stored_payload, experiences, "experiences", shape[:1])


def check_recall(config: Config, recall: Recall) -> None:
    """All but the payload, of one agent."""
    _check_class("recall", recall, Recall)
    names = [field.name for field in dataclasses.fields(Recall) if field.name != "payload"]
    dtypes = {name: np.dtype(_OTHER_RECALL_DTYPES.get(name, jnp.int32)) for name in names}
    expected = {f".{name}": ((config.recalled,), dtype) for name, dtype in dtypes.items()}
    _check_types("recall", _types("recall", recall), expected)


def check_leading(name: str, given: PyTree, n: int) -> None:
    """Every leaf has a leading axis [n]."""
    if all(np.shape(leaf)[:1] == (n,) for leaf in jax.tree.leaves(given)):
        return
    for path, leaf in jax.tree_util.tree_leaves_with_path(given):
        if np.shape(leaf)[:1] != (n,):
            where = name + jax.tree_util.keystr(path)
            raise ArgumentValueError(f"{where}: expected a leading axis of {n}, got {list(np.shape(leaf))}.")


def _check_class(name: str, given: Any, cls: type) -> None:
    if not isinstance(given, cls):
        raise ArgumentTypeError(f"{name}: expected a dmem_jax.{cls.__name__}, got {type(given).__name__}.")


def _check_types(name: str, given: Types, expected: Types) -> None:
    for path in expected | given:
        if given.get(path) == expected.get(path):
            continue
        shape, got = (side.get(path, (None, None))[0] for side in (expected, given))
        error = ArgumentTypeError if shape == got else ArgumentValueError
        hint = f" {_MANY}" if shape is not None and got is not None and len(got) > len(shape) else ""
        raise error(f"{name}{path}: expected {_told(expected.get(path))}, got {_told(given.get(path))}.{hint}")


def _types(name: str, state: Any, payload: bool = False) -> Types:
    """Shape and dtype of each array of a dataclass of ours; those of payloads only if asked for, for they are the
    user's. What someone put where an array belongs is named."""
    found: Types = {}
    for path, value in _fields(state):
        is_payload = path.endswith(".payload")
        if (value is None and path.rpartition(".")[2] in _MAY_BE_NONE) or (is_payload and not payload):
            continue
        for inner, leaf in jax.tree_util.tree_leaves_with_path(value) if is_payload else [((), value)]:
            key = path + jax.tree_util.keystr(inner)
            if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)):
                raise ArgumentTypeError(f"{name}{key}: expected an array, got {shown(leaf)}.")
            found[key] = (leaf.shape, leaf.dtype)
    return found


def _fields(state: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of each field, through dataclasses within."""
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from ((f".{field.name}{path}", inner) for path, inner in _fields(value))
        else:
            yield f".{field.name}", value


def _told(type_: tuple[tuple[int, ...], np.dtype] | None) -> str:
    return "nothing" if type_ is None else f"{type_[1].name}{list(type_[0])}"


@functools.lru_cache
def _memory_types(config: Config, payload: tuple, structure: Any) -> Types:
    spec = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in payload])
    return _types("memory", jax.eval_shape(lambda: allocation.init(config, spec)), payload=True)


@functools.lru_cache
def _experience_types(config: Config, batch: tuple[int, ...]) -> Types:
    return _types("experience", jax.eval_shape(lambda: inputs.no_experience(config, batch_shape=batch)))


@functools.lru_cache
def _query_types(config: Config) -> Types:
    return _types("query", jax.eval_shape(lambda: inputs.query(config, jnp.zeros(config.embedding_dim), value=0.0)))
