"""Rows of a tier: reading one, writing one, choosing between two. The only file that scatters."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, PyTree

from dmem_jax.types import Store

Tree = TypeVar("Tree")


def capacity(store: Store) -> int:
    """Slots of a tier."""
    return store.id.shape[-1]


def read(store: Tree, slot: Int32[Array, "*k"]) -> Tree:
    """The rows at `slot` >= 0; whatever the last one holds where `slot` is the capacity.

    Slots are never negative, and saying so spares XLA:CPU a correction that it would repeat for each number of a row.
    """

    def rows(leaf: Array) -> Array:
        if leaf.shape[0] == 0:  # a memory without a buffer; jax refuses to index an empty axis
            return jnp.zeros((*slot.shape, *leaf.shape[1:]), leaf.dtype)
        return leaf.at[slot].get(mode="clip", wrap_negative_indices=False)

    return jax.tree.map(rows, store)


def put(store: Tree, slot: Int32[Array, "*k"], row: PyTree) -> Tree:
    """`store` with `row` at `slot` >= 0; nothing happens where `slot` is the capacity. Slots must differ.

    A write that must not happen is one to the capacity: a `cond` or a `where` over a store would rewrite all of it.
    """

    def updated(leaf: Array, new: Array) -> Array:
        return leaf.at[slot].set(new, mode="drop", wrap_negative_indices=False) if leaf.shape[0] else leaf

    return jax.tree.map(updated, store, row)


def last_of_each(slot: Int32[Array, " k"], acts: Bool[Array, " k"], capacity: int) -> Bool[Array, " k"]:
    """Which entries that act are the last ones for their slot: `put` wants slots that differ."""
    order = jnp.arange(slot.shape[0], dtype=jnp.int32)
    slot = jnp.where(acts, slot, capacity)
    latest = jnp.full(capacity, -1, jnp.int32).at[slot].max(order, mode="drop", wrap_negative_indices=False)
    return acts & (read(latest, slot) == order)


def over_rows(flag: Array, rows: Array) -> Array:
    """`flag` [*k] with axes of 1, so that it goes with `rows` [*k, ...]."""
    return flag.reshape(flag.shape + (1,) * (rows.ndim - flag.ndim))


def keep_rows(valid: Bool[Array, "*k"], rows: Tree) -> Tree:
    """`rows` where `valid`, zeros elsewhere."""
    return jax.tree.map(lambda leaf: jnp.where(over_rows(valid, leaf), leaf, jnp.zeros_like(leaf)), rows)


def choose(condition: Bool[Array, ""], this: Tree, other: Tree) -> Tree:
    """`this` where the scalar `condition` holds, else `other`; leaf by leaf. For rows, never for stores."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), this, other)


def after(read_row: PyTree, row: Tree) -> Tree:
    """`row`, unchanged, but in a way that XLA must have read `read_row` first.

    A row that is read and then overwritten in a compiled loop costs a copy of the whole store, unless the new value
    depends on the old one. The condition is never true, for no square is 2 modulo 4, and XLA does not know that.
    """

    def depend(old: Array, new: Array) -> Array:
        whole = jnp.real(old).astype(jnp.int32)
        return jnp.where(whole * whole == 2, jnp.zeros_like(new), new)

    return jax.tree.map(depend, read_row, row)


def with_wide_of(other: Tree, row: Tree) -> Tree:
    """`row` with the arrays of the row `other` wherever a slot has more than one number."""
    return jax.tree.map(lambda theirs, ours: theirs if jnp.ndim(ours) else ours, other, row)
