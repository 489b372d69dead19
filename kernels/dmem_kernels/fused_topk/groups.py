"""The exact k best of many on a CPU, by groups.

They are among the members of k groups, those whose own best is greatest: of any other group no member is among the k
best, as each of k groups has one that beats it. So nothing is sorted but the groups' best and the members of k groups.
Groups are runs of neighbouring slots, and the chosen ones are looked through in order of slots, so that ties go to the
lower slot as in a sort of all.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from dmem_kernels.reductions import RUN, Reduction, run_of, stepwise
from dmem_kernels.selection import top_k


class Groups(NamedTuple):
    """`number` groups of `size` slots from slot 0 on; of the `slots`, fewer than `size` are left over."""

    number: int
    size: int
    slots: int


def groups_of(slots: int, k: int) -> Groups:
    """Such that groups and members together take the least time to look through."""
    size = max(1, math.isqrt(slots // (4 * k)))  # a member, far from the last one, costs as much as four groups
    # With slots left over the others are a slice, which XLA:CPU may copy.
    even = (s for s in range(size, size // 2, -1) if slots % s == 0 and run_of(s) >= RUN // 4)
    size = next(even, size if size < RUN else size // RUN * RUN)
    return Groups(slots // size, size, slots)


def best_members(groups: Groups, best: Float[Array, " groups"], k: int) -> Int32[Array, " members"]:
    """The slots to look through, given each group's best score: ascending, and `slots` where there is none."""
    # That the values are used, too, keeps this a top-k: XLA:CPU makes a whole sort of one whose values are not.
    best, chosen = top_k(best, min(k, groups.number))
    chosen = jnp.sort(jnp.where(best > -jnp.inf, chosen, groups.number))[:, None]
    within = jnp.arange(groups.size, dtype=jnp.int32)[None, :]
    members = jnp.where(chosen < groups.number, chosen * groups.size + within, groups.slots)
    return jnp.concatenate([jnp.ravel(members), jnp.arange(groups.number * groups.size, groups.slots, dtype=jnp.int32)])


def reduced_groups(
    groups: Groups, kind: Reduction, values: Callable[..., Array], *per_slot: Array
) -> Float[Array, "groups Q"]:
    """What the groups' `values` come to, which are computed from arrays [N, ...] that say something of each slot."""
    x = values(*(x[: groups.number * groups.size] for x in per_slot))
    runs = jnp.reshape(x, (groups.number, -1, run_of(groups.size), x.shape[1]))
    return kind.of_few(stepwise(kind, runs, 2), axis=1)


def reduced_all(groups: Groups, kind: Reduction, values: Callable[..., Array], *per_slot: Array) -> Float[Array, "1 Q"]:
    """What the `values` of all slots come to."""
    rest = stepwise(kind, values(*(x[groups.number * groups.size :] for x in per_slot)), 0)
    parts = jnp.concatenate([reduced_groups(groups, kind, values, *per_slot), rest[None]])
    return kind.of_few(parts, axis=0, keepdims=True)
