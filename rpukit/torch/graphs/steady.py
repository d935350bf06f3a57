"""Whether the launches of a training step depend on its number in their arguments alone.

Clocks then tell the arguments of all later steps. This is known from the settings of the cells,
not from what some steps have launched: a transfer may fall due once in a thousand steps.
"""

from __future__ import annotations

from typing import Any

from rpukit.analog.arrays.compound import OneSidedArray, ReferenceArray, VectorArray
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells.chopped_transfer import DynamicTransfer
from rpukit.analog.cells.compound import UpdatePolicy
from rpukit.analog.transfer.array import TransferArray
from rpukit.inference.training.modifiers import ModifierType

__all__ = ["unsteady"]

_STEADY = (UpdatePolicy.ALL, UpdatePolicy.SINGLE_FIXED)


def unsteady(tile: Any, n: int) -> str:
    """Say why the launches of steps differ in more than clocks.

    Parameters
    ----------
    tile : AnalogTile or InferenceTile
    n : int
        Samples of a step.

    Returns
    -------
    str
        Empty if they do not.
    """
    unit = getattr(tile, "_unit", None)
    return _of_inference(tile) if unit is None else _of_array(unit, n)


def _of_inference(tile: Any) -> str:
    if tile.input_range is not None and tile.input_range.learned:
        return "a learned input range waits for the GPU in each step"
    if tile.modifier.is_on and tile.modifier.per_batch_sample:
        return "weights that are modified for each sample are launched one by one"
    if tile.modifier.type is ModifierType.NOISE_MODEL:
        return "a modifier by the noise model draws on the host"
    return ""


def _of_array(unit: Any, n: int) -> str:
    if isinstance(unit, DeviceArray):
        return ""
    if isinstance(unit, TransferArray):
        return _of_transfer(unit, n)
    children = (_of_array(child, n) for child in unit.children)
    found = next(filter(None, children), "")
    if isinstance(unit, VectorArray) and unit.cell.update_policy not in _STEADY:
        return "the devices of a Vector take turns"
    if isinstance(unit, OneSidedArray) and unit.cell.refresh_every:
        return "refreshes of a OneSided fall due in some steps"
    known = (VectorArray, OneSidedArray, ReferenceArray)
    return found or ("" if isinstance(unit, known) else f"{type(unit.cell).__name__} is not known")


def _of_transfer(unit: TransferArray, n: int) -> str:
    cell = unit.cell
    random = cell.random_selection or cell.with_reset_prob > 0
    regular = isinstance(cell, DynamicTransfer) or (
        getattr(cell, "in_chop_prob", 0.0) > 0 and not cell.in_chop_random
    )
    if random or getattr(cell, "out_chop_prob", 0.0) > 0:
        return "the host draws slices, resets or the signs of lines"
    if regular:
        return "choppers flip, or factors change, after some passes over the slices"
    if unit._apart or any(unit._nested) or cell.transfer_update.implicit:
        return "transfers are read by products, or their cells are nested"
    periods = [rates.periods for (_, size), rates in unit._known.items() if size == n]
    if not periods or any(periods[-1][1:]):
        return "slow devices are transferred in some steps"
    if periods[-1][0] and n % periods[-1][0]:
        return f"a transfer each {periods[-1][0]} samples does not divide the {n} of a step"
    return ""
