"""Array kernels that know nothing of memories: canonical scores, selections made on them, score and selection fused."""

from dmem_kernels.fused_topk import TopK, expected_recall, fused_topk
from dmem_kernels.selection import canonical, first_max, first_min, top_k

__all__ = ["TopK", "canonical", "expected_recall", "first_max", "first_min", "fused_topk", "top_k"]
