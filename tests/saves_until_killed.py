"""Run by test_checkpoint_runs.py: children that save again and again, until one is killed.

Importing jax takes seconds, so it is done once: for each line on its standard input this process forks a child, which
begins where the last one's checkpoints end, and says on standard output what is on the disk.
"""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem
from dmem_jax import checkpoint
from dmem_jax.checkpoint import handler  # noqa: F401  orbax, once for all children

CONFIG = dmem.Config(embedding_dim=64, core_capacity=64, buffer_capacity=192)
AGENTS = 64  # 5 MiB in two blocks an array, so that a save takes long enough to be killed in it
EXTRA = {"x": jax.ShapeDtypeStruct((1000,), np.float32)}


def state(step: int) -> tuple[dmem.Memory, dict[str, np.ndarray]]:
    """What the checkpoint of a step holds: other numbers in every array, at every step."""
    like = jax.eval_shape(lambda: dmem.init(CONFIG, batch_shape=(AGENTS,)))
    leaves, structure = jax.tree.flatten(like)
    filled = [
        ((np.arange(leaf.size) + (step + 1) * (2 * i + 3)) % 251).astype(leaf.dtype).reshape(leaf.shape)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, filled), {"x": np.full(1000, step, np.float32)}


def save_forever(folder: Path) -> None:
    """Each step into a run's checkpoints, and over the one checkpoint beside them."""
    params = dmem.Params.default(CONFIG)
    with checkpoint.Checkpoints(folder / "run", CONFIG, keep=2) as checkpoints:
        step = max(checkpoints.steps(), default=-1)
        while True:
            step += 1
            memory, extra = jax.tree.map(jnp.asarray, state(step))
            checkpoints.save(step, params, memory, extra=extra)
            print("begun", step, flush=True)
            checkpoint.save(folder / "one", CONFIG, params, memory, extra=extra, overwrite=True)
            print("one", step, flush=True)
            checkpoints.wait()
            print("run", step, flush=True)


if __name__ == "__main__":
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                save_forever(Path(sys.argv[1]))
            finally:
                os._exit(1)
        print("child", child, flush=True)
        _, status = os.waitpid(child, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)
