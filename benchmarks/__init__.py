"""How fast D-MEM is, measured beside its peers: `python -m benchmarks --help`.

Every figure is a ratio to a *floor*, the plainest program that reads the least bytes the work must read, run
interleaved with the work in one process: absolute times move with the machine and its neighbours, ratios hardly do.
"""

import os

# Some machines carry a BLAS tuning meant for another processor in these two variables. OpenBLAS obeys them when it is
# loaded, and NumPy, faiss and hnswlib would then be compared at a fraction of their speed. Dropped here, before the
# first import of NumPy, which is the last moment that still counts.
for _tuning in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_tuning, None)
