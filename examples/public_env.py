"""A public task that needs memory: gymnax' MemoryChain, solved with four memory slots and no backpropagation in time.

A fair coin is shown when an episode begins, then nothing but a falling clock; at the end the agent must say which side
it was. Who doesn't remember is right half of the time. (Experiment memory_len of bsuite, Osband et al. 2020, arXiv
1908.03568.)

What each agent learns, alone and online: a linear prediction of the next observation, and a linear policy over what it
sees and what it recalls. What is given: how much counts as surprising, that memories fade (HALF_LIFE), and that recall
goes by strength alone, since the last view looks nothing like the cue. MemoryChain pays nothing for seeing the cue, so
no error of reward can mark it. What marks it is the same error about what is seen, which dopamine signals too (Gardner,
Schoenbaum & Gershman 2018, Rethinking dopamine as generalized prediction error, Proc. R. Soc. B 285: 20181645).

Beside it live the same agent with a memory to which every moment is equally surprising, so that its slots hold the
newest moments, and the same agent without recall. All live in one scan, thousands at once.

    pip install -e ".[examples]"            (in the checkout; gymnax wants jax below 0.12)
    python -m examples.public_env [--quick]
"""

import argparse
import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

import dmem_jax as dmem

try:
    from gymnax.environments.bsuite.memory_chain import EnvParams, MemoryChain
except ImportError:
    missing = dmem.MissingExtraError('gymnax is not installed. In the checkout: pip install -e ".[examples]"')
    if __name__ == "__main__":
        sys.exit(str(missing))
    raise missing from None

CUE_AGES = (10, 30, 100)  # steps from the cue to the question
VARIANTS = {"dmem": (True, True), "newest kept": (True, False), "no memory": (False, True)}  # remembers, is surprised
FIFTHS = 5  # of a life; the last one is scored
HALF_LIFE = 10.0  # steps; between two cues as strong, the newer one wins
POLICY_RATE, PREDICTION_RATE = 0.5, 0.1
SEED = 20260  # the settings above were chosen on another

ENVIRONMENT = MemoryChain(num_bits=1)
SEEN = 3  # numbers in an observation: the clock, which bit is asked for, the cue
# Two cues that look alike are two events, so duplicates are not merged.
CONFIG = dmem.Config(embedding_dim=SEEN, core_capacity=4, buffer_capacity=0, top_k=1, duplicates="off")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Kind:
    """What sets an agent apart. cue_age: steps. remembers: whether it recalls. surprised: whether some moments count
    more than others."""

    cue_age: Int[Array, "*b"]
    remembers: Bool[Array, "*b"]
    surprised: Bool[Array, "*b"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Agent:
    """One agent in its own environment. predictor: from observation and bias to the next observation. policy: weights
    of the recalled observation, the present one and a bias. surprise: of the present observation."""

    memory: dmem.Memory
    predictor: Float[Array, "*b SEEN SEEN+1"]
    policy: Float[Array, "*b 2*SEEN+1"]
    environment: Any
    observation: Float[Array, "*b SEEN"]
    surprise: Float[Array, "*b"]
    key: Key[Array, "*b"]


def task(kind: Kind) -> EnvParams:
    """The MemoryChain that agents of that kind live in."""
    return dataclasses.replace(ENVIRONMENT.default_params, memory_length=kind.cue_age)


def born(kind: Kind, key: Key[Array, ""]) -> Agent:
    """An agent that knows nothing yet, at the start of its first episode."""
    reset_key, key = jax.random.split(key)
    observation, environment = ENVIRONMENT.reset(reset_key, task(kind))
    return Agent(
        memory=dmem.init(CONFIG, jax.ShapeDtypeStruct((SEEN,), jnp.float32)),
        predictor=jnp.zeros((SEEN, SEEN + 1)),
        policy=jnp.zeros(2 * SEEN + 1),
        environment=environment,
        observation=observation,
        surprise=jnp.float32(0.0),
        key=key,
    )


def moment(kind: Kind, agent: Agent) -> tuple[Agent, dict[str, Array]]:
    """One step of one agent's life, and what to count of it."""
    key, act_key, world_key = jax.random.split(agent.key, 3)
    seen = agent.observation

    # Remember this moment if it surprises, and recall. Where nothing surprises, every moment is let in alike.
    rpe = jnp.where(kind.surprised, agent.surprise, 1.0)
    threshold_low = jnp.where(kind.surprised, 1.0, 0.0)
    params = dmem.Params.default(CONFIG, half_life=HALF_LIFE, semantic_weight=0.0, threshold_low=threshold_low)
    experience = dmem.experience(CONFIG, seen, rpe=rpe, payload=seen)
    memory, info = dmem.step(CONFIG, params, agent.memory, experience, seen)
    recalled = jnp.where(kind.remembers, info.recall.payload[0], 0.0)

    # Act on what is recalled and seen, and learn from the reward: REINFORCE (Williams 1992), for a reward met at once.
    features = jnp.concatenate([recalled, seen, jnp.ones(1)])
    chance_of_one = jax.nn.sigmoid(agent.policy @ features)
    action = jax.random.bernoulli(act_key, chance_of_one).astype(jnp.int32)
    # After the last step of an episode this is the first view of a new one.
    next_seen, environment, reward, _, _, _ = ENVIRONMENT.step(world_key, agent.environment, action, task(kind))
    policy = agent.policy + POLICY_RATE * reward * (action - chance_of_one) * features

    # The surprise of what comes next is the error of its prediction, which then learns (normalised least mean squares).
    causes = jnp.append(seen, 1.0)
    error = next_seen - agent.predictor @ causes
    predictor = agent.predictor + PREDICTION_RATE * jnp.outer(error, causes) / (causes @ causes)

    kept = info.write.route >= dmem.Route.BUFFER
    count = {
        "answered": reward != 0,
        "right": reward > 0,
        "kept": kept,
        "let_go": ~kept,
        "kept_surprise": jnp.where(kept, agent.surprise, 0.0),
        "let_go_surprise": jnp.where(kept, 0.0, agent.surprise),
    }
    later = Agent(memory, predictor, policy, environment, next_seen, jnp.linalg.norm(error), key)
    return later, {name: value.astype(jnp.float32) for name, value in count.items()}


def live(kinds: Kind, agents: Agent, steps: int) -> tuple[Agent, dict[str, Array]]:
    """All agents, `steps` later, and their counts [agents] on the way."""

    def together(carry: tuple[Agent, dict[str, Array]], _: None):
        agents, counts = carry
        agents, new = jax.vmap(moment)(kinds, agents)
        return (agents, jax.tree.map(jnp.add, counts, new)), None

    _, counts = jax.eval_shape(jax.vmap(moment), kinds, agents)
    nothing = jax.tree.map(lambda count: jnp.zeros(count.shape, count.dtype), counts)
    return jax.lax.scan(together, (agents, nothing), None, length=steps)[0]


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Lets all agents live, prints a table and returns its rows: shares of right answers with 95 % intervals."""
    parser = argparse.ArgumentParser(description="A cue to remember in gymnax' MemoryChain, with and without memory.")
    parser.add_argument("--quick", action="store_true", help="fewer agents, shorter lives")
    agents_each, steps = (128, 500) if parser.parse_args(arguments).quick else (1024, 1500)  # steps of a fifth

    groups = [(age, name) for age in CUE_AGES for name in VARIANTS]
    settings = [(age, *VARIANTS[name]) for age, name in groups]
    kinds = Kind(*(jnp.repeat(jnp.array(field), agents_each) for field in zip(*settings, strict=True)))
    keys = jax.random.split(jax.random.key(SEED), agents_each * len(groups))
    agents, counts = jax.vmap(born)(kinds, keys), {}
    later = jax.jit(live, static_argnums=2, donate_argnums=1)
    for _ in range(FIFTHS):
        agents, counts = later(kinds, agents, steps)

    counts = {name: np.asarray(count).reshape(len(groups), agents_each) for name, count in counts.items()}
    rows = []
    for (age, name), *count in zip(groups, *counts.values(), strict=True):
        of = dict(zip(counts, count, strict=True))
        share = of["right"] / of["answered"]  # of each agent: agents are independent of each other
        half_width = 1.96 * share.std(ddof=1) / np.sqrt(agents_each)
        rows.append(
            {
                "cue_age": age,
                "variant": name,
                "right": float(share.mean()),
                "half_width": float(half_width),
                "kept_per_episode": float(of["kept"].sum() / of["answered"].sum()),
                "kept_surprise": float(of["kept_surprise"].sum() / of["kept"].sum()),
                "let_go_surprise": float(of["let_go_surprise"].sum() / max(of["let_go"].sum(), 1)),
            }
        )

    lives = f"{agents_each:,} agents in each row and column, each {steps * FIFTHS:,} steps old"
    print(f"Right answers in the last fifth of life, 95 % interval over {lives}; chance is 0.5")
    print(f"{'cue shown':>16}" + "".join(f"{name:>18}" for name in VARIANTS))
    for age in CUE_AGES:
        cells = [f"{row['right']:.4f} ± {row['half_width']:.4f}" for row in rows if row["cue_age"] == age]
        print(f"{age:>6} steps ago" + "".join(f"{cell:>18}" for cell in cells))
    for row in rows:
        if row["variant"] == "dmem":
            print(
                f"cue {row['cue_age']} steps ago: dmem keeps {row['kept_per_episode']:.1f} moments an episode, "
                f"mean surprise {row['kept_surprise']:.2f}; of those let go {row['let_go_surprise']:.3f}"
            )
    return rows


if __name__ == "__main__":
    main()
