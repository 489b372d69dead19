"""Saving a memory to disk and bringing it back (orbax).

    checkpoint.save("run/memory", config, params, memories)
    saved = checkpoint.restore("run/memory", payload=payload)  # saved.config, .params, .memory

A checkpoint is one folder, complete or not there at all: orbax writes elsewhere and renames.
"""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from dmem_jax import allocation, inputs
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError
from dmem_jax.params import Params
from dmem_jax.types import Memory

STATE_VERSION = 1
"""Of the saved fields; raised when one is added, renamed or changes its meaning."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What was saved."""

    config: Config
    params: Params
    memory: Memory


def save(path: str | Path, config: Config, params: Params, memory: Memory, *, overwrite: bool = False) -> None:
    """Writes a memory, of one agent or of many, with what it was made for.

    Args:
      path: a folder that will be made.
      overwrite: replace what is there.

    Raises:
      FileExistsError: something is at `path`, and not `overwrite`.
      ArgumentTypeError: named. MissingExtraError: orbax is not installed.
    """
    for name, given, kind in (("config", config, Config), ("params", params, Params), ("memory", memory, Memory)):
        if not isinstance(given, kind):
            raise ArgumentTypeError(f"{name}: expected a dmem_jax.{kind.__name__}, got {type(given).__name__}.")
    ocp = _orbax()
    path = Path(path).resolve()
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: there is something already; overwrite=True replaces it.")
    about = {
        "state_version": STATE_VERSION,
        "config": dataclasses.asdict(config),
        "batch_shape": list(memory.clock.shape),
    }
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(
            path,
            ocp.args.Composite(
                about=ocp.args.JsonSave(about),
                params=ocp.args.StandardSave(_by_name(params)),
                memory=ocp.args.StandardSave(_by_name(memory)),
            ),
            force=overwrite,
        )


def restore(path: str | Path, payload: PyTree = None) -> Checkpoint:
    """Brings back what `save` wrote, bit for bit.

    Args:
      payload: as it was given to `init`: a pytree of examples or ShapeDtypeStructs of one memory. None, where the
        memory has one: it comes as a flat dict, its leaves by their names.

    Raises:
      FileNotFoundError: no checkpoint there. ArgumentValueError: it is of another version, or of another payload.
      MissingExtraError: orbax is not installed.
    """
    ocp = _orbax()
    path = Path(path).resolve()
    if not (path / "about").exists():
        raise FileNotFoundError(f"{path}: no checkpoint of a memory is there.")
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        about = checkpointer.restore(path, ocp.args.Composite(about=ocp.args.JsonRestore())).about
        if about["state_version"] != STATE_VERSION:
            raise ArgumentValueError(
                f"path: expected a checkpoint of state version {STATE_VERSION}, got {about['state_version']}."
            )
        arrays = ocp.args.Composite(params=ocp.args.StandardRestore(), memory=ocp.args.StandardRestore())
        saved = checkpointer.restore(path, arrays)
    fields = about["config"]
    quota = fields["top_k"]
    config = Config(**(fields | {"top_k": tuple(quota) if isinstance(quota, list) else quota}))
    if payload is None:
        payload = _payload_of(saved.memory, len(about["batch_shape"]) + 1)
    spec = inputs.payload_spec(payload)
    like = jax.eval_shape(lambda: allocation.init(config, spec, batch_shape=tuple(about["batch_shape"])))
    params = jax.eval_shape(lambda: Params.default(config))
    return Checkpoint(config=config, params=_filled(params, saved.params), memory=_filled(like, saved.memory))


def _by_name(state: PyTree) -> dict[str, Any]:
    """Every array by its name: what a file holds must not depend on Python classes. Empty ones, which orbax refuses,
    are left out."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {_name(path): leaf for path, leaf in leaves if leaf.size}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _filled(like: PyTree, saved: dict[str, Any]) -> Any:
    """The structure `like` with the arrays that were saved."""
    unexpected = set(saved) - {_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(like)}
    if unexpected:
        raise ArgumentValueError(f"payload: {min(unexpected)} was saved, and is not expected.")

    def array(path: Any, spec: jax.ShapeDtypeStruct) -> Array:
        name = _name(path)
        found = saved.get(name) if spec.size else jnp.zeros(spec.shape, spec.dtype)
        if found is None:
            raise ArgumentValueError(f"payload: {name} is expected, and was not saved.")
        if (found.shape, found.dtype) != (spec.shape, spec.dtype):
            raise ArgumentValueError(
                f"payload: {name} was saved as {found.dtype}{list(found.shape)}, "
                f"expected {spec.dtype}{list(spec.shape)}."
            )
        return jnp.asarray(found)

    return jax.tree_util.tree_map_with_path(array, like)


def _payload_of(saved: dict[str, Any], leading: int) -> PyTree:
    """Shapes and dtypes of the payload leaves of one memory, by name."""
    prefix = "core.payload"
    leaves = {name: leaf for name, leaf in saved.items() if name.startswith(prefix)}
    specs = {name: jax.ShapeDtypeStruct(leaf.shape[leading:], leaf.dtype) for name, leaf in leaves.items()}
    if list(specs) == [prefix]:
        return specs[prefix]  # a bare array
    return {name.removeprefix(f"{prefix}."): spec for name, spec in specs.items()} or None


def _orbax() -> Any:
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise MissingExtraError(
            "checkpoints need orbax: pip install 'dmem-jax[checkpoint]', or orbax-checkpoint itself."
        ) from error
    logging.getLogger("absl").setLevel(logging.WARNING)  # orbax says a dozen lines for each checkpoint
    return ocp
