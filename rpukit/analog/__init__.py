"""Analog tiles: crossbar arrays that multiply in place and learn by coincidences of pulses."""

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
from rpukit.analog.compound_cells import OneSided, Reference, UpdatePolicy, Vector
from rpukit.analog.drift_parameters import DriftParameters
from rpukit.analog.io_parameters import BoundManagement, IOParameters, NoiseManagement, WeightNoise
from rpukit.analog.tile import AnalogTile
from rpukit.analog.update_parameters import PulseType, UpdateParameters

__all__ = [
    "AnalogTile",
    "BoundManagement",
    "Cell",
    "ConstantStep",
    "DriftParameters",
    "ExpStep",
    "IOParameters",
    "Ideal",
    "LinearStep",
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
    "UpdateParameters",
    "UpdatePolicy",
    "Vector",
    "WeightNoise",
    "check",
]
