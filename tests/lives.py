"""Random experiences and queries for tests, with many repeats so that duplicates, merges and contradictions occur."""

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem

PAYLOAD = {"floats": jax.ShapeDtypeStruct((9,), jnp.float32), "number": jax.ShapeDtypeStruct((), jnp.int32)}


def _places(config: dmem.Config, key: jax.Array, n: int) -> jax.Array:
    """[n, D]: each row one of seven fixed vectors."""
    places = jax.random.normal(jax.random.key(99), (7, config.embedding_dim), jnp.float32)
    return places[jax.random.randint(key, (n,), 0, 7, jnp.int32)]


def random_experiences(config: dmem.Config, key: jax.Array, n: int) -> dmem.Experience:
    where, sign, size, kept = jax.random.split(key, 4)
    rpe = jax.random.normal(sign, (n,), jnp.float32) * jnp.exp(2 * jax.random.normal(size, (n,), jnp.float32))
    return dmem.experience(
        config,
        _places(config, where, n),
        rpe=rpe,
        reward=rpe + 1,
        value=jnp.ones(n, jnp.float32),
        payload={
            "floats": jax.random.normal(kept, (n, 9), jnp.float32),
            "number": jax.random.randint(kept, (n,), 0, 100, jnp.int32),
        },
    )


def random_queries(config: dmem.Config, key: jax.Array, n: int) -> dmem.Query:
    """The places of `random_experiences` with the same key: a probe that the next write can use."""
    where = jax.random.split(key, 4)[0]
    return dmem.query(config, _places(config, where, n), value=jnp.zeros(n, jnp.float32))


def rows(tree, row):
    """Row (or slice) `row` of every leaf, by NumPy: jax would compile a program for each row."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[row], tree)


def assert_trees_equal(a, b, rtol: float = 1e-5) -> None:
    """Equal ids, slots, counts; floats within `rtol`."""
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        name = jax.tree_util.keystr(path)
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype.kind in "ib":
            np.testing.assert_array_equal(x, y, err_msg=name)
        else:
            np.testing.assert_allclose(x.astype(np.float32), y.astype(np.float32), rtol=rtol, atol=1e-6, err_msg=name)
