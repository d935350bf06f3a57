"""A bench for devices: measured and simulated pulses, fits of models, states, retention."""

from rpukit.studies.ageing import Endurance, Retention, endurance, retention
from rpukit.studies.bench import fit_device
from rpukit.studies.device_fit import DeviceFit, Overlay, Ranked, load_fit
from rpukit.studies.measured import ConductanceMap, PulseData
from rpukit.studies.population import Estimate
from rpukit.studies.pulses import (
    PulseResponse,
    StepStatistics,
    count_states,
    pulse_response,
    step_statistics,
    symmetric_point,
)
from rpukit.studies.reading import example_names, example_pulses, read_pulses

__all__ = [
    "ConductanceMap",
    "DeviceFit",
    "Endurance",
    "Estimate",
    "Overlay",
    "PulseData",
    "PulseResponse",
    "Ranked",
    "Retention",
    "StepStatistics",
    "count_states",
    "endurance",
    "example_names",
    "example_pulses",
    "fit_device",
    "load_fit",
    "pulse_response",
    "read_pulses",
    "retention",
    "step_statistics",
    "symmetric_point",
]
