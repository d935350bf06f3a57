"""Analog tiles in graphs: parameters of the periphery and the cells, and clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog import AnalogTile, Ideal, IOParameters, NoiseManagement, PulsedCell, PulseType
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.update.ops import train_numbers
from rpukit.errors import ParameterError
from rpukit.tiled.ops.analog import SLOTS

Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TileRecord:
    """A tile in a graph.

    Attributes
    ----------
    weight : str
    clocks : dict of str to str
        Tensor of each clock: forward, backward, update.
    ways : dict of str to (attributes, extra inputs)
        Of the forward and the backward product.
    learn : attributes
        Of the update.
    cells : tuple of str
        Planes and numbers of the cells; empty for ideal cells.
    """

    weight: str
    clocks: dict[str, str]
    ways: dict[str, tuple[Attributes, tuple[str, ...]]]
    learn: Attributes
    cells: tuple[str, ...]


def check_tile(tile: AnalogTile) -> None:
    """Check that a tile has only features that graphs support.

    Raises
    ------
    ParameterError
    """
    if not isinstance(tile, AnalogTile) or tile.dtype != np.float32:
        raise ParameterError(f"tile: got {tile!r}, need an AnalogTile of float32")
    for way, io in (("forward", tile.forward_parameters), ("backward", tile.backward_parameters)):
        running = io.noise_management is NoiseManagement.AVERAGE_ABS_MAX
        if not io.exact and (not io.ideal_wires or io.w_noise > 0 or running):
            raise ParameterError(
                f"{way}: read noise, wires, passes by sign and running averages are not supported "
                "in graphs; need a periphery without them"
            )
    cell, kind = tile.cell, tile.update_parameters.pulse_type
    single = isinstance(cell, Ideal) or (isinstance(cell, PulsedCell) and cell.write_noise == 0)
    exact = kind in (PulseType.NONE, PulseType.NONE_WITH_DEVICE)
    if not single or (exact and not isinstance(cell, Ideal)):
        raise ParameterError(
            f"cell: got {cell!r}, need single devices without write noise that learn by pulses"
        )


def periphery(
    tile: AnalogTile, io: IOParameters, transposed: bool
) -> tuple[Attributes, np.ndarray | None]:
    """Return the attributes of a product, and the deviation of each line where lines differ."""
    n_out = tile.shape[1 if transposed else 0]
    state = ForwardState(io, n_out, tile.stream, _device.CPU, transposed=transposed)
    manner = state.manner
    attributes = {
        "transB": int(not transposed),
        "perfect": int(manner.perfect),
        "io": tuple(map(float, state.io)),
        "rhos": tuple(map(float, state.rhos)),
        "mode": int(manner.mode),
        "worst": int(manner.worst),
        "threshold": float(manner.threshold),
        "step": float(manner.step),
        "res": float(manner.max_bm_res),
        "bound": float(manner.bound),
        "in_op": int(manner.ops[0]),
        "out_op": int(manner.ops[1]),
        "key": tuple(map(int, tile.stream.words)),
    }
    return attributes, state.line_noise


def learning(tile: AnalogTile, lr: float) -> tuple[Attributes, dict[str, np.ndarray]]:
    """Return the attributes of an update, and planes and numbers of the cells.

    Raises
    ------
    ParameterError
    """
    attributes: Attributes = {"lr": float(lr), "key": tuple(map(int, tile.stream.words))}
    cell = tile.cell
    if not isinstance(cell, PulsedCell):
        return attributes, {}
    parameters, numbers = tile.update_parameters, cell.globals().astype(np.float32)
    length, found = train_numbers(abs(lr), float(cell.granularity), parameters)
    names = ("granularity", "length", "unit_scale", "managed", "managed_length", "grad_scale")
    attributes |= dict(zip((*names, "x_res", "d_res", "rounding"), found[1:], strict=True))
    attributes |= {
        "words": 1 if parameters.coding else -(-length // SLOTS),
        "coding": parameters.coding,
        "flip": int(lr < 0),
        "step": cell.STEP,
        "has_run": int(cell.HAS_RUN),
        "n_plane": len(cell.PLANES),
        "n_global": max(8, numbers.size),
    }
    planes = np.stack([_device.to_numpy(tile.cells[name]) for name in cell.PLANES])
    return attributes, {"planes": planes, "numbers": numbers}
