"""What this machine can do at most, and a picture of how near to it each implementation comes."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.output import Record
from benchmarks.timing import ReadLoop, larger_rounds

BYTES = 2**27  # of the array that is read and written, beyond any cache; eight times that on an accelerator
ROUNDS = 3  # the best of them counts


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """Measured: bytes per second of a copy or of one pass, whichever moves more, and operations per second of a matmul
    of two large square matrices. Both in float32."""

    bytes_per_second: float
    operations_per_second: float

    def seconds(self, operations: float, nbytes: float) -> float:
        """The least that a work can take."""
        return max(operations / self.operations_per_second, nbytes / self.bytes_per_second)

    def reached(self, operations: float, nbytes: float, seconds: float) -> dict[str, float]:
        return {"gb_per_s": nbytes / seconds / 1e9, "share": self.seconds(operations, nbytes) / seconds}

    def record(self) -> Record:
        speeds = {"gb_per_s": self.bytes_per_second / 1e9, "gflop_per_s": self.operations_per_second / 1e9}
        return {"benchmark": "kernels", "implementation": "ceiling", "work": {}, **speeds}


def operations_per_byte(record: Record) -> float:
    """Two operations for each number of an embedding and each query of it."""
    return 2 / jnp.dtype(record["work"]["dtype"]).itemsize * record["work"]["queries"]


@functools.cache
def ceiling() -> Ceiling:
    cpu = jax.default_backend() == "cpu"
    array = jnp.ones(((1 if cpu else 8) * BYTES // 512, 128))
    side = 2048 if cpu else 8192
    square = jnp.ones((side, side)) / side

    def fastest(read: Any, operand: jax.Array, steps: int) -> float:
        loop = ReadLoop(read, operand, lambda round: jnp.arange(float(steps)) + round)
        return min([loop(round) for round in range(ROUNDS + 1)][1:])

    passes = 2 * larger_rounds()
    copy = fastest(lambda array, x: array + x, array, passes)
    one_pass = fastest(lambda array, x: jnp.einsum("nd,d->n", array, jnp.full(128, x)).max(), array, passes)
    matmul = fastest(lambda square, x: jnp.einsum("nd,md->nm", square, square + x, precision="highest"), square, 2)
    return Ceiling(max(2 * array.nbytes / copy, array.nbytes / one_pass), 2 * side**3 / matmul)


def picture(records: list[Record], out: str) -> None:
    """Share of the ceiling over operations per byte, a dot for each work and implementation (by matplotlib)."""
    import matplotlib

    matplotlib.use("Agg")  # no window: the picture is a file
    import matplotlib.pyplot as plt

    timed = [record for record in records if "share" in record]
    (speeds,) = [record for record in records if record["implementation"] == "ceiling"]
    figure, axis = plt.subplots(figsize=(9, 6), layout="constrained")
    for name, marker in zip(dict.fromkeys(record["implementation"] for record in timed), "oXsDv^P*", strict=False):
        dots = [(operations_per_byte(r), r["share"]) for r in timed if r["implementation"] == name]
        axis.scatter(*zip(*dots, strict=True), label=name, marker=marker, alpha=0.8)
    axis.axhline(1, color="black", linewidth=1)
    ridge = speeds["gflop_per_s"] / speeds["gb_per_s"]
    axis.axvline(ridge, color="grey", linestyle="--", linewidth=1)
    axis.annotate(
        f" {speeds['gb_per_s']:.0f} GB/s to the left, {speeds['gflop_per_s']:.0f} GFLOP/s to the right",
        (ridge, 1.02),
        fontsize=8,
    )
    axis.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="share of the measured ceiling")
    axis.set_title(f"fused_topk and its peers on {jax.devices()[0].device_kind}")
    axis.legend()
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
