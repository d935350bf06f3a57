"""Matrices mapped over several tiles, with digital sums in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.entering import enters_device
from rpukit.analog.parameters.checks import check_shape
from rpukit.analog.tile.face import Leading, rows_of, with_leading
from rpukit.errors import FormatError, ParameterError, ShapeError
from rpukit.inference.describe import matrix_summary
from rpukit.inference.tile.tile import InferenceTile
from rpukit.inference.training.ops import add_scaled
from rpukit.random import Stream
from rpukit.summaries import Described, Summary

__all__ = ["MappedMatrix", "map_matrix"]

Array = Any
FORMAT = "rpukit.MappedMatrix"


def edges(n: int, largest: int) -> list[int]:
    """Cut n lines into as few blocks as possible, of sizes that differ by one at most."""
    n_block = -(-n // largest)
    return [n * k // n_block for k in range(n_block + 1)]


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
        self.tiles = tiles
        heights = [row[0].shape[0] for row in tiles]
        widths = [tile.shape[1] for tile in tiles[0]]
        fits = [[(h, w) for w in widths] for h in heights]
        if [[tile.shape for tile in row] for row in tiles] != fits:
            raise ShapeError("tiles: their shapes do not form a grid")
        self._out = [0, *np.cumsum(heights).tolist()]
        self._in = [0, *np.cumsum(widths).tolist()]
        self.shape = (self._out[-1], self._in[-1])

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
        for k, row in enumerate(tiles):
            for j, tile in enumerate(row):
                block = _device.namespace(rows).ascontiguousarray(rows[:, given[j] : given[j + 1]])
                part = getattr(tile, way)(block, first_sample=first)
                add_scaled(part, None, y, by="none", add=j > 0, offset=made[k], status=status)
        return with_leading(y, leading)

    def _samples(self, v: Array, width: int, name: str) -> tuple[Array, Leading]:
        return rows_of(v, self._device, np.dtype(np.float32), width, name)

    def _rows(self, v: Array, width: int, name: str) -> Array:
        return self._samples(v, width, name)[0]

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
        for k, j, tile in self._placed():
            part_x = rows_x[:, self._in[j] : self._in[j + 1]]
            tile.update(part_x, rows_d[:, self._out[k] : self._out[k + 1]], lr)
        return self

    def _placed(self) -> Iterator[tuple[int, int, InferenceTile]]:
        for k, row in enumerate(self.tiles):
            for j, tile in enumerate(row):
                yield k, j, tile

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
        for k, j, tile in self._placed():
            block = array[self._out[k] : self._out[k + 1], self._in[j] : self._in[j + 1]]
            tile.set_weights(block)
        return self

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
        for tile in self:
            tile.program(event=event)
        return self

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
        for tile in self:
            tile.drift_to(t, number=number)
        return self

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
        for tile in self:
            tile.read(number=number)
        return self

    def unprogram(self) -> Self:
        """Restore the digital weights, in place.

        Returns
        -------
        MappedMatrix
            Itself.
        """
        for tile in self:
            tile.unprogram()
        return self

    def post_step(self) -> Self:
        """Clip, remap and modify the weights of all tiles, in place.

        Returns
        -------
        MappedMatrix
            Itself.
        """
        for tile in self:
            tile.post_step()
        return self

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
        header = {"format": FORMAT, "version": 1, "grid": grid, "tiles": headers}
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
        try:
            header, arrays = state["header"], state["arrays"]
            if (header["format"], header["version"]) != (FORMAT, 1):
                raise FormatError(f"state: this is not a {FORMAT} of version 1")
            n_row, n_column = header["grid"]
            tiles = [
                [
                    InferenceTile.from_state(
                        {
                            "header": header["tiles"][f"{k}.{j}"],
                            "arrays": _under(arrays, f"{k}.{j}."),
                        },
                        device,
                    )
                    for j in range(n_column)
                ]
                for k in range(n_row)
            ]
            return cls(tiles)
        except (KeyError, TypeError, IndexError) as error:
            raise FormatError(f"state: the header is damaged: {error!r}") from error

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


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: a for name, a in arrays.items() if name.startswith(prefix)}


def map_matrix(
    shape: tuple[int, int],
    *,
    max_tile: tuple[int, int] = (512, 512),
    seed: int | Stream = 0,
    **options: Any,
) -> MappedMatrix:
    """Map a large matrix over several inference tiles.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
    max_tile : tuple of int, (n_out, n_in)
        Largest tile. The matrix is cut into as few tiles as possible, of nearly equal sizes.
    seed : int or Stream
        Tile number k, by blocks of outputs and then of inputs, draws from child k.
    **options
        Of `InferenceTile`.

    Returns
    -------
    MappedMatrix

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Each tile fits its own scale from weights to conductances. Partial products pass their own
    converters, and are added in digital, blocks of inputs ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.inference import map_matrix
    >>> matrix = map_matrix((700, 1000), max_tile=(512, 512), seed=7)
    >>> [tile.shape for tile in matrix]
    [(350, 500), (350, 500), (350, 500), (350, 500)]
    """
    n_out, n_in = check_shape(shape)
    try:
        most_out, most_in = check_shape(max_tile)
    except ShapeError as error:
        raise ParameterError(f"max_tile: got {max_tile!r}, need two positive lengths") from error
    stream = Stream.from_seed(seed)
    rows, columns = edges(n_out, most_out), edges(n_in, most_in)
    tiles = []
    for k in range(len(rows) - 1):
        row = []
        for j in range(len(columns) - 1):
            size = (rows[k + 1] - rows[k], columns[j + 1] - columns[j])
            child = stream.child(k * (len(columns) - 1) + j)
            row.append(InferenceTile(size, seed=child, **options))
        tiles.append(row)
    return MappedMatrix(tiles)
