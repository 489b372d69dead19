"""Mosaic GPU on the device, and what stands in for it where a kernel is interpreted.

The interpreter of jax 0.10 knows no register layouts and cannot multiply by a transposed view, which is the only kind
that wgmma takes of float32. There a plain product stands in for wgmma, and all else of the kernel runs as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

MATRIX = plgpu.Layout.WGMMA  # how the registers hold a block of scores, ...
COLUMN = MATRIX.reduce(1)  # ... a number for each of its rows ...
ROW = MATRIX.reduce(0)  # ... and for each of its columns


@dataclass(frozen=True)
class Machine:
    """What a kernel is written against."""

    lay: Callable[[Array, Any], Array]  # an array, laid out as said
    accumulator: Callable[[tuple[int, int]], Any]  # where a product of this shape is summed up, in float32
    clear: Callable[[Any], None]  # sets an accumulator to 0
    add: Callable[[Any, Any, Any], None]  # to an accumulator [m, n] the product of [m, d] and [n, d] in shared memory
    interpret: Any


def _wgmma(total: Any, left: Any, right: Any) -> None:
    plgpu.wgmma(total, left, right.transpose((1, 0)))


def _dot(total: Any, left: Any, right: Any) -> None:
    contract = (((1,), (1,)), ((), ()))
    highest = jax.lax.Precision.HIGHEST
    total[...] += jax.lax.dot_general(left[...], right[...], contract, highest, preferred_element_type=jnp.float32)


def _zero(total: Any) -> None:
    total[...] = jnp.zeros(total.shape, jnp.float32)


def on_device() -> Machine:
    """Accumulators there start at 0."""
    return Machine(
        plgpu.layout_cast, lambda shape: plgpu.WGMMAAccumulatorRef(shape, jnp.float32), lambda _: None, _wgmma, None
    )


def interpreted() -> Machine:
    # Not public yet, but how `plgpu.kernel` is told to be interpreted as a GPU's threads.
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    # Copies from beyond an array's end are NaN here and 0 on the device; a kernel must stand both.
    interpret = InterpretGPUParams(out_of_bounds_reads="uninitialized")
    return Machine(lambda x, _: x, lambda shape: plgpu.SMEM(shape, jnp.float32), _zero, _dot, interpret)
