"""Without a sort of the store: XLA's top-k, which is fast for float32, of the negated key, computed on the way."""

from jaxtyping import Array

from dmem_kernels.decay import decayed_key
from dmem_kernels.selection import canonical, top_k


def evict_topk(
    strength: Array, touched: Array, half_life: Array, live: Array, now: Array, n: int
) -> tuple[Array, Array]:
    """As in `api`."""
    key = decayed_key(strength, touched, half_life, live, now)
    # Negating a 0 makes the -0 that `canonical` is there to remove, on the way and on the way back.
    least, slot = top_k(canonical(-canonical(key)), n)
    return canonical(-least), slot
