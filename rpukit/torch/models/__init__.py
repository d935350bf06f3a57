"""Whole models: on hardware, over time, in files, with other settings, on several processes."""

from rpukit.torch.models.ageing import Ageing, over_time
from rpukit.torch.models.changing import change
from rpukit.torch.models.hardware import (
    analog_layers,
    calibrate,
    compensate,
    drift_to,
    program,
    unprogram,
)
from rpukit.torch.models.parallel import data_parallel
from rpukit.torch.models.saving import load_safetensors, save_safetensors

__all__ = [
    "Ageing",
    "analog_layers",
    "calibrate",
    "change",
    "compensate",
    "data_parallel",
    "drift_to",
    "load_safetensors",
    "over_time",
    "program",
    "save_safetensors",
    "unprogram",
]
