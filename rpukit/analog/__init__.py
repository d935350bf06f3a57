"""Analog tiles: crossbar arrays that multiply in place and learn by coincidences of pulses."""

from rpukit.analog import presets
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
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.analog.cells.compound import OneSided, Reference, UpdatePolicy, Vector
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.cells.transfer import BufferedTransfer, Transfer
from rpukit.analog.cells.user_steps import register_step
from rpukit.analog.deferred_errors import check
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.analog.parameters.io import (
    BoundManagement,
    IOParameters,
    MVType,
    NoiseManagement,
    WeightNoise,
)
from rpukit.analog.parameters.update import PulseType, UpdateParameters
from rpukit.analog.sharded.tile import ShardedTile
from rpukit.analog.tile.tile import AnalogTile

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
    "ShardedTile",
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
