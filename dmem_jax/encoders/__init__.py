"""What happens as a vector: encoders of texts (extra `text`), for the embeddings of experiences and queries.

    encoder = encoders.TextEncoder.from_pretrained("all-MiniLM-L6-v2")
    embedding = encoder(["the key is under the mat"])  # float32 [1, 384], on the host
    vectors = encoder.embed(encoder.variables, ids, mask)  # from token ids, to be jitted with what follows

Importing this loads no package of the extra; making an encoder does.
"""

from dmem_jax.encoders.encoder import Encoder
from dmem_jax.encoders.static import StaticEncoder
from dmem_jax.encoders.text import TextEncoder

__all__ = ["Encoder", "StaticEncoder", "TextEncoder"]
