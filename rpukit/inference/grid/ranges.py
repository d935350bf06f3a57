"""Ranges of the inputs of a grid of tiles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device

Array = Any


@enters_device()
class GridRanges:
    """Part of a grid of tiles: the input ranges of inference tiles, by blocks of inputs."""

    tiles: list[list[Any]]
    shape: tuple[int, int]
    _turned: list[list[Any]]
    _in: list[int]
    _dtype: np.dtype[Any]
    _exact: bool
    _call_state: CallState

    @abstractmethod
    def _each(self, method: str, *args: Any, **options: Any) -> Self:
        """Call a method of each tile."""

    @abstractmethod
    def _rows(self, v: Array, width: int, name: str) -> Array:
        """Convert an input to rows of `width` numbers."""

    @property
    def ranges(self) -> list[float] | None:
        """Input range of each block of inputs; None for tiles without one."""
        if not self._exact or self.tiles[0][0].input_range is None:
            return None
        return [tile.range for tile in self.tiles[0]]

    @changes
    def set_range(self, value: float) -> Self:
        """Set the input range of all tiles, in place.

        Parameters
        ----------
        value : float, positive

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError, DTypeError
        """
        return self._each("set_range", value)

    def through_range(self, x: Array, grad: Array) -> Array:
        """Set the gradient of activations that the input ranges clip to 0.

        Parameters
        ----------
        x, grad : array, shape (n_batch, n_in), dtype of the tiles
            Activations, and the gradient that `backward` gave for them.

        Returns
        -------
        array, shape (n_batch, n_in)
        """
        ranges = self.ranges
        if ranges is None:
            return grad
        xp, zero = _device.namespace(grad), self._dtype.type(0)
        if len(set(ranges)) == 1:
            return xp.where(abs(x) > self._dtype.type(ranges[0]), zero, grad)
        limits = [xp.full(b - a, value, self._dtype) for value, a, b in self._with_edges(ranges)]
        return xp.where(abs(x) > xp.concatenate(limits), zero, grad)

    def _with_edges(self, ranges: list[float]) -> Iterator[tuple[float, int, int]]:
        """Yield each range with its first column and the one after its last."""
        edges = [*self._in[:-1], min(self._in[-1], self.shape[1])]  # no line for the bias
        return zip(ranges, edges[:-1], edges[1:], strict=True)

    @changes
    def learn_range(self, x: Array, grad: Array, lr: float, *, tally: Array | None = None) -> Self:
        """Learn the input ranges, one for each block of inputs, in place.

        Parameters
        ----------
        x, grad : array, shape (n_batch, n_in), dtype of the tiles
            Activations, and the gradient that `backward` gave for them.
        lr : float
        tally : array, shape (n_block_in, 2), int64, optional
            For each block of inputs, outputs of its tiles that reached their bound, and all: for
            an `InputRange` with `manage_output_clipping`.

        Returns
        -------
        TileGrid
            Itself; unchanged if its tiles have no learned `InputRange`.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        if self.ranges is None or not self.tiles[0][0].input_range.learned:
            return self
        width = self.shape[1]
        rows, slopes = self._rows(x, width, "x"), self._rows(grad, width, "grad")
        edges = [*self._in[:-1], min(self._in[-1], width)]  # without a line for the bias
        parts = zip(blocks(rows, edges), blocks(slopes, edges), self._turned, strict=True)
        counts = [(0, 0)] * len(self._turned) if tally is None else _device.to_numpy(tally)
        for (of_x, of_grad, column), (reached, n) in zip(parts, counts, strict=True):
            first = column[0]
            if not of_x.shape[1]:
                continue
            self._call_state.changing()
            missing = first.shape[1] - of_x.shape[1]  # the line of an analog bias
            if missing:
                of_x, of_grad = (_with_zeros(v, missing) for v in (of_x, of_grad))
            first.learn_range(of_x, of_grad, lr, clipped=float(reached / max(n, 1)))
            for tile in column[1:]:
                tile._now["range"] = first._now["range"]
                tile._now["range_seen"] = first._now["range_seen"]
        return self


def _with_zeros(rows: Array, n_line: int) -> Array:
    """Add lines of zeros at the end of each sample."""
    xp = _device.namespace(rows)
    return xp.concatenate((rows, xp.zeros((len(rows), n_line), rows.dtype)), axis=1)


def blocks(rows: Array, edges: list[int]) -> list[Array]:
    """Cut the columns of a matrix, each part contiguous."""
    if len(edges) == 2:
        return [rows]
    contiguous = _device.namespace(rows).ascontiguousarray
    return [contiguous(rows[:, a:b]) for a, b in pairwise(edges)]
