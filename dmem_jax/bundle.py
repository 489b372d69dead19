"""`make`: the memory functions jitted, vmapped over agents and donated, in one frozen bundle."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from dmem_jax import allocation, consolidation, inputs, memory, sampling, sharding
from dmem_jax.checks import check_leading
from dmem_jax.config import Config
from dmem_jax.conversion import as_float32, is_concrete
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown
from dmem_jax.params import Params
from dmem_jax.types import (
    Attention,
    ConsolidationReport,
    Experience,
    Memory,
    Query,
    Recall,
    ReplayBatch,
    StepInfo,
    WriteInfo,
)


@dataclasses.dataclass(frozen=True)
class Agents:
    """The functions of `dmem_jax` for `agents` agents at once: every array has a leading axis [agents].

    Functions that return a memory donate the one they are given: it is updated in place and must not be used again.
    `params` are shared by all agents. Arguments go by name or by position; those after a `*` are static: a new value
    compiles a new program.
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
    consolidate: Callable[..., tuple[Memory, ConsolidationReport]]
    """consolidate(params, memories, keys=None [agents], *, rpe_fn=None) -> memories, reports"""
    replay: Callable[..., ReplayBatch]
    """replay(params, memories, keys [agents], *, size=32, replacement=True) -> batches"""
    reprioritize: Callable[..., Memory]
    """reprioritize(params, memories, batches, rpe [agents, B], *, overwrite=False) -> memories"""


def make(config: Config, payload: PyTree = None, *, agents: int, mesh: Mesh | None = None) -> Agents:
    """The memory functions for `agents` agents at once. See `Agents` for their arguments.

    Args:
      payload: as for `init`.
      agents: number of agents, >= 1. For one alone rather call the functions themselves: XLA:CPU copies a memory that
        has an axis of one agent at each write.
      mesh: devices to divide them over, along an axis "agents", "slots" or both (see sharding.py). None: one device.

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
    agents = inputs.positive("agents", agents)
    inputs.check_bytes("agents", agents, agents * allocation.nbytes(config, payload))
    spec = inputs.payload_spec(payload)
    if config.slot_axis is not None:
        raise ArgumentValueError("config: expected one without slot_axis, for a mesh says it, got one with it.")
    if mesh is not None:
        sharding.check_divides(mesh, config, agents)

    def of(function: Callable, takes: str, *, donates: bool = False, static: str = "", whole: bool = False) -> Callable:
        return _OverAgents(config, agents, function, takes.split(), donates, static.split(), mesh, whole)

    def on_mesh(make: Callable[[], Any]) -> Callable[[], Any]:
        """`make`, whose arrays are made where they shall lie."""
        if mesh is None:
            return make
        return jax.jit(make, out_shardings=sharding.shardings(mesh, jax.eval_shape(make)))

    return Agents(
        config=config,
        agents=agents,
        init=on_mesh(lambda: allocation.init(config, spec, batch_shape=(agents,))),
        no_experience=on_mesh(lambda: inputs.no_experience(config, spec, batch_shape=(agents,))),
        write=of(memory.write, "experiences", donates=True),
        write_many=of(memory.write_many, "experiences", donates=True),
        recall=of(memory.recall, "queries"),
        step=of(memory.step, "experiences queries", donates=True),
        reinforce=of(memory.reinforce, "recalls rpe used", donates=True),
        renew=of(memory.renew, "recalls used", donates=True),
        attend=of(memory.attend, "queries"),
        consolidate=of(consolidation.consolidate, "keys=None", donates=True, static="rpe_fn", whole=True),
        replay=of(sampling.replay, "keys", static="size replacement", whole=True),
        reprioritize=of(sampling.reprioritize, "batches rpe", donates=True, static="overwrite", whole=True),
    )


_CLASSES = {"params": Params, "memories": Memory, "experiences": Experience, "recalls": Recall, "batches": ReplayBatch}
_NUMBERS = ("queries", "rpe", "used")  # may come as lists


class _OverAgents:
    """One function of the library for all agents: reads and checks what it is called with, then runs the program."""

    def __init__(
        self,
        config: Config,
        agents: int,
        function: Callable,
        takes: list[str],
        donates: bool,
        static: list[str],
        mesh: Mesh | None,
        whole: bool,
    ):
        """`takes`: names of the arguments after params and memories; `static`: keywords of `function`; `whole`: it
        needs all slots of a memory at once."""
        self.agents, self.name = agents, function.__name__
        positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        named = [name.partition("=") for name in ("params", "memories", *takes)]
        defaults = inspect.signature(function).parameters
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(name, positional, default=None if is_ else inspect.Parameter.empty)
                for name, is_, _ in named
            ]
            + [inspect.Parameter(name, keyword, default=defaults[name].default) for name in static]
        )

        def batched(options: tuple, params: Params, *given: PyTree) -> Any:
            def of_agents(config: Config, params: Params, *given: PyTree) -> Any:
                return jax.vmap(functools.partial(function, config, params, **dict(options)))(*given)

            if mesh is None:
                return of_agents(config, params, *given)
            return sharding.on_mesh(mesh, config, of_agents, whole=whole)(params, *given)

        self.program = jax.jit(batched, static_argnums=0, donate_argnums=(2,) if donates else ())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*self._read(args, kwargs))

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As of a jitted function."""
        return self.program.trace(*self._read(args, kwargs))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As of a jitted function."""
        return self.program.lower(*self._read(args, kwargs))

    def _read(self, args: tuple, kwargs: dict[str, Any]) -> list:
        """The arguments of the program."""
        if args and isinstance(args[0], Config):
            raise ArgumentTypeError(
                "params: expected a dmem_jax.Params, got Config. A bundle knows its config: leave it out."
            )
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(
                f"{self.name}: expected {self.__signature__}, got other arguments: {error}."
            ) from None
        bound.apply_defaults()
        options = tuple(bound.kwargs.items())
        try:
            hash(options)
        except TypeError:
            raise ArgumentTypeError(
                f"{self.name}: expected hashable {', '.join(bound.kwargs)}, got {options}."
            ) from None
        names = list(bound.arguments)[: len(bound.args)]
        return [options, *(self._read_one(name, given) for name, given in zip(names, bound.args, strict=True))]

    def _read_one(self, name: str, given: Any) -> Any:
        expected = _CLASSES.get(name)
        if expected is not None and not isinstance(given, expected):
            raise ArgumentTypeError(f"{name}: expected a dmem_jax.{expected.__name__}, got {type(given).__name__}.")
        if name in _NUMBERS and not isinstance(given, (Query, jax.ShapeDtypeStruct)):
            given = as_float32(name, given)
        leading = () if name == "params" else (self.agents,)
        try:
            # The common case in a fraction of the time that a small program takes.
            if all(leaf.shape[:1] == leading and not leaf.is_deleted() for leaf in jax.tree.leaves(given)):
                return given
        except (AttributeError, jax.errors.ConcretizationTypeError):  # NumPy's and traced arrays are never deleted
            pass
        self._refuse_leaves(name, given)
        return given

    def _refuse_leaves(self, name: str, given: PyTree) -> None:
        """Raises by name what is no array, or was donated, or is of another number of agents."""
        for leaf in jax.tree.leaves(given):
            if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)):
                raise ArgumentTypeError(f"{name}: expected arrays, got {shown(leaf)}.")
            if isinstance(leaf, jax.Array) and is_concrete(leaf) and leaf.is_deleted():
                raise ArgumentValueError(f"{name}: expected what the last call returned, got what was donated to it.")
            if name == "params" and leaf.shape != ():
                raise ArgumentValueError(
                    f"params: expected scalars, for all agents share them, got {list(leaf.shape)}. For params of each "
                    f"agent's own vmap the function itself: jax.vmap(dmem_jax.{self.name}, in_axes=(None, 0, ...))."
                )
        if name != "params":
            check_leading(name, given, self.agents)
