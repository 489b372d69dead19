"""What `vmap` makes of a search: more queries where they share the memories, more memories where they do not.

So a search over a thousand agents, each with its own memory, reaches the implementation as one call, and so does one
of a thousand queries to one memory. Without this rule `vmap` would batch the insides of an implementation one by one,
and a kernel's grid would grow an axis that its tiles were not chosen for.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from dmem_kernels.fused_topk.terms import Found, Operands


def batched(search: Callable[[Operands], Found]) -> Callable[[Operands], Found]:
    """`search` with the rule above. It has no gradient of its own."""

    @custom_vmap
    def one(operands: Operands) -> Found:
        return search(operands)

    @one.def_vmap
    def many(axis_size: int, in_batched: list[Any], operands: Operands) -> tuple[Found, Any]:
        is_batched = in_batched[0]
        if is_batched.embeddings or is_batched.inv_norm:
            folded, unfold = _more_memories(axis_size, is_batched, operands)
        else:
            folded, unfold = _more_queries(axis_size, is_batched, operands)
        found = one(folded)
        return jax.tree.map(unfold, found), jax.tree.map(lambda _: True, found)

    return one


def _more_memories(size: int, is_batched: Any, operands: Operands) -> tuple[Operands, Callable[[Array], Array]]:
    def fold(x: Array, batched: bool) -> Array:
        """[size, A, ...] or [A, ...] as [size * A, ...]."""
        x = x if batched else jnp.broadcast_to(x, (size, *x.shape))
        return jnp.reshape(x, (size * x.shape[1], *x.shape[2:]))

    folded = Operands(*map(fold, operands, is_batched))
    memories = operands.inv_norm.shape[-2]
    return folded, lambda x: jnp.reshape(x, (size, memories, *x.shape[1:]))


def _more_queries(size: int, is_batched: Any, operands: Operands) -> tuple[Operands, Callable[[Array], Array]]:
    queries = operands.queries.shape[-2]

    def fold(x: Array, batched: bool, shared: bool) -> Array:
        """[size, A, R, ...] or [A, R, ...] as [A, size * Q, ...]; [A, 1, ...] stays if it may be `shared`."""
        if not batched and x.shape[1] == 1 and shared:
            return x
        x = x if batched else jnp.broadcast_to(x, (size, *x.shape))
        x = jnp.broadcast_to(x, (*x.shape[:2], queries, *x.shape[3:]))
        return jnp.reshape(jnp.moveaxis(x, 0, 1), (x.shape[1], size * queries, *x.shape[3:]))

    def unfold(x: Array) -> Array:
        return jnp.moveaxis(jnp.reshape(x, (x.shape[0], size, queries, *x.shape[2:])), 1, 0)

    per_query = {
        name: fold(x, batched, shared=name != "queries")
        for name, x, batched in zip(Operands._fields, operands, is_batched, strict=True)
        if name not in ("embeddings", "inv_norm")
    }
    return operands._replace(**per_query), unfold
