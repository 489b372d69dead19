"""What comes in: complete, checked `Experience`s and `Query`s.

Shapes, dtypes and kinds are checked whenever they are built, inside a trace too. Values can only be checked where they
are there to see, that is outside of jit; inside, `is_finite_*` masks do it (see memory.py).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, PyTree

from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.signals import outcome_error
from dmem_jax.types import UNSET, Experience, Query

_INT32_MAX = int(np.iinfo(np.int32).max)


def experience(
    config: Config,
    embedding: Any,
    *,
    rpe: Any = None,
    reward: Any = None,
    value: Any = None,
    discount: Any = None,
    next_embedding: Any = None,
    task: Any = None,
    time: Any = None,
    utility: Any = None,
    gate_logit: Any = None,
    payload: PyTree = None,
    valid: Any = None,
) -> Experience:
    """A complete experience: every field an array of the embedding's leading shape, whatever is left out.

    Args:
      embedding: [*b, D], of the state where the outcome was met. Leading axes are batch axes.
      rpe: [*b] or scalar, signed reward prediction error in reward units. Required where `Config.signal` is "given";
        "outcome" computes reward - value, "novelty" adds to it (default 0), "paper" doesn't read it.
      reward, value: [*b] or scalar, reward units; default 0.
      discount: [*b] or scalar; 0 at a terminal; default 1.
      next_embedding: [*b, D]; default 0.
      task: [*b] or scalar int32; default 0.
      time: [*b] or scalar int32, clock units; default: the clock counts by one.
      utility: [*b] or scalar in [0, 1]; default 1. Read by the signal "paper".
      gate_logit: [*b] or scalar, what a gate network adds to the gate's logit; default 0.
      payload: pytree whose leaves start with `*b`; must match what `init` was given.
      valid: [*b] or scalar bool; False marks padding; default True.

    Returns:
      An `Experience` of float32, int32 and bool arrays.

    Raises:
      ArgumentTypeError: a wrong kind, named. ArgumentValueError: a wrong shape, a missing rpe, or, outside of jit, a
      number that is not finite in float32 where `valid`; named too.
    """
    check_config(config)
    embedding = _floats("embedding", embedding)
    batch = _batch_shape(config, "embedding", embedding)
    valid = jnp.ones(batch, bool) if valid is None else _filled("valid", valid, batch, "b")
    # Each is an array before the RPE is formed from it, so that an error names what the caller passed.
    computes_rpe = rpe is None and config.signal == "outcome"
    if computes_rpe and (reward is None or value is None):
        missing = "reward" if reward is None else "value"
        raise ArgumentValueError(f'{missing}: required, for Config.signal="outcome" computes rpe = reward - value.')
    if rpe is None and config.signal == "given":
        raise ArgumentValueError('rpe: required, unless Config.signal="outcome" computes it from reward and value.')
    rpe = 0.0 if rpe is None else rpe
    reward = _filled("reward", 0.0 if reward is None else reward, batch, "f")
    value = _filled("value", 0.0 if value is None else value, batch, "f")
    built = Experience(
        embedding=embedding,
        rpe=outcome_error(reward, value) if computes_rpe else _filled("rpe", rpe, batch, "f"),
        reward=reward,
        value=value,
        discount=_filled("discount", 1.0 if discount is None else discount, batch, "f"),
        next_embedding=_next_embedding(embedding, next_embedding),
        task=_filled("task", 0 if task is None else task, batch, "i"),
        time=_filled("time", UNSET if time is None else time, batch, "i"),
        utility=_filled("utility", 1.0 if utility is None else utility, batch, "f"),
        gate_logit=_filled("gate_logit", 0.0 if gate_logit is None else gate_logit, batch, "f"),
        payload=_payload(payload, batch),
        valid=valid,
    )
    for name in ("reward", "value", "rpe", "discount", "utility", "gate_logit"):
        _refuse_non_finite(name, getattr(built, name), valid)
    for name in ("embedding", "next_embedding"):
        _refuse_non_finite_vector(name, getattr(built, name), valid)
    return built


def no_experience(config: Config, payload: PyTree = None, batch_shape: tuple[int, ...] = ()) -> Experience:
    """An experience that is none (`valid` False), in the structure of real ones: nothing is written, neither clock nor
    windows move. It starts a loop and pads batches.

    Args:
      payload: as given to `init`: a pytree of examples or ShapeDtypeStructs of one memory, or None.
      batch_shape: leading axes.
    """
    check_config(config)
    check_batch_shape(batch_shape)
    empty = jax.tree.map(lambda leaf: jnp.zeros((*batch_shape, *leaf.shape), leaf.dtype), payload_spec(payload))
    return experience(
        config,
        jnp.zeros((*batch_shape, config.embedding_dim)),
        rpe=0.0,
        payload=empty,
        valid=np.zeros(batch_shape, bool),
    )


def query(
    config: Config,
    embedding: Any,
    *,
    value: Any = None,
    task: Any = None,
    sign: Any = None,
    min_age: Any = None,
    max_age: Any = None,
    time: Any = None,
) -> Query:
    """A complete query: every field an array of the embedding's leading shape, whatever is left out.

    Args:
      embedding: [*b, D].
      value: [*b] or scalar, value of the asking state in reward units; required by `Config.salience="value"` alone.
      task: [*b] or scalar int32; only memories of this task; default: of every task.
      sign: [*b] or scalar int32; 1 delights only (rpe >= 0), -1 disasters only; default 0, both.
      min_age, max_age: [*b] or scalar int32, bounds of now - time in clock units, both included; default: none.
      time: [*b] or scalar int32; recall happens at max(clock, time); default: at the clock.

    Raises:
      ArgumentTypeError, ArgumentValueError: as `experience`; they name the argument.
    """
    check_config(config)
    return _query(config, "embedding", embedding, value, task, sign, min_age, max_age, time)


def _query(
    config: Config,
    name: str,
    embedding: Any,
    value: Any = None,
    task: Any = None,
    sign: Any = None,
    min_age: Any = None,
    max_age: Any = None,
    time: Any = None,
) -> Query:
    embedding = _floats(name, embedding)
    batch = _batch_shape(config, name, embedding)
    if value is None and config.salience == "value":
        raise ArgumentValueError('value: required, for Config.salience="value" compares it with the memories\' values.')
    built = Query(
        embedding=embedding,
        value=_filled("value", 0.0 if value is None else value, batch, "f"),
        task=_filled("task", UNSET if task is None else task, batch, "i"),
        sign=_filled("sign", 0 if sign is None else sign, batch, "i"),
        min_age=_filled("min_age", 0 if min_age is None else min_age, batch, "i"),
        max_age=_filled("max_age", _INT32_MAX if max_age is None else max_age, batch, "i"),
        time=_filled("time", UNSET if time is None else time, batch, "i"),
    )
    everywhere = jnp.ones(batch, bool)
    _refuse_non_finite("value", built.value, everywhere)
    _refuse_non_finite_vector(name, embedding, everywhere)
    if _is_concrete(built.sign) and not np.isin(np.asarray(built.sign), (-1, 0, 1)).all():
        raise ArgumentValueError(f"sign: expected -1, 0 or 1, got {sign!r}.")
    return built


def check_batch_shape(given: Any) -> None:
    """Raises by name if it is none."""
    if not isinstance(given, (tuple, list)) or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in given
    ):
        raise ArgumentTypeError(f"batch_shape: expected a tuple of integers, got {given!r}.")
    if any(n < 0 for n in given):
        raise ArgumentValueError(f"batch_shape: expected sizes >= 0, got {given!r}.")


def check_config(config: Config) -> None:
    """Raises by name if `config` is none."""
    if not isinstance(config, Config):
        raise ArgumentTypeError(f"config: expected a dmem_jax.Config, got {type(config).__name__}.")


def as_query(config: Config, question: Any) -> Query:
    """The query that `recall` and `step` were given, or the one a bare embedding stands for; for one agent."""
    if isinstance(question, Query):
        return question
    return _query(config, "query", question)


def with_stored_payload(stored_payload: PyTree, given: Experience, name: str = "experience") -> Experience:
    """`given`, for one agent, its payload in the store's dtypes. Raises by name what cannot be written.

    `stored_payload`: the payload leaves of a tier, [N, ...]; their axis N is not compared.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(stored_payload)
    if jax.tree.structure(given.payload) != structure:
        raise ArgumentValueError(
            f"{name}.payload: expected the structure given to init, {structure}, "
            f"got {jax.tree.structure(given.payload)}."
        )
    leaves = []
    for (path, slots), leaf in zip(expected, jax.tree.leaves(given.payload), strict=True):
        where = f"{name}.payload{jax.tree_util.keystr(path)}"
        if leaf.shape != slots.shape[1:]:
            raise ArgumentValueError(f"{where}: expected shape {slots.shape[1:]} as given to init, got {leaf.shape}.")
        if not np.can_cast(leaf.dtype, slots.dtype, "same_kind"):
            raise ArgumentTypeError(f"{where}: expected {slots.dtype} as given to init, got {leaf.dtype}.")
        leaves.append(leaf.astype(slots.dtype))
    return dataclasses.replace(given, payload=jax.tree.unflatten(structure, leaves))


def payload_spec(payload: PyTree) -> PyTree:
    """Shape and dtype of each payload leaf of one memory, from examples or ShapeDtypeStructs."""

    def spec(leaf: Any) -> jax.ShapeDtypeStruct:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        leaf = _held("payload", leaf)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    return jax.tree.map(spec, payload)


def is_finite_experience(config: Config, given: Experience) -> Bool[Array, ""]:
    """Whether every number that would be stored is one."""
    scalars = [given.rpe, given.reward, given.value, given.gate_logit]
    if config.signal == "paper":
        scalars.append(given.utility)
    vectors = [given.embedding]
    if config.store_next:
        scalars.append(given.discount)
        vectors.append(given.next_embedding)
    finite = [jnp.isfinite(x) for x in scalars] + [_has_finite_norm(x) for x in vectors]
    return jnp.stack(finite).all()


def is_finite_query(given: Query) -> Bool[Array, ""]:
    """Whether the query can be answered."""
    return _has_finite_norm(given.embedding) & jnp.isfinite(given.value)


def shift(given: Any, shape: tuple[int, ...]) -> Array:
    """The int32 argument of `rebase`: [shape], or a scalar for all."""
    return _filled("by", given, shape, "i")


def feedback(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    """A float32 argument of `reinforce` or `renew`: [shape], or a scalar for all of them."""
    array = _filled(name, given, shape, "f")
    _refuse_non_finite(name, array, jnp.ones(shape, bool))
    if name == "used" and _is_concrete(array) and (np.asarray(array) < 0).any():
        raise ArgumentValueError(f"used: expected weights >= 0, got {given!r}.")
    return array


def _has_finite_norm(vector: Array) -> Array:
    """Covers non-finite components, and finite ones whose squares overflow float32 (a norm of 1e20)."""
    return jnp.isfinite(jnp.sum(vector * vector, axis=-1))


def _floats(name: str, given: Any) -> Array:
    given = _array(name, given, "float32")
    return _filled(name, given, given.shape, "f")


def _array(name: str, given: Any, expected: str) -> Any:
    if given is None or isinstance(given, (str, bytes)):
        raise ArgumentTypeError(f"{name}: expected {expected}, got {given!r}.")
    if isinstance(given, jax.Array):
        return given
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ArgumentValueError(f"{name}: expected {expected} of one shape, got rows of several.") from error


def _filled(name: str, given: Any, shape: tuple[int, ...], kind: str) -> Array:
    """`given` as a strongly typed array of `shape` and of the kind's dtype: "f" float32, "i" int32, "b" bool."""
    dtype, accepted = {"f": (np.float32, "fiu"), "i": (np.int32, "iu"), "b": (np.bool_, "b")}[kind]
    given = _array(name, given, np.dtype(dtype).name)
    # bfloat16 and its kin have the NumPy kind "V".
    given_kind = "f" if jnp.issubdtype(given.dtype, jnp.floating) else getattr(given.dtype, "kind", "key")
    if given_kind not in accepted:
        raise ArgumentTypeError(f"{name}: expected {np.dtype(dtype).name}, got {given.dtype}.")
    if given.shape not in ((), shape):
        raise ArgumentValueError(f"{name}: expected shape {shape} or (), got {given.shape}.")
    if kind == "i" and given.size and not np.can_cast(given.dtype, np.int32) and _is_concrete(given):
        least, greatest = np.asarray(given).min(), np.asarray(given).max()
        if least < UNSET or greatest > _INT32_MAX:
            raise ArgumentValueError(f"{name}: expected int32, got values in [{least}, {greatest}].")
    with np.errstate(over="ignore"):
        # lax, not astype: it also takes off a weak type.
        array = lax.convert_element_type(given, dtype)
    return jnp.broadcast_to(array, shape)


def _batch_shape(config: Config, name: str, embedding: Array) -> tuple[int, ...]:
    if embedding.ndim == 0 or embedding.shape[-1] != config.embedding_dim:
        raise ArgumentValueError(
            f"{name}: expected shape [..., {config.embedding_dim}] (Config.embedding_dim), got {list(embedding.shape)}."
        )
    return embedding.shape[:-1]


def _expect_one_agent(config: Config, name: str, embedding: Array) -> None:
    if embedding.shape != (config.embedding_dim,):
        raise ArgumentValueError(
            f"{name}: expected shape [{config.embedding_dim}], one agent's, got {list(embedding.shape)}. "
            "For many agents wrap the function in jax.vmap, or use dmem_jax.make(config, payload, agents=...)."
        )


def _next_embedding(embedding: Array, given: Any) -> Array:
    if given is None:
        return jnp.zeros(embedding.shape, jnp.float32)
    given = _floats("next_embedding", given)
    if given.shape != embedding.shape:
        raise ArgumentValueError(f"next_embedding: expected shape {embedding.shape}, got {given.shape}.")
    return given


def _payload(payload: PyTree, batch: tuple[int, ...]) -> PyTree:
    def leaf(path: Any, given: Any) -> Array:
        name = "payload" + jax.tree_util.keystr(path)
        array = _held(name, given)
        if array.shape[: len(batch)] != batch:
            raise ArgumentValueError(f"{name}: expected leading axes {batch} as the embedding's, got {array.shape}.")
        return lax.convert_element_type(array, array.dtype)

    return jax.tree_util.tree_map_with_path(leaf, payload)


def _held(name: str, given: Any) -> Array:
    """A payload leaf as an array; what would lose its value by that is refused."""
    if not isinstance(given, (jax.Array, np.ndarray, np.generic, bool, int, float)):
        raise ArgumentTypeError(f"{name}: expected an array, got {given!r}. Keep host objects by memory id.")
    given = _array(name, given, "an array")
    if getattr(given.dtype, "kind", "key") not in "biufcV":
        raise ArgumentTypeError(f"{name}: expected numbers, got {given.dtype}. Keep host objects by memory id.")
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu" and given.size:
        held = np.iinfo(jax.dtypes.canonicalize_dtype(given.dtype))
        if given.min() < held.min or given.max() > held.max:
            raise ArgumentValueError(f"{name}: expected {held.dtype}, got values in [{given.min()}, {given.max()}].")
    return jnp.asarray(given)


def _is_concrete(array: Any) -> bool:
    return not isinstance(array, Tracer)


def _refuse_non_finite(name: str, array: Array, valid: Array) -> None:
    if _is_concrete(array) and _is_concrete(valid):
        wrong = np.asarray(valid) & ~np.isfinite(np.asarray(array))
        if wrong.any():
            raise ArgumentValueError(f"{name}: expected finite float32 numbers, got {_first(array, wrong)}.")


def _refuse_non_finite_vector(name: str, vectors: Array, valid: Array) -> None:
    if _is_concrete(vectors) and _is_concrete(valid):
        wrong = np.asarray(valid) & ~np.asarray(_has_finite_norm(vectors))
        if wrong.any():
            raise ArgumentValueError(
                f"{name}: expected finite float32 numbers with a finite norm, got {_first(vectors, wrong)}."
            )


def _first(array: Array, wrong: np.ndarray) -> str:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{np.asarray(array)[index]}" + (f" at index {index}" if index else "")
