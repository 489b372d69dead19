"""Embeddings without a network: each token has a vector, and a text the mean of its tokens' (extra `text`).

Hundreds of times as fast as a BERT. Source of the table: WordLlama, https://github.com/dleemiller/WordLlama.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from dmem_jax.encoders import weights
from dmem_jax.encoders.pooling import normalised, pooled
from dmem_jax.encoders.tokens import TokenEncoder, Variables
from dmem_jax.errors import ArgumentValueError

WEIGHTS = "l2_supercat_256.safetensors"
TOKENIZER = "l2_supercat_tokenizer_config.json"
SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
"""Of the weights in wordllama 0.4.0."""
_TENSOR = "embedding.weight"


class StaticEncoder(TokenEncoder):
    """Texts to vectors of length 1, by a table. A text without a token, such as "", gives zeros."""

    @classmethod
    def from_pretrained(
        cls, folder_or_name: str | Path = "wordllama", *, batch_size: int = 64, max_length: int = 512,
        sha256: str | None = None,
    ) -> "StaticEncoder":  # fmt: skip
        """A table from a folder, or the one in the installed package wordllama.

        Args:
          folder_or_name: "wordllama", whose package may be installed with --no-deps; or a folder like it, with
            weights/l2_supercat_256.safetensors and tokenizers/l2_supercat_tokenizer_config.json.
          batch_size: rows of a full batch, >= 1.
          max_length: tokens of a text that are read, >= 1. A longer text costs what its tokens cost, and no more.
          sha256: of the weights, that they must have; None: wordllama's own for that name, else any.

        Raises:
          ArgumentTypeError, ArgumentValueError: the argument, or what the folder holds and cannot be used, named.
          MissingExtraError: a package of the extra is not installed.
        """
        name = weights.model_name(folder_or_name)
        folder = Path(folder_or_name)
        if folder.is_dir():
            known = None
        elif (found := weights.folder_in_packages(["wordllama"], WEIGHTS)) is not None and name == "wordllama":
            folder, known = found.parent, SHA256
        else:
            raise ArgumentValueError(
                f"folder_or_name: expected a folder or 'wordllama', got {str(folder_or_name)!r}; the latter needs its "
                "package: pip install --no-deps wordllama."
            )
        file = folder / "weights" / WEIGHTS
        arrays, digest = weights.read_arrays(file, sha256 or known)
        rows, dim = arrays[_TENSOR].shape if arrays.get(_TENSOR) is not None and arrays[_TENSOR].ndim == 2 else (0, 0)
        table = weights.taken(arrays, _TENSOR, (rows, dim), file)
        return cls(
            name=f"{name}@{digest[:12]}",
            dim=dim,
            max_length=max_length,
            batch_size=batch_size,
            variables={"params": {"words": jnp.asarray(table)}},
            tokenizer=_tokenizer(folder / "tokenizers" / TOKENIZER, rows),
            pad=0,
        )

    def _vectors(
        self, variables: Variables, ids: Int32[Array, "n l"], mask: Bool[Array, "n l"]
    ) -> Float32[Array, "n d"]:
        return normalised(pooled("mean", variables["params"]["words"][ids], mask))


def _tokenizer(file: Path, rows: int) -> Any:
    tokenizers = weights.optional("tokenizers")
    if not file.is_file():
        raise ArgumentValueError(f"folder_or_name: there is no {file}.")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers has no kind of its own
        raise ArgumentValueError(f"folder_or_name: {file} can't be read as a tokenizer: {error}.") from error
    if tokenizer.get_vocab_size() > rows:
        raise ArgumentValueError(
            f"folder_or_name: {file} has {tokenizer.get_vocab_size()} tokens, the table {rows} rows."
        )
    # What marks the beginning of a text says nothing about it.
    tokenizer.post_processor = tokenizers.processors.Sequence([])
    return tokenizer
