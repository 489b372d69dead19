"""Recall through an index, in three parts: plan (what the query asks for, and how salient all of it is), search (which
slots are worth a look), merge (these, the most salient and core, scored exactly by the core's own functions).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from dmem_jax import inputs, shards
from dmem_jax.ann.index import Index
from dmem_jax.checks import check_asked, check_leading
from dmem_jax.config import Config
from dmem_jax.conversion import is_concrete
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.params import Params
from dmem_jax.retrieval import best_of, matches, normalised, pool_salience, time_of_recall
from dmem_jax.similarity import cosines
from dmem_jax.slots import read
from dmem_jax.types import Memory, Query, Recall
from dmem_kernels import canonical, top_k

EXACT_BELOW = 0.05
"""Where a query asks for no more than this share of the buffer's slots, all that it asks for is compared."""
_SAMPLE = 128  # of the memories that are not candidates
_AT_ONCE = 128  # queries whose candidates' rows are together in the cache


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plan:
    """What queries of the same filters and time ask for. S: 1, or 2 with a quota of each sign; N slots of the pool, B
    of them the buffer's, C candidates."""

    asked: Bool[Array, " N"]
    salience: Float[Array, " N"]
    of_salience: Float[Array, " N"]  # normalised over all that is asked for
    wanted: Bool[Array, "S B"]  # of the buffer, by sign
    kept: Int32[Array, " S"]  # how many these are
    salient: Int32[Array, "S C"]  # the most salient of them; B where there are no more
    count: Int32[Array, ""]  # how many are asked for
    sample: Int32[Array, " M"]  # M slots of the buffer drawn at random: how much softmax the candidates leave out
    sampled: Bool[Array, " M"]  # which of these are asked for
    drawn: Bool[Array, " B"]  # which slots of the buffer these are


def recall(
    config: Config,
    params: Params,
    memory: Memory,
    index: Index,
    query: Query | Array,
    *,
    candidates: int | None = None,
) -> Recall:
    """`dmem_jax.recall` over core, the nearest memories of the buffer that `index` finds, and its most salient ones.

    Outside of jit many queries at once are one search by all threads. Inside, where `index` is static like `config`,
    the search is a callback to the host, one for all queries of a vmap. It sees the index as it was at its last `sync`:
    of what was written since, core and the most salient are found.

    Args:
      memory: of one agent. index: of that agent, synced with the memory.
      query: a `Query` or a bare embedding [D], or many of them with a leading axis [Q]. Queries that differ in more
        than the embedding are planned apart, each time in a pass over the small fields of the memory.
      candidates: of each kind, nearest and most salient, >= 1, for each sign that `Config.top_k` has a quota for;
        default twice the memories recalled, 16 at least.

    Returns:
      A `Recall`, [Q, K] for many; all of it is what the memory says, never what the index does. It is the exact one
      where a query asks for no more than the candidates. Else the nearest are those that the index finds (where a query
      asks for no more than `EXACT_BELOW` of the buffer's slots, the nearest of all that it asks for), and cosines are
      normalised by an estimate from a sample. `measured_recall` says how much of exact recall it finds.

    Raises:
      ArgumentTypeError, ArgumentValueError: named; also for fusions by rank and by min-max, for which every cosine
      must be known.
    """
    count = _candidates(config, candidates)
    _check_index(config, index)
    query = inputs.as_query(config, query)
    if query.embedding.ndim > 2 or 0 in query.embedding.shape:
        raise ArgumentValueError(f"query: expected [D] or [Q, D], Q >= 1, got {list(query.embedding.shape)}.")
    if not all(map(is_concrete, jax.tree.leaves((params, memory.buffer.id, memory.clock, query)))):

        def one(query: Query) -> Recall:
            return _inside(config, params, memory, index, query, count)

        return one(query) if query.embedding.ndim == 1 else jax.vmap(one)(query)
    asked: Query = jax.tree.map(np.asarray, query)
    if asked.embedding.ndim == 2:
        check_leading("query", asked, len(asked.embedding))
        return _outside(config, params, memory, index, asked, count)
    planned = _plan(config, params, memory, asked, count)
    slots = search(config, memory, index, planned, asked.embedding[None])[0]
    return _merge_one(config, params, memory, planned, asked, slots)


def plan(
    config: Config, params: Params, memory: Memory, query: Query | Array, *, candidates: int | None = None
) -> Plan:
    """The first part of `recall`: all that does not depend on the embedding of the `query`; it serves every query of
    the same filters, value and time, until the memory changes. `candidates`: as for `recall`."""
    return _plan(config, params, memory, inputs.as_query(config, query), _candidates(config, candidates))


def search(
    config: Config, memory: Memory, index: Index, plan: Plan, embeddings: Float[Array, "Q D"] | np.ndarray
) -> Int32[np.ndarray, "Q C"]:
    """The second part of `recall`, on the host: slots of the buffer that are worth a look for each of the `embeddings`,
    ascending, none twice; the buffer's capacity where there are fewer."""
    _check_index(config, index)
    if np.ndim(embeddings) != 2 or np.shape(embeddings)[1] != config.embedding_dim:
        raise ArgumentValueError(f"embeddings: expected [Q, {config.embedding_dim}], got {list(np.shape(embeddings))}.")
    n, count = plan.wanted.shape[1], plan.salient.shape[1]
    wanted, salient = np.asarray(plan.wanted), np.asarray(plan.salient)
    found = []
    for sign, kept in enumerate(np.asarray(plan.kept).tolist()):
        if kept <= _few(n, count):
            slots = np.pad(np.flatnonzero(wanted[sign]), (0, _few(n, count) - kept), constant_values=n)
            found.append(np.asarray(_nearest_of(memory, jnp.asarray(slots, jnp.int32), embeddings, count)))
        else:
            found.append(_near(index, np.asarray(embeddings), wanted[sign], count, _at_least(config, count)))
    ones = np.ones((len(embeddings), 1), np.int32)
    return _union(np.concatenate([*found, ones * salient.reshape(1, -1)], axis=1), n, np)


def merge(
    config: Config,
    params: Params,
    memory: Memory,
    plan: Plan,
    query: Query | Array,
    slots: Int32[Array, "Q C"] | np.ndarray,
) -> Recall:
    """The third part of `recall`: for queries [Q] of the plan's filters the best of core and of their `slots` of the
    buffer, as `search` gives them."""
    query = inputs.as_query(config, query)
    if query.embedding.ndim != 2 or np.ndim(slots) != 2 or len(slots) != len(query.embedding):
        came = f"{list(query.embedding.shape)} and {list(np.shape(slots))}"
        raise ArgumentValueError(f"query, slots: expected [Q, D] and [Q, C], got {came}.")
    return _merge(config, params, memory, plan, query, slots)


def _outside(config: Config, params: Params, memory: Memory, index: Index, query: Query, count: int) -> Recall:
    """For queries [Q] on the host: those of the same filters are planned and searched together."""
    names = (field.name for field in dataclasses.fields(Query) if field.name != "embedding")
    filters = np.stack([np.asarray(getattr(query, name)).view(np.int32) for name in names])
    if (filters == filters[:, :1]).all():
        return _of_group(config, params, memory, index, query, count)
    group = np.unique(filters, axis=1, return_inverse=True)[1].reshape(-1)
    parts, order = [], np.argsort(group, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(group))[:-1]):
        # Padded, so that groups of all sizes are few programs.
        padded = np.resize(members, 2 ** math.ceil(math.log2(members.size)))
        part = _of_group(config, params, memory, index, jax.tree.map(lambda x, at=padded: x[at], query), count)
        parts.append(jax.tree.map(lambda x, size=members.size: np.asarray(x)[:size], part))
    back = np.argsort(order, kind="stable")
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)[back]), *parts)


def _of_group(config: Config, params: Params, memory: Memory, index: Index, query: Query, count: int) -> Recall:
    planned = _plan(config, params, memory, jax.tree.map(lambda x: x[0], query), count)
    slots = search(config, memory, index, planned, query.embedding)
    return _merge(config, params, memory, planned, query, slots)


def _inside(config: Config, params: Params, memory: Memory, index: Index, query: Query, count: int) -> Recall:
    """For one query in a trace."""
    planned = _plan(config, params, memory, query, count)
    n, few, at_least = config.buffer_capacity, _few(config.buffer_capacity, count), _at_least(config, count)

    def on_host(embedding: Any, wanted: Any) -> np.ndarray:
        embedding, wanted = np.asarray(embedding), np.asarray(wanted)  # each with the leading axes of vmap, or with 1
        rows = embedding.reshape(-1, embedding.shape[-1])
        masks = wanted.reshape(-1, wanted.shape[-1])
        if len(masks) == 1:
            return _near(index, rows, masks[0], count, at_least).reshape(*embedding.shape[:-1], count)
        rows = np.broadcast_to(
            embedding, (*np.broadcast_shapes(embedding.shape[:-1], wanted.shape[:-1]), rows.shape[1])
        )
        masks = np.broadcast_to(wanted, (*rows.shape[:-1], n))
        found = np.empty((*rows.shape[:-1], count), np.int32)
        for at in np.ndindex(rows.shape[:-1]):
            found[at] = _near(index, rows[at][None], masks[at], count, at_least)[0]
        return found

    def near(wanted: Array, kept: Array) -> Array:
        def of_few() -> Array:
            slots = jnp.nonzero(wanted, size=few, fill_value=n)[0].astype(jnp.int32)
            return _nearest_of(memory, slots, query.embedding[None], count)[0]

        def by_index() -> Array:
            shape = jax.ShapeDtypeStruct((count,), jnp.int32)
            return jax.pure_callback(
                on_host, shape, jax.lax.stop_gradient(query.embedding), wanted, vmap_method="expand_dims"
            )

        return jax.lax.cond(kept <= few, of_few, by_index)

    found = [near(planned.wanted[sign], planned.kept[sign]) for sign in range(planned.wanted.shape[0])]
    slots = _union(jnp.concatenate([*found, planned.salient.reshape(-1)]), n, jnp)
    return _merged(config, params, memory, planned, query, slots)


@jax.jit(static_argnames="count")
def _plan(config: Config, params: Params, memory: Memory, query: Query, count: int) -> Plan:
    shards.whole_only(config, "ann")
    params, query, _ = check_asked(config, params, memory, query)
    now = time_of_recall(memory, query)
    asked = matches(memory, query, now)
    salience = pool_salience(config, params, memory, query, now)
    wanted = asked[None, config.core_capacity :]
    if isinstance(config.top_k, tuple):
        delight = memory.buffer.rpe >= 0
        wanted = jnp.stack([wanted[0] & sign for sign in (delight, ~delight)])  # both count in a softmax

    def most_salient(wanted: Array) -> Array:
        best, slot = top_k(canonical(jnp.where(wanted, salience[config.core_capacity :], -jnp.inf)), count)
        return jnp.where(best > -jnp.inf, slot, config.buffer_capacity)

    n = config.buffer_capacity
    sample = jnp.asarray(np.unique(np.random.default_rng(0).integers(0, n, _SAMPLE, dtype=np.int32)))
    return Plan(
        count=jnp.sum(asked, dtype=jnp.int32),
        sample=sample,
        sampled=read(asked, config.core_capacity + sample),
        drawn=jnp.zeros(n, bool).at[sample].set(True),
        asked=asked,
        salience=salience,
        of_salience=normalised(config, params.salience_temperature, salience, asked),
        wanted=wanted,
        kept=jnp.sum(wanted, axis=1, dtype=jnp.int32),
        salient=jnp.stack([most_salient(of_sign) for of_sign in wanted]),
    )


@jax.jit
def _merge(config: Config, params: Params, memory: Memory, plan: Plan, query: Query, slots: Array) -> Recall:
    def one(x: tuple[Query, Array]) -> Recall:
        return _merged(config, params, memory, plan, *x)

    return jax.lax.map(one, (query, slots), batch_size=_AT_ONCE)


@jax.jit
def _merge_one(config: Config, params: Params, memory: Memory, plan: Plan, query: Query, slots: Array) -> Recall:
    return _merged(config, params, memory, plan, query, slots)


def _merged(config: Config, params: Params, memory: Memory, plan: Plan, query: Query, slots: Array) -> Recall:
    """The best of core and of the buffer's `slots` [C], ascending."""
    params, query, answerable = check_asked(config, params, memory, query)
    core, n = config.core_capacity, config.buffer_capacity

    def near_to(slots: Array) -> Array:
        return cosines(*read((memory.buffer.embedding, memory.buffer.inv_norm), slots), query.embedding)

    near = jnp.concatenate([cosines(memory.core.embedding, memory.core.inv_norm, query.embedding), near_to(slots)])
    places = jnp.concatenate([jnp.arange(core, dtype=jnp.int32), core + slots])
    asked, salience, of_salience = read((plan.asked, plan.salience, plan.of_salience), places)
    asked = asked & (places < core + n)
    of_semantic = normalised(config, params.semantic_temperature, near, asked)
    if config.fusion == "softmax":
        drawn = jnp.concatenate([jnp.zeros(core, bool), read(plan.drawn, slots)])
        known = jnp.where(asked, near, -jnp.inf)
        share = _share_of_candidates(params.semantic_temperature, plan, known, drawn, near_to(plan.sample))
        of_semantic = of_semantic * share
    asked = asked & answerable
    return best_of(config, params, memory, query, answerable, places, asked, near, salience, (of_semantic, of_salience))


def _share_of_candidates(
    temperature: Array, plan: Plan, near: Float[Array, " C"], drawn: Bool[Array, " C"], sample: Float[Array, " M"]
) -> Float[Array, ""]:
    """How much of the softmax over all cosines the candidates have; the rest is estimated from a sample.

    Far memories are so many that together they weigh as much as the near ones. A softmax over the candidates alone
    would overrate meaning against salience, which is normalised over all.

    Args:
      near: cosines of the candidates, -inf where there is none. drawn: which of them are in the sample, too.
      sample: cosines of the sample.
    """
    logits, others = near / temperature, jnp.where(plan.sampled, sample, -jnp.inf) / temperature
    greatest = jnp.maximum(jnp.max(logits), jnp.max(others))
    greatest = jnp.where(greatest > -jnp.inf, greatest, 0.0)
    weights = jnp.exp(logits - greatest)
    # Those of the sample that are no candidates. To take the others off is cheaper than to look for each.
    rest = jnp.sum(jnp.exp(others - greatest)) - jnp.sum(jnp.where(drawn, weights, 0.0))
    n = jnp.sum(plan.sampled, dtype=jnp.int32) - jnp.sum(drawn & (near > -jnp.inf), dtype=jnp.int32)
    left = plan.count - jnp.sum(near > -jnp.inf, dtype=jnp.int32)
    times = left.astype(jnp.float32) / jnp.maximum(n, 1).astype(jnp.float32)
    total = jnp.sum(weights)
    return total / jnp.maximum(total + times * jnp.maximum(rest, 0.0), jnp.finfo(jnp.float32).tiny)


@jax.jit(static_argnames="count")
def _nearest_of(memory: Memory, slots: Int32[Array, " M"], embeddings: Float[Array, "Q D"], count: int) -> Array:
    """The nearest of `slots` of the buffer, by exact search: [Q, count], the capacity where there are no more."""
    n = memory.buffer.id.shape[0]
    embedding, inv_norm = read((memory.buffer.embedding, memory.buffer.inv_norm), slots)

    def one(vector: Array) -> Array:
        near = canonical(jnp.where(slots < n, cosines(embedding, inv_norm, vector), -jnp.inf))
        best, found = top_k(near, count)
        return jnp.where(best > -jnp.inf, read(slots, found), n)

    return jax.lax.map(one, embeddings, batch_size=_AT_ONCE)


def _near(index: Index, embeddings: np.ndarray, wanted: np.ndarray, count: int, at_least: int) -> np.ndarray:
    """NumPy and the index alone: it is called from inside of jit, too."""
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.sqrt(np.square(embeddings).sum(axis=-1, keepdims=True))
        usable = np.isfinite(norm) & (norm > 0)
        directions = np.where(usable, embeddings / np.where(usable, norm, 1), np.float32(0))
    return index.nearest(directions, count, asked=wanted, at_least=at_least)


def _union(slots: Any, nowhere: int, xp: Any) -> Any:
    """Ascending along the last axis, none twice; by NumPy or jax.numpy."""
    slots = xp.sort(slots, axis=-1)
    again = xp.concatenate([xp.zeros_like(slots[..., :1], bool), slots[..., 1:] == slots[..., :-1]], axis=-1)
    return xp.where(again, xp.int32(nowhere), slots)


def _few(capacity: int, count: int) -> int:
    return min(capacity, max(count, math.ceil(EXACT_BELOW * capacity)))


def _at_least(config: Config, count: int) -> int:
    return min(count, max(config.top_k) if isinstance(config.top_k, tuple) else config.top_k)


def _candidates(config: Config, given: int | None) -> int:
    inputs.check_config(config)
    if config.fusion not in ("softmax", "plain"):
        raise ArgumentValueError(
            f'Config.fusion: expected "softmax" or "plain": {config.fusion!r} compares every cosine with every other, '
            "which candidates can't tell."
        )
    k = max(config.top_k) if isinstance(config.top_k, tuple) else config.top_k
    return min(config.buffer_capacity, max(16, 2 * k) if given is None else inputs.positive("candidates", given))


def _check_index(config: Config, index: Index) -> None:
    if not isinstance(index, Index):
        raise ArgumentTypeError(f"index: expected a dmem_jax.ann.Index, got {type(index).__name__}.")
    if (index.dim, index.capacity) != (config.embedding_dim, config.buffer_capacity):
        raise ArgumentValueError(
            f"index: expected one of Config.buffer_capacity = {config.buffer_capacity} slots and "
            f"Config.embedding_dim = {config.embedding_dim}, got {index.capacity} and {index.dim}: sync it first."
        )
