"""Array kernels that know nothing of memories: decay, canonical scores and the selections made on them."""

from dmem_kernels.decay import age, decayed_key, elapsed, log2_decayed
from dmem_kernels.selection import canonical, first_max, first_min, top_k

__all__ = [
    "age",
    "canonical",
    "decayed_key",
    "elapsed",
    "first_max",
    "first_min",
    "log2_decayed",
    "top_k",
]
