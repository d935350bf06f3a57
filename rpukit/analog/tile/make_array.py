"""Array class for each cell type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rpukit.analog.arrays import compound as _compound
from rpukit.analog.arrays.base import ArrayContext, WeightArray
from rpukit.analog.arrays.mixed_precision import MixedPrecisionArray
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells import Cell
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.analog.cells.compound import CompoundCell
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.cells.transfer import BufferedTransfer, Transfer
from rpukit.analog.transfer.array import TransferArray

ARRAY_CLASSES: dict[type, Callable[[Any, ArrayContext], WeightArray]] = {
    **_compound.ARRAY_CLASSES,
    Transfer: TransferArray,
    BufferedTransfer: TransferArray,
    ChoppedTransfer: TransferArray,
    DynamicTransfer: TransferArray,
    MixedPrecision: lambda cell, context: MixedPrecisionArray(
        cell, context, make_array(cell.device, context.child(0))
    ),
}


def make_array(cell: Cell, context: ArrayContext) -> WeightArray:
    """Build the array that a cell describes."""
    if isinstance(cell, CompoundCell):
        return ARRAY_CLASSES[type(cell)](cell, context)
    return DeviceArray(cell, context)


def leaves(array: WeightArray) -> Iterator[DeviceArray]:
    """Yield the arrays of single devices within an array, in order."""
    if isinstance(array, DeviceArray):
        yield array
    elif isinstance(array, _compound.CompoundArray):
        for child in array.children:
            yield from leaves(child)
