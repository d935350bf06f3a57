"""Names of aihwkit's classes and settings beside ours: what `from_dict` reads them with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpukit.analog import cells
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.analog.cells.compound import OneSided, Reference, Vector
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.cells.transfer import BufferedTransfer, Transfer
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.inference.conductance import converters
from rpukit.inference.noise import devices as measured
from rpukit.inference.noise import phase_change
from rpukit.inference.training.limits import InputRange, WeightClip, WeightRemap
from rpukit.inference.training.modifiers import WeightModifier

__all__ = ["ANY", "CLASSES", "CONFIGS", "SLOTS", "Entry"]

ANY = object()  # a setting without an effect on results: any value is taken


@dataclass(frozen=True, slots=True)
class Entry:
    """How one class of aihwkit is read.

    Parameters
    ----------
    make : type
        Our class; its fields of the same names are taken over.
    renamed : mapping
        From aihwkit's name to our field.
    fixed : mapping
        Settings that we do not have, and the value at which they have no effect.
    """

    make: Any
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)


_DEVICE = {"construction_seed": ANY, "count_pulses": ANY}
_CELL = {"construction_seed": ANY}
_PARTS = {"unit_cell_devices": "devices"}
_PCM = {"prog_coeff_g_max_reference": "prog_coeff_g_max", "g_converter": "converter"}
_MODIFIER = {
    "pcm_t_inference": "t",
    "pcm_prob_at_reset": "p_low",
    "pcm_prob_at_gmax": "p_high",
    "pcm_prob_at_random": "p_any",
}
_RANGE = {
    "learn_input_range": "learned",
    "init_value": "value",
    "init_from_data": "n_init",
    "init_std_alpha": "n_std",
    "input_min_percentage": "min_share",
    "output_min_percentage": "output_min_share",
}
_SINGLE = {
    "ConstantStepDevice": cells.ConstantStep,
    "LinearStepDevice": cells.LinearStep,
    "SoftBoundsDevice": cells.SoftBounds,
    "SoftBoundsPmaxDevice": cells.SoftBoundsPmax,
    "SoftBoundsReferenceDevice": cells.SoftBoundsReference,
    "ExpStepDevice": cells.ExpStep,
    "PowStepDevice": cells.PowStep,
    "PowStepReferenceDevice": cells.PowStepReference,
    "PiecewiseStepDevice": cells.PiecewiseStep,
}
_TRANSFER = {
    "TransferCompound": Transfer,
    "BufferedTransferCompound": BufferedTransfer,
    "ChoppedTransferCompound": ChoppedTransfer,
    "DynamicTransferCompound": DynamicTransfer,
}
_REFERENCE = {"update_policy": "SINGLE_FIXED", "first_update_idx": 0, "gamma_vec": [1.0, -1.0]}
_HERMES = [0.16603222, 4.71806468, -8.48101252, 4.68961419]

CLASSES: dict[str, Entry] = {
    "IOParameters": Entry(IOParameters),
    "BackwardIOParameters": Entry(IOParameters),
    "UpdateParameters": Entry(UpdateParameters, {}, {"d_sparsity": False}),
    "DriftParameter": Entry(DriftParameters),
    "SimpleDriftParameter": Entry(DriftParameters),
    "IdealDevice": Entry(cells.Ideal, {}, _DEVICE),
    "FloatingPointDevice": Entry(cells.Ideal, {}, _DEVICE),
    **{name: Entry(kind, {}, _DEVICE) for name, kind in _SINGLE.items()},
    "VectorUnitCell": Entry(Vector, _PARTS, _CELL),
    "ReferenceUnitCell": Entry(Reference, _PARTS, _CELL | _REFERENCE),
    **dict.fromkeys(
        ("OneSidedUnitCell", "DifferenceUnitCell"),
        Entry(OneSided, {"unit_cell_devices": "device"}, _CELL),
    ),
    **{name: Entry(kind, _PARTS, _CELL) for name, kind in _TRANSFER.items()},
    "MixedPrecisionCompound": Entry(MixedPrecision, {}, _CELL),
    "PCMLikeNoiseModel": Entry(phase_change.PCMLike, _PCM),
    "CustomDriftPCMLikeNoiseModel": Entry(
        phase_change.CustomDrift, _PCM | {"custom_drift_model": "drift"}
    ),
    "StateIndependentNoiseModel": Entry(
        phase_change.StateIndependent,
        {
            "prog_coeff": "prog_std",
            "drift_nu_mean": "nu_mean",
            "drift_nu_std": "nu_std",
            "g_converter": "converter",
        },
    ),
    "HermesNoiseModel": Entry(
        measured.Hermes,
        {"num_devices": "n_device", "g_converter": "converter"},
        {"prog_coeff": _HERMES, "prog_coeff_g_max_reference": 20.7},
    ),
    "ReRamWan2022NoiseModel": Entry(
        measured.ReRamWan,
        {"g_converter": "converter"},
        {"coeff_dic": ANY, "coeff_g_max_reference": 40.0, "prog_coeff_g_max_reference": 40.0},
    ),
    "ReRamCMONoiseModel": Entry(
        measured.ReRamCMO, {"tol": "acceptance", "g_converter": "converter"}, {}
    ),
    "SinglePairConductanceConverter": Entry(
        converters.SinglePair, {}, {"scale_ratio": ANY, "g_max_reference": ANY}
    ),
    "SingleDeviceConductanceConverter": Entry(converters.SingleDevice, {}, {"scale_ratio": ANY}),
    "NPairConductanceConverter": Entry(
        converters.NPairs, {"f_lst": "factors"}, {"scale_ratio": ANY}
    ),
    "DualPairConductanceConverter": Entry(
        converters.NPairs, {"f_lst": "factors"}, {"scale_ratio": ANY}
    ),
    "WeightModifierParameter": Entry(
        WeightModifier,
        _MODIFIER,
        {
            "enable_during_test": False,
            "copy_last_column": False,
            "pcm_zero_thres": 0.0,
            "pcm_t0": 20.0,
        },
    ),
    "WeightClipParameter": Entry(WeightClip),
    "WeightRemapParameter": Entry(
        WeightRemap, {"remapped_wmax": "w_max"}, {"max_scale_range": 0.0, "max_scale_ref": ANY}
    ),
    "InputRangeParameter": Entry(
        InputRange,
        _RANGE,
        {
            "enable": ANY,
            "calibration_info": ANY,
        },
    ),
}

# Classes of whole configurations: whether their tiles are made for inference.
CONFIGS: dict[str, bool] = {
    "FloatingPointRPUConfig": False,
    "SingleRPUConfig": False,
    "UnitCellRPUConfig": False,
    "DigitalRankUpdateRPUConfig": False,
    "InferenceRPUConfig": True,
    "TorchInferenceRPUConfig": True,
}

# Class of a part whose dictionary does not name one.
SLOTS: dict[str, str] = {
    **dict.fromkeys(("forward", "backward"), "IOParameters"),
    **dict.fromkeys(("transfer_forward", "refresh_forward"), "IOParameters"),
    **dict.fromkeys(("update", "transfer_update", "refresh_update"), "UpdateParameters"),
    "drift": "DriftParameter",
    "modifier": "WeightModifierParameter",
    "clip": "WeightClipParameter",
    "remap": "WeightRemapParameter",
    "input_range": "InputRangeParameter",
    "noise_model": "PCMLikeNoiseModel",
    "g_converter": "SinglePairConductanceConverter",
}
