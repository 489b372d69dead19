"""What every encoder offers, and all that the rest of the library asks of one."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Encoder(Protocol):
    """Turns things of one kind, such as texts, into vectors of one size."""

    @property
    def name(self) -> str:
        """Of the model and its weights: vectors of two encoders can be compared if, and only if, their names agree."""
        ...

    @property
    def dim(self) -> int:
        """Size of a vector: `Config.embedding_dim`."""
        ...

    def __call__(self, things: Iterable[Any], /) -> np.ndarray:
        """float32 [n, dim], a row for each of n things, in their order; [0, dim] for none."""
        ...
