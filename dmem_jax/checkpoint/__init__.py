"""Saving a memory to disk and bringing it back (extra: checkpoint).

    checkpoint.save("run/memory", config, params, memories)
    saved = checkpoint.restore("run/memory", payload=payload)  # saved.config, .params, .memory

    with checkpoint.Checkpoints("run", config, keep=3) as checkpoints:  # of a whole run, in the background
        checkpoints.save(step, params, memories, extra={"learner": learner, "key": key})
        ...
    saved = checkpoints.restore(payload=payload, extra={"learner": learner, "key": key})  # the latest

A checkpoint is one folder, complete or not there at all: orbax lets each process write its shards into a temporary
folder and renames it. Every block of bytes has a checksum. Nothing is pickled.
"""

from dmem_jax.checkpoint.run import Checkpoints
from dmem_jax.checkpoint.single import restore, save
from dmem_jax.checkpoint.state import Checkpoint

__all__ = ["Checkpoint", "Checkpoints", "restore", "save"]
