"""Cell models: the parameters of the devices at the cross-points of a tile.

A cell is a frozen dataclass. Its class defines three things: its parameters, how a tile's per-cell
arrays are drawn from them
(device-to-device variation, plain NumPy below), and which step function moves a weight
(``device_steps.cuh`` and ``_steps.py``). A new pulsed model is one class here and one function
there.

Source of the models: Rasch et al., "A flexible and fast PyTorch toolkit for simulating training
and inference on analog crossbar arrays", AICAS 2021.
"""

from rpukit.analog.cells.base import Cell, Ideal
from rpukit.analog.cells.constant_step import ConstantStep
from rpukit.analog.cells.exp_step import ExpStep
from rpukit.analog.cells.linear_step import LinearStep, SoftBounds, SoftBoundsPmax
from rpukit.analog.cells.piecewise_step import PiecewiseStep
from rpukit.analog.cells.pow_step import PowStep, PowStepReference
from rpukit.analog.cells.pulsed import PulsedCell
from rpukit.analog.cells.soft_bounds_reference import SoftBoundsReference

__all__ = [
    "Cell",
    "ConstantStep",
    "ExpStep",
    "Ideal",
    "LinearStep",
    "PiecewiseStep",
    "PowStep",
    "PowStepReference",
    "PulsedCell",
    "SoftBounds",
    "SoftBoundsPmax",
    "SoftBoundsReference",
]
