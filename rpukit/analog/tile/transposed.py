"""Transposed view of a tile."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rpukit.analog.tile.numpy_protocol import NumPyProtocol

Array = Any


class Tile(Protocol):
    """What a view needs of its tile."""

    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def forward(self, x: Array) -> Array: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...


class TransposedTile(NumPyProtocol):
    """Transposed view of an analog tile: shape (n_in, n_out); ``x @ tile.T`` is `forward`.

    Made by `AnalogTile.T`; it holds no arrays of its own.
    """

    def __init__(self, tile: Tile) -> None:
        self.T = tile
        self.shape = (tile.shape[1], tile.shape[0])
        self.dtype = tile.dtype

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        weights: np.ndarray = self.T.__array__(dtype, copy)
        return weights.T

    def __rmatmul__(self, x: Array) -> Array:
        """``x @ tile.T``: the forward product of a vector (n_in,) or of rows (..., n_in)."""
        return self.T.forward(x)
