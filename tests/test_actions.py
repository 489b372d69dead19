"""Actions as vectors, and the laws of what joins them with states."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dmem_jax as dmem
from dmem_jax import ArgumentTypeError, ArgumentValueError
from dmem_jax.encoders import CategoricalActions, TextActions, VectorActions, bind, concatenate, mean, project
from dmem_jax.encoders.actions import unit

D1, D2 = 6, 4
Pair = tuple[np.ndarray, np.ndarray]


def vectors(n: int, dim: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def cosine(a: Any, b: Any) -> np.ndarray:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def pairs(dim: int) -> st.SearchStrategy[Pair]:
    """Two vectors that are not 0, of any length that float32 has the square of, or not."""
    numbers = hnp.arrays(np.float32, dim, elements=st.floats(-1, 1, width=16)).filter(lambda x: np.abs(x).max() > 1e-3)
    scaled = st.builds(lambda x, size: x * np.float32(size), numbers, st.sampled_from([1e-25, 1e-3, 1, 1e3, 1e30]))
    return st.tuples(scaled, scaled)


class Texts:
    """An encoder of texts that counts letters."""

    name, dim = "letters", 26

    def __call__(self, texts: Any, /) -> np.ndarray:
        counts = [[text.count(chr(ord("a") + i)) for i in range(26)] for text in texts]
        return np.array(counts, np.float32).reshape(-1, 26)


# ---- What joins state and action -------------------------------------------------------------------------------------


@pytest.mark.quick
@given(pairs(D1), pairs(D2), st.floats(0, 1, width=32))
def test_cosine_of_a_concatenation_is_the_weighted_mean_of_cosines(states, actions, weight):
    one, other = (concatenate(s, a, weight) for s, a in zip(states, actions, strict=True))
    expected = weight * cosine(*states) + (1 - weight) * cosine(*actions)
    np.testing.assert_allclose(cosine(one, other), expected, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(one), 1, atol=1e-6)


@given(pairs(D1), pairs(D2))
def test_cosine_of_a_binding_is_the_product_of_cosines(states, actions):
    one, other = (bind(s, a) for s, a in zip(states, actions, strict=True))
    assert one.shape == (D1 * D2,)
    np.testing.assert_allclose(cosine(one, other), cosine(*states) * cosine(*actions), atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(one), 1, atol=1e-6)


def test_a_mean_is_what_the_name_says():
    state, action = vectors(7, D1, 0), 100 * vectors(7, D1, 1)
    directions = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (state, action))
    s, a = directions
    for weight in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(cosine(mean(state, action, weight), weight * s + (1 - weight) * a), 1, atol=1e-6)


def test_a_projection_keeps_cosines_about_as_they_are():
    given_ = vectors(60, 1000, 0)
    given_[1::2] = given_[::2] + vectors(30, 1000, 1) * np.linspace(0, 2, 30, dtype=np.float32)[:, None]
    for dim in (64, 256):
        shorter = project(given_, dim)
        assert shorter.shape == (60, dim)
        error = cosine(shorter[::2], shorter[1::2]) - cosine(given_[::2], given_[1::2])
        assert np.abs(error).max() < 4 / np.sqrt(dim)
    np.testing.assert_array_equal(project(given_, 64), project(given_, 64))
    assert not np.allclose(project(given_, 64), project(given_, 64, seed=1))
    np.testing.assert_array_equal(jnp.sign(project(np.eye(4)[0], 4)), [-1, 1, 1, 1])  # the same on every machine


def test_with_zeros_for_an_action_the_state_alone_ranks():
    states, actions = vectors(20, D1, 2), vectors(20, D2, 3)
    asked = vectors(1, D1, 4)[0]
    found = cosine(concatenate(asked, np.zeros(D2), 0.5), concatenate(states, actions, 0.5))
    np.testing.assert_allclose(found, np.sqrt(0.5) * cosine(asked, states), atol=1e-6)
    assert not np.any(concatenate(np.zeros(D1), np.zeros(D2)))
    for joined in (bind(states, np.zeros((20, D2))), mean(np.zeros(D1), np.zeros(D1)), project(np.zeros(D1), 2)):
        assert not np.any(joined)


JOINS: dict[str, Callable[..., jax.Array]] = {
    "concatenate": concatenate,
    "bind": bind,
    "mean": mean,
    "project": lambda state, action: project(state * action, 3),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", JOINS)
def test_joins_are_pure_functions_of_any_batch(name):
    join = JOINS[name]
    state, action = jnp.asarray(vectors(6, D1, 5)), jnp.asarray(vectors(6, D1, 6))
    whole = join(state, action)
    assert whole.dtype == jnp.float32
    assert not whole.weak_type
    np.testing.assert_allclose(jax.jit(join)(state, action), whole, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(join)(state, action), whole, atol=1e-6)
    np.testing.assert_allclose(
        join(state.reshape(2, 3, D1), action.reshape(2, 3, D1)).reshape(whole.shape), whole, atol=1e-6
    )
    assert join(state[:0], action[:0]).shape == (0, whole.shape[-1])
    towards = jnp.asarray(vectors(6, whole.shape[-1], 7))
    jax.test_util.check_grads(
        lambda s, a: jnp.sum(join(s, a) * towards), (state, action), 1, ("rev",), 0.03, 0.03, 1e-2
    )
    for nothing in (jnp.zeros_like(state), 1e30 * state):
        slopes = jax.grad(lambda s, a: jnp.sum(join(s, a) * towards), (0, 1))(nothing, action)
        assert all(np.isfinite(slope).all() for slope in slopes)


def test_a_weight_is_learned_swept_and_kept_in_its_range():
    state, action = vectors(2, D1, 8), vectors(2, D2, 9)

    def similarity(weight):
        one, other = (concatenate(s, a, weight) for s, a in zip(state, action, strict=True))
        return one @ other

    slope = jax.grad(similarity)(0.3)
    np.testing.assert_allclose(slope, cosine(*state) - cosine(*action), atol=1e-5)
    swept = jax.jit(jax.vmap(similarity))(jnp.array([-1.0, 0.0, 0.5, 1.0, 2.0]))
    expected = [
        cosine(*action),
        cosine(*action),
        (cosine(*state) + cosine(*action)) / 2,
        cosine(*state),
        cosine(*state),
    ]
    np.testing.assert_allclose(swept, expected, atol=1e-6)
    each = concatenate(state, action, np.array([0.2, 0.9]))
    np.testing.assert_allclose(each[1], concatenate(state[1], action[1], 0.9), atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", JOINS)
def test_what_is_not_finite_stays_so_and_is_not_remembered(name, bad):
    state = jnp.asarray(vectors(1, D1, 0)[0]).at[2].set(bad)
    joined = jax.jit(JOINS[name])(state, jnp.ones(D1))
    assert not np.isfinite(joined).all()
    config = dmem.Config(embedding_dim=joined.size, core_capacity=2, buffer_capacity=2, duplicates="search")
    params, memory = dmem.Params.default(config), dmem.init(config)
    written, _ = jax.jit(lambda x: dmem.write(config, params, memory, dmem.experience(config, x, rpe=1.0)))(joined)
    assert written.stats.invalid == 1


@pytest.mark.quick
def test_unit_has_length_one_whatever_came():
    for size in (1e-30, 1.0, 1e38):
        np.testing.assert_allclose(
            np.linalg.norm(unit(jnp.array([1.0, -2.0, 3.0], jnp.float32) * np.float32(size / 3))), 1, atol=1e-6
        )


ONE, OTHER = np.ones(D1), np.ones(D2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: concatenate("here", OTHER), TypeError, "state: expected float32, got 'here'"),
        (lambda: concatenate(ONE, None), TypeError, "action: expected float32, got None"),
        (lambda: concatenate(1.0, OTHER), ValueError, r"state: expected vectors \[\*b, d\], got shape \[\]"),
        (lambda: concatenate(ONE, np.ones((3, 0))), ValueError, "action: expected vectors"),
        (lambda: concatenate(ONE[None], OTHER), ValueError, r"action: expected the state's batch axes, \[1\]"),
        (lambda: concatenate(ONE, OTHER, 1.5), ValueError, r"weight: expected within \[0, 1\], got 1.5"),
        (lambda: concatenate(ONE, OTHER, np.nan), ValueError, "weight: expected within"),
        (lambda: concatenate(ONE, OTHER, True), TypeError, "weight: expected float32"),
        (lambda: concatenate(ONE, OTHER, np.ones(3)), ValueError, "weight: expected shape"),
        (lambda: bind(ONE, np.ones((2, D2))), ValueError, "action: expected the state's batch axes"),
        (lambda: mean(ONE, OTHER), ValueError, r"action: expected the state's shape, \[6\], got \[4\]"),
        (lambda: mean(ONE, ONE, -0.1), ValueError, "weight: expected within"),
        (lambda: project(ONE, 7), ValueError, "dim: expected at most the embedding's size, 6, got 7"),
        (lambda: project(ONE, 0), ValueError, "dim: expected at least 1"),
        (lambda: project(ONE, 2, seed=-1), ValueError, "seed: expected at least 0"),
        (lambda: project(ONE > 0, 2), TypeError, "embedding: expected float32, got bool"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_bad_input_is_named_inside_of_a_trace_too(call, error, message, traced):
    with pytest.raises(error, match=message) as caught:
        (jax.eval_shape if traced else lambda f: f())(call)
    assert isinstance(caught.value, dmem.DmemError)


# ---- Actions ---------------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_categorical_actions_are_one_hot_or_orthogonal():
    every = np.arange(5)
    np.testing.assert_array_equal(CategoricalActions(5)(every), np.eye(5))
    code = CategoricalActions(5, dim=8)
    found = np.asarray(code(every))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found @ found.T, np.eye(5), atol=1e-6)
    np.testing.assert_array_equal(code(every), CategoricalActions(5, dim=8)(every))
    assert not np.allclose(found, CategoricalActions(5, dim=8, seed=1)(every))
    many = np.asarray(CategoricalActions(300, dim=128)(np.arange(300)))
    np.testing.assert_allclose(np.linalg.norm(many, axis=1), 1, atol=1e-6)
    assert np.abs(many @ many.T - np.eye(300)).max() < 6 / np.sqrt(128)


@pytest.mark.parametrize("actions", [CategoricalActions(3), CategoricalActions(3, dim=7)])
def test_categorical_actions_of_any_batch(actions):
    given_ = jnp.array([[0, 2], [1, 1], [2, 0]], jnp.int32)
    found = jax.jit(jax.vmap(lambda actions, x: actions(x), in_axes=(None, 0)), static_argnums=0)(actions, given_)
    assert found.shape == (3, 2, actions.dim)
    np.testing.assert_array_equal(found, actions(given_))
    assert actions(1).shape == (actions.dim,)
    assert actions(np.zeros(0, np.int32)).shape == (0, actions.dim)
    assert not np.any(jax.jit(lambda x: actions(x))(jnp.array([-1, 3], jnp.int32)))  # there is no such action
    for wrong in ([0, 3], [-1]):
        for call in (actions, lambda x: jax.eval_shape(lambda: actions(x))):
            with pytest.raises(ArgumentValueError, match=r"action: expected 0 .. 2, got"):
                call(np.array(wrong))
    with pytest.raises(ArgumentTypeError, match="action: expected int32, got float"):
        actions(1.0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("sizes", "name"),
    [({"n": 0}, "n"), ({"n": 2.0}, "n"), ({"n": 2, "dim": -1}, "dim"), ({"n": 2, "seed": "a"}, "seed")],
)
def test_bad_sizes_of_categorical_actions(sizes: dict[str, Any], name: str):
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=f"^{name}: expected"):
        CategoricalActions(**sizes)


def test_text_actions_are_alike_where_their_texts_are():
    actions = TextActions(Texts(), ["open the door", "open the gate", "run"])
    assert (actions.n, actions.dim) == (3, 26)
    found = jax.jit(lambda x: actions(x))(jnp.array([[0, 1], [2, 9]], jnp.int32))
    assert cosine(found[0, 0], found[0, 1]) > cosine(found[0, 0], found[1, 0])
    raw = Texts()(actions.texts)
    np.testing.assert_allclose(found[0, 1], raw[1] / np.linalg.norm(raw[1]), atol=1e-6)
    assert not np.any(found[1, 1])


@pytest.mark.usefixtures("unchecked")
def test_bad_text_actions():
    wrong: Any
    for wrong in ("run", [], None):
        with pytest.raises(ArgumentTypeError, match="texts: expected a list"):
            TextActions(Texts(), wrong)
    for wrong in (None, "MiniLM"):
        with pytest.raises(ArgumentTypeError, match="encoder: expected an encoder"):
            TextActions(wrong, ["run"])
    wrong = lambda texts: np.ones(3, np.float32)  # noqa: E731
    with pytest.raises(ArgumentValueError, match=r"encoder: expected vectors \[1, dim\], got \[3\]"):
        TextActions(wrong, ["run"])


BOUNDS: dict[str, Any] = {"low": np.array([-1.0, 0.0, -5.0]), "high": np.array([1.0, 10.0, 5.0])}


@pytest.mark.quick
def test_vector_actions_tell_length_and_direction():
    actions = VectorActions(**BOUNDS)
    assert actions.dim == 4
    low, high, middle = (actions(x) for x in (BOUNDS["low"], BOUNDS["high"], (BOUNDS["low"] + BOUNDS["high"]) / 2))
    np.testing.assert_allclose(cosine(low, high), 0, atol=1e-6)  # opposite corners
    np.testing.assert_allclose(middle, [0, 0, 0, 1], atol=1e-6)
    gentle, hard = actions([0.1, 5.5, 0.5]), actions([1.0, 10.0, 5.0])
    assert 0.5 < cosine(gentle, hard) < 0.9  # the same direction, ten times as far
    found = jax.jit(jax.vmap(lambda actions, x: actions(x), in_axes=(None, 0)), static_argnums=0)(
        actions, np.ones((5, 2, 3))
    )
    assert found.shape == (5, 2, 4)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-6)
    assert np.isfinite(jax.jacobian(actions)(jnp.zeros(3))).all()


@given(st.tuples(*[hnp.arrays(np.float32, 3, elements=st.floats(-1, 1, width=16))] * 2))
def test_equal_vector_actions_alone_have_cosine_one(two):
    actions = VectorActions(low=(-1.0,) * 3, high=(1.0,) * 3)
    found = cosine(*map(actions, two))
    distance = np.linalg.norm(two[0] - two[1])
    assert -1e-6 <= found <= 1 + 1e-6
    # The angle between two points of the plane at height 1 is at least that of the chord, brought onto the sphere.
    assert 1 - found >= distance**2 / 3 / 16 - 1e-6


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"low": [0.0], "high": [0.0]}, "high: expected numbers above low"),
        ({"low": [0.0, 1.0], "high": [1.0]}, "high: expected numbers above low"),
        ({"low": [-np.inf], "high": [1.0]}, r"low: expected \[d\] finite numbers"),
        ({"low": [0.0], "high": [np.nan]}, r"high: expected \[d\] finite numbers"),
        ({"low": 0.0, "high": 1.0}, r"low: expected \[d\] finite numbers"),
        ({"low": [], "high": []}, r"low: expected \[d\] finite numbers"),
        ({"low": [-3e38], "high": [3e38]}, "high: expected bounds that mean something"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_bounds(bounds: dict[str, Any], message: str):
    with pytest.raises(ArgumentValueError, match=message):
        VectorActions(**bounds)


def test_bad_vector_actions():
    actions = VectorActions(**BOUNDS)
    with pytest.raises(ArgumentValueError, match=r"action: expected \[\*b, 3\], got \[2\]"):
        actions(np.ones(2))
    with pytest.raises(ArgumentTypeError, match="action: expected float32, got bool"):
        actions(np.ones(3, bool))
