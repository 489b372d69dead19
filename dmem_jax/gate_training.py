"""A gate that learns what to remember: trained by what is made of the memory much later, then used as any other gate.

Alpha, beta, thresholds, the weights and temperatures of recall, and a small network over the embedding are trained
together, by whatever is read out of the soft memory of an episode (`soft.py`):

    gate_config = GateConfig(embedding_dim=64)
    learner = init(gate_config, Params.default(config), key)          # config: Config(thresholds="learned", ...)

    def loss(params, gate_logit, episode):                            # a scalar, of anything that the read-out is for
        met = dataclasses.replace(episode.met, gate_logit=gate_logit(episode.met.embedding))
        soft = soft_memory(config, params, met)
        answer = soft_attend(params, soft, episode.asked, over=lambda payload: payload["value"])
        return jnp.mean(jnp.square(answer.readout - episode.right))

    learner, loss_now = jax.jit(update, static_argnums=(0, 2))(gate_config, learner, loss, episode)   # many times
    params, gate_logit = hard(gate_config, learner)                   # for dmem.experience(..., gate_logit=...), write

Everything is a pure function; for a batch of episodes vmap inside the loss. D embedding size.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.typing import ArrayLike
from jaxtyping import Array, Float32, Int32, PyTree

from dmem_jax.checks import check_key
from dmem_jax.conversion import as_float32, is_concrete, positive
from dmem_jax.counting import add_saturating
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.params import Params, sound
from dmem_jax.slots import choose

Loss = Callable[..., Array]
"""loss(params, gate_logit, *data) -> scalar; gate_logit: embeddings [*b, D] -> logits [*b]."""

# How a scalar that is learned stays in its range: what an optimiser moves is any number.
_POSITIVE = (lambda x: jnp.exp(jnp.clip(x, -80.0, 80.0)), jnp.log)  # within float32, whatever the optimiser does
_UNIT = (jax.nn.sigmoid, lambda y: jnp.log(y) - jnp.log1p(-y))
_FORMS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "gate_scale": (jax.nn.softplus, lambda y: y + jnp.log(-jnp.expm1(-y))),  # comes near 0 in few steps
    "gate_bias": (lambda x: x, lambda y: y),
    "threshold_low": _UNIT,  # learned thresholds are openings
    "threshold_high": _UNIT,
    "semantic_weight": _UNIT,
    "semantic_temperature": _POSITIVE,
    "salience_temperature": _POSITIVE,
    "threshold_temperature": _POSITIVE,
    "value_temperature": _POSITIVE,
    "half_life": _POSITIVE,
    "disaster_half_life": _POSITIVE,
    "scale_rate": _UNIT,
}


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class GateConfig:
    """What is learned, and how. Hashable; goes through jit, vmap and scan like any argument.

    Raises `ArgumentValueError` (a ValueError) or `ArgumentTypeError` (a TypeError) that names the field.
    """

    embedding_dim: int
    """D, numbers in an embedding, >= 1."""
    hidden: tuple[int, ...] | None = (32,)
    """Units of each hidden layer of the gate network, each >= 1; () makes a linear one, None no network at all."""
    learns: tuple[str, ...] = tuple(_FORMS)[:7]
    """Names of the Params that are learned; those not named stay as they are. By default alpha, beta, both thresholds,
    the semantic weight and both temperatures of recall."""
    optimizer: optax.GradientTransformation = dataclasses.field(default=optax.adam(1e-2), repr=False)
    """Any optax optimiser. Compared by identity, so make it once: another `optax.adam(...)` is another program."""

    def __post_init__(self) -> None:
        if self.hidden is not None and not isinstance(self.hidden, tuple):
            raise ArgumentTypeError(
                f"GateConfig.hidden: expected a tuple of integers or None, got {shown(self.hidden)}."
            )
        positive("GateConfig.embedding_dim", self.embedding_dim)
        for units in self.hidden or ():
            positive("GateConfig.hidden", units)
        if not isinstance(self.learns, tuple):
            raise ArgumentTypeError(f"GateConfig.learns: expected a tuple of names, got {shown(self.learns)}.")
        for name in self.learns:
            if not isinstance(name, str) or name not in _FORMS:
                raise ArgumentValueError(
                    f"GateConfig.learns: expected names of {', '.join(_FORMS)}; got {shown(name)}."
                )
        if not isinstance(self.optimizer, optax.GradientTransformation):
            raise ArgumentTypeError(f"GateConfig.optimizer: expected an optax optimiser, got {shown(self.optimizer)}.")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GateLearner:
    """The whole state of a training."""

    weights: dict[str, Any]  # what the optimiser moves: "scalars" (by name, any number), "network" (flax)
    params: Params  # as given; those that are learned are in `weights`
    opt_state: optax.OptState
    updates: Int32[Array, ""]  # steps made, saturating
    skipped: Int32[Array, ""]  # steps that changed nothing, for the loss or its gradient was not finite


class GateNetwork(nn.Module):
    """Dense layers with ReLU and one linear output. [..., D] -> [...]."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, embedding: Array) -> Array:
        x = embedding
        for units in self.hidden:
            x = nn.relu(nn.Dense(units)(x))
        # A new network says 0 of everything, so that training starts from the gate as it was set by hand.
        return nn.Dense(1, kernel_init=nn.initializers.zeros_init())(x)[..., 0]


def init(gate_config: GateConfig, params: Params, key: Array) -> GateLearner:
    """A learner that starts from the gate that `params` describe, and from a network that adds nothing to it.

    Args:
      params: of one agent.
      key: a typed key (`jax.random.key`), consumed.

    Raises:
      ArgumentValueError: a value that is to be learned lies at the end of its range, where it has no gradient (outside
      of jit). ArgumentTypeError: of the wrong kind, named.
    """
    _check_gate_config(gate_config)
    if not isinstance(params, Params):
        raise ArgumentTypeError(f"params: expected a dmem_jax.Params, got {type(params).__name__}.")
    check_key("key", key)
    params = sound(params)
    weights: dict[str, Any] = {"scalars": {}, "network": {}}
    for name in gate_config.learns:
        start = jnp.asarray(getattr(params, name), jnp.float32)
        weights["scalars"][name] = free = _FORMS[name][1](start)
        if is_concrete(free) and not np.isfinite(free).all():
            raise ArgumentValueError(f"params.{name}: expected within its range, ends excluded, got {start}.")
    if gate_config.hidden is not None:
        embedding = jnp.zeros((1, gate_config.embedding_dim), jnp.float32)
        weights["network"] = dict(GateNetwork(gate_config.hidden).init(key, embedding))
    learner = GateLearner(
        weights=weights,
        params=jax.tree.map(jnp.copy, params),  # a buffer of its own, so that a learner can be donated
        opt_state=gate_config.optimizer.init(weights),
        updates=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
    )
    # Some optimisers start from weakly typed scalars, which would cost a second compile.
    return jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if leaf.weak_type else leaf, learner
    )


def update(gate_config: GateConfig, learner: GateLearner, loss: Loss, *data: PyTree) -> tuple[GateLearner, Array]:
    """One optimiser step on `loss(params, gate_logit, *data)`.

    Where the loss or its gradient is not finite, nothing changes but `skipped`: bad numbers never reach the weights.

    Args:
      loss: a function that returns a scalar, lower is better; see the head of this module. Under jit it is static.
      data: whatever the loss is of.

    Returns:
      The new learner, and the loss before the step, float32 scalar.

    Raises:
      ArgumentTypeError: `loss` is no function. ArgumentValueError: it returns no scalar.
    """
    _check_gate_config(gate_config)
    if not callable(loss):
        raise ArgumentTypeError(f"loss: expected a function, got {shown(loss)}.")

    def of_weights(weights: dict[str, Any]) -> Array:
        params, gate_logit = _gate_of(gate_config, learner.params, weights)
        cost = jnp.asarray(loss(params, gate_logit, *data))
        if cost.shape != ():
            raise ArgumentValueError(f"loss: expected a function that returns a scalar, got shape {list(cost.shape)}.")
        return cost.astype(jnp.float32)

    cost, gradient = jax.value_and_grad(of_weights)(learner.weights)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes floats and counters, which a user's "strict" forbids
        changes, opt_state = gate_config.optimizer.update(gradient, learner.opt_state, learner.weights)
    proposed = dataclasses.replace(
        learner,
        weights=optax.apply_updates(learner.weights, changes),
        opt_state=opt_state,
        updates=add_saturating(learner.updates, jnp.ones((), jnp.int32)),
    )
    # Squared, as optimisers do: if these are finite, so is what they keep.
    squares = jax.tree.map(jnp.square, gradient)
    checked = jax.tree.leaves((cost, squares, proposed.weights))
    applied = jnp.stack([jnp.isfinite(leaf).all() for leaf in checked]).all()
    learner = choose(applied, proposed, learner)
    return dataclasses.replace(learner, skipped=add_saturating(learner.skipped, ~applied)), cost


def hard(gate_config: GateConfig, learner: GateLearner) -> tuple[Params, Callable[[ArrayLike], Float32[Array, "*b"]]]:
    """What was learned, for the ordinary memory with `Config.thresholds="learned"`.

    Returns:
      The Params, and a function of embeddings [*b, D] -> logits [*b] for `dmem.experience(..., gate_logit=...)`. An
      embedding that is not finite gets the logit of zeros; the memory refuses its experience.
    """
    _check_gate_config(gate_config)
    return _gate_of(gate_config, learner.params, learner.weights)


def _gate_of(gate_config: GateConfig, params: Params, weights: dict[str, Any]) -> tuple[Params, Callable]:
    """Params, and the function of embeddings, that `weights` stand for."""
    learned = {name: _FORMS[name][0](free) for name, free in weights["scalars"].items()}

    def gate_logit(embedding: ArrayLike) -> Array:
        given = as_float32("embedding", embedding)
        if given.ndim == 0 or given.shape[-1] != gate_config.embedding_dim:
            expected = f"[..., {gate_config.embedding_dim}] (GateConfig.embedding_dim)"
            raise ArgumentValueError(f"embedding: expected shape {expected}, got {list(given.shape)}.")
        if gate_config.hidden is None:
            return jnp.zeros(given.shape[:-1], jnp.float32)
        finite = jnp.isfinite(given).all(-1, keepdims=True)
        return jnp.asarray(GateNetwork(gate_config.hidden).apply(weights["network"], jnp.where(finite, given, 0.0)))

    return dataclasses.replace(params, **learned), gate_logit


def _check_gate_config(gate_config: GateConfig) -> None:
    if not isinstance(gate_config, GateConfig):
        raise ArgumentTypeError(f"gate_config: expected a GateConfig, got {type(gate_config).__name__}.")
