"""What earlier versions of dmem_jax saved, brought to today's form.

To change what is saved: raise STATE_VERSION and add to MIGRATIONS, under the number that it had, a function that makes
of an old checkpoint's `about` and arrays those of the next version. A new field of Config with a default needs neither.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dmem_jax.checkpoint import blocks, sealed
from dmem_jax.errors import ArgumentValueError, CheckpointError

STATE_VERSION = 2
"""Of the saved fields; raised when one is added, renamed or changes its meaning."""

About = dict[str, Any]
"""state_version; config: its fields; batch_shape; keys: of the arrays that are typed keys, the names of their kinds."""
Arrays = dict[str, Any]
"""NumPy arrays, or what is read only where `np.asarray(array)` or `array[index]` asks: to rename costs nothing."""

MIGRATIONS: dict[int, Callable[[About, Arrays], tuple[About, Arrays]]] = {
    1: lambda about, arrays: ({**about, "keys": {}}, arrays),
}


def is_checkpoint(folder: Path) -> bool:
    """Whether it has the form of one, of whatever version."""
    return (folder / "about.json").is_file() or (folder / "about").is_dir()


def read(folder: Path) -> tuple[About, Arrays]:
    """What a folder holds, in the form of today.

    Raises:
      FileNotFoundError: no checkpoint there. CheckpointError: it is damaged. ArgumentValueError: it is of a later
      version of dmem_jax.
    """
    if (folder / "about.json").exists():
        about, arrays = sealed.read(folder / "about.json"), dict(blocks.read(folder))
    elif (folder / "about" / "metadata").exists():
        about, arrays = _read_version_1(folder)
    else:
        raise FileNotFoundError(f"{folder}: no checkpoint of a memory is there.")
    version = about["state_version"]
    if version > STATE_VERSION:
        raise ArgumentValueError(
            f"path: {folder} was saved by a later dmem_jax: its state version is {version}, and this one reads up to "
            f"{STATE_VERSION}."
        )
    for older in range(version, STATE_VERSION):
        about, arrays = MIGRATIONS[older](about, dict(arrays))
    return about, arrays


def _read_version_1(folder: Path) -> tuple[About, Arrays]:
    """Orbax wrote it all, with empty arrays left out, and summed nothing."""
    from dmem_jax.checkpoint.handler import ocp

    about = json.loads((folder / "about" / "metadata").read_text())
    arrays = {}
    try:
        with ocp.PyTreeCheckpointer() as checkpointer:
            for part in ("params", "memory"):
                names = checkpointer.metadata(folder / part).item_metadata.tree
                on_the_host = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
                saved = checkpointer.restore(folder / part, ocp.args.PyTreeRestore(restore_args=on_the_host))
                arrays |= {f"{part}.{name}": np.asarray(array) for name, array in saved.items()}
    except Exception as error:  # of any kind, from the layers below
        raise CheckpointError(f"{folder}: damaged, {error}") from error
    return about, arrays
