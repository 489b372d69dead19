"""What a log sees of a memory; and a memory saved, restored and drawn."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import checkpoint, monitor
from tests.lives import PAYLOAD, random_experiences

AGENTS = 3
summary = jax.jit(monitor.summary)
CONFIG = dmem.Config(embedding_dim=4, core_capacity=3, buffer_capacity=5, duplicates="off", top_k=(2, 1),
                     shadow_capacity=4, smoothing="none")  # fmt: skip
PARAMS = dmem.Params.default(CONFIG, half_life=100.0)


@pytest.fixture(scope="module")
def memories() -> dmem.Memory:
    experiences = random_experiences(CONFIG, jax.random.key(0), 60 * AGENTS)
    experiences = jax.tree.map(lambda leaf: leaf.reshape(AGENTS, 60, *leaf.shape[1:]), experiences)
    memories = dmem.init(CONFIG, PAYLOAD, batch_shape=(AGENTS,))
    return jax.jit(jax.vmap(dmem.write_many, in_axes=(None, None, 0, 0)))(CONFIG, PARAMS, memories, experiences)[0]


def test_a_summary_says_what_numpy_says(memories):
    told = jax.device_get(summary(CONFIG, PARAMS, memories))
    m = jax.device_get(memories)
    live = np.concatenate([m.core.id, m.buffer.id], axis=1) >= 0
    pooled = lambda name: np.concatenate([getattr(m.core, name), getattr(m.buffer, name)], axis=1)[live]  # noqa: E731
    expected = {
        "agents": AGENTS,
        "clock": 60,
        "fill/core": (m.core.id >= 0).mean(),
        "rpe_abs/q50": np.quantile(np.abs(pooled("rpe")), 0.5),
        "rpe_abs/q98": np.quantile(np.abs(pooled("rpe")), 0.98),
        "rpe/delights": (pooled("rpe") >= 0).mean(),
        "reward/sparsity": (pooled("reward") == 0).mean(),
        "value/error_rms": np.sqrt(((pooled("reward") - pooled("value")) ** 2).mean()),
        "route/dropped": m.stats.dropped.sum() / m.stats.seen.sum(),
        "lost/evicted": m.stats.evicted.sum() / m.stats.stored.sum(),
        "surprise/scale": m.router.scale_mean.mean(),
        "age/q90": np.quantile(60 - pooled("time"), 0.9),
        "gate/opening": (1 / (1 + np.exp(2 - m.router.sizes.values[:, :60]))).mean(),
        "contradicted/share": 0,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(told[name], value, rtol=1e-4, err_msg=name)
    counts, edges = np.histogram(pooled("rpe"), bins=monitor.BINS)
    assert told["histogram/rpe"].sum() == live.sum()
    np.testing.assert_allclose(told["histogram/rpe/edges"], edges, rtol=1e-4, atol=1e-4)
    assert np.abs(told["histogram/rpe"] - counts).sum() <= 2  # a value on an edge may fall to either side
    fates = ("invalid", "dropped", "refused", "refreshed", "merged", "stored")
    assert sum(told[f"route/{name}"] for name in fates) == pytest.approx(1)


def test_a_summary_of_nothing_and_of_one(memories, unchecked):
    empty = summary(CONFIG, PARAMS, dmem.init(CONFIG, PAYLOAD))
    assert all(np.isfinite(value).all() for value in empty.values())
    assert {name: value.shape for name, value in empty.items()} == {
        name: value.shape for name, value in summary(CONFIG, PARAMS, memories).items()
    }
    assert empty["rpe_abs/q50"] == 0
    one = summary(CONFIG, PARAMS, jax.tree.map(lambda leaf: leaf[0], memories))
    assert one["agents"] == 1
    assert all(value.dtype == jnp.float32 for value in one.values())
    with pytest.raises(TypeError, match="memory: expected"):
        monitor.summary(CONFIG, PARAMS, PARAMS)  # type: ignore[arg-type]


def test_saved_and_restored_bit_for_bit(memories, tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, memories)
    saved = checkpoint.restore(tmp_path / "saved", PAYLOAD)
    assert saved.config == CONFIG
    assert jax.tree.structure(saved.memory) == jax.tree.structure(memories)
    for got, expected in zip(
        jax.tree.leaves((saved.memory, saved.params)), jax.tree.leaves((memories, PARAMS)), strict=True
    ):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    # and life goes on as if nothing had been
    experience = random_experiences(CONFIG, jax.random.key(5), AGENTS)
    write = jax.jit(jax.vmap(dmem.write, in_axes=(None, None, 0, 0)))
    jax.tree.map(
        np.testing.assert_array_equal,
        write(CONFIG, PARAMS, memories, experience),
        write(saved.config, saved.params, saved.memory, experience),
    )


def test_what_cannot_be_restored_is_named(memories, tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, memories)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, memories)
    other = dataclasses.replace(PARAMS, floor=jnp.float32(1.0))
    checkpoint.save(tmp_path / "saved", CONFIG, other, memories, overwrite=True)
    assert checkpoint.restore(tmp_path / "saved", PAYLOAD).params.floor == 1
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        checkpoint.restore(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"payload: .* was saved, and is not expected"):
        checkpoint.restore(tmp_path / "saved", {"floats": PAYLOAD["floats"]})
    with pytest.raises(ValueError, match=r"payload: .* was saved as float32"):
        checkpoint.restore(tmp_path / "saved", PAYLOAD | {"floats": jnp.zeros(2)})
    with pytest.raises(ValueError, match=r"payload: .* is expected, and was not saved"):
        checkpoint.restore(tmp_path / "saved", PAYLOAD | {"more": jnp.zeros(2)})
    by_name = checkpoint.restore(tmp_path / "saved").memory.core.payload
    np.testing.assert_array_equal(by_name["floats"], memories.core.payload["floats"])


def test_the_command_draws_a_saved_memory(memories, tmp_path):
    pytest.importorskip("typer")
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, memories)

    def dmem_command(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", "from dmem_jax.cli import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    drawn = dmem_command("plot", "saved", "--out", "all.png", "--agent", "1")
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "all.png").stat().st_size > 10_000
    for arguments, message in (
        (("plot", "nothing"), "no checkpoint"),
        (("plot", "saved", "--agent", "7"), "expected one of 0 .. 2"),
    ):
        failed = dmem_command(*arguments)
        assert failed.returncode == 1
        assert message in failed.stderr
        assert "Traceback" not in failed.stderr
