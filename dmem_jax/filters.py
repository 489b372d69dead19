"""What a query leaves out before anything is scored."""

from jaxtyping import Array, Bool, Int32

from dmem_jax.types import UNSET, Query, Shadow, Store
from dmem_kernels import elapsed


def asked_for(query: Query, rows: Store | Shadow, now: Int32[Array, ""]) -> Bool[Array, " n"]:
    """Which rows are of the task, sign and age that `query` asks for. Whether a slot holds anything is not asked."""
    age = elapsed(now, rows.time)
    right_task = (query.task == UNSET) | (rows.task == query.task)
    right_sign = (query.sign == 0) | ((rows.rpe >= 0) == (query.sign > 0))
    return right_task & right_sign & (age >= query.min_age) & (age <= query.max_age)
