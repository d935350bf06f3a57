"""Characterisation of devices: how cells respond to pulses."""

from rpukit.studies.pulses import (
    PulseResponse,
    StepStatistics,
    count_states,
    pulse_response,
    step_statistics,
    symmetric_point,
)

__all__ = [
    "PulseResponse",
    "StepStatistics",
    "count_states",
    "pulse_response",
    "step_statistics",
    "symmetric_point",
]
