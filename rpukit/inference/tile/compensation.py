"""Drift compensation: factors of the outputs that correct the decay of conductances."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.parameters.io import IOParameters
from rpukit.gemm import det_gemm

__all__ = ["DriftCompensation"]

Array = Any
_LEAST = 1e-4  # lower bound on a readout
PERFECT = IOParameters(is_perfect=True)


class DriftCompensation(str, Enum):
    """Kind of drift compensation: one factor for all outputs, or one for each output.

    Attributes
    ----------
    NONE
        No compensation.
    GLOBAL
        One factor: the mean absolute response to unit inputs right after programming over that
        now.
    GLOBAL_EXACT
        The same, with the response after programming measured without periphery.
    PER_COLUMN
        A factor for each output.
    """

    NONE = "NONE"
    GLOBAL = "GLOBAL"
    GLOBAL_EXACT = "GLOBAL_EXACT"
    PER_COLUMN = "PER_COLUMN"


def readout(
    respond: Callable[[Array], Array],
    shape: tuple[int, int],
    kind: DriftCompensation,
    device: _device.Device,
) -> Array:
    """Measure the mean absolute response to unit inputs.

    Parameters
    ----------
    respond : callable
        Product of inputs (n_in, n_in) and the weights.
    shape : tuple of int, (n_out, n_in)
    kind : DriftCompensation
    device : Device

    Returns
    -------
    array, shape (n_out,) or (1,), float64

    Notes
    -----
    Sums in float64: down the inputs by chains, then along the outputs.
    """
    n_out, n_in = shape
    xp = _device.namespace(_device.empty((0,), np.float32, device))
    y = respond(xp.eye(n_in, dtype=np.float32))
    means = det_gemm(xp.ones((1, n_in)), abs(y).astype(np.float64)) / n_in
    if kind is not DriftCompensation.PER_COLUMN:
        means = det_gemm(means, xp.ones((n_out, 1))) / n_out
    return xp.maximum(means.reshape(-1), _LEAST)
