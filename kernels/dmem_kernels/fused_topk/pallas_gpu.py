"""The kernel for NVIDIA's Hopper, through Mosaic GPU: products by wgmma, the best of a tile from its accumulators.

A block of threads scores one tile of slots by 64 queries. It streams both through shared memory in steps along the
embedding, and multiplies as it goes; the tile's scores never leave the registers, where its best few are taken one by
one, as maximum and lowest slot that has it. Under softmax fusion a sweep before it takes each tile's greatest logit
and sum. k of each tile make the result exact, fewer the approximate top-k of arXiv 2506.04165.

wgmma multiplies float32 by its first ten bits of fraction only, which would exchange neighbours in rank. So a factor
is split into parts that it takes whole: float32 embeddings and queries into two each, whose three products that
matter are added up (the fourth is below the last bit); bfloat16 embeddings are whole, and queries split into three.

Embeddings must be a multiple of one step long, and slots a multiple of 8, which is how shared memory is tiled. What a
tile has beyond the last slot has no bonus, and so no score.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from dmem_kernels.fused_topk import mosaic
from dmem_kernels.fused_topk.merging import kept, merged
from dmem_kernels.fused_topk.mosaic import COLUMN, MATRIX, ROW, Machine
from dmem_kernels.fused_topk.terms import (
    MAX,
    Found,
    Normaliser,
    Operands,
    Rule,
    bonus_of,
    inverse_norm,
    joined,
    logits,
    score_of,
    varying,
)
from dmem_kernels.fused_topk.tiles import TILES, Tile
from dmem_kernels.selection import canonical

_STEP_BYTES = 128  # along an embedding: what one swizzled row of shared memory holds
_STAGES = 4  # steps on their way from memory at a time
_MOST_KEPT = 64  # more rounds than that cost more than a sort


def _down(x: Array, shape: tuple[int, ...]) -> Array:
    return jax.lax.broadcast_in_dim(x, shape, (0,))


def _along(x: Array, shape: tuple[int, ...]) -> Array:
    return jax.lax.broadcast_in_dim(x, shape, (1,))


def unsupported(rule: Rule, operands: Operands) -> str | None:
    """Why this kernel cannot do it, if it cannot."""
    if operands.embeddings.dtype == jnp.int8:
        return "embeddings are int8, which wgmma multiplies by int8 alone"
    tile = TILES["gpu"]
    a, q, dim = operands.queries.shape
    n, step = operands.inv_norm.shape[1], _STEP_BYTES // operands.embeddings.dtype.itemsize
    if dim % step:
        return f"embeddings of {operands.embeddings.dtype} must have a multiple of {step} numbers, not {dim}"
    if n % 8:
        return f"slots must be a multiple of 8, not {n}"
    if kept(rule) > _MOST_KEPT:
        return f"it takes the best of a tile one by one, {_MOST_KEPT} at most, and k is {rule.k}"
    blocks = a, pl.cdiv(n, tile.slots), pl.cdiv(q, tile.queries)
    if max(blocks) >= 2**16:
        return f"its grid would be {blocks}, and 65535 is the most along an axis"
    capabilities = {getattr(device, "compute_capability", "9.0") for device in jax.devices()}
    if capabilities != {"9.0"}:
        return f"wgmma is Hopper's (compute capability 9.0), and the devices here have {sorted(capabilities)}"
    return None


def search(rule: Rule, operands: Operands, interpret: bool = False) -> Found:
    """`interpret` runs the kernel block by block on the host, for tests."""
    tile, machine = TILES["gpu"], mosaic.interpreted() if interpret else mosaic.on_device()
    a, q, _ = operands.queries.shape
    n = operands.inv_norm.shape[1]
    tiles, blocks = pl.cdiv(n, tile.slots), pl.cdiv(q, tile.queries)
    q_pad, n_pad = blocks * tile.queries - q, tiles * tile.slots - n

    def padded(x: Array, fill: float) -> Array:
        """[A, R, N] up to whole tiles and, where R is Q, whole blocks."""
        return jnp.pad(x, ((0, 0), (0, q_pad if x.shape[1] == q > 1 else 0), (0, n_pad)), constant_values=fill)

    queries = jnp.pad(operands.queries, ((0, 0), (0, q_pad), (0, 0)))
    inputs = [
        *_query_parts(queries, operands.embeddings.dtype),
        operands.embeddings,
        padded(operands.inv_norm[:, None], 0.0)[:, 0],
        padded(bonus_of(rule, operands), jnp.nan),
    ]
    if inputs[-1].shape[1] == 1:
        inputs[-1] = inputs[-1][:, 0]

    def run(finish: Callable[..., None], per_query: list[Array], rows: int, dtypes: list[Any]) -> list[Array]:
        """Outputs [A, tiles, Q, rows] of the given dtypes, which `finish` makes of a tile's cosines."""
        columns = [jnp.broadcast_to(x[..., 0], (a, q)) for x in per_query]
        columns = jnp.pad(jnp.stack(columns, axis=1), ((0, 0), (0, 0), (0, q_pad)), constant_values=1.0)
        found = plgpu.kernel(
            functools.partial(_tile, machine, finish, tile, 1 + len(inputs)),
            out_type=[jax.ShapeDtypeStruct((a, tiles, rows, q + q_pad), dtype) for dtype in dtypes],
            grid=(a, tiles, blocks),
            grid_names=("memory", "tile", "block"),
            compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
            interpret=machine.interpret,
        )(columns, *inputs)
        return [jnp.swapaxes(x, 2, 3)[:, :, :q] for x in varying(operands, found)]

    known = [inverse_norm(operands.queries), operands.weight, operands.semantic_temperature]
    if rule.fusion == "softmax":
        tops, totals = run(_sum, known, 1, [jnp.float32, jnp.float32])
        known += joined(*(jnp.moveaxis(x[..., 0], 1, 2) for x in (tops, totals)))
    keep = min(kept(rule), tile.slots)
    return merged(rule.k, n, *run(_rank, known, keep, [jnp.float32, jnp.int32]))


def _leading(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """What wgmma takes of float32: all but the last 13 of 23 bits of fraction."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jax.lax.bitcast_convert_type(bits & jnp.int32(-(2**13)), jnp.float32)


def _query_parts(queries: Float[Array, "A Q D"], dtype: Any) -> list[Array]:
    """Queries as a sum of parts that wgmma takes whole."""
    if dtype == jnp.float32:
        leading = _leading(queries)
        return [leading, queries - leading]
    parts = []
    for _ in range(3):
        parts.append(queries.astype(dtype))
        queries = queries - parts[-1].astype(jnp.float32)
    return parts


def _tile(machine: Machine, finish: Callable[..., None], tile: Tile, inputs: int, *refs: Any) -> None:
    """One tile of slots by one block of queries: its cosines, and what `finish` makes of them.

    Takes references to columns [A, C, Q], the queries' parts [A, Q, D], embeddings [A, N, D], inverse norms [A, N], the
    bonus [A, N] or [A, Q, N], and `finish`'s outputs [A, tiles, rows, Q].
    """
    columns, *queries, embeddings, inv_norm, bonus = refs[:inputs]
    outputs = refs[inputs:]
    memory, t, block = (jax.lax.axis_index(name) for name in ("memory", "tile", "block"))
    first = t * tile.slots
    slots, rows = pl.ds(first, tile.slots), pl.ds(block * tile.queries, tile.queries)
    shape = tile.queries, tile.slots

    def multiply(product: Any) -> Array:
        machine.clear(product)
        _multiply(machine, product, block, t, [x.at[memory] for x in queries], embeddings.at[memory])
        return machine.lay(product[...], MATRIX)

    def score(column_tile: Any, norm_tile: Any, bonus_tile: Any, barrier: Any, *found: Any) -> None:
        shared = len(bonus.shape) == 2
        bonus_here = bonus.at[memory, slots] if shared else bonus.at[memory, rows, slots]
        plgpu.copy_gmem_to_smem(columns.at[memory, :, rows], column_tile, barrier)
        plgpu.copy_gmem_to_smem(inv_norm.at[memory, slots], norm_tile, barrier)
        plgpu.copy_gmem_to_smem(bonus_here, bonus_tile, barrier)
        dots = pl.run_scoped(multiply, machine.accumulator(shape))
        plgpu.barrier_wait(barrier)
        per_query = [_down(machine.lay(column_tile[i], COLUMN), shape) for i in range(columns.shape[1])]
        norms = _along(machine.lay(norm_tile[...], ROW), shape)
        extra = _along(machine.lay(bonus_tile[...], ROW), shape) if shared else machine.lay(bonus_tile[...], MATRIX)
        finish(machine, dots * norms * per_query[0], extra, per_query, first, *found)
        plgpu.commit_smem()
        for one, output in zip(found, outputs, strict=True):
            plgpu.copy_smem_to_gmem(one, output.at[memory, t, :, rows])
        plgpu.wait_smem_to_gmem(0)

    pl.run_scoped(
        score,
        plgpu.SMEM((columns.shape[1], tile.queries), jnp.float32),
        plgpu.SMEM((tile.slots,), jnp.float32),
        plgpu.SMEM((tile.slots,) if len(bonus.shape) == 2 else shape, jnp.float32),
        plgpu.Barrier(num_arrivals=3),
        *(plgpu.SMEM((x.shape[2], tile.queries), x.dtype) for x in outputs),
    )


def _multiply(machine: Machine, product: Any, block: Array, t: Array, queries: list[Any], embeddings: Any) -> None:
    """Adds the block's queries times the tile's embeddings to `product`, step by step along the embedding."""
    dtype, dim = embeddings.dtype, embeddings.shape[1]
    rows, slots = product.shape
    step = _STEP_BYTES // dtype.itemsize
    layout = plgpu.TilingTransform((8, step)), plgpu.SwizzleTransform(_STEP_BYTES)

    add = functools.partial(machine.add, product)

    def narrow(_: Any, *tiles: Any) -> None:
        *queries, embedding = tiles
        for query in queries:
            add(query, embedding)
        plgpu.wgmma_wait(0)

    def wide(leading: Any, rest: Any, _: Any, *tiles: Any) -> None:
        query_leading, query_rest, embedding = tiles
        whole = machine.lay(embedding[...], MATRIX)
        leading[...] = _leading(whole)
        rest[...] = whole - _leading(whole)
        plgpu.commit_smem()
        add(query_leading, leading)
        add(query_rest, leading)
        add(query_leading, rest)
        plgpu.wgmma_wait(0)

    def stream(*split: Any) -> None:
        plgpu.emit_pipeline(
            functools.partial(wide, *split) if split else narrow,
            grid=(dim // step,),
            in_specs=[
                *(plgpu.BlockSpec((rows, step), lambda i: (block, i), transforms=layout) for _ in queries),
                plgpu.BlockSpec((slots, step), lambda i: (t, i), transforms=layout),
            ],
            max_concurrent_steps=_STAGES,
        )(*queries, embeddings)

    parts = 2 if dtype == jnp.float32 else 0
    pl.run_scoped(stream, *(plgpu.SMEM((slots, step), dtype, transforms=layout) for _ in range(parts)))


def _sum(
    machine: Machine, cosines: Array, bonus: Array, per_query: list[Array], first: Array, top_ref: Any, total_ref: Any
) -> None:
    """The greatest logit of a tile, and the sum of exp(logit - greatest)."""
    x = logits(cosines, per_query[2])
    known = (x == x) & (bonus == bonus)
    x = jnp.where(known, x, -MAX)
    top = jnp.max(x, axis=1)
    weights = jnp.where(known, jnp.exp(x - _down(top, x.shape)), 0.0)
    top_ref[0] = top
    total_ref[0] = jnp.sum(weights, axis=1)


def _rank(
    machine: Machine,
    cosines: Array,
    bonus: Array,
    per_query: list[Array],
    first: Array,
    score_ref: Any,
    index_ref: Any,
) -> None:
    """The best of a tile, best first: score and slot."""
    normaliser = Normaliser(*per_query[3:]) if len(per_query) > 3 else None
    scores = canonical(score_of(cosines, bonus, per_query[1], per_query[2], normaliser))
    shape = scores.shape
    slots = machine.lay(jax.lax.broadcasted_iota(jnp.int32, shape, 1), MATRIX)

    def take_best(i: Array, scores: Array) -> Array:
        best = jnp.max(scores, axis=1)
        hit = scores == _down(best, shape)
        slot = jnp.min(jnp.where(hit, slots, shape[1]), axis=1)
        chosen = slots == _down(slot, shape)
        score_ref[i] = best
        index_ref[i] = slot + first
        return jnp.where(chosen, -jnp.inf, scores)

    jax.lax.fori_loop(0, score_ref.shape[0], take_best, scores)
