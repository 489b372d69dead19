"""`fused_topk` with `oversample`: a coarse pass in int8 chooses candidates, of which the exact best are found."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmem_kernels import fused_topk
from dmem_kernels.fused_topk import chunks
from dmem_kernels.fused_topk.arg_specs import ArgSpec, arguments
from dmem_kernels.storage import encode

SHAPES = {
    "one query": ArgSpec("", slots=2500, dim=16, k=5, dtype="int8"),
    "shared": ArgSpec("", slots=300, dim=16, k=5, queries=3, dtype="int8"),
    "their own view": ArgSpec("", slots=60, dim=16, k=5, queries=3, dtype="int8", mask_per_query=True),
    "agents": ArgSpec("", slots=40, dim=16, k=3, agents=4, dtype="int8"),
}


def found(args, named, agents=False, **static) -> tuple[np.ndarray, ...]:
    """Scores, indices and cosines."""
    call = functools.partial(fused_topk, **named, **static)
    return tuple(map(np.asarray, jax.jit(jax.vmap(call) if agents else call)(*args)))


def whole_queries(query: jax.Array, seed: int = 0) -> jax.Array:
    """Queries that int8 holds exactly, of norm 128: then no product, cosine or plain score is rounded."""
    random = np.random.default_rng(seed)
    whole = np.zeros(query.shape, np.float32)
    whole[..., :5] = 127, 15, 5, 2, 1
    return jnp.asarray(random.permuted(whole * random.choice([-1, 1], whole.shape), axis=-1), jnp.float32)


@pytest.mark.parametrize("implementation", ["reference", "xla"])
@pytest.mark.parametrize("name", SHAPES)
def test_what_int8_holds_exactly_is_found_exactly(name, implementation):
    """Many scores are equal, so that this is also about ties."""
    spec = SHAPES[name]
    (query, *memory), named = arguments(ArgSpec(**{**vars(spec), "fusion": "plain"}), integers=True)
    args, agents = (whole_queries(query), *memory), spec.agents is not None
    want = found(args, named, agents, implementation="reference")
    for oversample in (1, 4, 1000):
        got = found(args, named, agents, implementation=implementation, oversample=oversample)
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def oracle(args, named, oversample: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and indices for one query each, by NumPy in float64, from a hybrid of exact and coarse cosines."""
    query, rows, inv_norm, salience = (np.asarray(x, np.float64) for x in args[:4])
    live, k, w = np.asarray(args[4]), named["k"], float(named["weight"])
    coarse = np.round(query * (127 / np.abs(query).max()))
    exact, coarse = (rows @ x * inv_norm / np.linalg.norm(x) for x in (query, coarse))

    def scores_of(cosines: np.ndarray) -> np.ndarray:
        terms = [cosines / float(named["semantic_temperature"]), salience / float(named["salience_temperature"])]
        weights = [np.where(live, np.exp(x - x[live].max()), 0) for x in terms]
        shares = [x / x.sum() for x in weights]
        return np.where(live, w * shares[0] + (1 - w) * shares[1], -np.inf)

    candidates = np.sort(np.argsort(-scores_of(coarse), kind="stable")[: oversample * k])
    coarse[candidates] = exact[candidates]
    scores = scores_of(coarse)
    order = candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
    return scores[order], order


@pytest.mark.parametrize("implementation", ["reference", "xla"])
@pytest.mark.parametrize("temperature", [0.25, 0.01])
def test_the_softmax_is_of_exact_candidates_among_coarse_slots(temperature, implementation):
    args, named = arguments(SHAPES["shared"])
    named["semantic_temperature"] = jnp.float32(temperature)
    scores, indices, _ = found(args, named, implementation=implementation, oversample=2)
    for i, query in enumerate(args[0]):
        want_scores, want = oracle((query, *args[1:]), named, oversample=2)
        np.testing.assert_array_equal(indices[i], want)
        np.testing.assert_allclose(scores[i], want_scores, rtol=2e-5)


@pytest.mark.parametrize("temperature", [100.0, 1.0, 0.01, 1e-5])
def test_the_softmax_is_nearly_the_exact_one_at_any_temperature(temperature):
    args, named = arguments(SHAPES["shared"])
    named["semantic_temperature"] = jnp.float32(temperature)
    want = found(args, named, implementation="xla")
    got = found(args, named, implementation="xla", oversample=4)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-3)


@pytest.mark.parametrize("fusion", ["plain", "softmax"])
@pytest.mark.parametrize("name", SHAPES)
def test_xla_does_as_the_reference(name, fusion):
    spec = SHAPES[name]
    args, named = arguments(ArgSpec(**{**vars(spec), "fusion": fusion}))
    agents = spec.agents is not None
    want = found(args, named, agents, implementation="reference", oversample=2)
    got = found(args, named, agents, implementation="xla", oversample=2)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    np.testing.assert_allclose(got[2], want[2], rtol=1e-5, atol=1e-6)


def test_masked_slots_and_what_is_no_number():
    args, named = arguments(SHAPES["shared"])
    query, embeddings, inv_norm, salience, mask = args
    scarce = jnp.arange(len(mask)) % 150 == 9  # two
    junk = jnp.resize(jnp.array([jnp.nan, jnp.inf, -jnp.inf, 3e38]), mask.shape)
    scarce_args = query, embeddings, jnp.where(scarce, inv_norm, junk), jnp.where(scarce, salience, junk), scarce
    for change in (scarce_args, (*args[:4], mask & False), (query.at[0].set(0), *args[1:])):
        want = found(change, named, implementation="xla")
        for implementation in ("reference", "xla"):
            got = found(change, named, implementation=implementation, oversample=4)
            np.testing.assert_array_equal(got[1], want[1])
            np.testing.assert_allclose(got[0], want[0], rtol=1e-3)
    scores, indices, _ = found((query.at[0].set(jnp.nan), *args[1:]), named, oversample=4)
    np.testing.assert_array_equal(indices[0], len(mask))
    np.testing.assert_array_equal(scores[0], -np.inf)


def test_nested_vmaps_are_one_larger_call():
    """Agents, each with some queries of its own, of which each sees the memory by a mask of its own."""
    spec = ArgSpec("", slots=24, dim=8, k=3, agents=3, queries=4, mask_per_query=True, dtype="int8")
    args, named = arguments(spec)
    one = functools.partial(fused_topk, **named, implementation="xla", oversample=2)
    nested = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None, None, None, 0))))
    got = nested(*args)
    want = found(args, named, agents=True, implementation="reference", oversample=2)
    np.testing.assert_array_equal(got.indices, want[1])
    np.testing.assert_allclose(got.scores, want[0], rtol=1e-5)
    assert "i32[3,24,4] = dot_general" in str(jax.make_jaxpr(nested)(*args))  # all of them in one product of int8


def test_chunks_of_queries_are_the_whole(monkeypatch):
    args, named = arguments(ArgSpec("", slots=50, dim=8, k=3, queries=7, mask_per_query=True, dtype="int8"))
    want = found(args, named, implementation="xla", oversample=2)
    monkeypatch.setattr(chunks, "_CHUNK_BYTES", 3 * 4 * 50)
    got = found(args, named, implementation="xla", oversample=2)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)


def test_many_queries_need_little_memory():
    """As much as the exact search of float32: one matrix of 256 MiB, for a chunk of queries at a time."""
    n, q, dim = 1_000_000, 1024, 128
    shapes = ((q, dim), jnp.float32), ((n, dim), jnp.int8), ((n,), jnp.float32), ((n,), jnp.float32), ((n,), jnp.bool_)
    specs = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    for fusion in ("plain", "softmax"):
        call = functools.partial(fused_topk, k=10, weight=0.5, fusion=fusion, implementation="xla", oversample=4)
        memory = jax.jit(call).lower(*specs).compile().memory_analysis()
        assert memory is not None
        assert memory.temp_size_in_bytes < 2**29


def test_gradients_are_those_of_the_exact_search():
    """Where both find the same, plain scores are the same function; under softmax they differ by its sum alone."""
    args, named = arguments(ArgSpec("", slots=24, dim=8, k=3, queries=4, dtype="int8"))

    def total(query, oversample):
        return jnp.sum(fused_topk(query, *args[1:], **named, oversample=oversample).scores)

    gradient = jax.jit(jax.grad(total), static_argnums=1)
    got, want = gradient(args[0], 4), gradient(args[0], None)
    assert np.any(want != 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_four_times_k_candidates_hold_the_best_of_a_mixture():
    """Of 384 numbers, as embeddings of text have, and in clusters, where near neighbours are many."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(64, 384))
    rows = jnp.asarray(centres[random.integers(0, 64, 4096)] + 0.3 * random.normal(size=(4096, 384)), jnp.float32)
    near = random.normal(size=(64, 384), scale=0.1).astype(np.float32)
    query = rows[:64] + near
    values = encode(rows, jnp.int8).values
    inv_norm = 1 / jnp.linalg.norm(values.astype(jnp.float32), axis=-1)
    args = query, values, inv_norm, jnp.zeros(4096), jnp.ones(4096, jnp.bool_)
    named = {"k": 10, "weight": 1.0, "fusion": "plain"}
    exact = found(args, named)[1]

    def recall(oversample: int) -> float:
        got = found(args, named, oversample=oversample)[1]
        return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(got, exact, strict=True)]))

    assert recall(4) >= 0.99
    assert 0.9 < recall(1) < 1  # or there would be nothing to refine


@pytest.mark.usefixtures("unchecked")
def test_more_products_than_int32_can_sum_are_refused():
    spec = jax.ShapeDtypeStruct
    rows, per_slot = spec((2, 2**17 + 1), jnp.int8), spec((2,), jnp.float32)
    args = spec((2**17 + 1,), jnp.float32), rows, per_slot, per_slot, spec((2,), jnp.bool_)
    with pytest.raises(ValueError, match=r"^oversample: int32 can sum 131072"):
        jax.eval_shape(functools.partial(fused_topk, k=1, weight=0.5, oversample=4), *args)
