"""What happens as a vector, for the embeddings of experiences and queries: encoders of texts (extra `text`), of images
(extra `image`), and of actions, and what joins state and action.

    encoder = encoders.TextEncoder.from_pretrained("all-MiniLM-L6-v2")
    embedding = encoder(["the key is under the mat"])  # float32 [1, 384], on the host
    vectors = encoder.embed(encoder.variables, ids, mask)  # from token ids, to be jitted with what follows

    actions = encoders.CategoricalActions(4)
    embedding = encoders.concatenate(state, actions(action), weight=0.7)  # wherever arrays are, also under jit

Importing this loads no package of the extras; making an encoder does.
"""

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
from dmem_jax.encoders.static import StaticEncoder
from dmem_jax.encoders.text import TextEncoder

__all__ = [
    "CategoricalActions",
    "Encoder",
    "ImageEncoder",
    "StaticEncoder",
    "TextActions",
    "TextEncoder",
    "VectorActions",
    "bind",
    "concatenate",
    "mean",
    "project",
]
