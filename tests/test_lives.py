"""Random whole lives, in the core and in the oracle side by side: every operation, the same state after each one.

`EXACT` kinds use numbers that float32 holds exactly (axis vectors, powers of two, gate 1/2, no decay), so that ids,
slots, order and values must agree bit for bit, ties included. `LOOSE` kinds use the defaults and real numbers; there
values agree within a tolerance.
"""

import dataclasses
import itertools
import tempfile
import types
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import checkpoint
from tests import jitted
from tests import oracle_upkeep as upkeep
from tests.oracle import F, Oracle

SMALL: dict[str, Any] = {
    "embedding_dim": 4,
    "core_capacity": 3,
    "buffer_capacity": 4,
    "top_k": 3,
    "warmup": 3,
    "window": 8,
    "min_successes": 1,
    "merge_rounds": 1,
    "moves": 1,
}
DRAWS = 5  # of a replay
UPKEEP = "consolidate", "replay", "reprioritize", "replay and reprioritize", "save and restore"
EXACT_PARAMS = {
    "gate_scale": 0.0, "gate_bias": 0.0, "scale_rate": 1.0, "half_life": np.inf, "disaster_half_life": np.inf,
    "threshold_low": 0.25, "threshold_high": 1.0, "quantile_low": 0.25, "quantile_high": 0.75, "schedule_steps": 16.0,
    "threshold_low_start": 0.0, "threshold_high_start": 4.0, "floor": 0.125, "core_max_age": 30, "buffer_max_age": 20,
    "importance_steps": 32,
}  # fmt: skip
EXACT: dict[str, dict[str, Any]] = {
    "search": {"duplicates": "search", "fusion": "plain"},
    "probe": {"duplicates": "probe", "fusion": "plain", "weight_schedule": "fill"},
    "off": {"duplicates": "off", "fusion": "plain", "top_k": (2, 2), "upkeep": True},
    "quantile": {"duplicates": "search", "fusion": "plain", "thresholds": "quantile",
                 "buffer_eviction": "age_frequency"},
    "core only": {"duplicates": "search", "fusion": "plain", "buffer_capacity": 0, "core_capacity": 1, "top_k": 2},
    "unscaled": {"duplicates": "search", "fusion": "plain", "scale": "none", "smoothing": "rank", "smoothing_window": 4,
                 "weight_schedule": "step", "salience": "surprise", "store_next": True, "merge_rounds": 0},
    "novelty": {"duplicates": "search", "fusion": "plain", "signal": "novelty", "threshold_schedule": "phase"},
    "novelty, probe": {"fusion": "plain", "signal": "novelty", "shadow_capacity": 1, "moves": 0},
    "learned": {"duplicates": "search", "fusion": "plain", "thresholds": "learned", "threshold_schedule": "fill",
                "weight_schedule": "phase", "params": {"threshold_high": 0.75, "threshold_high_start": 0.25}},
    "paper's thresholds": {"duplicates": "off", "fusion": "plain", "thresholds": "paper", "shadow_capacity": 3,
                           "threshold_schedule": "step", "top_k": (1, 2)},
    "bfloat16": {"duplicates": "search", "fusion": "plain", "store_dtype": "bfloat16", "store_next": True},
    "upkeep": {"duplicates": "off", "fusion": "plain", "min_successes": 0, "merge_rounds": 3, "moves": 3,
               "store_next": True, "params": {"replay_exponent": 0.0}, "upkeep": True},
}  # fmt: skip
LOOSE: dict[str, dict[str, Any]] = {
    "defaults": {"upkeep": True},
    "search, mean": {"duplicates": "search", "smoothing": "mean", "smoothing_window": 4, "scale": "none"},
    "ranks": {"duplicates": "search", "fusion": "rank", "salience": "value", "top_k": (1, 2), "signal": "outcome"},
    "paper": {"signal": "paper", "shadow_capacity": 3},
    "paper, probe": {"signal": "paper", "duplicates": "probe", "thresholds": "quantile"},
    "novelty, shadow": {
        "signal": "novelty",
        "duplicates": "search",
        "threshold_schedule": "step",
        "shadow_capacity": 2,
    },
    "int8": {"store_dtype": "int8", "duplicates": "search"},
    "learned, phase": {"thresholds": "learned", "weight_schedule": "phase", "threshold_schedule": "phase"},
}
NIGHTLY = {
    "quantile",
    "novelty",
    "paper's thresholds",
    "ranks",
    "learned",
    "core only",
    "unscaled",
    "novelty, probe",
    "upkeep",
    "search, mean",
    "paper, probe",
    "novelty, shadow",
    "learned, phase",
}
LOOSE_PARAMS = {
    "half_life": 9.0, "disaster_half_life": 15.0, "buffer_half_life": 7.0, "duplicate_similarity": 0.9,
    "schedule_steps": 30, "floor": 0.02, "buffer_max_age": 25, "importance_steps": 32,
}  # fmt: skip

LONG_IS_THE_POINT = [
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.data_too_large,
    hypothesis.HealthCheck.large_base_example,
]

_AXES = np.eye(4, dtype=np.float32)
EXACT_PLACES = np.concatenate([_AXES, -_AXES[:3], np.ones((1, 4)), np.zeros((1, 4))]).astype(np.float32)
_RANDOM = np.random.default_rng(7).normal(size=(6, 4))
LOOSE_PLACES = np.concatenate([_RANDOM, _RANDOM[:3] + 0.05, 3 * _RANDOM[:2] - 0.02]).astype(np.float32)
BAD = [("rpe", np.nan), ("reward", np.inf), ("value", -np.inf), ("embedding", np.nan), ("embedding", 1e20)]
BAD += [("utility", np.nan), ("gate_logit", -np.inf)]

places = st.integers(0, 8)
optional = lambda strategy: st.one_of(st.none(), strategy)  # noqa: E731
experiences = st.fixed_dictionaries(
    {
        "place": places,
        "rpe": st.sampled_from([4.0, -4.0, 1.0, -1.0, 0.5, -0.5, 2.0, 0.0, 8.0, -16.0, 0.125]),
        "value": st.sampled_from([0.0, 1.0, -2.0]),
        "task": optional(st.integers(0, 1)),
        "time": optional(st.integers(-3, 60)),
        "utility": st.sampled_from([1.0, 0.5, 0.25, 0.05, 0.04, 0.0, 2.0, -1.0]),
        "gate_logit": st.sampled_from([0.0] * 10 + [200.0, -200.0]),  # a gate of 1/2, of 1, of 0
        "payload": st.integers(0, 99),
        "valid": st.sampled_from([True] * 9 + [False]),
        "bad": st.sampled_from([None] * 20 + BAD),
    }
)
queries = st.fixed_dictionaries(
    {
        "place": places,
        "value": st.sampled_from([0.0, 1.5]),
        "task": optional(st.integers(0, 1)),
        "sign": optional(st.sampled_from([-1, 0, 1])),
        "min_age": optional(st.integers(0, 3)),
        "max_age": optional(st.integers(0, 9)),
        "time": optional(st.integers(0, 40)),
    }
)
seeds = st.integers(0, 999)
# A query at the place of the next experience is what the probe is for: `again` repeats the last one.
writing = st.one_of(
    st.tuples(st.just("step"), experiences, queries),
    st.tuples(st.just("step again"), experiences, st.just({})),
    st.tuples(st.just("write"), experiences),
)
living = st.one_of(
    st.tuples(st.just("recall"), queries),
    st.tuples(st.just("reinforce"), st.sampled_from([2.0, -1.0, 0.0, 1.0, -4.0, np.nan]), st.integers(0, 15)),
    st.tuples(st.just("renew"), st.integers(0, 15)),
    st.tuples(st.just("rebase"), st.integers(-5, 20)),
    st.tuples(st.just("phase"), st.sampled_from([0.0, 0.25, 1.0])),
)
upkeeping = st.one_of(
    st.tuples(st.just("consolidate"), st.just(False)),
    st.tuples(st.just("consolidate"), st.just(True), seeds),
    st.tuples(st.just("replay"), seeds, st.booleans()),
    st.tuples(st.just("reprioritize"), st.sampled_from([-0.5, 2.0, 0.0]), st.booleans()),
    st.tuples(st.just("replay and reprioritize"), seeds, st.booleans()),
    st.tuples(st.just("save and restore")),
)
kinds_of_operation = st.sampled_from([writing] * 6 + [living] * 2 + [upkeeping])
operations = st.lists(kinds_of_operation.flatmap(lambda kind: kind), min_size=12, max_size=45)


def fresh_rpe(memories):
    """A critic's second opinion, of a batch or of one of the oracle's memories: the opposite; about 1 it has none."""
    xp, rpe = (np, memories["rpe"]) if isinstance(memories, dict) else (jnp, memories.rpe)
    return xp.where(rpe == 1, np.float32(np.nan), np.float32(-0.5) * rpe)


class Life:
    """One memory in the core and one in the oracle."""

    def __init__(self, kinds: dict, params: dict, embeddings: np.ndarray, rtol: float):
        kinds = SMALL | kinds
        params = params | kinds.pop("params", {})
        self.upkeep = kinds.pop("upkeep", False)  # takes half a minute to compile: in short lives only of some kinds
        self.config = (dmem.Config.paper if kinds.get("signal") == "paper" else dmem.Config)(**kinds)
        self.params = dmem.Params.default(self.config, **params)
        plain = {f.name: float(getattr(self.params, f.name)) for f in dataclasses.fields(self.params)}
        self.oracle = Oracle(self.config, types.SimpleNamespace(**plain))
        self.memory = dmem.init(self.config, np.int32(0))
        self.places, self.rtol = embeddings, rtol
        self.last_place, self.recalled, self.batch = 0, None, None

    def run(self, name: str, *arguments) -> None:
        if name in UPKEEP and not self.upkeep:
            return
        getattr(self, name.split()[0] if name != "replay and reprioritize" else "learn")(*arguments)
        self.check_state()
        if name.split()[0] in ("write", "step"):
            self.check_refusal()

    def step(self, drawn: dict, query: dict) -> None:
        if not query:  # where the experience is: the next `step again` can use the probe
            drawn, query = drawn | {"place": self.last_place}, {"place": drawn["place"], "value": 0.0}
        given, told = self.experience(drawn)
        asked, question = self.query(query)
        self.last_place = query["place"]
        self.memory, info = jitted.step(self.config, self.params, self.memory, given, asked)
        expected, self.recalled = self.oracle.step(told, question)
        self.same_info(info.write, expected)
        self.recall_given = info.recall
        self.same_recall(info.recall, self.recalled)

    def write(self, drawn: dict) -> None:
        given, told = self.experience(drawn)
        self.memory, info = jitted.write(self.config, self.params, self.memory, given)
        self.same_info(info, self.oracle.write(told))

    def recall(self, query: dict) -> None:
        asked, question = self.query(query)
        before = jax.device_get(self.memory)
        self.recall_given = jitted.recall(self.config, self.params, self.memory, asked)
        self.recalled = self.oracle.recall(question)
        self.same_recall(self.recall_given, self.recalled)
        jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(self.memory))
        attention = jitted.attend(self.config, self.params, self.memory, asked)
        readout, weights = self.oracle.attend(question)
        np.testing.assert_allclose(attention.readout, readout, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(attention.weights, weights, rtol=2e-4, atol=1e-6)

    def reinforce(self, rpe: float, mask: int) -> None:
        if self.recalled is not None:
            used = self.used(mask)
            self.memory = jitted.reinforce(
                self.config, self.params, self.memory, self.recall_given, np.float32(rpe), used
            )
            self.oracle.reinforce(self.recalled, rpe, used)

    def renew(self, mask: int) -> None:
        if self.recalled is not None:
            used = self.used(mask)
            self.memory = jitted.renew(self.config, self.params, self.memory, self.recall_given, used)
            self.oracle.renew(self.recalled, used)

    def rebase(self, by: int) -> None:
        self.memory = dmem.rebase(self.memory, by)
        self.oracle.rebase(by)

    def phase(self, phase: float) -> None:
        self.params = dataclasses.replace(self.params, phase=jnp.float32(phase))
        self.oracle.params.phase = F(phase)

    def consolidate(self, reprice: bool, seed: int | None = None) -> None:
        if self.rtol > 0 and self.close_calls():
            return
        drawn, more = None, {"rpe_fn": fresh_rpe, "reprice": 2} if reprice else {}
        if seed is not None:  # what it draws by that key
            more |= {"reprice": DRAWS, "key": jax.random.key(seed)}
            drawn = self.pool_slots(self.draw(seed, replacement=False))
        self.memory, report = jitted.consolidate(self.config, self.params, self.memory, **more)
        expected = upkeep.consolidate(self.oracle, fresh_rpe if reprice else None, more.get("reprice", 0), drawn)
        for field in dataclasses.fields(report):
            got, wanted = getattr(report, field.name), expected[field.name]
            self.close(got, np.array(wanted, np.int32).reshape(got.shape), f"report.{field.name}")

    def close_calls(self) -> bool:
        """Whether rounding may decide which two memories are merged first."""
        o, pairs = self.oracle, itertools.combinations(upkeep.live_slots(self.oracle), 2)
        likeness = sorted(upkeep.likeness(o, *pair) for pair in pairs if upkeep.same(o, *pair))
        return bool((np.diff(likeness) < 1e-5).any())

    def replay(self, seed: int, replacement: bool) -> None:
        self.batch = batch = self.draw(seed, replacement)
        slots, probability = self.pool_slots(batch), upkeep.replay_probabilities(self.oracle)
        drawable = int((probability > 0).sum())
        assert len(slots) == (min(drawable, DRAWS) if not replacement else DRAWS * (drawable > 0))
        assert replacement or len(set(slots)) == len(slots)
        valid, rtol = batch.valid, max(self.rtol, 1e-5)
        for row, slot in zip(np.flatnonzero(valid), slots, strict=True):
            memory = self.oracle.pool[slot]
            assert memory["strength"] > 0
            names = {field.name for field in dataclasses.fields(batch)} & {*memory}
            for name in names:
                self.close(getattr(batch, name)[row], memory[name], f"batch.{name}")
        np.testing.assert_allclose(batch.probability[valid], probability[slots], rtol=rtol)
        np.testing.assert_allclose(batch.weight[valid], upkeep.replay_weights(self.oracle, slots), rtol=rtol)
        filler = {"id": -1, "tier": 1, "slot": self.config.buffer_capacity}
        for field in dataclasses.fields(batch):
            values = getattr(batch, field.name)
            if values is not None:
                assert (values[~valid] == filler.get(field.name, 0)).all(), field.name

    def reprioritize(self, factor: float, overwrite: bool) -> None:
        """The last batch, most of which may be gone; one row without a number."""
        if self.batch is not None:
            rpe = np.float32(factor) * self.batch.rpe
            rpe[1] = np.nan
            self.memory = jitted.reprioritize(
                self.config, self.params, self.memory, self.batch, rpe, overwrite=overwrite
            )
            upkeep.reprioritize(self.oracle, dict(vars(self.batch)), rpe, overwrite)

    def learn(self, seed: int, replacement: bool) -> None:
        self.replay(seed, replacement)
        self.reprioritize(-0.5, overwrite=replacement)

    def draw(self, seed: int, replacement: bool) -> dmem.ReplayBatch:
        key = jax.random.key(seed)
        batch = jitted.replay(self.config, self.params, self.memory, key, size=DRAWS, replacement=replacement)
        return jax.device_get(batch)

    def pool_slots(self, batch: dmem.ReplayBatch) -> list[int]:
        return (batch.slot + batch.tier * self.config.core_capacity)[batch.valid].tolist()

    def save(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save(f"{folder}/memory", self.config, self.params, self.memory)
            restored = checkpoint.restore(f"{folder}/memory", np.int32(0))
        assert restored.config == self.config
        jax.tree.map(np.testing.assert_array_equal, restored.params, self.params)
        self.memory, self.params = restored.memory, restored.params

    def used(self, mask: int) -> np.ndarray:
        return np.array([float(mask >> i & 1) for i in range(self.config.recalled)], np.float32)

    def experience(self, drawn: dict) -> tuple[dmem.Experience, dict]:
        told = {
            "embedding": self.places[drawn["place"]], "rpe": np.float32(drawn["rpe"]),
            "value": np.float32(drawn["value"]), "valid": drawn["valid"],
            "reward": np.float32(drawn["rpe"] + drawn["value"]), "discount": np.float32(0.5), "task": drawn["task"],
            "utility": np.float32(drawn.get("utility", 1)), "gate_logit": np.float32(drawn.get("gate_logit", 0)),
            "next_embedding": self.places[0], "time": drawn["time"], "payload": drawn["payload"],
        }  # fmt: skip
        if self.rtol > 0:
            told["gate_logit"] /= 100
        if drawn["bad"]:
            name, number = drawn["bad"]
            told[name] = np.full_like(told[name], number)
        fields: dict[str, Any] = {k: v for k, v in told.items() if k not in ("task", "time", "payload", "valid")}
        fields |= {"task": np.int32(told["task"] or 0), "valid": np.bool_(told["valid"])}
        fields |= {"time": np.int32(dmem.UNSET if told["time"] is None else told["time"])}
        given = dmem.Experience(**fields, payload=np.int32(told["payload"]))
        return given, told

    def query(self, drawn: dict) -> tuple[dmem.Query, dict]:
        told = {"embedding": self.places[drawn["place"]]} | {k: v for k, v in drawn.items() if k != "place"}
        filled = {"task": dmem.UNSET, "sign": 0, "min_age": 0, "max_age": 2**31 - 1, "time": dmem.UNSET}
        fields: dict[str, Any] = {k: np.int32(v if told.get(k) is None else told[k]) for k, v in filled.items()}
        fields |= {"embedding": told["embedding"], "value": np.float32(drawn["value"])}
        return dmem.Query(**fields), told

    def close(self, got, expected, name: str) -> None:
        got, expected = np.asarray(got), np.asarray(expected)
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, expected, err_msg=name)
        elif self.rtol == 0:
            np.testing.assert_array_equal(got, expected.astype(np.float32), err_msg=name)
        else:
            np.testing.assert_allclose(got, expected, rtol=self.rtol, atol=1e-5, err_msg=name)

    def same_info(self, info: dmem.WriteInfo, expected: dict) -> None:
        for field in dataclasses.fields(info):
            self.close(getattr(info, field.name), expected[field.name], f"info.{field.name}")

    def same_recall(self, recall: dmem.Recall, expected: dict) -> None:
        payload = [0 if kept is None else kept for kept in expected["payload"]]
        for field in dataclasses.fields(recall):
            wanted = payload if field.name == "payload" else expected[field.name]
            self.close(getattr(recall, field.name), wanted, f"recall.{field.name}")

    def check_state(self) -> None:
        memory, oracle = jax.device_get(self.memory), self.oracle
        for name, tier, slots in (("core", memory.core, oracle.core), ("buffer", memory.buffer, oracle.buffer)):
            for i, expected in enumerate(slots):
                if expected is None:
                    assert tier.id[i] == -1, f"{name}[{i}] should be free"
                    continue
                for field, wanted in expected.items():
                    self.close(self.as_given(tier, field, i), wanted, f"{name}[{i}].{field}")
        for counter, wanted in oracle.stats.items():
            assert getattr(memory.stats, counter) == wanted, counter
        assert (memory.clock, memory.next_id) == (oracle.clock, oracle.next_id)
        assert memory.probe.valid == (oracle.probe is not None)
        if oracle.probe:
            self.close(memory.probe.similarity, oracle.probe["cosine"], "probe.similarity")
            there = np.isfinite(memory.probe.similarity)
            np.testing.assert_array_equal(memory.probe.slot[there], np.array(oracle.probe["slot"])[there])
            if self.config.reads_similarity:
                self.close(memory.probe.closest, oracle.probe["closest"], "probe.closest")
        for place, expected in enumerate(oracle.shadow):
            assert (place < memory.shadow.filled) == (expected is not None)
            for field in ("embedding", "inv_norm", "rpe", "task", "time", "payload") if expected else ():
                self.close(getattr(memory.shadow, field)[place], expected[field], f"shadow[{place}].{field}")
        self.check_invariants(memory)

    def as_given(self, tier: dmem.Store, field: str, i: int) -> np.ndarray:
        """A field of a memory in the units of what was given."""
        scale = 1 if tier.scale is None else tier.scale[i]
        units = {"embedding": scale, "inv_norm": 1 / scale if scale > 0 else 0}
        stored = getattr(tier, field)[i]
        return np.float32(units[field]) * stored.astype(np.float32) if field in units else stored

    def check_invariants(self, memory: dmem.Memory) -> None:
        ids = np.concatenate([memory.core.id, memory.buffer.id])
        live, s = ids[ids >= 0], memory.stats
        assert len(set(live)) == len(live)
        assert s.seen == s.invalid + s.dropped + s.refused + s.refreshed + s.merged + s.stored
        assert s.stored == len(live) + s.evicted + s.forgotten + s.merged_later
        assert (live < memory.next_id).all()
        assert memory.core.id.shape + memory.buffer.id.shape == (self.config.core_capacity, self.config.buffer_capacity)
        for leaf in jax.tree.leaves((memory.core, memory.buffer, memory.router, memory.shadow)):
            assert np.isfinite(np.asarray(leaf, np.float32)).all()
        for tier in (memory.core, memory.buffer):
            assert (tier.strength >= 0).all()
            assert (tier.count[tier.id >= 0] >= 1).all()

    def check_refusal(self) -> None:
        """Right after a write nothing in core is weaker than what core refused, or pushed out, in it."""
        refused, core, p = self.oracle.core_refused, self.memory.core, self.params
        if refused is not None:
            age = np.asarray(self.memory.clock - core.touched, np.float64)
            half_life = np.where(core.rpe >= 0, p.half_life, p.disaster_half_life)
            strength = core.strength * np.exp2(-age / half_life)
            assert (core.id >= 0).all()
            assert (strength >= 0.99999 * self.oracle.effective(refused, self.oracle.clock)).all()


def kinds_of(group: dict[str, dict[str, Any]]) -> list:
    """Each compiles for half a minute: those whose parts others share are left to the nightly run."""
    marks = {name: [pytest.mark.slow] if name in NIGHTLY else [] for name in group}
    return [pytest.param(kinds, id=name, marks=marks[name]) for name, kinds in group.items()]


@pytest.mark.parametrize("kinds", kinds_of(EXACT))
@hypothesis.given(operations)
@hypothesis.settings(max_examples=12)
def test_exact_lives_agree_bit_for_bit(kinds, drawn):
    life = Life(kinds, EXACT_PARAMS, EXACT_PLACES, rtol=0)
    for operation in drawn:
        life.run(*operation)


@pytest.mark.parametrize("kinds", kinds_of(LOOSE))
@hypothesis.given(operations)
@hypothesis.settings(max_examples=12)
def test_loose_lives_agree(kinds, drawn):
    life = Life(kinds, LOOSE_PARAMS, LOOSE_PLACES, rtol=2e-4)
    for operation in drawn:
        life.run(*operation)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [*EXACT.values(), *LOOSE.values()], ids=[*EXACT, *(f"loose {k}" for k in LOOSE)])
@hypothesis.given(st.lists(operations, min_size=3, max_size=3))
@hypothesis.settings(max_examples=25, suppress_health_check=LONG_IS_THE_POINT)
def test_long_lives_agree(kinds, drawn):
    exact = kinds in EXACT.values()
    kinds = kinds | {"upkeep": True}
    life = Life(kinds, *((EXACT_PARAMS, EXACT_PLACES, 0) if exact else (LOOSE_PARAMS, LOOSE_PLACES, 1e-3)))
    for part in drawn:
        for operation in part:
            life.run(*operation)
        life.run("consolidate", True)  # without a key the strongest are priced anew: short lives leave that out


@pytest.mark.parametrize("fusion", ["softmax", "min_max", "rank", "plain"])
@pytest.mark.parametrize("salience", ["strength", "surprise", "value"])
def test_every_fusion_of_every_salience(fusion, salience):
    """On distinct places: min-max blows the rounding of equal cosines up to its whole range, so lives leave it out."""
    life = Life({"fusion": fusion, "salience": salience, "duplicates": "off"}, LOOSE_PARAMS, LOOSE_PLACES, rtol=2e-4)
    common = {"value": 0.5, "task": None, "time": None, "payload": 0, "valid": True, "bad": None}
    for place, rpe in enumerate([4.0, -2.5, 9.0, 1.5, -7.0, 3.0]):
        life.run("write", common | {"place": place, "rpe": rpe})
    life.run("recall", {"place": 7, "value": 1.5})
    life.run("recall", {"place": 2, "value": -1.0, "sign": -1})


@pytest.mark.parametrize("exact", [True, False])
def test_leftovers_are_merged_and_the_proven_promoted(exact):
    """Random lives seldom leave more than a pair: here seven memories of three places, one of both signs."""
    kinds: dict[str, Any] = {"duplicates": "off", "fusion": "plain", "merge_rounds": 4, "moves": 2, "warmup": 2}
    kinds |= {"scale": "none", "core_capacity": 5, "upkeep": True}
    kinds["params"] = {"threshold_low": 0.25, "threshold_high": 2.0, "floor": 0.0}
    life = Life(kinds, *((EXACT_PARAMS, EXACT_PLACES, 0) if exact else (LOOSE_PARAMS, LOOSE_PLACES, 2e-4)))
    common = {"value": 1.0, "time": None, "valid": True, "bad": None}
    # Loosely, a place and one near it: no two pairs are equally close.
    places = [0, 0, 0, 1, 1, 0, 3] if exact else [0, 6, 3, 1, 7, 0, 4]
    for payload, (place, rpe) in enumerate(zip(places, [1.0, 2.0, 8.0, -4.0, -1.0, -8.0, 0.5], strict=True)):
        life.run("write", common | {"place": place, "rpe": rpe, "payload": payload, "task": int(rpe == 0.5)})
    for task in (0, 1):
        life.run("recall", {"place": 1, "value": 0.0, "task": task})
        life.run("reinforce", 2.0, 7)
    life.run("consolidate", False)
    assert life.oracle.stats["merged_later"] >= 2
    assert life.oracle.stats["promoted"] >= 1
    life.run("consolidate", False)


def test_many_leftovers_are_merged_in_order():
    """A merge changes who is nearest to whom: forty memories about six places, merged again and again."""
    random = np.random.default_rng(5)
    places = random.normal(size=(6, 4))[np.arange(40) % 6] + 0.15 * random.normal(size=(40, 4))
    kinds = {"duplicates": "off", "fusion": "plain", "merge_rounds": 16, "core_capacity": 12, "buffer_capacity": 28,
             "moves": 0, "upkeep": True, "params": {"threshold_low": 0.0, "duplicate_similarity": 0.95}}  # fmt: skip
    life = Life(
        kinds,
        LOOSE_PARAMS | {"half_life": 1e6, "buffer_max_age": 1e6, "floor": 0.0},
        places.astype(np.float32),
        rtol=2e-4,
    )
    common = {"value": 1.0, "time": None, "valid": True, "bad": None, "payload": 0}
    for place in range(40):
        rpe = (1.0 + random.random()) * (-1.0 if place % 5 == 0 else 1.0)
        life.run("write", common | {"place": place, "rpe": rpe, "task": int(place % 7 == 0)})
    for _ in range(2):
        life.run("consolidate", False)
    assert life.oracle.stats["merged_later"] >= 10
