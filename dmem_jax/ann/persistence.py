"""An index on disk: a folder with hnswlib's file, the digests of its vectors, and a small header that says what they
must be. hnswlib reads a file as it comes, and ends the process over a truncated one: it is given none that is not,
byte for byte, what was written.
"""

import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dmem_jax import inputs
from dmem_jax.ann.index import Index, graph_class
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, CheckpointError

STATE_VERSION = 1
"""Of what is saved; raised when a field is added, renamed or changes its meaning."""

_OURS = "dmem-"  # how names of files begin that the next save may delete
_HEADER, _GRAPH, _DIGESTS, _PART = "index.json", ".hnsw", ".digests", ".part"


def save(path: str | Path, index: Index) -> None:
    """Writes an index into the folder `path`, which is made if need be. An index that is there is replaced, and stays
    whole if the writing fails: the new header comes last, and names the files that it goes with.

    Raises:
      ArgumentTypeError: named. OSError: it can't be written.
    """
    folder = _folder(path)
    if not isinstance(index, Index):
        raise ArgumentTypeError(f"index: expected a dmem_jax.ann.Index, got {type(index).__name__}.")
    folder.mkdir(parents=True, exist_ok=True)
    before = [file for ending in (_GRAPH, _DIGESTS, _PART) for file in folder.glob(f"{_OURS}*{ending}")]
    graph, digests = _new_file(folder, _GRAPH), _new_file(folder, _DIGESTS)
    if index._graph.element_count:
        index._graph.save_index(str(graph))
        # hnswlib does not look whether its writing succeeded.
        if graph.stat().st_size != index._graph.index_file_size():
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
        _flush(file)
    header = _new_file(folder, _PART)
    header.write_text(json.dumps(about | {"digest": _digest_of_header(about)}))
    _flush(header)
    os.replace(header, folder / _HEADER)  # from here on it is this index, until here it was the one before
    for file in before:
        file.unlink(missing_ok=True)


def load(path: str | Path, config: Config, *, threads: int | None = None) -> Index:
    """The index that `save` wrote into the folder `path`; `sync` it with the memory, which may have gone on.

    Args:
      config: of the memory; its buffer may have grown since.
      threads: as for `Index`.

    Raises:
      FileNotFoundError: no index there. CheckpointError: truncated, altered or of another version.
      ArgumentValueError: it does not fit the config; named. MissingExtraError: hnswlib is not installed.
    """
    inputs.check_config(config)
    folder = _folder(path)
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
            raise CheckpointError(f"{file}: it is not what was written: truncated, altered or missing.")
    index = Index(config, M=about["M"], ef_construction=about["ef_construction"], ef=about["ef"], threads=threads)
    index.measured = about["measured_recall"]
    saved = np.frombuffer(files["digests"].read_bytes(), "<u8")
    index._digest[: saved.size] = saved
    if about["elements"]:
        graph = graph_class()(space="ip", dim=index.dim)
        graph.load_index(str(files["graph"]), max_elements=index._graph.max_elements)
        index._graph = graph
        index._linked[graph.get_ids_list()] = True
    index._settle()
    return index


def _header(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / _HEADER).read_bytes())
        digest = about.pop("digest")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / _HEADER}: it is not what was written: {error!r}.") from error
    if digest != _digest_of_header(about):
        raise CheckpointError(f"{folder / _HEADER}: it is not what was written: its digest differs.")
    if about["state_version"] != STATE_VERSION:
        raise CheckpointError(
            f"{folder / _HEADER}: expected an index of state version {STATE_VERSION}, got {about['state_version']}."
        )
    return about


def _digest_of_header(about: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=32).hexdigest()


def _digest_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _folder(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)):
        raise ArgumentTypeError(f"path: expected a path, got {type(path).__name__}.")
    return Path(path)


def _new_file(folder: Path, ending: str) -> Path:
    """With a name that no other has."""
    handle, name = tempfile.mkstemp(prefix=_OURS, suffix=ending, dir=folder)
    os.close(handle)
    os.chmod(name, stat.S_IMODE(folder.stat().st_mode) & 0o666)  # whoever may read the folder may read what is in it
    return Path(name)


def _flush(file: Path) -> None:
    """To the disk, so that no header can outlive what it names."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
