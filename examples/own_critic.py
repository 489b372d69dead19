"""Your own critic: hand its prediction error over as `rpe`, and the memory keeps what that critic did not foresee.

Every agent walks round a ring of places, and every place pays a little, more or less. Place 0 pays a wage as well, the
largest reward there is. One hidden place, another for each agent, holds a smaller find, once in twenty visits. The
critic is a table of values that learns by TD(0); dmem_jax sees nothing of it but its error. Soon the wage is foretold
and let go. The find stays a surprise, and is kept.

    python examples/own_critic.py [--quick]
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

import dmem_jax as dmem

PLACES = 16  # of the ring
WAGE, FIND, FIND_CHANCE = 5.0, 3.0, 0.05  # rewards, and how often the hidden place holds the find
NOISE = 0.3  # standard deviation of what every place pays
GAMMA, LEARNING_RATE = 0.9, 0.1  # of the critic
MET = ("wage", "find", "neither")

CONFIG = dmem.Config(embedding_dim=PLACES, core_capacity=4, buffer_capacity=4, top_k=1)
# Thresholds are multiples of the current average surprise. Routine is noisy here: its errors often reach two.
PARAMS = dmem.Params.default(CONFIG, threshold_low=3.0, threshold_high=6.0)
PAYLOAD = {"place": jnp.int32(0), "met": jnp.int32(0)}  # whatever you want back with a memory; met: an index of MET


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Agent:
    """One walker. values: its critic, V of each place. experience: of the last step, not written yet."""

    memory: dmem.Memory
    experience: dmem.Experience
    values: Float[Array, " PLACES"]
    place: Int[Array, ""]
    hidden: Int[Array, ""]


def born(key: Key[Array, ""]) -> Agent:
    """An agent that knows nothing yet."""
    return Agent(
        memory=dmem.init(CONFIG, PAYLOAD),
        experience=dmem.no_experience(CONFIG, PAYLOAD),
        values=jnp.zeros(PLACES),
        place=jnp.int32(0),
        hidden=jax.random.randint(key, (), 1, PLACES),
    )


def arrive(key: Key[Array, ""], place: Int[Array, ""], hidden: Int[Array, ""]) -> tuple[Array, Array]:
    """The world: the reward of arriving at `place`, and what was met there (an index of MET)."""
    chance_key, noise_key = jax.random.split(key)
    found = (place == hidden) & jax.random.bernoulli(chance_key, FIND_CHANCE)
    met = jnp.where(place == 0, 0, jnp.where(found, 1, 2))
    return jnp.array([WAGE, FIND, 0.0])[met] + NOISE * jax.random.normal(noise_key), met


def embed(place: Int[Array, "*b"]) -> Float[Array, "*b PLACES"]:
    """What stands for a place in the memory; yours may come from any network."""
    return jax.nn.one_hot(place, PLACES)


def walk(agent: Agent, key: Key[Array, ""]) -> tuple[Agent, tuple[dmem.Experience, dmem.WriteInfo]]:
    """One step round the ring; also the experience of the step before, and what became of it."""
    place = (agent.place + 1) % PLACES
    reward, met = arrive(key, place, agent.hidden)

    # One call writes the last experience and recalls for where we are; an agent with a choice acts on `info.recall`.
    memory, info = dmem.step(CONFIG, PARAMS, agent.memory, agent.experience, embed(place))

    # The critic is yours: anything will do that says how much better the world was than expected.
    rpe = dmem.td_error(reward, agent.values[agent.place], agent.values[place], 1.0, gamma=GAMMA)
    values = agent.values.at[agent.place].add(LEARNING_RATE * rpe)

    payload = {"place": place, "met": met}
    experience = dmem.experience(CONFIG, embed(place), rpe=rpe, reward=reward, payload=payload)
    return Agent(memory, experience, values, place, agent.hidden), (agent.experience, info.write)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Lets the agents walk, prints what they kept and let go in the second half, and returns the figures."""
    parser = argparse.ArgumentParser(description="What a memory keeps of what your own critic did not foresee.")
    parser.add_argument("--quick", action="store_true", help="fewer agents")
    agents, laps = (64 if parser.parse_args(arguments).quick else 1024), 200

    birth_key, life_key = jax.random.split(jax.random.key(0))
    keys = jax.random.split(life_key, (laps * PLACES, agents))
    live = jax.jit(lambda walkers, keys: jax.lax.scan(jax.vmap(walk), walkers, keys), donate_argnums=0)
    walkers, (experiences, writes) = live(jax.vmap(born)(jax.random.split(birth_key, agents)), keys)

    late = slice(laps * PLACES // 2, None)  # the critic has learnt by then
    met, surprise = np.asarray(experiences.payload["met"])[late], np.abs(np.asarray(experiences.rpe))[late]
    kept = ~np.isin(np.asarray(writes.route)[late], (dmem.Route.INVALID, dmem.Route.DROPPED, dmem.Route.REFUSED))
    figures = {"kept |rpe|": surprise[kept].mean(), "let go |rpe|": surprise[~kept].mean()}
    print(f"{'met':>10} {'times':>9} {'|rpe|':>6} {'kept':>9} {'let go':>9}")
    for index, name in enumerate(MET):
        of_this = met == index
        figures[f"share of {name} kept"] = kept[of_this].mean()
        counts = f"{(kept & of_this).sum():9,} {(~kept & of_this).sum():9,}"
        print(f"{name:>10} {of_this.sum():9,} {surprise[of_this].mean():6.2f} {counts}")

    recall = jax.vmap(dmem.recall, in_axes=(None, None, 0, 0))(CONFIG, PARAMS, walkers.memory, embed(walkers.hidden))
    recalls_find = (recall.payload["place"][:, 0] == walkers.hidden) & (recall.rpe[:, 0] > FIND / 2)
    figures["share recalling"] = np.mean(recalls_find)
    print(f"mean |rpe|: kept {figures['kept |rpe|']:.2f}, let go {figures['let go |rpe|']:.2f}")
    print(f"{figures['share recalling']:.0%} of {agents:,} agents recall a find when asked about their hidden place")
    return {name: float(figure) for name, figure in figures.items()}


if __name__ == "__main__":
    main()
