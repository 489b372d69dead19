"""What was done as a vector, and where it was done with it: embeddings of state and action.

    actions = CategoricalActions(4)
    embedding = concatenate(state, actions(action), weight=0.7)  # its cosines: .7 x the state's + .3 x the action's

Which to take, for a memory that is asked "what came of doing this here?":
- `concatenate`, the default: similar state *or* similar action bring a memory back, best both. Ask with an action of
  zeros, and the state alone decides.
- `bind`: similar state *and* similar action. Where the same place with another action is another fact altogether.
- `mean`: state and action are vectors of one encoder, as texts are, and memories shouldn't grow.
- `project`: whatever became too long for a memory of many slots.

All are pure, for jit, vmap and grad; vectors come out with length 1, or 0 where there is nothing. *b are batch axes,
the same for state and action. What is not finite stays so: the memory counts such an experience as invalid. Embeddings
of state and action never hit a memory's probe: use `Config.duplicates="search"` with them.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from dmem_jax.conversion import filled, first, is_concrete, positive, typed, whole_number
from dmem_jax.encoders.encoder import Encoder
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.similarity import inverse_norm

# ---- Actions ---------------------------------------------------------------------------------------------------------


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class CategoricalActions:
    """Actions that are numbers, 0 .. n - 1, and have nothing in common: to each its own direction.

    One-hot, unless `dim` is given; for up to some hundred actions. With another `dim` than n a fixed random code of
    that many numbers, for more of them, or where the vector must have the state's size for `mean`: orthogonal up to
    `dim` actions, beyond that cosines are about 1 / sqrt(dim). The same `seed` gives the same code.

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """

    n: int
    dim: int = 0
    """Size of a vector; given as 0, it is n."""
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "n", positive("n", self.n))
        object.__setattr__(self, "dim", whole_number("dim", self.dim, 0) or self.n)
        object.__setattr__(self, "seed", whole_number("seed", self.seed, 0))

    def __call__(self, action: Any) -> Float32[Array, "*b dim"]:
        """Of actions int32 [*b]: float32 [*b, dim], of length 1.

        Raises:
          ArgumentTypeError: no integers. ArgumentValueError: outside of jit, one beyond 0 .. n - 1; inside it becomes a
          vector of zeros, which is like no action.
        """
        action = _checked_action(action, self.n)
        if self.dim == self.n:
            return jax.nn.one_hot(action, self.n, dtype=jnp.float32)
        return _row(jnp.asarray(_directions(self.n, self.dim, self.seed)), action)


class TextActions:
    """A fixed list of actions that have texts, such as tools or commands: "open the door" is like "open the gate".

    Their texts are encoded once; afterwards an action is its number in the list, also under jit. For texts that are new
    each time, call the encoder itself and hand its vectors to `concatenate`.

    Args:
      encoder: any encoder of texts.
      texts: of the actions, at least one.

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str]):
        if not callable(encoder):
            raise ArgumentTypeError(f"encoder: expected an encoder of texts, got {shown(encoder)}.")
        if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
            raise ArgumentTypeError(f"texts: expected a list of at least one string, got {shown(texts)}.")
        self.texts = tuple(texts)
        vectors = typed("encoder's vectors", encoder(list(texts)), "f")
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ArgumentValueError(f"encoder: expected vectors [{len(texts)}, dim], got {list(vectors.shape)}.")
        self.n, self.dim = vectors.shape
        """Number of actions, and size of a vector."""
        self._table = unit(vectors)

    def __call__(self, action: Any) -> Float32[Array, "*b dim"]:
        """Of actions int32 [*b], their numbers in the list: float32 [*b, dim], of length 1. Errors as for
        `CategoricalActions`."""
        return _row(self._table, _checked_action(action, self.n))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class VectorActions:
    """Actions that are vectors within bounds, such as torques: cosines fall with their distance.

    Bare vectors would not do: a push of .1 and one of 1 have the same direction, and no push has none. Here each
    number is brought to -1 .. 1 and a constant is added as one more, so that the cosine is 1 for equal actions alone,
    and 0 between opposite corners of the bounds.

    Args:
      low, high: [d] numbers, finite, low < high: the bounds, as an environment's action space has them. What lies
        beyond them is taken as it is.

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self):
        for name in ("low", "high"):
            bounds = np.asarray(typed(name, getattr(self, name), "f"))
            if bounds.ndim != 1 or bounds.size == 0 or not np.isfinite(bounds).all():
                raise ArgumentValueError(f"{name}: expected [d] finite numbers, got {shown(getattr(self, name))}.")
            object.__setattr__(self, name, tuple(bounds.tolist()))
        low, high = (np.array(x, np.float32) for x in (self.low, self.high))
        if low.shape != high.shape or not (low < high).all():
            raise ArgumentValueError(f"high: expected numbers above low, {shown(self.low)}; got {shown(self.high)}.")
        if not (high.astype(float) - low < np.finfo(np.float32).max / 4).all():
            raise ArgumentValueError(f"high: expected bounds that mean something, got {shown(self.high)}.")

    @property
    def dim(self) -> int:
        """Size of a vector: d + 1."""
        return len(self.low) + 1

    def __call__(self, action: Any) -> Float32[Array, "*b dim"]:
        """Of actions [*b, d]: float32 [*b, d + 1], of length 1.

        Raises:
          ArgumentTypeError: no real numbers. ArgumentValueError: another size.
        """
        action = typed("action", action, "f")
        if action.shape[-1:] != (len(self.low),):
            raise ArgumentValueError(f"action: expected [*b, {len(self.low)}], got {list(action.shape)}.")
        low, high = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), action.shape) for x in (self.low, self.high))
        inner = (2 * (action - low) / (high - low) - 1) / np.float32(np.sqrt(len(self.low)))
        return unit(jnp.concatenate([inner, jnp.ones((*inner.shape[:-1], 1), jnp.float32)], axis=-1))


# ---- State and action ------------------------------------------------------------------------------------------------


def concatenate(state: Any, action: Any, weight: Any = 0.5) -> Float32[Array, "*b d"]:
    """Side by side. Of two of them, with states and actions that are not 0,

        cosine = weight * cosine of the states + (1 - weight) * cosine of the actions

    exactly: each part is brought to length 1 and weighed by the root of its weight. A query with zeros for an action
    (or a state) ranks memories by the other part alone. Use it unless you know better.

    Args:
      state: [*b, d1]; action: [*b, d2].
      weight: scalar or [*b] in [0, 1], the state's; may be traced, and has a gradient within (0, 1). In one memory all
        must have the same.

    Returns:
      float32 [*b, d1 + d2].

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """
    state, action = _pair(state, action)
    weight = _weight(weight, state.shape[:-1])
    return unit(jnp.concatenate([jnp.sqrt(weight) * unit(state), jnp.sqrt(1 - weight) * unit(action)], axis=-1))


def bind(state: Any, action: Any) -> Float32[Array, "*b d"]:
    """Each number of the one times each of the other (the outer product), so that of two of them

        cosine = cosine of the states * cosine of the actions

    exactly. With one-hot actions memories of other actions have cosine 0, however like the state. Use it where an
    action turns the meaning of a state over; there is no asking by the state alone. `project` makes it shorter.

    Args:
      state: [*b, d1]; action: [*b, d2].

    Returns:
      float32 [*b, d1 * d2].

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """
    state, action = (unit(part) for part in _pair(state, action))
    joint = state[..., :, None] * action[..., None, :]
    return joint.reshape(*state.shape[:-1], state.shape[-1] * action.shape[-1])


def mean(state: Any, action: Any, weight: Any = 0.5) -> Float32[Array, "*b d"]:
    """The weighted mean of the directions. Use it where both come from one encoder, as texts, and a memory should take
    no more room than the state; cosines then mix: a state may be like another's action.

    Args:
      state, action: [*b, d].
      weight: as for `concatenate`.

    Returns:
      float32 [*b, d].

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """
    state, action = _pair(state, action)
    if state.shape != action.shape:
        raise ArgumentValueError(f"action: expected the state's shape, {list(state.shape)}, got {list(action.shape)}.")
    weight = _weight(weight, state.shape[:-1])
    return unit(weight * unit(state) + (1 - weight) * unit(action))


def project(embedding: Any, dim: int, seed: int = 0) -> Float32[Array, "*b dim"]:
    """Shorter, by a fixed random projection (Johnson and Lindenstrauss): cosines change by some 1 / sqrt(dim), .06 at
    256. Use it where a memory of long embeddings takes too many bytes even as `Config.store_dtype="int8"`.

    Args:
      embedding: [*b, d].
      dim: numbers to keep, 1 .. d.
      seed: of the projection; in one memory all must have the same. It is the same everywhere.

    Returns:
      float32 [*b, dim].

    Raises:
      ArgumentTypeError, ArgumentValueError: named.
    """
    embedding = _vectors("embedding", embedding)
    size, dim = embedding.shape[-1], positive("dim", dim)
    if dim > size:
        raise ArgumentValueError(f"dim: expected at most the embedding's size, {size}, got {dim}.")
    signs = _signs(size, dim, whole_number("seed", seed, 0))
    return unit(unit(embedding) @ jnp.asarray(signs, jnp.float32))


def unit(vector: Float32[Array, "*b d"]) -> Float32[Array, "*b d"]:
    """At length 1; 0 stays 0. Divided by its greatest number first, for squares may be beyond float32, and by no more
    than has an inverse, by which XLA multiplies."""
    greatest = jax.lax.stop_gradient(jnp.max(jnp.abs(vector), axis=-1, keepdims=True, initial=0.0))
    vector = vector / jnp.clip(greatest, np.finfo(np.float32).tiny, 2.0**120)
    return vector * inverse_norm(vector)[..., None]


# ---- Within ----------------------------------------------------------------------------------------------------------


def _checked_action(action: Any, n: int) -> Array:
    array = typed("action", action, "i")
    if _is_seen(action):
        numbers = np.asarray(action)
        wrong = (numbers < 0) | (numbers >= n)
        if wrong.any():
            raise ArgumentValueError(f"action: expected 0 .. {n - 1}, got {first(numbers, wrong)}.")
    return array


def _row(table: Array, action: Array) -> Array:
    """Of a table [n, dim]; zeros where there is no such row. A negative number is none, either."""
    n = len(table)
    there = (action >= 0) & (action < n)
    return jnp.where(there[..., None], table[jnp.clip(action, 0, n - 1)], 0.0)


@functools.lru_cache(maxsize=8)
def _directions(n: int, dim: int, seed: int) -> np.ndarray:
    """float32 [n, dim] of length 1; the first `dim` of them orthogonal, and the next, and so on."""
    random = np.random.default_rng(seed)
    blocks = [np.linalg.qr(random.standard_normal((dim, dim)))[0] for _ in range(0, n, dim)]
    return np.concatenate(blocks)[:n].astype(np.float32)


@functools.lru_cache(maxsize=8)
def _signs(size: int, dim: int, seed: int) -> np.ndarray:
    """int8 [size, dim], -1 or 1."""
    return 2 * np.random.default_rng(seed).integers(0, 2, (size, dim), dtype=np.int8) - 1


def _pair(state: Any, action: Any) -> tuple[Array, Array]:
    state, action = _vectors("state", state), _vectors("action", action)
    if state.shape[:-1] != action.shape[:-1]:
        raise ArgumentValueError(
            f"action: expected the state's batch axes, {list(state.shape[:-1])}, got shape {list(action.shape)}."
        )
    return state, action


def _vectors(name: str, given: Any) -> Array:
    array = typed(name, given, "f")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ArgumentValueError(f"{name}: expected vectors [*b, d], got shape {list(array.shape)}.")
    return array


def _weight(weight: Any, batch: tuple[int, ...]) -> Array:
    """[*b, 1], within [0, 1]."""
    weights = filled("weight", weight, batch, "f")
    if _is_seen(weight):
        numbers = np.asarray(weight)
        wrong = ~((numbers >= 0) & (numbers <= 1))
        if wrong.any():
            raise ArgumentValueError(f"weight: expected within [0, 1], got {first(numbers, wrong)}.")
    return jnp.clip(weights, 0.0, 1.0)[..., None]


def _is_seen(given: Any) -> bool:
    """Whether its numbers are there to see: inside of a trace those are that the caller wrote down."""
    return all(map(is_concrete, jax.tree.leaves(given)))
