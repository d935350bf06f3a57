"""Layers with their weights in tiles: `Dense` and `Conv2d`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import integer, number
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.elementwise import random_fill
from rpukit.errors import ParameterError, RpukitError, ShapeError
from rpukit.inference.grid.array import TileArray
from rpukit.layers.geometry import Window, images, pair
from rpukit.layers.plain import Layer
from rpukit.random import Stream

__all__ = ["Conv2d", "Dense", "TileLayer"]

Array = Any
_START = 1 << 20  # child stream of the first weights


@enters_device()
class TileLayer(Layer):
    """Base class of layers whose weights are one matrix in tiles.

    Attributes
    ----------
    array : TileArray
        The tiles; read and set the weights there.

    Notes
    -----
    `backward` keeps the samples until `update`, so a mini-batch may come in several parts:
    ``forward`` and ``backward`` of each, then one ``update``. All bits are those of one part.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        cell: Any,
        bias: str | bool,
        seed: int | Stream,
        options: dict[str, Any],
    ) -> None:
        stream = Stream.from_seed(seed)
        self._hold(TileArray(shape, cell, bias=bias, seed=stream, **options))
        reach = np.float32(math.sqrt(6 / sum(shape)))
        start = random_fill(stream.child(_START), shape, "uniform") * 2 - 1
        self.array.set_weights(_device.to_device(start * reach, self._device, self.array.dtype))

    def _hold(self, array: TileArray) -> None:
        self.array = array
        self._device, self._call_state = array._device, CallState()
        self._rows: Array = None
        self._samples: list[tuple[Array, Array]] = []

    def _product(self, rows: Array) -> Array:
        self._rows = rows
        return self.array.forward(rows)

    def _back(self, d: Array, needed: bool) -> Array | None:
        """Keep the samples of an update; give the gradient by the inputs if it is needed."""
        if self._rows is None:
            raise ParameterError(f"{type(self).__name__}.backward: call forward first")
        rows = self._rows.reshape(-1, self.array.shape[1])
        errors = d.reshape(-1, self.array.shape[0])
        if len(errors) != len(rows):
            raise ShapeError(f"d: got {len(errors)} rows of errors, need {len(rows)}")
        grad = self.array.backward(errors) if needed else None
        self._samples.append((rows, errors))
        return grad

    def backward(self, d: Array, *, needed: bool = True) -> Array:
        """Compute the gradient by the inputs of the last `forward`, and keep the errors.

        Parameters
        ----------
        d : array, shape of the outputs
        needed : bool
            Whether the gradient is needed; it is not for the first layer of a network, which then
            makes no product. The result is None.

        Returns
        -------
        array, shape of the inputs, or None

        Raises
        ------
        ParameterError, ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        raise NotImplementedError  # pragma: no cover

    @changes
    def update(self, lr: float) -> None:
        """Change the weights by the samples that `backward` has kept since the last update.

        Parameters
        ----------
        lr : float

        Raises
        ------
        ParameterError, NonFiniteError
            The samples are dropped.
        """
        rate = number(lr, "lr")
        samples, self._samples = self._samples, []
        size = max(1, sum(len(rows) for rows, _ in samples))
        for k, (rows, errors) in enumerate(samples):
            self._call_state.changing()
            try:
                self.array.update(rows, errors, rate, batch_size=size)
            except RpukitError:
                if k == 0:
                    self._call_state.unchanged()
                raise

    def forget(self, n: int = 0) -> None:
        """Drop the samples that `backward` has kept for `update`.

        Parameters
        ----------
        n : int, at least 0
            Number of calls of `backward` whose samples stay, the earliest ones.
        """
        del self._samples[n:]

    @property
    def n_kept(self) -> int:
        """Number of calls of `backward` whose samples wait for `update`."""
        return len(self._samples)

    def __repr__(self) -> str:
        n_row, n_column = self.array.grid
        name, tiles = type(self).__name__, f"{n_row} x {n_column} tiles"
        return f"{name}({self._sizes()}, {tiles}, device={self.array.device!r})"

    def _sizes(self) -> str:
        return f"{self.array.shape[1]}, {self.array.shape[0]}"


@enters_device()
class Dense(TileLayer):
    """A matrix of weights in tiles, and a bias.

    Parameters
    ----------
    n_in, n_out : int
    cell : Cell, InferenceCell or NoiseModel
        What sits at each cross-point, as of `rpukit.TileArray`.
    bias : {"digital", "analog", "none"} or bool
    seed : int or Stream
        Of the tiles and of the first weights, uniform within ``sqrt(6 / (n_in + n_out))``.
    **options
        Of `rpukit.TileArray`: ``tile_shape``, ``forward``, ``backward``, ``update``, ``device``.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        cell: Any,
        *,
        bias: str | bool = "digital",
        seed: int | Stream = 0,
        **options: Any,
    ) -> None:
        super().__init__((n_out, n_in), cell, bias, seed, options)

    def forward(self, x: Array) -> Array:
        array = self.array
        rows = _device.as_array(x, self._device, array.dtype, "x")
        return self._product(rows)

    def backward(self, d: Array, *, needed: bool = True) -> Array:
        grad = self._back(d, needed)
        return None if grad is None else grad.reshape(self._rows.shape)


@enters_device()
class Conv2d(TileLayer):
    """A convolution of images with its weights in tiles: patches are the samples of the tiles.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size : int or tuple of int
        Rows and columns of the kernel.
    cell : Cell, InferenceCell or NoiseModel
        What sits at each cross-point, as of `rpukit.TileArray`.
    stride, padding, dilation : int or tuple of int
        Padding is zeros at both ends.
    bias : {"digital", "analog", "none"} or bool
    seed : int or Stream
        Of the tiles and of the first weights.
    **options
        Of `rpukit.TileArray`: ``tile_shape``, ``forward``, ``backward``, ``update``, ``device``.

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Images are (n, channels, rows, columns). Samples of the tiles come in the order (image, row,
    column), columns of the weights in the order (channel, row, column): the matrix is that of
    ``rpukit.torch.nn.AnalogConv2d``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        cell: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        bias: str | bool = "digital",
        seed: int | Stream = 0,
        **options: Any,
    ) -> None:
        self.in_channels = integer(in_channels, "in_channels", low=1, what="channels")
        kernel = pair(kernel_size, "kernel_size")
        steps, ends = pair(stride, "stride"), pair(padding, "padding", low=0)
        self.window = Window(kernel, steps, ends, pair(dilation, "dilation"))
        n_out = integer(out_channels, "out_channels", low=1, what="channels")
        n_in = self.in_channels * kernel[0] * kernel[1]
        super().__init__((n_out, n_in), cell, bias, seed, options)

    def forward(self, x: Array) -> Array:
        whole = _device.as_array(x, self._device, self.array.dtype, "x")
        images(whole, "x", self.in_channels)
        patches = self.window.patches(whole)
        self._size = tuple(whole.shape[2:])
        n, height, width = patches.shape[:3]
        y = self._product(patches.reshape(-1, self.array.shape[1]))
        y = y.reshape(n, height, width, self.array.shape[0]).transpose(0, 3, 1, 2)
        self._out = tuple(y.shape)
        return _device.namespace(y).ascontiguousarray(y)

    def backward(self, d: Array, *, needed: bool = True) -> Array:
        if self._rows is not None and tuple(d.shape) != self._out:
            raise ShapeError(f"d: got shape {tuple(d.shape)}, need {self._out}")
        xp = _device.namespace(d)
        grad = self._back(xp.ascontiguousarray(d.transpose(0, 2, 3, 1)), needed)
        if grad is None:
            return None
        n, _, height, width = self._out
        shape = (n, height, width, self.in_channels, *self.window.kernel)
        return xp.ascontiguousarray(self.window.folded(grad.reshape(shape), self._size))

    def _sizes(self) -> str:
        return f"{self.in_channels}, {self.array.shape[0]}, {self.window.kernel}"
