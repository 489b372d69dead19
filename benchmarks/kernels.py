"""`kernels`: `fused_topk` against the plainest pass or the matmul alone, its peers, and the machine's ceiling.

Floor: with one query per memory one pass over the embeddings; with more the matmul alone, in the faster of its two
layouts. `share` is the part of the measured ceiling (bandwidth or operations, whichever binds) that is reached, counted
by the least bytes and operations; `temp_gib` what one call takes beside its arguments and results, which needs no run.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from benchmarks import kernel_works as works
from benchmarks import roofline
from benchmarks.kernel_peers import PEERS, Fused, dots, make_peers
from benchmarks.kernel_works import ArgSpec, Queries, Store, Stream
from benchmarks.output import Record, progress
from benchmarks.timing import Contender, ReadLoop, race

DEFAULTS = {"agents": [1], "queries": [64], "memories": [100_000], "dim": [384], "top_k": [10]}
FUSIONS = ["plain", "softmax"]
DEFAULT_PEERS = list(PEERS)
SWEEP_PEERS = ["matmul_top_k"]
MAX_CPU_OPERATIONS = 2**37  # beyond, a CPU takes seconds a search, and only memory is told


def run(specs: list[ArgSpec], peers: list[str], repeats: int, picture: str | None = None) -> Iterator[Record]:
    done = [roofline.ceiling().record()]
    yield done[0]
    for spec in specs:
        progress(f"kernels: {works.record(spec)}")
        for record in measure(spec, peers, repeats):
            done.append(record)
            yield record
    if picture:
        roofline.picture(done, picture)


def measure(spec: ArgSpec, peers: list[str], repeats: int) -> Iterator[Record]:
    about = {"benchmark": "kernels", "implementation": "dmem_kernels", "work": works.record(spec)}
    space = {"temp_gib": temporary_bytes(spec) / 2**30, "all_scores_gib": works.scores_nbytes(spec) / 2**30}
    if jax.default_backend() == "cpu" and works.operations(spec) > MAX_CPU_OPERATIONS:
        yield about | space
        return

    store, stream = works.store(spec), Stream(spec)
    ceiling = roofline.ceiling()
    made = {"dmem_kernels": Fused(spec, store), **make_peers(peers, spec, store)}
    contenders = {name: one.contender(stream) for name, one in made.items()}
    timings = race(floor(spec, store, stream), contenders, repeats)
    ours = timings["dmem_kernels"]
    for name, timing in timings.items():
        run = getattr(made[name], "agents_run", spec.agents or 1)
        record = about | {"implementation": name, **timing.record()}
        if run < (spec.agents or 1):
            record["work"] = record["work"] | {"agents_run": run}
        if name == "dmem_kernels":
            record |= space
        else:
            record["times_ours"] = timing.ratio_to(ours)
        yield record | ceiling.reached(works.operations(spec), works.nbytes(spec), record["seconds"])


def temporary_bytes(spec: ArgSpec) -> int:
    analysis = jax.jit(Fused(spec, {}).read).lower(*abstract(spec)).compile().memory_analysis()
    assert analysis is not None  # some backends have none
    return analysis.temp_size_in_bytes


def abstract(spec: ArgSpec) -> tuple[dict, dict]:
    """Store and queries of one search, as shapes alone."""
    a, q, n, d = works.shape(spec)
    array = jax.ShapeDtypeStruct
    dtypes = {"inv_norm": jnp.float32, "salience": jnp.float32, "mask": jnp.bool_}
    store = {"embeddings": array((a, n, d), spec.dtype), **{name: array((a, n), of) for name, of in dtypes.items()}}
    x = {"query": array((a, q, d), jnp.float32), **dict.fromkeys(("weight", "temperature"), array((), jnp.float32))}
    return store, x


def floor(spec: ArgSpec, store: Store, stream: Stream) -> Contender:
    def one_pass(store: Store, x: Queries):
        return dots("and,ad->an", store["embeddings"], x["query"][:, 0]).max(-1)

    def matmul(order: str):
        def read(store: Store, x: Queries):
            return dots(f"and,aqd->{order}", store["embeddings"], x["query"])

        return ReadLoop(read, store, stream)

    if spec.queries is None:
        return ReadLoop(one_pass, store, stream)
    loops = [matmul(order) for order in ("aqn", "anq")]
    times = [min([loop(round) for round in range(3)][1:]) for loop in loops]
    return loops[times.index(min(times))]
