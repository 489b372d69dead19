"""The speeds of `accelerator`: contenders that fail are told of, and the others race."""

from collections.abc import Callable, Iterator

from benchmarks import kernel_works as works
from benchmarks import kernels, roofline, write
from benchmarks.accelerator_works import Search
from benchmarks.contest import contest
from benchmarks.exactness import said
from benchmarks.kernel_peers import ByXla, Fused, MatmulTopK
from benchmarks.kernel_works import Stream
from benchmarks.output import Record
from benchmarks.streams import Work
from benchmarks.timing import Contender, race


def steps(kind: str, work: Work, peers: tuple[str, ...], repeats: int) -> Iterator[Record]:
    """`step`, with what its loop copies, or `recall`."""
    yield from _alone_if_need_be(lambda peers: contest(kind, work, peers, repeats, read=kind == "step"), peers)


def writes(work: Work, peers: tuple[str, ...], repeats: int) -> Iterator[Record]:
    yield from _alone_if_need_be(lambda peers: write.run(work, peers, repeats), peers)


def _alone_if_need_be(run: Callable[[list[str]], Iterator[Record]], peers: tuple[str, ...]) -> Iterator[Record]:
    """With `peers`, and if that fails, without."""
    done = []
    try:
        for record in run(list(peers)):
            done.append(record["benchmark"])
            yield record
    except Exception as error:
        yield {"implementation": "with peers", "work": {"peers": ", ".join(peers)}, "error": said(error)}
        yield from (record for record in run([]) if record["benchmark"] not in done)


def search(wanted: Search, ours: bool, repeats: int) -> Iterator[Record]:
    """`fused_topk`, its form for XLA, and all scores with `lax.top_k`. Without `ours` the platform's kernel, which
    failed its process before, is left out."""
    spec = wanted.spec
    about = {"benchmark": "kernels", "work": works.record(spec)}
    store, stream, ceiling = works.store(spec), Stream(spec), roofline.ceiling()
    kinds = {"dmem_kernels": Fused, "xla": ByXla, "matmul_top_k": MatmulTopK}
    contenders: dict[str, Contender] = {}
    for name in kinds if ours else [name for name in kinds if name != "dmem_kernels"]:
        try:
            contender = kinds[name](spec, store).contender(stream)
            contender(0)
        except Exception as error:
            yield about | {"implementation": name, "error": said(error)}
        else:
            contenders[name] = contender
    timings = race(kernels.floor(spec, store, stream), contenders, repeats)
    for name, timing in timings.items():
        record = about | {"implementation": name, **timing.record()}
        reached = ceiling.reached(works.operations(spec), works.nbytes(spec), record["seconds"])
        if spec.dtype != "float32" and spec.queries:
            del reached["share"]  # of a ceiling of float32, which a matmul of bfloat16 surpasses
        record |= reached
        if name not in ("dmem_kernels", "xla") and "dmem_kernels" in timings:
            record["times_ours"] = timing.ratio_to(timings["dmem_kernels"])
        if name == wanted.contender and wanted.limit is not None and wanted.figure in record:
            record |= {"limit": wanted.limit, "reached": record[wanted.figure] >= wanted.limit}
        yield record
