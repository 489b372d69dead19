"""Paired, interleaved times: work, floor, work, floor, and the median of their ratios."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

# A contender runs one round, the steps of which are the same for all that race together, and returns seconds a step.
Contender = Callable[[int], float]


def larger_rounds() -> int:
    """How many times the work of a CPU's round an accelerator's has, so that to launch it takes nothing beside it."""
    return 1 if jax.default_backend() == "cpu" else 32


class ScanLoop:
    """A body in a jitted `lax.scan` over a fresh stretch of the stream each round, its carry donated.

    What a step found is carried to the next one, which overwrites it, as in a training loop that acts on it. So a
    compiler can leave out nothing of a step, and no stack of all steps' results is written.
    """

    def __init__(self, body: Callable, carry: Any, stream: Callable[[int], Any]):
        def program(state: Any, xs: Any):
            return jax.lax.scan(lambda state, x: (body(state[0], x), None), state, xs)[0]

        self.program: Any = jax.jit(program, donate_argnums=0)
        self.state, self.stream = (carry, _nothing_found(body, carry, stream)), stream

    def compile(self) -> Any:
        """The compiled program, to be read; later rounds run it."""
        self.program = self.program.lower(self.state, self.stream(0)).compile()
        return self.program

    def __call__(self, round: int) -> float:
        xs = jax.block_until_ready(self.stream(round))
        steps = jax.tree.leaves(xs)[0].shape[0]
        start = time.perf_counter()
        self.state = jax.block_until_ready(self.program(self.state, xs))
        return (time.perf_counter() - start) / steps


class ReadLoop(ScanLoop):
    """A body that only reads `store`, which is not donated: contenders share it."""

    def __init__(self, read: Callable[[Any, Any], Any], store: Any, stream: Callable[[int], Any]):
        def program(found: Any, store: Any, xs: Any):
            return jax.lax.scan(lambda _, x: (read(store, x), None), found, xs)[0]

        jitted = jax.jit(program, donate_argnums=0)
        self.program = lambda found, xs: jitted(found, store, xs)
        self.state, self.stream = _nothing_found(lambda store, x: (store, read(store, x)), store, stream), stream


def _nothing_found(body: Callable, carry: Any, stream: Callable[[int], Any]) -> Any:
    """Zeros in place of what a step finds."""
    found = jax.eval_shape(lambda carry: body(carry, jax.tree.map(lambda x: x[0], stream(0)))[1], carry)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), found)


class CallLoop(ScanLoop):
    """The same body as one jitted call a step; `donate=False` shows what that costs."""

    def __init__(self, body: Callable, carry: Any, stream: Callable[[int], Any], donate: bool = True):
        self.program = jax.jit(body, donate_argnums=0 if donate else ())
        self.slice = jax.jit(lambda xs, i: jax.tree.map(lambda x: x[i], xs))
        self.carry, self.stream = carry, stream

    def __call__(self, round: int) -> float:
        xs = self.stream(round)
        steps = jax.tree.leaves(xs)[0].shape[0]
        slices = jax.block_until_ready([self.slice(xs, i) for i in range(steps)])
        start = time.perf_counter()
        for x in slices:
            self.carry, _ = jax.block_until_ready(self.program(self.carry, x))
        return (time.perf_counter() - start) / steps


class HostLoop:
    """A step of NumPy or of an index library, called once per step of the stream with NumPy arrays.

    `share` is the part of the agents that it runs; its time is divided by it, and its record's work says so.
    """

    def __init__(self, step: Callable[[Any], Any], stream: Callable[[int], Any], share: float = 1.0):
        self.step, self.stream, self.share = step, stream, share

    def __call__(self, round: int) -> float:
        xs = jax.device_get(self.stream(round))
        steps = jax.tree.leaves(xs)[0].shape[0]
        slices = [jax.tree.map(lambda x, i=i: x[i], xs) for i in range(steps)]
        start = time.perf_counter()
        for x in slices:
            self.step(x)
        return (time.perf_counter() - start) / (steps * self.share)


@dataclasses.dataclass(frozen=True)
class Timing:
    """What one contender took, seconds a step, one entry a round; `floors` are those run right after each."""

    times: tuple[float, ...]
    floors: tuple[float, ...]

    def ratio_to(self, other: "Timing") -> float:
        """Median of this over `other`, round by round."""
        return statistics.median(a / b for a, b in zip(self.times, other.times, strict=True))

    def record(self) -> dict[str, float]:
        ratio = statistics.median(t / f for t, f in zip(self.times, self.floors, strict=True))
        seconds, floor_seconds = statistics.median(self.times), statistics.median(self.floors)
        return {"seconds": seconds, "floor_seconds": floor_seconds, "ratio": ratio}


def race(floor: Contender, contenders: Mapping[str, Contender], repeats: int) -> dict[str, Timing]:
    """Runs all contenders `repeats` times in turn, the floor after each; round 0 compiles and isn't counted."""
    for contender in (floor, *contenders.values()):
        contender(0)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    floors: dict[str, list[float]] = {name: [] for name in contenders}
    for round in range(1, repeats + 1):
        for name, contender in contenders.items():
            times[name].append(contender(round))
            floors[name].append(floor(round))
    return {name: Timing(tuple(times[name]), tuple(floors[name])) for name in contenders}
