"""`make`: the memory functions jitted, vmapped over agents and donated, in one frozen bundle."""

import dataclasses
import functools
from collections.abc import Callable

import jax
from jaxtyping import PyTree

from dmem_jax import allocation, inputs, memory
from dmem_jax.checks import check_leading
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError
from dmem_jax.types import Attention, Experience, Memory, Recall, StepInfo, WriteInfo


@dataclasses.dataclass(frozen=True)
class Agents:
    """The functions of `dmem_jax` for `agents` agents at once: every array has a leading axis [agents].

    Functions that return a memory donate the one they are given: it is updated in place and must not be used again.
    `params` are shared by all agents.
    """

    config: Config
    agents: int
    init: Callable[[], Memory]
    """init() -> memories"""
    no_experience: Callable[[], Experience]
    """no_experience() -> experiences that are none"""
    write: Callable[..., tuple[Memory, WriteInfo]]
    """write(params, memories, experiences) -> memories, infos"""
    write_many: Callable[..., tuple[Memory, WriteInfo]]
    """write_many(params, memories, experiences [agents, B]) -> memories, infos [agents, B]"""
    recall: Callable[..., Recall]
    """recall(params, memories, queries) -> recalls"""
    step: Callable[..., tuple[Memory, StepInfo]]
    """step(params, memories, experiences, queries) -> memories, infos"""
    reinforce: Callable[..., Memory]
    """reinforce(params, memories, recalls, rpe [agents], used [agents, K]) -> memories"""
    renew: Callable[..., Memory]
    """renew(params, memories, recalls, used [agents, K]) -> memories"""
    attend: Callable[..., Attention]
    """attend(params, memories, queries) -> attentions over embeddings"""


def make(config: Config, payload: PyTree = None, *, agents: int) -> Agents:
    """The memory functions for `agents` agents at once. See `Agents` for their arguments.

    Args:
      payload: as for `init`.
      agents: number of agents, >= 1.

    >>> import jax.numpy as jnp, dmem_jax as dmem
    >>> config = dmem.Config(embedding_dim=4)
    >>> agents = dmem.make(config, agents=2)
    >>> params, memories = dmem.Params.default(config), agents.init()
    >>> experiences = dmem.experience(config, jnp.eye(2, 4), rpe=jnp.array([5.0, -3.0]))
    >>> memories, infos = agents.step(params, memories, experiences, jnp.eye(2, 4))
    >>> infos.recall.rpe[:, 0].tolist()
    [5.0, -3.0]
    """
    inputs.check_config(config)
    if isinstance(agents, bool) or not isinstance(agents, int):
        raise ArgumentTypeError(f"agents: expected an integer, got {agents!r}.")
    if agents < 1:
        raise ArgumentValueError(f"agents: expected at least 1, got {agents}.")
    spec = inputs.payload_spec(payload)

    def over_agents(function: Callable, *names: str, donates: bool) -> Callable:
        """`names`: of the arguments beside params, each with a leading axis [agents]."""

        def bound(params, *given):
            for name, argument in zip(names, given, strict=True):
                check_leading(name, argument, agents)
            return jax.vmap(functools.partial(function, config, params))(*given)

        return jax.jit(bound, donate_argnums=(1,) if donates else ())

    return Agents(
        config=config,
        agents=agents,
        init=lambda: allocation.init(config, spec, batch_shape=(agents,)),
        no_experience=lambda: inputs.no_experience(config, spec, batch_shape=(agents,)),
        write=over_agents(memory.write, "memories", "experiences", donates=True),
        write_many=over_agents(memory.write_many, "memories", "experiences", donates=True),
        recall=over_agents(memory.recall, "memories", "queries", donates=False),
        step=over_agents(memory.step, "memories", "experiences", "queries", donates=True),
        reinforce=over_agents(memory.reinforce, "memories", "recalls", "rpe", "used", donates=True),
        renew=over_agents(memory.renew, "memories", "recalls", "used", donates=True),
        attend=over_agents(memory.attend, "memories", "queries", donates=False),
    )
