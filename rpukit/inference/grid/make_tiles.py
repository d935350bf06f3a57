"""The tiles of a `TileArray`: their sizes, their kind, their streams."""

from __future__ import annotations

from typing import Any

from rpukit._checks import instance, need_memory, number, one_of
from rpukit.analog.cells import Cell
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import ParameterError
from rpukit.inference.grid.cell import InferenceCell
from rpukit.inference.grid.scale import OutputScale
from rpukit.inference.noise.model import NoiseModel
from rpukit.inference.tile.tile import InferenceTile
from rpukit.random import Stream

BIASES = ("none", "digital", "analog")


def tiles_of(
    size: tuple[int, int],
    tile_shape: tuple[int, int] | None,
    cell: Any,
    stream: Stream,
    options: dict[str, Any],
    update: UpdateParameters | None,
) -> list[list[Any]]:
    """Make the tiles of a matrix of this size, by blocks of outputs, then of inputs."""
    need_memory(8 * size[0] * size[1], f"an array of {size[0]} x {size[1]} cells")
    make = _maker(cell, options, update)
    rows, columns = _cuts(*size, tile_shape)
    several, width = len(rows) * len(columns) > 1, len(columns)
    return [
        [
            make((h, w), stream.child(k * width + j) if several else stream)
            for j, w in enumerate(columns)
        ]
        for k, h in enumerate(rows)
    ]


def bias_kind(bias: Any) -> str:
    """Check the kind of a bias."""
    if isinstance(bias, bool) or bias is None:
        return "digital" if bias else "none"
    return one_of(bias, "bias", BIASES)


def scale_of(given: Any) -> OutputScale | None:
    """Check the factors of outputs; a number is a fixed factor."""
    if given is None or isinstance(given, OutputScale):
        return given
    return OutputScale(value=number(given, "output_scale", need="an OutputScale or a number"))


def _cuts(n_out: int, n_in: int, size: tuple[int, int] | None) -> tuple[list[int], list[int]]:
    """Return the heights and widths of the tiles: whole ones, and what is left."""
    height, width = size or (n_out, n_in)
    heights = [min(height, n_out - at) for at in range(0, n_out, height)]
    return heights, [min(width, n_in - at) for at in range(0, n_in, width)]


def _maker(cell: Any, options: dict[str, Any], update: UpdateParameters | None) -> Any:
    """Return a function that makes a tile of a shape with a stream."""
    if isinstance(cell, NoiseModel):
        cell = InferenceCell(noise=cell)
    if not isinstance(cell, InferenceCell):
        checked = instance(cell, Cell, "cell")
        return lambda shape, stream: AnalogTile(
            shape, checked, update=update, seed=stream, **options
        )
    if update is not None:
        raise ParameterError("update: inference tiles are updated exactly, without pulses")
    known = {"forward", "backward", "device", "dtype", "validate"}
    if options.keys() - known:
        names = ", ".join(sorted(options.keys() - known))
        raise ParameterError(f"{names}: need a cell that learns by pulses, got an InferenceCell")
    settings = {**cell.options(), **options}
    return lambda shape, stream: InferenceTile(shape, seed=stream, **settings)
