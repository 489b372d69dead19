"""The checkpoints of a run: in the background, the last few kept, and none lost whenever the process is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import checkpoint
from dmem_jax.checkpoint import blocks
from dmem_jax.errors import CheckpointError
from tests.saves_until_killed import CONFIG as SAVED_CONFIG
from tests.saves_until_killed import EXTRA, state
from tests.test_checkpoint import CONFIG, MEMORY, PARAMS, PAYLOAD, SHARDINGS, assert_same


def at(step: int) -> dmem.Memory:
    return jax.tree.map(lambda leaf: leaf + jnp.full_like(leaf, step), MEMORY)


@pytest.mark.quick
def test_a_run_keeps_the_last_few_and_restores_any(tmp_path):
    folder = tmp_path / "a" / "run"
    with checkpoint.Checkpoints(folder, CONFIG, keep=2) as checkpoints:
        assert checkpoints.steps() == []
        with pytest.raises(FileNotFoundError, match="no checkpoint is there"):
            checkpoints.restore(PAYLOAD)
        for step in (0, 5, 7, 12):
            checkpoints.save(step, PARAMS, at(step), extra={"step": step, "key": jax.random.key(step)})
        assert_same(checkpoints.restore(PAYLOAD).memory, at(12))
        assert checkpoints.steps() == [7, 12]
        with pytest.raises(ValueError, match=r"step: expected one after 12, the latest in .*, got 12"):
            checkpoints.save(12, PARAMS, at(1))
        with pytest.raises(FileNotFoundError, match="no checkpoint of step 5 is there"):
            checkpoints.restore(PAYLOAD, step=5)
    with checkpoint.Checkpoints(folder, CONFIG, keep=2) as again:
        like = {"step": 0, "key": jax.random.key(0)}
        saved = again.restore(PAYLOAD, step=7, extra=like, sharding=SHARDINGS["four"])
        assert_same(saved.memory, at(7))
        assert_same(saved.extra, {"step": 7, "key": jax.random.key(7)})
        assert saved.memory.clock.sharding == SHARDINGS["four"]
        again.save(13, PARAMS, at(13))
    assert again.steps() == [12, 13]
    assert_same(checkpoint.restore(folder / "13", PAYLOAD).memory, at(13))
    other = checkpoint.Checkpoints(folder, dmem.Config(embedding_dim=5), keep=1)
    with pytest.raises(ValueError, match=r"config: it disagrees .*: embedding_dim is 4 there and 5 here"):
        other.restore()
    other.close()
    assert other.steps() == [12, 13]  # who only reads removes nothing


def test_what_is_given_is_checked(tmp_path, unchecked):
    for keep in (0, -1):
        with pytest.raises(ValueError, match="keep: expected at least 1"):
            checkpoint.Checkpoints(tmp_path, CONFIG, keep=keep)
    with pytest.raises(TypeError, match="config"):
        checkpoint.Checkpoints(tmp_path, PARAMS)  # type: ignore[arg-type]
    with checkpoint.Checkpoints(tmp_path, CONFIG) as checkpoints:
        for step, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError)):
            with pytest.raises(error, match="step: expected"):
                checkpoints.save(step, PARAMS, MEMORY)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="memory: expected"):
            checkpoints.save(1, PARAMS, PARAMS)  # type: ignore[arg-type]


@pytest.mark.quick
def test_arrays_may_be_donated_as_soon_as_save_returns(tmp_path, monkeypatch):
    real = blocks.write

    def slow(*given):  # the step below is over before a byte is written
        time.sleep(0.5)
        real(*given)

    monkeypatch.setattr(blocks, "write", slow)
    step = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + jnp.ones_like(leaf), tree), donate_argnums=0)
    memory, learner = at(0), {"w": jnp.arange(1000, dtype=jnp.float32), "host": np.zeros(3)}
    with checkpoint.Checkpoints(tmp_path, CONFIG) as checkpoints:
        checkpoints.save(0, PARAMS, memory, extra=learner)
        learner["host"] += 1
        memory, w = step((memory, learner["w"]))
        jax.block_until_ready(memory)
        saved = checkpoints.restore(PAYLOAD, extra=learner)
    assert_same(memory, at(1))
    assert_same(saved.memory, at(0))
    np.testing.assert_array_equal(saved.extra["w"], w - 1)
    np.testing.assert_array_equal(saved.extra["host"], 0)


def test_an_error_in_the_background_is_raised_by_the_next_call(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    checkpoints = checkpoint.Checkpoints(tmp_path, CONFIG)
    checkpoints.save(1, PARAMS, at(1))
    checkpoints.wait()
    calls = (
        checkpoints.wait,
        lambda: checkpoints.save(3, PARAMS, at(3)),
        lambda: checkpoints.restore(PAYLOAD),
        checkpoints.close,
    )
    for call in calls:
        with monkeypatch.context() as patched:
            patched.setattr(blocks, "_write_blocks", full)
            checkpoints.save(2, PARAMS, at(2))
            with pytest.raises(CheckpointError, match=rf"{tmp_path / '2'}: could not be saved: .*No space left"):
                call()
        assert checkpoints.steps() == [1]
    with checkpoint.Checkpoints(tmp_path, CONFIG) as checkpoints:
        checkpoints.save(2, PARAMS, at(2))
        assert_same(checkpoints.restore(PAYLOAD).memory, at(2))


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    with checkpoint.Checkpoints(tmp_path, CONFIG) as checkpoints:
        checkpoints.save(3, PARAMS, at(3))
    left = "4.orbax-checkpoint-tmp", "2.deleted"
    others = "notes", "notes.deleted", "4x.orbax-checkpoint-tmp", "03", "-1", "5.txt", ".deleted"
    for name in (*left, *others):
        (tmp_path / name).mkdir()
    with checkpoint.Checkpoints(tmp_path, CONFIG) as checkpoints:
        assert checkpoints.steps() == [3]
        # Who only reads removes nothing: another process may be writing.
        assert {path.name for path in tmp_path.iterdir()} == {"3", *left, *others}
        checkpoints.save(5, PARAMS, at(5))
    assert {path.name for path in tmp_path.iterdir()} == {"3", "5", *others}
    with pytest.raises(dmem.CheckpointError, match="closed"):
        checkpoints.save(6, PARAMS, at(6))


def kill_again_and_again(folder: Path, kills: int) -> int:
    """Returns how many of the kills came while a checkpoint was being written."""
    random = np.random.default_rng(0)
    command = [sys.executable, "-m", "tests.saves_until_killed", str(folder)]
    root = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    within = 0
    with subprocess.Popen(
        command, cwd=root, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as saving:
        assert saving.stdin
        assert saving.stdout
        for _ in range(kills):
            saving.stdin.write("again\n")
            saving.stdin.flush()
            child = int(saving.stdout.readline().split()[1])
            said = [saving.stdout.readline().split() for _ in range(int(random.integers(1, 7)))]
            time.sleep(random.uniform(0, 0.06))
            os.kill(child, signal.SIGKILL)
            while said[-1][0] != "ended":
                said.append(saving.stdout.readline().split())
            assert said.pop() == ["ended", "-9"], said
            told = {what: int(step) for what, step in said}
            within += told["begun"] > told.get("run", -1)

            with checkpoint.Checkpoints(folder / "run", SAVED_CONFIG, keep=2) as checkpoints:
                steps = checkpoints.steps()
                assert steps or "run" not in told
                for step in steps:
                    saved = checkpoints.restore(step=step, extra=EXTRA)
                    assert_same(jax.tree.map(np.asarray, (saved.memory, saved.extra)), state(step))
                assert max(steps, default=-1) >= told.get("run", -1)
            if "one" in told or (folder / "one").exists():
                saved = checkpoint.restore(folder / "one", extra=EXTRA)
                step = int(saved.extra["x"][0])
                assert_same(jax.tree.map(np.asarray, (saved.memory, saved.extra)), state(step))
                assert step >= told.get("one", 0)
        saving.stdin.close()
    return within


@pytest.mark.skipif(not hasattr(os, "fork"), reason="its children are forked")
def test_a_kill_never_loses_the_last_complete_checkpoint(tmp_path):
    assert kill_again_and_again(tmp_path, kills=10)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="its children are forked")
def test_a_hundred_kills_never_lose_the_last_complete_checkpoint(tmp_path):
    assert kill_again_and_again(tmp_path, kills=100) > 30
