"""Op that draws the cells of a tile where the tile is, with the bits of ``PulsedCell.sample``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.errors import ParameterError
from rpukit.random import Stream

Array = Any

_CELL_PLANES = Kernel("cell_planes")

_BLOCK = 256
_N_NUMBER = 32
_OWN = 16  # where the numbers of a model begin
# In the order of the mirror's numbers of models.
_SAMPLERS = (
    "shared_planes",
    "linear_planes",
    "linear_reference_planes",
    "pow_planes",
    "pow_reference_planes",
)
_WITH_POINT = ("linear_reference_planes", "pow_reference_planes")


def can_draw(cell: PulsedCell) -> bool:
    """Whether `cell_planes` knows the class; one from outside draws by its `sample`.

    Parameters
    ----------
    cell : PulsedCell

    Returns
    -------
    bool
    """
    return vars(type(cell)).get("SAMPLER", "") in _SAMPLERS


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
        What the cell adds to its resting point.

    Raises
    ------
    ParameterError

    Notes
    -----
    Kernel: kernels_cu/cell_planes.cu. Where cells may be stuck, the bounds are drawn twice: first
    for the range of all bounds.
    """
    if not can_draw(cell):
        raise ParameterError(f"cell: {type(cell).__name__} draws its planes by sample()")
    numbers = _numbers(cell)
    if cell.corrupt_devices_prob > 0:
        plain = numbers.copy()
        plain[[9, 14]] = 0  # nothing stuck yet, no perfect bias yet
        bounds = _drawn("shared_planes", 4, plain, stream, shape, device)
        reach = np.float32(cell.corrupt_devices_range)
        lowest, highest = (np.float32(b) for b in (bounds[0].min().item(), bounds[1].max().item()))
        low = max(lowest, -reach)
        numbers[10], numbers[11] = low, min(highest, reach) - low
    n_plane, with_point = len(cell.PLANES), cell.SAMPLER in _WITH_POINT
    planes = _drawn(cell.SAMPLER, n_plane + with_point, numbers, stream, shape, device)
    point = planes[n_plane] if getattr(cell, "subtract_symmetry_point", False) else None
    return planes[:n_plane], point


def draw_cells(
    cell: Cell, stream: Stream, shape: tuple[int, int], device: Device
) -> tuple[Array | None, dict[str, Array]]:
    """Draw all per-cell arrays of a tile: by a kernel where it runs kernels, else by NumPy.

    Parameters
    ----------
    cell : Cell
    stream : Stream
    shape : tuple of int, (n_out, n_in)
    device : Device

    Returns
    -------
    planes : array, shape (n_plane, n_out, n_in), float32, or None
        None for a cell that is not pulsed.
    slow : dict of str to array, shape (n_out, n_in), float32
        What the slow processes need. All are on the device.
    """
    kernels = device.kind != "cpu" or _device.runs_kernels(np)
    if not (isinstance(cell, PulsedCell) and kernels and can_draw(cell)):
        host = cell.sample(stream, shape)
        planes = None
        if isinstance(cell, PulsedCell):
            stacked = np.stack([host.pop(name).astype(np.float32) for name in cell.PLANES])
            planes = _device.to_device(stacked, device)
        return planes, {name: _device.to_device(array, device) for name, array in host.items()}
    planes, point = cell_planes(cell, stream, shape, device)
    host = cell.sample_slow(stream, shape)
    slow = {name: _device.to_device(array, device) for name, array in host.items()}
    if point is not None:
        slow["reset_bias"] = slow["reset_bias"] + point if "reset_bias" in slow else point.copy()
    return planes, slow


def _numbers(cell: PulsedCell) -> np.ndarray:
    q = np.zeros(_N_NUMBER, np.float32)
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
    q[9] = cell.corrupt_devices_prob
    q[12:15] = cell.dw_min_dtod_log_normal, cell.enforce_consistency, cell.perfect_bias
    own = cell.own_numbers()
    q[_OWN : _OWN + len(own)] = own
    return q


def _drawn(
    sampler: str,
    n_plane: int,
    numbers: np.ndarray,
    stream: Stream,
    shape: tuple[int, int],
    device: Device,
) -> Array:
    n_out, n_in = shape
    planes = _device.empty((n_plane, n_out, n_in), np.float32, device)
    if _device.runs_kernels(_device.namespace(planes)):
        _CELL_PLANES.launch(
            (-(-n_out * n_in // _BLOCK),),
            (_BLOCK,),
            (n_out, n_in, _device.to_device(numbers, device), planes, *stream.words),
            macros={"PLANES_OF": sampler, "N_OUT": n_plane},
        )
    else:
        mirror = import_module("rpukit.analog._mirror.planes").cell_planes
        given = (_SAMPLERS.index(sampler), numbers, planes, *stream.words)
        run_rows(mirror, n_out, *given, grain=work_grain(40 * n_in))
    return planes
