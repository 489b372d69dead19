"""The public entry: arguments checked and brought to one form, and the implementation chosen."""

import functools
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Shaped

from dmem_kernels.fused_topk import reference, xla
from dmem_kernels.fused_topk.batching import batched
from dmem_kernels.fused_topk.gradients import with_gradient
from dmem_kernels.fused_topk.terms import Found, Operands, Rule, cosines_at

Implementation = Literal["reference", "xla", "pallas_gpu", "pallas_tpu"]


_MOST_SUMMED = 2**17  # products of int8, each 2^14 at most, in int32


class TopK(NamedTuple):
    """The best slots for each query, best first. Beyond those that may be found: score -inf, index N, cosine 0."""

    scores: Float[Array, "*Q k"]
    indices: Int32[Array, "*Q k"]
    cosines: Float[Array, "*Q k"]


def fused_topk(
    queries: Float[Array, "*Q D"],
    embeddings: Shaped[Array, "N D"],
    inv_norm: Float[Array, " N"],
    salience: Float[Array, "*R N"],
    mask: Bool[Array, "*S N"],
    *,
    k: int,
    weight: Float[Array, "*T"] | float,
    semantic_temperature: Float[Array, "*T1"] | float = 1.0,
    salience_temperature: Float[Array, "*T2"] | float = 1.0,
    fusion: str = "softmax",
    keep_per_tile: int | None = None,
    oversample: int | None = None,
    implementation: Implementation | None = None,
) -> TopK:
    """The k best slots of a memory for each query, found without keeping a queries x slots matrix of scores.

    plain:    score = weight * cosine + (1 - weight) * salience
    softmax:  score = weight * softmax(cosine / semantic_temperature)
                      + (1 - weight) * softmax(salience / salience_temperature), over the slots that the mask admits

    where cosine = (query . embedding) * inv_norm / |query|, and 0 where a norm is 0. Scores are float32 and canonical.
    What the mask does not admit scores -inf, and so does what would score NaN; a free slot may hold anything. Ties go
    to the lower slot.

    `jax.vmap` over memories or over queries makes it a larger call, not many. Scores and cosines have gradients in
    all arguments but the mask; under softmax they run through all slots, and are computed by chunks of queries.

    Args:
      queries: [D], or [Q, D]; float32.
      embeddings: [N, D]; float32, bfloat16, or int8 as `storage.encode` makes them.
      inv_norm: [N], 1 / the norm of each embedding as it is given here, or 0; float32. The scale of a row of int8 drops
        out of a cosine, and so none is asked for: the norm is that of the int8 row itself.
      salience: [N], or [Q, N] where queries see it differently; float32, in any unit.
      mask: [N], or [Q, N]; bool: which slots may be found.
      k: how many to find, at least 1. Where fewer may be found, rows (-inf, N, 0) follow.
      weight: of the cosines, 0 .. 1; a scalar or [Q].
      semantic_temperature, salience_temperature: above 0, in units of cosine and of salience; scalars or [Q]. Plain
        fusion does not use them.
      fusion: "softmax" or "plain". By rank, or between the least and the greatest, no score is known before all
        terms are, so that there is nothing to fuse: those are refused.
      keep_per_tile: None for the exact result. With a number the kernels keep so many of each tile of slots at most,
        which is faster for a large k, and finds the share of the best k that `expected_recall` foretells. "reference"
        and "xla" are exact all the same.
      oversample: None scores all slots exactly, int8 ones by the float32 query. With a number, for int8 alone, the
        search has two stages: the query is brought to int8 too, all slots are scored by whole numbers, and the
        oversample * k best of them anew, exactly, for the k best. What is found has the cosines and, under plain
        fusion, the scores of the exact search; under softmax slots that are no candidates count in the sum by their
        coarse cosines. Gradients are those of the exact score. It is for many queries that share a memory, on devices
        that multiply int8 faster than float32: with one query per memory the bus binds, and the exact search is as
        fast. Its share of the exact k best depends on the data; in `benchmarks storage` 4 find as much.
      implementation: None takes the kernel of the platform that the program is lowered for, or "xla" where there is
        none or it cannot do this. A kernel that is named runs on other platforms too, interpreted: for tests.

    Returns:
      scores, indices (int32) and cosines, each [k] or [Q, k].

    Raises:
      ValueError: an argument is not as said here.
      NotImplementedError: the implementation that was named cannot do this.
    """
    _check_static(k, fusion, keep_per_tile, oversample, implementation)
    _check_arrays(queries, embeddings, inv_norm, salience, mask)
    if oversample is not None:
        _check_coarse(embeddings)
    q, n = queries.shape[:-1], embeddings.shape[0]
    scalars = {
        name: _scalars(name, x, q)
        for name, x in [
            ("weight", weight),
            ("semantic_temperature", semantic_temperature),
            ("salience_temperature", salience_temperature),
        ]
    }
    if n == 0 or 0 in q:
        shape = (*q, k)
        return TopK(jnp.full(shape, -jnp.inf), jnp.full(shape, n, jnp.int32), jnp.zeros(shape, jnp.float32))

    k = int(k)  # it may be NumPy's
    rule = Rule(k, fusion, keep_per_tile and int(keep_per_tile), oversample and int(oversample))  # type: ignore[arg-type]
    operands = Operands(
        queries=jnp.reshape(queries.astype(jnp.float32), (1, -1, queries.shape[-1])),
        embeddings=embeddings[None],
        inv_norm=inv_norm[None],
        salience=jnp.reshape(salience, (1, -1, n)),
        mask=jnp.reshape(mask, (1, -1, n)),
        **scalars,
    )
    search = batched(functools.partial(_search, rule, implementation))
    found = search(jax.lax.stop_gradient(operands))
    cosines = cosines_at(operands, found.indices)
    scores = with_gradient(rule, operands, cosines, found.indices, found.scores)
    return TopK(*(jnp.reshape(x, (*q, k)) for x in (scores, found.indices, cosines)))


def _search(rule: Rule, implementation: Implementation | None, operands: Operands) -> Found:
    (a, q, _), n = operands.queries.shape, operands.inv_norm.shape[1]
    if 0 in (a, q):  # what a `vmap` over none comes to
        return Found(jnp.full((a, q, rule.k), -jnp.inf), jnp.full((a, q, rule.k), n, jnp.int32))
    if implementation == "reference":
        return reference.search(rule, operands)
    by_xla = functools.partial(xla.search, rule)
    if implementation == "xla":
        return by_xla(operands)

    # Here, as Pallas takes half a second to import, and who imports this package may never come here.
    from dmem_kernels.fused_topk import pallas_gpu, pallas_tpu

    kernels = {"cuda": pallas_gpu, "tpu": pallas_tpu}
    if implementation is None:
        fitting = {p: kernel for p, kernel in kernels.items() if kernel.unsupported(rule, operands) is None}
        of_platform = {p: functools.partial(kernel.search, rule) for p, kernel in fitting.items()}
        return jax.lax.platform_dependent(operands, default=by_xla, **of_platform)

    platform = {"pallas_gpu": "cuda", "pallas_tpu": "tpu"}[implementation]
    kernel = kernels[platform]
    if reason := kernel.unsupported(rule, operands):
        raise NotImplementedError(f"implementation {implementation!r} cannot do this: {reason}.")
    interpreted = functools.partial(kernel.search, rule, interpret=True)
    compiled = functools.partial(kernel.search, rule)
    return jax.lax.platform_dependent(operands, default=interpreted, **{platform: compiled})


def _check_static(k: Any, fusion: Any, keep_per_tile: Any, oversample: Any, implementation: Any) -> None:
    for name, x in ("k", k), ("keep_per_tile", keep_per_tile), ("oversample", oversample):
        if x is None and name != "k":
            continue
        if not isinstance(x, (int, np.integer)) or isinstance(x, bool) or x < 1:
            raise ValueError(f"{name}: expected an int of at least 1, got {x!r}.")
    if fusion in ("rank", "min_max"):
        raise ValueError(
            f"fusion: {fusion!r} needs all scores of a query before it can rank one, so that there is nothing to fuse; "
            "expected 'plain' or 'softmax'."
        )
    if fusion not in ("plain", "softmax"):
        raise ValueError(f"fusion: expected 'plain' or 'softmax', got {fusion!r}.")
    if implementation not in (None, *get_args(Implementation)):
        names = ", ".join(map(repr, get_args(Implementation)))
        raise ValueError(f"implementation: expected None, {names}, got {implementation!r}.")


def _check_arrays(queries: Any, embeddings: Any, inv_norm: Any, salience: Any, mask: Any) -> None:
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise ValueError(f"embeddings: expected [N, D] with D at least 1, got {list(embeddings.shape)}.")
    n, dim = embeddings.shape
    if queries.ndim not in (1, 2) or queries.shape[-1] != dim:
        raise ValueError(f"queries: expected [{dim}] or [Q, {dim}], got {list(queries.shape)}.")
    q = queries.shape[:-1]
    narrow, wide, boolean = (jnp.float32, jnp.bfloat16, jnp.int8), (jnp.float32,), (jnp.bool_,)
    for name, x, shapes, dtypes in [
        ("queries", queries, {queries.shape}, wide),
        ("embeddings", embeddings, {embeddings.shape}, narrow),
        ("inv_norm", inv_norm, {(n,)}, wide),
        ("salience", salience, {(n,), (*q, n)}, wide),
        ("mask", mask, {(n,), (*q, n)}, boolean),
    ]:
        if x.shape not in shapes:
            expected = " or ".join(str(list(shape)) for shape in sorted(shapes, key=len))
            raise ValueError(f"{name}: expected {expected}, got {list(x.shape)}.")
        if x.dtype not in dtypes:
            expected = " or ".join(jnp.dtype(dtype).name for dtype in dtypes)
            raise ValueError(f"{name}: expected {expected}, got {x.dtype}.")


def _check_coarse(embeddings: Any) -> None:
    if embeddings.dtype != jnp.int8:
        raise ValueError(f"oversample: expected None where embeddings are {embeddings.dtype}: it is for int8 alone.")
    if embeddings.shape[1] > _MOST_SUMMED:
        raise ValueError(f"oversample: int32 can sum {_MOST_SUMMED} products of int8, and D is {embeddings.shape[1]}.")


def _scalars(name: str, x: Any, q: tuple[int, ...]) -> Float[Array, "1 T 1"]:
    x = jnp.asarray(x, jnp.float32)
    if x.shape not in ((), q):
        expected = f"a scalar or {list(q)}" if q else "a scalar"
        raise ValueError(f"{name}: expected {expected}, got {list(x.shape)}.")
    return jnp.reshape(x, (1, -1, 1))
