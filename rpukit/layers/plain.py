"""Layers without weights: activations, pooling, and a change of shape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rpukit import _device
from rpukit.elementwise import tanh
from rpukit.errors import ParameterError, ShapeError
from rpukit.layers.geometry import Window, images, pair

__all__ = ["AvgPool2d", "Flatten", "Layer", "MaxPool2d", "ReLU", "Tanh"]

Array = Any


class Layer(ABC):
    """Interface of a layer. A subclass keeps in `forward` what its `backward` needs.

    Notes
    -----
    Arrays stay on their device. All results have the same bits on CPU and GPU, and rows depend on
    nothing but their own inputs and, of layers with tiles, their place on the sample clock.
    """

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """Compute the outputs of a mini-batch.

        Parameters
        ----------
        x : array, shape (n_batch, ...)

        Returns
        -------
        array, shape (n_batch, ...)
        """

    @abstractmethod
    def backward(self, d: Array) -> Array:
        """Compute the gradient by the inputs of the last `forward`.

        Parameters
        ----------
        d : array, shape of the outputs

        Returns
        -------
        array, shape of the inputs
        """

    def _kept(self, name: str, d: Array, shape: Any) -> Any:
        """Return what `forward` has kept; check that an error has the shape of the outputs."""
        kept = getattr(self, name, None)
        if kept is None:
            raise ParameterError(f"{type(self).__name__}.backward: call forward first")
        if tuple(d.shape) != tuple(shape(kept)):
            raise ShapeError(f"d: got shape {tuple(d.shape)}, need {tuple(shape(kept))}")
        return kept

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Tanh(Layer):
    """Hyperbolic tangent of every element, by `rpukit.elementwise.tanh`."""

    def forward(self, x: Array) -> Array:
        self._y = tanh(x)
        return self._y

    def backward(self, d: Array) -> Array:
        y = self._kept("_y", d, lambda y: y.shape)
        return d * (1 - y * y)


class ReLU(Layer):
    """The larger of 0 and every element."""

    def forward(self, x: Array) -> Array:
        self._y = _device.namespace(x).maximum(x, x.dtype.type(0))
        return self._y

    def backward(self, d: Array) -> Array:
        y = self._kept("_y", d, lambda y: y.shape)
        return d * (y > 0)


class Flatten(Layer):
    """All axes after the first joined to one."""

    def forward(self, x: Array) -> Array:
        self._shape = tuple(x.shape)
        return x.reshape(len(x), -1)

    def backward(self, d: Array) -> Array:
        shape = self._kept("_shape", d, lambda s: (s[0], _size(s)))
        return d.reshape(shape)


def _size(shape: tuple[int, ...]) -> int:
    found = 1
    for n in shape[1:]:
        found *= n
    return found


class _Pool(Layer):
    """Base class of pooling.

    Parameters
    ----------
    kernel_size : int or tuple of int
        Rows and columns of a window.
    stride : int or tuple of int, optional
        Default: that of the window, so that windows do not overlap.
    padding : int or tuple of int
    """

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        kernel = pair(kernel_size, "kernel_size")
        step = kernel if stride is None else pair(stride, "stride")
        self.window = Window(kernel, step, pair(padding, "padding", low=0))
        if any(2 * p > k for p, k in zip(self.window.padding, kernel, strict=True)):
            raise ParameterError(f"padding: got {padding}, need at most half of {kernel}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.window.kernel}, stride={self.window.stride})"


class MaxPool2d(_Pool):
    """Largest element of each window; the error goes to the first that is the largest.

    Parameters
    ----------
    kernel_size : int or tuple of int
        Rows and columns of a window.
    stride : int or tuple of int, optional
        Default: that of the window, so that windows do not overlap.
    padding : int or tuple of int

    Raises
    ------
    ParameterError
    """

    def forward(self, x: Array) -> Array:
        images(x, "x")
        xp, out = _device.namespace(x), self.window.out(x.shape[2:])
        whole, y = self.window.padded(x, -xp.inf), None
        for _, (rows, columns) in self.window.places(out):
            part = whole[:, :, rows, columns]
            y = part.copy() if y is None else xp.maximum(y, part, out=y)
        self._found = whole, y, tuple(x.shape[2:])
        return y

    def backward(self, d: Array) -> Array:
        whole, y, (height, width) = self._kept("_found", d, lambda found: found[1].shape)
        xp, (top, left) = _device.namespace(d), self.window.padding
        grad, free = xp.zeros(whole.shape, d.dtype), xp.ones(y.shape, bool)
        for _, (rows, columns) in self.window.places(y.shape[2:]):
            hit = free & (whole[:, :, rows, columns] == y)
            grad[:, :, rows, columns] += d * hit
            free &= ~hit
        return grad[:, :, top : top + height, left : left + width]


class AvgPool2d(_Pool):
    """Mean of each window, zeros of the padding included; elements are added in their order.

    Parameters
    ----------
    kernel_size : int or tuple of int
        Rows and columns of a window.
    stride : int or tuple of int, optional
        Default: that of the window, so that windows do not overlap.
    padding : int or tuple of int

    Raises
    ------
    ParameterError
    """

    def forward(self, x: Array) -> Array:
        images(x, "x")
        out, whole, y = self.window.out(x.shape[2:]), self.window.padded(x), None
        for _, (rows, columns) in self.window.places(out):
            part = whole[:, :, rows, columns]
            y = part.copy() if y is None else y + part
        self._shapes = tuple(whole.shape), tuple(y.shape), tuple(x.shape[2:])  # type: ignore[union-attr]
        return y * self._share(x)

    def backward(self, d: Array) -> Array:
        whole, out, (height, width) = self._kept("_shapes", d, lambda shapes: shapes[1])
        (top, left), part = self.window.padding, d * self._share(d)
        grad = _device.namespace(d).zeros(whole, d.dtype)
        for _, (rows, columns) in self.window.places(out[2:]):
            grad[:, :, rows, columns] += part
        return grad[:, :, top : top + height, left : left + width]

    def _share(self, x: Array) -> Any:
        return x.dtype.type(1 / (self.window.kernel[0] * self.window.kernel[1]))
