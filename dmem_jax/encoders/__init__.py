"""Things to vectors."""

from dmem_jax.encoders.encoder import Encoder
from dmem_jax.encoders.image import ImageEncoder

__all__ = ["Encoder", "ImageEncoder"]
