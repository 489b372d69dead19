"""A value network over the embedding: what an agent expects, so that it can be surprised.

For agents without a critic of their own. Everything is a pure function of one learner; `jax.vmap` over the learner (and
its batch) makes thousands of independent ones, and `update` runs in a `lax.scan`. D embedding size, B rows of a batch.

    learner = init(learner_config, key)
    learner, info = update(learner_config, learner, batch)
    rpe = outcome_error(reward, value(learner_config, learner, embedding))
"""

import dataclasses
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Float32, Int32

from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.signals import as_float32, outcome_error, td_error

Norm = Literal["layer", "batch"]
Signal = Literal["outcome", "td"]
Variables = dict[str, Any]

SCALE_RATE = 0.01  # that of the memory's own running scale
QUANTILES = {"q50": 0.5, "q90": 0.9, "q98": 0.98}  # the last two are where the gate's quantile thresholds lie


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """What shapes the learner's program. Hashable; goes through jit, vmap and scan like any argument.

    Raises `ArgumentValueError` (a ValueError) or `ArgumentTypeError` (a TypeError) that names the field.
    """

    embedding_dim: int
    """D, numbers in an embedding, >= 1."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of each hidden layer, each >= 1; () makes a linear value."""
    norm: Norm | None = "layer"
    """After each hidden layer: "layer" (no state, right for batches of any size), "batch" (running statistics, for
    large and mixed batches), or None."""
    signal: Signal = "outcome"
    """What is learned. "outcome": the reward met in a state, best for remembering events; "td": the discounted return
    from it, by TD(0) with the target network."""
    gamma: float = 0.99
    """Discount per step of the "td" signal, in [0, 1]; the batch's own discount multiplies it."""
    target_period: int = 1
    """The target network moves at every so-many-th update, >= 1."""
    target_rate: float = 0.005
    """How far it then moves towards the online network, in (0, 1]. Period 1 and a small rate are Polyak averaging (Lillicrap
    et al., arXiv 1509.02971); a period of n and rate 1 copy it every n updates (Mnih et al., Nature 2015)."""
    optimizer: optax.GradientTransformation = dataclasses.field(default=optax.adam(1e-3), repr=False)
    """Any optax optimiser. Compared by identity, so make it once: another `optax.adam(...)` is another program."""

    def __post_init__(self) -> None:
        _check_count("embedding_dim", self.embedding_dim)
        if not isinstance(self.hidden, tuple):
            raise ArgumentTypeError(f"hidden: expected a tuple of ints, got {self.hidden!r}.")
        for units in self.hidden:
            _check_count("hidden", units)
        _check_kind("norm", self.norm, (None, *get_args(Norm)))
        _check_kind("signal", self.signal, get_args(Signal))
        if not 0 <= self.gamma <= 1:
            raise ArgumentValueError(f"gamma: expected a number in [0, 1], got {self.gamma!r}.")
        _check_count("target_period", self.target_period)
        if not 0 < self.target_rate <= 1:
            raise ArgumentValueError(f"target_rate: expected a number in (0, 1], got {self.target_rate!r}.")
        if not isinstance(self.optimizer, optax.GradientTransformation):
            raise ArgumentTypeError(f"optimizer: expected an optax.GradientTransformation, got {self.optimizer!r}.")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Learner:
    """One learner's whole state."""

    online: Variables  # flax: "params", and "batch_stats" with norm "batch"
    target: Variables  # the same of the target network: it has statistics of its own
    opt_state: optax.OptState
    updates: Int32[Array, ""]  # updates made, saturating
    skipped: Int32[Array, ""]  # batches that changed nothing: no usable row, or a gradient that was not finite
    error_mean: Float32[Array, ""]  # exponential mean of |rpe| over updates, reward units, not yet bias-corrected
    error_weight: Float32[Array, ""]  # the weight that this mean has gathered, in [0, 1]


@runtime_checkable
class Transitions(Protocol):
    """What a learner reads of a batch. A `Batch` has it, and so has a `dmem_jax.Experience` with one batch axis."""

    @property
    def embedding(self) -> Array: ...
    @property
    def reward(self) -> Array: ...
    @property
    def discount(self) -> Array | None: ...
    @property
    def next_embedding(self) -> Array | None: ...
    @property
    def valid(self) -> Array | None: ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows to learn from. With signal "outcome" the first two fields are enough."""

    embedding: Float[Array, "*b D"]  # of s; with signal "outcome" the state where the reward was met
    reward: Float[Array, "*b"]
    discount: Float[Array, "*b"] | None = None  # 0 at a terminal
    next_embedding: Float[Array, "*b D"] | None = None  # of s'; anything, even NaN, where discount is 0
    valid: Bool[Array, "*b"] | None = None  # False: padding


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UpdateInfo:
    """What an update did."""

    loss: Float32[Array, ""]  # half the mean weighted squared error of the used rows, before the update
    rpe: Float32[Array, "B"]  # reward units, before the update; 0 for rows that were not used
    used: Bool[Array, "B"]  # rows that were valid and finite
    applied: Bool[Array, ""]  # False: nothing changed but `Learner.skipped`


class ValueNetwork(nn.Module):
    """Dense layers, normalised, with ReLU, and one linear output. [..., D] -> [...]."""

    hidden: tuple[int, ...]
    norm: Norm | None

    @nn.compact
    def __call__(self, embedding: Array, *, train: bool = False, rows: Array | None = None) -> Array:
        """`rows` [...]: which rows the statistics of a training batch are taken over; None: all."""
        x = embedding
        for units in self.hidden:
            x = nn.Dense(units)(x)
            if self.norm == "layer":
                x = nn.LayerNorm()(x)
            elif self.norm == "batch":
                # Half-forgets in 7 updates: an agent's early life is over before flax's .99 has left its start.
                batch_norm = nn.BatchNorm(use_running_average=not train, momentum=0.9)
                x = batch_norm(x, mask=None if rows is None else rows[..., None])
            x = nn.relu(x)
        # A new critic expects exactly 0, so that no surprise comes from its random weights.
        return nn.Dense(1, kernel_init=nn.initializers.zeros_init())(x)[..., 0]


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
    if not jnp.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        raise ArgumentTypeError(f"key: expected a typed key, as jax.random.key(0), got {key!r}.")
    online = dict(_network(learner_config).init(key, jnp.zeros((1, learner_config.embedding_dim), jnp.float32)))
    learner = Learner(
        online=online,
        target=jax.tree.map(jnp.copy, online),  # a buffer of its own, so that a learner can be donated
        opt_state=learner_config.optimizer.init(online["params"]),
        updates=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
        error_mean=jnp.zeros((), jnp.float32),
        error_weight=jnp.zeros((), jnp.float32),
    )
    # Some optimisers start from weakly typed scalars, which would cost a second compile.
    return jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if leaf.weak_type else leaf, learner
    )


def value(learner_config: LearnerConfig, learner: Learner, embedding: ArrayLike) -> Float32[Array, "*b"]:
    """V of each embedding, in reward units.

    With norm "batch" by the running statistics, so that a row's value does not hang on its neighbours. NaN where the
    embedding is not finite; the memory refuses experiences with such a value.

    Args:
      embedding: [*b, D].

    Raises:
      ArgumentValueError: the last axis is not D. ArgumentTypeError: not real numbers.
    """
    return _apply(learner_config, learner.online, _embedding(learner_config, "embedding", embedding))


def target_value(learner_config: LearnerConfig, learner: Learner, embedding: ArrayLike) -> Float32[Array, "*b"]:
    """As `value`, by the target network: V(s') of the TD error."""
    return _apply(learner_config, learner.target, _embedding(learner_config, "embedding", embedding))


def rpe(learner_config: LearnerConfig, learner: Learner, batch: Transitions) -> Float32[Array, "*b"]:
    """The reward prediction error of each transition, by `LearnerConfig.signal`: of one (no batch axis) or of many.

    "outcome": reward - V(s); "td": reward + gamma * discount * V(s') - V(s), with V(s') from the target network.

    Raises:
      ArgumentValueError: a shape does not fit, or "td" misses discount or next_embedding.
      ArgumentTypeError: not real numbers.
    """
    return _error(learner_config, learner, batch, value(learner_config, learner, batch.embedding))


def update(
    learner_config: LearnerConfig, learner: Learner, batch: Transitions, importance_weights: ArrayLike | None = None
) -> tuple[Learner, UpdateInfo]:
    """One optimiser step on 1/2 mean(importance_weights * rpe^2), then the target network's move.

    The gradient does not flow through V(s') (semi-gradient TD(0), Sutton & Barto 2018, section 9.3). Rows that are not
    valid, or hold a number (or a norm, or a squared error) that is not finite in float32, or a weight that is not finite
    or is negative, count for nothing, batch statistics included. Where no row is left, or the gradient is not finite,
    nothing changes but `skipped`: bad numbers never reach the weights.

    Args:
      batch: [B] rows.
      importance_weights: [B], >= 0, of prioritized replay (arXiv 1511.05952, section 3.4); None: all 1.

    Returns:
      The new learner and an `UpdateInfo`.

    Raises:
      ArgumentValueError: a shape does not fit, or "td" misses discount or next_embedding.
      ArgumentTypeError: not real numbers, or `valid` is not bool.

    >>> learner_config = LearnerConfig(embedding_dim=2, hidden=(16,), optimizer=optax.adam(0.03))
    >>> learner = init(learner_config, jax.random.key(0))
    >>> batch = Batch(embedding=jnp.eye(2), reward=jnp.array([5.0, -5.0]))
    >>> for _ in range(300):
    ...     learner, info = jax.jit(update)(learner_config, learner, batch)
    >>> value(learner_config, learner, jnp.eye(2)).round(1).tolist()
    [5.0, -5.0]
    """
    if batch.embedding.ndim != 2:
        raise ArgumentValueError(f"batch.embedding: expected shape [B, D], got {batch.embedding.shape}.")
    batch, usable = _clean(learner_config, batch)
    weights = jnp.ones_like(batch.reward)
    if importance_weights is not None:
        weights = as_float32("importance_weights", importance_weights)
        _check_shape("importance_weights", weights, usable.shape)
        usable = usable & jnp.isfinite(weights) & (weights >= 0)
    # An empty batch has no statistics; those of its cleaned rows are finite, and thrown away below.
    rows = usable | ~usable.any()

    def loss_of(params: Any) -> tuple[Array, tuple[Array, Array, Variables]]:
        variables = {**learner.online, "params": params}
        network = _network(learner_config)
        values, statistics = network.apply(variables, batch.embedding, train=True, rows=rows, mutable=["batch_stats"])
        errors = _error(learner_config, learner, batch, values)
        used = usable & jnp.isfinite(errors * errors)
        errors = jnp.where(used, errors, 0.0)
        loss = 0.5 * jnp.sum(jnp.where(used, weights, 0.0) * errors * errors) / _at_least_one(used)
        return loss, (errors, used, dict(statistics))

    params = learner.online["params"]
    (loss, (errors, used, statistics)), gradient = jax.value_and_grad(loss_of, has_aux=True)(params)
    changes, opt_state = learner_config.optimizer.update(gradient, learner.opt_state, params)
    online = {**statistics, "params": optax.apply_updates(params, changes)}
    updates = optax.safe_increment(learner.updates)
    moved = optax.incremental_update(online, learner.target, learner_config.target_rate)
    proposed = Learner(
        online=online,
        target=_select(updates % learner_config.target_period == 0, moved, learner.target),
        opt_state=opt_state,
        updates=updates,
        skipped=learner.skipped,
        error_mean=(1 - SCALE_RATE) * learner.error_mean + SCALE_RATE * jnp.abs(errors).sum() / _at_least_one(used),
        error_weight=(1 - SCALE_RATE) * learner.error_weight + SCALE_RATE,
    )
    # The norm squares each entry, as optimisers do: if it is finite, so is what they keep.
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((optax.global_norm(gradient), online))])
    applied = used.any() & finite.all()
    refused = dataclasses.replace(learner, skipped=optax.safe_increment(learner.skipped))
    return _select(applied, proposed, refused), UpdateInfo(loss=loss, rpe=errors, used=used, applied=applied)


def monitor(learner_config: LearnerConfig, learner: Learner, batch: Transitions) -> dict[str, Float32[Array, ""]]:
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
    batch, usable = _clean(learner_config, batch)
    values = value(learner_config, learner, batch.embedding)
    errors = _error(learner_config, learner, batch, values)
    targets = values + errors
    usable = usable & jnp.isfinite(errors * errors) & jnp.isfinite(targets * targets)

    def mean(x: Array) -> Array:
        # Divides first: a sum of squares can overflow where their mean does not.
        return jnp.sum(jnp.where(usable, x, 0.0) / _at_least_one(usable))

    def variance(x: Array) -> Array:
        return mean(jnp.square(x - mean(x)))

    varies = variance(targets) > jnp.square(1e-5 * mean(jnp.abs(targets)))
    unexplained = variance(errors) / jnp.where(varies, variance(targets), 1.0)
    quantiles = _quantiles(jnp.abs(errors), usable, np.array(list(QUANTILES.values()), np.float32))
    scale = learner.error_mean / jnp.where(learner.error_weight > 0, learner.error_weight, 1.0)
    return {
        "rows": usable.sum().astype(jnp.float32),
        "rpe_mean_abs": mean(jnp.abs(errors)),
        "rpe_rms": jnp.sqrt(mean(jnp.square(errors))),
        **{f"rpe_abs_{name}": quantiles[i] for i, name in enumerate(QUANTILES)},
        "explained_variance": jnp.where(varies, 1 - unexplained, 0.0),
        "reward_sparsity": mean((batch.reward == 0).astype(jnp.float32)),
        "scale": jnp.where(learner.error_weight > 0, jnp.maximum(scale, jnp.finfo(jnp.float32).tiny), 1.0),
    }


def _network(learner_config: LearnerConfig) -> ValueNetwork:
    return ValueNetwork(hidden=learner_config.hidden, norm=learner_config.norm)


def _apply(learner_config: LearnerConfig, variables: Variables, embedding: Array) -> Array:
    return jnp.asarray(_network(learner_config).apply(variables, embedding))


def _error(learner_config: LearnerConfig, learner: Learner, batch: Transitions, values: Array) -> Array:
    """The prediction error of given values V(s)."""
    if learner_config.signal == "outcome":
        return outcome_error(batch.reward, values)
    discount, next_embedding = _successor(batch)
    next_values = jax.lax.stop_gradient(target_value(learner_config, learner, next_embedding))
    return td_error(batch.reward, values, next_values, discount, gamma=learner_config.gamma)


def _clean(learner_config: LearnerConfig, batch: Transitions) -> tuple[Batch, Bool[Array, "B"]]:
    """The batch in float32 with zeros for every row that cannot be used, and which rows can.

    Zeros, since a masked NaN still makes a NaN gradient: 0 * NaN.
    """
    embedding = _embedding(learner_config, "batch.embedding", batch.embedding)
    reward = as_float32("batch.reward", batch.reward)
    _check_shape("batch.reward", reward, embedding.shape[:-1])
    usable = _has_finite_norm(embedding) & jnp.isfinite(reward)
    if batch.valid is not None:
        if batch.valid.dtype != jnp.bool_:
            raise ArgumentTypeError(f"batch.valid: expected bool, got {batch.valid.dtype}.")
        _check_shape("batch.valid", batch.valid, usable.shape)
        usable = usable & batch.valid
    if learner_config.signal == "outcome":
        return Batch(embedding=_rows_or_zero(usable, embedding), reward=_rows_or_zero(usable, reward)), usable
    discount, next_embedding = _successor(batch)
    discount = as_float32("batch.discount", discount)
    _check_shape("batch.discount", discount, usable.shape)
    next_embedding = _embedding(learner_config, "batch.next_embedding", next_embedding)
    _check_shape("batch.next_embedding", next_embedding, embedding.shape)
    usable = usable & jnp.isfinite(discount) & (_has_finite_norm(next_embedding) | (discount == 0))
    cleaned = Batch(
        embedding=_rows_or_zero(usable, embedding),
        reward=_rows_or_zero(usable, reward),
        discount=_rows_or_zero(usable, discount),
        next_embedding=_rows_or_zero(usable & (discount != 0), next_embedding),
    )
    return cleaned, usable


def _successor(batch: Transitions) -> tuple[Array, Array]:
    for name in ("discount", "next_embedding"):
        if getattr(batch, name) is None:
            raise ArgumentValueError(f'batch.{name}: required, for LearnerConfig.signal="td" bootstraps from it.')
    return batch.discount, batch.next_embedding  # pyright: ignore[reportReturnType]


def _quantiles(x: Array, usable: Array, levels: np.ndarray) -> Array:
    """`jnp.quantile` of the usable entries, linear; 0 where there are none."""
    if x.size == 0:
        return jnp.zeros(levels.shape, jnp.float32)
    ordered = jnp.sort(jnp.where(usable, x, jnp.inf))
    last = jnp.maximum(usable.sum() - 1, 0)
    position = levels * last.astype(jnp.float32)
    below = jnp.floor(position).astype(jnp.int32)
    low, high = ordered[below], ordered[jnp.minimum(below + 1, last)]
    return jnp.where(usable.any(), low + (position - jnp.floor(position)) * (high - low), 0.0)


def _select(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _rows_or_zero(rows: Array, x: Array) -> Array:
    return jnp.where(rows.reshape(rows.shape + (1,) * (x.ndim - rows.ndim)), x, 0.0)


def _at_least_one(rows: Array) -> Array:
    return jnp.maximum(rows.sum(), 1).astype(jnp.float32)


def _has_finite_norm(embedding: Array) -> Array:
    return jnp.isfinite(jnp.sum(embedding * embedding, axis=-1))


def _embedding(learner_config: LearnerConfig, name: str, embedding: ArrayLike) -> Array:
    array = as_float32(name, embedding)
    if array.ndim == 0 or array.shape[-1] != learner_config.embedding_dim:
        expected = f"[..., {learner_config.embedding_dim}] (LearnerConfig.embedding_dim)"
        raise ArgumentValueError(f"{name}: expected shape {expected}, got {list(array.shape)}.")
    return array


def _check_shape(name: str, array: Array, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ArgumentValueError(f"{name}: expected shape {expected}, as batch.embedding, got {array.shape}.")


def _check_count(name: str, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)):
        raise ArgumentTypeError(f"{name}: expected an int, got {given!r}.")
    if given < 1:
        raise ArgumentValueError(f"{name}: expected at least 1, got {given}.")


def _check_kind(name: str, given: Any, kinds: tuple[Any, ...]) -> None:
    if given not in kinds:
        raise ArgumentValueError(f"{name}: expected one of {kinds}, got {given!r}.")
