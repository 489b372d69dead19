"""`step`: write, recall and count, all agents at once in a donated scan. Floor: one pass over the embeddings."""

from collections.abc import Iterator

from benchmarks.contest import contest
from benchmarks.output import Record
from benchmarks.peers import PEERS
from benchmarks.streams import Work

DEFAULTS = {"agents": [1024], "slots": [512], "dim": [128]}
DEFAULT_PEERS = list(PEERS)
SWEEP_PEERS = ["plain_jax"]


def agents_sweep(top_k: int) -> list[Work]:
    """64 to 16,384 agents at stores of 64 MB to 4.3 GB: 512 slots, more where a store would be smaller."""
    slots = {64: 2048}
    return [Work(agents, slots.get(agents, 512), 128, top_k) for agents in (64, 256, 1024, 4096, 8192, 16_384)]


def sweep(top_k: int) -> list[Work]:
    """Numbers of agents, then capacities from 2^7 to 2^15 at stores of 268 MB."""
    capacities = [Work(2**19 // slots, slots, 128, top_k) for slots in (2**n for n in range(7, 16))]
    return list(dict.fromkeys(agents_sweep(top_k) + capacities))


def run(work: Work, peers: list[str], repeats: int) -> Iterator[Record]:
    return contest("step", work, peers, repeats)
