"""The texts of one namespace's memories, and the words in them."""

import dataclasses
import zlib
from collections.abc import Iterable

import numpy as np

from dmem_jax.agent.database import Document
from dmem_jax.agent.keywords import Keywords

_SCORED = 256  # documents at most that the keyword leg scores


def joined(new: Document, old: Document) -> Document:
    """The texts of a memory that took another one in: those of `new`, for the core goes on with them; metadata of both,
    and the time of the older one."""
    return dataclasses.replace(
        new,
        created=min(old.created, new.created),
        rewarded=new.rewarded or old.rewarded,
        metadata={**old.metadata, **new.metadata},
    )


def task_of(document: Document) -> int:
    """int32: where it is the same for two experiences, they may be one memory. What was done in both is the same, or
    (nearly always) it is not; what has a key is like nothing else."""
    if document.key is not None:
        return -1 - document.document
    return 0 if document.action is None else zlib.crc32(document.action.casefold().strip().encode()) >> 1


class Texts:
    """Documents by number, and in which pool slot the memory is that holds each."""

    def __init__(self, *, keywords: bool):
        self._documents: dict[int, Document] = {}
        self._slot: dict[int, int] = {}
        self._of_key: dict[str, int] = {}
        self._with_keywords = keywords
        self._keywords: Keywords | None = None  # until there is a text

    def __getitem__(self, document: int) -> Document:
        return self._documents[document]

    def put(self, document: Document) -> None:
        """A new one, or what has become of an old one."""
        self._documents[document.document] = document
        if document.key is not None:
            self._of_key[document.key] = document.document
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
            gone = self._documents.pop(document, None)
            if gone is not None and gone.key is not None and self._of_key.get(gone.key) == document:
                del self._of_key[gone.key]
            if gone is not None and self._keywords is not None:
                self._keywords.remove(document)

    def slot_of(self, key: str) -> int | None:
        """Where the memory of this key is; None where there is none."""
        document = self._of_key.get(key)
        return None if document is None else self._slot[document]

    def scores(self, text: str, allowed: np.ndarray) -> np.ndarray:
        """float32 [N]: for each slot BM25 over the greatest of the slots that are `allowed` (bool [N]); in [0, 1]."""
        scores = np.zeros(allowed.size, np.float32)
        if self._keywords is not None:
            limit = _SCORED if allowed.all() else max(1, len(self._keywords))
            for document, score in zip(*self._keywords.scores(text, limit=limit), strict=True):
                slot = self._slot[int(document)]
                scores[slot] = score if allowed[slot] else 0.0
        # Where only words match that are everywhere, no score comes near 1: that is to stay next to nothing.
        return scores / max(float(scores.max(initial=0.0)), 1.0)
