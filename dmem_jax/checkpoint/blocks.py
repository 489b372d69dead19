"""Arrays in files: each process writes the shards that are its own, and each reads what its new shards need.

    arrays-0.bin   the shards of process 0, raw, one after the other
    arrays-0.json  which shard of which array lies where, and the CRC-32 of each of its blocks
    arrays.json    shape and dtype of all arrays, and the number of processes

Orbax's own format takes three times as long for the same bytes (`benchmarks checkpoint`), mostly in copies, and does
not notice a changed byte.
"""

import dataclasses
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dmem_jax.checkpoint import sealed
from dmem_jax.errors import CheckpointError

BLOCK = 2**22
"""Bytes under one checksum, where it is written: so few that they are summed while still in a cache."""
THREADS = 4
SYNC_EVERY = 16
"""Blocks after which a thread asks for the disk, so that it works while the others still copy."""
ALIGNMENT = 64
"""Of an array in memory, bytes: jax takes such a one as it is, on a CPU, and copies others."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """A box of an array, and its numbers on the host."""

    name: str
    start: tuple[int, ...]
    data: np.ndarray


def own_shards(arrays: Mapping[str, Any], *, copy: bool) -> list[Shard]:
    """The shards that this process has to write, on the host.

    Of copies of a shard one is written. An array that one process holds whole is written by process 0.

    Args:
      arrays: jax or NumPy arrays by name.
      copy: in memory of their own, so that the arrays may be donated while the shards are written.
    """
    found = [shard for name, array in arrays.items() for shard in _own_shards(name, array)]
    if copy:
        with ThreadPoolExecutor(THREADS) as pool:
            copies = pool.map(lambda shard: shard.data.copy(), found)
            return [dataclasses.replace(shard, data=data) for shard, data in zip(found, copies, strict=True)]
    return found


def _own_shards(name: str, array: Any) -> Iterator[Shard]:
    first = jax.process_index() == 0
    if not isinstance(array, jax.Array):
        parts = [((0,) * array.ndim, array)] if first else []
    elif first or not array.is_fully_addressable:
        shards = (shard for shard in array.addressable_shards if shard.replica_id == 0)
        parts = [(tuple(side.start or 0 for side in shard.index), shard.data) for shard in shards]
    else:
        parts = []
    yield from (Shard(name, start, np.asarray(data)) for start, data in parts if data.size)


def write(folder: Path, arrays: Mapping[str, jax.ShapeDtypeStruct], shards: list[Shard]) -> None:
    """Writes this process's part of `arrays`, to the disk; of several processes each calls it, into one folder.

    Args:
      arrays: shape and dtype of all, also of those without a shard here.
      shards: those of `own_shards`.
    """
    process = jax.process_index()
    described, placed, end = [], [], 0
    for shard in shards:
        data = np.ascontiguousarray(shard.data).reshape(-1).view(np.uint8)
        placed += [(end + at, data[at : at + BLOCK]) for at in range(0, data.size, BLOCK)]
        described.append({"name": shard.name, "start": shard.start, "shape": shard.data.shape, "offset": end})
        end += data.size
    sums = iter(_write_blocks(folder / f"arrays-{process}.bin", placed))
    for entry, shard in zip(described, shards, strict=True):
        entry["crc32"] = [next(sums) for _ in range(-(-shard.data.nbytes // BLOCK))]
    sealed.write(folder / f"arrays-{process}.json", {"block": BLOCK, "shards": described})
    if process == 0:
        specs = {name: {"shape": a.shape, "dtype": np.dtype(a.dtype).name} for name, a in arrays.items()}
        sealed.write(folder / "arrays.json", {"processes": jax.process_count(), "arrays": specs})


def _write_blocks(path: Path, placed: list[tuple[int, np.ndarray]]) -> list[int]:
    """Writes bytes at their offsets and returns their checksums."""
    with open(path, "wb", buffering=0) as file:

        def write(numbered: tuple[int, tuple[int, np.ndarray]]) -> int:
            number, (offset, data) = numbered
            with open(path, "r+b", buffering=0) as own:
                own.seek(offset)
                left = data.data
                while left.nbytes:
                    left = left[own.write(left) :]
            if number % SYNC_EVERY == SYNC_EVERY - 1:
                os.fsync(file.fileno())
            return zlib.crc32(data.data)

        with ThreadPoolExecutor(THREADS) as pool:
            sums = list(pool.map(write, enumerate(placed)))
        os.fsync(file.fileno())
    return sums


class SavedArray:
    """An array in a folder: `array[index]` reads a box of it, `np.asarray(array)` all of it."""

    def __init__(self, name: str, spec: Mapping[str, Any], shards: list["SavedShard"]):
        self.name, self.shape, self.dtype = name, tuple(spec["shape"]), np.dtype(spec["dtype"])
        self.shards = shards

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        """The box `index`, slices with step 1. Raises CheckpointError where its bytes are not those that were saved."""
        bounds = [s.indices(n)[:2] for s, n in zip(index, self.shape, strict=True)]
        shape = tuple(stop - start for start, stop in bounds)
        parts = [(shard, overlap) for shard in self.shards if (overlap := shard.overlap(bounds)) is not None]
        if sum(math.prod(stop - start for start, stop in overlap) for _, overlap in parts) != math.prod(shape):
            raise CheckpointError(f"{self.name}: its parts in the checkpoint don't make up the whole.")
        if len(parts) == 1:
            return parts[0][0].read(self, bounds)
        whole = aligned(shape, self.dtype)
        for shard, overlap in parts:
            inside = tuple(
                slice(start - zero, stop - zero) for (start, stop), (zero, _) in zip(overlap, bounds, strict=True)
            )
            whole[inside] = shard.read(self, overlap)
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[(slice(None),) * len(self.shape)], dtype)


@dataclasses.dataclass(frozen=True)
class SavedShard:
    """Where a box of an array lies."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    path: Path
    offset: int
    block: int  # bytes under one checksum
    crc32: list[int]

    def overlap(self, bounds: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """What of the box `bounds` it holds, in the array's coordinates."""
        common = [
            (max(start, low), min(stop, low + n))
            for (start, stop), low, n in zip(bounds, self.start, self.shape, strict=True)
        ]
        return common if all(start < stop for start, stop in common) else None

    def read(self, array: SavedArray, bounds: list[tuple[int, int]]) -> np.ndarray:
        """The box `bounds` of the array, all of which it holds. Reads the rows (of the first axis) that it needs."""
        if not self.shape:
            return self._bytes(array, 0, array.dtype.itemsize).view(array.dtype).reshape(())
        row = math.prod(self.shape[1:]) * array.dtype.itemsize
        first, last = (bound - self.start[0] for bound in bounds[0])
        rows = self._bytes(array, first * row, last * row).view(array.dtype).reshape(last - first, *self.shape[1:])
        return rows[(slice(None), *(slice(a - z, b - z) for (a, b), z in zip(bounds[1:], self.start[1:], strict=True)))]

    def _bytes(self, array: SavedArray, first: int, last: int) -> np.ndarray:
        """Bytes [first, last) of the shard, with all blocks that they touch read and checked."""
        blocks = range(first // self.block, -(-last // self.block))
        size = math.prod(self.shape) * array.dtype.itemsize
        zero = blocks.start * self.block
        found = aligned((min(blocks.stop * self.block, size) - zero,), np.dtype(np.uint8))

        def fill(block: int) -> None:
            at = block * self.block
            part = found[at - zero : at - zero + self.block]
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.offset + at)
                left = part.data
                while left.nbytes and (count := file.readinto(left)):
                    left = left[count:]
            if left.nbytes or zlib.crc32(part.data) != self.crc32[block]:
                kind = "too short" if left.nbytes else "damaged"
                raise CheckpointError(f"{self.path}: {kind}, {array.name} is not there as it was saved.")

        if len(blocks) == 1:
            fill(blocks.start)
        else:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(fill, blocks))
        return found[first - zero : last - zero]


def read(folder: Path) -> dict[str, SavedArray]:
    """The arrays in a folder; numbers are read where they are asked for.

    Raises CheckpointError where a file is missing or damaged.
    """
    try:
        about = sealed.read(folder / "arrays.json")
        shards: dict[str, list[SavedShard]] = {name: [] for name in about["arrays"]}
        for process in range(about["processes"]):
            index = sealed.read(folder / f"arrays-{process}.json")
            for entry in index["shards"]:
                box = {"start": tuple(entry["start"]), "shape": tuple(entry["shape"])}
                place = {"path": folder / f"arrays-{process}.bin", "offset": entry["offset"]}
                sums = {"block": index["block"], "crc32": entry["crc32"]}
                shards[entry["name"]].append(SavedShard(**box, **place, **sums))
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename}: missing in the checkpoint.") from error
    return {name: SavedArray(name, spec, shards[name]) for name, spec in about["arrays"].items()}


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array not filled yet, at an address that jax needs not copy from."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    shift = -room.ctypes.data % ALIGNMENT
    return room[shift : shift + size].view(dtype).reshape(shape)
