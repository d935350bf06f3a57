"""Windows that slide over the last axes of an array: their number, and where each offset lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rpukit import _device
from rpukit._checks import integer
from rpukit.errors import ParameterError, ShapeError

Array = Any


def offsets(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each place in a window, ascending, with the slices of what all windows have there."""
    for offset in product(*map(range, kernel)):
        steps = zip(offset, dilation, stride, out, strict=True)
        yield offset, tuple(slice(o * t, o * t + (m - 1) * s + 1, s) for o, t, s, m in steps)


def pair(value: Any, name: str, *, low: int = 1) -> tuple[int, int]:
    """Check a number of pixels, the same for both axes or one for each."""
    several = isinstance(value, (tuple, list))
    if several and len(value) != 2:
        raise ParameterError(f"{name}: got {value!r}, need one integer or two")
    first, second = value if several else (value, value)
    what = "pixels"
    return integer(first, name, low=low, what=what), integer(second, name, low=low, what=what)


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over the two axes of an image.

    Parameters
    ----------
    kernel, stride, padding, dilation : tuple of int
        Of rows and columns. Padding is zeros at both ends.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def out(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the number of windows along each axis of an image.

        Raises
        ------
        ShapeError
            If the image is smaller than a window.
        """
        every = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        found = tuple((n + 2 * p - t * (k - 1) - 1) // s + 1 for n, k, s, p, t in every)
        if min(found) < 1:
            raise ShapeError(
                f"x: got images of {tuple(size)}, need at least one window of {self.kernel} with "
                f"dilation {self.dilation} and padding {self.padding}"
            )
        return found

    def padded(self, x: Array, fill: float = 0.0) -> Array:
        """Add the padding to images, shape (n, channels, rows, columns)."""
        rows, columns = self.padding
        if not (rows or columns):
            return x
        n, channels, height, width = x.shape
        shape = (n, channels, height + 2 * rows, width + 2 * columns)
        whole = _device.namespace(x).full(shape, fill, x.dtype)
        whole[:, :, rows : rows + height, columns : columns + width] = x
        return whole

    def places(self, out: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Yield each place in a window with its slices of the padded images."""
        return offsets(self.kernel, self.stride, self.dilation, out)

    def patches(self, x: Array) -> Array:
        """Copy the windows of images.

        Parameters
        ----------
        x : array, shape (n, channels, rows, columns)

        Returns
        -------
        array, shape (n, rows_out, columns_out, channels, *kernel)
        """
        out, whole = self.out(x.shape[2:]), self.padded(x)
        shape = (len(x), *out, x.shape[1], *self.kernel)
        found = _device.namespace(x).empty(shape, x.dtype)
        for (a, b), (rows, columns) in self.places(out):
            found[..., a, b] = whole[:, :, rows, columns].transpose(0, 2, 3, 1)
        return found

    def folded(self, d: Array, size: Sequence[int]) -> Array:
        """Add windows up where they overlap: the transpose of `patches`.

        Places in a window ascending, so that the sums have the same bits everywhere.

        Parameters
        ----------
        d : array, shape (n, rows_out, columns_out, channels, *kernel)
        size : tuple of int
            Rows and columns of the images.

        Returns
        -------
        array, shape (n, channels, rows, columns)
        """
        (height, width), (top, left) = size, self.padding
        shape = (len(d), d.shape[3], height + 2 * top, width + 2 * left)
        whole = _device.namespace(d).zeros(shape, d.dtype)
        for (a, b), (rows, columns) in self.places(d.shape[1:3]):
            whole[:, :, rows, columns] += d[..., a, b].transpose(0, 3, 1, 2)
        return whole[:, :, top : top + height, left : left + width]


def images(x: Any, name: str, channels: int = 0) -> None:
    """Check that an array has four axes, and its number of channels if one is given."""
    if getattr(x, "ndim", 0) != 4 or (channels and x.shape[1] != channels):
        need = f"(n, {channels or 'channels'}, rows, columns)"
        raise ShapeError(f"{name}: got shape {tuple(getattr(x, 'shape', ()))}, need {need}")
