"""Texts to token ids, ids to padded batches of few shapes, batches to vectors: what all encoders of texts share."""

import abc
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float32, Int32

from dmem_jax.conversion import positive
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, shown

LENGTHS = (16, 32, 48, 64, 96, 128, 256, 512)
"""Tokens that a row of a batch is padded to: the first of these that its text fits in."""

_ROWS = (1, 8)  # rows of a batch beside `batch_size`: one query needn't pay for a whole batch
_TOKENIZED = 1024  # texts at once: a tokenizer returns far more than ids

Variables = dict[str, Any]


class TokenEncoder(abc.ABC):
    """An encoder of texts: a tokenizer, arrays, and one jitted function from ids to vectors.

    Several threads may call one encoder. A vector depends on the text alone, up to float32 rounding: batches of
    different shapes are different programs.
    """

    name: str
    """Of the model, with the first twelve digits of the SHA-256 of its weights."""
    dim: int
    """Size of a vector."""
    max_length: int
    """Tokens of a text that are read, its special tokens included; what comes later in the text is not seen."""
    batch_size: int
    """Rows of a full batch; what is left over goes in batches of 8 and of 1."""
    variables: Variables
    """The weights, float32 arrays: the first argument of `embed`."""

    def __init__(
        self, *, name: str, dim: int, max_length: int, batch_size: int, variables: Variables, tokenizer: Any, pad: int
    ):
        """Called by `from_pretrained`.

        Args:
          tokenizer: a `tokenizers.Tokenizer` that this encoder alone uses.
          pad: the id in places that hold no token, which `mask` hides.
        """
        self.name, self.dim, self.variables = name, dim, variables
        self.batch_size = positive("batch_size", batch_size)
        self.max_length = positive("max_length", max_length)
        self._lengths = (*(length for length in LENGTHS if length < self.max_length), self.max_length)
        self._rows = (*(rows for rows in _ROWS if rows < self.batch_size), self.batch_size)
        self._pad = pad
        # Set once: to set it for each call, as transformers does, fails when two threads call.
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_length)
        self._tokenizer = tokenizer
        self._jitted = jax.jit(self.embed)

    def embed(self, variables: Variables, ids: ArrayLike, mask: ArrayLike) -> Float32[Array, "n d"]:
        """The vectors of tokenized texts: pure, so it can be jitted, vmapped and differentiated with what follows it.

        Args:
          variables: `encoder.variables`, an argument so that no program has them as constants.
          ids: integers [n, l], tokens as `tokenize` makes them, l at most `max_length`; one outside of the vocabulary
            is read as its nearest.
          mask: bool or integers [n, l], not 0 where there is a token. A row of none gives a finite vector that says
            nothing.

        Raises:
          ArgumentTypeError, ArgumentValueError: the shapes or the kinds of numbers are others; named.
        """
        ids, mask = jnp.asarray(ids), jnp.asarray(mask)
        if ids.ndim != 2 or ids.shape[1] > self.max_length:
            raise ArgumentValueError(f"ids: expected shape [n, l], l at most {self.max_length}, got {list(ids.shape)}.")
        if mask.shape != ids.shape:
            raise ArgumentValueError(f"mask: expected the shape of ids, {list(ids.shape)}, got {list(mask.shape)}.")
        if not jnp.issubdtype(ids.dtype, jnp.integer):
            raise ArgumentTypeError(f"ids: expected integers, got {ids.dtype}.")
        if not (mask.dtype == jnp.bool_ or jnp.issubdtype(mask.dtype, jnp.integer)):
            raise ArgumentTypeError(f"mask: expected bool or integers, got {mask.dtype}.")
        return self._vectors(variables, ids.astype(jnp.int32), mask.astype(bool))

    @abc.abstractmethod
    def _vectors(
        self, variables: Variables, ids: Int32[Array, "n l"], mask: Bool[Array, "n l"]
    ) -> Float32[Array, "n d"]:
        """What `embed` gives."""

    def __call__(self, texts: Iterable[str], /) -> np.ndarray:
        """The vectors of texts, float32 [n, dim], in their order.

        Texts of like length share a batch. The first call for a length compiles, about a second each.

        Raises:
          ArgumentTypeError: not a list of strings. ArgumentValueError: a text holds a lone surrogate, which is no
          Unicode. Both name the text's index.
        """
        tokens = self._tokens(checked_texts(texts))
        vectors = np.zeros((len(tokens), self.dim), np.float32)
        for which, rows, length in self._batches([len(row) for row in tokens]):
            ids, mask = self._padded([tokens[i] for i in which], rows, length)
            vectors[which] = np.asarray(self._jitted(self.variables, ids, mask))[: len(which)]
        return vectors

    def tokenize(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """What `embed` reads: ids int32 [n, l] and mask bool [n, l], with one l of few for all of the texts.

        Raises:
          ArgumentTypeError, ArgumentValueError: as a call.
        """
        tokens = self._tokens(checked_texts(texts))
        return self._padded(tokens, len(tokens), self._length(max(map(len, tokens), default=0)))

    def _prepared(self, text: str) -> str:
        """The text as the model's tokenizer expects it."""
        return text

    def _tokens(self, texts: list[str]) -> list[np.ndarray]:
        found = []
        for start in range(0, len(texts), _TOKENIZED):
            some = [self._prepared(text) for text in texts[start : start + _TOKENIZED]]
            found += [np.asarray(encoding.ids, np.int32) for encoding in self._tokenizer.encode_batch(some)]
        return found

    def _length(self, tokens: int) -> int:
        return next(length for length in self._lengths if length >= tokens)

    def _batches(self, counts: list[int]) -> Iterator[tuple[list[int], int, int]]:
        """Which texts go together, and the rows and the length of their batch."""
        of_length: dict[int, list[int]] = {}
        for i, count in enumerate(counts):
            of_length.setdefault(self._length(count), []).append(i)
        for length, left in of_length.items():
            while left:
                rows = self._rows_for(len(left))
                yield left[:rows], rows, length
                left = left[rows:]

    def _rows_for(self, count: int) -> int:
        """The batch that comes next where `count` texts are left: one that they fill by more than half, if they do."""
        return max(rows for rows in self._rows if 2 * count > rows)

    def _padded(self, tokens: list[np.ndarray], rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        ids, mask = np.full((rows, length), self._pad, np.int32), np.zeros((rows, length), bool)
        for i, row in enumerate(tokens):
            ids[i, : len(row)], mask[i, : len(row)] = row, True
        return ids, mask


def checked_texts(texts: Iterable[str]) -> list[str]:
    """As a list; refuses what is no text, and text that is no Unicode."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise ArgumentTypeError(f"texts: expected a list of strings, got {shown(texts)}.")
    listed = list(texts)
    for i, text in enumerate(listed):
        if not isinstance(text, str):
            raise ArgumentTypeError(f"texts[{i}]: expected a string, got {shown(text)}.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ArgumentValueError(
                f"texts[{i}]: expected Unicode text, got a lone surrogate {text[error.start]!a} at {error.start}: "
                "decode it with errors='replace' where it is read."
            ) from None
    return listed
