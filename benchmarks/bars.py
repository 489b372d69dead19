"""`bars`: each speed that the project holds itself to, measured now: bar, figure, reached or not."""

from collections.abc import Iterator

from benchmarks import checkpoint, imports, kernel_works, kernels, step, write, write_many
from benchmarks.output import Record, progress
from benchmarks.streams import Work


def bar(text: str, work: dict, figure: float, limit: float, at_least: bool = False) -> Record:
    reached = figure >= limit if at_least else figure <= limit
    return {"benchmark": "bars", "bar": text, "work": work, "figure": figure, "limit": limit, "reached": reached}


def run(repeats: int) -> Iterator[Record]:
    for measured in (search_bars, agents_bar, write_bars, write_many_bar, kernel_bars, checkpoint_bar, import_bar):
        yield from measured(repeats)


def _measured(records: Iterator[Record]) -> dict[str, Record]:
    by_name = {record["implementation"]: record for record in records}
    for name, record in by_name.items():
        progress(f"  {name} {record['work']}: {record['seconds']:.3g} s, ratio to floor {record['ratio']:.3g}")
    return by_name


def search_bars(repeats: int) -> Iterator[Record]:
    loops = ["faiss_per_agent", "hnswlib_per_agent"]
    at = _measured(step.run(Work(1024, 512, 128), step.DEFAULT_PEERS, repeats))
    ours = at["dmem_jax"]
    yield bar("step over plain_jax", ours["work"], ours["ratio_to_plain_jax"], 1.35)
    yield from _over_others(at, loops)

    ours = _measured(step.run(Work(256, 512, 512), [], repeats))["dmem_jax"]
    yield bar("step over one pass in the scan", ours["work"], ours["ratio"], 1.25)

    # Small memories, as the main job carries them, and the first number of agents above 64.
    for work in (Work(1024, 64, 64), Work(128, 512, 128)):
        yield from _over_others(_measured(step.run(work, ["numpy_batched", *loops], repeats)), loops)


def _over_others(at: dict[str, Record], loops: list[str]) -> Iterator[Record]:
    ours = at["dmem_jax"]
    rivals = [at[name]["seconds"] for name in loops if name in at]
    if rivals:
        text = "agent-steps per second over the best index-per-agent loop"
        yield bar(text, ours["work"], min(rivals) / ours["seconds"], 5.0, at_least=True)
    yield bar("step over batched NumPy", ours["work"], ours["seconds"] / at["numpy_batched"]["seconds"], 1.0)


def agents_bar(repeats: int) -> Iterator[Record]:
    works = [work for work in step.agents_sweep(top_k=8) if work.agents >= 256]
    ratios = [_measured(step.run(work, [], repeats))["dmem_jax"]["ratio"] for work in works]
    work = {"agents": [w.agents for w in works], "slots": [w.slots for w in works], "dim": [w.dim for w in works]}
    yield bar("largest ratio of step to floor over the smallest", work, max(ratios) / min(ratios), 1.3)


def write_bars(repeats: int) -> Iterator[Record]:
    after_row = []
    for dim in (16, 128):
        at = _measured(write.run(Work(16, 2**15, dim), write.DEFAULT_PEERS, repeats))
        ours = at["dmem_jax"]
        yield bar("write over a scan for the minimum and one row set", ours["work"], ours["ratio"], 1.5)
        yield bar("gated over ungated write", ours["work"], ours["ratio_to_ungated"], 1.3)
        after_row.append(ours["seconds"] - at["row_set"]["seconds"])
    # A fifth is what two runs of the same program may differ by.
    yield bar("write less its row, dim 128 over dim 16", ours["work"], after_row[1] / after_row[0], 1.2)


def write_many_bar(repeats: int) -> Iterator[Record]:
    ours = _measured(write_many.run(Work(1, 4096, 128), [], repeats))["dmem_jax"]
    yield bar("scan of write over write_many", ours["work"], 1 / ours["ratio"], 5.0, at_least=True)


def kernel_bars(repeats: int) -> Iterator[Record]:
    peers = ["faiss_flat", "usearch_exact", "numpy"]
    for fusion, limit in (("plain", 1.1), ("softmax", 1.5)):
        spec = kernel_works.work(1, 64, 100_000, 384, 10, fusion)
        at = _measured(kernels.measure(spec, peers, repeats))
        ours = at.pop("dmem_kernels")
        yield bar("fused_topk over the matmul alone", ours["work"], ours["ratio"], limit)
        for name, rival in at.items():
            yield bar(f"searches per second over {name}", ours["work"], rival["times_ours"], 1.5, at_least=True)
    one_query = (1, 1, 1_000_000, 128, 10, "plain")
    many_agents = (1024, 1, 512, 128, 8, "softmax")
    for work, limit in ((one_query, 1.08), (many_agents, 1.3)):
        ours = _measured(kernels.measure(kernel_works.work(*work), [], repeats))["dmem_kernels"]
        yield bar("fused_topk over one pass", ours["work"], ours["ratio"], limit)
    for fusion in kernels.FUSIONS:
        spec = kernel_works.work(1, 1024, 1_000_000, 128, 10, fusion)
        gib = kernels.temporary_bytes(spec) / 2**30
        yield bar("GiB that fused_topk takes for a while", kernel_works.record(spec), gib, 1.0)


def checkpoint_bar(repeats: int) -> Iterator[Record]:
    ours = _measured(checkpoint.run(1024, [], repeats))["dmem_jax"]
    yield bar("save plus restore over writing the same bytes with NumPy", ours["work"], ours["ratio"], 2.0)


def import_bar(repeats: int) -> Iterator[Record]:
    record = next(imports.run(repeats))
    yield bar("import dmem_jax over import jax, flax, optax", {}, record["ratio"], 1.5)
