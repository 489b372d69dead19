"""Array kernels that know nothing of memories: decay, softmax, canonical scores, the selections made on them,
and all of it fused."""

from dmem_kernels.decay import age, decayed_key, elapsed, log2_decayed
from dmem_kernels.evict_topk import evict_topk
from dmem_kernels.fused_topk import TopK, expected_recall, fused_topk
from dmem_kernels.products import dots
from dmem_kernels.selection import canonical, first_max, first_min, top_k
from dmem_kernels.softmax import masked_softmax

__all__ = [
    "TopK",
    "age",
    "canonical",
    "decayed_key",
    "dots",
    "elapsed",
    "evict_topk",
    "expected_recall",
    "first_max",
    "first_min",
    "fused_topk",
    "log2_decayed",
    "masked_softmax",
    "top_k",
]
