"""Transposed view of a tile."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rpukit.analog.tile.numpy_protocol import NumPyProtocol
from rpukit.analog.tile.operator import LinearMap

Array = Any


class Tile(Protocol):
    """Interface of a tile that its transposed view uses."""

    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def device(self) -> str: ...

    def get_weights(self) -> Array: ...

    def forward(self, x: Array) -> Array: ...

    def backward(self, d: Array) -> Array: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...


class TransposedTile(NumPyProtocol, LinearMap):
    """Transposed view of an analog tile: shape (n_in, n_out); ``x @ tile.T`` is `forward`.

    Made by `AnalogTile.T`; it holds no arrays of its own.
    """

    def __init__(self, tile: Tile) -> None:
        self.T = tile
        self.shape = (tile.shape[1], tile.shape[0])
        self.dtype = tile.dtype

    @property
    def device(self) -> str:
        """Compute device of the tile, for example "cpu" or "gpu:0"."""
        return str(self.T.device)

    def get_weights(self) -> Array:
        """Read the transposed weights exactly: a copy, shape (n_in, n_out)."""
        return self.T.get_weights().T

    def forward(self, d: Array) -> Array:
        """Multiply rows (n, n_out) by the weights: the tile's backward product."""
        return self.T.backward(d)

    def backward(self, x: Array) -> Array:
        """Multiply rows (n, n_in) by the transposed weights: the tile's forward product."""
        return self.T.forward(x)

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        weights: np.ndarray = self.T.__array__(dtype, copy)
        return weights.T

    def __rmatmul__(self, x: Array) -> Array:
        """``x @ tile.T``: the forward product of a vector (n_in,) or of rows (..., n_in)."""
        return self.T.forward(x)
