"""`import`: dmem_jax in a fresh process. Floor: `import jax, flax, optax`, which it needs anyway, in another."""

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.output import Record
from benchmarks.timing import race


def importing(modules: str):
    def contender(round: int) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
        return time.perf_counter() - start

    return contender


def run(repeats: int) -> Iterator[Record]:
    timing = race(importing("jax, flax, optax"), {"dmem_jax": importing("dmem_jax")}, repeats)["dmem_jax"]
    yield {"benchmark": "import", "implementation": "dmem_jax", "work": {}, **timing.record()}
