"""`replay`: are memories drawn as often as their strength says, and is a dead slot ever drawn?

`score` of `frequencies` is chi squared over its degrees of freedom (about 1 for exact draws; `low` and `high` are what
exact draws stay between 99.9 % of the time); that of `dead_slots` is how many draws hit one (0).
"""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem
from benchmarks.output import Record, progress
from dmem_jax.sampling import replay_probabilities

BATCH = 2**20  # draws of one call


def full_memory(slots: int) -> tuple[dmem.Config, dmem.Params, dmem.Memory]:
    """Strengths from 1e-6 to 1e6, a quarter of the slots dead in stretches, as forgetting leaves them."""
    config = dmem.Config(embedding_dim=1, core_capacity=1, buffer_capacity=slots - 1)
    params = dmem.Params.default(config, half_life=np.inf, disaster_half_life=np.inf, replay_exponent=1.0)
    memory = dmem.init(config)
    random = np.random.default_rng(0)
    n = slots - 1
    strength = jnp.asarray(10.0 ** random.uniform(-6, 6, n), jnp.float32)
    live = jnp.asarray(np.repeat(random.random(-(-n // 64)) < 0.75, 64)[:n])
    ids = jnp.where(live, jnp.arange(n, dtype=jnp.int32), -1)
    buffer = dataclasses.replace(memory.buffer, strength=strength, written_strength=strength + 0, id=ids)
    return config, params, dataclasses.replace(memory, buffer=buffer)


def run(slots: int, draws: int) -> Iterator[Record]:
    config, params, memory = full_memory(slots)
    dead = jnp.concatenate([memory.core.id < 0, memory.buffer.id < 0])

    @jax.jit
    def drawn(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        batch = dmem.replay(config, params, memory, key, size=BATCH)
        slot = batch.slot + batch.tier * config.core_capacity
        counts = jnp.zeros(slots, jnp.int32).at[slot].add(1)
        return counts, jnp.sum(jnp.where(dead, counts, 0))

    calls = -(-draws // BATCH)
    counts, hits = np.zeros(slots, np.int64), 0
    for call in range(calls):
        of_call, dead_hits = jax.device_get(drawn(jax.random.fold_in(jax.random.key(1), call)))
        counts += of_call
        hits += int(dead_hits)
        if call % 16 == 15:
            progress(f"replay: {(call + 1) * BATCH:.3g} of {calls * BATCH:.3g} draws, {hits} dead")
    total = calls * BATCH
    # Slots expected less than ten times are counted together, as a chi squared needs.
    exact = np.asarray(replay_probabilities(params, memory), np.float64)
    expected = exact / exact.sum() * total
    often = expected >= 10
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    degrees = len(observed) - 1
    spread = 3.29 * np.sqrt(2 / degrees)
    work = {"slots": slots, "draws": total}
    yield {
        "benchmark": "replay",
        "implementation": "dmem_jax",
        "work": work | {"metric": "frequencies"},
        "score": float(((observed - expected) ** 2 / expected).sum() / degrees),
        "low": 1 - spread,
        "high": 1 + spread,
    }
    yield {"benchmark": "replay", "implementation": "dmem_jax", "work": work | {"metric": "dead_slots"}, "score": hits}
