"""The words of memories and who has them: BM25 (Robertson and Zaragoza 2009), derived from what is stored, never saved.

Names and numbers are found here, which an embedding blurs. Each term lists the rows that have it; a changed document
gets a new row, and the rows that are left behind go when there are too many of them. So the statistics are exact after
every change. (SQLite's FTS5, which was here before, took as long for a query as a pass over 100,000 vectors.)
"""

import itertools
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Int32

_K1, _B = 1.2, 0.75
# A term that so many of the documents have says next to nothing and costs most of a query's time: left out of the
# query, where a rarer one is there. Below so many documents no term costs anything.
_FREQUENT = 0.1
_CHEAP = 1000
_TERMS = 256  # of a query at most, the rarest: a bound on what a query of a book's length costs
_LETTERS = 64  # of a word at most; longer ones are no words, and are told apart by their beginning
_LEFT_BEHIND = 1024  # rows of no document that are always allowed


class Postings:
    """The rows that have a term, ascending, and how often it stands there."""

    __slots__ = ("counts", "rows")

    def __init__(self) -> None:
        self.rows, self.counts = array("i"), array("f")


class Keywords:
    """An index of documents by their words. For one thread at a time."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """No document is left."""
        self._postings: dict[str, Postings] = {}
        self._having: Counter[str] = Counter()  # documents that have a term
        self._row: dict[int, int] = {}  # of a document
        self._terms: dict[int, tuple[str, ...]] = {}  # that a document has
        self._documents = array("i")  # of each row; -1: none any more
        self._lengths = array("f")  # words in each row
        self._words = 0  # in all documents

    def set(self, document: int, text: str) -> None:
        """`document` (an int32 >= 0) has the words of `text`, and none of those that it had."""
        self.remove(document)
        words = Counter(tokens(text))
        row = self._row[document] = len(self._documents)
        self._terms[document] = tuple(words)
        self._documents.append(document)
        self._lengths.append(words.total())
        self._words += words.total()
        self._having.update(words.keys())
        for term, count in words.items():
            postings = self._postings.setdefault(term, Postings())
            postings.rows.append(row)
            postings.counts.append(count)

    def remove(self, document: int) -> None:
        """Nothing happens where it is not there."""
        row = self._row.pop(document, None)
        if row is None:
            return
        self._documents[row] = -1
        self._words -= int(self._lengths[row])
        for term in self._terms.pop(document):
            self._having[term] -= 1
            if not self._having[term]:
                del self._having[term], self._postings[term]
        if len(self._documents) > 2 * len(self._row) + _LEFT_BEHIND:
            self._close_ranks()

    def scores(self, text: str, limit: int = 256) -> tuple[Int32[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
        """The documents that have words of `text`, at most `limit`, and their BM25 (k1 1.2, b 0.75), best first.

        A word counts once however often `text` says it. Scores are > 0; equal ones are ordered by document. The idf is
        ln(1 + (N - n + .5) / (n + .5)) of n documents among N, which is > 0 for every word.
        """
        scores = np.zeros(len(self._documents), np.float32)
        lengths = np.array(self._lengths)
        mean_length = np.float32(self._words / max(1, len(self)))
        for term in self._asked(text):
            postings, having = self._postings[term], self._having[term]
            rows, counts = np.array(postings.rows), np.array(postings.counts)
            idf = np.float32(np.log1p((len(self) - having + 0.5) / (having + 0.5)))
            saturation = np.float32(_K1) * (np.float32(1 - _B) + np.float32(_B) * lengths[rows] / mean_length)
            scores[rows] += idf * counts * np.float32(_K1 + 1) / (counts + saturation)
        documents = np.array(self._documents)
        rows = np.flatnonzero((scores > 0) & (documents >= 0))
        found, scores = documents[rows], scores[rows]
        if limit < found.size:  # those that are as good as the last of them, too, which may have lower numbers
            least = np.partition(scores, found.size - limit)[found.size - limit] if limit > 0 else np.inf
            found, scores = found[scores >= least], scores[scores >= least]
        best = np.lexsort((found, -scores))[:limit]
        return found[best], scores[best]

    def __len__(self) -> int:
        """Documents, those without a word too."""
        return len(self._row)

    def _asked(self, text: str) -> list[str]:
        """What is worth looking up, rarest first."""
        known = sorted((self._having[term], term) for term in set(tokens(text)) if term in self._having)
        most = max(_CHEAP, _FREQUENT * len(self))
        return [term for rank, (having, term) in enumerate(known[:_TERMS]) if having <= most or rank == 0]

    def _close_ranks(self) -> None:
        """Rows of no document are gone, and all others move up."""
        held = np.array(self._documents) >= 0
        new_row = np.cumsum(held, dtype=np.int32) - 1
        self._documents = array("i", np.array(self._documents)[held].tobytes())
        self._lengths = array("f", np.array(self._lengths)[held].tobytes())
        self._row = {document: row for row, document in enumerate(self._documents)}
        for postings in self._postings.values():
            rows, counts = np.array(postings.rows), np.array(postings.counts)
            kept = held[rows]
            postings.rows = array("i", new_row[rows[kept]].tobytes())
            postings.counts = array("f", counts[kept].tobytes())


def tokens(text: str) -> list[str]:
    """The words of a text, in its order.

    Case, width and accents fall away ("José" is "jose"). A number with a point stays whole ("3.5", "1.2.3"), a date or
    an identifier falls into its parts ("2026-11-30", "user_id"); "don't" is one word, "Anna's" is "anna". Where a
    script sets no spaces between words (Han, kana, Hangul, Thai), every character is a token, and every pair of
    neighbours: a name of two or three characters is rare as pairs, while each of its characters is in many texts.
    """
    return [token for word in _WORD.findall(_folded(text)) for token in _split(word)]


_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u064b-\u065f]")  # also of Hebrew and Arabic
_MARKS = "\u0900-\u0963\u0971-\u0dff"  # Indic vowels, which Python takes for no letters
_DENSE = (  # Han, kana, Hangul; Thai, Lao, Burmese, Khmer
    "\u3005\u3007\u3041-\u3096\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u1049\u1780-\u17d3"
)
_IS_DENSE = re.compile(f"[{_DENSE}]")
_WORD = re.compile(rf"(\d+(?:\.\d+)+|[{_DENSE}]+|(?:[^\W_{_DENSE}]|[{_MARKS}])+(?:'(?:t|m|d|ll|re|ve)\b)?)(?:'s\b)?")


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", apart)).replace("\u2019", "'")


def _split(word: str) -> Iterator[str]:
    if _IS_DENSE.match(word):
        yield from word
        yield from map("".join, itertools.pairwise(word))
    else:
        yield word[:_LETTERS]
