"""`consolidate` of full stores, all agents at once in a donated scan. Floor: one pass over the embeddings.

- `dmem_jax`: forget and promote, without merging.
- `dmem_jax_merging`: with the default number of merges, for which every memory is compared with every other once.
"""

import dataclasses
from collections.abc import Iterator

import jax

import dmem_jax as dmem
from benchmarks.output import Record
from benchmarks.peers import one_pass
from benchmarks.streams import Stream, Stretch, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import ScanLoop, race

DEFAULTS = {"agents": [1024], "slots": [512], "dim": [128]}
DEFAULT_PEERS = SWEEP_PEERS = ["merging"]
STEPS = 4  # of one round: merging is slow


def sweep(top_k: int) -> list[Work]:
    return [Work(2**19 // slots, slots, 128, top_k) for slots in (2**7, 2**9, 2**11)]


def run(work: Work, peers: list[str], repeats: int) -> Iterator[Record]:
    rows = full_rows(work)
    stream = Stream(work, rows, steps=STEPS)
    subject = Subject(work)
    rounds = {"dmem_jax": 0} | ({"dmem_jax_merging": subject.config.merge_rounds} if "merging" in peers else {})
    contenders = {}
    for name, merge_rounds in rounds.items():
        config = dataclasses.replace(subject.config, merge_rounds=merge_rounds)

        def body(memory: dmem.Memory, x: Stretch, config: dmem.Config = config):
            memory, report = jax.vmap(dmem.consolidate, in_axes=(None, None, 0))(config, subject.params, memory)
            return memory, (report.merged, report.promoted)

        contenders[name] = ScanLoop(body, subject.full_memory(rows), stream)
    for name, timing in race(one_pass(rows, stream), contenders, repeats).items():
        yield {
            "benchmark": "consolidate",
            "implementation": name,
            "work": dataclasses.asdict(work) | {"merge_rounds": rounds[name]},
            **timing.record(),
        }
