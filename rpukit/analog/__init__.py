"""Analog tiles: crossbar arrays that multiply in place and learn by coincidences of pulses."""

from rpukit.analog import presets
from rpukit.analog._guard import check
from rpukit.analog.cells import (
    Cell,
    ConstantStep,
    ExpStep,
    Ideal,
    LinearStep,
    PiecewiseStep,
    PowStep,
    PowStepReference,
    PulsedCell,
    SoftBounds,
    SoftBoundsPmax,
    SoftBoundsReference,
)
from rpukit.analog.chopped_cells import ChoppedTransfer, DynamicTransfer
from rpukit.analog.compound_cells import OneSided, Reference, UpdatePolicy, Vector
from rpukit.analog.drift_parameters import DriftParameters
from rpukit.analog.io_parameters import (
    BoundManagement,
    IOParameters,
    MVType,
    NoiseManagement,
    WeightNoise,
)
from rpukit.analog.mixed_precision_cell import MixedPrecision
from rpukit.analog.tile import AnalogTile
from rpukit.analog.transfer_cells import BufferedTransfer, Transfer
from rpukit.analog.update_parameters import PulseType, UpdateParameters
from rpukit.analog.user_steps import register_step

__all__ = [
    "AnalogTile",
    "BoundManagement",
    "BufferedTransfer",
    "Cell",
    "ChoppedTransfer",
    "ConstantStep",
    "DriftParameters",
    "DynamicTransfer",
    "ExpStep",
    "IOParameters",
    "Ideal",
    "LinearStep",
    "MVType",
    "MixedPrecision",
    "NoiseManagement",
    "OneSided",
    "PiecewiseStep",
    "PowStep",
    "PowStepReference",
    "PulseType",
    "PulsedCell",
    "Reference",
    "SoftBounds",
    "SoftBoundsPmax",
    "SoftBoundsReference",
    "Transfer",
    "UpdateParameters",
    "UpdatePolicy",
    "Vector",
    "WeightNoise",
    "check",
    "presets",
    "register_step",
]
