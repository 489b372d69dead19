"""How the demo's free settings were found: the same trials for every policy, in worlds that the demo never sees.

    python -m examples.tune [--trials N] [--out FILE]

Every policy has the same knobs: how fast the critic learns, and how a recall weighs and normalises its two terms. Trial
0 is the default, the others are drawn from the grid, the same for all. Each policy takes, at each capacity, the trial
of the best late return, averaged over worlds with and without the move; `tuned.json` keeps them. What D-MEM does with a
memory, its thresholds, half-lives and rates, is not tuned: those are the library's defaults.
"""

import argparse
import functools
import itertools
import json
import math
import pathlib
import random

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem
from examples import agent, policies
from examples.demo import CAPACITIES, LATE

TRIALS, WORLDS, SEED = 12, 64, 7
GRID = {
    "critic_rate": (0.1, 0.3, 0.5),
    "semantic_weight": (0.25, 0.5, 0.75),
    "salience_temperature": (1.0, 3.0, 10.0, 30.0),
}
DEFAULT = {"critic_rate": policies.CRITIC_RATE, "semantic_weight": 0.5, "salience_temperature": 1.0}


def trials(count: int = TRIALS) -> list[dict[str, float]]:
    """The default, then `count` - 1 others of the grid."""
    grid = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    others = [setting for setting in grid if setting != DEFAULT]
    return [DEFAULT, *random.Random(SEED).sample(others, count - 1)]


@functools.partial(jax.jit, static_argnames=("family",))
def late_returns(family, traits, config, params, rates, keys, moves):
    """[trials, lives]"""

    def one(params, rate, key, moves):
        memory = dmem.init(config, policies.PAYLOAD)
        _, hours, _ = agent.live(family, traits, config, params, rate, memory, key, moves)
        return hours.reward[LATE:].sum(-1).mean()

    over_lives = jax.vmap(one, in_axes=(None, None, 0, 0))
    return jax.vmap(over_lives, in_axes=(0, 0, None, None))(params, rates, keys, moves)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    about = "The same trials of critic rate and recall weights for every policy of the demo. Takes minutes."
    parser = argparse.ArgumentParser(prog="python -m examples.tune", description=about)
    most = math.prod(map(len, GRID.values()))
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help=f"1 to {most}, default %(default)s")
    out = "where the best are written at the end; by default the committed file that the demo reads is overwritten"
    parser.add_argument("--out", type=pathlib.Path, default=policies.TUNED, metavar="FILE", help=out)
    parsed = parser.parse_args(arguments)
    if not 1 <= parsed.trials <= most:
        parser.error(f"--trials: expected 1 to {most}, got {parsed.trials}")
    if parsed.out.is_dir():
        parser.error(f"--out: expected a file, got the folder {parsed.out}")
    parsed.out.parent.mkdir(parents=True, exist_ok=True)
    return parsed


def main() -> None:
    """Print every trial's score, and write the best into a file."""
    parsed = parse()
    tried = trials(parsed.trials)
    keys = jax.random.split(jax.random.key(SEED), WORLDS)
    keys, moves = jnp.concatenate([keys, keys]), jnp.arange(2 * WORLDS) >= WORLDS
    rates = jnp.array([trial["critic_rate"] for trial in tried], jnp.float32)
    tuned: dict[str, dict[str, dict[str, float]]] = {}
    for slots, policy in itertools.product(CAPACITIES, policies.POLICIES):
        if not policy.keeps:
            continue
        config = policies.config_of(policy.family, slots)
        each = [policies.params_of(policy.family, config, trial) for trial in tried]
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        late = np.asarray(late_returns(policy.family, policy.traits(), config, params, rates, keys, moves))
        scores = late.mean(-1)
        best = int(scores.argmax())
        tuned.setdefault(policy.name, {})[str(slots)] = tried[best]
        error = (late[best] - late[0]).std(ddof=1) / np.sqrt(late.shape[1])
        gain = f"best {scores[best]:.2f}, {scores[best] - scores[0]:+.2f} (se {error:.2f}) on the default"
        print(f"{policy.name:14} {slots:3}  {gain}: {tried[best]}\n    all: {np.round(scores, 2)}", flush=True)
    parsed.out.write_text(json.dumps(tuned, indent=1) + "\n")


if __name__ == "__main__":
    main()
