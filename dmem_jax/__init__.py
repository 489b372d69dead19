"""dmem_jax: an agent's memory that keeps what surprised it, as pure JAX functions on one pytree of arrays."""

import logging

from dmem_jax.allocation import init, nbytes
from dmem_jax.bundle import Agents, make
from dmem_jax.config import Config
from dmem_jax.consolidation import consolidate
from dmem_jax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    ClosedError,
    DatabaseError,
    DmemError,
    MissingExtraError,
    ProcessLostError,
    UnknownMemoryError,
)
from dmem_jax.inputs import experience, no_experience, query
from dmem_jax.memory import attend, rebase, recall, reinforce, renew, step, write, write_many
from dmem_jax.params import Params
from dmem_jax.sampling import replay, reprioritize
from dmem_jax.signals import lambda_error, n_step_error, outcome_error, potential_shaping, td_error
from dmem_jax.types import (
    UNSET,
    Attention,
    ConsolidationReport,
    Experience,
    Memory,
    Probe,
    Query,
    Recall,
    ReplayBatch,
    Ring,
    Route,
    Router,
    Shadow,
    Stats,
    StepInfo,
    Store,
    Tier,
    WriteInfo,
)

__version__ = "0.1.0"

logging.getLogger("dmem_jax").addHandler(logging.NullHandler())

__all__ = [
    "UNSET",
    "Agents",
    "ArgumentTypeError",
    "ArgumentValueError",
    "Attention",
    "CheckpointError",
    "ClosedError",
    "Config",
    "ConsolidationReport",
    "DatabaseError",
    "DmemError",
    "Experience",
    "Memory",
    "MissingExtraError",
    "Params",
    "Probe",
    "ProcessLostError",
    "Query",
    "Recall",
    "ReplayBatch",
    "Ring",
    "Route",
    "Router",
    "Shadow",
    "Stats",
    "StepInfo",
    "Store",
    "Tier",
    "UnknownMemoryError",
    "WriteInfo",
    "__version__",
    "attend",
    "consolidate",
    "experience",
    "init",
    "lambda_error",
    "make",
    "n_step_error",
    "nbytes",
    "no_experience",
    "outcome_error",
    "potential_shaping",
    "query",
    "rebase",
    "recall",
    "reinforce",
    "renew",
    "replay",
    "reprioritize",
    "step",
    "td_error",
    "write",
    "write_many",
]
