"""What can be turned while the program runs: a pytree of scalars. What shapes the program: config.py.

A default marked [M] was chosen by measurement, see config.py.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dmem_jax.config import Config
from dmem_jax.conversion import as_float32, is_concrete
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.types import state


@state
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
    novelty_weight: Float[Array, "*b"]  # of signal "novelty", reward units at a cosine of 0; any number; default 1
    shadow_below: Float[Array, "*b"]  # best cosine below which the shadow is asked; default .35, the paper's
    floor: Float[Array, "*b"]  # effective strength in current scales, forgotten below it; >= 0; default 0: never
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
