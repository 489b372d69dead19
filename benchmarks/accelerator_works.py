"""What `accelerator` runs on which platform: a choice from names alone, so that tests see it without the hardware."""

import dataclasses

import jax

from benchmarks.kernel_works import work
from benchmarks.streams import Work
from dmem_kernels.evict_topk import arg_specs as evicted
from dmem_kernels.fused_topk.api import Implementation
from dmem_kernels.fused_topk.arg_specs import TESTED, ArgSpec
from dmem_kernels.fused_topk.tiles import Tile

KERNELS: dict[str, Implementation] = {"cuda": "pallas_gpu", "tpu": "pallas_tpu"}
TILE_OF: dict[Implementation, str] = {"pallas_gpu": "gpu", "pallas_tpu": "tpu"}
SMALLEST = ArgSpec("for every kernel", slots=72, dim=32, k=3, queries=2, fusion="plain")

# What the tests' specs, made for interpreters, leave out: several tiles and blocks of a kernel, its most rounds, and
# work of real size in both dtypes.
LARGER = (
    ArgSpec("tiles and blocks", slots=1304, dim=64, k=10, queries=150, mask_per_query=True, salience_per_query=True),
    ArgSpec("64 of a tile", slots=1304, dim=64, k=64, queries=3, dtype="bfloat16"),
    ArgSpec("many agents", slots=512, dim=128, k=8, agents=256),
    ArgSpec("real size", slots=100_000, dim=128, k=10, queries=1024),
    ArgSpec("real size in bfloat16", slots=100_000, dim=128, k=10, queries=1024, dtype="bfloat16"),
)
EVICTED = evicted.ARG_SPECS | {
    "a million slots": evicted.ArgSpec(slots=2**20, n=128, free=0.0001),
    "thousands of stores": evicted.ArgSpec(slots=512, n=8, stores=4096, free=0.01),
}


@dataclasses.dataclass(frozen=True)
class Search:
    """A work of `fused_topk`, and the bar that an accelerator is held to: a figure in the record of one contender."""

    spec: ArgSpec
    contender: str
    figure: str
    limit: float | None  # at least; None: not where it is small


@dataclasses.dataclass(frozen=True)
class Plan:
    checked: dict[str, tuple[ArgSpec, ...]]  # by implementation of fused_topk, those that break least first
    evicted: dict[str, evicted.ArgSpec]
    steps: tuple[Work, ...]  # stores of `step`, `recall` and `write`
    step_peers: tuple[str, ...]
    write_peers: tuple[str, ...]
    searches: tuple[Search, ...]
    tuned: Implementation | None  # the implementation whose tiles are tried, on the first search of each dtype
    tiles: tuple[Tile, ...]


def platform() -> str:
    """As programs are lowered for it. What jax calls a GPU is NVIDIA's here: on others no kernel of ours fits."""
    backend = jax.default_backend()
    return "cuda" if backend == "gpu" else backend


def plan(platform: str, small: bool) -> Plan:
    kernel = KERNELS.get(platform)
    if small or platform == "cpu":
        return _small(kernel)
    specs = (*TESTED, *LARGER)
    return Plan(
        checked={"xla": specs} | ({kernel: specs} if kernel else {}),
        evicted=EVICTED,
        steps=(Work(4096, 512, 128), Work(1024, 512, 128), Work(16_384, 64, 64)),
        step_peers=("plain_jax", "flashbax_add_sample", "flashbax_sample_add"),
        write_peers=("row_set", "row_set_gated"),
        searches=_searches((4096, 1, 512, 128, 8), (1, 1024, 1_000_000, 128, 10), bars=True),
        tuned=kernel,
        tiles=_tiles(kernel),
    )


def _small(kernel: Implementation | None) -> Plan:
    """Each path once: on a CPU every compilation takes a second, and every interpreted kernel two."""
    kernels = [kernel] if kernel else list(TILE_OF)
    return Plan(
        checked={"xla": (SMALLEST, TESTED[-1])} | dict.fromkeys(kernels, (SMALLEST,)),
        evicted={name: EVICTED[name] for name in ("half_full", "many_stores")},
        steps=(Work(6, 20, 24, 3),),  # no row has the size of a store
        step_peers=("plain_jax",),
        write_peers=(),
        searches=_searches((4, 1, 64, 32, 3), (1, 2, 128, 64, 3), bars=False)[::2],
        tuned=kernel or "pallas_tpu",
        tiles=_tiles(kernel)[:1] or (Tile(queries=8, slots=128, embedding_bytes=2**21),),
    )


Sizes = tuple[int, int, int, int, int]  # agents, queries, memories, dim, k


def _searches(agents: Sizes, shared: Sizes, bars: bool) -> tuple[Search, ...]:
    """One query for each agent: four fifths of the bandwidth. Many of one memory: twice as fast as all scores and
    `lax.top_k` of them."""
    bandwidth, twice = (0.8, 2.0) if bars else (None, None)
    fusions = ("plain", "softmax")
    return (
        *(Search(work(*agents, fusion), "dmem_kernels", "share", bandwidth) for fusion in fusions),
        *(Search(work(*shared, fusion, "bfloat16"), "matmul_top_k", "times_ours", twice) for fusion in fusions),
    )


def _tiles(kernel: Implementation | None) -> tuple[Tile, ...]:
    """Candidates. wgmma takes 64 queries or a multiple; what doesn't fit into shared memory says so when compiled."""
    if kernel == "pallas_gpu":
        sizes = ((64, 128), (64, 64), (64, 192), (64, 256), (128, 64), (128, 128))
        return tuple(Tile(queries, slots, embedding_bytes=2**16) for queries, slots in sizes)
    if kernel == "pallas_tpu":
        sizes = ((128, 1024, 2**21), (128, 512, 2**20), (256, 1024, 2**21), (128, 2048, 2**21), (64, 4096, 2**22))
        return tuple(Tile(*size) for size in sizes)
    return ()
