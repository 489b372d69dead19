"""Images of any size to the square of pixels that a CLIP looks at, as its preprocessor_config.json says.

By Pillow, for that is what CLIP was trained with and what transformers' image processor calls: the pixels are the same,
bit for bit. `jax.image.resize` has the same cubic, but Pillow rounds to whole levels after each of its two passes: a
fifth of the pixels of a picture of 300 x 400 came out a level apart.
"""

import dataclasses
import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dmem_jax.conversion import positive
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError, shown

_FILE = "preprocessor_config.json"
_BICUBIC = 3  # Pillow's number, as the file has it
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")  # of eight bits, or fewer


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """What is done to an image. Levels are 0 .. 255; the network sees (level * factor - mean) / deviation."""

    size: int  # side of the square that the network sees
    shortest: int | None  # the shorter side after resizing; None: resized to the square, whatever its shape
    resample: int  # Pillow's number of the filter
    factor: float
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    @classmethod
    def read(cls, config: dict[str, Any], size: int) -> "Preprocessing":
        """From what the file holds; `size` is the side that the network was made for.

        Raises:
          ArgumentTypeError, ArgumentValueError: it would make other images than the network reads; named.
        """
        if not config.get("do_resize", True):
            raise ArgumentValueError(f"{_FILE}: do_resize: expected true, got {shown(config['do_resize'])}.")
        resized, crops = config.get("size", size), config.get("do_center_crop", True)
        shortest = resized.get("shortest_edge") if isinstance(resized, dict) else resized
        if shortest is None:
            fits = _sides(resized) == [size, size]  # resized to the square, whatever its shape; nothing is left to crop
        else:
            fits = positive(f"{_FILE}: size", shortest) >= size and crops
        if not fits or (crops and _sides(config.get("crop_size", size)) != [size, size]):
            raise ArgumentValueError(
                f"{_FILE}: expected images of {size} x {size}, which the network reads, got size {shown(resized)} and "
                f"crop_size {shown(config.get('crop_size') if crops else None)}."
            )
        rescales, normalises = config.get("do_rescale", True), config.get("do_normalize", True)
        return cls(
            size=size,
            shortest=shortest,
            resample=_resample(config.get("resample", _BICUBIC)),
            factor=_numbers("rescale_factor", [config.get("rescale_factor", 1 / 255)])[0] if rescales else 1.0,
            mean=_three("image_mean", config, 0.0) if normalises else (0.0, 0.0, 0.0),
            deviation=_three("image_std", config, 1.0) if normalises else (1.0, 1.0, 1.0),
        )

    def __call__(self, name: str, given: Any) -> np.ndarray:
        """One image, uint8 [size, size, 3]: in three colours, resized, its middle cut out."""
        image = as_image(name, given).convert("RGB")
        width, height = image.size
        if self.shortest is None:
            width = height = self.size
        else:
            shorter = min(width, height)
            width, height = (int(self.shortest * side / shorter) for side in (width, height))
        image = image.resize((width, height), self.resample)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        return np.array(image.crop((left, top, left + self.size, top + self.size)))


def as_image(name: str, given: Any) -> Any:
    """A `PIL.Image`, of what is one or is an array uint8 [H, W, 3]."""
    pillow = needed("PIL.Image")
    if isinstance(given, pillow.Image):
        if given.mode not in _MODES:
            raise ArgumentTypeError(f"{name}: expected an image of 8 bits a channel, got one of mode {given.mode!r}.")
        if 0 in given.size:
            raise ArgumentValueError(f"{name}: expected pixels, got an image of {given.width} x {given.height}.")
        return given
    if not hasattr(given, "__array__"):
        raise ArgumentTypeError(f"{name}: expected a PIL image or an array uint8 [H, W, 3], got {shown(given)}.")
    array = np.asarray(given)
    if array.dtype != np.uint8:
        raise ArgumentTypeError(f"{name}: expected uint8, levels of 0 .. 255, got {array.dtype}.{_hint(array)}")
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ArgumentValueError(f"{name}: expected [H, W, 3], got {list(array.shape)}.")
    return pillow.fromarray(np.ascontiguousarray(array))


def listed(images: Any) -> list[Any]:
    """The images, one by one; one alone is refused, as its rows would pass for images."""
    picture = isinstance(images, needed("PIL.Image").Image)
    if picture or (hasattr(images, "__array__") and np.ndim(images) != 4):
        raise ArgumentTypeError(
            f"images: expected a list of images, or an array uint8 [n, H, W, 3], got {_told(images)}. "
            "One image alone: [image]."
        )
    if isinstance(images, (str, bytes)) or not isinstance(images, Iterable):
        raise ArgumentTypeError(f"images: expected a list of images, got {shown(images)}.")
    return list(images)


def needed(module: str) -> Any:
    """A package of the extra `image`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "pillow"}.get(module.partition(".")[0], module.partition(".")[0])
        raise MissingExtraError(f"encoding images needs {package}: pip install 'dmem-jax[image]'.") from error


def _hint(array: np.ndarray) -> str:
    """What may have been meant by floats."""
    if array.dtype.kind != "f":
        return ""
    if not np.isfinite(array).all():
        return " It has pixels that are not finite."
    return " For floats in [0, 1]: (255 * image).round().astype(uint8)."


def _sides(given: Any) -> list[Any]:
    return [given.get("height"), given.get("width")] if isinstance(given, dict) else [given, given]


def _told(given: Any) -> str:
    return f"{given.dtype}{list(given.shape)}" if hasattr(given, "dtype") else type(given).__name__


def _resample(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= 5:
        raise ArgumentValueError(f"{_FILE}: resample: expected one of Pillow's filters, 0 .. 5, got {shown(given)}.")
    return given


def _three(name: str, config: dict[str, Any], least: float) -> tuple[float, float, float]:
    red, green, blue = _numbers(name, config.get(name), 3)
    if name == "image_std" and min(red, green, blue) <= 0:
        raise ArgumentValueError(f"{_FILE}: {name}: expected numbers above 0, got {shown(config.get(name))}.")
    return red, green, blue


def _numbers(name: str, given: Any, count: int = 1) -> list[float]:
    is_list = isinstance(given, list) and len(given) == count
    if not is_list or not all(type(x) in (int, float) and np.isfinite(x) for x in given):
        raise ArgumentValueError(f"{_FILE}: {name}: expected {count} finite numbers, got {shown(given)}.")
    return [float(x) for x in given]
