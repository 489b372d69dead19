"""`accelerator`: all that a machine with a GPU or TPU should tell us, in a few minutes and one table.

Parts, the most important first: whether kernels are exact on the device, which it is and what it can do at most, what
a compiled loop of steps copies, step, recall and write beside peers, then what may fail on a new device and spoil the
rest: `fused_topk` beside peers, and the best tile of its kernel. What fails is told of in a record with `error`, and
the others go on; what would begin after the time is spent is left out, and told of as well. `part` says which it is; a
bar has its `limit`, and whether it is `reached`.
"""

import functools
import time
from collections.abc import Callable, Iterator

import jax

from benchmarks import accelerator_speed as speed
from benchmarks import exactness, roofline
from benchmarks.accelerator_works import TILE_OF, Plan, plan, platform
from benchmarks.exactness import said
from benchmarks.output import Record, progress
from benchmarks.tuning import tune

Part = tuple[str, Callable[[], Iterator[Record]]]


def run(minutes: float, small: bool, repeats: int) -> Iterator[Record]:
    end = time.monotonic() + 60 * minutes
    # Before this process touches the device: some let one process in at a time.
    progress("accelerator: exactness, in a process of its own")
    checked = exactness.in_a_process(small, seconds=30 * minutes)
    # A kernel that took its process with it, or never came to a result, is not run again: it might end this one.
    ours = not any("error" in record for record in checked)

    def in_time() -> bool:
        return time.monotonic() < end

    for name, part in [("device", _device), ("exactness", lambda: iter(checked)), ("ceiling", _ceiling)]:
        yield from _told(name, part)
    for name, part in parts(plan(platform(), small), ours, repeats, in_time):
        if in_time():
            progress(f"accelerator: {name}, {end - time.monotonic():.0f} s left")
            yield from _told(name, part)
        else:
            yield _record(name, {"implementation": "all", "note": f"left out: {minutes:g} minutes are spent"})


def parts(plan: Plan, ours: bool, repeats: int, in_time: Callable[[], bool]) -> list[Part]:
    first, *others = plan.steps
    contest = functools.partial(speed.steps, peers=plan.step_peers, repeats=repeats)
    tuned = {search.spec.dtype: search.spec for search in reversed(plan.searches)}.values()
    result: list[Part] = [
        ("step", functools.partial(contest, "step", first)),
        ("recall", functools.partial(contest, "recall", first)),
        ("write", functools.partial(speed.writes, first, plan.write_peers, repeats)),
        *(("kernels", functools.partial(speed.search, search, ours, repeats)) for search in plan.searches),
    ]
    if plan.tuned and ours:
        of_kernel = functools.partial(tune, kernel=plan.tuned, kind=TILE_OF[plan.tuned], tiles=plan.tiles)
        result += [("tuning", functools.partial(of_kernel, spec, repeats=repeats, in_time=in_time)) for spec in tuned]
    return result + [("step", functools.partial(contest, "step", work)) for work in others]


def _told(name: str, part: Callable[[], Iterator[Record]]) -> Iterator[Record]:
    """A part's records, and what ended it."""
    try:
        for record in part():
            yield _record(name, record)
    except Exception as error:
        yield _record(name, {"implementation": "all", "error": said(error)})


def _record(name: str, record: Record) -> Record:
    figures = {key: value for key, value in record.items() if key not in ("benchmark", "implementation", "work")}
    part, implementation = record.get("benchmark", name), record["implementation"]
    progress(f"  {part}, {implementation}: {figures}")
    about = {"benchmark": "accelerator", "part": part, "implementation": implementation}
    return about | {"work": record.get("work", {})} | figures


def _device() -> Iterator[Record]:
    devices = jax.devices()
    work = {"platform": platform(), "devices": len(devices), "jax": jax.__version__}
    yield {"implementation": devices[0].device_kind, "work": work}


def _ceiling() -> Iterator[Record]:
    yield roofline.ceiling().record() | {"benchmark": "ceiling"}
