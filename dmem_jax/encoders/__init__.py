"""Things to vectors."""

from dmem_jax.encoders.actions import (
    CategoricalActions,
    TextActions,
    VectorActions,
    bind,
    concatenate,
    mean,
    project,
)
from dmem_jax.encoders.encoder import Encoder
from dmem_jax.encoders.image import ImageEncoder

__all__ = [
    "CategoricalActions",
    "Encoder",
    "ImageEncoder",
    "TextActions",
    "VectorActions",
    "bind",
    "concatenate",
    "mean",
    "project",
]
