"""CLIP's image tower (Radford et al. 2021, arXiv 2103.00020) in Flax: what its config says, its layers, and where its
weights are in a file of transformers' `CLIPModel` or `CLIPVisionModelWithProjection`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32

from dmem_jax.conversion import positive
from dmem_jax.encoders.weights import Arrays, taken
from dmem_jax.errors import ArgumentValueError, shown

_TYPES = ("clip", "clip_vision_model")  # `model_type` of a whole CLIP and of its image tower alone
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
}


@dataclasses.dataclass(frozen=True)
class ClipConfig:
    """Sizes of an image tower. The defaults are transformers', whose files leave out what equals them."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    projection_dim: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: int = 3
    image_size: int = 224
    patch_size: int = 32
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @classmethod
    def read(cls, config: dict[str, Any]) -> "ClipConfig":
        """From what a model's config.json holds.

        Raises:
          ArgumentTypeError, ArgumentValueError: another kind of model, or sizes that are none; named.
        """
        kind = config.get("model_type")
        if kind not in _TYPES:
            raise ArgumentValueError(f"config.json: model_type: expected {' or '.join(_TYPES)}, got {shown(kind)}.")
        vision = config
        if kind == "clip":
            vision = dict(config.get("vision_config") or config.get("vision_config_dict") or {})
            vision["projection_dim"] = config.get("projection_dim", cls.projection_dim)
        fields = {field.name: vision.get(field.name, field.default) for field in dataclasses.fields(cls)}
        for field in dataclasses.fields(cls):
            if isinstance(field.default, int):
                fields[field.name] = positive(f"config.json: {field.name}", fields[field.name])
        act, epsilon = fields["hidden_act"], fields["layer_norm_eps"]
        if not isinstance(act, str) or act not in _ACTIVATIONS:
            known = " or ".join(_ACTIVATIONS)
            raise ArgumentValueError(f"config.json: hidden_act: expected {known}, got {shown(act)}.")
        if not isinstance(epsilon, float) or not 0 < epsilon < 1:
            raise ArgumentValueError(f"config.json: layer_norm_eps: expected within (0, 1), got {shown(epsilon)}.")
        result = cls(**fields)
        result._check_sizes()
        return result

    def _check_sizes(self) -> None:
        if self.num_channels != 3:
            raise ArgumentValueError(f"config.json: num_channels: expected 3, got {self.num_channels}.")
        if self.hidden_size % self.num_attention_heads:
            expected = f"a multiple of num_attention_heads ({self.num_attention_heads})"
            raise ArgumentValueError(f"config.json: hidden_size: expected {expected}, got {self.hidden_size}.")
        if self.image_size < self.patch_size:  # no need for a multiple: pixels that fill no patch are not seen
            expected = f"at least patch_size ({self.patch_size})"
            raise ArgumentValueError(f"config.json: image_size: expected {expected}, got {self.image_size}.")


class Layer(nn.Module):
    """One layer of the transformer: attention and a perceptron, each normalised before and added to its input."""

    config: ClipConfig

    @nn.compact
    def __call__(self, x: Float32[Array, "n t h"]) -> Float32[Array, "n t h"]:
        config = self.config
        y = nn.LayerNorm(config.layer_norm_eps, name="layer_norm1")(x)
        heads = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        q, k, v = (nn.Dense(config.hidden_size, name=name)(y).reshape(*y.shape[:-1], *heads) for name in "qkv")
        attended = jax.nn.dot_product_attention(q, k, v).reshape(y.shape)
        x = x + nn.Dense(config.hidden_size, name="out")(attended)
        y = nn.LayerNorm(config.layer_norm_eps, name="layer_norm2")(x)
        y = _ACTIVATIONS[config.hidden_act](nn.Dense(config.intermediate_size, name="fc1")(y))
        return x + nn.Dense(config.hidden_size, name="fc2")(y)


class ImageTower(nn.Module):
    """Normalised pixels [n, S, S, 3] to projected vectors [n, projection_dim], whose length says nothing yet."""

    config: ClipConfig

    @nn.compact
    def __call__(self, pixels: Float32[Array, "n s s 3"]) -> Float32[Array, "n d"]:
        config = self.config
        size = (config.patch_size, config.patch_size)
        x = nn.Conv(config.hidden_size, size, size, "VALID", use_bias=False, name="patches")(pixels)
        x = x.reshape(x.shape[0], config.patches, config.hidden_size)
        first = self.param("first", nn.initializers.normal(), (config.hidden_size,))  # CLIP's class token
        first = jnp.broadcast_to(first, (x.shape[0], 1, config.hidden_size))
        positions = self.param("positions", nn.initializers.normal(), (config.patches + 1, config.hidden_size))
        x = jnp.concatenate([first, x], axis=1) + positions[None]
        x = nn.LayerNorm(config.layer_norm_eps, name="pre_layernorm")(x)
        for layer in range(config.num_hidden_layers):
            x = Layer(config, name=f"layer_{layer}")(x)
        x = nn.LayerNorm(config.layer_norm_eps, name="post_layernorm")(x[:, 0])
        return nn.Dense(config.projection_dim, use_bias=False, name="projection")(x)


def parameters(config: ClipConfig, arrays: Arrays, file: Path) -> dict[str, Any]:
    """The `params` of an `ImageTower`, from the arrays of a file of transformers.

    Raises:
      ArgumentValueError: one is missing, of another shape than the config says, or no finite floats; named.
    """
    hidden, inner, projected = config.hidden_size, config.intermediate_size, config.projection_dim

    def of(name: str, *shape: int) -> Array:
        return jnp.asarray(taken(arrays, name, shape, file))

    def norm(name: str) -> dict[str, Array]:
        return {"scale": of(f"{name}.weight", hidden), "bias": of(f"{name}.bias", hidden)}

    def dense(name: str, inputs: int, outputs: int) -> dict[str, Array]:
        return {"kernel": of(f"{name}.weight", outputs, inputs).T, "bias": of(f"{name}.bias", outputs)}

    def layer(name: str) -> dict[str, Any]:
        attention = {part: dense(f"{name}.self_attn.{part}_proj", hidden, hidden) for part in ("q", "k", "v", "out")}
        norms = {part: norm(f"{name}.{part}") for part in ("layer_norm1", "layer_norm2")}
        fc1, fc2 = dense(f"{name}.mlp.fc1", hidden, inner), dense(f"{name}.mlp.fc2", inner, hidden)
        return attention | norms | {"fc1": fc1, "fc2": fc2}

    embeddings, size = "vision_model.embeddings", config.patch_size
    patches = of(f"{embeddings}.patch_embedding.weight", hidden, config.num_channels, size, size)
    layers = {f"layer_{i}": layer(f"vision_model.encoder.layers.{i}") for i in range(config.num_hidden_layers)}
    return layers | {
        "first": of(f"{embeddings}.class_embedding", hidden),
        "positions": of(f"{embeddings}.position_embedding.weight", config.patches + 1, hidden),
        "patches": {"kernel": patches.transpose(2, 3, 1, 0)},  # torch has outputs first, Flax has them last
        "pre_layernorm": norm("vision_model.pre_layrnorm"),  # sic
        "post_layernorm": norm("vision_model.post_layernorm"),
        "projection": {"kernel": of("visual_projection.weight", projected, hidden).T},
    }
