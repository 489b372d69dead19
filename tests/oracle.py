"""D-MEM for one agent, slow and obvious: the definition the library is tested against.

An agent meets an experience: an embedding of where it was, and a reward prediction error (rpe) that says how much
better or worse it went than foretold. `Oracle.write` takes one experience in; the rules it calls stand below it in the
order it calls them: signal, size against the usual surprise, route, duplicates, insertion. `recall` reads; `reinforce`
and `renew` keep what proved useful. rpe >= 0 is a delight, rpe < 0 a disaster. `tests.oracle_upkeep` consolidates and
replays.

A memory is a dict. The pool is a list of slots, core's first, then the buffer's; a free slot holds None. Whatever is
stored or decided upon is rounded to float32 (`F`) step by step; clocks and counters stop at the ends of int32. Ties go
to the lower slot. None of this is shared with the library.

Letters in shapes: D embedding size, N slots of the pool, k recalled memories, T steps of a trajectory.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np

F = np.float32
FLOAT_MAX, FLOAT_TINY = np.finfo(F).max, np.finfo(F).tiny
INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
INVALID, DROPPED, BUFFER, CORE, REFRESHED, MERGED, REFUSED = range(7)
SHADOW = 2  # the tier of a recalled row that lies in the shadow ring; core is 0, buffer 1
OUTCOMES = "seen invalid dropped refused refreshed merged stored"
EVENTS = "evicted forgotten merged_later promoted demoted contradicted recalled unprobed stale rejected exhausted"
OFF = {"threshold_schedule": "constant", "shadow_capacity": 0, "store_dtype": "float32"}


def saturate(number: int) -> int:
    return max(INT_MIN, min(number, INT_MAX))


def dot(a, b):
    """Summed exactly and rounded once: too large a sum is inf, too small a sum 0."""
    return F(np.dot(np.float64(a), np.float64(b)))


def norm(vector):
    return np.sqrt(dot(vector, vector))


def inverse_norm(vector):
    return F(0) if norm(vector) == 0 else F(1) / norm(vector)


def share_smaller(earlier, this):
    """Which share of the earlier numbers was strictly smaller; 0 where there were none."""
    return F(sum(x < this for x in earlier) / len(earlier)) if earlier else F(0)


def contrast(new_rpe, old_rpe):
    """How much an outcome counts against what a memory foretold: at most 1."""
    return F(1) if old_rpe == 0 else min(F(1), abs(new_rpe) / abs(old_rpe))


def sigmoid(x):
    return F(np.exp(-np.logaddexp(0, -np.float64(x))))


def is_delight(memory) -> bool:
    return bool(memory["rpe"] >= 0)


class Oracle:
    """config and params: any objects with the fields of the library's Config and Params; those of OFF may lack."""

    def __init__(self, config: Any, params: Any):
        self.config: Any = SimpleNamespace(**(OFF | vars(config)))
        self.params: Any = SimpleNamespace(**{name: F(value) for name, value in vars(params).items()})
        self.pool: list[Any] = [None] * (config.core_capacity + config.buffer_capacity)
        self.clock, self.next_id = 0, 0
        self.stats: dict[str, int] = dict.fromkeys(f"{OUTCOMES} {EVENTS}".split(), 0)
        self.probe: dict | None = None
        self.core_refused: dict | None = None  # by the last write: turned away, or pushed out
        self.shadow: list[Any] = [None] * self.config.shadow_capacity
        self.shadow_next = 0
        self.similarities: deque = deque(maxlen=50)  # of the paper's critic
        self.experienced = 0  # valid experiences so far, dropped ones too, as in the three that follow
        self.magnitudes: deque = deque(maxlen=config.window if config.smoothing == "rank" else config.smoothing_window)
        self.sizes: deque = deque(maxlen=config.window)
        self.mean, self.weight = F(0), F(0)  # of |rpe|: exponential mean, and the weight it has gathered

    @property
    def core(self) -> list[Any]:
        return self.pool[: self.config.core_capacity]

    @property
    def buffer(self) -> list[Any]:
        return self.pool[self.config.core_capacity :]

    def place(self, slot: int) -> dict:
        """A pool slot as tier (0 core, 1 buffer) and slot within it; the pool's length means nowhere."""
        tier = int(slot >= self.config.core_capacity)
        return {"tier": tier, "slot": slot - tier * self.config.core_capacity}

    def count(self, name: str):
        self.stats[name] = saturate(self.stats[name] + 1)

    # ---- Writing -----------------------------------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def write(self, experience: dict) -> dict:
        """Take one experience in: embedding [D], rpe, reward, value, discount, next_embedding [D], task, time, utility,
        gate_logit, payload, valid, each None or left out where not given. Returns WriteInfo."""
        self.core_refused = None
        info: dict = {"route": INVALID, "id": -1, **self.place(len(self.pool)), "rpe": F(0), "size": F(0), "gate": F(0)}
        info |= {"evicted_id": -1, "demoted_id": -1, "merged_id": -1}
        if not experience.get("valid", True):  # padding: as if it were not there
            return info
        self.count("seen")
        new, (utility, gate_logit) = self.as_memory(experience), self.extras(experience)
        numbers = [new[name] for name in new if name not in ("payload", "task")] + [utility, gate_logit]
        if not all(np.isfinite(number).all() for number in numbers):
            self.count("invalid")
            return info

        probe, self.probe = self.usable_probe(new), None  # a probe serves one write
        new["rpe"] = info["rpe"] = self.signal(new, utility, probe)
        low, high = (
            self.scheduled(name, self.config.threshold_schedule) for name in ("threshold_low", "threshold_high")
        )
        time, magnitude = experience.get("time"), abs(new["rpe"])
        self.clock = saturate(self.clock + 1) if time is None else max(self.clock, int(time))
        new["time"] = new["touched"] = self.clock
        size = info["size"] = self.size(magnitude)
        opening = info["gate"] = self.opening(size, gate_logit)
        route = info["route"] = self.route(size, opening, magnitude, low, high)
        new["strength"] = new["written_strength"] = opening * magnitude
        self.take_in(size, magnitude)
        if route == DROPPED:  # ends here: routine refreshes nothing
            self.count("dropped")
            self.keep_shadow(new)
            return info

        repeated, opposed = self.duplicates(new, probe)
        if opposed is not None:
            self.contradict(self.pool[opposed], new)
        new |= self.kept(new["embedding"])
        if repeated is None:
            return info | self.insert(new, route)
        old = self.pool[repeated]
        if abs(new["rpe"]) > (F(1) + self.params.duplicate_margin) * abs(old["rpe"]):
            info["route"] = MERGED
            self.merge(old, new)
        else:
            info["route"] = REFRESHED
            self.refresh(old, new)
        self.count("merged" if info["route"] == MERGED else "refreshed")
        return info | {"id": old["id"], "merged_id": old["id"], **self.place(repeated)}

    def as_memory(self, experience: dict) -> dict:
        given = {"reward": 0, "value": 0, "task": 0, "payload": None}
        given["rpe"] = 0 if self.config.signal in ("novelty", "paper") else np.nan
        given |= {name: value for name, value in experience.items() if value is not None}
        embedding, reward, value = np.asarray(given["embedding"], F), F(given["reward"]), F(given["value"])
        if self.config.signal == "outcome" and experience.get("rpe") is None:
            given["rpe"] = outcome_error(reward, value)
        memory: dict = {"embedding": embedding, "rpe": F(given["rpe"]), "reward": reward, "value": value}
        # A vector whose squares sum to infinity has no norm: the experience is invalid.
        memory["inv_norm"] = inverse_norm(embedding) if np.isfinite(norm(embedding)) else F(np.nan)
        memory |= {"task": int(given["task"]), "payload": given["payload"]}
        memory |= {"recalls": 0, "successes": 0, "count": 1, "contradicted": False}
        if self.config.store_next:
            memory |= {"next_embedding": np.asarray(given["next_embedding"], F), "discount": F(given["discount"])}
        return memory

    def kept(self, embedding) -> dict:
        """What an embedding is once it is stored: bfloat16 cuts each number to 8 bits, rounding to even; int8 brings a
        row to whole multiples of a 127th of its greatest number."""
        stored = embedding
        if self.config.store_dtype == "bfloat16":
            bits = embedding.view(np.uint32)
            stored = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(F)
        if self.config.store_dtype == "int8":
            step = abs(embedding).max() / F(127)
            stored = step * np.rint(embedding / step) if step > 0 else F(0) * embedding
        return {"embedding": stored, "inv_norm": inverse_norm(stored) if norm(embedding) > 0 else F(0)}

    def extras(self, experience: dict):
        """What takes part in the decision and is not stored. A utility that nobody reads is as good as 1."""
        utility, gate_logit = experience.get("utility"), experience.get("gate_logit")
        ignored = self.config.signal != "paper" or utility is None
        return F(1) if ignored else np.clip(F(utility), F(0), F(1)), F(0) if gate_logit is None else F(gate_logit)

    def signal(self, new: dict, utility, probe: dict | None):
        """The rpe, where it depends on how near the nearest memory is, whatever its task and sign."""
        if self.config.signal not in ("novelty", "paper"):
            return new["rpe"]
        known = self.config.duplicates != "probe" or probe is not None  # a useless probe tells nothing
        closest = probe["closest"] if probe else self.closest(new["embedding"])
        if self.config.signal == "novelty":
            novelty = max(F(0), F(1) - closest) if closest > -np.inf else F(1)
            rpe = new["rpe"] + self.params.novelty_weight * novelty if known else new["rpe"]
            return min(max(rpe, -FLOAT_MAX), FLOAT_MAX)
        unlikeness = self.unlikeness(closest, known)
        return F(0) if utility < F(0.05) else min(F(1), utility * (unlikeness + F(0.4)))

    def closest(self, embedding):
        return max((self.cosine(memory, embedding) for memory in self.pool if memory is not None), default=F(-np.inf))

    def unlikeness(self, closest, known: bool):
        """The paper's surprise, in [0, 1]: how far the similarity is below those of the last fifty."""
        if not known or closest == -np.inf:
            return F(1)
        self.similarities.append(closest)
        live = sum(memory is not None for memory in self.pool)
        if live < 5 or len(self.similarities) < 5:
            return F(1)
        last = np.array(self.similarities, np.float64)
        return sigmoid((last.mean() - closest) / max(last.std(), 0.01))

    def size(self, magnitude):
        """|rpe|, smoothed, in multiples of the usual |rpe| before it."""
        smoothed = magnitude
        if self.config.smoothing == "mean":
            last = [*self.magnitudes, magnitude][-self.config.smoothing_window :]
            smoothed = F(np.mean(np.array(last, np.float64)))
        elif self.config.smoothing == "rank":
            smoothed = share_smaller(self.magnitudes, magnitude)
        if self.config.scale == "running" and self.experienced == 0:
            return F(1)
        return min(smoothed / self.scale(), FLOAT_MAX)

    def scale(self):
        if self.config.scale == "none" or self.experienced == 0:
            return F(1)
        return min(max(self.mean, FLOAT_TINY), FLOAT_MAX)

    def opening(self, size, gate_logit: Any = 0):
        """How far the gate opens, in [0, 1]."""
        return sigmoid(float(self.params.gate_scale) * float(size) - float(self.params.gate_bias) + float(gate_logit))

    def route(self, size, opening, magnitude, low, high) -> int:
        p, warming_up = self.params, self.experienced < self.config.warmup
        if self.config.thresholds == "paper":
            route = CORE if size >= high else BUFFER if size >= low or warming_up else DROPPED
        elif warming_up:
            route = (BUFFER if self.buffer else CORE) if magnitude > 0 else DROPPED
        elif self.config.thresholds == "quantile":
            share = share_smaller(self.sizes, size)
            route = CORE if share >= p.quantile_high else DROPPED if share < p.quantile_low else BUFFER
        else:
            level = opening if self.config.thresholds == "learned" else size
            route = CORE if level > high else BUFFER if level > low else DROPPED
        if route != DROPPED and self.next_id == INT_MAX:  # no id is left for anything new
            self.count("exhausted")
            return DROPPED
        return route

    def take_in(self, size, magnitude):
        rate = self.params.scale_rate
        self.weight = (F(1) - rate) * self.weight + rate  # what all that was seen weighs; the newest weighs `rate`
        self.mean += rate / self.weight * (magnitude - self.mean)
        self.magnitudes.append(magnitude)
        self.sizes.append(size)
        self.experienced += 1

    def scheduled(self, name: str, schedule: str):
        """A parameter, or where it stands on its way from its start value."""
        progress = F(1)
        if schedule == "step":
            progress = F(self.clock) / self.params.schedule_steps
        elif schedule == "fill":
            progress = F(sum(memory is not None for memory in self.pool) / len(self.pool))
        elif schedule == "phase":
            progress = self.params.phase
        return getattr(self.params, name) if schedule == "constant" else self.on_the_way(name, progress)

    def on_the_way(self, name: str, progress):
        start, end = getattr(self.params, f"{name}_start"), getattr(self.params, name)
        return end + (start - end) * min(max(F(0), F(1) - progress), F(1))

    def keep_shadow(self, dropped: dict):
        if self.shadow:
            self.shadow[self.shadow_next] = dropped
            self.shadow_next = (self.shadow_next + 1) % len(self.shadow)

    # ---- Duplicates and opposites ------------------------------------------------------------------------------------

    def duplicates(self, new: dict, probe: dict | None) -> tuple[int | None, int | None]:
        """Pool slots of the memory that the newcomer repeats and of the one, of opposite sign, that it contradicts."""
        if self.config.duplicates == "off":
            return None, None
        if self.config.duplicates == "search":
            nearest = self.nearest(new["embedding"], new["task"])
        elif probe:
            nearest = list(zip(probe["slot"], probe["cosine"], strict=True))
        else:
            self.count("unprobed")
            return None, None
        close = [slot if cosine >= self.params.duplicate_similarity else None for slot, cosine in nearest]
        repeated, opposed = (close[0], close[1]) if is_delight(new) else (close[1], close[0])
        return repeated, opposed if new["rpe"] != 0 else None  # nothing speaks against nothing

    def nearest(self, embedding, task: int) -> list[tuple[int, Any]]:
        """Pool slot and cosine of the nearest delight and of the nearest disaster of that task; N and -inf for none."""
        best = [(len(self.pool), F(-np.inf))] * 2
        for slot, memory in enumerate(self.pool):
            if memory is not None and memory["task"] == task:
                sign, cosine = 0 if is_delight(memory) else 1, self.cosine(memory, embedding)
                if cosine > best[sign][1]:
                    best[sign] = slot, cosine
        return best

    def cosine(self, memory: dict, embedding):
        return dot(memory["embedding"], embedding) * memory["inv_norm"] * inverse_norm(embedding)

    def usable_probe(self, new: dict) -> dict | None:
        """The probe, if it is of the newcomer's embedding and task."""
        if self.probe is None or self.probe["task"] != new["task"]:
            return None
        query = self.probe["embedding"]
        away = new["embedding"] - query
        return self.probe if dot(away, away) <= F(1e-10) * dot(query, query) else None

    def contradict(self, old: dict, new: dict):
        old["strength"] *= max(F(0), F(1) - self.params.weaken_rate * contrast(new["rpe"], old["rpe"]))
        old["contradicted"] = True
        self.count("contradicted")

    def refresh(self, old: dict, new: dict):
        old["strength"] = max(self.effective(old, self.clock), new["strength"])
        old.update(touched=self.clock, count=saturate(old["count"] + 1), contradicted=False)

    def merge(self, old: dict, new: dict):
        def mean(a, b):  # over all the experiences that the memory stands for
            n = F(old["count"]) + F(1)
            return a + (b / n - a / n)  # a difference of two huge numbers could overflow

        embedding = mean(old["embedding"], new["embedding"])
        embedding = embedding * (mean(norm(old["embedding"]), norm(new["embedding"])) * inverse_norm(embedding))
        merged = {name: mean(old[name], new[name]) for name in ("rpe", "reward", "value")}
        merged |= self.kept(embedding) | {"time": self.clock}
        larger = new if abs(new["rpe"]) > abs(old["rpe"]) else old
        merged |= {name: larger[name] for name in ("payload", "next_embedding", "discount") if name in larger}
        self.refresh(old, new)
        old.update(merged | {"written_strength": old["strength"]})

    # ---- Insertion ---------------------------------------------------------------------------------------------------

    def insert(self, new: dict, route: int) -> dict:
        """Store a new memory. What core refuses, and what is pushed out of core, tries the buffer."""
        new["id"] = self.next_id
        slot, out = self.enter(new, route)
        if slot is None and route == CORE:
            self.core_refused, route = new, BUFFER
            slot, out = self.enter(new, route)
        if slot is None:
            self.count("refused")
            return {"route": REFUSED}
        self.count("stored")
        self.next_id += 1
        info = {"route": route, "id": new["id"], **self.place(slot)}
        if out is not None and route == CORE:
            self.core_refused = pushed_down = out
            below, out = self.enter(out, BUFFER)
            if below is None:
                out = pushed_down
            else:
                self.count("demoted")
                info["demoted_id"] = pushed_down["id"]
        if out is not None:
            self.count("evicted")
            info["evicted_id"] = out["id"]
        return info

    def enter(self, memory: dict, tier: int) -> tuple[int | None, dict | None]:
        """Over what stands lowest in the tier, if that stands lower. Returns the pool slot and whom it pushed out."""
        core = self.config.core_capacity
        slots = range(core) if tier == CORE else range(core, len(self.pool))
        slot = min(slots, key=lambda s: self.standing(self.pool[s], tier), default=None)
        if slot is None or not self.standing(memory, tier) > self.standing(self.pool[slot], tier):
            return None, None
        out, self.pool[slot] = self.pool[slot], memory
        return slot, out

    def standing(self, memory: dict | None, tier: int):
        """A free slot below any memory; memories by log2 of effective strength, or by success and age."""
        if memory is None:
            return 0, 0
        if tier == BUFFER and self.config.buffer_eviction == "age_frequency":
            age = F(min(self.clock - memory["touched"], INT_MAX))
            return 1, np.log2(F(1) + F(memory["successes"])) - age / self.params.buffer_half_life
        return 1, self.log_effective(memory, self.clock)

    def faded(self, memory: dict, now: int):
        """log2 of what is left of a memory since it was last touched."""
        half_life = self.params.half_life if is_delight(memory) else self.params.disaster_half_life
        return -F(min(now - memory["touched"], INT_MAX)) / half_life

    def log_effective(self, memory: dict, now: int):
        return np.log2(memory["strength"]) + self.faded(memory, now)

    def effective(self, memory: dict, now: int):
        return F(memory["strength"] * np.exp2(float(self.faded(memory, now))))

    # ---- Reading -----------------------------------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def recall(self, query: dict) -> dict:
        """The best memories, best first, then three rows for the shadow, if there is one. query: embedding [D], value,
        task, sign (0 both), min_age, max_age, time, each None or left out where not given. Returns Recall, [k] each; a
        payload that is not valid is None."""
        slots, semantic, salience = self.terms(query)
        w, p, fusion = self.semantic_weight(), self.params, self.config.fusion
        score = w * normalised(semantic, fusion, p.semantic_temperature)
        score = score + (F(1) - w) * normalised(salience, fusion, p.salience_temperature)

        best, k = np.argsort(-score, kind="stable").tolist(), self.config.top_k
        if isinstance(k, tuple):  # a quota for each sign
            delights = [i for i in best if is_delight(self.pool[slots[i]])][: k[0]]
            disasters = [i for i in best if not is_delight(self.pool[slots[i]])][: k[1]]
            best, k = [i for i in best if i in delights + disasters], sum(k)
        nothing: dict = {"id": -1, "score": F(-np.inf), "semantic": F(0), "salience": F(0), "rpe": F(0)}
        nothing |= {"contradicted": False, "payload": None, "valid": False, **self.place(len(self.pool))}
        rows = [nothing] * k
        for row, i in enumerate(best[:k]):
            stored = {name: self.pool[slots[i]][name] for name in ("id", "rpe", "contradicted", "payload")}
            terms = {"score": score[i], "semantic": semantic[i], "salience": salience[i]}
            rows[row] = {**stored, **terms, "valid": True, **self.place(slots[i])}
        if self.shadow:
            rows += (self.shadowed(query, semantic) + [nothing] * 3)[:3]
        columns = {name: [row[name] for row in rows] for name in nothing}
        return {name: column if name == "payload" else np.array(column) for name, column in columns.items()}

    def shadowed(self, query: dict, semantic) -> list[dict]:
        """What was dropped and is like the query, most alike first, where no memory is."""
        if any(semantic >= self.params.shadow_below):
            return []
        q, rows = self.asked(query), []
        for slot, dropped in enumerate(self.shadow):
            if dropped is not None and self.asked_for(dropped, q):
                cosine = self.cosine(dropped, q.embedding)
                row = {"tier": SHADOW, "slot": slot, "id": -1, "score": cosine, "semantic": cosine, "valid": True}
                row |= {"salience": min(abs(dropped["rpe"]) / self.scale(), FLOAT_MAX)}
                rows.append(row | {name: dropped[name] for name in ("rpe", "contradicted", "payload")})
        return sorted((row for row in rows if row["semantic"] > F(0.2)), key=lambda row: -row["semantic"])

    def asked(self, query: dict) -> Any:
        """The query with everything filled in."""
        full = {"value": None, "task": None, "sign": 0, "min_age": 0, "max_age": INT_MAX, "time": INT_MIN}
        full |= {name: given for name, given in query.items() if given is not None}
        q: Any = SimpleNamespace(**full)
        q.embedding, q.now = np.asarray(q.embedding, F), max(self.clock, int(q.time))
        q.finite = np.isfinite(norm(q.embedding)) and (q.value is None or np.isfinite(F(q.value)))
        return q

    def asked_for(self, memory: dict, q) -> bool:
        age, sign = min(q.now - memory["time"], INT_MAX), 1 if is_delight(memory) else -1
        fits = q.task in (None, memory["task"]) and q.min_age <= age <= q.max_age and q.sign in (0, sign)
        return bool(q.finite and fits)

    def terms(self, query: dict):
        """The pool slots that the query may see, and of each the cosine and the salience."""
        q, slots = self.asked(query), []
        if self.config.salience == "value" and q.value is None:
            raise ValueError("salience 'value' needs the query's value")
        for slot, memory in enumerate(self.pool):
            if memory is not None and self.asked_for(memory, q):
                slots.append(slot)
        semantic = [self.cosine(self.pool[slot], q.embedding) for slot in slots]
        salience = [min(self.salience(self.pool[slot], q) / self.scale(), FLOAT_MAX) for slot in slots]
        return slots, np.array(semantic, F), np.array(salience, F)

    def salience(self, memory: dict, q):
        """How much a memory matters, in units of reward."""
        if self.config.salience == "strength":
            return self.effective(memory, q.now)
        surprise = float(abs(memory["rpe"])) * np.exp2(float(self.faded(memory, q.now)))
        if self.config.salience == "value":  # more where things look as good, or as bad, as they did there
            away = abs(float(F(q.value)) - float(memory["value"]))
            surprise = surprise * np.exp(-away / float(self.params.value_temperature))
        return F(surprise)

    def semantic_weight(self):
        """How much likeness counts against salience: by schedule much at first, less later."""
        return self.scheduled("semantic_weight", self.config.weight_schedule)

    @np.errstate(all="ignore")
    def attend(self, query: dict):
        """A soft recall of everything: readout [D], weights [N]; zeros where there is nothing to read."""
        slots, semantic, salience = self.terms(query)
        p, w, now = self.params, float(self.semantic_weight()), self.asked(query).now
        readout, weights = np.zeros(self.config.embedding_dim), np.zeros(len(self.pool))
        live = [self.pool[slot] for slot in slots]
        log_strength = np.log(2) * np.array([self.log_effective(memory, now) for memory in live])
        likeness, matter = semantic / float(p.semantic_temperature), salience / float(p.salience_temperature)
        logits = w * likeness + (1 - w) * matter + log_strength
        if slots and logits.max() > -np.inf:
            weights[slots] = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            readout = weights[slots] @ np.array([memory["embedding"] for memory in live])
        return readout.astype(F), weights.astype(F)

    # ---- Living ------------------------------------------------------------------------------------------------------

    @np.errstate(all="ignore")
    def step(self, experience: dict, query: dict) -> tuple[dict, dict]:
        """Write, recall, count what was recalled, and leave a probe by which the next write finds its duplicates."""
        info = self.write(experience)
        found, q = self.recall(query), self.asked(query)
        for _, memory in self.in_place(found):
            memory["recalls"] = saturate(memory["recalls"] + 1)
        for _ in range(sum(found["valid"])):
            self.count("recalled")
        self.probe = None
        if self.config.duplicates == "probe" and q.finite:
            task = 0 if q.task is None else int(q.task)
            slots, cosines = zip(*self.nearest(q.embedding, task), strict=True)
            self.probe = {"embedding": q.embedding, "task": task, "slot": slots, "cosine": cosines}
            self.probe["closest"] = self.closest(q.embedding)
        return info, found

    @np.errstate(all="ignore")
    def reinforce(self, recall: dict, rpe, used):
        """What the recalled memories foretold came out better or worse. used [k]: how much each was relied on."""
        p, rpe = self.params, F(rpe)
        for memory, share in self.relied_on(recall, used, rpe):
            if rpe > 0:
                effective = self.effective(memory, self.clock)
                gained = min(
                    effective + p.reinforce_rate * share * rpe,
                    min(p.strength_cap * memory["written_strength"], FLOAT_MAX),
                )
                memory.update(strength=max(effective, gained), touched=self.clock)
                memory["successes"] = saturate(memory["successes"] + 1)
            elif rpe < 0:
                memory["strength"] *= max(F(0), F(1) - p.weaken_rate * share * contrast(rpe, memory["rpe"]))

    @np.errstate(all="ignore")
    def renew(self, recall: dict, used):
        """A danger was avoided, or a delight found as foretold: bring back part of what had faded."""
        for memory, share in self.relied_on(recall, used, F(0)):
            effective = self.effective(memory, self.clock)
            lost = max(F(0), memory["written_strength"] - effective)
            memory.update(strength=effective + self.params.renew_rate * share * lost, touched=self.clock)

    def in_place(self, rows: dict) -> list[tuple[int, Any]]:
        """What lies now in the slots of the valid rows, with the row; what is in the shadow can't be acted upon."""
        places = enumerate(zip(rows["tier"], rows["slot"], rows["valid"], strict=True))
        tiers = self.core, self.buffer
        return [(row, tiers[tier][slot]) for row, (tier, slot, valid) in places if valid and tier != SHADOW]

    def relied_on(self, recall: dict, used, rpe):
        """Memory and share of every entry that still is what was recalled; what is not, or is no number, is counted."""
        for row, memory in self.in_place(recall):
            share = F(used[row])
            if not (np.isfinite(share) and np.isfinite(rpe)):
                self.count("rejected")
            elif share > 0 and (memory is None or memory["id"] != recall["id"][row]):
                self.count("stale")
            elif share > 0:
                yield memory, share

    def rebase(self, by: int):
        """Shift all times, so that a long life never meets the end of int32."""
        self.clock = saturate(self.clock - by)
        for memory in self.pool + self.shadow:
            if memory is not None:
                memory.update(time=saturate(memory["time"] - by), touched=saturate(memory["touched"] - by))


# ---- Scores and surprises, as plain functions ------------------------------------------------------------------------


def normalised(x, fusion: str, temperature):
    """One score term [n] brought to a scale on which terms can be added."""
    if len(x) == 0 or fusion == "plain":
        return x
    if fusion == "rank":  # 1 / (60 + rank); the best has rank 1
        return (1 / (61 + np.argsort(np.argsort(-x, kind="stable")))).astype(F)
    if fusion == "min_max":
        span = x.max() - x.min()
        return np.zeros_like(x) if span == 0 else (x - x.min()) / span
    weights = np.exp((np.float64(x) - x.max()) / float(temperature))
    return (weights / weights.sum()).astype(F)


def outcome_error(reward, value):
    """How much better the outcome was than the value of the state where it was met."""
    return reward - value


def td_error(reward, discount, value, next_value, gamma):
    """discount is 0 at a terminal, else 1."""
    return reward + gamma * discount * next_value - value


def n_step_error(rewards, discounts, values, next_values, gamma, n: int):
    """[T] errors against n rewards and then the value there; fewer rewards where the trajectory ends sooner."""
    target = rewards + gamma * discounts * next_values
    for _ in range(1, n):
        target = rewards + gamma * discounts * np.append(target[1:], next_values[-1])
    return target - values


def lambda_error(rewards, discounts, values, next_values, gamma, lambda_):
    """[T] errors against the lambda-return: lambda_ 0 is `td_error`, lambda_ 1 counts every reward to the end."""
    target, targets = next_values[-1], np.zeros(len(rewards))
    for t in reversed(range(len(rewards))):
        target = rewards[t] + gamma * discounts[t] * ((1 - lambda_) * next_values[t] + lambda_ * target)
        targets[t] = target
    return targets - values
