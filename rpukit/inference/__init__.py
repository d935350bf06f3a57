"""Inference on analog hardware: programming, drift, compensation, hardware-aware training.

Weights are written once as conductances, with errors; the conductances drift, and every reading
has noise. All draws are identified by logical coordinates. A tile that is programmed twice with
one seed has the same bits on CPU and GPU, at any time, in any order of the requested times.
"""

from rpukit.inference.conductance.converters import (
    Converter,
    CustomPair,
    NPairs,
    SingleDevice,
    SinglePair,
)
from rpukit.inference.conductance.curves import ClippedLog, Curve, Polynomial, PowerLaw, Table
from rpukit.inference.grid.array import TileArray
from rpukit.inference.grid.cell import InferenceCell
from rpukit.inference.grid.mapping import MappedMatrix, map_matrix
from rpukit.inference.grid.scale import OutputScale
from rpukit.inference.noise.devices import Hermes, ReRamCMO, ReRamWan
from rpukit.inference.noise.measured import Measured, fit_model
from rpukit.inference.noise.model import NoiseModel, Programmed, Verbatim
from rpukit.inference.noise.phase_change import CustomDrift, PCMLike, StateIndependent
from rpukit.inference.sharded.tile import ShardedInferenceTile
from rpukit.inference.tile.compensation import DriftCompensation
from rpukit.inference.tile.tile import InferenceTile
from rpukit.inference.tile.write_verify import WriteVerify, write_verify
from rpukit.inference.training.limits import (
    ClipType,
    InputRange,
    RemapType,
    WeightClip,
    WeightRemap,
)
from rpukit.inference.training.modifiers import ModifierType, WeightModifier

__all__ = [
    "ClipType",
    "ClippedLog",
    "Converter",
    "Curve",
    "CustomDrift",
    "CustomPair",
    "DriftCompensation",
    "Hermes",
    "InferenceCell",
    "InferenceTile",
    "InputRange",
    "MappedMatrix",
    "Measured",
    "ModifierType",
    "NPairs",
    "NoiseModel",
    "OutputScale",
    "PCMLike",
    "Polynomial",
    "PowerLaw",
    "Programmed",
    "ReRamCMO",
    "ReRamWan",
    "RemapType",
    "ShardedInferenceTile",
    "SingleDevice",
    "SinglePair",
    "StateIndependent",
    "Table",
    "TileArray",
    "Verbatim",
    "WeightClip",
    "WeightModifier",
    "WeightRemap",
    "WriteVerify",
    "fit_model",
    "map_matrix",
    "write_verify",
]
