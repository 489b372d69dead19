"""Score, mask and top-k in one: the best slots of a memory without the matrix of all scores."""

from dmem_kernels.fused_topk.api import TopK, fused_topk
from dmem_kernels.fused_topk.approximate import expected_recall

__all__ = ["TopK", "expected_recall", "fused_topk"]
