"""Array kernels that know nothing of memories: canonical scores and the selections made on them."""

from dmem_kernels.selection import canonical, first_max, first_min, top_k

__all__ = ["canonical", "first_max", "first_min", "top_k"]
