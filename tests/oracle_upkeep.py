"""What the oracle does between experiences: `consolidate`, and replay's probabilities and weights with `reprioritize`.

Which memories a replay draws is chance, so the tests hand in what was drawn.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np

from tests.oracle import CORE, FLOAT_MAX, INT_MAX, F, Oracle, dot, inverse_norm, is_delight, norm, saturate


@np.errstate(all="ignore")
def consolidate(
    oracle: Oracle, rpe_fn: Callable | None = None, reprice: int = 32, drawn: list[int] | None = None
) -> dict:
    """Re-price, forget, merge, promote. rpe_fn: memory -> fresh rpe, of the `reprice` strongest or of the pool slots
    that were drawn. Returns ConsolidationReport; the clock stands still."""
    config = oracle.config
    report: dict = dict.fromkeys(("repriced", "forgotten", "merged", "promoted", "demoted"), 0)
    report |= {"forgotten_ids": [-1] * len(oracle.pool), "merged_ids": [(-1, -1)] * config.merge_rounds}
    report |= {"promoted_ids": [-1] * config.moves, "demoted_ids": [-1] * config.moves}
    oracle.probe = None

    if rpe_fn is not None:
        strong = [slot for slot in by_strength(oracle) if oracle.pool[slot]["strength"] > 0]
        for slot in strong[:reprice] if drawn is None else drawn:
            rpe = F(rpe_fn(oracle.pool[slot]))
            if np.isfinite(rpe):
                price(oracle, oracle.pool[slot], rpe)
                report["repriced"] += 1
            else:
                oracle.count("rejected")
    for slot in live_slots(oracle):
        if is_forgotten(oracle, slot):
            report["forgotten_ids"][slot] = oracle.pool[slot]["id"]
            oracle.pool[slot] = None
            report["forgotten"] += 1
            oracle.count("forgotten")
    for r in range(config.merge_rounds):
        pair = closest_pair(oracle)
        if pair is not None:
            report["merged_ids"][r] = tuple(oracle.pool[slot]["id"] for slot in pair)
            merge(oracle, *pair)
            report["merged"] += 1
            oracle.count("merged_later")
    for r in range(config.moves):
        promoted, demoted = promote(oracle)
        report["promoted_ids"][r], report["demoted_ids"][r] = promoted, demoted
        for name, identity in (("promoted", promoted), ("demoted", demoted)):
            if identity != -1:
                report[name] += 1
                oracle.count(name)
    return report


def live_slots(oracle: Oracle) -> list[int]:
    return [slot for slot, memory in enumerate(oracle.pool) if memory is not None]


def by_strength(oracle: Oracle) -> list[int]:
    """Pool slots of live memories, the one of greatest effective strength first."""
    return sorted(live_slots(oracle), key=lambda slot: -oracle.log_effective(oracle.pool[slot], oracle.clock))


def price(oracle: Oracle, memory: dict, rpe, overwrite: bool = False):
    """Give a memory the strength that an experience of that rpe would be written with now."""
    strength = oracle.opening(oracle.size(abs(rpe))) * abs(rpe)
    memory.update(strength=strength, written_strength=strength, touched=oracle.clock)
    if overwrite:
        memory["rpe"] = rpe


def is_forgotten(oracle: Oracle, slot: int) -> bool:
    memory, p = oracle.pool[slot], oracle.params
    age = F(min(oracle.clock - memory["touched"], INT_MAX))
    strength = min(oracle.effective(memory, oracle.clock) / oracle.scale(), FLOAT_MAX)
    return bool(
        strength < p.floor or age > (p.core_max_age if slot < oracle.config.core_capacity else p.buffer_max_age)
    )


def closest_pair(oracle: Oracle) -> tuple[int, int] | None:
    """Two live memories, of either tier, that say the same."""
    pairs = combinations(live_slots(oracle), 2)
    return max((pair for pair in pairs if same(oracle, *pair)), key=lambda pair: likeness(oracle, *pair), default=None)


def same(oracle: Oracle, i: int, j: int) -> bool:
    a, b = oracle.pool[i], oracle.pool[j]
    alike = a["task"] == b["task"] and is_delight(a) == is_delight(b)
    return alike and bool(likeness(oracle, i, j) >= oracle.params.duplicate_similarity)


def likeness(oracle: Oracle, i: int, j: int):
    a, b = oracle.pool[i], oracle.pool[j]
    return dot(a["embedding"], b["embedding"]) * a["inv_norm"] * b["inv_norm"]


def merge(oracle: Oracle, i: int, j: int):
    """j's memory goes into i's, which keeps place and id."""
    a, b, now = oracle.pool[i], oracle.pool[j], oracle.clock

    def mean(x, y):  # over all the experiences that both stand for
        n = F(a["count"]) + F(b["count"])
        return x + (y / n - x / n) * F(b["count"])

    embedding = mean(a["embedding"], b["embedding"])
    embedding = embedding * (mean(norm(a["embedding"]), norm(b["embedding"])) * inverse_norm(embedding))
    merged = {name: mean(a[name], b[name]) for name in ("rpe", "reward", "value")}
    merged |= {name: saturate(a[name] + b[name]) for name in ("count", "recalls", "successes")}
    merged |= oracle.kept(embedding) | {"time": now, "touched": now}
    merged["strength"] = merged["written_strength"] = max(oracle.effective(a, now), oracle.effective(b, now))
    larger = b if abs(b["rpe"]) > abs(a["rpe"]) else a
    merged |= {name: larger[name] for name in ("payload", "next_embedding", "discount") if name in larger}
    a.update(merged, contradicted=False)
    oracle.pool[j] = None


def promote(oracle: Oracle) -> tuple[int, int]:
    """One move into core. Returns the ids that went up and down; -1 for none."""
    core = range(oracle.config.core_capacity)
    up = [slot for slot in by_strength(oracle) if slot not in core]
    free = [slot for slot in core if oracle.pool[slot] is None]
    if free:  # for what has proved itself
        up = [slot for slot in up if oracle.pool[slot]["successes"] >= oracle.config.min_successes]
    if not up:
        return -1, -1

    rising = oracle.pool[up[0]]
    if free:
        oracle.pool[free[0]], oracle.pool[up[0]] = rising, None
        return rising["id"], -1
    weakest = min(core, key=lambda slot: oracle.standing(oracle.pool[slot], CORE))
    falling = oracle.pool[weakest]
    if not oracle.standing(rising, CORE) > oracle.standing(falling, CORE):
        return -1, -1
    oracle.pool[weakest], oracle.pool[up[0]] = rising, falling
    return rising["id"], falling["id"]


@np.errstate(all="ignore")
def replay_probabilities(oracle: Oracle) -> np.ndarray:
    """[N], of each pool slot at one draw."""
    exponents = np.full(len(oracle.pool), -np.inf)
    for slot in live_slots(oracle):
        if oracle.pool[slot]["strength"] > 0:  # nothing else is ever drawn
            log = oracle.log_effective(oracle.pool[slot], oracle.clock)
            exponents[slot] = float(oracle.params.replay_exponent) * float(log)
    if exponents.max() == -np.inf:
        return np.zeros(len(oracle.pool))
    priorities = np.exp2(exponents - exponents.max())
    return priorities / priorities.sum()


def replay_weights(oracle: Oracle, slots: list[int]) -> np.ndarray:
    """[B], of a batch drawn from these pool slots: what undoes the bias of drawing the strong more often."""
    b = oracle.on_the_way("importance_exponent", F(oracle.clock) / oracle.params.importance_steps)
    weights = (len(live_slots(oracle)) * replay_probabilities(oracle)[slots]) ** -float(b)
    return weights / weights.max() if slots else weights


@np.errstate(all="ignore")
def reprioritize(oracle: Oracle, batch: dict, rpe, overwrite: bool = False):
    """Strengths from fresh errors [B]. batch: tier, slot, id, valid, [B] each."""
    oracle.probe = None
    for row, memory in oracle.in_place(batch):
        if not np.isfinite(rpe[row]):
            oracle.count("rejected")
        elif memory is None or memory["id"] != batch["id"][row]:
            oracle.count("stale")
        else:
            price(oracle, memory, F(rpe[row]), overwrite)
