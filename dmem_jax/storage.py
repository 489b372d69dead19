"""How embeddings are kept, in the type of `Config.store_dtype`, and what each was."""

from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from dmem_jax.similarity import inverse_norm
from dmem_jax.types import Store
from dmem_kernels.storage import Stored, decode, encode


def as_stored(dtype: DTypeLike, vectors: Float[Array, "*b D"]) -> dict[str, Any]:
    """The fields of a `Store` that hold `vectors`."""
    values, scale = encode(vectors, dtype)
    # A norm that underflows counts as 0, whatever the levels of int8 make of it.
    some = inverse_norm(vectors) > 0
    inv_norm = jnp.where(some, inverse_norm(values.astype(jnp.float32)), 0.0)
    return {"embedding": values, "inv_norm": inv_norm, "scale": scale}


def embeddings(store: Store) -> Float[Array, "*b D"]:
    """What was given, as near as it was kept."""
    return decode(Stored(store.embedding, store.scale))


def norms(store: Store) -> Float[Array, "*b"]:
    """The Euclidean norm of each embedding."""
    some = store.inv_norm > 0
    norm = jnp.where(some, 1.0 / jnp.where(some, store.inv_norm, 1.0), 0.0)
    return norm if store.scale is None else store.scale * norm
