"""The value network's learner, held against plain NumPy and against what it promises."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmem_jax as dmem
from dmem_jax.value import Batch, Learner, LearnerConfig, init, monitor, target_value, update, value

D, B = 3, 6
# Optimisers are made once, and most tests share two learners: equal configs are one program, compiled once.
ADAM, SGD = optax.adam(0.03), optax.sgd(0.1)
OUTCOME = LearnerConfig(embedding_dim=D, hidden=(8,), norm="layer", signal="outcome", optimizer=ADAM)
TD = LearnerConfig(embedding_dim=D, hidden=(8,), norm="batch", signal="td", gamma=0.9, optimizer=ADAM)
LINEAR = LearnerConfig(embedding_dim=D, hidden=(), norm=None, signal="td", gamma=0.9, optimizer=SGD)
both = pytest.mark.parametrize("config", [OUTCOME, TD], ids=["outcome, layer norm", "td, batch norm"])

fast_init, fast_update, fast_monitor = jax.jit(init), jax.jit(update), jax.jit(monitor)
fast_value, fast_target_value = jax.jit(value), jax.jit(target_value)


def random_batch(seed: int, rows: int = B) -> Any:  # a Batch without a None
    random = np.random.default_rng(seed)
    return Batch(
        embedding=jnp.asarray(random.normal(size=(rows, D)), jnp.float32),
        reward=jnp.asarray(random.normal(size=rows), jnp.float32),
        discount=jnp.asarray(random.choice([0, 1], size=rows), jnp.float32),
        next_embedding=jnp.asarray(random.normal(size=(rows, D)), jnp.float32),
        valid=jnp.ones(rows, bool),
    )


@functools.cache
def shaken(config: LearnerConfig, seed: int = 0) -> Learner:
    """A learner somewhere in mid-life: fresh ones expect 0 everywhere, which hides mistakes."""
    random, learner = np.random.default_rng(seed), fast_init(config, jax.random.key(seed))

    def shake(leaf):  # upwards: a variance must stay positive
        return leaf + jnp.asarray(random.uniform(0, 0.5, leaf.shape), jnp.float32)

    return dataclasses.replace(
        learner, online=jax.tree.map(shake, learner.online), target=jax.tree.map(shake, learner.target)
    )


def types(tree: Any) -> tuple:
    """Structure, and shape and dtype of each leaf."""
    return jax.tree.structure(tree), jax.tree.leaves(tree)


def assert_equal(left: Any, right: Any, **tolerance) -> None:
    compare = functools.partial(np.testing.assert_allclose, **tolerance) if tolerance else np.testing.assert_array_equal
    jax.tree.map(compare, left, right)


def slow_value(config: LearnerConfig, variables, embedding, *, own_statistics: bool):
    """V [B] by float64 matrices; batch statistics are the rows' own or the running ones."""
    variables = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables)
    params, x = variables["params"], np.asarray(embedding, np.float64)
    for i in range(len(config.hidden)):
        x = x @ params[f"Dense_{i}"]["kernel"] + params[f"Dense_{i}"].get("bias", 0.0)  # none with norm "batch"
        if config.norm == "layer":
            scale_and_bias = params[f"LayerNorm_{i}"]
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
            x = x * scale_and_bias["scale"] + scale_and_bias["bias"]
        elif config.norm == "batch":
            scale_and_bias, running = params[f"BatchNorm_{i}"], variables["batch_stats"][f"BatchNorm_{i}"]
            mean, var = (x.mean(0), x.var(0)) if own_statistics else (running["mean"], running["var"])
            x = (x - mean) / np.sqrt(var + 1e-5) * scale_and_bias["scale"] + scale_and_bias["bias"]
        x = np.maximum(x, 0)
    last = params[f"Dense_{len(config.hidden)}"]
    return (x @ last["kernel"] + last["bias"])[:, 0]


@pytest.mark.parametrize("config", [OUTCOME, TD, dataclasses.replace(TD, hidden=(8, 4)), LINEAR])
def test_values_are_those_of_the_network(config):
    learner, embedding = shaken(config), random_batch(1).embedding
    for fast, variables in ((fast_value, learner.online), (fast_target_value, learner.target)):
        expected = slow_value(config, variables, embedding, own_statistics=False)
        np.testing.assert_allclose(fast(config, learner, embedding), expected, rtol=1e-4, atol=1e-5)


def test_a_fresh_learner_expects_nothing_and_is_surprised_by_the_whole_reward():
    batch = random_batch(0)
    _, info = fast_update(OUTCOME, fast_init(OUTCOME, jax.random.key(0)), batch)
    assert_equal(info.rpe, batch.reward)


def test_embeddings_may_have_any_leading_axes():
    learner, embedding = shaken(OUTCOME), random_batch(2).embedding
    whole = fast_value(OUTCOME, learner, embedding.reshape(2, 3, D))
    np.testing.assert_allclose(whole.reshape(-1), fast_value(OUTCOME, learner, embedding), rtol=1e-6)
    assert fast_value(OUTCOME, learner, embedding[0]).shape == ()


# --- one update ---


@both
@given(seed=st.integers(0, 2**16), masked=st.integers(0, B - 2))
def test_errors_and_loss_are_the_definition(config, seed, masked):
    learner, batch = shaken(config), random_batch(seed)
    weights = np.random.default_rng(seed).uniform(0, 1, B).astype(np.float32)
    batch = dataclasses.replace(batch, valid=jnp.arange(B) >= masked)
    _, info = fast_update(config, learner, batch, weights)

    values = slow_value(config, learner.online, batch.embedding[masked:], own_statistics=True)
    next_values = slow_value(config, learner.target, batch.next_embedding, own_statistics=False)
    expected_rpe, expected_loss = np.zeros(B), 0.0
    for i in range(masked, B):
        target = float(batch.reward[i])
        if config.signal == "td":
            target += 0.9 * float(batch.discount[i]) * next_values[i]
        expected_rpe[i] = target - values[i - masked]
        expected_loss += 0.5 * weights[i] * expected_rpe[i] ** 2 / (B - masked)
    np.testing.assert_allclose(info.rpe, expected_rpe, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(info.loss, expected_loss, rtol=1e-3, atol=1e-3)
    assert info.used.tolist() == [i >= masked for i in range(B)]


def test_the_step_is_semi_gradient_td_with_importance_weights():
    learner, batch = shaken(LINEAR), random_batch(5)
    weights = np.linspace(0, 1, B, dtype=np.float32)
    after, info = fast_update(LINEAR, learner, batch, weights)
    # V is linear, so by hand: dV/dw = e, and w moves by rate * mean(weight * rpe * e), as if V(s') were a constant.
    before_kernel, after_kernel = (x.online["params"]["Dense_0"]["kernel"][:, 0] for x in (learner, after))
    step = 0.1 * np.mean((weights * np.asarray(info.rpe))[:, None] * np.asarray(batch.embedding), axis=0)
    np.testing.assert_allclose(after_kernel - before_kernel, step, rtol=1e-4, atol=1e-6)


@both
def test_padding_is_as_if_it_were_not_there(config):
    learner, batch = shaken(config), random_batch(6)
    config = dataclasses.replace(config, optimizer=SGD)  # Adam's first steps are signs, blind to what is tested
    learner = dataclasses.replace(learner, opt_state=SGD.init(learner.online["params"]))
    padded, _ = fast_update(config, learner, dataclasses.replace(batch, valid=jnp.arange(B) >= 2))
    short, _ = fast_update(config, learner, jax.tree.map(lambda rows: rows[2:], batch))
    assert_equal(padded, short, rtol=1e-4, atol=1e-5)


# --- learning ---


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_learning_reduces_the_held_out_error(norm):
    config = dataclasses.replace(OUTCOME, norm=norm, hidden=(32,))

    def labelled(seed):
        batch = random_batch(seed, rows=64)
        return dataclasses.replace(batch, reward=3 * batch.embedding[:, 0] + jnp.abs(batch.embedding[:, 1]))

    train = jax.tree.map(lambda *rows: jnp.stack(rows), *[labelled(seed) for seed in range(300)])
    held_out = labelled(1000)
    learner = fast_init(config, jax.random.key(0))
    before = fast_monitor(config, learner, held_out)
    learner, _ = jax.lax.scan(lambda learner, batch: update(config, learner, batch), learner, train)
    after = fast_monitor(config, learner, held_out)
    assert after["rpe_rms"] < 0.2 * before["rpe_rms"]
    assert before["explained_variance"] == 0
    assert after["explained_variance"] > 0.95


def test_td_learns_the_discounted_return_of_a_chain():
    # Three states in a row, 1 paid on leaving the last: V = gamma^2, gamma, 1.
    config = dataclasses.replace(LINEAR, gamma=0.5, target_rate=0.2, optimizer=ADAM)
    batch = Batch(
        embedding=jnp.eye(3),
        reward=jnp.array([0.0, 0.0, 1.0]),
        discount=jnp.array([1.0, 1.0, 0.0]),
        next_embedding=jnp.eye(3)[jnp.array([1, 2, 0])].at[2].set(jnp.nan),  # nothing lies behind a terminal
    )
    learner = fast_init(config, jax.random.key(0))
    learner, _ = jax.lax.scan(lambda learner, _: update(config, learner, batch), learner, None, length=1500)
    np.testing.assert_allclose(value(config, learner, jnp.eye(3)), [0.25, 0.5, 1], atol=0.01)
    np.testing.assert_allclose(target_value(config, learner, jnp.eye(3)), [0.25, 0.5, 1], atol=0.01)


# --- the target network; with batch norm its running statistics follow too ---


@pytest.mark.parametrize(("period", "rate"), [(3, 1.0), (1, 0.25), (2, 0.5)])
def test_the_target_network_follows_by_period_and_rate(period, rate):
    config = dataclasses.replace(TD, optimizer=SGD, target_period=period, target_rate=rate)
    learner = fast_init(config, jax.random.key(0))
    padding = dataclasses.replace(random_batch(0), valid=jnp.zeros(B, bool))
    expected = learner.target
    for i in range(1, 7):
        learner, _ = fast_update(config, learner, random_batch(i))
        if i % period == 0:
            expected = jax.tree.map(lambda new, old: rate * new + (1 - rate) * old, learner.online, expected)
        if rate == 1:
            assert_equal(learner.target, expected)
        else:
            assert_equal(learner.target, expected, rtol=1e-6, atol=1e-7)
        learner, _ = fast_update(config, learner, padding)  # counts for nothing
    assert (int(learner.updates), int(learner.skipped)) == (6, 6)


def test_batch_norm_takes_running_statistics_over_usable_rows_and_evaluates_with_them():
    learner, batch = shaken(TD), random_batch(7)
    valid = jnp.array([True, True, False, True, True, True])
    after, _ = fast_update(TD, learner, dataclasses.replace(batch, valid=valid, reward=batch.reward.at[1].set(jnp.nan)))
    dense = jax.tree.map(np.asarray, learner.online["params"]["Dense_0"])
    kept = np.asarray(batch.embedding)[[0, 3, 4, 5]] @ dense["kernel"]
    old, new = (x.online["batch_stats"]["BatchNorm_0"] for x in (learner, after))
    np.testing.assert_allclose(new["mean"], 0.9 * old["mean"] + 0.1 * kept.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new["var"], 0.9 * old["var"] + 0.1 * kept.var(0), rtol=1e-4, atol=1e-5)
    # A row's value does not depend on the rows it is asked with.
    one_by_one = [float(fast_value(TD, after, row)) for row in batch.embedding]
    np.testing.assert_allclose(fast_value(TD, after, batch.embedding), one_by_one, rtol=1e-5, atol=1e-6)


# --- bad numbers ---

BAD_ROWS = {
    "embedding nan": {"embedding": jnp.full(D, jnp.nan)},
    "embedding inf": {"embedding": jnp.full(D, jnp.inf)},
    "embedding without a finite norm": {"embedding": jnp.full(D, 1e20)},
    "reward nan": {"reward": jnp.nan},
    "reward inf": {"reward": -jnp.inf},
    "reward without a finite square": {"reward": 1e30},
    "discount nan": {"discount": jnp.nan},
    "next embedding nan": {"next_embedding": jnp.full(D, jnp.nan), "discount": 1.0},
    "next embedding without a finite norm": {"next_embedding": jnp.full(D, 1e20), "discount": 1.0},
}


def with_row(batch: Batch, row: int, fields: dict) -> Batch:
    changed = {name: getattr(batch, name).at[row].set(new) for name, new in fields.items()}
    return dataclasses.replace(batch, **changed)


@pytest.mark.quick
@both
@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_as_if_they_were_padding(config, bad):
    if config.signal == "outcome" and "discount" in bad:
        return  # not read
    learner, batch = shaken(config), random_batch(11)
    after, info = fast_update(config, learner, with_row(batch, 2, bad))
    expected, expected_info = fast_update(config, learner, with_row(batch, 2, {"valid": False}))
    if config.norm == "batch" and bad.get("reward") == 1e30:
        # Only its error is too large, so its embedding is in the statistics all the same.
        assert_equal(info.used, expected_info.used)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    else:
        assert_equal((after, info), (expected, expected_info))
    report = fast_monitor(config, learner, with_row(batch, 2, bad))
    assert_equal(report, fast_monitor(config, learner, with_row(batch, 2, {"valid": False})))


def test_a_terminal_needs_no_next_embedding():
    terminal = with_row(random_batch(4), 2, {"discount": 0.0, "next_embedding": jnp.full(D, jnp.nan)})
    _, info = fast_update(TD, shaken(TD), terminal)
    assert info.used.all()
    assert np.isfinite(info.rpe).all()


@pytest.mark.parametrize("weight", [jnp.nan, jnp.inf, -1.0])
def test_bad_importance_weights_mask_their_row(weight):
    learner, batch = shaken(TD), random_batch(12)
    after, info = fast_update(TD, learner, batch, jnp.ones(B).at[2].set(weight))
    expected, _ = fast_update(TD, learner, with_row(batch, 2, {"valid": False}), jnp.ones(B))
    assert_equal(after, expected)
    assert not info.used[2]


@both
@pytest.mark.parametrize("fields", [{"valid": jnp.zeros(B, bool)}, {"reward": jnp.full(B, jnp.nan)}])
def test_a_batch_without_a_usable_row_changes_nothing(config, fields):
    learner = shaken(config)
    after, info = fast_update(config, learner, dataclasses.replace(random_batch(13), **fields))
    assert_equal(after, dataclasses.replace(learner, skipped=learner.skipped + 1))
    assert not info.applied
    assert_equal(info.rpe, np.zeros(B))
    assert info.loss == 0


def test_a_gradient_whose_square_overflows_changes_nothing():
    learner = shaken(LINEAR)
    batch = with_row(random_batch(14), 0, {"embedding": jnp.full(D, 1e18), "reward": 1e18})
    after, info = fast_update(LINEAR, learner, batch)
    assert info.used.all()
    assert not info.applied
    assert_equal(after, dataclasses.replace(learner, skipped=learner.skipped + 1))


# --- monitor ---


@both
@given(seed=st.integers(0, 2**16), masked=st.integers(0, B - 1))
def test_monitor_is_the_definition(config, seed, masked):
    learner, batch = shaken(config), random_batch(seed)
    valid, reward = jnp.arange(B) >= masked, jnp.where(batch.reward > 0.5, 0.0, batch.reward)
    batch = dataclasses.replace(batch, valid=valid, reward=reward)
    report = fast_monitor(config, learner, batch)
    kept = jax.tree.map(lambda rows: np.asarray(rows[masked:]), batch)
    values = slow_value(config, learner.online, kept.embedding, own_statistics=False)
    targets = kept.reward.astype(np.float64)
    if config.signal == "td":
        next_values = slow_value(config, learner.target, kept.next_embedding, own_statistics=False)
        targets = targets + 0.9 * kept.discount * next_values
    errors = targets - values
    expected = {
        "rows": len(errors),
        "rpe_mean_abs": np.abs(errors).mean(),
        "rpe_rms": np.sqrt((errors**2).mean()),
        "rpe_abs_q50": np.quantile(np.abs(errors), 0.5),
        "rpe_abs_q90": np.quantile(np.abs(errors), 0.9),
        "rpe_abs_q98": np.quantile(np.abs(errors), 0.98),
        "explained_variance": 1 - errors.var() / targets.var() if targets.std() > 0.01 else None,
        "reward_sparsity": np.mean(kept.reward == 0),
    }
    assert set(report) == {*expected, "scale"}
    if expected["explained_variance"] is None:  # no spread to explain, see the next tests
        del expected["explained_variance"]
    for name, number in expected.items():
        np.testing.assert_allclose(report[name], number, rtol=1e-3, atol=1e-3, err_msg=name)


def test_monitor_tells_the_running_scale():
    learner = fast_init(OUTCOME, jax.random.key(0))
    assert fast_monitor(OUTCOME, learner, random_batch(0))["scale"] == 1
    mean, weight = 0.0, 0.0
    for i in range(4):
        learner, info = fast_update(OUTCOME, learner, random_batch(i))
        mean, weight = 0.99 * mean + 0.01 * np.abs(info.rpe).mean(), 0.99 * weight + 0.01
        np.testing.assert_allclose(fast_monitor(OUTCOME, learner, random_batch(0))["scale"], mean / weight, rtol=1e-5)


def test_monitor_of_nothing_and_of_a_constant_reward_is_no_nan():
    learner, batch = shaken(OUTCOME), random_batch(0)
    report = fast_monitor(OUTCOME, learner, dataclasses.replace(batch, valid=jnp.zeros(B, bool)))
    assert all(report[name] == 0 for name in report if name != "scale")
    report = fast_monitor(OUTCOME, learner, dataclasses.replace(batch, reward=jnp.full(B, 0.1)))
    assert report["explained_variance"] == 0
    report = fast_monitor(OUTCOME, learner, dataclasses.replace(batch, reward=jnp.full(B, 1e19)))
    assert all(np.isfinite(number) for number in report.values())


# --- many learners, one trace, donation ---


@both
def test_vmapped_equals_looped(config):
    agents = 3
    learners = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[shaken(config, seed) for seed in range(agents)])
    batches = [random_batch(seed) for seed in range(agents)]
    batches[1] = dataclasses.replace(batches[1], valid=jnp.zeros(B, bool))  # one of them has nothing to learn from
    stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *batches)
    weights = jnp.linspace(0.1, 1, agents * B).reshape(agents, B)
    together, infos = jax.jit(jax.vmap(update, in_axes=(None, 0, 0, 0)))(config, learners, stacked, weights)
    reports = jax.jit(jax.vmap(monitor, in_axes=(None, 0, 0)))(config, together, stacked)
    for i in range(agents):
        alone, info = fast_update(config, shaken(config, i), batches[i], weights[i])
        expected = (alone, info, fast_monitor(config, alone, batches[i]))
        found = jax.tree.map(lambda leaf, i=i: leaf[i], (together, infos, reports))
        assert_equal(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.quick
@pytest.mark.parametrize("optimizer", [ADAM, optax.inject_hyperparams(optax.adam)(0.01), optax.rmsprop(0.01)])
def test_no_weak_types_and_the_same_types_after_an_update(optimizer):
    config = dataclasses.replace(TD, optimizer=optimizer)
    fresh = jax.eval_shape(init, config, jax.random.key(0))
    updated, _ = jax.eval_shape(update, config, fresh, random_batch(0))
    assert types(updated) == types(fresh)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(fresh))


def test_one_trace():
    traces = []

    @jax.jit
    def traced_update(learner, batch):
        traces.append(1)
        return update(OUTCOME, learner, batch)

    learner = fast_init(OUTCOME, jax.random.key(0))
    for i in range(3):
        learner, _ = traced_update(learner, random_batch(i))
    assert len(traces) == 1


@pytest.mark.parametrize("make", [init, fast_init], ids=["eager", "jitted"])
def test_a_learner_can_be_donated(make):
    learner = make(OUTCOME, jax.random.key(0))
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(learner)]
    assert len(set(pointers)) == len(pointers)
    jax.jit(update, donate_argnums=1)(OUTCOME, learner, random_batch(0))
    assert learner.online["params"]["Dense_0"]["kernel"].is_deleted()


def test_an_experience_is_a_batch():
    batch, learner = random_batch(0), shaken(TD)
    fields = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch) if f.name != "embedding"}
    experience = dmem.experience(dmem.Config(embedding_dim=D), batch.embedding, rpe=0.0, **fields)
    assert_equal(fast_update(TD, learner, experience), fast_update(TD, learner, batch))


def test_other_real_dtypes_are_cast():
    batch = dataclasses.replace(random_batch(0), reward=np.arange(B), discount=jnp.ones(B, jnp.bfloat16))
    learner = jax.eval_shape(init, TD, jax.random.key(0))
    updated, info = jax.eval_shape(update, TD, learner, batch)
    assert types(updated) == types(learner)
    assert (info.rpe.dtype, info.loss.dtype) == (jnp.float32, jnp.float32)
    assert fast_value(TD, shaken(TD), np.zeros(D, np.float64)).dtype == jnp.float32


# --- errors ---

NOTHING: Any = None
WRONG_CONFIGS = {
    "embedding_dim": [(0, ValueError), (1.0, TypeError), (True, TypeError)],
    "hidden": [([8], TypeError), ((8, 0), ValueError), ((8.0,), TypeError), ((2**40,), ValueError)],
    "norm": [("group", ValueError), (np.ones(2), ValueError)],
    "signal": [("n_step", ValueError), (np.ones(2), ValueError)],
    "gamma": [(1.1, ValueError), (-0.1, ValueError), (np.nan, ValueError), ("x", TypeError), (NOTHING, TypeError)],
    "target_period": [(0, ValueError), (2.5, TypeError), (2**40, ValueError)],
    "target_rate": [
        (0.0, ValueError),
        (1.5, ValueError),
        ("x", TypeError),
        (True, TypeError),
        (np.ones(2), ValueError),
    ],
    "optimizer": [(NOTHING, TypeError)],
}
WRONG_BATCHES = {
    "batch.embedding axis": ({"embedding": jnp.zeros((B, D + 1))}, ValueError, "batch.embedding"),
    "batch.embedding rank": ({"embedding": jnp.zeros(D)}, ValueError, "batch.embedding"),
    "batch.embedding empty": ({"embedding": jnp.zeros((0, D))}, ValueError, "batch.embedding"),
    "batch.embedding kind": ({"embedding": jnp.zeros((B, D), bool)}, TypeError, "batch.embedding"),
    "batch.reward shape": ({"reward": jnp.zeros(B + 1)}, ValueError, "batch.reward"),
    "batch.reward kind": ({"reward": jnp.zeros(B, complex)}, TypeError, "batch.reward"),
    "batch.discount missing": ({"discount": None}, ValueError, "batch.discount"),
    "batch.discount shape": ({"discount": jnp.zeros(())}, ValueError, "batch.discount"),
    "batch.next_embedding missing": ({"next_embedding": None}, ValueError, "batch.next_embedding"),
    "batch.next_embedding shape": ({"next_embedding": jnp.zeros((1, D))}, ValueError, "batch.next_embedding"),
    "batch.valid kind": ({"valid": jnp.ones(B)}, TypeError, "batch.valid"),
    "batch.valid list": ({"valid": [1] * B}, TypeError, "batch.valid"),
    "batch.valid shape": ({"valid": jnp.ones(B + 1, bool)}, ValueError, "batch.valid"),
}


@pytest.mark.parametrize(
    ("name", "wrong", "kind"), [(name, *case) for name, cases in WRONG_CONFIGS.items() for case in cases]
)
def test_config_errors_name_the_field(name, wrong, kind):
    # The second form is the run-time shape checker's, which may be faster.
    with pytest.raises((kind, TypeError), match=rf"^LearnerConfig\.{name}: |\b{name}\b"):
        LearnerConfig(**{"embedding_dim": D, name: wrong})


@pytest.mark.parametrize(("fields", "kind", "name"), WRONG_BATCHES.values(), ids=WRONG_BATCHES)
@pytest.mark.parametrize("function", [update, monitor])
def test_batch_errors_name_the_field(function, fields, kind, name):
    learner = jax.eval_shape(init, TD, jax.random.key(0))
    with pytest.raises(kind, match=f"^{name}: "):
        jax.eval_shape(function, TD, learner, dataclasses.replace(random_batch(0), **fields))


ADAM_OF_ANOTHER, OTHER_NORM = dataclasses.replace(OUTCOME, optimizer=SGD), dataclasses.replace(OUTCOME, norm=None)
OTHER_CONFIG: Any = dmem.Config(D)
OTHER_CLASS: Any = dmem.Config
MAPPING: Any = {}
WRONG_CLASSES = {
    "init config": (lambda key, learner, batch: init(OTHER_CONFIG, key), TypeError, "learner_config"),
    "init nothing": (lambda key, learner, batch: init(NOTHING, key), TypeError, "learner_config"),
    "init keys": (lambda key, learner, batch: init(OUTCOME, jax.random.split(key, 4)), ValueError, "key"),
    "value config": (lambda key, learner, batch: value(OTHER_CONFIG, learner, NOTHING), TypeError, "learner_config"),
    "value nothing": (lambda key, learner, batch: value(OUTCOME, NOTHING, np.ones(D)), TypeError, "learner"),
    "value other": (lambda key, learner, batch: value(LINEAR, learner, np.ones(D)), ValueError, "learner"),
    "value other norm": (lambda key, learner, batch: value(OTHER_NORM, learner, np.ones(D)), ValueError, "learner"),
    "update nothing": (lambda key, learner, batch: update(OUTCOME, learner, NOTHING), TypeError, "batch"),
    "update mapping": (lambda key, learner, batch: update(OUTCOME, learner, MAPPING), TypeError, "batch"),
    "update swapped": (lambda key, learner, batch: update(OUTCOME, batch, learner), TypeError, "learner"),
    "update class": (lambda key, learner, batch: update(OTHER_CLASS, learner, batch), TypeError, "learner_config"),
    "update other": (lambda key, learner, batch: update(ADAM_OF_ANOTHER, learner, batch), ValueError, "learner"),
    "monitor swapped": (lambda key, learner, batch: monitor(OUTCOME, batch, learner), TypeError, "learner"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "name"), WRONG_CLASSES.values(), ids=WRONG_CLASSES)
def test_wrong_classes_are_named(call, kind, name, unchecked):
    key = jax.random.key(0)
    learner = jax.eval_shape(init, OUTCOME, key)
    with pytest.raises(kind, match=rf"^{name}\b.*: expected .*got "):
        call(key, learner, random_batch(0))


def test_many_learners_need_a_vmap(unchecked):
    learners = jax.eval_shape(jax.vmap(init, in_axes=(None, 0)), OUTCOME, jax.random.split(jax.random.key(0), 2))
    with pytest.raises(ValueError, match=r"^learner\.online.*expected float32\[8\], got float32\[2, 8\].*jax.vmap"):
        value(OUTCOME, learners, np.ones(D))


def test_a_config_of_any_number_is_hashable(unchecked):
    numbers: Any = (0.5, np.float64(0.5), np.float32(0.5), jnp.float32(0.5), jnp.bfloat16(0.5))
    assert len({dataclasses.replace(TD, gamma=gamma, target_rate=gamma) for gamma in numbers}) == 1


def test_valid_may_be_a_list_or_one_flag(unchecked):
    learner, batch = shaken(OUTCOME), random_batch(0)
    for valid, used in (([True] * (B - 1) + [False], B - 1), (True, B)):
        _, info = update(OUTCOME, learner, dataclasses.replace(batch, valid=valid))
        assert info.used.sum() == used


def test_a_replayed_batch_is_a_batch():
    config = dmem.Config(embedding_dim=D, warmup=2)
    params, memory = dmem.Params.default(config), dmem.init(config)
    memory, _ = dmem.write(config, params, memory, dmem.experience(config, np.ones(D), rpe=1.0, reward=2.0))
    batch = dmem.replay(config, params, memory, jax.random.key(0), 4, replacement=False)
    _, info = fast_update(OUTCOME, fast_init(OUTCOME, jax.random.key(0)), batch, batch.weight)
    assert info.used.tolist() == [True, False, False, False]
    assert info.rpe[0] == 2


def test_other_errors_name_the_argument():
    learner = fast_init(OUTCOME, jax.random.key(0))
    with pytest.raises(TypeError, match=r"^key: "):
        init(OUTCOME, jnp.zeros(2, jnp.uint32))
    with pytest.raises(ValueError, match=r"^embedding: .*\[\.\.\., 3\].*\[5\]"):
        value(OUTCOME, learner, jnp.zeros(5))
    with pytest.raises(ValueError, match=r"^importance_weights: "):
        update(OUTCOME, learner, random_batch(0), jnp.ones(B - 1))
