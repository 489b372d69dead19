"""An encoder of texts that needs no model: words and pairs of words, hashed."""

import itertools
import re
import zlib
from collections.abc import Iterable

import numpy as np


class HashingEncoder:
    """Counts of words and of pairs of neighbouring words, each hashed to a place and a sign, as a unit vector.

    It sees the same words, not the same meaning. Deterministic on every machine; a text without words is the zero
    vector.
    """

    def __init__(self, dim: int = 256):
        self.dim = dim
        self.name = f"hashed words and pairs, {dim}"

    def __call__(self, texts: Iterable[str]) -> np.ndarray:
        """float32 [n, dim] of n texts."""
        vectors = np.array([self._counts(text) for text in texts], np.float32).reshape(-1, self.dim)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(norms > 0, norms, np.float32(1))

    def _counts(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+", text.lower())
        counts = np.zeros(self.dim, np.float32)
        for term in (*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))):
            code = zlib.crc32(term.encode("utf-8", "replace"))
            counts[(code >> 1) % self.dim] += 1.0 if code & 1 else -1.0
        return counts
