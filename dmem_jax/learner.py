"""What the value network's learner is made of: its config, its state, the network, and what it learns from.

D embedding size, B rows of a batch. What is done with them: value.py.
"""

import dataclasses
import functools
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Float32, Int32

from dmem_jax.conversion import as_float32, is_concrete, whole_number
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

Norm = Literal["layer", "batch"]
Signal = Literal["outcome", "td"]
Variables = dict[str, Any]


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
    """How far it then moves towards the online network, in (0, 1]. A small rate with period 1 is Polyak averaging
    (Lillicrap et al., arXiv 1509.02971); rate 1 with period n copies it every n updates (Mnih et al., Nature 2015)."""
    optimizer: optax.GradientTransformation = dataclasses.field(default=optax.adam(1e-3), repr=False)
    """Any optax optimiser. Compared by identity, so make it once: another `optax.adam(...)` is another program."""

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, tuple):
            raise ArgumentTypeError(f"LearnerConfig.hidden: expected a tuple of integers, got {shown(self.hidden)}.")
        if not isinstance(self.optimizer, optax.GradientTransformation):
            came = shown(self.optimizer)
            raise ArgumentTypeError(f"LearnerConfig.optimizer: expected an optax optimiser, got {came}.")
        for name in ("embedding_dim", "target_period"):
            self._set(name, whole_number(f"LearnerConfig.{name}", getattr(self, name), 1))
        self._set("hidden", tuple(whole_number("LearnerConfig.hidden", units, 1) for units in self.hidden))
        for name, kinds in (("norm", (*get_args(Norm), None)), ("signal", get_args(Signal))):
            kind = getattr(self, name)
            if not (kind is None or isinstance(kind, str)) or kind not in kinds:
                expected = ", ".join(map(repr, kinds))
                raise ArgumentValueError(f"LearnerConfig.{name}: expected one of {expected}; got {shown(kind)}.")
        self._set("gamma", _number("gamma", self.gamma))
        if not 0 <= self.gamma <= 1:
            raise ArgumentValueError(f"LearnerConfig.gamma: expected within [0, 1], got {self.gamma!r}.")
        self._set("target_rate", _number("target_rate", self.target_rate))
        if not 0 < self.target_rate <= 1:
            raise ArgumentValueError(f"LearnerConfig.target_rate: expected within (0, 1], got {self.target_rate!r}.")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows to learn from. With signal "outcome" the first two fields are enough. An `Experience` serves as well."""

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
            # Batch statistics take a bias out again: its gradient is rounding, which Adam would blow up to full steps.
            x = nn.Dense(units, use_bias=self.norm != "batch")(x)
            if self.norm == "layer":
                x = nn.LayerNorm()(x)
            elif self.norm == "batch":
                # Half-forgets in 7 updates: an agent's early life is over before flax's .99 has left its start.
                batch_norm = nn.BatchNorm(use_running_average=not train, momentum=0.9)
                x = batch_norm(x, mask=None if rows is None else rows[..., None])
            x = nn.relu(x)
        # A new critic expects exactly 0, so that no surprise comes from its random weights.
        return nn.Dense(1, kernel_init=nn.initializers.zeros_init())(x)[..., 0]


def network(learner_config: LearnerConfig) -> ValueNetwork:
    """The network that the learner's variables belong to."""
    return ValueNetwork(hidden=learner_config.hidden, norm=learner_config.norm)


def fresh(learner_config: LearnerConfig, key: Array) -> Learner:
    """See `value.init`."""
    online = dict(network(learner_config).init(key, jnp.zeros((1, learner_config.embedding_dim), jnp.float32)))
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


def check_learner(learner_config: LearnerConfig, learner: Learner) -> None:
    """Raises by name what is no learner of `learner_config`, or many of them."""
    check_learner_config(learner_config)
    if not isinstance(learner, Learner):
        raise ArgumentTypeError(f"learner: expected a dmem_jax.value.Learner, got {type(learner).__name__}.")
    given, expected = _types(learner), _learner_types(learner_config)
    for path in expected | given:
        if given.get(path) != expected.get(path):
            raise ArgumentValueError(
                f"learner{path}: expected {expected.get(path, 'nothing')}, got {given.get(path, 'nothing')}. "
                "It is of another LearnerConfig, or of many learners: for those wrap the function in jax.vmap."
            )


def check_learner_config(learner_config: LearnerConfig) -> None:
    """Raises by name if it is none."""
    if not isinstance(learner_config, LearnerConfig):
        came = type(learner_config).__name__
        raise ArgumentTypeError(f"learner_config: expected a dmem_jax.value.LearnerConfig, got {came}.")


def _types(learner: Learner) -> dict[str, str]:
    """Dtype and shape of each leaf, by its path."""

    def told(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else type(leaf).__name__

    return {jax.tree_util.keystr(path): told(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(learner)}


@functools.lru_cache
def _learner_types(learner_config: LearnerConfig) -> dict[str, str]:
    return _types(jax.eval_shape(lambda: fresh(learner_config, jax.random.key(0))))


def _number(name: str, given: Any) -> float:
    """As a Python number, so that the config stays hashable."""
    number = as_float32(f"LearnerConfig.{name}", given)
    if not is_concrete(given):
        raise ArgumentTypeError(f"LearnerConfig.{name}: expected a number known when tracing, got {shown(given)}.")
    if number.shape != ():
        raise ArgumentValueError(f"LearnerConfig.{name}: expected a scalar, got shape {number.shape}.")
    return float(given)
