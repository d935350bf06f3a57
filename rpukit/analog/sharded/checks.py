"""Checks of the arguments of a sharded tile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rpukit import _device
from rpukit._device import Device
from rpukit.analog.cells import Cell
from rpukit.analog.cells.compound import CompoundCell, Reference, Vector
from rpukit.analog.parameters.checks import integer
from rpukit.analog.parameters.io import IOParameters, WeightNoise
from rpukit.analog.tile.face import typed
from rpukit.errors import ParameterError


def splittable(cell: Cell) -> Cell:
    """Return a cell that may be split; raise for others."""
    if isinstance(cell, CompoundCell) and not isinstance(cell, (Vector, Reference)):
        raise ParameterError(
            f"cell: {type(cell).__name__} reads its own cells while it learns, which needs one "
            "device: use AnalogTile, or a pulsed cell, Ideal, Vector or Reference"
        )
    return cell


def periphery(io: IOParameters | None, name: str) -> IOParameters:
    """Return a periphery whose sums can be made on several devices; raise for others."""
    found: IOParameters = typed(io or IOParameters(), IOParameters, name)
    if not found.exact and not found.ideal_wires:
        raise ParameterError(f"{name}: IR drop and other effects of wires need AnalogTile")
    if not found.exact and found.w_noise > 0 and found.w_noise_type is not WeightNoise.NONE:
        raise ParameterError(f"{name}: got w_noise={found.w_noise}, which needs AnalogTile")
    return found


def places_of(devices: Sequence[str | Device]) -> list[Device]:
    """Return the devices of blocks; the CPU may be named more than once."""
    if isinstance(devices, (str, Device)) or not devices:
        raise ParameterError(f'devices: got {devices!r}, need several, as ("gpu:0", "gpu:1")')
    places = [_device.parse_device(device) for device in devices]
    if len({place.kind for place in places}) > 1:
        raise ParameterError(f"devices: got {list(map(str, places))}, need GPUs only, or the CPU")
    gpus = [place for place in places if place.kind == "gpu"]
    if len(set(gpus)) < len(gpus):
        raise ParameterError(f"devices: got {list(map(str, places))}, need different GPUs")
    return places


def edges_of(n_out: int, n_device: int, cuts: Sequence[int] | None) -> list[int]:
    """Return the first row of each block and the number of rows."""
    if n_device > n_out:
        raise ParameterError(f"devices: got {n_device} for {n_out} rows, need a row for each")
    if cuts is None:
        return [n_out * i // n_device for i in range(n_device + 1)]
    inner = [integer(cut, "cuts", low=1, what="first rows") for cut in cuts]
    edges = [0, *inner, n_out]
    if len(edges) != n_device + 1 or any(a >= b for a, b in pairwise(edges)):
        raise ParameterError(
            f"cuts: got {inner} for {n_device} devices and {n_out} rows, need "
            f"{n_device - 1} ascending first rows between 1 and {n_out - 1}"
        )
    return edges
