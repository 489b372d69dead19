"""The network of BERT (arXiv 1810.04805) and RoBERTa (1907.11692) in Flax, by the checkpoints of transformers.

n rows, l tokens a row, h the hidden size. Numbers are float32 everywhere, as in torch, whose results these are to 1e-5.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from dmem_jax.encoders.weights import Arrays, taken
from dmem_jax.errors import ArgumentValueError, shown

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_new": partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}
MODEL_TYPES = ("bert", "roberta", "xlm-roberta")
_HIDDEN = -1e9  # added to the score of a place without a token; finite, so that a row of none makes no NaN
_EXACT = jax.lax.Precision.HIGHEST  # where float32 products are cut down by default, on GPU and TPU


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a checkpoint's config says of its network."""

    hidden: int
    layers: int
    heads: int
    inner: int  # of the feed-forward layers
    vocabulary: int
    positions: int  # rows of the table
    first_position: int  # the row of a text's first token
    types: int
    activation: str
    epsilon: float
    pad: int

    @property
    def max_length(self) -> int:
        """Tokens that there are positions for."""
        return self.positions - self.first_position


class Layer(nn.Module):
    """Self-attention and feed-forward, each added to what came in and normalised."""

    shape: Shape

    @nn.compact
    def __call__(self, x: Float32[Array, "n l h"], bias: Float32[Array, "n 1 1 l"]) -> Float32[Array, "n l h"]:
        n, length, hidden = x.shape
        shape = self.shape
        dense = partial(nn.Dense, precision=_EXACT)
        norm = partial(nn.LayerNorm, epsilon=shape.epsilon, use_fast_variance=False)
        qkv = dense(3 * hidden, name="qkv")(x).reshape(n, length, 3, shape.heads, hidden // shape.heads)
        scores = jnp.einsum("nqhd,nkhd->nhqk", qkv[:, :, 0], qkv[:, :, 1], precision=_EXACT)
        weights = jax.nn.softmax(scores * (hidden // shape.heads) ** -0.5 + bias)
        mixed = jnp.einsum("nhqk,nkhd->nqhd", weights, qkv[:, :, 2], precision=_EXACT).reshape(x.shape)
        x = norm(name="norm_attended")(x + dense(hidden, name="attended")(mixed))
        inner = ACTIVATIONS[shape.activation](dense(shape.inner, name="inner")(x))
        return norm(name="norm_outer")(x + dense(hidden, name="outer")(inner))


class Bert(nn.Module):
    """From token ids to one vector a token; the pooler that checkpoints have beside it is left out."""

    shape: Shape

    @nn.compact
    def __call__(self, ids: Int32[Array, "n l"], mask: Bool[Array, "n l"]) -> Float32[Array, "n l h"]:
        shape = self.shape
        words = self.param("words", nn.initializers.normal(0.02), (shape.vocabulary, shape.hidden))
        positions = self.param("positions", nn.initializers.normal(0.02), (shape.max_length, shape.hidden))
        x = words[ids] + positions[None, : ids.shape[1]]
        x = nn.LayerNorm(epsilon=shape.epsilon, use_fast_variance=False, name="norm")(x)
        bias = jnp.where(mask, 0.0, _HIDDEN).astype(jnp.float32)[:, None, None, :]
        for i in range(shape.layers):
            x = Layer(shape, name=f"layer_{i}")(x, bias)
        return x


def shape_of(config: Any) -> Shape:
    """By the config of transformers.

    Raises:
      ArgumentValueError: a kind of network that this is not.
    """
    kind, activation = config.model_type, getattr(config, "hidden_act", None)
    if kind not in MODEL_TYPES:
        raise ArgumentValueError(
            f"folder_or_name: expected a model of type {' or '.join(MODEL_TYPES)}, got {shown(kind)}."
        )
    if activation not in ACTIVATIONS:
        raise ArgumentValueError(
            f"folder_or_name: hidden_act: expected one of {', '.join(ACTIVATIONS)}, got {shown(activation)}."
        )
    positions = getattr(config, "position_embedding_type", "absolute") or "absolute"
    if positions != "absolute":
        raise ArgumentValueError(f"folder_or_name: position_embedding_type: expected 'absolute', got {positions!r}.")
    if getattr(config, "is_decoder", False):
        raise ArgumentValueError("folder_or_name: is_decoder: expected a network that reads both ways, got a decoder.")
    if config.hidden_size % config.num_attention_heads:
        raise ArgumentValueError(
            f"folder_or_name: hidden_size: expected a multiple of its {config.num_attention_heads} heads, "
            f"got {config.hidden_size}."
        )
    pad = config.pad_token_id or 0
    return Shape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        inner=config.intermediate_size,
        vocabulary=config.vocab_size,
        positions=config.max_position_embeddings,
        first_position=0 if kind == "bert" else pad + 1,  # RoBERTa counts on from the id of its padding
        types=config.type_vocab_size,
        activation=activation,
        epsilon=config.layer_norm_eps,
        pad=pad,
    )


def variables_of(shape: Shape, arrays: Arrays, file: Path) -> dict[str, Any]:
    """A checkpoint's tensors in the places that `Bert` has for them.

    Raises:
      ArgumentValueError: a tensor is missing, or of another shape than the config says.
    """
    word = "embeddings.word_embeddings.weight"
    prefix = next((name.removesuffix(word) for name in arrays if name.endswith(word)), "")
    hidden = shape.hidden

    def get(name: str, *expected: int) -> np.ndarray:
        return taken(arrays, prefix + name, expected, file)

    def dense(name: str, size_in: int, size_out: int) -> dict[str, np.ndarray]:
        # Contiguous, for that is the layout in which XLA reads it.
        kernel = np.ascontiguousarray(get(f"{name}.weight", size_out, size_in).T)
        return {"kernel": kernel, "bias": get(f"{name}.bias", size_out)}

    def norm(name: str) -> dict[str, np.ndarray]:
        old = f"{prefix}{name}.gamma" in arrays  # as checkpoints of long ago have it
        scale, bias = ("gamma", "beta") if old else ("weight", "bias")
        return {"scale": get(f"{name}.{scale}", hidden), "bias": get(f"{name}.{bias}", hidden)}

    def layer(name: str) -> dict[str, Any]:
        parts = [dense(f"{name}.attention.self.{part}", hidden, hidden) for part in ("query", "key", "value")]
        return {
            "qkv": {leaf: np.concatenate([part[leaf] for part in parts], axis=-1) for leaf in ("kernel", "bias")},
            "attended": dense(f"{name}.attention.output.dense", hidden, hidden),
            "norm_attended": norm(f"{name}.attention.output.LayerNorm"),
            "inner": dense(f"{name}.intermediate.dense", hidden, shape.inner),
            "outer": dense(f"{name}.output.dense", shape.inner, hidden),
            "norm_outer": norm(f"{name}.output.LayerNorm"),
        }

    # One text is one segment, so every token is of type 0.
    positions = get("embeddings.position_embeddings.weight", shape.positions, hidden)[shape.first_position :]
    of_type = get("embeddings.token_type_embeddings.weight", shape.types, hidden)[0]
    params = {
        "words": get(word, shape.vocabulary, hidden),
        "positions": positions + of_type,
        "norm": norm("embeddings.LayerNorm"),
        **{f"layer_{i}": layer(f"encoder.layer.{i}") for i in range(shape.layers)},
    }
    return {"params": jax.tree.map(jnp.asarray, params)}
