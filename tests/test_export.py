"""The step as a file that other machines run: exported for all platforms, reloaded, the same."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dmem_jax as dmem
from tests.lives import PAYLOAD, assert_trees_equal, random_experiences, random_queries

pytest.importorskip("flatbuffers", reason="jax.export writes files with flatbuffers: extra `export`")

AGENTS = 4
CONFIG = dmem.Config(embedding_dim=5, core_capacity=4, buffer_capacity=8, top_k=4, warmup=2)
PARAMS = dmem.Params.default(CONFIG)
PLATFORMS = ("cpu", "cuda", "tpu")


def arguments(seed: int) -> tuple:
    agents = dmem.make(CONFIG, PAYLOAD, agents=AGENTS)
    experiences = random_experiences(CONFIG, jax.random.key(seed), AGENTS)
    return PARAMS, agents.init(), experiences, random_queries(CONFIG, jax.random.key(seed), AGENTS)


def life(step, days: int = 12):
    memories, told = dmem.make(CONFIG, PAYLOAD, agents=AGENTS).init(), []
    for day in range(days):
        _, _, *met = arguments(day)
        memories, info = step(PARAMS, memories, *met)
        told.append(info)
    return memories, told


def exported() -> jax.export.Exported:
    step: Any = dmem.make(CONFIG, PAYLOAD, agents=AGENTS).step
    return jax.export.export(step, platforms=PLATFORMS)(*arguments(0))


@pytest.mark.quick
def test_an_exported_step_is_reloaded_and_equal():
    written = exported().serialize()
    again = jax.export.deserialize(bytearray(written))
    assert again.platforms == PLATFORMS
    assert_trees_equal(life(again.call), life(dmem.make(CONFIG, PAYLOAD, agents=AGENTS).step))


RELOAD = """
import sys, jax, numpy as np, dmem_jax
step = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
saved = np.load(sys.argv[2])
args, kwargs = jax.tree.unflatten(step.in_tree, [saved[f"arr_{i}"] for i in range(len(step.in_avals))])
memories, info = step.call(*args, **kwargs)
assert type(memories) is dmem_jax.Memory, type(memories)
np.savez(sys.argv[3], *jax.tree.leaves((memories, info)))
"""


def test_another_process_needs_no_config(tmp_path: Path):
    """Nothing but the file, the arrays and the classes."""
    given = arguments(1)
    (tmp_path / "step").write_bytes(exported().serialize())
    np.savez(tmp_path / "given.npz", *map(np.asarray, jax.tree.leaves(given)))
    files = [str(tmp_path / name) for name in ("step", "given.npz", "found.npz")]
    subprocess.run([sys.executable, "-c", RELOAD, *files], check=True)
    found = np.load(tmp_path / "found.npz")
    expected = jax.tree.leaves(dmem.make(CONFIG, PAYLOAD, agents=AGENTS).step(*given))
    assert_trees_equal([found[f"arr_{i}"] for i in range(len(expected))], expected)


def test_every_class_of_the_state_can_be_exported():
    classes = [getattr(dmem, name) for name in dmem.__all__ if name[0].isupper()]
    states = [c for c in classes if hasattr(c, "__dataclass_fields__") and c not in (dmem.Config, dmem.Agents)]
    assert len(states) >= 15
    for cls in states:
        instance = object.__new__(cls)
        for field in cls.__dataclass_fields__:
            object.__setattr__(instance, field, np.float32(0))
        same = jax.jit(lambda x: x)
        jax.export.export(same)(instance).serialize()
