"""`map_matrix`: cut a large matrix into a grid of inference tiles."""

from __future__ import annotations

from typing import Any

from rpukit._checks import check_shape, need_memory, shown
from rpukit.errors import ParameterError, ShapeError
from rpukit.inference.tile.mapping import MappedMatrix
from rpukit.inference.tile.tile import InferenceTile
from rpukit.random import Stream

__all__ = ["map_matrix"]

_CELL_BYTES = 8  # weights that are wanted, and those that the products see


def edges(n: int, largest: int) -> list[int]:
    """Cut n lines into as few blocks as possible, of sizes that differ by one at most."""
    n_block = -(-n // largest)
    return [n * k // n_block for k in range(n_block + 1)]


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
        raise ParameterError(
            f"max_tile: got {shown(max_tile)}, need two positive lengths"
        ) from error
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
