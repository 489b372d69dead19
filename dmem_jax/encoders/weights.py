"""Where a model's files lie, and that they are what they should be: a folder, an installed package, or the hub.

Only safetensors are read: a file of arrays can run no code.
"""

import hashlib
import importlib
import importlib.metadata
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError, shown

Arrays = dict[str, np.ndarray]

HUB_FILES = ["*.json", "vocab.txt", "merges.txt", "sentencepiece*.model", "model.safetensors"]


def optional(module: str) -> ModuleType:
    """A package of the extra `text`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"encoding texts needs {module.partition('.')[0]}: pip install 'dmem-jax[text]'."
        ) from error


def model_name(folder_or_name: str | Path) -> str:
    """Without the folders, or the owner on the hub, before it."""
    if not isinstance(folder_or_name, (str, Path)) or not str(folder_or_name).strip():
        raise ArgumentTypeError(f"folder_or_name: expected a folder or a model's name, got {shown(folder_or_name)}.")
    path = Path(folder_or_name)
    return path.resolve().name if path.is_dir() else path.name


def folder_in_packages(packages: Iterable[str], file: str) -> Path | None:
    """The folder of `file`, as the first of these distributions that is installed has it; nothing is imported."""
    for package in packages:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for entry in files:
            path = Path(str(entry.locate()))
            if path.name == file and path.is_file():
                return path.parent
    return None


def folder_from_hub(name: str, instead: str) -> Path:
    """Downloads a model, or finds it where it was downloaded before. `instead` says what else can be done."""
    hub = optional("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # of its own kinds, of the client's, of the system's: there is no common one
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ArgumentValueError(
            f"folder_or_name: {name!r} is no folder here, no installed package holds its weights, and the hub did not "
            f"give it ({reason}). Give a folder that holds the model{instead}."
        ) from error


def read_arrays(file: Path, sha256: str | None) -> tuple[Arrays, str]:
    """The arrays of a safetensors file, floats as float32, and its SHA-256 in hexadecimal digits.

    Raises:
      ArgumentValueError: the file is missing, is not the one with this `sha256`, or is damaged.
    """
    expected = checked_digest(sha256)
    if not file.is_file():
        more = [path.name for path in sorted(file.parent.glob("*")) if path.suffix in {".bin", ".safetensors"}]
        also = f" There is {', '.join(more)}: only one file of safetensors is read." if more else ""
        raise ArgumentValueError(f"folder_or_name: {file.parent} holds no {file.name}.{also}")
    data = file.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if expected is not None and digest != expected:
        raise ArgumentValueError(
            f"sha256: {file} is not the file that was asked for: expected {expected}, it has {digest}."
        )
    reader: Any = optional("safetensors.numpy")
    try:
        arrays: Arrays = reader.load(data)
    except Exception as error:  # SafetensorError, or whatever a damaged header makes Python raise
        raise ArgumentValueError(f"folder_or_name: {file} can't be read as safetensors: {error}.") from error
    return {name: _float32(array) for name, array in arrays.items()}, digest


def checked_digest(sha256: str | None) -> str | None:
    if sha256 is None:
        return None
    if not isinstance(sha256, str):
        raise ArgumentTypeError(f"sha256: expected 64 hexadecimal digits, got {shown(sha256)}.")
    digest = sha256.lower()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ArgumentValueError(f"sha256: expected 64 hexadecimal digits, got {shown(sha256)}.")
    return digest


def taken(arrays: Arrays, name: str, shape: tuple[int, ...], file: Path) -> np.ndarray:
    """An array that must be there, in this shape, and finite."""
    if name not in arrays:
        raise ArgumentValueError(f"folder_or_name: {file} has no tensor {name!r}.")
    array = arrays[name]
    if array.shape != shape:
        raise ArgumentValueError(
            f"folder_or_name: {file}: expected {name!r} of shape {list(shape)}, as its config says, "
            f"got {list(array.shape)}."
        )
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise ArgumentValueError(f"folder_or_name: {file}: expected {name!r} to be finite floats, got others.")
    return array


def _float32(array: np.ndarray) -> np.ndarray:
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float32) if is_float else array
