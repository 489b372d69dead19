from dmem_jax.encoders.encoder import Encoder

__all__ = ["Encoder"]
