"""The agents of the demo over several processes, with checkpoints: kill one, start all again, and they go on.

    for i in 0 1 2 3; do
        python -m examples.many_processes --process $i --processes 4 --folder out/lives &
    done

All devices of all processes make one mesh, over which the agents are divided. After each day the processes meet, so
that the death of one is noticed by the others; every few days all that a life consists of is saved in the background.
A run that is started again, with as many processes or with others, goes on after the last complete checkpoint and ends
as it would have without the interruption: each process prints a digest of its agents' lives.
"""

import argparse
import functools
import hashlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmem_jax as dmem
from dmem_jax import checkpoint, sharding
from examples import agent, policies, world

SLOTS = 16
SEED = 104729
POLICY = policies.POLICIES[0]  # dmem


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="of the checkpoints, seen by all processes")
    parser.add_argument("--process", type=int, required=True, help="number of this one, from 0")
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--coordinator", default="127.0.0.1:8476", help="where process 0 listens (%(default)s)")
    parser.add_argument("--agents", type=int, default=64, help="of all processes together (%(default)s)")
    parser.add_argument("--days", type=int, default=12, help="to live (%(default)s)")
    parser.add_argument("--save-every", type=int, default=2, help="days between checkpoints (%(default)s)")
    parser.add_argument("--patience", type=int, default=30, help="seconds until a silent process is dead (%(default)s)")
    options = parser.parse_args(arguments)
    sharding.initialize(
        options.coordinator, options.processes, options.process, heartbeat_timeout_seconds=options.patience
    )
    print(f"process {options.process} of {options.processes}: {jax.device_count()} devices", flush=True)
    try:
        run(options.folder, options.agents, options.days, options.save_every)
    except dmem.ProcessLostError as error:
        print(f"process {options.process}: {error}", file=sys.stderr, flush=True)
        sharding.leave(3)


def run(folder: str, agents: int, days: int, save_every: int) -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("agents",), axis_types=(jax.sharding.AxisType.Auto,))
    config = policies.config_of(POLICY.family, SLOTS)
    tuned = policies.tuned_for(POLICY, SLOTS)
    params = policies.params_of(POLICY.family, config, tuned)
    rate = jnp.float32(tuned["critic_rate"])

    def one_day(key: jax.Array, life: agent.Life, day: jax.Array) -> tuple[agent.Life, jax.Array]:
        the_world = world.new_world(jax.random.fold_in(key, 0), jnp.bool_(True))
        family, traits, today = POLICY.family, POLICY.traits(), jax.random.fold_in(key, day)
        life, (hours, _) = agent.live_a_day(family, traits, config, params, rate, the_world, life, day - 1, today)
        return life, hours.reward.sum()

    over_agents = jax.P("agents")
    live_a_day = jax.jit(
        jax.shard_map(
            jax.vmap(one_day, in_axes=(0, 0, None)),
            mesh=mesh,
            in_specs=(over_agents, over_agents, jax.P()),
            out_specs=over_agents,
            check_vma=False,  # a day begins with constants, which do not vary over agents as what comes of them does
        ),
        donate_argnums=1,
    )

    def begin() -> tuple[jax.Array, agent.Life]:
        memories = dmem.init(config, policies.PAYLOAD, batch_shape=(agents,))
        lives = jax.vmap(functools.partial(agent.born, config, params))(memories)
        return jax.random.split(jax.random.key(SEED), agents), lives

    where = sharding.shardings(mesh, jax.eval_shape(begin))
    keys, lives = jax.jit(begin, out_shardings=where)()
    with checkpoint.Checkpoints(folder, config, keep=2) as checkpoints:
        first = 0
        if checkpoints.steps():
            saved = checkpoints.restore(policies.PAYLOAD, extra=_rest(lives), sharding=mesh)
            lives, first = lives._replace(memory=saved.memory, **saved.extra), checkpoints.steps()[-1]
            print(f"going on after day {first}", flush=True)
        for day in range(first + 1, days + 1):
            lives, rewards = live_a_day(keys, lives, jnp.int32(day))
            sharding.together(f"day {day}")
            print(f"day {day}: a return of {_mine(rewards).mean():.1f}", flush=True)
            if day % save_every == 0:
                checkpoints.save(day, params, lives.memory, extra=_rest(lives))
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(lives):
        digest.update(_mine(leaf).tobytes())
    print(f"digest {digest.hexdigest()}", flush=True)


def _rest(lives: agent.Life) -> dict[str, Any]:
    """What is no memory."""
    return {"experience": lives.experience, "critic": lives.critic, "last": lives.last}


def _mine(array: jax.Array) -> np.ndarray:
    """The part of an array that this process holds, in the order of its devices."""
    return np.concatenate([np.asarray(shard.data).reshape(-1) for shard in array.addressable_shards])


if __name__ == "__main__":
    main()
