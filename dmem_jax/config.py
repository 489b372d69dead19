"""What shapes the program: sizes and kinds, static. What can be turned while it runs: params.py.

A default marked [M] was chosen by measurement in a simulated world (12 x 12 map, one find, eight deadly cells, a wage
larger than the find); the others follow the method or are neutral.
"""

import dataclasses
from typing import Any, Literal, get_args

import jax
import numpy as np

from dmem_jax.conversion import INT32, whole_number
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
StoreDtype = Literal["float32", "bfloat16", "int8"]

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
    "store_dtype": StoreDtype,
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
    """Pairs of duplicates that one `consolidate` may merge, >= 0. Such leftovers are few. With 0 it makes no pass over
    the embeddings; else it compares all pairs once, and each merge adds a pass or two."""
    moves: int = 2
    """Memories that one `consolidate` may promote to core, >= 0. Few, so that core changes slowly."""
    min_successes: int = 3
    """Successes that a memory needs for a free slot of core, >= 0. One may be luck."""
    shadow_capacity: int = 0
    """Dropped experiences kept in a ring that recall asks when it finds nothing better, >= 0. The paper's, so off."""
    store_next: bool = False
    """Keep next_embedding and discount of each memory, for learners that train from it. Doubles the embeddings' bytes,
    so off."""
    store_dtype: StoreDtype = "float32"
    """How embeddings are kept: "float32"; "bfloat16", half the bytes; or "int8" with a scale for each, a quarter.
    Similarities are float32 in any case, and so are next_embedding and what is in the shadow. float32 loses nothing;
    of the others take int8 on a CPU, where a step is faster for it, while XLA rewrites a bfloat16 store at every
    write [M]. `attend` makes a float32 copy of either while it works."""

    slot_axis: str | None = None
    """Name of the mesh axis over which the slots of one memory are split, inside `jax.shard_map`; capacities are those
    of all devices together. None: each device sees a whole memory. `make(..., mesh=...)` sets it by itself; set it
    where you write the `shard_map` (see sharding.py)."""

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
        if self.slot_axis is not None:
            self._check_slot_axis()
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

    def _check_slot_axis(self) -> None:
        if not isinstance(self.slot_axis, str):
            raise ArgumentTypeError(f"Config.slot_axis: expected a name or None, got {shown(self.slot_axis)}.")
        if self.fusion == "rank":
            raise ArgumentValueError(
                'Config.fusion: "rank" needs all scores of a term, and with Config.slot_axis no device has them; '
                'expected "softmax", "min_max" or "plain".'
            )

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
        whole = tuple(map(int, quota))  # they may be NumPy's
        object.__setattr__(self, "top_k", whole if isinstance(self.top_k, tuple) else whole[0])

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
