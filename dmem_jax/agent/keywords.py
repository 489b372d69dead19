"""The words of memories and who has them: BM25 from SQLite's FTS5, in memory, derived from what is stored, never saved.

Names and numbers are found here, which an embedding blurs. FTS5 keeps the statistics exact after every change.
"""

import itertools
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Int32

from dmem_jax.errors import MissingExtraError

# A term that so many of the documents have says next to nothing and costs most of a query's time: left out of the
# query, where a rarer one is there. Below so many documents no term costs anything.
_FREQUENT = 0.1
_CHEAP = 1000
_TERMS = 256  # of a query at most, the rarest: a bound on what a query of a book's length costs
_LETTERS = 64  # of a word at most; longer ones are no words, and are told apart by their beginning


# Its words are those of `tokens`, joined by spaces: FTS5 is only to cut them where we did.
_TABLE = """CREATE VIRTUAL TABLE said USING fts5(words, tokenize="ascii tokenchars '.'''")"""


class Keywords:
    """An index of documents by their words. For one thread at a time."""

    def __init__(self) -> None:
        self._documents = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            self._documents.execute(_TABLE)
        except sqlite3.OperationalError as error:
            self._documents.close()
            raise MissingExtraError(
                "keywords need a Python whose sqlite3 has FTS5, and this one's has not: "
                "take another build of Python, or keyword_weight=0."
            ) from error
        # One transaction that never ends: nothing is to survive, and a commit costs forty times what an addition does.
        self._documents.execute("BEGIN")
        self._having: Counter[str] = Counter()  # documents that have a term; FTS5 would walk through them to count
        self._there: set[int] = set()

    def set(self, document: int, text: str) -> None:
        """`document` (an int32 >= 0) has the words of `text`, and none of those that it had."""
        self.remove(document)
        words = tokens(text)
        self._documents.execute("INSERT INTO said(rowid, words) VALUES (?, ?)", (document, " ".join(words)))
        self._having.update(set(words))
        self._there.add(document)

    def remove(self, document: int) -> None:
        """Nothing happens where it is not there."""
        if document not in self._there:
            return
        (words,) = self._documents.execute("SELECT words FROM said WHERE rowid = ?", (document,)).fetchone()
        self._documents.execute("DELETE FROM said WHERE rowid = ?", (document,))
        self._there.remove(document)
        for word in set(words.split(" ")) - {""}:
            self._having[word] -= 1
            if not self._having[word]:
                del self._having[word]

    def scores(self, text: str, limit: int = 256) -> tuple[Int32[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
        """The documents that have words of `text`, at most `limit`, and their BM25 (k1 1.2, b 0.75), best first.

        A word counts once however often `text` says it. Scores are > 0; equal ones are ordered by document. The idf
        is FTS5's, ln((N - n + .5) / (n + .5)), and 1e-6 where a word is in half of the documents or more.
        """
        terms = self._asked(text)
        found: list[tuple[int, float]] = []
        if terms and limit > 0:
            # Each in quotes, which no term has: none is ever an operator.
            query = " OR ".join(f'"{term}"' for term in terms)
            best = "SELECT rowid, rank FROM said WHERE said MATCH ? ORDER BY rank, rowid LIMIT ?"
            found = self._documents.execute(best, (query, limit)).fetchall()
        return np.array([row[0] for row in found], np.int32), np.array([-row[1] for row in found], np.float32)

    def clear(self) -> None:
        """No document is left."""
        self._documents.execute("DROP TABLE said")  # deleted from, it would look up the words of each document
        self._documents.execute(_TABLE)
        self._having.clear()
        self._there.clear()

    def __len__(self) -> int:
        """Documents, those without a word too."""
        return len(self._there)

    def close(self) -> None:
        """The memory that it took is free; it can be used no more."""
        self._documents.close()
        self._having.clear()
        self._there.clear()

    def __del__(self) -> None:
        if hasattr(self, "_documents"):  # unless its making failed
            self._documents.close()

    def _asked(self, text: str) -> list[str]:
        """What is worth looking up, rarest first."""
        known = sorted((self._having[term], term) for term in set(tokens(text)) if term in self._having)
        most = max(_CHEAP, _FREQUENT * len(self))
        return [term for rank, (having, term) in enumerate(known[:_TERMS]) if having <= most or rank == 0]


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
