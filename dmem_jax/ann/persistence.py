"""An index on disk: a folder with hnswlib's file, the digests of its vectors, and a small header that says what they
must be. hnswlib reads a file as it comes, and ends the process over a truncated one: it is given none that is not,
byte for byte, what was written.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dmem_jax import inputs
from dmem_jax.ann.index import Index, graph_class
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, DmemError

STATE_VERSION = 1
"""Of what is saved; raised when a field is added, renamed or changes its meaning."""

_HEADER = "index.json"


class CorruptIndexError(DmemError, ValueError):
    """What is on disk is not what `Index.save` wrote. The index is derived from the memory: build it anew by `sync`."""


def save(path: str | Path, index: Index) -> None:
    """`Index.save`."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    before = {file.name for file in folder.glob("*.part")}  # of this writing alone, or of an older one
    graph, digests = _part(folder), _part(folder)
    if index._graph.element_count:
        index._graph.save_index(str(graph))
        # hnswlib does not look whether its writing succeeded.
        if graph.stat().st_size != index._graph.index_file_size():
            graph.unlink()
            digests.unlink()
            raise OSError(f"{folder}: the index could not be written whole: is the disk full?")
    digests.write_bytes(index._digest.astype("<u8").tobytes())
    about: dict[str, Any] = {
        "state_version": STATE_VERSION,
        "embedding_dim": index.dim,
        "buffer_capacity": index.capacity,
        "M": index.M,
        "ef_construction": index.ef_construction,
        "ef": index.ef,
        "measured_recall": index.measured,
        "elements": index._graph.element_count,
        "files": {name: [file.name, _digest_of(file)] for name, file in (("graph", graph), ("digests", digests))},
    }
    for file in (graph, digests):
        _flushed(file)
    header = _part(folder)
    header.write_text(json.dumps(about | {"digest": _digest_of_header(about)}))
    _flushed(header)
    os.replace(header, folder / _HEADER)  # from here on it is this index, until here it was the one before
    for name in before:
        (folder / name).unlink(missing_ok=True)


def load(path: str | Path, config: Config, *, threads: int | None = None) -> Index:
    """The index that `Index.save` wrote into the folder `path`; `sync` it with the memory, which may have gone on.

    Args:
      config: of the memory; its buffer may have grown since.
      threads: as for `Index`.

    Raises:
      FileNotFoundError: no index there. CorruptIndexError (a ValueError): truncated, altered or of another version.
      ArgumentValueError: it does not fit the config; named. MissingExtraError: hnswlib is not installed.
    """
    inputs.check_config(config)
    if not isinstance(path, (str, Path)):
        raise ArgumentTypeError(f"path: expected a path, got {type(path).__name__}.")
    folder = Path(path)
    if not (folder / _HEADER).exists():
        raise FileNotFoundError(f"{folder}: no index is there.")
    about = _header(folder)
    if about["embedding_dim"] != config.embedding_dim:
        raise ArgumentValueError(
            f"Config.embedding_dim: the index at {folder} is of {about['embedding_dim']}, got {config.embedding_dim}."
        )
    if about["buffer_capacity"] > config.buffer_capacity:
        raise ArgumentValueError(
            f"Config.buffer_capacity: the index at {folder} is of {about['buffer_capacity']} slots, "
            f"got {config.buffer_capacity}."
        )
    files = {name: folder / file for name, (file, _) in about["files"].items()}
    for name, file in files.items():
        if not file.exists() or _digest_of(file) != about["files"][name][1]:
            raise CorruptIndexError(f"{file}: it is not what was written: truncated, altered or missing.")
    index = Index(config, M=about["M"], ef_construction=about["ef_construction"], ef=about["ef"], threads=threads)
    index.measured = about["measured_recall"]
    saved = np.frombuffer(files["digests"].read_bytes(), "<u8")
    index._digest[: saved.size] = saved
    if about["elements"]:
        graph = graph_class()(space="ip", dim=index.dim)
        graph.load_index(str(files["graph"]), max_elements=index._graph.max_elements)
        index._graph = graph
    return index


def _header(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / _HEADER).read_bytes())
        digest = about.pop("digest")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptIndexError(f"{folder / _HEADER}: it is not what was written: {error!r}.") from error
    if digest != _digest_of_header(about):
        raise CorruptIndexError(f"{folder / _HEADER}: it is not what was written: its digest differs.")
    if about["state_version"] != STATE_VERSION:
        raise CorruptIndexError(
            f"{folder / _HEADER}: expected an index of state version {STATE_VERSION}, got {about['state_version']}."
        )
    return about


def _digest_of_header(about: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=32).hexdigest()


def _digest_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _part(folder: Path) -> Path:
    """A new file with a name of its own."""
    handle, name = tempfile.mkstemp(suffix=".part", dir=folder)
    os.close(handle)
    return Path(name)


def _flushed(file: Path) -> None:
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
