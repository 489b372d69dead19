"""`checkpoint`: a memory saved and restored. Floor: the same bytes written by NumPy to one new file and to the disk.

`seconds` is save plus restore, each also by itself; `returns_after` what a save in the background (`Checkpoints`) keeps
the caller waiting. Every contender's files are on the disk when its save returns (fsync), as the floor's, and what is
read comes from the cache. Peers get the same arrays as a flat dict.

- `orbax`: its StandardCheckpointHandler as it comes, which compresses; memories of random numbers gain nothing by it.
- `orbax_uncompressed`: the fastest of its settings here: no compression, one file for each array.
- `numpy_savez`, `flax_msgpack`: one file.
"""

import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem
from benchmarks.output import Record, progress
from benchmarks.timing import race
from dmem_jax import checkpoint

CONFIG = dmem.Config(embedding_dim=128, core_capacity=128, buffer_capacity=384)
DEFAULT_PEERS = ["orbax", "orbax_uncompressed", "numpy_savez", "flax_msgpack"]
Arrays = dict[str, Any]


def full_memory(mebibytes: int) -> dmem.Memory:
    """Of as many agents as `mebibytes` hold, at least one; floats are random, for zeros would compress."""
    agents = max(1, mebibytes * 2**20 // dmem.nbytes(CONFIG))
    leaves, structure = jax.tree.flatten(dmem.init(CONFIG, batch_shape=(agents,)))
    keys = jax.random.split(jax.random.key(0), len(leaves))
    filled = [
        jax.random.normal(key, leaf.shape) if leaf.dtype == jnp.float32 else leaf
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.block_until_ready(jax.tree.unflatten(structure, filled))


class Contender:
    """Saves to a new folder or file and restores from it; the times of each part are kept."""

    def __init__(self, path: Path, save: Callable[[Path], Any], restore: Callable[[Path], Any]):
        self.path, self.save, self.restore = path, save, restore
        self.saves: list[float] = []
        self.restores: list[float] = []

    def __call__(self, round: int) -> float:
        start = time.perf_counter()
        self.save(self.path)
        saved = time.perf_counter()
        jax.block_until_ready(self.restore(self.path))
        restored = time.perf_counter()
        shutil.rmtree(self.path) if self.path.is_dir() else self.path.unlink()
        if round:
            self.saves.append(saved - start)
            self.restores.append(restored - saved)
        return restored - start

    def parts(self) -> dict[str, float]:
        return {
            "save_seconds": statistics.median(self.saves),
            "restore_seconds": statistics.median(self.restores),
        }


def written(path: Path, write: Callable[[Any], Any]) -> None:
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def orbax(folder: Path, arrays: Arrays, **options: Any) -> Contender:
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), arrays)
    arguments = ocp.checkpoint_utils.construct_restore_args(like)

    def save(path: Path) -> None:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as checkpointer:
            checkpointer.save(path, ocp.args.PyTreeSave(arrays))

    def restore(path: Path) -> Any:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as checkpointer:
            return checkpointer.restore(path, ocp.args.PyTreeRestore(like, restore_args=arguments))

    return Contender(folder / "orbax", save, restore)


def numpy_savez(folder: Path, arrays: Arrays) -> Contender:
    def save(path: Path) -> None:
        written(path, lambda file: np.savez(file, **jax.device_get(arrays)))

    def restore(path: Path) -> Arrays:
        with np.load(path) as saved:
            return jax.device_put({name: saved[name] for name in saved.files})

    return Contender(folder / "arrays.npz", save, restore)


def flax_msgpack(folder: Path, arrays: Arrays) -> Contender:
    from flax import serialization

    def save(path: Path) -> None:
        written(path, lambda file: file.write(serialization.to_bytes(arrays)))

    def restore(path: Path) -> Any:
        return jax.device_put(serialization.from_bytes(arrays, path.read_bytes()))

    return Contender(folder / "arrays.msgpack", save, restore)


def returns_after(folder: Path, params: dmem.Params, memory: dmem.Memory, repeats: int) -> float:
    """Seconds that a save in the background keeps its caller, nothing else being saved."""
    times = []
    with checkpoint.Checkpoints(folder / "run", CONFIG, keep=1) as checkpoints:
        for step in range(repeats + 1):
            start = time.perf_counter()
            checkpoints.save(step, params, memory)
            times.append(time.perf_counter() - start)
            checkpoints.wait()
    shutil.rmtree(folder / "run")
    return statistics.median(times[1:])


def run(mebibytes: int, peers: list[str], repeats: int) -> Iterator[Record]:
    memory, params = full_memory(mebibytes), dmem.Params.default(CONFIG)
    arrays = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(memory)}
    arrays = {name: leaf for name, leaf in arrays.items() if leaf.size}  # orbax refuses empty ones
    nbytes = sum(leaf.nbytes for leaf in arrays.values())
    made = {
        "orbax": lambda folder: orbax(folder, arrays),
        "orbax_uncompressed": lambda folder: orbax(folder, arrays, use_ocdbt=False, use_compression=False),
        "numpy_savez": lambda folder: numpy_savez(folder, arrays),
        "flax_msgpack": lambda folder: flax_msgpack(folder, arrays),
    }
    with tempfile.TemporaryDirectory(dir=".") as at:  # where the user's disk is; a temporary one may be in memory
        folder = Path(at).resolve()
        contenders = {
            "dmem_jax": Contender(
                folder / "ours",
                lambda path: checkpoint.save(path, CONFIG, params, memory),
                lambda path: checkpoint.restore(path).memory,
            )
        } | {name: made[name](folder) for name in peers}

        def floor(round: int) -> float:
            host, path = [np.asarray(leaf) for leaf in arrays.values()], folder / "floor"
            start = time.perf_counter()
            written(path, lambda file: [leaf.tofile(file) for leaf in host])
            seconds = time.perf_counter() - start
            path.unlink()
            return seconds

        progress(f"checkpoint: {nbytes / 2**20:.0f} MiB, {', '.join(contenders)}")
        timings = race(floor, contenders, repeats)
        after = returns_after(folder, params, memory, repeats)
    for name, contender in contenders.items():
        record = {
            "benchmark": "checkpoint",
            "implementation": name,
            "work": {"mebibytes": mebibytes, "bytes": nbytes, "agents": memory.clock.size},
            **timings[name].record(),
            **contender.parts(),
        }
        yield record | ({"returns_after": after} if name == "dmem_jax" else {})
