"""Ops that draw the cells of a tile on its device, with the bits of ``PulsedCell.sample``.

A recipe holds the numbers of a whole tile from which its cells are drawn. Either the planes are
drawn once and stored, or the tile keeps the recipe and draws them whenever they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import need_memory
from rpukit._device import Device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._kernels.replay import keep_for_graph
from rpukit._workers import run_rows, work_grain
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.errors import FormatError, ParameterError
from rpukit.random import Stream

Array = Any
Bounds = tuple[Array, Array]

_CELL_PLANES = Kernel("cell_planes")

RECIPE = 40  # numbers of a tile, listed in kernels_cu/include/cell_planes.cuh
SLOW = ("diffusion_rate", "reset_bias", "decay_scale", "drift_nu")  # in the order of the kernel
_BLOCK = 256
_STRIP = 1 << 20  # cells drawn at a time if a tile stores none
_MANY = 1 << 24  # number of cells from which the mirror is faster than NumPy, compilation included
_OWN = 16  # index of the first number that belongs to a model
_STUCK, _FROM, _RANGE, _PERFECT, _TURNED, _FIND, _KEY, _MODEL = 9, 10, 11, 14, 15, 23, 33, 37
# In the order of the mirror's numbers of models.
SAMPLERS = (
    "shared_planes",
    "linear_planes",
    "linear_reference_planes",
    "pow_planes",
    "pow_reference_planes",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Numbers and sampler from which the cells of a tile are drawn.

    Attributes
    ----------
    sampler : str
        Function of ``cell_planes.cuh`` that draws the planes.
    names : tuple of str
        Names of the planes.
    slow : tuple of str
        Which of `SLOW` the cells have.
    shape : tuple of int, (n_out, n_in)
    values : array, shape (40,) or (40 + n_cell,), float32 or float64
        Numbers of the tile, on its device, followed by the symmetry points of all its cells if
        these take long to find.
    first_row : int
        Number of row 0 in the tile, if these are some rows of a tile that is split.
    first_col, tile_cols : int
        Number of column 0 in the tile, and of the columns of the tile, if these are some of them.
    """

    sampler: str
    names: tuple[str, ...]
    slow: tuple[str, ...]
    shape: tuple[int, int]
    values: Array
    first_row: int = 0
    first_col: int = 0
    tile_cols: int = 0

    @property
    def macros(self) -> dict[str, Any]:
        """Macros for compiling a kernel that draws these cells."""
        points = int(self.values.size > RECIPE)
        return {"PLANES_OF": self.sampler, "N_PLANE": len(self.names), "POINTS": points}

    def __len__(self) -> int:
        """Return the number of planes, as the length of an array of planes."""
        return len(self.names)

    def draw(
        self,
        n_plane: int,
        slow: Sequence[str] = (),
        rows: tuple[int, int] | None = None,
        out: Array | None = None,
    ) -> Array:
        """Draw cells.

        Parameters
        ----------
        n_plane : int
            Number of planes to draw; one more than the model has adds the symmetry point of a
            model with a reference.
        slow : sequence of str
            Of `SLOW`, in that order.
        rows : tuple of int, optional
            First row and the one after the last; default: all.
        out : array, at least as large as the result, optional
            Array that receives the result.

        Returns
        -------
        array, shape (n_plane + n_slow, n_row, n_in), dtype of `values`
        """
        first, stop = rows or (0, self.shape[0])
        shape = (n_plane + len(slow), stop - first, self.shape[1])
        values = self.values
        if out is None:
            out = _device.empty(shape, values.dtype, _device.device_of(values))
        else:
            out = out.reshape(-1)[: shape[0] * shape[1] * shape[2]].reshape(shape)
        bits = sum(1 << SLOW.index(name) for name in slow)
        place = (self.first_row + first, self.first_col, self.tile_cols or shape[2])
        if _device.runs_kernels(_device.namespace(values)):
            macros = {"REAL": twins.real(values.dtype), "N_OUT": n_plane, "SLOW": bits}
            _CELL_PLANES.launch(
                (-(-shape[1] * shape[2] // _BLOCK),),
                (_BLOCK,),
                (shape[2], *place, shape[1], values, out),
                macros={**self.macros, **macros},
            )
        else:
            mirror = import_module("rpukit.analog._mirror.planes").cell_planes
            grain = work_grain(40 * shape[2])
            run_rows(mirror, shape[1], n_plane, bits, *place, values, out, grain=grain)
        return out

    def strips(self, n_plane: int, slow: Sequence[str] = ()) -> Iterator[tuple[slice, Array]]:
        """Draw cells strip by strip; each strip overwrites the one before.

        Yields the rows of a strip, and the result of `draw` for them.
        """
        n_out, n_in = self.shape
        n_row = min(n_out, max(1, _STRIP // n_in))
        shape, device = (n_plane + len(slow), n_row, n_in), _device.device_of(self.values)
        scratch = _device.empty(shape, self.values.dtype, device)
        keep_for_graph(scratch)
        for first in range(0, n_out, n_row):
            rows = (first, min(first + n_row, n_out))
            yield slice(*rows), self.draw(n_plane, slow, rows, scratch)

    def check(self, values: Any) -> None:
        """Check other numbers of the same cells, by which kernels find what they read."""
        own = _device.to_numpy(self.values)
        for slot in (_FIND, _MODEL, _MODEL + 1):
            if values[slot] != own[slot]:
                raise FormatError(f"got {values[slot]} at {slot}, need {own[slot]}")
        if values[_TURNED] not in (-1, 0, 1):
            raise FormatError(f"got {values[_TURNED]} at {_TURNED}, need -1, 0 or 1")

    def turn(self) -> None:
        """Exchange up and down of every cell, in place."""
        bends = -1 if any(name.startswith("slope") for name in self.names) else 1
        turned = bool(self.values[_TURNED] != 0)
        self.values[_TURNED] = 0 if turned else bends


def can_draw(cell: PulsedCell) -> bool:
    """Whether `cell_planes` has a sampler for the class; other classes draw by `sample`.

    Parameters
    ----------
    cell : PulsedCell

    Returns
    -------
    bool
    """
    return vars(type(cell)).get("SAMPLER", "") in SAMPLERS


def recipe_of(
    cell: PulsedCell,
    stream: Stream,
    shape: tuple[int, int],
    device: Device,
    dtype: Any = np.float32,
    *,
    keep: bool = False,
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
) -> Recipe:
    """Make the recipe of a tile, or of some of its rows or columns.

    Parameters
    ----------
    cell : PulsedCell
        Of a class that `can_draw` knows.
    stream : Stream
    shape : tuple of int, (n_out, n_in)
    device : Device
    dtype : {float32, float64}
        Type of the result; the draws are those of float32.
    keep : bool
        Whether cells will be drawn repeatedly. Symmetry points that take thousands of steps to
        find are stored then.
    rows, columns : tuple of int, optional
        First one and the one after the last; default: all.

    Returns
    -------
    Recipe

    Raises
    ------
    ParameterError

    Notes
    -----
    Where cells may be stuck, the bounds are drawn twice: first for the range of all bounds.
    """
    if not can_draw(cell):
        raise ParameterError(
            f"cell: {type(cell).__name__} draws its planes by sample(), for which there is no "
            'kernel: use storage="stored"'
        )
    numbers = _numbers(cell, stream)

    def recipe(sampler: str, names: tuple[str, ...], extra: tuple[Array, ...] = ()) -> Recipe:
        numbers[_MODEL : _MODEL + 2] = SAMPLERS.index(sampler), len(names)
        values = _device.to_device(numbers, device, dtype)
        if extra:
            values = _device.namespace(values).concatenate([values, *extra])
        return Recipe(sampler, names, _slow_of(cell), shape, values)

    def part(made: Recipe) -> Recipe:
        if rows is not None:
            made = replace(made, shape=(rows[1] - rows[0], shape[1]), first_row=rows[0])
        if columns is not None and columns != (0, shape[1]):
            width = (made.shape[0], columns[1] - columns[0])
            made = replace(made, shape=width, first_col=columns[0], tile_cols=shape[1])
        return made

    if cell.corrupt_devices_prob > 0:
        kept = numbers.copy()
        numbers[[_STUCK, _PERFECT]] = 0  # nothing stuck yet, no perfect bias yet
        lowest, highest = _reach(recipe("shared_planes", PulsedCell.PLANES))
        reach, numbers = np.float32(cell.corrupt_devices_range), kept
        low = max(lowest, -reach)
        numbers[_FROM], numbers[_RANGE] = low, min(highest, reach) - low
    if not (keep and cell.SAMPLER == "pow_reference_planes" and numbers[_FIND]):
        return part(recipe(cell.SAMPLER, cell.PLANES))
    finds, n = recipe(cell.SAMPLER, cell.PLANES), len(cell.PLANES)
    points = _device.empty((shape[0] * shape[1],), dtype, device)
    for strip, drawn in finds.strips(n + 1):
        points.reshape(shape)[strip] = drawn[n]
    numbers[_FIND] = 0
    return part(recipe(cell.SAMPLER, cell.PLANES, (points,)))


def cell_planes(
    cell: PulsedCell, stream: Stream, shape: tuple[int, int], device: Device
) -> tuple[Array, Array | None]:
    """Draw the planes of a tile on its device.

    Parameters
    ----------
    cell : PulsedCell
        Of a class that `can_draw` knows.
    stream : Stream
    shape : tuple of int, (n_out, n_in)
    device : Device

    Returns
    -------
    planes : array, shape (n_plane, n_out, n_in), float32
        In the order of ``PLANES``.
    symmetry_point : array, shape (n_out, n_in), float32, or None
        Offset that the cell adds to its resting point.

    Raises
    ------
    ParameterError

    Notes
    -----
    Kernel: kernels_cu/cell_planes.cu.
    """
    n_plane = len(cell.PLANES)
    with_point = getattr(cell, "subtract_symmetry_point", False)
    planes = recipe_of(cell, stream, shape, device).draw(n_plane + with_point)
    return planes[:n_plane], planes[n_plane] if with_point else None


def draw_cells(
    cell: Cell,
    stream: Stream,
    shape: tuple[int, int],
    device: Device,
    dtype: Any = np.float32,
    *,
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
) -> tuple[Array | None, dict[str, Array]]:
    """Draw all per-cell arrays of a tile, or of some rows or columns, by a kernel on a GPU.

    On a CPU they are drawn by NumPy, or by the mirror if that repays its compilation.

    Parameters
    ----------
    cell : Cell
    stream : Stream
    shape : tuple of int, (n_out, n_in)
    device : Device
    dtype : {float32, float64}
        Of the arrays; the draws are those of float32.
    rows, columns : tuple of int, optional
        First one and the one after the last; default: all.

    Returns
    -------
    planes : array, shape (n_plane, n_row, n_col), or None
        None for a cell that is not pulsed.
    slow : dict of str to array, shape (n_row, n_col)
        Parameters of the weight processes. All are on the device.

    Raises
    ------
    MemoryLimitError
    """
    if device.kind == "cpu" and isinstance(cell, PulsedCell):  # drawn, then stacked
        (row, row_end), (col, col_end) = rows or (0, shape[0]), columns or (0, shape[1])
        n_byte = (
            2 * len(cell.PLANES) * np.dtype(dtype).itemsize * (row_end - row) * (col_end - col)
        )
        need_memory(n_byte, f"drawing {row_end - row} x {col_end - col} cells")
    worth = device.kind != "cpu" or _device.runs_kernels(np) or shape[0] * shape[1] >= _MANY
    if isinstance(cell, PulsedCell) and worth and can_draw(cell):
        recipe = recipe_of(cell, stream, shape, device, dtype, rows=rows, columns=columns)
        n = len(cell.PLANES)
        drawn = recipe.draw(n, recipe.slow)
        return drawn[:n], dict(zip(recipe.slow, drawn[n:], strict=True))
    part = slice(*(rows or (0, shape[0]))), slice(*(columns or (0, shape[1])))
    host = {name: array[part] for name, array in cell.sample(stream, shape).items()}
    planes = None
    if isinstance(cell, PulsedCell):
        stacked = np.stack([host.pop(name).astype(dtype) for name in cell.PLANES])
        planes = _device.to_device(stacked, device)
    return planes, {name: _device.to_device(array, device, dtype) for name, array in host.items()}


def values_of(planes: Array | Recipe) -> Array:
    """Return the array that kernels and mirrors take for planes."""
    return planes.values if isinstance(planes, Recipe) else planes


def bounds_of(planes: Array | Recipe) -> Iterator[tuple[slice, Bounds]]:
    """Yield the bounds of the cells: of all rows at once, or by strips where none are stored.

    Parameters
    ----------
    planes : array, shape (n_plane, n_out, n_in), or Recipe

    Yields
    ------
    rows : slice
    bounds : tuple of array, shape (n_row, n_in)
        w_min and w_max.
    """
    if isinstance(planes, Recipe):
        for rows, drawn in planes.strips(2):
            yield rows, (drawn[0], drawn[1])
    else:
        yield slice(None), (planes[0], planes[1])


def _reach(recipe: Recipe) -> tuple[np.float32, np.float32]:
    """Find the lowest lower and the highest upper bound."""
    ends = [(b[0].min().item(), b[1].max().item()) for _, b in bounds_of(recipe)]
    return np.float32(min(low for low, _ in ends)), np.float32(max(high for _, high in ends))


def _slow_of(cell: PulsedCell) -> tuple[str, ...]:
    """List the weight processes with per-cell parameters, as `PulsedCell.sample` decides."""
    drift = cell.drift
    rests = cell.reset != 0 or cell.reset_dtod > 0
    wanted = (
        cell.diffusion > 0,
        rests or getattr(cell, "subtract_symmetry_point", False),
        cell.lifetime > 0,
        drift is not None and drift.nu != 0 and drift.nu_dtod != 0,
    )
    return tuple(name for name, here in zip(SLOW, wanted, strict=True) if here)


def _numbers(cell: PulsedCell, stream: Stream) -> np.ndarray:
    q = np.zeros(RECIPE, np.float32)
    q[:9] = (
        cell.w_max,
        cell.w_max_dtod,
        cell.w_min,
        cell.w_min_dtod,
        cell.dw_min,
        cell.dw_min_dtod,
        min(cell.up_down, 0.0),
        -max(cell.up_down, 0.0),
        cell.up_down_dtod,
    )
    q[_STUCK] = cell.corrupt_devices_prob
    q[12:15] = cell.dw_min_dtod_log_normal, cell.enforce_consistency, cell.perfect_bias
    own = cell.own_numbers()
    q[_OWN : _OWN + len(own)] = own
    drift = (cell.drift.nu, cell.drift.nu_dtod) if cell.drift is not None else (0.0, 0.0)
    rest, life = (cell.reset, cell.reset_dtod), (cell.lifetime, cell.lifetime_dtod)
    q[25:33] = (cell.diffusion, cell.diffusion_dtod, *rest, *life, *drift)
    q[_KEY : _KEY + 4] = [half for key in stream.words for half in (key & 0xFFFF, key >> 16)]
    return q
