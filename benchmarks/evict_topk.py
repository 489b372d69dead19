"""`evict_topk` at the sizes of its table: who leaves first. Floor: the same keys, and the one weakest."""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.output import Record
from benchmarks.timing import Contender, ScanLoop, race
from dmem_kernels import canonical, decayed_key, first_min
from dmem_kernels.evict_topk import reference, xla
from dmem_kernels.evict_topk.arg_specs import ARG_SPECS, ArgSpec

STEPS = 256  # of one round
WORTH_TIMING = ("one_store", "many_stores")
Slots = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def slots_of(spec: ArgSpec) -> Slots:
    """strength, touched, half_life and live of stores [stores, slots]."""
    shape = (spec.stores or 1, spec.slots)
    keys = jax.random.split(jax.random.key(0), 4)
    strength = jax.random.uniform(keys[0], shape)
    touched = jax.random.randint(keys[1], shape, 0, 800)
    half_life = jnp.where(jax.random.bernoulli(keys[2], 0.5, shape), 800.0, 400.0)
    return strength, touched, half_life, ~jax.random.bernoulli(keys[3], spec.free, shape)


def run(repeats: int) -> Iterator[Record]:
    for name in WORTH_TIMING:
        spec = ARG_SPECS[name]

        def loop(select: Callable, spec: ArgSpec = spec) -> Contender:
            def body(slots: Slots, now: jax.Array):
                return slots, jax.vmap(lambda *one: select(*one, now))(*slots)

            return ScanLoop(
                body, slots_of(spec), lambda round: round * STEPS + 800 + jnp.arange(STEPS, dtype=jnp.int32)
            )

        contenders = {
            implementation: loop(lambda *given, form=form, n=spec.n: form.evict_topk(*given, n))
            for implementation, form in (("xla", xla), ("reference", reference))
        }
        floor = loop(lambda *given: first_min(canonical(decayed_key(*given))))
        for implementation, timing in race(floor, contenders, repeats).items():
            work = {"name": name, **dataclasses.asdict(spec)}
            yield {"benchmark": "evict_topk", "implementation": implementation, "work": work, **timing.record()}
