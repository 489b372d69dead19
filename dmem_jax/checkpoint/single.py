"""One checkpoint: save and restore."""

import shutil
import threading
from pathlib import Path

import jax
from jaxtyping import PyTree

from dmem_jax.checkpoint import blocks, migrations, state
from dmem_jax.checkpoint.state import Checkpoint, Shardings
from dmem_jax.config import Config
from dmem_jax.params import Params
from dmem_jax.types import Memory

_ONE_AT_A_TIME = threading.Lock()  # orbax tells its saves apart by a number that threads share


def save(
    path: str | Path,
    config: Config,
    params: Params,
    memory: Memory,
    *,
    extra: PyTree = None,
    overwrite: bool = False,
) -> None:
    """Writes a memory, of one agent or of many, with what it was made for; to the disk, not only to its cache.

    In a run of several processes each calls it, with the same arguments, on a folder that all of them see.

    Args:
      path: a folder that will be made.
      extra: what else belongs to it, a pytree of arrays, typed keys and numbers: a learner's state, an environment's.
      overwrite: replace what is there. Until the new one is complete the old one stays.

    Raises:
      FileExistsError: something is at `path`, and not `overwrite`.
      ArgumentTypeError, ArgumentValueError: named. OSError: it cannot be written. MissingExtraError: orbax is not
      installed.
    """
    about, arrays = state.named(config, params, memory, extra)
    from dmem_jax.checkpoint import handler

    path = Path(path).resolve()
    there = path.exists()
    if (there or _left_by_a_killed_save(path)) and not overwrite:
        raise FileExistsError(f"{path}: there is something already; overwrite=True replaces it.")
    if there and not migrations.is_checkpoint(path):
        raise FileExistsError(f"{path}: what is there is no checkpoint, and is not replaced.")
    target = _new(path) if there else path
    specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in arrays.items()}
    with _ONE_AT_A_TIME, handler.checkpointer() as checkpointer:
        content = handler.Content(about, specs, blocks.own_shards(arrays, copy=False))
        checkpointer.save(target, args=content, force=there)  # `target` is then a leftover at most
    if overwrite:
        if jax.process_index() == 0:
            if there:
                shutil.rmtree(_old(path), ignore_errors=True)
                path.rename(_old(path))
                target.rename(path)
            for leftover in (_new(path), _old(path)):
                shutil.rmtree(leftover, ignore_errors=True)
        handler.barrier("overwritten")


def restore(
    path: str | Path,
    payload: PyTree = None,
    *,
    config: Config | None = None,
    extra: PyTree = None,
    sharding: Shardings = None,
) -> Checkpoint:
    """Brings back what `save` wrote, bit for bit, on whatever devices there are now.

    Args:
      payload: as it was given to `init`: a pytree of examples or ShapeDtypeStructs of one memory. None, where the
        memory has one: it comes as a flat dict, its leaves by their names.
      config: the one you are about to use; it must be the one in the file.
      extra: as it was given to `save`, examples or ShapeDtypeStructs: it comes in the same classes, on the devices that
        its leaves name, if they do. None: as a flat dict of NumPy arrays and typed keys.
      sharding: where the memory goes, whatever it was saved from: on a `jax.sharding.Mesh` with axes "agents" and
        "slots", as `sharding.place` does it; by a `jax.sharding.Sharding` for all of its arrays, or a function that
        gives one for a name ("core.embedding") and a ShapeDtypeStruct. Each device reads its part alone. None: on the
        default device.

    Raises:
      FileNotFoundError: no checkpoint there. CheckpointError: it is damaged, which names the file. ArgumentValueError:
      it is of another config (each field that differs is named), payload, extra or version, or `sharding` does not fit.
    """
    path = Path(path).resolve()
    found = path if path.exists() else _left_by_a_killed_save(path) or path
    about, arrays = migrations.read(found)
    return state.assembled(path, about, arrays, payload, config, extra, sharding)


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.dmem-new")


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.dmem-old")


def _left_by_a_killed_save(path: Path) -> Path | None:
    """Where a complete checkpoint is if `save(overwrite=True)` was killed between its two renames."""
    return next((at for at in (_new(path), _old(path)) if not path.exists() and at.exists()), None)
