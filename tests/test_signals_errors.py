"""The prediction errors of signals.py, held against loops that follow the textbook definitions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmem_jax.signals import lambda_error, n_step_error, outcome_error, potential_shaping, td_error

fast_n_step_error = jax.jit(n_step_error, static_argnames="n")  # eager loops would compile anew at each call
fast_lambda_error = jax.jit(lambda_error)
ERRORS_OF_TRAJECTORIES = {
    "n_step": lambda *trajectory, **rates: n_step_error(*trajectory, n=2, **rates),
    "lambda": lambda *trajectory, **rates: lambda_error(*trajectory, lambda_=0.5, **rates),
}


def slow_return(rewards, values, discounts, gamma, t, n):
    """n rewards from t on, then the value there; cut at the end of the trajectory and at a terminal. Float64."""
    total, weight = 0.0, 1.0
    for i in range(t, min(t + n, len(rewards))):
        total += weight * rewards[i]
        weight *= gamma * discounts[i]
        if discounts[i] == 0:
            return total
    return total + weight * values[min(t + n, len(rewards))]


def slow_lambda_return(rewards, values, discounts, gamma, lambda_, t):
    """The sum of the n-step returns, weight lambda^(n - 1) each and the rest of the weight on the longest."""
    steps_left = len(rewards) - t
    total = 0.0
    for n in range(1, steps_left):
        total += (1 - lambda_) * lambda_ ** (n - 1) * slow_return(rewards, values, discounts, gamma, t, n)
    longest = slow_return(rewards, values, discounts, gamma, t, steps_left)
    return total + lambda_ ** (steps_left - 1) * longest


@st.composite
def trajectories(draw):
    """Rewards, values and discounts of up to 6 steps and 0 to 2 batch axes; some steps are terminal."""
    steps, batch = draw(st.sampled_from([(1, (3,)), (3, ()), (6, (2, 2))]))  # few shapes: each one is a compile
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rewards = random.normal(size=(steps, *batch)).astype(np.float32)
    values = random.normal(size=(steps + 1, *batch)).astype(np.float32)
    discounts = random.choice(np.array([0, 0.5, 1], np.float32), size=(steps, *batch))
    return rewards, values, discounts


def each_column(slow, rewards, values, discounts):
    """slow(rewards [T], values [T + 1], discounts [T], t) for every t and batch index, less V(s_t)."""
    expected = np.zeros(rewards.shape)
    for t, *batch in np.ndindex(rewards.shape):
        column = (slice(None), *batch)
        r, v, d = (x[column].astype(np.float64) for x in (rewards, values, discounts))
        expected[(t, *batch)] = slow(r, v, d, t) - v[t]
    return expected


@settings(deadline=None, max_examples=40)
@given(trajectories(), st.sampled_from([1, 2, 3, 8]), st.floats(0, 1, width=32))
def test_n_step_error_is_the_definition(trajectory, n, gamma):
    expected = each_column(lambda r, v, d, t: slow_return(r, v, d, gamma, t, n), *trajectory)
    np.testing.assert_allclose(fast_n_step_error(*trajectory, n=n, gamma=gamma), expected, rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(trajectories(), st.floats(0, 1, width=32), st.floats(0, 1, width=32))
def test_lambda_error_is_the_definition(trajectory, lambda_, gamma):
    expected = each_column(lambda r, v, d, t: slow_lambda_return(r, v, d, gamma, lambda_, t), *trajectory)
    np.testing.assert_allclose(
        fast_lambda_error(*trajectory, lambda_=lambda_, gamma=gamma), expected, rtol=1e-5, atol=1e-5
    )


@settings(deadline=None, max_examples=20)
@given(trajectories(), st.floats(0, 1, width=32))
def test_the_errors_meet_at_their_ends(trajectory, gamma):
    rewards, values, discounts = trajectory
    one_step = td_error(rewards, values[:-1], values[1:], discounts, gamma=gamma)
    np.testing.assert_allclose(fast_n_step_error(*trajectory, n=1, gamma=gamma), one_step, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(fast_lambda_error(*trajectory, lambda_=0.0, gamma=gamma), one_step, rtol=1e-6, atol=1e-6)
    whole = fast_n_step_error(*trajectory, n=len(rewards), gamma=gamma)
    np.testing.assert_allclose(fast_lambda_error(*trajectory, lambda_=1.0, gamma=gamma), whole, rtol=1e-5, atol=1e-5)
    assert (fast_n_step_error(*trajectory, n=10**9, gamma=gamma) == whole).all()
    assert (
        td_error(rewards, values[:-1], values[1:], discounts, gamma=0.0) == outcome_error(rewards, values[:-1])
    ).all()


@pytest.mark.parametrize("behind", [np.nan, np.inf, -np.inf])
def test_a_terminal_bootstraps_from_nothing(behind):
    rewards, discounts = jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 0.0, 1.0])
    values = jnp.array([0.5, 0.5, behind, 0.25])  # s_2 is the first state after the terminal
    assert td_error(2.0, 0.5, behind, 0.0) == 1.5
    assert potential_shaping(0.5, behind, 0.0) == -0.5
    assert n_step_error(rewards, values, discounts, n=3)[:2].tolist() == [2.5, 1.5]
    assert lambda_error(rewards, values, discounts, lambda_=1.0)[:2].tolist() == [2.5, 1.5]
    gradient = jax.grad(lambda v: n_step_error(rewards, v, discounts, n=3)[:2].sum())(values)
    assert gradient.tolist() == [-1, -1, 0, 0]


def test_a_truncated_episode_bootstraps_from_the_final_observation():
    rewards, values, discounts = jnp.zeros(3), jnp.array([0.0, 0.0, 0.0, 8.0]), jnp.ones(3)
    assert n_step_error(rewards, values, discounts, n=5, gamma=0.5).tolist() == [1, 2, 4]
    assert lambda_error(rewards, values, discounts, lambda_=1.0, gamma=0.5).tolist() == [1, 2, 4]


def test_shaping_sums_to_the_first_potential():
    # Ng et al.: over an episode the discounted shaping telescopes to -Phi(s_0), so no policy gains by it.
    potential, discount = jnp.array([3.0, -1, 4, 1]), jnp.array([1.0, 1, 0])
    shaping = potential_shaping(potential[:-1], potential[1:], discount, gamma=0.5)
    assert np.dot(shaping, [1, 0.5, 0.25]) == -3


def test_scalars_stand_for_all_and_everything_is_float32():
    assert td_error(np.arange(3), 1, np.float64(2), 1.0, gamma=0.5).tolist() == [0, 1, 2]
    arrays = np.ones(2, np.float64), np.ones(3, np.int8), jnp.ones(2, jnp.bfloat16)
    for errors in (
        td_error(arrays[0], 1, 2, 1),
        outcome_error(arrays[0], 1),
        n_step_error(*arrays, n=2),
        lambda_error(*arrays, lambda_=0.5),
        potential_shaping(arrays[2], 1, 1),
    ):
        assert (errors.dtype, errors.weak_type, errors.shape) == (jnp.float32, False, (2,))


def test_no_steps_no_errors():
    for error in ERRORS_OF_TRAJECTORIES.values():
        assert error(np.zeros((0, 2)), np.zeros((1, 2)), np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("error", ERRORS_OF_TRAJECTORIES.values(), ids=ERRORS_OF_TRAJECTORIES)
def test_vmapped_equals_batch_axis_and_jitted_equals_eager(error):
    random = np.random.default_rng(0)
    rewards, values = random.normal(size=(5, 3)), random.normal(size=(6, 3))
    discounts = random.choice([0.0, 1.0], size=(5, 3))
    eager = error(rewards, values, discounts)
    vmapped = jax.vmap(error, in_axes=1, out_axes=1)(rewards, values, discounts)
    np.testing.assert_allclose(vmapped, eager, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(jax.jit(error)(rewards, values, discounts), eager, rtol=1e-6, atol=1e-6)


def test_gamma_and_lambda_may_be_traced_swept_and_differentiated():
    trajectory = jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0, 4.0]), jnp.ones(2)
    swept = jax.vmap(lambda rate: lambda_error(*trajectory, lambda_=rate, gamma=rate))(jnp.array([0.0, 1.0]))
    assert swept.tolist() == [[1, 1], [7, 5]]
    slope = jax.grad(lambda gamma: n_step_error(*trajectory, n=2, gamma=gamma)[0])(0.5)
    assert slope == 2 + 2 * 0.5 * 4


NOTHING: Any = None
TEXT: Any = "1"
HALF: Any = 0.5
GOOD = np.zeros(3), np.zeros(4), np.zeros(3)
WRONG = {
    "td_error value shape": (lambda: td_error(np.zeros(3), np.zeros(2), 0, 0), ValueError, "value"),
    "td_error next_value kind": (lambda: td_error(0, 0, NOTHING, 0), TypeError, "next_value"),
    "td_error discount kind": (lambda: td_error(0, 0, 0, np.array([True])), TypeError, "discount"),
    "td_error gamma range": (lambda: td_error(0, 0, 0, 0, gamma=1.5), ValueError, "gamma"),
    "td_error gamma nan": (lambda: td_error(0, 0, 0, 0, gamma=np.nan), ValueError, "gamma"),
    "td_error gamma shape": (lambda: td_error(0, 0, 0, 0, gamma=np.ones(1)), ValueError, "gamma"),
    "outcome_error value shape": (lambda: outcome_error(np.zeros(3), np.zeros((3, 3))), ValueError, "reward"),
    "outcome_error reward kind": (lambda: outcome_error(TEXT, 0), TypeError, "reward"),
    "outcome_error complex": (lambda: outcome_error(0, 1j), TypeError, "value"),
    "n_step n zero": (lambda: n_step_error(*GOOD, n=0), ValueError, "n"),
    "n_step n float": (lambda: n_step_error(*GOOD, n=HALF), TypeError, "n"),
    "n_step n bool": (lambda: n_step_error(*GOOD, n=True), TypeError, "n"),
    "n_step n traced": (lambda: jax.jit(lambda n: n_step_error(*GOOD, n=n))(2), TypeError, "n"),
    "n_step rewards scalar": (lambda: n_step_error(0, 0, 0, n=1), ValueError, "rewards"),
    "n_step values length": (lambda: n_step_error(GOOD[0], GOOD[0], GOOD[2], n=1), ValueError, "values"),
    "lambda discounts length": (lambda: lambda_error(GOOD[0], GOOD[1], GOOD[1], lambda_=1), ValueError, "discounts"),
    "lambda discounts batch": (
        lambda: lambda_error(np.zeros((3, 2)), np.zeros((4, 2)), np.zeros((3, 1)), lambda_=1),
        ValueError,
        "discounts",
    ),
    "lambda range": (lambda: lambda_error(*GOOD, lambda_=-0.1), ValueError, "lambda_"),
    "lambda range in jit": (lambda: jax.jit(lambda: lambda_error(*GOOD, lambda_=1.1))(), ValueError, "lambda_"),
    "shaping gamma": (lambda: potential_shaping(0, 0, 0, gamma=-1), ValueError, "gamma"),
    "shaping discount": (lambda: potential_shaping(np.zeros(2), 0, np.zeros(3)), ValueError, "discount"),
}


@pytest.mark.parametrize(("call", "kind", "name"), WRONG.values(), ids=WRONG)
def test_errors_name_the_argument(call, kind, name):
    # The second form is the run-time shape checker's, which may be faster.
    with pytest.raises(kind, match=f"^{name}: |parameter '{name}'"):
        call()
