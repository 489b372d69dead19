"""Where one was and what one did in one embedding: an agent learns which step leads into a pit.

After a random walk its memory is asked what came of each action that one could take here, or of something like it.

    python examples/encoders.py
"""

import jax
import jax.numpy as jnp

import dmem_jax as dmem
from dmem_jax import encoders

SIDE, PIT, STEPS = 6, jnp.array([3, 2]), 400  # cells each way, the cell that hurts, steps of the walk
MOVES = {"right": (1, 0), "left": (-1, 0), "up": (0, 1), "down": (0, -1)}
MOVE = jnp.array(list(MOVES.values()))

actions = encoders.CategoricalActions(len(MOVES))
config = dmem.Config(embedding_dim=2 * SIDE + actions.dim, core_capacity=16, buffer_capacity=48, duplicates="search")
params = dmem.Params.default(config, semantic_weight=1.0)  # asked by likeness alone


def embed(cell: jax.Array, action: jax.Array) -> jax.Array:
    """A bump along each axis stands for the cell, so that neighbours are alike; yours may come from any network."""
    state = jnp.exp(-((jnp.arange(SIDE)[None] - cell[:, None]) ** 2).astype(jnp.float32)).reshape(-1)
    return encoders.concatenate(state, actions(action), weight=0.6)  # cosine: .6 x the states' + .4 x the actions'


def walk(carry: tuple[dmem.Memory, jax.Array], key: jax.Array) -> tuple[tuple[dmem.Memory, jax.Array], None]:
    """One random step, and what came of it, into memory; from the pit one is thrown back."""
    memory, cell = carry
    action = jax.random.randint(key, (), 0, len(MOVES))
    there = jnp.clip(cell + MOVE[action], 0, SIDE - 1)
    fell = (there == PIT).all()
    experience = dmem.experience(config, embed(cell, action), rpe=jnp.where(fell, -1.0, 0.0))
    memory, _ = dmem.write(config, params, memory, experience)
    return (memory, jnp.where(fell, cell, there)), None


def foretold(memory: dmem.Memory, cell: jax.Array) -> jax.Array:
    """[4]: for each action the RPE of the memory most alike, where that is alike enough."""
    queries = jax.vmap(embed, in_axes=(None, 0))(cell, jnp.arange(len(MOVES)))
    best = jax.vmap(dmem.recall, in_axes=(None, None, None, 0))(config, params, memory, queries)
    return jnp.where(best.valid & (best.semantic > 0.95), best.rpe, 0.0)[:, 0]


def main() -> dict[str, dict[str, float]]:
    """Walks, then tells what is foretold of each action in the four cells beside the pit, and returns it."""
    start, keys = (dmem.init(config), jnp.array([0, 0])), jax.random.split(jax.random.key(0), STEPS)
    (memory, _), _ = jax.jit(lambda keys: jax.lax.scan(walk, start, keys))(keys)
    rpes = jax.jit(jax.vmap(foretold, in_axes=(None, 0)))(memory, PIT[None] - MOVE)
    found = {into: dict(zip(MOVES, rpe, strict=True)) for into, rpe in zip(MOVES, rpes.tolist(), strict=True)}
    for into, told in found.items():
        print(f"{into} leads into the pit; foretold: " + ", ".join(f"{name} {rpe:+.0f}" for name, rpe in told.items()))
    return found


if __name__ == "__main__":
    main()
