"""What each kind of cell makes of a tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rpukit.analog.arrays import compound as _compound
from rpukit.analog.arrays.base import Site, Unit
from rpukit.analog.arrays.mixed_precision import MixedPrecisionUnit
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells import Cell
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.analog.cells.compound import CompoundCell
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.cells.transfer import BufferedTransfer, Transfer
from rpukit.analog.transfer.array import TransferUnit

UNITS: dict[type, Callable[[Any, Site], Unit]] = {
    **_compound.UNITS,
    Transfer: TransferUnit,
    BufferedTransfer: TransferUnit,
    ChoppedTransfer: TransferUnit,
    DynamicTransfer: TransferUnit,
    MixedPrecision: lambda cell, site: MixedPrecisionUnit(
        cell, site, make_unit(cell.device, site.child(0))
    ),
}


def make_unit(cell: Cell, site: Site) -> Unit:
    """Build what a cell describes."""
    if isinstance(cell, CompoundCell):
        return UNITS[type(cell)](cell, site)
    return DeviceArray(cell, site)


def leaves(unit: Unit) -> Iterator[DeviceArray]:
    """Give the device arrays of a unit, in order."""
    if isinstance(unit, DeviceArray):
        yield unit
    elif isinstance(unit, _compound.CompoundUnit):
        for child in unit.children:
            yield from leaves(child)
