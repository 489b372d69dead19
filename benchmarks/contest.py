"""One kind of work, "step" or "recall", by dmem_jax and its peers over the same rows and the same stream."""

import dataclasses
from collections.abc import Iterator

from benchmarks.copies import copies
from benchmarks.output import Record
from benchmarks.peers import make_peers, one_pass
from benchmarks.streams import Stream, Work, full_rows
from benchmarks.subject import Subject
from benchmarks.timing import ScanLoop, race


def contest(kind: str, work: Work, peers: list[str], repeats: int, read: bool = False) -> Iterator[Record]:
    """With `read`, first what the compiled loop of dmem_jax copies."""
    rows = full_rows(work)
    stream = Stream(work, rows)
    subject = Subject(work)
    ours = ScanLoop(getattr(subject, kind), subject.full_memory(rows), subject.stream(stream))
    if read:
        yield copies(ours, work)
    others, said = make_peers(peers, kind, work, rows, stream)
    floor = one_pass(rows, stream)
    del rows  # every contender has its own by now
    timings = race(floor, {"dmem_jax": ours, **others}, repeats)
    for name, timing in timings.items():
        record = {
            "benchmark": kind,
            "implementation": name,
            "work": dataclasses.asdict(work) | said.get(name, {}),
            **timing.record(),
        }
        if name == "dmem_jax" and "plain_jax" in timings:
            record["ratio_to_plain_jax"] = timing.ratio_to(timings["plain_jax"])
        yield record
