"""What the public functions were handed: the class, and every shape and dtype, against what the config asks for.

Shapes and dtypes are there to see inside a trace too, so this costs nothing in a compiled program.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from dmem_jax import allocation, inputs
from dmem_jax.config import Config, Params
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.types import Experience, Memory, Query, Recall

_MANY = "For many agents wrap the function in jax.vmap, or use dmem_jax.make(config, payload, agents=...)."
_OTHER_RECALL_DTYPES = {
    **dict.fromkeys(["score", "semantic", "salience", "rpe"], jnp.float32),
    **dict.fromkeys(["contradicted", "valid"], jnp.bool_),
}

Types = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and dtype of each leaf, by its path."""


def check_acting(config: Config, params: Params, memory: Memory) -> None:
    """The three that every function of a memory takes; of one agent."""
    inputs.check_config(config)
    _check_class("params", params, Params)
    _check_types(
        "params", _types(params), {f".{f.name}": ((), np.dtype(np.float32)) for f in dataclasses.fields(Params)}
    )
    _check_class("memory", memory, Memory)
    leaves, structure = jax.tree.flatten(memory.core.payload)
    payload = tuple((np.shape(leaf)[1:], np.dtype(leaf.dtype)) for leaf in leaves)
    _check_types("memory", _types(memory), _memory_types(config, payload, structure))


def check_query(config: Config, query: Query) -> None:
    """Of one agent."""
    _check_types("query", _types(query), _query_types(config))


def check_experience(
    config: Config, stored_payload: PyTree, experience: Experience, name: str = "experience"
) -> Experience:
    """Of one agent; its payload comes back in the dtypes of the store."""
    _check_class(name, experience, Experience)
    _check_types(name, _but_payload(_types(experience)), _experience_types(config))
    return inputs.with_stored_payload(stored_payload, experience, name)


def check_experiences(config: Config, stored_payload: PyTree, experiences: Experience) -> Experience:
    """Of one agent, many of them on a leading axis; the payload comes back in the dtypes of the store."""
    _check_class("experiences", experiences, Experience)
    shape = np.shape(experiences.embedding)
    if len(shape) != 2:
        raise ArgumentValueError(f"experiences.embedding: expected [B, {config.embedding_dim}], got {list(shape)}.")
    check_leading("experiences", experiences, shape[0])
    return jax.vmap(lambda one: check_experience(config, stored_payload, one, "experiences"))(experiences)


def check_recall(config: Config, recall: Recall) -> None:
    """All but the payload, of one agent."""
    _check_class("recall", recall, Recall)
    names = [field.name for field in dataclasses.fields(Recall) if field.name != "payload"]
    dtypes = {name: np.dtype(_OTHER_RECALL_DTYPES.get(name, jnp.int32)) for name in names}
    expected = {f".{name}": ((config.recalled,), dtype) for name, dtype in dtypes.items()}
    _check_types("recall", _but_payload(_types(recall)), expected)


def check_leading(name: str, given: PyTree, n: int) -> None:
    """Every leaf has a leading axis [n]."""
    for path, (shape, _) in _types(given).items():
        if shape[:1] != (n,):
            raise ArgumentValueError(f"{name}{path}: expected a leading axis of {n}, got {list(shape)}.")


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


def _types(tree: PyTree) -> Types:
    """A Python number counts as what jax makes of it."""

    def dtype(leaf: Any) -> np.dtype:
        return np.dtype(jax.dtypes.canonicalize_dtype(getattr(leaf, "dtype", type(leaf))))

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): (np.shape(leaf), dtype(leaf)) for path, leaf in leaves}


def _but_payload(types: Types) -> Types:
    return {path: type_ for path, type_ in types.items() if not path.startswith(".payload")}


def _told(type_: tuple[tuple[int, ...], np.dtype] | None) -> str:
    return "nothing" if type_ is None else f"{type_[1].name}{list(type_[0])}"


@functools.lru_cache
def _memory_types(config: Config, payload: tuple, structure: Any) -> Types:
    spec = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in payload])
    return _types(jax.eval_shape(lambda: allocation.init(config, spec)))


@functools.lru_cache
def _experience_types(config: Config) -> Types:
    return _types(jax.eval_shape(lambda: inputs.no_experience(config)))


@functools.lru_cache
def _query_types(config: Config) -> Types:
    return _types(jax.eval_shape(lambda: inputs.query(config, jnp.zeros(config.embedding_dim), value=0.0)))
