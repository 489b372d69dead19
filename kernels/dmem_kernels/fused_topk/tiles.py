"""How much a kernel takes at a time, by kind of device."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import jax


@dataclass(frozen=True)
class Tile:
    """A block of a kernel's work."""

    queries: int
    slots: int
    embedding_bytes: int  # `slots` is lowered until a tile's embeddings fit


# Set by what fits beside a second buffer of each block; not tuned on hardware yet.
TILES = {
    "tpu": Tile(queries=128, slots=1024, embedding_bytes=2**21),
    "gpu": Tile(queries=64, slots=128, embedding_bytes=2**16),
}


@contextlib.contextmanager
def tile_of(kind: str, tile: Tile) -> Iterator[None]:
    """Kernels of a kind of device are compiled with another tile inside of this: to tune, not to run."""
    before = TILES[kind]
    TILES[kind] = tile
    jax.clear_caches()  # a program that is there already has its tile in it
    try:
        yield
    finally:
        TILES[kind] = before
        jax.clear_caches()


def slots_per_tile(tile: Tile, slots: int, dim: int) -> int:
    """A multiple of 128 whose embeddings fit, or all slots if they are fewer; 0 if not even 128 fit."""
    fitting = tile.embedding_bytes // (4 * dim) // 128 * 128
    return min(tile.slots, fitting, slots)
