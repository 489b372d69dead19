"""The command line: `python -m benchmarks step --agents 256 1024 --slots 512 --dim 128 --json`."""

import argparse
import itertools
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from benchmarks import (
    accelerator,
    ann,
    backend,
    bars,
    checkpoint,
    clusters,
    consolidate,
    encoder,
    evict_topk,
    imports,
    kernel_works,
    kernels,
    locomo,
    recall,
    replay,
    scale,
    sharding,
    step,
    storage,
    write,
    write_many,
)
from benchmarks.output import Record, print_json, print_table, progress
from benchmarks.streams import Work
from dmem_jax.encoders import TextEncoder
from dmem_jax.errors import ArgumentValueError, MissingExtraError

BENCHMARKS = {"step": step, "write": write, "write_many": write_many, "recall": recall, "consolidate": consolidate}
MINILM = "all-MiniLM-L6-v2"
MAX_STORE_BYTES = 2**31  # several contenders hold a store of this size at once


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = result.add_subparsers(dest="command", required=True)
    for name, module in BENCHMARKS.items():
        command = commands.add_parser(name, help=_first_line(module))
        for size, default in module.DEFAULTS.items():
            command.add_argument(
                f"--{size}", type=_positive, nargs="+", default=default, metavar="N", help=str(default)
            )
        command.add_argument("--top-k", type=_positive, default=8, metavar="N")
        command.add_argument("--sweep", action="store_true", help="the sizes of the documents instead")
        command.add_argument("--peers", help="names joined by commas, or none; default all (in a sweep the cheap ones)")
        _common(command)
    command = commands.add_parser("kernels", help=_first_line(kernels))
    for size, default in kernels.DEFAULTS.items():
        option = f"--{size.replace('_', '-')}"
        command.add_argument(option, type=_positive, nargs="+", default=default, metavar="N", help=str(default))
    command.add_argument("--fusion", choices=kernels.FUSIONS, nargs="+", default=kernels.FUSIONS, help="default both")
    command.add_argument("--sweep", action="store_true", help="the sizes of the documents instead")
    command.add_argument("--peers", help="names joined by commas, or none; default all (in a sweep the cheap ones)")
    command.add_argument("--picture", metavar="FILE", help="a roofline, by matplotlib")
    _common(command)
    command = commands.add_parser("replay", help=_first_line(replay))
    command.add_argument("--slots", type=_positive, default=2**18, metavar="N", help="default 262,144")
    command.add_argument("--draws", type=_positive, default=10**8, metavar="N", help="default 100,000,000")
    _common(command)
    command = commands.add_parser("clusters", help=_first_line(clusters))
    command.add_argument("--memories", type=_positive, default=2**18, metavar="N", help="default 262,144")
    command.add_argument("--dim", type=_positive, default=128, metavar="N", help="default 128")
    command.add_argument("--clusters", type=_positive, default=1024, metavar="N", help="default 1,024")
    command.add_argument("--probes", type=_positive, nargs="+", default=[8, 16, 32], metavar="N", help="[8, 16, 32]")
    _common(command)
    command = commands.add_parser("ann", help=_first_line(ann))
    command.add_argument("--memories", type=_positive, nargs="+", default=[100_000], metavar="N", help="[100000]")
    command.add_argument("--dim", type=_positive, nargs="+", default=[128], metavar="N", help="[128]")
    command.add_argument(
        "--data", choices=["mixture", "spectrum", "iid"], nargs="+", default=["mixture"], help="mixture"
    )
    command.add_argument("--queries", type=_positive, default=8192, metavar="N", help="at once; default 8,192")
    command.add_argument("--ef", type=_positive, nargs="+", default=[10, 32, 128], metavar="N", help="[10, 32, 128]")
    _common(command)
    command = commands.add_parser("backend", help=_first_line(backend))
    command.add_argument(
        "--memories", type=_positive, nargs="+", default=[10_000, 100_000], metavar="N", help="[10000, 100000]"
    )
    command.add_argument("--dim", type=_positive, default=384, metavar="N", help="default 384")
    command.add_argument("--peers", help="langgraph or none; default langgraph")
    _common(command)
    command = commands.add_parser("checkpoint", help=_first_line(checkpoint))
    command.add_argument("--mebibytes", type=_positive, default=1024, metavar="N", help="default 1,024")
    command.add_argument("--peers", help="names joined by commas, or none; default all")
    _common(command)
    command = commands.add_parser("encoder", help=_first_line(encoder))
    command.add_argument(
        "--lengths", type=_positive, nargs="+", default=encoder.LENGTHS, metavar="N", help=str(encoder.LENGTHS)
    )
    command.add_argument("--batch", type=_positive, default=encoder.BATCH, metavar="N", help="default 64")
    command.add_argument(
        "--torch-python", metavar="FILE", help="a Python that has torch and transformers; else no peer"
    )
    _common(command)
    command = commands.add_parser("storage", help=_first_line(storage))
    command.add_argument("--data", choices=["mixture", "locomo"], default="mixture", help="default mixture")
    command.add_argument("--folder", metavar="FOLDER", help="of LoCoMo's JSON, which is not ours to hand on")
    command.add_argument("--encoder", default=MINILM, metavar="MODEL", help=f"of its text; default {MINILM}")
    command.add_argument("--memories", type=_positive, default=100_000, metavar="N", help="default 100,000")
    command.add_argument("--dim", type=_positive, default=384, metavar="N", help="default 384")
    command.add_argument("--queries", type=_positive, default=1000, metavar="N", help="default 1,000")
    _common(command)
    command = commands.add_parser("sharding", help=_first_line(sharding))
    command.add_argument(
        "--devices", type=_positive, nargs="+", default=sharding.DEVICES, metavar="N", help=str(sharding.DEVICES)
    )
    command.add_argument("--small", action="store_true", help="tiny works, to see that all runs")
    _common(command)
    command = commands.add_parser("scale", help=_first_line(scale))
    command.add_argument("--devices", type=_positive, default=scale.DEVICES, metavar="N", help=str(scale.DEVICES))
    command.add_argument(
        "--bandwidth", type=float, default=scale.BANDWIDTH, metavar="N", help=f"bytes a second; {scale.BANDWIDTH:g}"
    )
    command.add_argument("--small", action="store_true", help="few memories, to see that all runs")
    _common(command)
    _common(commands.add_parser("evict_topk", help=_first_line(evict_topk)))
    _common(commands.add_parser("import", help=_first_line(imports)))
    command = commands.add_parser("accelerator", help=_first_line(accelerator))
    command.add_argument("--minutes", type=_minutes, default=4.0, metavar="N", help="what begins later is left out; 4")
    command.add_argument("--small", action="store_true", help="tiny works, to see that all runs; on a CPU always so")
    _common(command)
    command = commands.add_parser("bars", help=_first_line(bars))
    command.add_argument("--strict", action="store_true", help="exit 1 where a bar isn't reached")
    _common(command)
    return result


def _first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").partition("\n")[0]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer, at least 1, got {text!r}")
    return int(text)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return minutes


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    command.add_argument(
        "--repeats", type=_positive, default=7, metavar="N", help="paired rounds; default 7, five at least"
    )


def _peers(arguments: argparse.Namespace) -> list[str]:
    module = (BENCHMARKS | {"kernels": kernels, "checkpoint": checkpoint, "backend": backend})[arguments.command]
    if arguments.peers is None:
        return module.SWEEP_PEERS if getattr(arguments, "sweep", False) else module.DEFAULT_PEERS
    names = [name for name in arguments.peers.split(",") if name not in ("", "none")]
    unknown = sorted(set(names) - set(module.DEFAULT_PEERS))
    if unknown:
        sys.exit(f"--peers: {unknown[0]} is no peer of {arguments.command}; it has {', '.join(module.DEFAULT_PEERS)}")
    return names


def _works(arguments: argparse.Namespace) -> list[Work]:
    if arguments.sweep:
        return BENCHMARKS[arguments.command].sweep(arguments.top_k)
    sizes = itertools.product(arguments.agents, arguments.slots, arguments.dim)
    return [Work(*size, arguments.top_k) for size in sizes]


def _specs(arguments: argparse.Namespace) -> list[kernel_works.ArgSpec]:
    sizes = itertools.product(*(getattr(arguments, name) for name in (*kernels.DEFAULTS, "fusion")))
    specs = kernel_works.sweep() if arguments.sweep else [kernel_works.work(*size) for size in sizes]
    return [spec for spec in specs if not _too_large("kernels", spec, kernel_works.nbytes(spec))]


def _too_large(command: str, work: Any, nbytes: int) -> bool:
    too_large = nbytes > MAX_STORE_BYTES
    if too_large:
        progress(f"{command}: {work} left out, its embeddings take {nbytes / 1e9:.1f} GB")
    return too_large


def _storage_of_dialogues(arguments: argparse.Namespace) -> Iterator[Record]:
    if arguments.folder is None:
        sys.exit("--folder: required with --data locomo: where its JSON is")
    try:
        encoder = TextEncoder.from_pretrained(arguments.encoder)
        dialogues = locomo.read(arguments.folder)
    except (ArgumentValueError, MissingExtraError) as error:
        sys.exit(f"storage: {error}")
    yield from storage.run_on_dialogues(dialogues, encoder)


def _records(arguments: argparse.Namespace):
    if arguments.command == "import":
        yield from imports.run(arguments.repeats)
    elif arguments.command == "evict_topk":
        yield from evict_topk.run(arguments.repeats)
    elif arguments.command == "replay":
        yield from replay.run(arguments.slots, arguments.draws)
    elif arguments.command == "clusters":
        sizes = (arguments.memories, arguments.dim, arguments.clusters)
        yield from clusters.run(*sizes, arguments.probes, arguments.repeats)
    elif arguments.command == "checkpoint":
        yield from checkpoint.run(arguments.mebibytes, _peers(arguments), arguments.repeats)
    elif arguments.command == "ann":
        for size in itertools.product(arguments.memories, arguments.dim, arguments.data):
            yield from ann.run(*size, arguments.queries, arguments.ef, arguments.repeats)
    elif arguments.command == "backend":
        for memories in arguments.memories:
            yield from backend.run(memories, arguments.dim, _peers(arguments), arguments.repeats)
    elif arguments.command == "encoder":
        yield from encoder.run(arguments.lengths, arguments.batch, arguments.torch_python, arguments.repeats)
    elif arguments.command == "storage":
        if arguments.data == "locomo":
            yield from _storage_of_dialogues(arguments)
        else:
            yield from storage.run(arguments.memories, arguments.dim, arguments.queries, arguments.repeats)
    elif arguments.command == "scale":
        yield from scale.run(arguments.devices, arguments.bandwidth, arguments.small)
    elif arguments.command == "sharding":
        yield from sharding.run(arguments.devices, arguments.small, arguments.repeats)
    elif arguments.command == "kernels":
        yield from kernels.run(_specs(arguments), _peers(arguments), arguments.repeats, arguments.picture)
    elif arguments.command == "accelerator":
        yield from accelerator.run(arguments.minutes, arguments.small, arguments.repeats)
    elif arguments.command == "bars":
        yield from bars.run(arguments.repeats)
    else:
        peers = _peers(arguments)
        for work in _works(arguments):
            if _too_large(arguments.command, work, work.nbytes):
                continue
            progress(f"{arguments.command}: {work}")
            yield from BENCHMARKS[arguments.command].run(work, peers, arguments.repeats)


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    done = (print_json if arguments.json else print_table)(_records(arguments))
    missed = [record for record in done if record.get("reached") is False]
    return int(bool(missed) and getattr(arguments, "strict", False))


if __name__ == "__main__":
    sys.exit(main())
