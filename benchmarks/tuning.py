"""Which tile of a kernel is fastest on this device, for a person to write into `tiles.py`."""

import statistics
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import kernel_works as works
from benchmarks.exactness import said
from benchmarks.kernel_peers import ByXla, Fused
from benchmarks.kernel_works import ArgSpec, Stream
from benchmarks.output import Record
from dmem_kernels.fused_topk.api import Implementation
from dmem_kernels.fused_topk.tiles import Tile, tile_of

AGREEING = 0.999  # of the slots that XLA's form finds; a score's last bit may exchange neighbours in rank


def tune(
    spec: ArgSpec, kernel: Implementation, kind: str, tiles: tuple[Tile, ...], repeats: int, in_time: Callable[[], bool]
) -> Iterator[Record]:
    """A record for each tile: its seconds, and whether it finds the right slots; then one that names the best."""
    about = {"benchmark": "tuning", "implementation": kernel}
    store, stream = works.store(spec), Stream(spec)
    by_xla = ByXla(spec, store).contender(stream)
    by_xla(0)
    seconds: dict[Tile, float] = {}
    for tile in tiles:
        if not in_time():
            break
        work = works.record(spec) | {"tile": f"{tile.queries}x{tile.slots}"}
        fused = Fused(spec, store)
        fused.implementation = kernel
        try:
            with tile_of(kind, tile):
                contender = fused.contender(stream)
                contender(0)
                agreement = float(np.mean(np.asarray(contender.state[1]) == np.asarray(by_xla.state[1])))
                time = statistics.median(contender(round) for round in range(1, repeats + 1))
        except Exception as error:
            yield about | {"work": work, "error": said(error)}
            continue
        if agreement >= AGREEING:
            seconds[tile] = time
        yield about | {"work": work, "seconds": time, "agreement": agreement}
    if seconds:
        best = min(seconds, key=lambda tile: seconds[tile])
        note = f"the best of {len(seconds)}: {best}"
        yield about | {"work": works.record(spec), "seconds": seconds[best], "note": note}
