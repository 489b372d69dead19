"""What a loop of steps copies: the compiled program of a donated scan, read.

`copies` counts the instructions of the loop that write a whole embedding or payload array and are no update of some
rows in place; `temp_share` is what the program takes beside its arguments and results, as a share of the stores.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax

import dmem_jax as dmem
from benchmarks.hlo import whole_writes
from benchmarks.output import Record
from benchmarks.streams import Work
from benchmarks.timing import ScanLoop

NAMES = {"float32": "f32", "bfloat16": "bf16", "int8": "s8", "int32": "s32", "bool": "pred"}
TOLD = 4  # instructions that a record names


def wide(store: dmem.Store) -> list[jax.Array]:
    """A store's embedding and payload arrays, of one agent or of all, with more than a number a slot."""
    leaves = jax.tree.leaves((store.embedding, store.next_embedding, store.payload))
    return [x for x in leaves if x.ndim > store.id.ndim and x.size > 0]


def wide_shapes(store: dmem.Store) -> set[str]:
    """Their shapes, as compiled text has them."""
    return {_text(x, x.shape) for x in wide(store)}


def reshaped(store: dmem.Store) -> set[str]:
    """And those as which a compiler may view them: with neighbouring axes made one."""
    return {_text(x, shape) for x in wide(store) for shape in _joined(x.shape)}


def _joined(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for first, last in itertools.combinations(range(len(shape) + 1), 2):
        yield (*shape[:first], math.prod(shape[first:last]), *shape[last:])


def _text(x: Any, shape: tuple[int, ...]) -> str:
    return f"{NAMES[str(x.dtype)]}[{','.join(map(str, shape))}]"


def copies(loop: ScanLoop, work: Work) -> Record:
    """Of a loop whose carry is a memory; its rounds then run what was compiled here."""
    compiled, (memory, _) = loop.compile(), loop.state
    found = whole_writes(str(compiled.as_text()), reshaped(memory.core) | reshaped(memory.buffer))
    record = {"benchmark": "copies", "implementation": "dmem_jax", "work": dataclasses.asdict(work)}
    record["copies"] = len(found)
    if analysis := compiled.memory_analysis():  # some backends have none
        stores = sum(x.nbytes for x in jax.tree.leaves((memory.core, memory.buffer)))
        record["temp_share"] = analysis.temp_size_in_bytes / stores
    return record | ({"note": "; ".join(found[:TOLD])} if found else {})
