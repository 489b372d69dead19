"""The encoder of the scenarios, shared by all policies: a sentence model where one is installed, else hashed words."""

import itertools
import re
import zlib
from collections.abc import Callable, Iterable

import numpy as np

from dmem_jax.encoders import Encoder, StaticEncoder, TextEncoder
from dmem_jax.errors import ArgumentValueError, MissingExtraError

MINILM, STATIC, HASHED = "all-MiniLM-L6-v2", "static", "hashed"
HELP = f"{MINILM}, {STATIC}, {HASHED}, or a folder or name of another sentence model; default: the first installed"


class HashedWords:
    """Words and pairs of neighbours, hashed into signed counts of length 1. It knows no meaning."""

    def __init__(self, dim: int = 256):
        self.name, self.dim = f"hashed words and pairs, {dim}", dim

    def __call__(self, things: Iterable[str], /) -> np.ndarray:
        """float32 [n, dim]; zeros for a text without a word."""
        texts = list(things)
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            words = re.findall(r"\w+", text.lower())
            for part in words + [f"{one} {other}" for one, other in itertools.pairwise(words)]:
                digest = zlib.crc32(part.encode())
                vector[digest % self.dim] += 1.0 if digest >> 31 else -1.0
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-9))


class Once:
    """An encoder that computes no text twice, so that all policies get the same vectors for the price of one."""

    def __init__(self, encoder: Encoder):
        self.name, self.dim = encoder.name, encoder.dim
        self._encoder, self._known = encoder, dict[str, np.ndarray]()

    def __call__(self, things: Iterable[str], /) -> np.ndarray:
        """float32 [n, dim]."""
        texts = list(things)
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            self._known.update(zip(new, np.asarray(self._encoder(new), np.float32), strict=True))
        return np.stack([self._known[text] for text in texts]) if texts else np.zeros((0, self.dim), np.float32)


def load(name: str | None = None) -> Encoder:
    """The encoder of a name; for None the best that is installed here.

    Raises:
      MissingExtraError, ArgumentValueError: the named one's package or files are missing.
    """
    makers: dict[str, Callable[[], Encoder]] = {
        MINILM: lambda: TextEncoder.from_pretrained(MINILM),
        STATIC: lambda: StaticEncoder.from_pretrained(),
        HASHED: HashedWords,
    }
    if name is not None:
        return makers[name]() if name in makers else TextEncoder.from_pretrained(name)
    for make in makers.values():
        try:
            return make()
        except (MissingExtraError, ArgumentValueError):
            continue
    raise AssertionError("hashed words need nothing")
