"""The oracle held to the specification by examples worked by hand.

Unless an example says otherwise: two dimensions, core and buffer of two, no warm-up, no scale, nothing fades, no
duplicates are looked for, and the gate is 1/2, so that an rpe of 8 is a size of 8 and is written with strength 4.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.oracle import (
    BUFFER,
    CORE,
    DROPPED,
    FLOAT_MAX,
    INT_MAX,
    INT_MIN,
    INVALID,
    MERGED,
    REFRESHED,
    REFUSED,
    Oracle,
    lambda_error,
    n_step_error,
    outcome_error,
    td_error,
)

CONFIG = {
    "embedding_dim": 2, "core_capacity": 2, "buffer_capacity": 2, "top_k": 3, "signal": "given", "smoothing": "none",
    "smoothing_window": 1, "scale": "running", "thresholds": "fixed", "window": 128, "warmup": 32,
    "duplicates": "probe", "buffer_eviction": "strength", "salience": "strength", "fusion": "softmax",
    "weight_schedule": "constant", "store_next": False,
}  # fmt: skip
PARAMS = {
    "gate_scale": 1, "gate_bias": 2, "threshold_low": 1, "threshold_high": 2, "quantile_low": 0.9,
    "quantile_high": 0.98, "scale_rate": 0.01, "duplicate_similarity": 0.98, "duplicate_margin": 0.1, "weaken_rate": 1,
    "reinforce_rate": 1, "renew_rate": 0.5, "strength_cap": 2, "half_life": 800, "disaster_half_life": 800,
    "buffer_half_life": 800, "semantic_weight": 0.5, "semantic_weight_start": 1, "schedule_steps": 10000,
    "semantic_temperature": 0.1, "salience_temperature": 1, "value_temperature": 1,
}  # fmt: skip
INF = float("inf")
EASY = {"warmup": 0, "scale": "none", "duplicates": "off", "fusion": "plain", "gate_scale": 0, "gate_bias": 0}
EASY |= {"half_life": INF, "disaster_half_life": INF}
EAST, NORTH = (1.0, 0.0), (0.0, 1.0)


def default(**changes) -> Oracle:
    config, params = ({name: changes.get(name, table[name]) for name in table} for table in (CONFIG, PARAMS))
    assert set(changes) <= {*CONFIG, *PARAMS}
    return Oracle(SimpleNamespace(**config), SimpleNamespace(**params))


def easy(**changes) -> Oracle:
    return default(**(EASY | changes))


def at(embedding, rpe: Any = 8.0, **given) -> dict:
    return {"embedding": np.array(embedding, np.float32), "rpe": rpe, **given}


def ask(embedding=EAST, **given) -> dict:
    return {"embedding": np.array(embedding, np.float32), **given}


def routes(oracle: Oracle, *rpes) -> list[int]:
    return [oracle.write(at(EAST, rpe))["route"] for rpe in rpes]


def ids(slots) -> list[int]:
    return [-1 if memory is None else memory["id"] for memory in slots]


# ---- Size, gate, route ---------------------------------------------------------------------------------------------


def test_first_experience_has_size_one():
    oracle = default()
    info = oracle.write(at(EAST, 5.0, payload="p"))
    assert (info["route"], info["id"], info["tier"], info["slot"], info["size"]) == (BUFFER, 0, 1, 0, 1)
    assert info["gate"] == pytest.approx(0.26894142)  # sigmoid(1 * 1 - 2)
    memory = oracle.buffer[0]
    assert memory["strength"] == memory["written_strength"] == pytest.approx(1.3447071)  # .26894142 * 5, in raw units
    assert (memory["time"], memory["touched"], memory["count"], memory["payload"], oracle.clock) == (1, 1, 1, "p", 1)


def test_size_is_measured_by_the_mean_before():
    oracle = easy(scale="running", scale_rate=0.5, warmup=2, core_capacity=8, buffer_capacity=8)
    # 4: first, size 1; mean 2 / weight .5 = scale 4.  2: 2 / 4; (1 + 1) / .75 = scale 8/3.  8: 8 / (8/3) = 3 > 2.
    infos = [oracle.write(at(EAST, rpe)) for rpe in (4, -2, 8)]
    assert [float(i["size"]) for i in infos] == pytest.approx([1, 0.5, 3])
    assert [i["route"] for i in infos] == [BUFFER, BUFFER, CORE]
    assert oracle.scale() == pytest.approx((1 + 4) / 0.875)  # dropped ones would count too


def test_size_of_what_follows_nothing_but_zeros_is_finite():
    oracle = easy(scale="running")
    assert [float(oracle.write(at(EAST, rpe))["size"]) for rpe in (0, 0, 1e30)] == [1, 0, float(FLOAT_MAX)]


def test_warm_up_lets_all_but_zero_in():
    assert routes(easy(warmup=3), 0, 0.1, -9, 9) == [DROPPED, BUFFER, BUFFER, CORE]
    assert routes(easy(warmup=3, buffer_capacity=0), 0, 0.1, -9) == [DROPPED, CORE, CORE]


def test_fixed_thresholds_are_strict():
    assert routes(easy(buffer_capacity=4), 1, 1.5, -2, 2.5) == [DROPPED, BUFFER, BUFFER, CORE]
    assert routes(easy(buffer_capacity=0), 1, 1.5) == [DROPPED, REFUSED]


def test_quantile_is_the_rank_among_the_window():
    oracle = easy(thresholds="quantile", window=4, warmup=4, quantile_low=0.5, quantile_high=0.75, buffer_capacity=9)
    assert routes(oracle, 1, 2, 3, 4) == [BUFFER] * 4
    # 5 over 1 2 3 4: 1.  4 over 2 3 4 5: 1/2, not below low.  3.5 over 3 4 5 4: 1/4.  4.5 over 4 5 4 3.5: 3/4, enough.
    assert routes(oracle, 5, 4, 3.5, -4.5) == [CORE, BUFFER, DROPPED, CORE]


def test_smoothing():
    mean = easy(smoothing="mean", smoothing_window=2)
    assert [mean.write(at(EAST, rpe))["size"] for rpe in (2, 4, -8)] == [2, 3, 6]
    rank = easy(smoothing="rank", window=2)  # over none; over 2; over 2 4; over 4 3
    assert [rank.write(at(EAST, rpe))["size"] for rpe in (2, 4, 3, -3)] == [0, 1, 0.5, 0]


def test_outcome_signal_computes_the_rpe_unless_given():
    oracle = easy(signal="outcome")
    oracle.write(at(EAST, None, reward=9, value=1))
    oracle.write(at(EAST, 7.0, reward=9, value=1))
    assert [memory["rpe"] for memory in oracle.core] == [8, 7]


def test_errors_of_a_trajectory():
    assert (outcome_error(3, 1), td_error(1, 1, 2, 4, 0.5), td_error(1, 0, 2, 4, 0.5)) == (2, 1, -1)
    rewards, alive, values, after = np.array([[1, 2, 3], [1, 1, 1], [10, 20, 30], [20, 30, 40]], float)
    # gamma 1/2. One step: 1+10, 2+15, 3+20 = 11 17 23. Two: 1+17/2, 2+23/2, and only one left. Less 10 20 30.
    np.testing.assert_allclose(n_step_error(rewards, alive, values, after, 0.5, 1), [1, -3, -7])
    np.testing.assert_allclose(n_step_error(rewards, alive, values, after, 0.5, 2), [-0.5, -6.5, -7])
    np.testing.assert_allclose(lambda_error(rewards, alive, values, after, 0.5, 0), [1, -3, -7])
    # lambda 1/2: 23; 2 + (30 + 23) / 4 = 15.25; 1 + (20 + 15.25) / 4 = 9.8125. A terminal amid: 2 alone; 1 + 22 / 4.
    np.testing.assert_allclose(lambda_error(rewards, alive, values, after, 0.5, 0.5), [-0.1875, -4.75, -7])
    ends = np.array([1, 0, 1])
    np.testing.assert_allclose(lambda_error(rewards, ends, values, after, 0.5, 0.5), [-3.5, -18, -7])
    np.testing.assert_allclose(n_step_error(rewards, ends, values, after, 0.5, 2), [-8, -18, -7])  # 1 + 2/2, 2, 23


# ---- Duplicates ----------------------------------------------------------------------------------------------------


def test_refresh():
    oracle = easy(duplicates="search", half_life=1, duplicate_margin=0.25)
    oracle.write(at(EAST, 4.0, payload="old", reward=1))  # strength 2 at time 1
    info = oracle.write(at((3, 0), 1.5, payload="new", reward=9))  # faded to 1, newcomer .75
    memory = oracle.core[0]
    assert (info["route"], info["id"], info["merged_id"], info["tier"], info["slot"]) == (REFRESHED, 0, 0, 0, 0)
    assert (memory["strength"], memory["touched"], memory["count"], memory["time"]) == (1, 2, 2, 1)
    oracle.write(at(EAST, 5.0))  # not more than 1.25 * 4: refreshed, with the newcomer's 2.5 over the faded 1/2
    assert (memory["strength"], memory["touched"], memory["count"], memory["written_strength"]) == (2.5, 3, 3, 2)
    assert (memory["rpe"], memory["reward"], memory["payload"], memory["embedding"][0]) == (4, 1, "old", 1)
    assert (oracle.next_id, oracle.stats["refreshed"]) == (1, 2)


def test_merge():
    oracle = easy(duplicates="search", duplicate_similarity=0, store_next=True, half_life=1)
    following = {"next_embedding": EAST, "discount": 1}
    oracle.write(at((3, 0), 4.0, reward=2, value=0, payload="old", **following))  # strength 2
    oracle.core[0].update(recalls=5, successes=6)
    info = oracle.write(at((0, 9), 8.0, reward=4, value=8, payload="new", **following | {"discount": 0}))
    memory = oracle.core[0]
    assert (info["route"], info["id"], info["merged_id"], oracle.next_id) == (MERGED, 0, 0, 1)
    assert (memory["rpe"], memory["reward"], memory["value"], memory["payload"]) == (6, 3, 4, "new")
    assert (memory["count"], memory["time"], memory["touched"]) == (2, 2, 2)
    assert (memory["strength"], memory["written_strength"], memory["discount"]) == (4, 4, 0)
    assert (memory["recalls"], memory["successes"]) == (5, 6)
    # The mean (1.5, 4.5) has norm 4.743416, the mean norm is (3 + 9) / 2 = 6: times 1.264911.
    np.testing.assert_allclose(memory["embedding"], [1.8973666, 5.6920998], rtol=1e-6)
    assert memory["inv_norm"] == pytest.approx(1 / 6)
    oracle.write(at((0, 9), 12.0, **following))  # a third of the way: 6 + 6 / 3
    assert (memory["rpe"], memory["reward"], memory["count"]) == (8, 2, 3)


def test_merge_of_equals_keeps_the_payload():
    oracle = easy(duplicates="search", duplicate_margin=-0.5)
    oracle.write(at(EAST, payload="old"))
    assert oracle.write(at(EAST, payload="new"))["route"] == MERGED
    assert oracle.core[0]["payload"] == "old"


def test_merge_to_the_zero_vector_stays_zero():
    oracle = easy(duplicates="search", duplicate_similarity=-1)
    oracle.write(at(EAST, 4.0))
    assert oracle.write(at((-1, 0), 8.0))["route"] == MERGED
    assert (oracle.core[0]["embedding"].tolist(), oracle.core[0]["inv_norm"]) == ([0, 0], 0)


def test_other_task_and_routine_are_no_duplicates():
    oracle = easy(duplicates="search")
    oracle.write(at(EAST))
    assert oracle.write(at(EAST, task=1))["route"] == CORE
    assert oracle.write(at(EAST, 0.5))["route"] == DROPPED
    assert (oracle.core[0]["count"], oracle.stats["dropped"]) == (1, 1)


def test_nearest_duplicate_and_lower_slot_on_ties():
    oracle = easy(duplicates="search", duplicate_similarity=0.5, core_capacity=3)
    for embedding, task in ((EAST, 0), ((0, 2), 1), ((2, 0), 1)):
        oracle.write(at(embedding, task=task))
    assert oracle.write(at((1, 0.1), task=1))["id"] == 2
    assert oracle.write(at((1, 1), task=1))["id"] == 1  # .7071 from both


def test_contradiction():
    oracle = easy(duplicates="search", buffer_capacity=4)
    oracle.write(at(EAST, 8.0))  # strength 4
    info = oracle.write(at(EAST, -2.0))
    delight = oracle.core[0]
    assert (info["route"], info["id"]) == (BUFFER, 1)  # a memory of its own
    assert (delight["strength"], delight["contradicted"], delight["touched"]) == (3, True, 1)  # 4 * (1 - 2/8)
    oracle.write(at(EAST, 2.0))  # refreshes it, and is as large as the disaster foretold: 1 * (1 - 1)
    assert (delight["strength"], delight["contradicted"], delight["count"]) == (3, False, 2)
    assert (oracle.buffer[0]["strength"], oracle.buffer[0]["contradicted"]) == (0, True)
    assert oracle.stats["contradicted"] == 2


def test_zero_rpe_is_a_delight_and_is_fully_contradicted():
    oracle = easy(duplicates="search", threshold_low=-1)
    oracle.write(at(EAST, -0.0))
    assert oracle.recall(ask(sign=1))["id"].tolist() == [0, -1, -1]
    oracle.write(at(EAST, -1.0))
    assert (oracle.buffer[0]["contradicted"], oracle.buffer[0]["strength"]) == (True, 0)
    found, oracle.buffer[0]["strength"] = oracle.recall(ask()), np.float32(2)
    oracle.reinforce(found, 0.0, np.ones(3))  # an outcome of 0 says nothing
    assert oracle.buffer[0]["strength"] == 2


# ---- The probe -----------------------------------------------------------------------------------------------------


def test_probe_hits_where_the_last_step_asked():
    oracle = easy(duplicates="probe")
    assert oracle.step(at(EAST, 8.0), ask(EAST, sign=-1, min_age=9))[0]["route"] == CORE  # the first has no probe
    assert oracle.probe is not None
    assert (oracle.probe["task"], list(oracle.probe["slot"]), oracle.probe["cosine"][0]) == (0, [0, 4], 1)
    found = oracle.recall(ask(NORTH))  # neither this nor the next three move the probe
    oracle.reinforce(found, 0.0, np.ones(3))
    oracle.renew(found, np.ones(3))
    oracle.rebase(0)
    assert oracle.step(at(EAST, -4.0), ask(EAST))[0]["route"] == CORE  # no disaster there yet, but contradicts:
    assert oracle.core[0]["strength"] == 2  # 4 * (1 - 4/8)
    assert oracle.write(at(EAST, 8.0))["route"] == REFRESHED
    assert oracle.stats["unprobed"] == 1


@pytest.mark.parametrize("elsewhere", [at(NORTH), at(EAST, task=1), at((1.001, 0))])
def test_probe_misses_elsewhere(elsewhere):
    oracle = easy(duplicates="probe")
    oracle.step(at(EAST), ask())
    assert oracle.write(elsewhere)["id"] == 1
    assert oracle.stats["unprobed"] == 2


def test_probe_knows_its_query_within_a_hundred_thousandth():
    oracle = easy(duplicates="probe")
    for x, unprobed in ((1000.005, 0), (1000.02, 1)):  # .005^2 <= 1e-10 * 1000^2 < .02^2
        oracle.step(at(EAST, valid=False), ask((1000, 0)))
        oracle.write(at((x, 0), 8.0))
        assert oracle.stats["unprobed"] == unprobed
    oracle.step(at(EAST, valid=False), ask((0, 0)))
    oracle.write(at((0, 0)))
    assert oracle.stats["unprobed"] == 1


def test_probe_serves_one_write_and_only_a_valid_one():
    oracle = easy(duplicates="probe")
    oracle.step(at(EAST), ask())
    oracle.write(at(EAST, INF))
    oracle.write(at(EAST, valid=False))
    assert oracle.probe is not None
    assert [oracle.write(at(EAST))["route"] for _ in range(2)] == [REFRESHED, CORE]
    oracle.step(at(EAST), ask((np.nan, 0)))
    assert oracle.probe is None
    unprobed = oracle.stats["unprobed"]
    oracle.write(at(EAST, 0.5))  # dropped: asks for no duplicate
    assert oracle.stats["unprobed"] == unprobed


# ---- Insertion -----------------------------------------------------------------------------------------------------


def test_demotion_chain():
    oracle = easy(core_capacity=1, buffer_capacity=1)

    def write(rpe):
        info = oracle.write(at(EAST, rpe))
        return [info[name] for name in ("route", "id", "tier", "slot", "demoted_id", "evicted_id")]

    assert write(4) == [CORE, 0, 0, 0, -1, -1]
    assert write(8) == [CORE, 1, 0, 0, 0, -1]  # 4 > 2: pushes 0 down
    assert write(16) == [CORE, 2, 0, 0, 1, 0]  # 8 > 4: pushes 1 down, and that pushes 0 out
    assert write(-3) == [REFUSED, -1, 1, 1, -1, -1]  # 1.5 is less than either
    assert write(8) == [REFUSED, -1, 1, 1, -1, -1]  # as strong as the buffer's is not stronger
    assert write(10) == [BUFFER, 3, 1, 0, -1, 1]  # core refuses, the buffer takes it
    assert (ids(oracle.core), ids(oracle.buffer)) == ([2], [3])
    s = oracle.stats
    assert (s["seen"], s["stored"], s["refused"], s["demoted"], s["evicted"]) == (6, 4, 2, 2, 2)


def test_pushed_out_of_core_and_refused_by_the_buffer():
    oracle = easy(core_capacity=1, buffer_capacity=1, threshold_high=6, disaster_half_life=1)
    oracle.write(at(EAST, 5.0))  # buffer, strength 2.5
    oracle.write(at(EAST, -8.0))  # core, strength 4, one step later 2
    info = oracle.write(at(EAST, 7.0))  # 3.5 > 2, and 2 < 2.5
    assert (info["evicted_id"], info["demoted_id"], ids(oracle.core), ids(oracle.buffer)) == (1, -1, [2], [0])


def test_weakest_is_by_effective_strength_and_lower_slot_on_ties():
    oracle = easy(core_capacity=3, buffer_capacity=1, half_life=1)
    for rpe in (16, 4, 4):  # at time 4: 8 / 8, 2 / 4, 2 / 2
        oracle.write(at(EAST, rpe))
    assert oracle.write(at(EAST, 8.0))["demoted_id"] == 1
    oracle = easy(core_capacity=2, buffer_capacity=0)
    assert [oracle.write(at(EAST, rpe))["evicted_id"] for rpe in (4, 4, 8)] == [-1, -1, 0]


def test_a_memory_without_strength_is_weakest_but_not_free():
    oracle = easy(core_capacity=2, buffer_capacity=0)
    oracle.write(at(EAST))
    oracle.core[0]["strength"] = np.float32(0)
    into_free, over_weakest = oracle.write(at(EAST)), oracle.write(at(EAST, 2.5))
    assert (into_free["slot"], into_free["evicted_id"]) == (1, -1)
    assert (over_weakest["slot"], over_weakest["evicted_id"]) == (0, 0)


def test_buffer_by_age_and_frequency():
    oracle = easy(core_capacity=1, buffer_capacity=1, buffer_eviction="age_frequency", buffer_half_life=2)
    oracle.write(at(EAST, 2.0))
    oracle.buffer[0]["successes"] = 1
    # At time 3 the key is log2(2) - 2/2 = 0, the newcomer's 0 is no more. At time 4 it is 1 - 3/2.
    assert [oracle.write(at(EAST, rpe))["route"] for rpe in (0, 2, 2)] == [DROPPED, REFUSED, BUFFER]


# ---- Recall --------------------------------------------------------------------------------------------------------


def two_memories(**changes) -> Oracle:
    """Id 0: (1, 0), rpe 8, strength 4, time 1. Id 1: (3, 4), rpe -4, strength 2, time 2."""
    oracle = easy(**changes)
    oracle.write(at(EAST, 8.0, value=2, payload="a"))
    oracle.write(at((3, 4), -4.0, value=1, task=1))
    return oracle


def test_recall_fields():
    found = two_memories().recall(ask(NORTH))
    np.testing.assert_allclose(found["semantic"], [0, 0.8, 0], rtol=1e-6)
    assert found["salience"].tolist() == [4, 2, 0]
    np.testing.assert_allclose(found["score"], [2, 1.4, -INF], rtol=1e-6)  # 0/2 + 4/2; .8/2 + 2/2
    assert found["score"].dtype == found["rpe"].dtype == np.float32
    assert (found["id"].tolist(), found["rpe"].tolist(), found["valid"].tolist()) == ([0, 1, -1], [8, -4, 0], [1, 1, 0])
    assert (found["tier"].tolist(), found["slot"].tolist()) == ([0, 0, 1], [0, 1, 2])
    assert found["payload"] == ["a", None, None]


def test_empty_memory_zero_vectors_and_non_finite_queries():
    assert not easy().recall(ask())["valid"].any()
    oracle = two_memories()
    assert oracle.recall(ask((0, 0)))["semantic"].tolist() == [0, 0, 0]
    for query in (ask((np.nan, 0)), ask((1e20, 0)), ask(value=INF)):
        assert not oracle.recall(query)["valid"].any()
        assert not oracle.attend(query)[1].any()


def test_ties_and_more_than_there_is():
    oracle = easy(top_k=9)
    for _ in range(4):
        oracle.write(at(EAST))
    found = oracle.recall(ask())
    assert found["id"].tolist() == [0, 1, 2, 3, -1, -1, -1, -1, -1]
    assert found["tier"].tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]


def test_filters():
    oracle = two_memories()  # clock 2: ages 1 and 0
    for given, expected in (
        ({"task": 1}, [1]), ({"task": 2}, []), ({"sign": 1}, [0]), ({"sign": -1}, [1]), ({"sign": 0}, [0, 1]),
        ({"min_age": 1}, [0]), ({"max_age": 0}, [1]), ({"time": 5, "min_age": 4}, [0]),
        ({"time": 0, "max_age": 0}, [1]),
    ):  # fmt: skip
        found = oracle.recall(ask(**given))
        assert found["id"][found["valid"]].tolist() == expected, given


def test_quota():
    oracle = easy(core_capacity=5, top_k=(1, 2))
    for rpe in (8, 10, -4, 12, -6):
        oracle.write(at(EAST, rpe))
    assert oracle.recall(ask())["id"].tolist() == [3, 4, 2]
    assert oracle.recall(ask(sign=1))["id"].tolist() == [3, -1, -1]  # nobody takes the others' places


@pytest.mark.parametrize(
    ("fusion", "scores"),
    [
        # Semantic 0 .8, salience 4 2, weight 1/4: (1/4) norm(semantic) + (3/4) norm(salience).
        ("plain", [3, 1.7]),
        ("min_max", [0.75, 0.25]),
        ("rank", [0.25 / 62 + 0.75 / 61, 0.25 / 61 + 0.75 / 62]),
        # Semantic / .4: weights 1 and e^2 = 7.389, over 8.389. Salience / 2: e and 1, over 3.718.
        ("softmax", [0.25 * 0.119203 + 0.75 * 0.731059, 0.25 * 0.880797 + 0.75 * 0.268941]),
    ],
)
def test_fusion(fusion, scores):
    oracle = two_memories(fusion=fusion, semantic_weight=0.25, semantic_temperature=0.4, salience_temperature=2)
    np.testing.assert_allclose(oracle.recall(ask(NORTH))["score"][:2], scores, rtol=1e-5)


def test_min_max_without_a_span_is_zero():
    assert two_memories(fusion="min_max").recall(ask(sign=1))["score"][0] == 0


def test_saliences():
    fading = {"half_life": 1, "disaster_half_life": 2, "scale": "running", "scale_rate": 1, "value_temperature": 2}
    # Scale 4. At time 3 half_life leaves 1/4 of id 0, and disaster_half_life 1/sqrt(2) of id 1.
    faded = np.array([1 / 4, 1 / np.sqrt(2)])
    for salience, expected in (
        ("strength", faded * [4, 2] / 4),
        ("surprise", faded * [8, 4] / 4),
        ("value", faded * [8, 4] / 4 * np.exp([-3 / 2, -2 / 2])),  # |-1 - 2|, |-1 - 1|
    ):
        oracle = two_memories(salience=salience, warmup=1, buffer_capacity=0, threshold_high=0, **fading)
        found = oracle.recall(ask(time=3, value=-1.0))
        np.testing.assert_allclose(found["salience"][np.argsort(found["id"][:2])], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="value"):
        two_memories(salience="value").recall(ask())


def test_schedules():
    steps = two_memories(weight_schedule="step", schedule_steps=8)  # 1/2 + 1/2 * (1 - 2/8)
    fill = two_memories(weight_schedule="fill", semantic_weight_start=0)  # 1/2 - 1/2 * (1 - 2/4)
    assert (steps.semantic_weight(), fill.semantic_weight(), two_memories().semantic_weight()) == (0.875, 0.25, 0.5)
    steps.clock = 9
    assert steps.semantic_weight() == 0.5


def test_attend():
    oracle = two_memories(semantic_temperature=0.4, salience_temperature=2)
    # Logits: 0 + 4/4 + ln 4, and .8/.8 + 2/4 + ln 2: weights 4 e : 2 e^1.5 = 10.873127 : 8.963378.
    readout, weights = oracle.attend(ask(NORTH))
    np.testing.assert_allclose(weights, [0.548137, 0.451863, 0, 0], atol=1e-6)
    np.testing.assert_allclose(readout, [0.548137 + 3 * 0.451863, 4 * 0.451863], rtol=1e-5)
    fading = two_memories(half_life=1)  # the delight has faded to the disaster's 2, and nothing is like the query
    assert fading.attend(ask((0, 0)))[1].tolist() == [0.5, 0.5, 0, 0]
    for memory in fading.core:
        memory["strength"] = np.float32(0)
    assert not fading.attend(ask())[1].any()
    assert oracle.attend(ask(sign=-1))[1].tolist() == [0, 1, 0, 0]
    assert [x.tolist() for x in easy().attend(ask())] == [[0, 0], [0, 0, 0, 0]]


def test_step_counts_recalls():
    oracle = easy(top_k=1)
    oracle.write(at(EAST))
    info, found = oracle.step(at(NORTH), ask(NORTH))
    assert (info["id"], found["id"].tolist()) == (1, [1])  # the fresh memory may be among them
    oracle.step(at(EAST, valid=False), ask(NORTH, min_age=1))
    assert ([memory["recalls"] for memory in oracle.core], oracle.stats["recalled"]) == ([1, 1], 2)


# ---- Living --------------------------------------------------------------------------------------------------------


def lived() -> tuple[Oracle, dict]:
    """Delight id 0 (strength 4) and disaster id 1 (rpe -4, strength 2) as recalled, half faded, at clock 3."""
    oracle = two_memories(half_life=2, disaster_half_life=1)
    oracle.write(at(EAST, 0.0))
    return oracle, oracle.recall(ask(sign=0))


def test_reinforce_adds_up_to_the_cap():
    oracle, found = lived()
    oracle.reinforce(found, 2.0, np.array([0.5, 0, 0]))
    delight, disaster = oracle.core
    assert (delight["strength"], delight["successes"], delight["touched"]) == (3, 1, 3)  # 2 + 1 * .5 * 2
    assert (disaster["strength"], disaster["successes"], disaster["touched"]) == (2, 0, 2)
    oracle.reinforce(found, 100.0, np.array([1, 0, 0]))
    assert delight["strength"] == 8  # twice 4
    delight["strength"] = np.float32(9)
    oracle.reinforce(found, 100.0, np.array([1, 0, 0]))
    assert delight["strength"] == 9  # what is above the cap stays
    oracle.reinforce(found, 0.0, np.array([1, 1, 1]))
    assert (delight["successes"], disaster["touched"]) == (3, 2)  # nothing came of 0


def test_reinforce_weakens():
    oracle, found = lived()
    oracle.reinforce(found, -2.0, np.array([1, 0.5, 0]))
    delight, disaster = oracle.core
    assert (delight["strength"], delight["touched"]) == (3, 1)  # 4 * (1 - 2/8), still to fade from time 1
    assert disaster["strength"] == 1.5  # 2 * (1 - .5 * 2/4)
    oracle.reinforce(found, -99.0, np.array([5, 1, 1]))
    assert (delight["strength"], disaster["strength"]) == (0, 0)


def test_renew():
    oracle, found = lived()
    oracle.renew(found, np.array([1, 0.5, 1]))
    delight, disaster = oracle.core
    assert (delight["strength"], delight["touched"], delight["successes"]) == (3, 3, 0)  # 2 + .5 * 1 * (4 - 2)
    assert (disaster["strength"], disaster["touched"]) == (1.25, 3)  # 1 + .5 * .5 * (2 - 1)
    delight["strength"] = np.float32(6)
    oracle.renew(found, np.array([1, 0, 0]))
    assert delight["strength"] == 6


def test_stale_and_rejected():
    oracle, found = lived()
    oracle.core[1]["id"] = 7
    oracle.reinforce(found, 2.0, np.array([np.nan, 1, np.nan]))  # the third is not valid: counts in nothing
    oracle.renew(found, np.array([-1, INF, 1]))
    oracle.renew(found, np.zeros(3))  # nobody relied on it: stale or not is no matter
    assert (oracle.stats["stale"], oracle.stats["rejected"]) == (1, 2)
    oracle.reinforce(found, np.nan, np.array([1, 0, 0]))
    assert (oracle.stats["stale"], oracle.stats["rejected"]) == (1, 4)
    assert ([m["strength"] for m in oracle.core], [m["touched"] for m in oracle.core]) == ([4, 2], [1, 2])


# ---- Clock, ids, bad numbers ---------------------------------------------------------------------------------------


def test_clock():
    oracle = easy()
    clocks = []
    for time in (None, 7, 3, None, INT_MAX, None):
        oracle.write(at(EAST, 0.0, time=time))
        clocks.append(oracle.clock)
    assert clocks == [1, 7, 7, 8, INT_MAX, INT_MAX]


def test_rebase_and_ages_saturate():
    oracle = two_memories(half_life=2)
    oracle.rebase(1)
    assert (oracle.clock, [m["time"] for m in oracle.core], [m["touched"] for m in oracle.core]) == (1, [0, 1], [0, 1])
    oracle.rebase(INT_MAX)
    oracle.rebase(INT_MAX)
    assert (oracle.clock, oracle.core[0]["time"]) == (INT_MIN, INT_MIN)
    oracle.write(at(EAST, 0.0, time=INT_MAX))
    found = oracle.recall(ask(min_age=INT_MAX))
    assert (found["id"].tolist(), found["salience"].tolist()) == ([1, 0, -1], [2, 0, 0])


def test_ids_run_out():
    oracle = easy()
    oracle.next_id = INT_MAX - 1
    assert oracle.write(at(EAST))["id"] == INT_MAX - 1
    assert oracle.write(at(EAST))["route"] == DROPPED
    assert (oracle.clock, oracle.stats["dropped"], oracle.stats["exhausted"], oracle.next_id) == (2, 1, 1, INT_MAX)


@pytest.mark.parametrize(
    "bad",
    [at((np.nan, 0)), at((INF, 0)), at((1e20, 0)), at(EAST, np.nan), at(EAST, -INF), at(EAST, reward=INF),
     at(EAST, value=np.nan), at(EAST, discount=np.nan), at(EAST, next_embedding=(0, np.nan))],
)  # fmt: skip
def test_invalid_changes_nothing_but_its_counter(bad):
    oracle = easy(store_next=True)
    info = oracle.write({"next_embedding": EAST, "discount": 1, **bad})
    assert (info["route"], info["id"], oracle.clock, oracle.experienced) == (INVALID, -1, 0, 0)
    assert (oracle.stats["invalid"], sum(oracle.stats.values()), ids(oracle.core)) == (1, 2, [-1, -1])


def test_padding_counts_in_nothing():
    oracle = easy()
    assert oracle.write(at((np.nan, 0), valid=False))["route"] == INVALID
    assert (sum(oracle.stats.values()), oracle.clock, oracle.experienced) == (0, 0, 0)


def test_rewards_times_ten_change_no_decision():
    rng = np.random.default_rng(0)
    lives = [default(warmup=4, duplicates="search") for _ in range(2)]
    for _ in range(60):
        embedding, rpe = rng.integers(-2, 3, 2), rng.integers(-9, 10)
        one, ten = (life.write(at(embedding, float(rpe) * times)) for life, times in zip(lives, (1, 10), strict=True))
        assert [one[n] for n in ("route", "id", "slot")] == [ten[n] for n in ("route", "id", "slot")]
    for life in lives:
        s = life.stats
        assert s["seen"] == sum(s[n] for n in ("invalid", "dropped", "refused", "refreshed", "merged", "stored")) == 60
        assert s["stored"] == sum(memory is not None for memory in life.pool) + s["evicted"]
