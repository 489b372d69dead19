"""Seeded vectors to search: a mixture of many centres, as embeddings of real things cluster, or without clusters: iid
in all coordinates, or with a variance that falls as 1 / i, as that of text embeddings does along their main axes."""

import jax
import jax.numpy as jnp

CENTRES = 4096
SPREAD = 0.3  # of a mixture's vectors around their centre, whose coordinates have deviation 1


def vectors(kind: str, memories: int, dim: int) -> jax.Array:
    keys = jax.random.split(jax.random.key(0), 3)
    noise = jax.random.normal(keys[0], (memories, dim))
    if kind == "iid":
        return noise
    if kind == "spectrum":
        return noise / jnp.sqrt(1 + jnp.arange(dim))
    centres = jax.random.normal(keys[1], (CENTRES, dim))
    return centres[jax.random.randint(keys[2], (memories,), 0, CENTRES)] + SPREAD * noise


def queries_near(embedding: jax.Array, queries: int) -> jax.Array:
    near = embedding[jax.random.randint(jax.random.key(2), (queries,), 0, len(embedding))]
    return near + 0.1 * jax.random.normal(jax.random.key(3), near.shape)
