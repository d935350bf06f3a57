"""`map_matrix`: a matrix over inference tiles of nearly equal sizes."""

from __future__ import annotations

from typing import Any, Self

from rpukit._checks import check_shape, need_memory, shown
from rpukit._device import Device
from rpukit._files.schema import as_format_error
from rpukit._kernels.entering import enters_device
from rpukit.errors import ParameterError, ShapeError
from rpukit.inference.describe import matrix_summary
from rpukit.inference.grid.grid import TileGrid
from rpukit.inference.tile.state import MATRIX, parts_of
from rpukit.inference.tile.tile import InferenceTile
from rpukit.random import Stream
from rpukit.summaries import Summary

__all__ = ["MappedMatrix", "map_matrix"]

_CELL_BYTES = 8  # weights that are wanted, and those that the products see


def edges(n: int, largest: int) -> list[int]:
    """Cut n lines into as few blocks as possible, of sizes that differ by one at most."""
    n_block = -(-n // largest)
    return [n * k // n_block for k in range(n_block + 1)]


@enters_device("_describe")
class MappedMatrix(TileGrid):
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
        super().__init__(tiles)

    def _describe(self) -> Summary:
        return matrix_summary(self)

    def __repr__(self) -> str:
        n_row, n_column = self.grid
        return f"MappedMatrix({self.shape}, {n_row} x {n_column} tiles, device={self.device!r})"

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
        headers, arrays = self._tile_states()
        header = {"format": MATRIX, "version": 1, "grid": list(self.grid), "tiles": headers}
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


def map_matrix(
    shape: tuple[int, int],
    *,
    max_tile: tuple[int, int] = (512, 512),
    seed: int | Stream = 0,
    **options: Any,
) -> MappedMatrix:
    """Map a large matrix over inference tiles of nearly equal sizes.

    `rpukit.TileArray` does more: cells that learn by pulses, a bias, scales of the outputs.

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
    most_out, most_in = size_of_tiles(max_tile, "max_tile")
    stream = Stream.from_seed(seed)
    need_memory(_CELL_BYTES * n_out * n_in, f"a matrix of {n_out} x {n_in} weights")
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


def size_of_tiles(size: Any, name: str) -> tuple[int, int]:
    """Check the lengths of tiles."""
    try:
        return check_shape(size)
    except ShapeError as error:
        raise ParameterError(f"{name}: got {shown(size)}, need two positive lengths") from error
