"""What callers use: arguments checked, then the tuned form."""

from jaxtyping import Array, Bool, Float, Int32

from dmem_kernels.evict_topk import xla


def evict_topk(
    strength: Float[Array, " N"],
    touched: Int32[Array, " N"],
    half_life: Float[Array, " N"],
    live: Bool[Array, " N"],
    now: Int32[Array, ""],
    n: int,
) -> tuple[Float[Array, " n"], Int32[Array, " n"]]:
    """The `n` slots to give up first: free ones, then those with the least strength left, decay included.

    What is left of a strength is strength * 2^(-(now - touched) / half_life). `jax.vmap` makes one batched program.

    Args:
      strength: as of `touched`, >= 0, any unit.
      touched: at most `now`; an age beyond int32 counts as 2^31 - 1.
      half_life: in the unit of `touched`, > 0; inf: no decay.
      live: False where the slot is free.
      n: static, >= 1. Made for up to some 128.

    Returns:
      key: the log2 of what is left, ascending and canonical. -inf: free; the least finite float: live, of strength 0.
      slot: where; of equal keys the lower slot comes first. Entries beyond N are (inf, N).

    Raises:
      ValueError: at trace time, for an `n` below 1 or arrays of different lengths.
    """
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}.")
    for name, array in {"touched": touched, "half_life": half_life, "live": live}.items():
        if array.shape != strength.shape:
            raise ValueError(
                f"{name}: expected the shape of strength, {list(strength.shape)}, got {list(array.shape)}."
            )
    return xla.evict_topk(strength, touched, half_life, live, now, n)
