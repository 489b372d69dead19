"""Score, mask and top-k in one: every implementation finds what the plain formulas say, however it is called."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmem_kernels import expected_recall, fused_topk, products
from dmem_kernels.fused_topk import chunks, reference
from dmem_kernels.fused_topk.arg_specs import TESTED, ArgSpec, arguments
from dmem_kernels.fused_topk.terms import Operands, Rule
from dmem_kernels.storage import decode, encode

IMPLEMENTATIONS = ["reference", "xla", "pallas_tpu", "pallas_gpu"]
NAMED = ("weight", "semantic_temperature", "salience_temperature")


class Numpy(NamedTuple):
    """What `fused_topk` returns, as NumPy arrays."""

    scores: np.ndarray
    indices: np.ndarray
    cosines: np.ndarray


@functools.cache
def compiled(implementation: Any, k: int, fusion: str, agents: bool = False, **static):
    """`fused_topk` as a function of its arrays alone; shared, so that nothing is compiled twice."""

    def call(args, scalars):
        named = dict(zip(NAMED, scalars, strict=True))
        return fused_topk(*args, **named, k=k, fusion=fusion, implementation=implementation, **static)

    return jax.jit(jax.vmap(call) if agents else call)


def found(implementation: Any, args, named, agents: bool = False, **static) -> Numpy:
    scalars = tuple(named[name] for name in NAMED)
    if agents:
        scalars = tuple(jnp.broadcast_to(x, args[0].shape[0]) for x in scalars)
    call = compiled(implementation, named["k"], named["fusion"], agents, **static)
    return Numpy(*map(np.asarray, call(args, scalars)))


def oracle(args, named) -> tuple[np.ndarray, np.ndarray]:
    """All cosines and scores [..., N] of one memory by NumPy in float64."""
    query, embeddings, inv_norm, salience = (np.asarray(x.astype(jnp.float32), np.float64) for x in args[:4])
    mask = np.asarray(args[4])
    mask = mask & ~np.isnan(salience)
    with np.errstate(all="ignore"):
        norm = np.linalg.norm(query, axis=-1, keepdims=True)
        cosines = np.where(norm > 0, (query @ embeddings.T) * inv_norm / norm, 0.0)
        terms = [cosines, np.broadcast_to(salience, cosines.shape)]
        if named["fusion"] == "softmax":
            for i, temperature in enumerate((named["semantic_temperature"], named["salience_temperature"])):
                logits = np.clip(terms[i] / float(temperature), -3.4e38, 3.4e38)
                known = mask & ~np.isnan(logits)
                weights = np.exp(logits - np.max(np.where(known, logits, -3.4e38), axis=-1, keepdims=True))
                total = np.sum(np.where(known, weights, 0), axis=-1, keepdims=True)
                terms[i] = np.where(known, weights / total, np.nan)
        w = float(named["weight"])
        scores = w * terms[0] + (1 - w) * terms[1]
    return cosines, np.where(mask & ~np.isnan(scores), scores, -np.inf)


def check(got: Numpy, args, named, exact: bool = False) -> None:
    """The same scores best first, at slots that have them; with `exact`, at the same slots."""
    cosines, scores = oracle(args, named)
    n, k = scores.shape[-1], named["k"]
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    want = np.take_along_axis(scores, order, -1)
    order = np.where(want > -np.inf, order, n)
    short = [(0, 0)] * (scores.ndim - 1) + [(0, k - order.shape[-1])]
    order, want = np.pad(order, short, constant_values=n), np.pad(want, short, constant_values=-np.inf)

    assert got.scores.dtype == got.cosines.dtype == np.float32
    assert got.indices.dtype == np.int32
    np.testing.assert_allclose(got.scores, want, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(got.indices == n, want == -np.inf)
    ordered = np.sort(got.indices, axis=-1)
    assert ((np.diff(ordered) > 0) | (ordered[..., 1:] == n)).all(), "a slot was found twice"
    at = np.minimum(got.indices, n - 1)
    live = got.indices < n
    np.testing.assert_allclose(np.where(live, np.take_along_axis(scores, at, -1), -np.inf), want, rtol=1e-5, atol=1e-7)
    cosine = np.where(live, np.take_along_axis(cosines, at, -1), 0)
    np.testing.assert_allclose(got.cosines, cosine, rtol=1e-5, atol=1e-6)
    if exact:
        np.testing.assert_array_equal(got.indices, order)


def skip_unsupported(implementation: str, spec: ArgSpec) -> None:
    step = {"float32": 32, "bfloat16": 64}.get(spec.dtype)
    if implementation == "pallas_gpu" and (step is None or spec.dim % step or spec.slots % 8):
        pytest.skip("not a shape for this kernel")


def shapes() -> list:
    """Interpreted kernels take seconds each: what all can do is tested of them now, the rest nightly."""

    def marks(spec: ArgSpec, implementation: str) -> list:
        waits = implementation.startswith("pallas") and spec.name != "for every kernel"
        return [pytest.mark.slow] if waits else []

    each = itertools.product(TESTED, IMPLEMENTATIONS)
    return [pytest.param(spec, name, id=f"{spec.name}-{name}", marks=marks(spec, name)) for spec, name in each]


@pytest.mark.parametrize(("spec", "implementation"), shapes())
def test_every_shape(implementation, spec):
    skip_unsupported(implementation, spec)
    agents = spec.agents is not None
    for integers in (False, True):
        args, named = arguments(spec, integers=integers)
        got = found(implementation, args, named, agents)
        for i in range(spec.agents or 1):
            one, its_args = (Numpy(*(x[i] for x in got)), [x[i] for x in args]) if agents else (got, args)
            check(one, its_args, named, exact=integers and spec.fusion == "plain")


# One memory and its queries a case, all of the same shapes, so that one call of an implementation does them all.
CASES = {}
SHAPE = ArgSpec("case", slots=72, dim=32, k=4, queries=2)


def case(function):
    CASES[function.__name__] = function
    return function


@case
def ties_go_to_the_lower_slot(query, embeddings, inv_norm, salience, mask):
    return query, jnp.ones_like(embeddings), jnp.ones_like(inv_norm), jnp.ones_like(salience), mask


@case
def all_is_masked(query, embeddings, inv_norm, salience, mask):
    return query, embeddings, inv_norm, salience, mask & False


@case
def fewer_live_than_wanted(query, embeddings, inv_norm, salience, mask):
    return query, embeddings, inv_norm, salience, jnp.arange(len(mask)) % 64 == 9


@case
def zero_vectors(query, embeddings, inv_norm, salience, mask):
    return query.at[0].set(0), embeddings.at[::2].set(0), inv_norm.at[::2].set(0), salience, mask


@case
def free_slots_hold_anything(query, embeddings, inv_norm, salience, mask):
    junk = jnp.resize(jnp.array([jnp.nan, jnp.inf, -jnp.inf, 3e38]), mask.shape)
    embeddings = jnp.where(mask[:, None], embeddings, junk[:, None])
    return query, embeddings, jnp.where(mask, inv_norm, junk), jnp.where(mask, salience, junk), mask


@case
def what_is_no_number_is_not_found(query, embeddings, inv_norm, salience, mask):
    return query, embeddings.at[3].set(jnp.nan), inv_norm, salience.at[5].set(jnp.nan), mask | True


@case
def huge_values(query, embeddings, inv_norm, salience, mask):
    return query * 1e-15, embeddings * 1e15, inv_norm * 1e-15, salience.at[7].set(3e38), mask


@case
def signed_zeros_are_equal(query, embeddings, inv_norm, salience, mask):
    sign = jnp.where(jnp.arange(len(mask)) % 2 == 0, -0.0, 0.0)
    return query, embeddings * 0, inv_norm, sign, mask


@functools.cache
def cases(implementation: Any, fusion: str):
    args, named = arguments(ArgSpec(**{**vars(SHAPE), "fusion": fusion}))
    all_args = [change(*args) for change in CASES.values()]
    stacked = tuple(jnp.stack(x) for x in zip(*all_args, strict=True))
    got = found(implementation, stacked, named, agents=True)
    return {name: (Numpy(*(x[i] for x in got)), all_args[i], named) for i, name in enumerate(CASES)}


# The softmax forms hold all that the plain ones do; only XLA's differ in how they are made.
@pytest.mark.parametrize(
    ("implementation", "fusion"),
    [
        ("xla", "plain"),
        ("reference", "softmax"),
        ("xla", "softmax"),
        *(pytest.param(kernel, "softmax", marks=pytest.mark.slow) for kernel in ("pallas_tpu", "pallas_gpu")),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_case(name, implementation, fusion):
    got, args, named = cases(implementation, fusion)[name]
    check(got, args, named, exact=name in ("ties_go_to_the_lower_slot", "signed_zeros_are_equal"))


def test_eager_is_jitted_and_types_are_strong():
    args, named = arguments(TESTED[-2])
    eager, jitted = fused_topk(*args, **named, implementation="reference"), found("reference", args, named)
    np.testing.assert_array_equal(eager.indices, jitted.indices)
    np.testing.assert_allclose(eager.scores, jitted.scores, rtol=1e-5)
    assert not any(x.weak_type for x in eager)


def test_one_trace():
    args, named = arguments(TESTED[-2])
    found("xla", args, named)
    call: Any = compiled("xla", named["k"], named["fusion"])
    before = call._cache_size()
    found("xla", tuple(x + x if x.dtype != bool else ~x for x in args), named)
    assert call._cache_size() == before


def test_nothing_to_search():
    args, named = arguments(SHAPE)
    for q, n in (0, 72), (2, 0):
        got = fused_topk(args[0][:q], *(x[:n] for x in args[1:]), **named)
        assert [x.shape for x in got] == [(q, 4)] * 3
        np.testing.assert_array_equal(got.indices, n)
        np.testing.assert_array_equal(got.scores, -np.inf)


def test_nested_vmaps_are_one_larger_call():
    """Agents, each with some queries of its own, of which each sees the memory by a mask of its own."""
    args, named = arguments(ArgSpec("", slots=24, dim=8, k=3, agents=3, queries=4, mask_per_query=True))
    one = functools.partial(fused_topk, **named, implementation="xla")
    nested = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None, None, None, 0))))
    got = Numpy(*map(np.asarray, nested(*args)))
    for i in range(3):
        check(Numpy(*(x[i] for x in got)), [x[i] for x in args], named)
    assert "f32[3,24,4] = dot_general" in str(jax.make_jaxpr(nested)(*args))  # all of them in one product


def plain_scores(args, named, indices):
    """The reference's scores at `indices` [Q, k], to be differentiated by jax alone."""
    queries, embeddings, inv_norm, salience, mask = args
    scalars = (jnp.reshape(named[name], (1, 1, 1)) for name in NAMED)
    per_slot = salience[None, None], mask[None, None]
    operands = Operands(queries[None], embeddings[None], inv_norm[None], *per_slot, *scalars)
    rule = Rule(named["k"], named["fusion"], None)
    scores = reference.all_scores(rule, operands, reference.all_cosines(operands))[0]
    embeddings = embeddings.astype(jnp.float32)
    dots = jnp.einsum("qd,nd->qn", queries, embeddings, precision=jax.lax.Precision.HIGHEST)
    cosines = dots * inv_norm[None] / jnp.linalg.norm(queries, axis=1, keepdims=True)
    return tuple(jnp.take_along_axis(x, indices, axis=1) for x in (scores, cosines))


@pytest.mark.parametrize(
    ("fusion", "dtype"),
    [pytest.param("plain", "float32", marks=pytest.mark.slow), ("softmax", "float32"), ("softmax", "int8")],
)
def test_gradients_are_the_references(fusion, dtype, monkeypatch):
    args, named = arguments(ArgSpec("", slots=24, dim=8, k=3, queries=4, fusion=fusion, dtype=dtype))
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 2 * 4 * 24)  # two queries at a time
    scalars = tuple(named.pop(name) for name in NAMED)
    indices = jax.jit(lambda: fused_topk(*args, **named, **dict(zip(NAMED, scalars, strict=True))))().indices
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, *indices.shape)), jnp.float32)

    differentiable = [i for i, x in enumerate(args) if jnp.issubdtype(x.dtype, jnp.floating)]

    def loss(floats, scalars, of_reference):
        called = {**named, **dict(zip(NAMED, scalars, strict=True))}
        given = list(args)
        for i, x in zip(differentiable, floats, strict=True):
            given[i] = x
        if of_reference:
            scores, cosines = plain_scores(given, called, indices)
        else:
            scores, _, cosines = functools.partial(fused_topk, **called)(*given)
        return jnp.sum(weights[0] * scores) + jnp.sum(weights[1] * cosines)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)), static_argnums=2)
    floats = [args[i] for i in differentiable]
    got, want = gradient(floats, scalars, False), gradient(floats, scalars, True)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        assert np.any(ours != 0) or fusion == "plain"  # which has no temperatures


@pytest.mark.slow
def test_gradients_and_vmap_commute_and_free_slots_hold_anything():
    spec = ArgSpec("", slots=24, dim=8, k=3, agents=3)
    args, named = arguments(spec)
    mask = args[4].at[0].set(False)  # one agent without a memory
    junk = jnp.where(mask[..., None], args[1], jnp.nan)

    def total(query, embeddings, *rest):
        got = fused_topk(query, embeddings, *rest, **named)
        return jnp.sum(jnp.where(got.scores > -jnp.inf, got.scores, 0.0))

    def summed(query, embeddings, *rest):
        return jnp.sum(jax.vmap(total)(query, embeddings, *rest))

    of_vmap = jax.jit(jax.grad(summed, argnums=(0, 1)))
    vmapped = jax.jit(jax.vmap(jax.grad(total, argnums=(0, 1))))
    clean = of_vmap(*args[:4], mask)
    for other in (vmapped(*args[:4], mask), of_vmap(args[0], junk, *args[2:4], mask)):
        for got, want in zip(other, clean, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    assert not np.any(clean[0][0])
    assert np.all(np.any(clean[0][1:] != 0, axis=-1))


def test_chunks_of_queries_are_the_whole(monkeypatch):
    args, named = arguments(ArgSpec("", slots=50, dim=8, k=3, queries=7, mask_per_query=True))
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 3 * 4 * 50)
    got = jax.jit(functools.partial(fused_topk, **named, implementation="xla"))(*args)
    check(Numpy(*map(np.asarray, got)), args, named)


@pytest.mark.parametrize(("queries", "agents"), [(None, None), (None, 5), (2, None), (2, 5)])
@pytest.mark.parametrize("block", [3 * 8, 2 * 50 * 8, 2**19])
def test_blocks_of_int8_are_the_whole(block, queries, agents, monkeypatch):
    """Blocks of rows, of whole agents, and all in one; none but the last divide the sizes."""
    args, named = arguments(ArgSpec("", slots=50, dim=8, k=3, queries=queries, agents=agents, dtype="int8"))
    monkeypatch.setattr(products, "_BLOCK", block)
    call = functools.partial(fused_topk, **named, implementation="xla")
    got = jax.jit(jax.vmap(call) if agents else call)(*args)
    for i in range(agents or 1):
        one, its_args = (jax.tree.map(lambda x, i=i: x[i], (got, list(args)))) if agents else (got, args)
        check(Numpy(*map(np.asarray, one)), its_args, named)


def test_a_thousand_queries_to_a_million_memories_need_little_memory():
    n, q, dim = 1_000_000, 1024, 128
    shapes = (q, dim), (n, dim), (n,), (n,)
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes] + [jax.ShapeDtypeStruct((n,), jnp.bool_)]
    call = functools.partial(fused_topk, k=10, weight=0.5, fusion="softmax", implementation="xla")
    memory = jax.jit(call).lower(*specs).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 2**30


def lowered(platform: str, oversample: int | None = None, **sizes) -> int:
    """How many kernels are in the program for a platform."""
    args, named = arguments(ArgSpec(**{**vars(SHAPE), "dim": 128, **sizes}))
    traced = jax.jit(functools.partial(fused_topk, **named, oversample=oversample)).trace(*args)
    kernel = {"cuda": "mosaic_gpu", "tpu": "tpu_custom_call"}[platform]
    return traced.lower(lowering_platforms=(platform,)).as_text().count(f"custom_call @{kernel}")


@pytest.mark.parametrize(
    ("platform", "dtype"),
    [("cuda", "float32"), ("cuda", "bfloat16"), ("tpu", "float32"), ("tpu", "bfloat16"), ("tpu", "int8")],
)
def test_kernels_lower_for_their_platform(platform, dtype):
    assert lowered(platform, dtype=dtype) == 2  # the normaliser, then the scores


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_what_a_kernel_cannot_do_is_left_to_xla(platform):
    assert lowered(platform, k=130) == 0
    assert lowered(platform, dtype="int8", oversample=4) == 0


def test_fewer_kept_of_each_tile():
    """The best of each tile of 1,024 slots, and of those the best."""
    args, named = arguments(ArgSpec("", slots=4 * 1024, dim=8, k=8, queries=2, fusion="plain", live=1.0))
    got = found("pallas_tpu", args, named, keep_per_tile=2)
    _, scores = oracle(args, named)
    kept = np.argsort(-scores.reshape(2, 4, 1024), axis=-1)[..., :2] + 1024 * np.arange(4)[:, None]
    kept = kept.reshape(2, 8)
    order = np.argsort(-np.take_along_axis(scores, kept, 1), axis=-1)
    np.testing.assert_array_equal(got.indices, np.take_along_axis(kept, order, 1))


@pytest.mark.parametrize(("n", "tiles", "keep", "k"), [(1000, 10, 1, 10), (960, 8, 3, 16), (64, 16, 2, 20)])
def test_expected_recall_is_what_a_simulation_finds(n, tiles, keep, k):
    random = np.random.default_rng(0)
    tile_of_best = random.permuted(np.tile(np.arange(n) % tiles, (4000, 1)), axis=1)[:, :k]
    counts = (tile_of_best[:, :, None] == np.arange(tiles)).sum(axis=1)
    shares = np.minimum(counts, keep).sum(axis=1) / k
    error = shares.std() / np.sqrt(len(shares))
    assert abs(expected_recall(n, tiles, keep, k) - shares.mean()) < 4 * error


def test_expected_recall_at_its_ends():
    assert expected_recall(100_000, 100, 10, 10) == 1.0
    assert expected_recall(100, 1, 1, 10) == pytest.approx(0.1)
    # A million items: the ways to choose are no float any more.
    assert expected_recall(2**20, 1024, 1, 10) == pytest.approx(1 - 9 / 2 / 1024, rel=1e-4)
    with pytest.raises(ValueError, match=r"^n: expected"):
        expected_recall(100, 3, 1, 1)
    with pytest.raises(ValueError, match=r"^keep: expected"):
        expected_recall(100, 4, 0, 1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("message", "change"),
    [
        (r"^k: expected", {"k": 0}),
        (r"^keep_per_tile: expected", {"keep_per_tile": 1.5}),
        (r"^oversample: expected an int", {"oversample": 0}),
        (r"^oversample: expected None where embeddings are float32", {"oversample": 4}),
        (r"^fusion: 'rank' needs all scores", {"fusion": "rank"}),
        (r"^fusion: 'min_max' needs all scores", {"fusion": "min_max"}),
        (r"^fusion: expected", {"fusion": "sum"}),
        (r"^implementation: expected", {"implementation": "cuda"}),
        (r"^weight: expected a scalar or \[2\], got \[3\]", {"weight": jnp.ones(3)}),
        (r"^queries: expected", {"queries": jnp.ones((2, 31))}),
        (r"^embeddings: expected", {"embeddings": jnp.ones(72)}),
        (
            r"^embeddings: expected float32 or bfloat16 or int8, got int32",
            {"embeddings": jnp.ones((72, 32), jnp.int32)},
        ),
        (r"^inv_norm: expected", {"inv_norm": jnp.ones(71)}),
        (r"^salience: expected \[72\] or \[2, 72\]", {"salience": jnp.ones((3, 72))}),
        (r"^mask: expected bool", {"mask": jnp.ones(72)}),
    ],
)
def test_what_is_wrong_is_said(message, change):
    args, named = arguments(SHAPE)
    called = dict(zip(("queries", "embeddings", "inv_norm", "salience", "mask"), args, strict=True))
    with pytest.raises(ValueError, match=message):
        fused_topk(**{**called, **named, **change})


@pytest.mark.parametrize(
    ("implementation", "reason", "sizes"),
    [
        ("pallas_gpu", "embeddings are int8", {"dtype": "int8"}),
        ("pallas_gpu", "multiple of 32 numbers, not 8", {"dim": 8}),
        ("pallas_gpu", "slots must be a multiple of 8, not 9", {"slots": 9}),
        ("pallas_gpu", "one by one, 64 at most", {"k": 65}),
        ("pallas_tpu", "one by one, 128 at most", {"k": 129}),
        ("pallas_tpu", "do not fit into a tile", {"dim": 8192}),
    ],
)
def test_a_named_kernel_says_why_it_cannot(implementation, reason, sizes):
    args, named = arguments(ArgSpec(**{**vars(SHAPE), **sizes}))
    with pytest.raises(NotImplementedError, match=reason):
        fused_topk(*args, **named, implementation=implementation)


def test_a_row_of_int8_is_found_as_its_decoded_float32_is():
    args, named = arguments(ArgSpec("", slots=136, dim=64, k=4, queries=2))
    stored = encode(args[1], jnp.int8)
    inv_norm = [1 / jnp.linalg.norm(x.astype(jnp.float32), axis=-1) for x in (stored.values, decode(stored))]
    got = found("reference", (args[0], stored.values, inv_norm[0], *args[3:]), named)
    want = found("reference", (args[0], decode(stored), inv_norm[1], *args[3:]), named)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.scores, want.scores, rtol=1e-5)
    np.testing.assert_allclose(got.cosines, want.cosines, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("fusion", ["plain", "softmax"])
@pytest.mark.parametrize(("dtype", "oversample"), [("float32", None), ("int8", None), ("int8", 2)])
def test_no_queries_and_no_memories_find_nothing(fusion, dtype, oversample):
    args, named = arguments(ArgSpec("", slots=24, dim=8, k=3, agents=2, dtype=dtype, fusion=fusion))
    call = functools.partial(fused_topk, **named, oversample=oversample, implementation="xla")
    none = [x[:0] for x in args]
    assert jax.vmap(call)(*none).scores.shape == (0, 3)
    of_one = jax.vmap(call, in_axes=(0, None, None, None, None))
    assert of_one(none[0], *(x[0] for x in args[1:])).indices.shape == (0, 3)


def test_a_query_that_is_no_number_finds_nothing():
    args, named = arguments(ArgSpec("", slots=24, dim=8, k=3))
    found = fused_topk(jnp.full(8, jnp.nan), *args[1:], **named)
    assert (found.indices == 24).all()
    assert (found.cosines == 0).all()


@pytest.mark.quick
@pytest.mark.parametrize("dim", [8, 128])  # the second one Hopper's kernel can do, too
def test_agents_on_several_devices(dim):
    """Every platform's kernel is traced, whichever is lowered: each must say that its output varies."""
    args, named = arguments(ArgSpec("", slots=136, dim=dim, k=3, agents=4))
    found = jax.vmap(functools.partial(fused_topk, **named))
    mesh = jax.make_mesh((4,), ("agents",), axis_types=(jax.sharding.AxisType.Auto,))
    apart = jax.shard_map(found, mesh=mesh, in_specs=jax.P("agents"), out_specs=jax.P("agents"))
    np.testing.assert_array_equal(jax.jit(apart)(*args).indices, jax.jit(found)(*args).indices)
