"""What a top-k that keeps a few of each tile may be expected to find."""

import math


def expected_recall(n: int, tiles: int, keep: int, k: int) -> float:
    """The expected share of the k best of n that are found when each of `tiles` equal parts keeps its `keep` best.

    That the k best fall anywhere with the same chance is assumed: neighbouring slots that resemble each other fare
    worse. The number of them in one part is then hypergeometric, and of X of them min(X, keep) are kept:

        recall = tiles / k * E[min(X, keep)] = 1 - tiles / k * sum over r > keep of (r - keep) P(X = r)

    which is the closed form of arXiv 2506.04165; keep = 1 is that of TPU-KNN, arXiv 2206.14286.

    Args:
      n: items, a multiple of `tiles`.
      tiles: parts of n / tiles items each, at least 1.
      keep: how many each part keeps, at least 1.
      k: 1 .. n.

    Returns:
      0 .. 1; 1 where keep is at least k or a whole part.

    Raises:
      ValueError: an argument out of its range.
    """
    for name, x in ("tiles", tiles), ("keep", keep), ("k", k):
        if x < 1:
            raise ValueError(f"{name}: expected at least 1, got {x}.")
    if n < k or n % tiles:
        raise ValueError(f"n: expected at least k, {k}, and a multiple of tiles, {tiles}, got {n}.")
    size = n // tiles
    ways = math.comb(n, size)  # exact: its parts may be too large for a float, their ratio is not
    lost = range(keep + 1, min(k, size) + 1)
    missed = sum((r - keep) * (math.comb(k, r) * math.comb(n - k, size - r) / ways) for r in lost)
    return 1.0 - tiles / k * missed
