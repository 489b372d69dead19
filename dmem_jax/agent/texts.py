"""The texts of one namespace's memories, and the words in them."""

from collections.abc import Iterable

import numpy as np

from dmem_jax.agent.database import Document
from dmem_jax.agent.keywords import Keywords

_SCORED = 256  # documents at most that the keyword leg scores


class Texts:
    """Documents by number, and in which pool slot the memory is that holds each."""

    def __init__(self, *, keywords: bool):
        self._documents: dict[int, Document] = {}
        self._slot: dict[int, int] = {}
        self._with_keywords = keywords
        self._keywords: Keywords | None = None  # until there is a text

    def __getitem__(self, document: int) -> Document:
        return self._documents[document]

    def put(self, document: Document) -> None:
        """A new one, or what has become of an old one."""
        self._documents[document.document] = document
        if self._with_keywords:
            self._keywords = self._keywords or Keywords()
            texts = (document.observation, document.action, document.next_observation)
            self._keywords.set(document.document, "\n".join(text for text in texts if text))

    def settle(self, document: int, slot: int) -> None:
        """Its memory is in this slot now."""
        self._slot[document] = slot

    def drop(self, documents: Iterable[int]) -> None:
        """Those that no memory holds any more."""
        for document in documents:
            self._slot.pop(document, None)
            if self._documents.pop(document, None) is not None and self._keywords is not None:
                self._keywords.remove(document)

    def scores(self, text: str, allowed: np.ndarray) -> np.ndarray:
        """float32 [N]: for each slot BM25 over the greatest of the slots that are `allowed` (bool [N]); in [0, 1]."""
        scores = np.zeros(allowed.size, np.float32)
        if self._keywords is not None:
            for document, score in zip(*self._keywords.scores(text, limit=_SCORED), strict=True):
                slot = self._slot[int(document)]
                scores[slot] = score if allowed[slot] else 0.0
        best = scores.max(initial=0.0)
        return scores / best if best > 0 else scores

    def close(self) -> None:
        """Lets go of the index."""
        if self._keywords is not None:
            self._keywords.close()
