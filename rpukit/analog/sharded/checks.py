"""Checks of the arguments of a sharded tile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rpukit import _device
from rpukit._checks import instance, integer, one_of, shown
from rpukit._device import Device
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.analog.cells.compound import CompoundCell, Reference, Vector
from rpukit.analog.cells.transfer import Transfer
from rpukit.analog.parameters.io import IOParameters, WeightNoise
from rpukit.analog.sharded.products import Layout
from rpukit.errors import ParameterError

SPLITS = ("outputs", "inputs")
UNITS = (1, 32)  # columns that share words of pulse trains are on one device


def splittable(cell: Cell, axis: int = 0) -> Cell:
    """Return a cell that may be split by rows (axis 0) or columns; raise for others."""
    if isinstance(cell, Transfer) and axis:
        raise ParameterError(
            f"cell: {type(cell).__name__} reads columns of cells one after the other; it is split "
            'by rows: use split="outputs"'
        )
    if isinstance(cell, Transfer):
        fault = _fault_of(cell)
        if fault:
            raise ParameterError(f"cell: {fault}, which AnalogTile can do and a split tile cannot")
    elif isinstance(cell, CompoundCell) and not isinstance(cell, (Vector, Reference)):
        raise ParameterError(
            f"cell: {type(cell).__name__} reads its own cells while it learns, which needs one "
            "device: use AnalogTile, or a pulsed cell, Ideal, Vector, Reference or Transfer"
        )
    return cell


def _fault_of(cell: Transfer) -> str:
    """Say what of a transfer needs more than the rows of one device; empty if nothing does."""
    io, update = cell.transfer_forward, cell.transfer_update
    if not all(isinstance(device, PulsedCell) for device in cell.devices):
        return "transfers of compound devices"
    if not cell.transfer_columns:
        return "transfer_columns=False"
    if update.managed or update.coding or update.exact:
        return "transfer_update with management or other than stochastic pulses"
    if getattr(cell, "out_chop_prob", 0.0) > 0:
        return "out_chop_prob above 0"
    if not io.exact and (not io.ideal_wires or io.inp_noise > 0 or io.out_noise_std > 0):
        return "transfer_forward with effects of wires, inp_noise or out_noise_std"
    return ""


def periphery(io: IOParameters | None, name: str) -> IOParameters:
    """Return a periphery whose sums can be made on several devices; raise for others."""
    found: IOParameters = instance(io, IOParameters, name, IOParameters())
    if not found.exact and not found.ideal_wires:
        raise ParameterError(f"{name}: IR drop and other effects of wires need AnalogTile")
    if not found.exact and found.w_noise > 0 and found.w_noise_type is not WeightNoise.NONE:
        raise ParameterError(f"{name}: got w_noise={found.w_noise}, which needs AnalogTile")
    return found


def places_of(devices: Sequence[str | Device]) -> list[Device]:
    """Return the devices of blocks; the CPU may be named more than once."""
    several = isinstance(devices, Sequence) and not isinstance(devices, str)
    if not several or not len(devices):
        raise ParameterError(f'devices: got {devices!r}, need several, as ("gpu:0", "gpu:1")')
    places = [_device.parse_device(device) for device in devices]
    if len({place.kind for place in places}) > 1:
        raise ParameterError(f"devices: got {list(map(str, places))}, need GPUs only, or the CPU")
    gpus = [place for place in places if place.kind == "gpu"]
    if len(set(gpus)) < len(gpus):
        raise ParameterError(f"devices: got {list(map(str, places))}, need different GPUs")
    return places


def layout_of(
    shape: tuple[int, int],
    devices: Sequence[str | Device],
    split: str,
    cuts: Sequence[int] | None,
    units: tuple[int, int],
) -> Layout:
    """Return where the blocks of a matrix are; rows and columns are cut at multiples of units.

    Raises
    ------
    ParameterError, DeviceError
    """
    axis = SPLITS.index(one_of(split, "split", SPLITS))
    places, unit = places_of(devices), units[axis]
    edges = edges_of(shape[axis], len(places), cuts, ("rows", "columns")[axis], unit)
    return Layout(shape, tuple(places), tuple(edges), axis)


def edges_of(
    n: int, n_device: int, cuts: Sequence[int] | None, what: str = "rows", unit: int = 1
) -> list[int]:
    """Return the first row (or column) of each block, multiples of a unit, and their number."""
    if n_device > -(-n // unit):
        each = f"{unit} {what}" if unit > 1 else f"a {what[:-1]}"
        raise ParameterError(f"devices: got {n_device} for {n} {what}, need {each} for each")
    if cuts is None:
        n_unit = -(-n // unit)
        return [*(n_unit * i // n_device * unit for i in range(n_device)), n]
    if not isinstance(cuts, (Sequence, np.ndarray)) or getattr(cuts, "ndim", 1) != 1:
        raise ParameterError(
            f"cuts: got {shown(cuts)}, need {n_device - 1} first {what} of blocks"
        )
    inner = [integer(cut, "cuts", low=1, what=f"first {what}") for cut in cuts]
    edges = [0, *inner, n]
    if len(edges) != n_device + 1 or any(a >= b for a, b in pairwise(edges)):
        raise ParameterError(
            f"cuts: got {inner} for {n_device} devices and {n} {what}, need "
            f"{n_device - 1} ascending first {what} between 1 and {n - 1}"
        )
    wrong = [cut for cut in inner if cut % unit]
    if wrong:
        near = wrong[0] // unit * unit
        raise ParameterError(
            f"cuts: {what} are cut at multiples of {unit}: got a cut at {wrong[0]}, allowed "
            f"nearby are {near} and {near + unit}"
        )
    return edges
