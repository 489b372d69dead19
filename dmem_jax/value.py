"""A value network over the embedding: what an agent expects, so that it can be surprised.

For agents without a critic of their own. Everything is a pure function of one learner; `jax.vmap` over the learner (and
its batch) makes thousands of independent ones, and `update` runs in a `lax.scan`. D embedding size, B rows of a batch.

    learner = init(learner_config, key)
    learner, info = update(learner_config, learner, batch)
    rpe = outcome_error(reward, value(learner_config, learner, embedding))
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float32

from dmem_jax.checks import check_key
from dmem_jax.conversion import as_float32, filled
from dmem_jax.counting import add_saturating
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.learner import (
    Batch,
    Learner,
    LearnerConfig,
    Norm,
    Signal,
    UpdateInfo,
    ValueNetwork,
    Variables,
    check_learner,
    check_learner_config,
    fresh,
    network,
)
from dmem_jax.quantiles import quantiles
from dmem_jax.signals import outcome_error, td_error
from dmem_jax.slots import choose
from dmem_jax.types import Experience, ReplayBatch

__all__ = [
    "Batch",
    "Learner",
    "LearnerConfig",
    "Norm",
    "Signal",
    "UpdateInfo",
    "ValueNetwork",
    "Variables",
    "init",
    "monitor",
    "target_value",
    "update",
    "value",
]

SCALE_RATE = 0.01  # that of the memory's own running scale
QUANTILES = {"q50": 0.5, "q90": 0.9, "q98": 0.98}  # the last two are where the gate's quantile thresholds lie


def init(learner_config: LearnerConfig, key: Array) -> Learner:
    """A learner that expects 0 everywhere.

    Args:
      key: a typed key (`jax.random.key`), consumed. For many learners vmap over split keys.

    Raises:
      ArgumentTypeError: the key is not a typed one.

    >>> learner_config = LearnerConfig(embedding_dim=4)
    >>> learners = jax.vmap(init, in_axes=(None, 0))(learner_config, jax.random.split(jax.random.key(0), 1000))
    >>> learners.updates.shape
    (1000,)
    """
    check_learner_config(learner_config)
    check_key("key", key)
    return fresh(learner_config, key)


def value(learner_config: LearnerConfig, learner: Learner, embedding: ArrayLike) -> Float32[Array, "*b"]:
    """V of each embedding, in reward units.

    With norm "batch" by the running statistics, so that a row's value does not hang on its neighbours. May be NaN where
    the embedding's norm is not finite in float32 (1e20 in a single number is enough); the memory refuses experiences
    with such a value.

    Args:
      embedding: [*b, D].

    Raises:
      ArgumentValueError: the last axis is not D, or the learner is of another config, or many. ArgumentTypeError: not
      real numbers, or a wrong class.
    """
    check_learner(learner_config, learner)
    return _apply(learner_config, learner.online, _embedding(learner_config, "embedding", embedding))


def target_value(learner_config: LearnerConfig, learner: Learner, embedding: ArrayLike) -> Float32[Array, "*b"]:
    """As `value`, by the target network: V(s') of the TD error."""
    check_learner(learner_config, learner)
    return _apply(learner_config, learner.target, _embedding(learner_config, "embedding", embedding))


def update(
    learner_config: LearnerConfig,
    learner: Learner,
    batch: Batch | Experience | ReplayBatch,
    importance_weights: ArrayLike | None = None,
) -> tuple[Learner, UpdateInfo]:
    """One optimiser step on 1/2 mean(importance_weights * rpe^2), then the target network's move.

    No gradient flows through V(s'): semi-gradient TD(0), Sutton & Barto (2018), section 9.3.

    A row counts for nothing, batch statistics included, where it is not valid, where a number in it, the norm of an
    embedding or the squared error is not finite in float32, and where its weight is negative or not finite. Where no
    row is left, or the gradient is not finite, nothing changes but `skipped`: bad numbers never reach the weights.

    Args:
      batch: [B] rows, of a replayed batch those that are `valid`.
      importance_weights: [B], >= 0, of prioritized replay (arXiv 1511.05952, section 3.4); None: all 1.

    Returns:
      The new learner and an `UpdateInfo`.

    Raises:
      ArgumentValueError: a shape does not fit, or "td" misses discount or next_embedding.
      ArgumentTypeError: not real numbers, `valid` is not bool, or a wrong class.

    >>> learner_config = LearnerConfig(embedding_dim=2, hidden=(16,), optimizer=optax.adam(0.03))
    >>> learner = init(learner_config, jax.random.key(0))
    >>> batch = Batch(embedding=jnp.eye(2), reward=jnp.array([5.0, -5.0]))
    >>> for _ in range(300):
    ...     learner, info = jax.jit(update)(learner_config, learner, batch)
    >>> value(learner_config, learner, jnp.eye(2)).round(1).tolist()
    [5.0, -5.0]
    """
    embedding, _, usable, errors_of = _read(learner_config, learner, batch)
    if importance_weights is None:
        weights = jnp.ones_like(usable, jnp.float32)
    else:
        weights = _floats("importance_weights", importance_weights, usable.shape)
        usable = usable & jnp.isfinite(weights) & (weights >= 0)
    # An empty batch has no statistics; those of its zeros are finite, and thrown away below.
    rows = usable | ~usable.any()

    def loss_of(params: Any) -> tuple[Array, tuple[Array, Array, Variables]]:
        variables = {**learner.online, "params": params}
        net = network(learner_config)
        values, statistics = net.apply(variables, embedding, train=True, rows=rows, mutable=["batch_stats"])
        errors = errors_of(values)
        used = usable & jnp.isfinite(errors * errors)
        errors = jnp.where(used, errors, 0.0)
        loss = 0.5 * jnp.sum(jnp.where(used, weights, 0.0) / _at_least_one(used) * errors * errors)
        return loss, (errors, used, dict(statistics))

    params = learner.online["params"]
    (loss, (errors, used, statistics)), gradient = jax.value_and_grad(loss_of, has_aux=True)(params)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes floats and counters, which a user's "strict" forbids
        changes, opt_state = learner_config.optimizer.update(gradient, learner.opt_state, params)
    online = {**statistics, "params": optax.apply_updates(params, changes)}
    updates = add_saturating(learner.updates, jnp.ones((), jnp.int32))
    rate = learner_config.target_rate
    moved = jax.tree.map(lambda new, old: rate * new + (1 - rate) * old, online, learner.target)
    proposed = Learner(
        online=online,
        target=choose(updates % learner_config.target_period == 0, moved, learner.target),
        opt_state=opt_state,
        updates=updates,
        skipped=learner.skipped,
        error_mean=(1 - SCALE_RATE) * learner.error_mean + SCALE_RATE * jnp.abs(errors).sum() / _at_least_one(used),
        error_weight=(1 - SCALE_RATE) * learner.error_weight + SCALE_RATE,
    )
    # Squared, as optimisers do: if these are finite, so is what they keep.
    squares = jax.tree.map(jnp.square, gradient)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((squares, online))])
    applied = used.any() & finite.all()
    learner = dataclasses.replace(choose(applied, proposed, learner), skipped=add_saturating(learner.skipped, ~applied))
    return learner, UpdateInfo(loss=loss, rpe=errors, used=used, applied=applied)


def monitor(
    learner_config: LearnerConfig, learner: Learner, batch: Batch | Experience | ReplayBatch
) -> dict[str, Float32[Array, ""]]:
    """How good the critic is on rows it was not trained on, as flat scalars for a log.

    Args:
      batch: [B] held-out rows; those that are not valid or not finite are left out.

    Returns:
      float32 scalars, never NaN, 0 where there is nothing to tell:
      rows: how many were used.
      rpe_mean_abs, rpe_rms: of the prediction error, reward units.
      rpe_abs_q50, _q90, _q98: quantiles of |rpe|, reward units, interpolated linearly.
      explained_variance: 1 - Var(rpe) / Var(target), <= 1; 0 is a critic that might as well be constant. 0 also where
        the targets vary no more than their rounding.
      reward_sparsity: share of rows whose reward is exactly 0, in [0, 1].
      scale: running mean of |rpe| over the learner's updates, reward units; 1 before the first.

    Raises:
      ArgumentValueError, ArgumentTypeError: as `update`.
    """
    embedding, reward, usable, errors_of = _read(learner_config, learner, batch)
    values = value(learner_config, learner, embedding)
    errors = errors_of(values)
    targets = values + errors
    usable = usable & jnp.isfinite(errors * errors) & jnp.isfinite(targets * targets)

    def mean(x: Array) -> Array:
        # Divides first: a sum of squares can overflow where their mean does not.
        return jnp.sum(jnp.where(usable, x, 0.0) / _at_least_one(usable))

    def variance(x: Array) -> Array:
        return mean(jnp.square(x - mean(x)))

    varies = variance(targets) > jnp.square(1e-5 * mean(jnp.abs(targets)))
    unexplained = variance(errors) / jnp.where(varies, variance(targets), 1.0)
    scale = learner.error_mean / jnp.where(learner.error_weight > 0, learner.error_weight, 1.0)
    return {
        "rows": usable.sum(dtype=jnp.float32),
        "rpe_mean_abs": mean(jnp.abs(errors)),
        "rpe_rms": jnp.sqrt(mean(jnp.square(errors))),
        **{f"rpe_abs_{name}": rpe for name, rpe in quantiles(jnp.abs(errors), usable, QUANTILES).items()},
        "explained_variance": jnp.where(varies, 1 - unexplained, 0.0),
        "reward_sparsity": mean((reward == 0).astype(jnp.float32)),
        "scale": jnp.where(learner.error_weight > 0, jnp.maximum(scale, jnp.finfo(jnp.float32).tiny), 1.0),
    }


def _apply(learner_config: LearnerConfig, variables: Variables, embedding: Array) -> Array:
    return jnp.asarray(network(learner_config).apply(variables, embedding))


def _read(
    learner_config: LearnerConfig, learner: Learner, batch: Batch | Experience | ReplayBatch
) -> tuple[Array, Array, Array, Callable[[Array], Array]]:
    """Embeddings, rewards, which rows can be used, and the errors [B] that values V(s) [B] make.

    Rows that cannot be used are zeros, since a masked NaN still makes a NaN gradient: 0 * NaN.
    """
    check_learner(learner_config, learner)
    if not isinstance(batch, (Batch, Experience, ReplayBatch)):
        came = type(batch).__name__
        raise ArgumentTypeError(f"batch: expected a Batch, an Experience or a ReplayBatch, got {came}.")
    embedding = _embedding(learner_config, "batch.embedding", batch.embedding)
    if embedding.ndim != 2 or not embedding.shape[0]:
        raise ArgumentValueError(f"batch.embedding: expected shape [B, D] with B >= 1, got {list(embedding.shape)}.")
    size = embedding.shape[:1]
    reward = _floats("batch.reward", batch.reward, size)
    usable = _has_finite_norm(embedding) & jnp.isfinite(reward)
    if batch.valid is not None:
        usable = usable & filled("batch.valid", batch.valid, size, "b")
    if learner_config.signal == "outcome":
        embedding, reward = _zero_unless(usable, embedding), _zero_unless(usable, reward)
        return embedding, reward, usable, lambda values: outcome_error(reward, values)

    if batch.discount is None or batch.next_embedding is None:
        missing = "discount" if batch.discount is None else "next_embedding"
        raise ArgumentValueError(f'batch.{missing}: required, for LearnerConfig.signal="td" bootstraps with it.')
    discount = _floats("batch.discount", batch.discount, size)
    next_embedding = _floats("batch.next_embedding", batch.next_embedding, embedding.shape)
    usable = usable & jnp.isfinite(discount) & (_has_finite_norm(next_embedding) | (discount == 0))
    embedding, reward, discount, next_embedding = (
        _zero_unless(usable, x) for x in (embedding, reward, discount, _zero_unless(discount != 0, next_embedding))
    )
    next_values = target_value(learner_config, learner, next_embedding)
    gamma = learner_config.gamma
    return embedding, reward, usable, lambda values: td_error(reward, values, next_values, discount, gamma=gamma)


def _zero_unless(rows: Array, x: Array) -> Array:
    return jnp.where(rows[:, None] if x.ndim == 2 else rows, x, 0.0)


def _at_least_one(rows: Array) -> Array:
    return jnp.maximum(rows.sum(dtype=jnp.int32), 1).astype(jnp.float32)


def _has_finite_norm(embedding: Array) -> Array:
    return jnp.isfinite(jnp.sum(embedding * embedding, axis=-1))


def _embedding(learner_config: LearnerConfig, name: str, embedding: ArrayLike) -> Array:
    array = as_float32(name, embedding)
    if array.ndim == 0 or array.shape[-1] != learner_config.embedding_dim:
        expected = f"[..., {learner_config.embedding_dim}] (LearnerConfig.embedding_dim)"
        raise ArgumentValueError(f"{name}: expected shape {expected}, got {list(array.shape)}.")
    return array


def _floats(name: str, given: ArrayLike, expected: tuple[int, ...]) -> Array:
    array = as_float32(name, given)
    if array.shape != expected:
        raise ArgumentValueError(f"{name}: expected shape {expected}, to go with batch.embedding, got {array.shape}.")
    return array
