"""`recall`: all agents' recalls in a scan, nothing written. Floor: one pass over the embeddings."""

from collections.abc import Iterator

from benchmarks.contest import contest
from benchmarks.output import Record
from benchmarks.peers import PEERS
from benchmarks.step import sweep
from benchmarks.streams import Work

DEFAULTS = {"agents": [1024], "slots": [512], "dim": [128]}
DEFAULT_PEERS = [name for name, (peer, _) in PEERS.items() if hasattr(peer, "recall")]
SWEEP_PEERS = ["plain_jax"]
__all__ = ["DEFAULTS", "DEFAULT_PEERS", "SWEEP_PEERS", "run", "sweep"]


def run(work: Work, peers: list[str], repeats: int) -> Iterator[Record]:
    return contest("recall", work, peers, repeats)
