"""What shapes the program (Config, static) and what can be turned while it runs (Params, a pytree of scalars).

A default marked [M] was chosen by measurement in a simulated world (12 x 12 map, one find, eight deadly cells, a wage
larger than the find); the others follow the method or are neutral.
"""

import dataclasses
import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dmem_jax.conversion import INT32, as_float32, is_concrete, whole_number
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

Signal = Literal["given", "outcome", "novelty", "paper"]
Smoothing = Literal["none", "mean", "rank"]
Scale = Literal["running", "none"]
Thresholds = Literal["fixed", "quantile", "learned", "paper"]
Duplicates = Literal["probe", "search", "off"]
BufferEviction = Literal["strength", "age_frequency"]
Salience = Literal["strength", "surprise", "value"]
Fusion = Literal["softmax", "min_max", "rank", "plain"]
Schedule = Literal["constant", "step", "fill", "phase"]

_KINDS = {
    "signal": Signal,
    "smoothing": Smoothing,
    "scale": Scale,
    "thresholds": Thresholds,
    "duplicates": Duplicates,
    "buffer_eviction": BufferEviction,
    "salience": Salience,
    "fusion": Fusion,
    "threshold_schedule": Schedule,
    "weight_schedule": Schedule,
}


SHADOW_ROWS = 3  # that a recall may take from the shadow ring, as the paper does


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and kinds: everything that decides which program is compiled. Hashable; goes through jit, vmap and scan
    like any argument.

    Raises `ArgumentValueError` (a ValueError) or `ArgumentTypeError` (a TypeError) that names the field.
    """

    embedding_dim: int
    """D, numbers in an embedding, >= 1. No default: it is the caller's encoder that decides."""
    core_capacity: int = 64
    """Slots of the core, where great surprises are engraved, >= 1. 64 keeps a whole life's wonders and dangers of the
    demo world [M]."""
    buffer_capacity: int = 192
    """Slots of the buffer, where lesser surprises rest, >= 0. Three times the core: it turns over faster. With 0
    there is a core only, and after the warm-up what is no great surprise is refused."""
    top_k: int | tuple[int, int] = 8
    """Memories per recall, >= 1; or (delights, disasters), a quota for each sign, >= 0, not both 0. One mixed
    list, since an even split lost return in a world that moved [M]."""
    signal: Signal = "given"
    """Where the RPE comes from: "given" by the caller; "outcome", reward - value, computed by `experience`; "novelty",
    the given one (or 0) and `novelty_weight` times the distance to the nearest memory; "paper", surprise times utility
    as in arXiv 2603.14597, for agents without a reward."""
    smoothing: Smoothing = "none"
    """Of |rpe| before it is scaled: none; the mean of the last n; its percentile rank among the last `window` (with
    scale "none" and thresholds in [0, 1], for that is what a rank is). "none": a rare event is one event, and a mean
    blunts it."""
    smoothing_window: int = 32
    """n of smoothing by a mean, experiences, >= 1. As many as the warm-up."""
    scale: Scale = "running"
    """Sizes are |rpe| over "running", the mean |rpe| of all experiences so far, so that no threshold depends on the
    unit of reward [M]; or over "none": they stay in reward units."""
    thresholds: Thresholds = "fixed"
    """"fixed": multiples of the current average surprise; "quantile": ranks within the last `window` sizes; "learned":
    openings of a gate that was trained (see `gate_training`); "paper": those of `Config.paper`. Fixed and quantile won
    alike once adaptive [M]; fixed costs less."""
    threshold_schedule: Schedule = "constant"
    """Whether threshold_low and threshold_high hold from the start, or are reached from their start values with the
    clock ("step"), with the share of slots in use ("fill"), or with the `phase` that the caller sets. Quantiles adapt
    by themselves."""
    window: int = 128
    """W, sizes (or |rpe|) remembered for ranks, >= 1. Enough for a .98 quantile to mean two or three events."""
    warmup: int = 32
    """Sizes seen before thresholds decide, >= 0; until then every surprise goes to the buffer, or to core where there
    is none. A scale over fewer experiences is noise."""
    duplicates: Duplicates = "probe"
    """How a newcomer's duplicate is found: "probe" uses what the last `step` saw when it answered the same embedding
    (free); "search" makes a pass over all embeddings at each write (exact, for writes whose embedding was not the last
    query); "off" stores everything as new."""
    buffer_eviction: BufferEviction = "strength"
    """Who leaves a full buffer: the least effective "strength", or the article's "age_frequency", which kept a third of
    the return at 8 slots [M]."""
    salience: Salience = "strength"
    """What recall mixes with similarity: effective "strength", so that reinforcing and fading reach recall [M]; decayed
    |rpe| ("surprise"); or that times the closeness of the values ("value", the query must give its own)."""
    fusion: Fusion = "softmax"
    """How the two terms are brought to one measure: softmax with a temperature each, min-max, reciprocal ranks, or
    plain. softmax keeps distances and needs no outlier guard [M]."""
    weight_schedule: Schedule = "constant"
    """The same for semantic_weight and its start: early in life meaning counts, later what proved to matter."""
    merge_rounds: int = 4
    """Pairs of duplicates that one `consolidate` may merge, >= 0. Such leftovers are few; with 0 it makes no pass over
    the embeddings at all."""
    moves: int = 2
    """Memories that one `consolidate` may promote to core, >= 0. Few, so that core changes slowly."""
    min_successes: int = 3
    """Successes that a memory needs for a free slot of core, >= 0. One may be luck."""
    shadow_capacity: int = 0
    """Dropped experiences kept in a ring that recall asks when it finds nothing better, >= 0. The paper's, so off."""
    store_next: bool = False
    """Keep next_embedding and discount of each memory, for learners that train from it. Doubles the embeddings' bytes,
    so off."""

    def __post_init__(self) -> None:
        for name, least in _SIZES.items():
            object.__setattr__(self, name, whole_number(f"Config.{name}", getattr(self, name), least))
        if self.core_capacity + self.buffer_capacity > INT32.max:
            pool = self.core_capacity + self.buffer_capacity
            raise ArgumentValueError(f"Config.core_capacity + Config.buffer_capacity: expected an int32, got {pool}.")
        self._check_top_k()
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in get_args(kind):
                expected = ", ".join(map(repr, get_args(kind)))
                came = shown(getattr(self, name))
                raise ArgumentValueError(f"Config.{name}: expected one of {expected}; got {came}.")
        if self.thresholds == "quantile" and self.threshold_schedule != "constant":
            raise ArgumentValueError(
                f'Config.threshold_schedule: quantile thresholds adapt by themselves: expected "constant", '
                f"got {self.threshold_schedule!r}."
            )
        if not isinstance(self.store_next, bool):
            raise ArgumentTypeError(f"Config.store_next: expected a bool, got {shown(self.store_next)}.")
        if self.smoothing == "rank" and self.scale != "none":
            raise ArgumentValueError('Config.smoothing="rank" has no unit to scale: set Config.scale="none".')

    @classmethod
    def paper(cls, *, embedding_dim: int, core_capacity: int, buffer_capacity: int, **changes: Any) -> "Config":
        """The router of the D-MEM paper (arXiv 2603.14597): surprise against the last fifty similarities, times
        utility; fixed thresholds of .3 and .7 without a scale (`Params.default` of it has them), the first ten
        experiences kept, and a shadow ring of what was dropped."""
        kinds: dict[str, Any] = {
            "signal": "paper",
            "thresholds": "paper",
            "scale": "none",
            "duplicates": "off",
            "warmup": 10,
            "shadow_capacity": 64,
        }
        kinds |= {"core_capacity": core_capacity, "buffer_capacity": buffer_capacity}
        return cls(embedding_dim, **(kinds | changes))

    def _check_top_k(self) -> None:
        quota = self.top_k if isinstance(self.top_k, tuple) else (self.top_k,)
        if any(isinstance(k, bool) or not isinstance(k, (int, np.integer)) for k in quota):
            came = shown(self.top_k)
            raise ArgumentTypeError(f"Config.top_k: expected an integer or a pair of integers, got {came}.")
        if (isinstance(self.top_k, tuple) and len(quota) != 2) or min(quota) < 0 or sum(quota) < 1:
            raise ArgumentValueError(
                f"Config.top_k: expected k >= 1, or (delights, disasters) with a sum >= 1; got {shown(self.top_k)}."
            )
        if sum(quota) > INT32.max:
            raise ArgumentValueError(f"Config.top_k: expected an int32, also as a sum, got {shown(self.top_k)}.")

    @property
    def recalled(self) -> int:
        """K, the number of rows of a Recall: `top_k` of the memory, and the shadow's, if there is one."""
        found = sum(self.top_k) if isinstance(self.top_k, tuple) else self.top_k
        return found + (SHADOW_ROWS if self.shadow_capacity else 0)

    @property
    def reads_similarity(self) -> bool:
        """Whether the signal depends on how near the nearest memory is."""
        return self.signal in ("novelty", "paper")

    @property
    def pool_capacity(self) -> int:
        """Slots of both tiers. Pool order: core's slots, then the buffer's."""
        return self.core_capacity + self.buffer_capacity


_SIZES = {
    "embedding_dim": 1,
    "core_capacity": 1,
    "buffer_capacity": 0,
    "smoothing_window": 1,
    "window": 1,
    "warmup": 0,
    "merge_rounds": 0,
    "moves": 0,
    "min_successes": 0,
    "shadow_capacity": 0,
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
    """Scalars that may be traced, differentiated, swept and vmapped over. Build with `Params.default(config, ...)`."""

    gate_scale: Float[Array, "*b"]  # alpha of sigmoid(alpha * size - beta); >= 0; default 1: no measurable effect [M]
    gate_bias: Float[Array, "*b"]  # beta, any number; default 2: routine is gated to a quarter; no effect either [M]
    # A threshold_low above threshold_high, or a quantile, leaves nothing for the buffer.
    threshold_low: Float[Array, "*b"]  # size up to which it is dropped; >= 0; default 1: the average surprise [M]
    threshold_high: Float[Array, "*b"]  # size above which it goes to core; >= 0; default 2: twice the average [M]
    threshold_low_start: Float[Array, "*b"]  # where a schedule of it starts; >= 0; default .5: half of the end
    threshold_high_start: Float[Array, "*b"]  # the same; >= 0; default 1: half of the end
    threshold_temperature: Float[Array, "*b"]  # of soft learned thresholds, > 0; default .1: a tenth of an opening
    quantile_low: Float[Array, "*b"]  # rank in [0, 1] below which it is dropped; default .9 [M] (the article: .2)
    quantile_high: Float[Array, "*b"]  # rank in [0, 1] from which it goes to core; default .98 [M] (the article: .8)
    scale_rate: Float[Array, "*b"]  # rate of the running scale, in (0, 1]; default .01: some hundred experiences
    duplicate_similarity: Float[Array, "*b"]  # tau, least cosine of a duplicate; >= -1, above 1: none; default .98 [M]
    duplicate_margin: Float[Array, "*b"]  # it merges if |rpe| > (1 + margin) |old|; >= 0; default .1: above noise
    weaken_rate: Float[Array, "*b"]  # share of strength that a full contradiction takes, in [0, 1]; default 1 [M]
    reinforce_rate: Float[Array, "*b"]  # strength gained per unit of rpe when it led to good; >= 0; default 1 [M]
    renew_rate: Float[Array, "*b"]  # share of the faded strength given back, in [0, 1]; default .5 [M]
    strength_cap: Float[Array, "*b"]  # reinforcing lifts to at most this x written strength; >= 1; default 2 [M]
    half_life: Float[Array, "*b"]  # clock units, > 0, inf: no decay; default 800: twenty episodes of the demo [M]
    disaster_half_life: Float[Array, "*b"]  # the same for rpe < 0; default 800: longer pushes the delights out [M]
    buffer_half_life: Float[Array, "*b"]  # clock units, > 0; for "age_frequency" alone; default 800: as half_life
    semantic_weight: Float[Array, "*b"]  # w of meaning against salience, in [0, 1]; default .5; .25 to .75 alike [M]
    semantic_weight_start: Float[Array, "*b"]  # w at the start of a schedule, in [0, 1]; default 1: meaning alone
    phase: Float[Array, "*b"]  # how far a "phase" schedule has come, in [0, 1]; default 0: set it as you go
    schedule_steps: Float[Array, "*b"]  # clock units of a "step" schedule, > 0; default 10,000: an early life
    semantic_temperature: Float[Array, "*b"]  # of the softmax over cosines, > 0; default .1: at 1 they drown [M]
    salience_temperature: Float[Array, "*b"]  # of the softmax over salience, > 0; default 1 [M]
    value_temperature: Float[Array, "*b"]  # reward units in which values are close, > 0; default 1: rewards of 1
    novelty_weight: Float[
        Array, "*b"
    ]  # reward units of a memory like no other, any number; default 1; signal "novelty"
    shadow_below: Float[Array, "*b"]  # best cosine below which the shadow is asked; default .35, the paper's
    floor: Float[
        Array, "*b"
    ]  # effective strength in current scales, below which it is forgotten; >= 0; default 0: never
    core_max_age: Float[Array, "*b"]  # clock units since touched, from which core forgets; > 0; default inf: never
    buffer_max_age: Float[Array, "*b"]  # the same for the buffer; default inf: strength decides, not age
    replay_exponent: Float[Array, "*b"]  # a of P ~ strength^a; >= 0, 0: uniform; default .6, that of arXiv 1511.05952
    importance_exponent_start: Float[Array, "*b"]  # b of (n P)^-b at the start, in [0, 1]; default .4 (1511.05952)
    importance_exponent: Float[Array, "*b"]  # b at the end, in [0, 1]; default 1: no bias is left
    importance_steps: Float[Array, "*b"]  # clock units from one to the other, > 0; default 100,000: a long training

    @staticmethod
    def default(config: Config, **changes: Any) -> "Params":
        """The defaults for `config`, as float32 scalars, with `changes` by name.

        Raises `ArgumentTypeError` for an unknown name or a wrong kind, `ArgumentValueError` for a value out of range.

        >>> config = Config(embedding_dim=4)
        >>> float(Params.default(config, half_life=200.0).half_life)
        200.0
        """
        if not isinstance(config, Config):
            raise ArgumentTypeError(f"config: expected a dmem_jax.Config, got {type(config).__name__}.")
        unknown = sorted(set(changes) - set(_DEFAULTS))
        if unknown:
            raise ArgumentTypeError(f"Params has no field {unknown[0]!r}; it has {', '.join(_DEFAULTS)}.")
        defaults = {name: default[0] for name, default in _DEFAULTS.items()} | _THRESHOLDS.get(config.thresholds, {})
        return Params(**{name: _scalar(name, changes.get(name, default)) for name, default in defaults.items()})


# name: (default, least, greatest); an open end is written as the next float.
_TINY = float(np.finfo(np.float32).tiny)
_MAX = float(np.finfo(np.float32).max)  # where infinity would make a NaN of infinity * 0
_DEFAULTS: dict[str, tuple[float, float, float]] = {
    "gate_scale": (1.0, 0.0, _MAX),
    "gate_bias": (2.0, -_MAX, _MAX),
    "threshold_low": (1.0, 0.0, math.inf),
    "threshold_high": (2.0, 0.0, math.inf),
    "threshold_low_start": (0.5, 0.0, math.inf),
    "threshold_high_start": (1.0, 0.0, math.inf),
    "threshold_temperature": (0.1, _TINY, _MAX),
    "quantile_low": (0.9, 0.0, 1.0),
    "quantile_high": (0.98, 0.0, 1.0),
    "scale_rate": (0.01, _TINY, 1.0),
    "duplicate_similarity": (0.98, -1.0, math.inf),
    "duplicate_margin": (0.1, 0.0, math.inf),
    "weaken_rate": (1.0, 0.0, 1.0),
    "reinforce_rate": (1.0, 0.0, _MAX),
    "renew_rate": (0.5, 0.0, 1.0),
    "strength_cap": (2.0, 1.0, _MAX),
    "half_life": (800.0, _TINY, math.inf),
    "disaster_half_life": (800.0, _TINY, math.inf),
    "buffer_half_life": (800.0, _TINY, math.inf),
    "semantic_weight": (0.5, 0.0, 1.0),
    "semantic_weight_start": (1.0, 0.0, 1.0),
    "phase": (0.0, 0.0, 1.0),
    "schedule_steps": (10_000.0, _TINY, math.inf),
    "semantic_temperature": (0.1, _TINY, math.inf),
    "salience_temperature": (1.0, _TINY, math.inf),
    "value_temperature": (1.0, _TINY, _MAX),
    "novelty_weight": (1.0, -_MAX, _MAX),
    "shadow_below": (0.35, -1.0, math.inf),
    "floor": (0.0, 0.0, math.inf),
    "core_max_age": (math.inf, _TINY, math.inf),
    "buffer_max_age": (math.inf, _TINY, math.inf),
    "replay_exponent": (0.6, 0.0, _MAX),
    "importance_exponent_start": (0.4, 0.0, 1.0),
    "importance_exponent": (1.0, 0.0, 1.0),
    "importance_steps": (100_000.0, _TINY, math.inf),
}
# Where the kind of thresholds asks for others. Learned ones are openings: at first those of the sizes 1 and 2, so that
# an untrained gate routes as fixed thresholds do.
_THRESHOLDS: dict[str, dict[str, float]] = {
    "paper": {"threshold_low": 0.3, "threshold_high": 0.7, "threshold_low_start": 0.15, "threshold_high_start": 0.35},
    "learned": {
        "threshold_low": 1 / (1 + math.e),
        "threshold_high": 0.5,
        "threshold_low_start": 0.5 / (1 + math.e),
        "threshold_high_start": 0.25,
    },
}


def _scalar(name: str, value: Any) -> Array:
    array = as_float32(f"Params.{name}", value)
    if all(map(is_concrete, jax.tree.leaves(value))):
        _, least, greatest = _DEFAULTS[name]
        # The number as it came: rounding may bring it into the range, and what float32 cannot hold would be an inf.
        given = np.asarray(value, np.float64)
        within = (given >= least) & (given <= greatest) & (np.isinf(given) | (np.abs(given) <= _MAX))
        if not within.all():
            raise ArgumentValueError(
                f"Params.{name}: expected float32 within [{least:g}, {greatest:g}], got {shown(value)}."
            )
    return array


def sound(params: Params) -> Params:
    """`params` with every field in its range, so that no NaN of theirs gets into a memory.

    Outside of jit a field out of range is an `ArgumentValueError` that names it. Inside, where an optimiser may have
    stepped out of it, it counts as the nearest number that is in range, and a NaN as the default.
    """

    def held(name: str) -> Array:
        value = getattr(params, name)
        if is_concrete(value):
            return _scalar(name, value)
        default, least, greatest = _DEFAULTS[name]
        # Selects, not `jnp.clip`, which halves the gradient at the ends of the range, where some defaults are.
        value = jnp.where(value < least, least, jnp.where(value > greatest, greatest, value))
        return jnp.where(jnp.isnan(value), default, value)

    return Params(**{name: held(name) for name in _DEFAULTS})
