"""What comes in: complete, checked `Experience`s and `Query`s.

Shapes, dtypes and kinds are checked whenever they are built, inside a trace too. Values can only be checked where they
are there to see, that is outside of jit; inside, `is_finite_*` masks do it (see memory.py).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from dmem_jax.config import Config
from dmem_jax.conversion import INT32, as_float32, filled, first, is_concrete, positive
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.payloads import as_stored, batched_payload, payload_spec
from dmem_jax.signals import outcome_error
from dmem_jax.types import UNSET, Experience, Query

__all__ = [
    "as_query",
    "check_batch_shape",
    "check_bytes",
    "check_config",
    "experience",
    "feedback",
    "is_finite_experience",
    "is_finite_query",
    "no_experience",
    "payload_spec",
    "positive",
    "query",
    "shift",
    "with_stored_payload",
]


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
      discount: [*b] or scalar in [0, 1]; 0 at a terminal; default 1.
      next_embedding: [*b, D]; default 0.
      task: [*b] or scalar int32, but not UNSET; default 0.
      time: [*b] or scalar int32, clock units; default: the clock counts by one.
      utility: [*b] or scalar in [0, 1]; default 1. Read by the signal "paper".
      gate_logit: [*b] or scalar, what a gate network adds to the gate's logit; default 0.
      payload: pytree whose leaves start with `*b`; must match what `init` was given. Floats are rounded to the float of
        the store; what it cannot hold at all is refused, by dtype inside a trace, where nobody can look at a number.
      valid: [*b] or scalar bool; False marks padding; default True.

    Returns:
      An `Experience` of float32, int32 and bool arrays.

    Raises:
      ArgumentTypeError: a wrong kind, named. ArgumentValueError: a wrong shape, a missing rpe, or, outside of jit, a
      number that is not finite in float32 or out of range where `valid`; named too.
    """
    check_config(config)
    embedding = as_float32("embedding", embedding)
    batch = _batch_shape(config, "embedding", embedding)
    valid = jnp.ones(batch, bool) if valid is None else filled("valid", valid, batch, "b")
    # Each is an array before the RPE is formed from it, so that an error names what the caller passed.
    computes_rpe = rpe is None and config.signal == "outcome"
    if computes_rpe and (reward is None or value is None):
        missing = "reward" if reward is None else "value"
        raise ArgumentValueError(f'{missing}: required, for Config.signal="outcome" computes rpe = reward - value.')
    if rpe is None and config.signal == "given":
        raise ArgumentValueError('rpe: required, unless Config.signal="outcome" computes it from reward and value.')
    rpe = 0.0 if rpe is None else rpe
    reward = filled("reward", 0.0 if reward is None else reward, batch, "f")
    value = filled("value", 0.0 if value is None else value, batch, "f")
    built = Experience(
        embedding=embedding,
        rpe=outcome_error(reward, value) if computes_rpe else filled("rpe", rpe, batch, "f"),
        reward=reward,
        value=value,
        discount=filled("discount", 1.0 if discount is None else discount, batch, "f"),
        next_embedding=_next_embedding(embedding, next_embedding),
        task=filled("task", 0 if task is None else task, batch, "i"),
        time=filled("time", UNSET if time is None else time, batch, "i"),
        utility=filled("utility", 1.0 if utility is None else utility, batch, "f"),
        gate_logit=filled("gate_logit", 0.0 if gate_logit is None else gate_logit, batch, "f"),
        payload=batched_payload(payload, batch),
        valid=valid,
    )
    for name in ("reward", "value", "rpe", "discount", "utility", "gate_logit"):
        _refuse_non_finite(name, getattr(built, name), valid)
    for name in ("embedding", "next_embedding"):
        _refuse_non_finite_vector(name, getattr(built, name), valid)
    for name in ("discount", "utility"):
        unit = getattr(built, name)
        _refuse(name, "within [0, 1]", unit, lambda x: (x < 0) | (x > 1), valid)
    _refuse("task", "any int32 but UNSET, which asks for all tasks", built.task, lambda x: x == UNSET, valid)
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
    check_bytes("batch_shape", batch_shape, 4 * config.embedding_dim * math.prod(batch_shape))
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
    embedding = as_float32(name, embedding)
    batch = _batch_shape(config, name, embedding)
    if value is None and config.salience == "value":
        raise ArgumentValueError('value: required, for Config.salience="value" compares it with the memories\' values.')
    built = Query(
        embedding=embedding,
        value=filled("value", 0.0 if value is None else value, batch, "f"),
        task=filled("task", UNSET if task is None else task, batch, "i"),
        sign=filled("sign", 0 if sign is None else sign, batch, "i"),
        min_age=filled("min_age", 0 if min_age is None else min_age, batch, "i"),
        max_age=filled("max_age", INT32.max if max_age is None else max_age, batch, "i"),
        time=filled("time", UNSET if time is None else time, batch, "i"),
    )
    everywhere = jnp.ones(batch, bool)
    _refuse_non_finite("value", built.value, everywhere)
    _refuse_non_finite_vector(name, embedding, everywhere)
    _refuse("sign", "-1, 0 or 1", built.sign, lambda x: ~np.isin(x, (-1, 0, 1)), everywhere)
    if is_concrete(built.max_age):
        latest = np.asarray(built.max_age)
        _refuse("min_age", "at most max_age", built.min_age, lambda x: x > latest, everywhere)
    return built


def check_batch_shape(given: Any) -> None:
    """Raises by name if it is none."""
    if not isinstance(given, (tuple, list)) or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in given
    ):
        raise ArgumentTypeError(f"batch_shape: expected a tuple of integers, got {shown(given)}.")
    if any(n < 0 for n in given):
        raise ArgumentValueError(f"batch_shape: expected sizes >= 0, got {shown(given)}.")


def check_bytes(name: str, given: Any, needed: int) -> None:
    """Raises by name where `given` asks for more bytes than an address has bits for: XLA would end the process."""
    if needed >= 2**63:
        raise ArgumentValueError(
            f"{name}: expected to need less than 2**63 bytes, got {shown(given)}: {needed:,} bytes."
        )


def check_config(config: Config) -> None:
    """Raises by name if `config` is none."""
    if not isinstance(config, Config):
        raise ArgumentTypeError(f"config: expected a dmem_jax.Config, got {type(config).__name__}.")


def as_query(config: Config, question: Any) -> Query:
    """The query that `recall` and `step` were given, or the one a bare embedding stands for; for one agent."""
    if isinstance(question, Query):
        return question
    if dataclasses.is_dataclass(question):
        raise ArgumentTypeError(f"query: expected a Query or an embedding, got {type(question).__name__}.")
    return _query(config, "query", question)


def with_stored_payload(
    stored_payload: PyTree, given: Experience, name: str = "experience", batch: tuple[int, ...] = ()
) -> Experience:
    """`given`, with the leading axes `batch`, its payload in the store's dtypes. Raises by name what cannot be written.

    `stored_payload`: the payload leaves of a tier, [N, ...]; their axis N is not compared.
    """
    return dataclasses.replace(given, payload=as_stored(stored_payload, given.payload, batch, f"{name}.payload"))


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
    return filled("by", given, shape, "i")


def feedback(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    """A float32 argument of `reinforce` or `renew`: [shape], or a scalar for all of them."""
    array = filled(name, given, shape, "f")
    _refuse_non_finite(name, array, jnp.ones(shape, bool))
    if name == "used" and is_concrete(array) and (np.asarray(array) < 0).any():
        raise ArgumentValueError(f"used: expected weights >= 0, got {shown(given)}.")
    return array


def _has_finite_norm(vector: Array) -> Array:
    """Covers non-finite components, and finite ones whose squares overflow float32 (a norm of 1e20)."""
    return jnp.isfinite(jnp.sum(vector * vector, axis=-1))


def _batch_shape(config: Config, name: str, embedding: Array) -> tuple[int, ...]:
    if embedding.ndim == 0 or embedding.shape[-1] != config.embedding_dim:
        raise ArgumentValueError(
            f"{name}: expected shape [..., {config.embedding_dim}] (Config.embedding_dim), got {list(embedding.shape)}."
        )
    return embedding.shape[:-1]


def _next_embedding(embedding: Array, given: Any) -> Array:
    if given is None:
        return jnp.zeros(embedding.shape, jnp.float32)
    given = as_float32("next_embedding", given)
    if given.shape != embedding.shape:
        raise ArgumentValueError(f"next_embedding: expected shape {embedding.shape}, got {given.shape}.")
    return given


def _refuse_non_finite(name: str, array: Array, valid: Array) -> None:
    _refuse(name, "finite float32 numbers", array, lambda x: ~np.isfinite(x), valid)


def _refuse_non_finite_vector(name: str, vectors: Array, valid: Array) -> None:
    expected = "finite float32 numbers with a finite norm"
    _refuse(name, expected, vectors, lambda x: ~np.asarray(_has_finite_norm(jnp.asarray(x))), valid)


def _refuse(name: str, expected: str, array: Array, wrong: Callable[[np.ndarray], np.ndarray], valid: Array) -> None:
    """Raises by name where a number is `wrong` and `valid`, if they are there to see."""
    if is_concrete(array) and is_concrete(valid):
        refused = np.asarray(valid) & wrong(np.asarray(array))
        if refused.any():
            raise ArgumentValueError(f"{name}: expected {expected}, got {first(array, refused)}.")
