"""Drift compensation: factors of the outputs that correct the decay of conductances."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.product.ops import ForwardState, tile_forward
from rpukit.gemm import det_gemm
from rpukit.random import Stream

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
    weight: Array,
    io: IOParameters,
    kind: DriftCompensation,
    *,
    stream: Stream,
    draws: Stream,
    status: Array,
    call: int,
) -> Array:
    """Measure the mean absolute response to unit inputs.

    Parameters
    ----------
    weight : array, shape (n_out, n_in), float32
    io : IOParameters
    kind : DriftCompensation
    stream : Stream
        Stream of the periphery's noise that is drawn once.
    draws : Stream
        Stream of the noise of this measurement.
    status : array, shape (1,), int32
    call : int

    Returns
    -------
    array, shape (n_out,) or (1,), float64

    Notes
    -----
    Sums in float64: down the inputs by chains, then along the outputs.
    """
    place = _device.device_of(weight)
    xp = _device.namespace(weight)
    n_out, n_in = weight.shape
    y = tile_forward(
        weight,
        xp.eye(n_in, dtype=np.float32),
        io,
        stream=draws,
        first_sample=0,
        state=ForwardState(io, n_out, stream, place),
        status=status,
        call=call,
    )
    means = det_gemm(xp.ones((1, n_in)), abs(y).astype(np.float64)) / n_in
    if kind is not DriftCompensation.PER_COLUMN:
        means = det_gemm(means, xp.ones((n_out, 1))) / n_out
    return xp.maximum(means.reshape(-1), _LEAST)
