"""Clusters of the buffer, and a recall that looks into the nearest few of them instead of everywhere.

    found = clusters.fit(config, memory, key, count=1024)
    memory, info = dmem.write(config, params, memory, experience)
    found = clusters.update(config, memory, found, info)  # after each write
    recall = clusters.recall(config, params, memory, found, query, probes=8)
    share = clusters.measured_recall(config, params, memory, found, queries, probes=8)  # against exact recall

For buffers of some ten thousand memories and more; below, the exact recall is as fast. Spherical k-means: embeddings
count by their direction, as in recall. Core is small, and always searched whole. N slots of the buffer, C clusters.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from dmem_jax import inputs, shards
from dmem_jax.checks import check_asked, check_key
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.params import Params
from dmem_jax.retrieval import best_of, matches, normalised, pool_salience, search, time_of_recall
from dmem_jax.similarity import directions, inverse_norm, pool_cosines
from dmem_jax.slots import capacity, put, read
from dmem_jax.types import Memory, Query, Recall, Store, Tier, WriteInfo
from dmem_kernels import canonical, first_max, top_k

_ROWS = 4096  # embeddings whose similarity to all centroids is computed at once


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Clusters:
    """Which memories of the buffer lie in which direction. Lists hold slots of the buffer, N where there is none."""

    centroid: Float[Array, "C D"]  # of length 1
    weight: Float[Array, " C"]  # memories that shaped it
    member: Int32[Array, "C L"]
    size: Int32[Array, " C"]  # members in its list
    spill: Int32[Array, " S"]  # those whose list was full; always searched
    spilled: Int32[Array, ""]
    home: Int32[Array, " N"]  # cluster of each slot; C in the spill, C + 1 in no list


def fit(
    config: Config, memory: Memory, key: PRNGKeyArray, *, count: int, iterations: int = 10, slack: float = 2.0
) -> Clusters:
    """K-means over the buffer's live memories.

    Args:
      key: one typed PRNG key: draws the first centroids.
      count: C, clusters, 1 .. buffer capacity; about the square root of N times two is fast to search.
      iterations: rounds of k-means, >= 1, over at most 64 memories a cluster.
      slack: room in a cluster's list, as a multiple of the average N / C, >= 1.

    Returns:
      `Clusters`. A cluster that gets nothing moves to the memory that is served worst.

    Raises:
      ArgumentTypeError, ArgumentValueError: named, at trace time.
    """
    inputs.check_config(config)
    shards.whole_only(config, "clusters.fit")
    check_key("key", key)
    n = config.buffer_capacity
    count, iterations = inputs.positive("count", count), inputs.positive("iterations", iterations)
    if count > n:
        raise ArgumentValueError(f"count: expected at most Config.buffer_capacity = {n}, got {count}.")
    if not slack >= 1:
        raise ArgumentValueError(f"slack: expected at least 1, got {slack}.")
    store = memory.buffer
    live = store.id >= 0
    drawn = jnp.where(live, jax.random.uniform(key, (n,), jnp.float32), -1.0)
    _, sample = top_k(drawn, min(n, 64 * count))
    rows, inv_norm, there = read((store.embedding, store.inv_norm, live), sample)
    sampled = directions(rows, inv_norm)
    there = there & (inv_norm > 0)
    centroid = sampled[:count]

    def improve(_: Array, centroid: Array) -> Array:
        near, cluster = _nearest(sampled, centroid)
        cluster = jnp.where(there, cluster, count)
        total = _sum_by(cluster, sampled, count)
        norm = jax.vmap(inverse_norm)(total)
        # Those worst served take over the empty clusters, one each.
        _, worst = top_k(canonical(jnp.where(there, -near, -jnp.inf)), count)
        empty = norm == 0
        order = jnp.cumsum(empty.astype(jnp.int32)) - 1
        fresh = sampled[worst[jnp.clip(order, 0, count - 1)]]
        return jnp.where(empty[:, None], fresh, total * norm[:, None])

    centroid = jax.lax.fori_loop(0, iterations, improve, centroid)
    return _listed(store, centroid, math.ceil(slack * n / count))


def update(config: Config, memory: Memory, clusters: Clusters, info: WriteInfo) -> Clusters:
    """`clusters` after one `write` or `step` (its `info`): what is now in that slot of the buffer joins the nearest
    cluster whose list has room, which moves towards it; where none has, it waits in the spill. What was pushed out of
    core is followed too, for it took that same slot.

    One write touches one slot of the buffer, so this costs a look at the centroids. After `consolidate`, or when many
    writes have spilled, `fit` anew.
    """
    inputs.check_config(config)
    shards.whole_only(config, "clusters.update")
    if not isinstance(info, WriteInfo):
        raise ArgumentTypeError(f"info: expected a dmem_jax.WriteInfo, got {type(info).__name__}.")
    # A demotion fills a slot that the info does not name: it is where the demoted id now is.
    n = config.buffer_capacity
    demoted = jnp.where(
        (memory.buffer.id == info.demoted_id) & (info.demoted_id >= 0), jnp.arange(n, dtype=jnp.int32), n
    )
    slot = jnp.where(info.tier == Tier.BUFFER, info.slot, jnp.min(demoted))
    return _joined(memory.buffer, _without(clusters, slot), slot)


def recall(
    config: Config,
    params: Params,
    memory: Memory,
    clusters: Clusters,
    query: Query | Array,
    *,
    probes: int = 8,
    salient: int = 16,
) -> Recall:
    """`dmem_jax.recall` over core, the `probes` nearest clusters, the spill, and the `salient` strongest of the buffer.

    Args:
      probes: clusters searched, 1 .. C. More find more, and take longer.
      salient: memories that are looked at for their salience alone, >= 0: what matters most may lie elsewhere.

    Returns:
      A `Recall`; scores are normalised over the candidates. `measured_recall` says how much of the exact one it finds.
    """
    shards.whole_only(config, "clusters.recall")
    params, query, answerable = check_asked(config, params, memory, query)
    probes = inputs.positive("probes", probes)
    if probes > clusters.size.shape[0]:
        raise ArgumentValueError(f"probes: expected at most {clusters.size.shape[0]}, the clusters, got {probes}.")
    n = config.buffer_capacity
    nearness = jnp.einsum("cd,d->c", clusters.centroid, query.embedding, precision=jax.lax.Precision.HIGHEST)
    best, near = top_k(canonical(jnp.where(clusters.size > 0, nearness, -jnp.inf)), probes)
    # Not only right but fast: XLA:CPU sorts all where it sees that the best themselves are not used.
    near = jnp.where(best > -jnp.inf, near, clusters.size.shape[0])
    slots = jnp.concatenate([clusters.member.at[near].get(mode="fill", fill_value=n).reshape(-1), clusters.spill])
    if salient:
        now = time_of_recall(memory, query)
        strong = pool_salience(config, params, memory, query, now)[config.core_capacity :]
        best, strongest = top_k(canonical(jnp.where(memory.buffer.id >= 0, strong, -jnp.inf)), min(salient, n))
        strongest = jnp.where(best > -jnp.inf, strongest, n)
        # Those that are candidates already are not looked at twice.
        home = read(clusters.home, strongest)
        probed = (home[:, None] == near[None, :]).any(axis=1) | (home == clusters.size.shape[0])
        slots = jnp.concatenate([slots, jnp.where(probed, n, strongest)])

    # Core and the candidates are a small memory of their own, to whose slots the core's formulas apply.
    wide = {"payload": None, "next_embedding": None, "discount": None}
    rows = read(dataclasses.replace(memory.buffer, **wide), slots)
    rows = dataclasses.replace(rows, id=jnp.where(slots < n, rows.id, -1))
    candidates = dataclasses.replace(memory, core=dataclasses.replace(memory.core, **wide), buffer=rows)
    now = time_of_recall(memory, query)
    asked = matches(candidates, query, now) & answerable
    salience = pool_salience(config, params, candidates, query, now)
    near = pool_cosines(candidates, query.embedding)
    terms = (
        normalised(config, params.semantic_temperature, near, asked),
        normalised(config, params.salience_temperature, salience, asked),
    )
    places = jnp.concatenate([jnp.arange(config.core_capacity, dtype=jnp.int32), slots + config.core_capacity])
    return best_of(config, params, memory, query, answerable, places, asked, near, salience, terms)


def measured_recall(
    config: Config,
    params: Params,
    memory: Memory,
    clusters: Clusters,
    queries: Float[Array, "Q D"],
    *,
    probes: int = 8,
    salient: int = 16,
) -> Float[Array, ""]:
    """Share of the memories that exact recall gives for `queries` that the pruned one gives, too; in [0, 1]."""

    def one(query: Array) -> tuple[Array, Array]:
        sound, asked, answerable = check_asked(config, params, memory, query)
        exact = search(config, sound, memory, asked, answerable, pool_cosines(memory, asked.embedding))
        pruned = recall(config, params, memory, clusters, query, probes=probes, salient=salient)
        hit = (exact.id[:, None] == pruned.id[None, :]) & exact.valid[:, None] & pruned.valid[None, :]
        return jnp.sum(hit, dtype=jnp.int32), jnp.sum(exact.valid, dtype=jnp.int32)

    found, wanted = jax.lax.map(one, queries)
    total = jnp.sum(wanted).astype(jnp.float32)
    return jnp.sum(found).astype(jnp.float32) / jnp.where(total > 0, total, 1.0)


def _nearest(vectors: Float[Array, "M D"], centroid: Float[Array, "C D"]) -> tuple[Array, Array]:
    """Greatest similarity with a centroid, and which."""
    m, dim = vectors.shape
    rows = min(_ROWS, m)
    blocks = -(-m // rows)
    padded = jnp.pad(vectors, ((0, blocks * rows - m), (0, 0))).reshape(blocks, rows, dim)

    def one_block(block: Array) -> tuple[Array, Array]:
        near = jnp.einsum("md,cd->mc", block, centroid, precision=jax.lax.Precision.HIGHEST)
        return jax.vmap(first_max)(canonical(near))

    near, cluster = jax.lax.map(one_block, padded)
    return near.reshape(-1)[:m], cluster.reshape(-1)[:m]


def _sum_by(cluster: Int32[Array, " M"], values: Float[Array, "M D"], count: int) -> Float[Array, "C D"]:
    return jax.ops.segment_sum(values, cluster, num_segments=count + 1)[:count]


def _listed(store: Store, centroid: Float[Array, "C D"], length: int) -> Clusters:
    """Every live memory in the list of its nearest cluster, in order of slots; in the spill where that is full."""
    n, count = capacity(store), centroid.shape[0]
    spill_length = max(64, n // 256)
    live = store.id >= 0
    _, cluster = _nearest(directions(store.embedding, store.inv_norm), centroid)
    cluster = jnp.where(live, cluster, count)
    slot = jnp.arange(n, dtype=jnp.int32)
    order = jnp.argsort(cluster, stable=True).astype(jnp.int32)
    of_cluster = jax.ops.segment_sum(jnp.ones(n, jnp.int32), cluster, num_segments=count + 1)
    start = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(of_cluster)[:-1]])
    rank = jnp.zeros(n, jnp.int32).at[order].set(slot) - start[cluster]
    listed = live & (rank < length)
    member = jnp.full((count, length), n, jnp.int32)
    member = member.at[jnp.where(listed, cluster, count), jnp.where(listed, rank, 0)].set(slot, mode="drop")
    over = live & ~listed
    place = jnp.where(over, jnp.cumsum(over.astype(jnp.int32)) - 1, spill_length)
    in_spill = over & (place < spill_length)
    return Clusters(
        centroid=centroid,
        weight=of_cluster[:count].astype(jnp.float32),
        member=member,
        size=jnp.minimum(of_cluster[:count], length),
        spill=jnp.full(spill_length, n, jnp.int32).at[place].set(slot, mode="drop"),
        spilled=jnp.minimum(jnp.sum(over, dtype=jnp.int32), spill_length),
        home=jnp.where(listed, cluster, jnp.where(in_spill, count, count + 1)),
    )


def _without(clusters: Clusters, slot: Int32[Array, ""]) -> Clusters:
    """`clusters` with nothing in `slot`; the last of the list takes its place."""
    n, count = clusters.home.shape[0], clusters.size.shape[0]
    home = jnp.where(slot < n, read(clusters.home, slot), count + 1)

    def taken_out(members: Array, size: Array) -> Array:
        last = jnp.maximum(size - 1, 0)
        there = jnp.argmax(members == slot)
        return put(put(members, there, read(members, last)), last, jnp.int32(n))

    row = read(clusters.member, home)
    member = put(clusters.member, jnp.where(home < count, home, count), taken_out(row, read(clusters.size, home)))
    size = clusters.size.at[home].add(-1, mode="drop")
    in_spill = home == count
    spill = jnp.where(in_spill, taken_out(clusters.spill, clusters.spilled), clusters.spill)
    return dataclasses.replace(
        clusters, member=member, size=size, spill=spill, spilled=clusters.spilled - in_spill.astype(jnp.int32)
    )


def _joined(store: Store, clusters: Clusters, slot: Int32[Array, ""]) -> Clusters:
    """`clusters` with what is in `slot` in the list of the nearest that has room, which moves towards it."""
    n, count, length = clusters.home.shape[0], *clusters.member.shape
    embedding, inv_norm, id_ = read((store.embedding, store.inv_norm, store.id), slot)
    direction = directions(embedding, inv_norm)
    there = (slot < n) & (id_ >= 0)
    near = jnp.einsum("cd,d->c", clusters.centroid, direction)
    # The nearest with room: what is in no list is never found.
    _, cluster = first_max(canonical(jnp.where(clusters.size < length, near, -jnp.inf)))
    size = read(clusters.size, cluster)
    listed, spills = there & (size < length), there & (size >= length) & (clusters.spilled < clusters.spill.shape[0])
    row = jnp.where(listed, cluster, count)
    member = clusters.member.at[row, size].set(slot, mode="drop")
    spill = put(clusters.spill, jnp.where(spills, clusters.spilled, clusters.spill.shape[0]), slot)
    weight = read(clusters.weight, cluster) + 1.0
    moved = read(clusters.centroid, cluster)
    moved = moved + (direction - moved) / weight
    norm = inverse_norm(moved)
    moved = jnp.where(norm > 0, moved * norm, read(clusters.centroid, cluster))
    home = jnp.where(listed, cluster, jnp.where(spills, count, count + 1))
    return Clusters(
        centroid=put(clusters.centroid, row, moved),
        weight=put(clusters.weight, row, weight),
        member=member,
        size=clusters.size.at[row].add(1, mode="drop"),
        spill=spill,
        spilled=clusters.spilled + spills.astype(jnp.int32),
        home=put(clusters.home, jnp.where(slot < n, slot, n), home.astype(jnp.int32)),
    )
