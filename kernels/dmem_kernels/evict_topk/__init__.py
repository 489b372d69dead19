"""The n weakest of a store whose strengths decay: who leaves first."""

from dmem_kernels.evict_topk.api import evict_topk

__all__ = ["evict_topk"]
