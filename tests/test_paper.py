"""The router of the D-MEM paper (arXiv 2603.14597), step by step as worked out by hand, in the core and in the oracle.

m is the greatest cosine to a live memory, S the surprise, U the utility; rpe = min(1, [U >= .05] * U * (S + .4)), which
goes to core from .7 on, to the buffer from .3 on. S is 1 until there are five memories and five values of m.
"""

import dataclasses
import types
from typing import Any

import jax
import numpy as np
import pytest

import dmem_jax as dmem
from tests.oracle import BUFFER, CORE, DROPPED, INVALID, SHADOW, Oracle

AXES = np.eye(8, dtype=np.float32)
write, recall = jax.jit(dmem.write), jax.jit(dmem.recall)


def between(cosine: float, axis: int = 0) -> np.ndarray:
    """A vector at that cosine to an axis, and at 0 to all others but the last."""
    return np.float32(cosine) * AXES[axis] + np.float32(np.sqrt(1 - cosine**2)) * AXES[7]


class Both:
    """The core and the oracle; what they say of an experience must agree."""

    def __init__(self, params: dict[str, float] | None = None, **changes: Any):
        tiers = {"core_capacity": 16, "buffer_capacity": 16}
        self.config = dmem.Config.paper(embedding_dim=8, **tiers, top_k=2, shadow_capacity=4, **changes)
        self.params = dmem.Params.default(self.config, **(params or {}))
        self.memory = dmem.init(self.config, np.int32(0))
        plain = {name: float(value) for name, value in vars(self.params).items()}
        self.oracle = Oracle(self.config, types.SimpleNamespace(**plain))

    def write(self, embedding: np.ndarray, utility: float, payload: int = 0) -> tuple[int, float]:
        """Route and rpe, which is the size: nothing is scaled."""
        given = dmem.experience(self.config, embedding, payload=np.int32(payload))
        given = dataclasses.replace(given, utility=np.float32(utility))  # unchecked, as inside a trace
        self.memory, info = write(self.config, self.params, self.memory, given)
        told = self.oracle.write({"embedding": embedding, "utility": utility, "payload": payload})
        assert (info.route, info.id, info.slot) == (told["route"], told["id"], told["slot"])
        assert float(info.size) == pytest.approx(float(told["size"]), abs=1e-5)
        return told["route"], float(told["size"])

    def recall(self, embedding: np.ndarray, **given) -> dict:
        query = dmem.query(self.config, embedding, **given)
        found = jax.device_get(recall(self.config, self.params, self.memory, query))
        expected = self.oracle.recall({"embedding": embedding, **given})
        for name in ("tier", "slot", "id", "valid"):
            np.testing.assert_array_equal(getattr(found, name), expected[name])
        for name in ("score", "semantic", "salience", "rpe"):
            np.testing.assert_allclose(getattr(found, name), expected[name], rtol=1e-5, atol=1e-6)
        return expected


def five_memories(both: Both) -> None:
    """On axes 0 to 4, in core; then five experiences of no use at cosine 0, which end the warm-up of ten in the buffer.
    The window then holds the m of the second to the tenth: nine zeros."""
    for axis in range(5):
        assert both.write(AXES[axis], 1.0) == (CORE, 1.0)  # 1 * (1 + .4), at most 1
    for _ in range(5):
        assert both.write(0 * AXES[0], 0.0) == (BUFFER, 0.0)  # no direction: a cosine of 0 with everything


def test_defaults_of_the_preset():
    config = dmem.Config.paper(embedding_dim=8, core_capacity=2, buffer_capacity=3)
    params = dmem.Params.default(config)
    assert (config.signal, config.thresholds, config.scale, config.duplicates) == ("paper", "paper", "none", "off")
    assert (config.warmup, config.shadow_capacity, config.recalled) == (10, 64, 8 + 3)
    thresholds = params.threshold_low, params.threshold_high, params.shadow_below
    np.testing.assert_array_equal(np.array(thresholds), np.array([0.3, 0.7, 0.35], np.float32))


def test_an_empty_memory_is_surprised_and_utility_decides():
    both = Both()
    assert both.write(AXES[0], 0.5) == (CORE, pytest.approx(0.7))  # .5 * 1.4 = .7: at the threshold is above
    assert both.write(AXES[0], 0.49) == (BUFFER, pytest.approx(0.686))
    assert both.write(AXES[0], 0.05) == (BUFFER, pytest.approx(0.07))  # the warm-up keeps it, and .05 counts
    assert both.write(AXES[0], 0.0499) == (BUFFER, 0.0)  # below .05 nothing does
    assert both.write(AXES[0], 7.0) == (CORE, 1.0)  # a utility is at most 1, and so is what comes of it
    assert both.write(AXES[0], -7.0) == (BUFFER, 0.0)
    assert both.write(AXES[0], np.nan) == (INVALID, 0.0)


def test_at_the_lower_threshold_is_above_it():
    both = Both(warmup=0, params={"threshold_low": 0.35})
    assert both.write(AXES[0], 0.25) == (BUFFER, pytest.approx(0.35))  # .25 * 1.4
    assert both.write(AXES[0], 0.2499) == (DROPPED, pytest.approx(0.34986))


def test_warm_up_is_of_ten():
    both = Both()
    routes = [both.write(AXES[0], 0.0)[0] for _ in range(12)]
    assert routes == [BUFFER] * 10 + [DROPPED] * 2


def test_surprise_is_one_until_five_values():
    both = Both()
    both.write(AXES[0], 0.2)  # nothing to compare with: no value
    # .2 * (1 + .4) = .28. Four values, then the fifth: the memories are 1 .. 5 before it.
    assert [both.write(AXES[axis], 0.2)[1] for axis in (1, 2, 3, 4)] == [pytest.approx(0.28)] * 4
    # Fifth value, five memories: window 0 0 0 0 0, m = 0: S = sigmoid(0) = .5; .2 * .9 = .18.
    assert both.write(AXES[5], 0.2)[1] == pytest.approx(0.18)


def test_surprise_against_the_last_similarities():
    both = Both()
    five_memories(both)
    # Window of nine zeros and a 1: mean .1, deviation sqrt(.1 - .01) = .3; (.1 - 1) / .3 = -3; sigmoid(-3) = .0474259.
    # U = 1: .4474259, to the buffer.
    assert both.write(AXES[0], 1.0) == (BUFFER, pytest.approx(0.4474259, abs=1e-6))
    # A sixth axis: nine zeros, 1, 0: mean 1/11, deviation sqrt(1/11 - 1/121) = sqrt(10)/11; (1/11) / (sqrt(10)/11)
    # = .3162278; sigmoid = .5784047; + .4 = .9784047: to core.
    assert both.write(AXES[5], 1.0) == (CORE, pytest.approx(0.9784047, abs=1e-6))
    # Again nothing new, of little use: ten zeros and two ones: mean 1/6, deviation sqrt(5)/6; (-5/6) / (sqrt(5)/6)
    # = -sqrt(5); sigmoid = .0965581; .5 * .4965581 = .2482790: dropped.
    assert both.write(AXES[1], 0.5) == (DROPPED, pytest.approx(0.2482790, abs=1e-6))


def test_small_deviations_count_as_a_hundredth():
    both = Both()
    five_memories(both)
    # m = .01 after nine zeros: mean .001, deviation .003, taken as .01: (.001 - .01) / .01 = -.9; sigmoid = .2890505.
    embedding = 0.01 * AXES[0] + np.float32(np.sqrt(1 - 0.0001)) * AXES[7]
    assert both.write(embedding, 0.4)[1] == pytest.approx(0.4 * 0.6890505, abs=1e-5)


def test_the_window_holds_fifty():
    both = Both()
    five_memories(both)  # nine zeros
    for _ in range(41):
        assert both.write(AXES[0], 0.0) == (DROPPED, 0.0)  # of no use, but its m of 1 enters
    # The window is full: 9 zeros, 41 ones. Ten more ones push the zeros out: all ones, S = sigmoid(0) = .5.
    for _ in range(9):
        both.write(AXES[0], 0.0)
    assert both.write(AXES[0], 1.0) == (CORE, pytest.approx(0.9, abs=1e-4))
    # A zero among 49 ones: mean .98, deviation sqrt(.98 * .02) = .14; .98 / .14 = 7; sigmoid(7) = .9990889.
    assert both.write(AXES[5], 0.4) == (BUFFER, pytest.approx(0.4 * 1.3990889, abs=1e-5))


def test_what_was_dropped_is_asked_where_nothing_is_alike():
    both = Both()
    five_memories(both)
    # Dropped, of no use: four in a ring of four, at cosines .6 .1 .9 .6 to axis 6, all at 0 to the memories.
    for payload, cosine in enumerate((0.6, 0.1, 0.9, 0.6)):
        assert both.write(between(cosine, axis=6), 0.0, payload + 70)[0] == DROPPED
    found = both.recall(AXES[6])  # the best memory is at cosine 0 < .35: its two rows, then three of the shadow's
    assert found["tier"].tolist()[2:] == [SHADOW] * 3
    assert found["slot"].tolist()[2:] == [2, 0, 3]  # .9, then the two of .6, the lower place first; .1 is not above .2
    assert found["payload"][2:] == [72, 70, 73]
    assert found["id"].tolist()[2:] == [-1] * 3
    np.testing.assert_allclose(found["score"][2:], [0.9, 0.6, 0.6], rtol=1e-6)
    assert not both.recall(AXES[0])["valid"][2:].any()  # here a memory is alike
    assert both.recall(AXES[6], task=0)["valid"].all()
    assert not both.recall(AXES[6], task=1)["valid"].any()
    assert both.recall(AXES[6], sign=-1)["valid"].tolist() == [False] * 5  # a paper's rpe is never a disaster
    # A fifth takes the place of the oldest.
    both.write(between(0.5, axis=6), 0.0, 99)
    assert both.recall(AXES[6])["payload"][2:] == [72, 73, 99]


def test_a_memory_at_the_threshold_of_the_shadow_is_alike():
    both = Both({"shadow_below": 0.5})
    five_memories(both)
    both.write(AXES[6], 0.0)
    diagonal = AXES[0] + AXES[1] + AXES[6] + AXES[5]  # norm 2: at cosine 1/2 to axes 0, 1 and to what was dropped
    assert both.recall(diagonal)["valid"].tolist() == [True, True, False, False, False]
    wider = diagonal + AXES[7] * 0.1
    assert both.recall(wider)["valid"].tolist() == [True, True, True, False, False]


def test_feedback_on_the_shadow_does_nothing():
    both = Both()
    five_memories(both)
    both.write(AXES[6], 0.0)
    query = dmem.query(both.config, AXES[6])
    found = recall(both.config, both.params, both.memory, query)
    assert found.valid.tolist() == [True, True, True, False, False]
    used = np.array([0, 0, 1, 0, 0], np.float32)
    for after in (
        dmem.reinforce(both.config, both.params, both.memory, found, np.float32(1), used),
        dmem.renew(both.config, both.params, both.memory, found, used),
    ):
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(after), jax.device_get(both.memory))
