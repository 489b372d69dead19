"""Dot products with narrow rows are those with the widened ones, whatever is batched and wherever blocks end."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmem_kernels import dots, products
from dmem_kernels.storage import encode

N, D = 37, 12
DTYPES = ["float32", "bfloat16", "int8"]


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def wide(rows: jax.Array) -> np.ndarray:
    return np.asarray(rows.astype(jnp.float32))


@pytest.mark.quick
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [D * 5, N * D * 2, 2**19])
def test_one_and_many_of_each(dtype, block):
    rows, vectors = encode(jnp.asarray(drawn(3, N, D)), dtype).values, drawn(3, D)
    each = jax.jit(jax.vmap(dots))
    shared = jax.jit(jax.vmap(dots, in_axes=(None, 0)))
    both = jax.jit(jax.vmap(jax.vmap(dots, in_axes=(None, 0)), in_axes=(0, None)))
    inner = jax.jit(jax.vmap(jax.vmap(dots, in_axes=(0, None)), in_axes=(None, 0)))
    with mock.patch.object(products, "_BLOCK", block):
        for found, expected in [
            (jax.jit(dots)(rows[0], vectors[0]), wide(rows)[0] @ vectors[0]),
            (each(rows, vectors), np.einsum("and,ad->an", wide(rows), vectors)),
            (shared(rows[1], vectors), np.einsum("nd,qd->qn", wide(rows)[1], vectors)),
            (both(rows, vectors), np.einsum("and,qd->aqn", wide(rows), vectors)),
            (inner(rows, vectors), np.einsum("and,qd->qan", wide(rows), vectors)),
        ]:
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-3 if dtype == "int8" else 2e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype):
    rows, vector = encode(jnp.asarray(drawn(N, D)), dtype).values, jnp.asarray(drawn(D))
    weight = jnp.asarray(drawn(N))
    of_vector = jax.grad(lambda v: dots(rows, v) @ weight)(vector)
    np.testing.assert_allclose(of_vector, weight @ wide(rows), rtol=1e-4, atol=1e-3)
    if dtype != "int8":
        of_rows = jax.grad(lambda r: dots(r, vector) @ weight)(rows)
        assert of_rows.dtype == dtype
        np.testing.assert_allclose(wide(of_rows), np.outer(weight, vector), rtol=0.01, atol=1e-5)


@pytest.mark.quick
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_with_nothing_is_nothing(dtype):
    assert dots(jnp.zeros((0, D), dtype), jnp.ones(D, jnp.float32)).shape == (0,)
    assert jax.vmap(dots)(jnp.zeros((0, N, D), dtype), jnp.ones((0, D), jnp.float32)).shape == (0, N)
    np.testing.assert_array_equal(dots(jnp.zeros((N, D), dtype), jnp.ones(D, jnp.float32)), np.zeros(N))


@pytest.mark.quick
def test_every_bfloat16_is_widened_to_itself():
    every = jax.lax.bitcast_convert_type(jnp.arange(2**16, dtype=jnp.uint16), jnp.bfloat16)
    size = jnp.abs(every.astype(jnp.float32))
    every = every[jnp.isfinite(size) & (size >= jnp.finfo(jnp.float32).tiny)][:, None]  # CPUs are set to flush others
    np.testing.assert_array_equal(jax.jit(dots)(every, jnp.ones(1, jnp.float32)), every[:, 0].astype(jnp.float32))
