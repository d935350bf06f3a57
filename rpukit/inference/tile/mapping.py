"""Matrices mapped over several tiles, with digital sums in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import shown
from rpukit._device import Device
from rpukit._files.schema import as_format_error
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import is_finite
from rpukit.analog.tile.face import Leading, rows_of, with_leading
from rpukit.errors import NonFiniteError, ParameterError, RpukitError, ShapeError
from rpukit.inference.describe import matrix_summary
from rpukit.inference.tile.state import MATRIX, parts_of
from rpukit.inference.tile.tile import InferenceTile
from rpukit.inference.training.ops import add_scaled
from rpukit.summaries import Described, Summary

__all__ = ["MappedMatrix"]

Array = Any


@enters_device("_describe")
class MappedMatrix(Described):
    """A matrix over a grid of inference tiles; made by `map_matrix`.

    Parameters
    ----------
    tiles : list of list of InferenceTile
        By blocks of outputs, then by blocks of inputs.

    Raises
    ------
    ShapeError
    """

    def __init__(self, tiles: list[list[InferenceTile]]) -> None:
        rows = isinstance(tiles, (list, tuple)) and all(
            isinstance(r, (list, tuple)) for r in tiles
        )
        if not rows or not all(isinstance(t, InferenceTile) for row in tiles for t in row):
            raise ParameterError(f"tiles: got {shown(tiles)}, need rows of inference tiles")
        if not tiles or not all(tiles):
            raise ShapeError("tiles: got none, need one tile or more in each row")
        self.tiles = tiles
        heights = [row[0].shape[0] for row in tiles]
        widths = [tile.shape[1] for tile in tiles[0]]
        fits = [[(h, w) for w in widths] for h in heights]
        if [[tile.shape for tile in row] for row in tiles] != fits:
            raise ShapeError("tiles: their shapes do not form a grid")
        self._out = [0, *np.cumsum(heights).tolist()]
        self._in = [0, *np.cumsum(widths).tolist()]
        self.shape = (self._out[-1], self._in[-1])
        self._call_state = CallState()

    def _describe(self) -> Summary:
        return matrix_summary(self)

    def __repr__(self) -> str:
        n_row, n_column = len(self.tiles), len(self.tiles[0])
        return f"MappedMatrix({self.shape}, {n_row} x {n_column} tiles, device={self.device!r})"

    def __iter__(self) -> Iterator[InferenceTile]:
        return (tile for row in self.tiles for tile in row)

    @property
    def _device(self) -> Device:
        return self.tiles[0][0]._device

    @property
    def device(self) -> str:
        """Compute device of the tiles."""
        return self.tiles[0][0].device

    @changes
    def forward(self, x: Array, *, first_sample: int | None = None) -> Array:
        """Multiply activations by the matrix; partial products are added with inputs ascending.

        Parameters
        ----------
        x : array, shape (n_batch, n_in) or (n_in,), float32
        first_sample : int, optional

        Returns
        -------
        array, shape (n_batch, n_out) or (n_out,), float32

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return self._product("forward", x, self.tiles, self._in, self._out, first_sample)

    @changes
    def backward(self, d: Array, *, first_sample: int | None = None) -> Array:
        """Multiply errors by the transposed matrix; partial products are added likewise.

        Parameters
        ----------
        d : array, shape (n_batch, n_out) or (n_out,), float32
        first_sample : int, optional

        Returns
        -------
        array, shape (n_batch, n_in) or (n_in,), float32

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        turned = [list(column) for column in zip(*self.tiles, strict=True)]
        return self._product("backward", d, turned, self._out, self._in, first_sample)

    def _product(
        self,
        way: str,
        v: Array,
        tiles: list[list[InferenceTile]],
        given: list[int],
        made: list[int],
        first: int | None,
    ) -> Array:
        rows, leading = self._samples(v, given[-1], "d" if way == "backward" else "x")
        place = _device.device_of(rows)
        y = _device.empty((rows.shape[0], made[-1]), np.float32, place)
        status = _device.zeros((1,), np.int32, place)
        self._call_state.changing()
        for k, row in enumerate(tiles):
            for j, tile in enumerate(row):
                block = _device.namespace(rows).ascontiguousarray(rows[:, given[j] : given[j + 1]])
                part = getattr(tile, way)(block, first_sample=first)
                add_scaled(part, None, y, by="none", add=j > 0, offset=made[k], status=status)
        return with_leading(y, leading)

    def _samples(self, v: Array, width: int, name: str) -> tuple[Array, Leading]:
        rows, leading = rows_of(v, self._device, np.dtype(np.float32), width, name)
        self._finite(rows, name)
        return rows, leading

    def _finite(self, array: Array, name: str) -> None:
        """Check all values on a CPU before any tile changes; kernels check those on a GPU."""
        if not (_device.takes_kernels(array) or is_finite(array)):
            raise NonFiniteError(f"{name} holds NaN or infinity; the matrix is unchanged")

    def _rows(self, v: Array, width: int, name: str) -> Array:
        return self._samples(v, width, name)[0]

    @changes
    def update(self, x: Array, d: Array, lr: float) -> Self:
        """Change the digital weights by ``-lr d x^T``, exactly, in place.

        Parameters
        ----------
        x : array, shape (n_batch, n_in) or (n_in,), float32
        d : array, shape (n_batch, n_out) or (n_out,), float32
        lr : float

        Returns
        -------
        MappedMatrix
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        rows_x, rows_d = self._rows(x, self.shape[1], "x"), self._rows(d, self.shape[0], "d")
        if rows_x.shape[0] != rows_d.shape[0]:
            raise ShapeError(f"x has {rows_x.shape[0]} samples and d has {rows_d.shape[0]}")

        def learn(k: int, j: int, tile: InferenceTile) -> None:
            part_x = rows_x[:, self._in[j] : self._in[j + 1]]
            tile.update(part_x, rows_d[:, self._out[k] : self._out[k + 1]], lr)

        return self._each(learn)

    def _each(self, call: Callable[[int, int, InferenceTile], Any]) -> Self:
        """Make a call of each tile; an error of the first one leaves the matrix unchanged."""
        for k, j, tile in self._placed():
            self._call_state.changing()
            try:
                call(k, j, tile)
            except RpukitError:
                if k == j == 0:
                    self._call_state.unchanged()
                raise
        return self

    def _placed(self) -> Iterator[tuple[int, int, InferenceTile]]:
        for k, row in enumerate(self.tiles):
            for j, tile in enumerate(row):
                yield k, j, tile

    @changes
    def set_weights(self, weight: Array) -> Self:
        """Set the digital weights, in place.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32

        Returns
        -------
        MappedMatrix
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError, ParameterError
        """
        array = _device.as_array(weight, self._device, np.float32, "weight")
        if array.shape != self.shape:
            raise ShapeError(f"weight: got shape {tuple(array.shape)}, need {self.shape}")
        self._finite(array, "weight")
        blocks = [[array[a:b, c:d] for c, d in pairwise(self._in)] for a, b in pairwise(self._out)]
        for k, j, tile in self._placed():  # raises where weights are beyond `w_max`
            tile.converter.split(blocks[k][j], tile.w_max)
        return self._each(lambda k, j, tile: tile.set_weights(blocks[k][j]))

    def get_weights(self) -> Array:
        """Read the weights that the products see now, exactly.

        Returns
        -------
        array, shape (n_out, n_in), float32

        Raises
        ------
        NonFiniteError
        """
        place = self._device
        weight = _device.empty(self.shape, np.float32, place)
        for k, j, tile in self._placed():
            block = weight[self._out[k] : self._out[k + 1], self._in[j] : self._in[j + 1]]
            block[...] = tile.get_weights()
        return weight

    @changes
    def program(self, *, event: int | None = None) -> Self:
        """Write the weights of all tiles into their cells, in place.

        Parameters
        ----------
        event : int, optional

        Returns
        -------
        MappedMatrix
            Itself.

        Raises
        ------
        ParameterError, NonFiniteError
        """
        return self._each(lambda k, j, tile: tile.program(event=event))

    @changes
    def drift_to(self, t: float, *, number: int = 0) -> Self:
        """Set the time after programming and read all cells at that time, in place.

        Parameters
        ----------
        t : float, at least 0, seconds
        number : int, 0 to 65535

        Returns
        -------
        MappedMatrix
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each(lambda k, j, tile: tile.drift_to(t, number=number))

    @changes
    def read(self, *, number: int | None = None) -> Self:
        """Read all cells again at the present time, in place.

        Parameters
        ----------
        number : int, 0 to 65535, optional

        Returns
        -------
        MappedMatrix
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each(lambda k, j, tile: tile.read(number=number))

    @changes
    def unprogram(self) -> Self:
        """Restore the digital weights, in place.

        Returns
        -------
        MappedMatrix
            Itself.
        """
        return self._each(lambda k, j, tile: tile.unprogram())

    @changes
    def post_step(self) -> Self:
        """Clip, remap and modify the weights of all tiles, in place.

        Returns
        -------
        MappedMatrix
            Itself.
        """
        return self._each(lambda k, j, tile: tile.post_step())

    def state(self) -> dict[str, Any]:
        """Return the complete state of the matrix as plain data on the CPU.

        Returns
        -------
        dict
            ``header`` and ``arrays``, those of tile (k, j) under names that begin with ``k.j.``.

        Raises
        ------
        NonFiniteError
        """
        headers: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for k, j, tile in self._placed():
            state = tile.state()
            headers[f"{k}.{j}"] = state["header"]
            arrays.update({f"{k}.{j}.{name}": a for name, a in state["arrays"].items()})
        grid = [len(self.tiles), len(self.tiles[0])]
        header = {"format": MATRIX, "version": 1, "grid": grid, "tiles": headers}
        return {"header": header, "arrays": arrays}

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str | Device = "cpu") -> Self:
        """Build a matrix from the result of `state`.

        Parameters
        ----------
        state : dict
        device : str

        Returns
        -------
        MappedMatrix

        Raises
        ------
        FormatError, DeviceError
        """
        parts = parts_of(state)
        with as_format_error("state"):
            return cls([[InferenceTile.from_state(p, device) for p in row] for row in parts])

    @classmethod
    def _check_state(cls, state: Any) -> None:
        """Check a state before memory is taken for it; see `InferenceTile`."""
        for row in parts_of(state):
            for part in row:
                InferenceTile._check_state(part)

    def to(self, device: str) -> Self:
        """Copy the matrix to a compute device.

        Parameters
        ----------
        device : str

        Returns
        -------
        MappedMatrix
            A new one; both continue to the same bits.

        Raises
        ------
        ParameterError, DeviceError, NonFiniteError
        """
        return type(self).from_state(self.state(), device)

    def copy(self) -> Self:
        """Copy the matrix; the copy continues to the same bits.

        Returns
        -------
        MappedMatrix
        """
        return self.to(self.device)
