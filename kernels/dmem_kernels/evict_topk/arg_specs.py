"""The sizes at which tests and benchmarks run the kernel."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ArgSpec:
    slots: int
    n: int
    stores: int | None = None  # that many at once, by vmap
    free: float = 0.0  # share of the slots


ARG_SPECS = {
    "one_slot": ArgSpec(slots=1, n=1),
    "more_than_there_are": ArgSpec(slots=5, n=9, free=0.3),
    "the_weakest": ArgSpec(slots=300, n=1),
    "half_full": ArgSpec(slots=300, n=128, free=0.5),
    "one_store": ArgSpec(slots=4096, n=128, free=0.01),
    "many_stores": ArgSpec(slots=512, n=8, stores=16, free=0.01),
}
