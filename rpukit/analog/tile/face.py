"""Common interface of tiles: axes, device, products by operators, checks of inputs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import integer
from rpukit.analog.deferred_errors import Guard, is_finite
from rpukit.analog.tile.numpy_protocol import NumPyProtocol
from rpukit.analog.tile.operator import LinearMap
from rpukit.analog.tile.transposed import TransposedTile
from rpukit.errors import DeviceError, NonFiniteError, ParameterError, ShapeError
from rpukit.random import MAX_SAMPLE
from rpukit.summaries import Described

Array = Any
Leading = tuple[int, ...] | None


class TileFace(NumPyProtocol, LinearMap, Described, ABC):
    """Base class of `AnalogTile` and `InferenceTile`."""

    shape: tuple[int, int]
    validate: str
    _device: _device.Device
    _guard: Guard

    @property
    def device(self) -> str:
        """Compute device of the tile, for example "cpu" or "gpu:0"."""
        return str(self._device)

    @property
    def T(self) -> TransposedTile:
        """Transposed view of the tile, which shares all its state."""
        return TransposedTile(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._device.kind != "cpu":
            raise DeviceError(
                f"np.asarray needs a tile on the CPU, this one is on {self.device}: "
                "use .get_weights() or .to('cpu')"
            )
        if copy is False:
            raise ParameterError("copy=False: a tile's weights can only be read as a copy")
        return np.array(self.get_weights(), dtype=dtype)

    def __rmatmul__(self, d: Array) -> Array:
        """``d @ tile``: the backward product of a vector (n_out,) or of rows (..., n_out)."""
        return self.backward(d)

    def _samples(self, v: Array, width: int, name: str) -> tuple[Array, Leading]:
        """Convert an input to rows of `width` numbers; return the leading lengths, too."""
        return rows_of(v, self._device, self.dtype, width, name)

    def _rows(self, v: Array, width: int, name: str) -> Array:
        """Convert an input to rows of `width` numbers."""
        return self._samples(v, width, name)[0]

    def _start(self, clock: str, first_sample: int | None, n: int) -> int:
        """Return the position of the first of n samples: as given, or that of the clock."""
        start = self._position(clock)
        if first_sample is not None:
            what = f"a place on the {clock} clock"
            start = integer(first_sample, "first_sample", low=0, what=what)
        if start + n > MAX_SAMPLE:
            raise ParameterError(
                f"{clock}: {n} samples from {start} would pass 2**48 on its clock"
            )
        return start

    def _finite(self, array: Array, name: str) -> None:
        """Check values at once if that needs no synchronisation; otherwise kernels check them."""
        if not (_device.takes_kernels(array) or is_finite(array)):
            raise NonFiniteError(f"{name} holds NaN or infinity; the tile is unchanged")

    def _settle(self) -> None:
        """Raise deferred errors at once, if the tile has ``validate="sync"``."""
        if self.validate == "sync":
            self._guard.check()

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights."""

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """Multiply activations by the weights."""

    @abstractmethod
    def backward(self, d: Array) -> Array:
        """Multiply errors by the transposed weights."""

    @abstractmethod
    def get_weights(self) -> Array:
        """Read the weights."""

    @abstractmethod
    def _position(self, clock: str) -> int:
        """Return the position of a sample clock."""


def rows_of(
    v: Any, device: _device.Device, dtype: Any, width: int, name: str
) -> tuple[Array, Leading]:
    """Convert samples with any leading axes to the rows of a matrix.

    Parameters
    ----------
    v : array_like, shape (..., width)
    device : Device
    dtype : dtype
    width : int
    name : str
        Name of the argument in error messages.

    Returns
    -------
    rows : array, shape (n_sample, width), dtype
        C-contiguous; samples in the order of the leading axes, the last axis fastest.
    leading : tuple of int or None
        Lengths of the leading axes; None if v is a matrix.

    Raises
    ------
    ShapeError, DTypeError, DeviceError
    """
    array = _device.as_array(v, device, dtype, name)
    shape = array.shape
    if not shape or shape[-1] != width:
        raise ShapeError(
            f"{name}: got shape {tuple(shape)}, need (..., {width}): one vector of {width} "
            "elements, or samples along any leading axes"
        )
    if len(shape) == 2:
        return array, None
    leading = tuple(shape[:-1])
    return array.reshape(math.prod(leading), width), leading


def with_leading(rows: Array, leading: Leading) -> Array:
    """Reshape rows of results to the leading axes of the inputs."""
    return rows if leading is None else rows.reshape(*leading, rows.shape[1])


def check_same_samples(x: Leading, d: Leading, n_x: int, n_d: int) -> None:
    """Check that x and d of an update hold the same samples.

    Raises
    ------
    ShapeError
    """
    if n_x != n_d:
        raise ShapeError(f"x has {n_x} samples and d has {n_d}; need the same number")
    several = len(x or ()) > 1 or len(d or ()) > 1
    if several and (x or (n_x,)) != (d or (n_d,)):
        raise ShapeError(
            f"x has leading axes {x or (n_x,)} and d has {d or (n_d,)}; need the same"
        )
