"""Where surprise comes from: reward prediction errors, from one transition or from a whole trajectory.

Shapes: `T` steps, time axis first; `*batch` any further axes. Every function is pure, computes in float32 whatever it
is given, and stops no gradient. Errors, rewards and values share one unit: that of the reward.

A `discount` belongs to the step from one state to the next: 0 where that step ended the episode, else 1 (or the user's
own factor in [0, 1]); `gamma` multiplies it. At a discount of 0 nothing is bootstrapped, not even a NaN.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dmem_jax.conversion import as_float32
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError


def td_error(
    reward: ArrayLike, value: ArrayLike, next_value: ArrayLike, discount: ArrayLike, *, gamma: ArrayLike = 1.0
) -> Float[Array, "*batch"]:
    """How much better the world was than V(s), by one step and what V says of the next state.

        reward + gamma * discount * next_value - value

    Args:
      reward: [*batch], what the step paid.
      value: [*batch], V(s).
      next_value: [*batch], V(s'), from the target network if there is one. Where a time limit cut the episode, that of
          the final observation, never of the one after the reset.
      discount: [*batch], 0 at a terminal.
      gamma: scalar in [0, 1].

    A scalar among arrays stands for all of them.

    Returns:
      [*batch] float32.

    Raises:
      ArgumentValueError: shapes differ, or gamma is out of range.
      ArgumentTypeError: an argument does not hold real numbers.

    Source: Sutton & Barto, Reinforcement Learning (2nd ed. 2018), eq. 6.5.

    >>> float(td_error(reward=1.0, value=0.5, next_value=2.0, discount=1.0, gamma=0.5))
    1.5
    >>> float(td_error(reward=1.0, value=0.5, next_value=2.0, discount=0.0, gamma=0.5))
    0.5
    """
    reward, value, next_value, discount = _alike(reward=reward, value=value, next_value=next_value, discount=discount)
    return reward + _unit_scalar("gamma", gamma) * discount * _unless_ended(discount, next_value) - value


def outcome_error(reward: ArrayLike, value: ArrayLike) -> Float[Array, "*batch"]:
    """How much better the outcome was than foretold: reward - V(state where it was met).

    The TD error at gamma = 0. It is 0 all the way to an event and speaks up at the event, which is what a memory of
    events wants; the TD error spreads the same surprise over the way there.

    Args:
      reward: [*batch], the outcome.
      value: [*batch], V of the state where the outcome was met. A scalar stands for all.

    Returns:
      [*batch] float32.

    Raises:
      ArgumentValueError: shapes differ.
      ArgumentTypeError: an argument does not hold real numbers.

    Source: Rescorla & Wagner (1972), A theory of Pavlovian conditioning.

    >>> outcome_error(jnp.array([10.0, 0.0]), jnp.array([4.0, 4.0])).tolist()
    [6.0, -4.0]
    """
    reward, value = _alike(reward=reward, value=value)
    return reward - value


def n_step_error(
    rewards: ArrayLike, values: ArrayLike, discounts: ArrayLike, *, n: int, gamma: ArrayLike = 1.0
) -> Float[Array, "T *batch"]:
    """The error of each V(s_t) against the next n rewards and V of the state n steps on.

    A window that reaches beyond T is cut at T and bootstraps from values[T]. One that meets a terminal ends there and
    bootstraps from nothing. So a trajectory may run over terminals, but must be cut where a time limit cut the episode,
    with V(final observation) as values[T].

    Args:
      rewards: [T, *batch].
      values: [T + 1, *batch], V(s_0) .. V(s_T).
      discounts: [T, *batch], 0 where step t was terminal.
      n: window, in steps, >= 1, static. n = 1 is `td_error`.
      gamma: scalar in [0, 1].

    Returns:
      [T, *batch] float32.

    Raises:
      ArgumentValueError: shapes do not fit, n < 1, or gamma is out of range.
      ArgumentTypeError: n is not a Python int, or an array does not hold real numbers.

    Source: Sutton & Barto (2018), eq. 7.1.

    >>> rewards, values, discounts = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.0, 0.0, 0.0, 8.0]), jnp.ones(3)
    >>> n_step_error(rewards, values, discounts, n=2).tolist()
    [3.0, 14.0, 12.0]
    >>> n_step_error(rewards, values, jnp.array([1.0, 0.0, 1.0]), n=2).tolist()
    [3.0, 2.0, 12.0]
    """
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise ArgumentTypeError(f"n: expected a Python int, known at trace time, got {type(n).__name__}.")
    if n < 1:
        raise ArgumentValueError(f"n: expected at least 1 step, got {n}.")
    rewards, values, discounts = _trajectory(rewards, values, discounts)
    rates = _unit_scalar("gamma", gamma) * discounts

    def look_one_step_further(_: Any, returns: Array) -> Array:
        further = rewards + rates * _unless_ended(discounts, returns[1:])
        return jnp.concatenate([further, values[-1:]])

    returns = jax.lax.fori_loop(0, min(int(n), rewards.shape[0]), look_one_step_further, values)
    return (returns - values)[:-1]


def lambda_error(
    rewards: ArrayLike, values: ArrayLike, discounts: ArrayLike, *, lambda_: ArrayLike, gamma: ArrayLike = 1.0
) -> Float[Array, "T *batch"]:
    """The error of each V(s_t) against its lambda-return: n-step errors of every n, weighted by lambda_^(n - 1).

    lambda_ = 0 is `td_error`, lambda_ = 1 is `n_step_error` with n = T. Terminals, the end of the trajectory and time
    limits are as in `n_step_error`.

    Args:
      rewards: [T, *batch].
      values: [T + 1, *batch], V(s_0) .. V(s_T).
      discounts: [T, *batch], 0 where step t was terminal.
      lambda_: scalar in [0, 1], may be traced (then its range is not checked).
      gamma: scalar in [0, 1], may be traced likewise.

    Returns:
      [T, *batch] float32.

    Raises:
      ArgumentValueError: shapes do not fit, or lambda_ or gamma is out of range.
      ArgumentTypeError: an argument does not hold real numbers.

    Source: the truncated lambda-return, Sutton & Barto (2018), eq. 12.9, less V; computed as the generalised advantage
    estimate of Schulman et al., arXiv 1506.02438, eq. 16.

    >>> rewards, values, discounts = jnp.array([0.0, 1.0]), jnp.array([0.0, 0.0, 4.0]), jnp.array([1.0, 1.0])
    >>> lambda_error(rewards, values, discounts, lambda_=0.5).tolist()
    [2.5, 5.0]
    """
    rewards, values, discounts = _trajectory(rewards, values, discounts)
    errors = td_error(rewards, values[:-1], values[1:], discounts, gamma=gamma)
    rates = _unit_scalar("gamma", gamma) * _unit_scalar("lambda_", lambda_) * discounts

    def one_step_back(later: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        error, rate, discount = step
        total = error + rate * _unless_ended(discount, later)
        return total, total

    _, totals = jax.lax.scan(one_step_back, jnp.zeros_like(values[0]), (errors, rates, discounts), reverse=True)
    return totals


def potential_shaping(
    potential: ArrayLike, next_potential: ArrayLike, discount: ArrayLike, *, gamma: ArrayLike = 1.0
) -> Float[Array, "*batch"]:
    """What to add to a reward so that it guides and yet changes no best policy.

        gamma * discount * next_potential - potential

    Args:
      potential: [*batch], Phi(s), in units of reward.
      next_potential: [*batch], Phi(s').
      discount: [*batch], 0 at a terminal, whose potential must count as 0 or the best policy may change.
      gamma: scalar in [0, 1], the one the agent learns with.

    A scalar among arrays stands for all of them.

    Returns:
      [*batch] float32.

    Raises:
      ArgumentValueError: shapes differ, or gamma is out of range.
      ArgumentTypeError: an argument does not hold real numbers.

    Source: Ng, Harada & Russell, Policy invariance under reward transformations (ICML 1999).

    >>> float(potential_shaping(potential=2.0, next_potential=4.0, discount=1.0, gamma=0.75))
    1.0
    """
    potential, next_potential, discount = _alike(potential=potential, next_potential=next_potential, discount=discount)
    return _unit_scalar("gamma", gamma) * discount * _unless_ended(discount, next_potential) - potential


def _unless_ended(discount: Array, bootstrap: Array) -> Array:
    # Not left to 0 * bootstrap: what lies behind a terminal may be infinite or NaN, and 0 times that is NaN.
    return jnp.where(discount == 0, 0.0, bootstrap)


def _unit_scalar(name: str, x: ArrayLike) -> Float[Array, ""]:
    scalar = as_float32(name, x)
    if scalar.shape != ():
        raise ArgumentValueError(f"{name}: expected a scalar, got shape {scalar.shape}.")
    # Asks x, not scalar: inside jit even the array made from a Python number is a tracer.
    if not isinstance(x, Tracer) and not 0 <= np.asarray(x) <= 1:
        raise ArgumentValueError(f"{name}: expected a number in [0, 1], got {x}.")
    return scalar


def _alike(**arguments: ArrayLike) -> list[Array]:
    """The arguments in float32, all of one shape once scalars are spread; an error names the first that is not."""
    arrays = {name: as_float32(name, x) for name, x in arguments.items()}
    model = max(arrays, key=lambda name: arrays[name].ndim)
    shape = arrays[model].shape
    for name, array in arrays.items():
        if array.shape not in ((), shape):
            raise ArgumentValueError(
                f"{name}: expected shape {shape}, that of {model}, or a scalar, got {array.shape}."
            )
    return [jnp.broadcast_to(array, shape) for array in arrays.values()]


def _trajectory(rewards: ArrayLike, values: ArrayLike, discounts: ArrayLike) -> tuple[Array, Array, Array]:
    rewards, values = as_float32("rewards", rewards), as_float32("values", values)
    discounts = as_float32("discounts", discounts)
    if rewards.ndim == 0:
        raise ArgumentValueError("rewards: expected shape [T, ...], time first, got a scalar.")
    steps, *batch = rewards.shape
    if values.shape != (steps + 1, *batch):
        raise ArgumentValueError(
            f"values: expected shape {(steps + 1, *batch)}, one more than rewards, got {values.shape}."
        )
    if discounts.shape != rewards.shape:
        raise ArgumentValueError(f"discounts: expected shape {rewards.shape}, that of rewards, got {discounts.shape}.")
    return rewards, values, discounts
