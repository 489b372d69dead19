"""Images to vectors, by the image tower of a CLIP."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, UInt8

from dmem_jax.conversion import positive
from dmem_jax.encoders.clip import ClipConfig, ImageTower, parameters
from dmem_jax.encoders.pixels import Preprocessing, listed, needed
from dmem_jax.encoders.weights import folder_from_hub, model_name, read_arrays
from dmem_jax.errors import ArgumentValueError
from dmem_jax.similarity import directions, inverse_norm

Variables = dict[str, Any]


class ImageEncoder:
    """An encoder of images: what an agent sees, or the pictures of a dialogue. Several threads may call one.

        encoder = ImageEncoder.from_pretrained("openai/clip-vit-base-patch32")
        embedding = encoder([image])  # float32 [1, 512], on the host
        vectors = encoder.embed(encoder.variables, pixels)  # of pixels on the device, to be jitted with what follows

    Vectors have length 1. Those of one model's text tower, which is not read here, lie in the same space.
    """

    name: str
    """Of the model, with the first twelve digits of the SHA-256 of its weights."""
    dim: int
    """Size of a vector."""
    config: ClipConfig
    """Sizes of the tower."""
    preprocessing: Preprocessing
    """What becomes of an image before the network sees it."""
    batch_size: int
    """Images that go through the network at once. One image alone goes alone; else what is left over is filled up."""
    variables: Variables
    """The weights, float32 arrays: the first argument of `embed`."""

    def __init__(
        self, *, name: str, config: ClipConfig, preprocessing: Preprocessing, batch_size: int, variables: Variables
    ):
        """Called by `from_pretrained`."""
        self.name, self.dim, self.config, self.preprocessing = name, config.projection_dim, config, preprocessing
        self.batch_size, self.variables = positive("batch_size", batch_size), variables
        self._tower = ImageTower(config)
        self._jitted = jax.jit(self.embed)

    @classmethod
    def from_pretrained(
        cls, folder_or_name: str | Path, *, batch_size: int = 32, sha256: str | None = None
    ) -> "ImageEncoder":
        """A CLIP as transformers saves it (`CLIPModel` or `CLIPVisionModelWithProjection`).

        Args:
          folder_or_name: a folder with config.json, preprocessor_config.json and model.safetensors; or a name on the
            Hugging Face hub, whence they are downloaded once.
          batch_size: images that go through the network at once, >= 1.
          sha256: what the weights' file must be, in hexadecimal digits; None: whatever is there.

        Raises:
          ArgumentTypeError, ArgumentValueError: no such model, one of another kind, or files that don't fit together;
          named. MissingExtraError: safetensors, Pillow, or for a name huggingface_hub, is not installed.
        """
        for module in ("PIL.Image", "safetensors.numpy"):
            needed(module)
        name, folder = model_name(folder_or_name), Path(folder_or_name)
        if not folder.is_dir():
            needed("huggingface_hub")
            folder = folder_from_hub(str(folder_or_name), "")
        config = ClipConfig.read(_json(folder / "config.json"))
        preprocessing = Preprocessing.read(_preprocessor(folder), config.image_size)
        file = folder / "model.safetensors"
        arrays, digest = read_arrays(file, sha256)
        return cls(
            name=f"{name}@{digest[:12]}",
            config=config,
            preprocessing=preprocessing,
            batch_size=batch_size,
            variables={"params": parameters(config, arrays, file)},
        )

    def embed(self, variables: Variables, pixels: UInt8[Array, "n s s 3"]) -> Float32[Array, "n d"]:
        """The vectors of images that have the network's size already, such as frames drawn in a compiled environment:
        pure, so it can be jitted, vmapped, and differentiated by the weights with what follows it.

        Args:
          variables: `encoder.variables`, an argument so that no program has them as constants.
          pixels: levels of red, green and blue; `config.image_size` is the side.

        Returns:
          Of length 1. Products are float32 also where accelerators cut them down by default.

        Raises:
          ArgumentValueError: `pixels` of another shape or type.
        """
        side = self.config.image_size
        if pixels.shape[1:] != (side, side, 3) or pixels.dtype != jnp.uint8:
            came = f"{pixels.dtype}{list(pixels.shape)}"
            raise ArgumentValueError(f"pixels: expected uint8[n, {side}, {side}, 3], got {came}.")
        colours = self.preprocessing.mean, self.preprocessing.deviation
        mean, deviation = (np.array(colour, np.float32)[None, None, None] for colour in colours)
        levels = pixels.astype(jnp.float32) * jnp.float32(self.preprocessing.factor)
        with jax.default_matmul_precision("float32"):
            vectors = self._tower.apply(variables, (levels - mean) / deviation)
        assert isinstance(vectors, jax.Array)
        return directions(vectors, inverse_norm(vectors))

    def __call__(self, images: Any, /) -> np.ndarray:
        """The vectors of images, float32 [n, dim], in their order; [0, dim] for none.

        Args:
          images: PIL images of 8 bits a channel, of any mode (colours are kept, transparency is dropped), or arrays
            uint8 [H, W, 3] of red, green and blue, each of any size; or one array uint8 [n, H, W, 3].

        Raises:
          ArgumentTypeError, ArgumentValueError: something else; named with its index.
        """
        given = listed(images)
        vectors = np.zeros((len(given), self.dim), np.float32)
        rows = 1 if len(given) == 1 else self.batch_size
        side = self.config.image_size
        for start in range(0, len(given), rows):
            some = given[start : start + rows]
            pixels = np.zeros((rows, side, side, 3), np.uint8)
            for i, image in enumerate(some):
                pixels[i] = self.preprocessing(f"images[{start + i}]", image)
            vectors[start : start + len(some)] = np.asarray(self._jitted(self.variables, pixels))[: len(some)]
        return vectors


def _preprocessor(folder: Path) -> dict[str, Any]:
    """transformers saves it in a file of its own, or, since version 5, with a tokenizer's in one."""
    joint = folder / "processor_config.json"
    alone = folder / "preprocessor_config.json"
    if not alone.is_file() and joint.is_file() and isinstance(found := _json(joint).get("image_processor"), dict):
        return found
    return _json(alone)


def _json(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise ArgumentValueError(f"folder_or_name: {file.parent} holds no {file.name}.") from error
    except ValueError as error:
        raise ArgumentValueError(f"folder_or_name: {file} is no JSON: {error}.") from error
    if not isinstance(read, dict):
        raise ArgumentValueError(f"folder_or_name: {file}: expected an object, got a {type(read).__name__}.")
    return read
