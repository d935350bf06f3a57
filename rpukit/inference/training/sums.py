"""Largest value, sum and deviation of a matrix, in a fixed order; clipping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.gemm import det_gemm
from rpukit.inference.training.ops import Modification, modify_weights
from rpukit.random import Stream

Array = Any
_CLIP = 8


def largest_of(weight: Array) -> Array:
    """Largest absolute value, as an array of one element on the device of the matrix."""
    return _device.namespace(weight).maximum(weight.max(), -weight.min()).reshape(1)


def total(matrix: Array) -> float:
    """Sum in float64, down the columns by chains, then along the row; synchronises."""
    if matrix.size == 0:
        return 0.0
    xp = _device.namespace(matrix)
    wide = matrix.astype(np.float64)
    rows, columns = (xp.ones((1, wide.shape[0])), xp.ones((wide.shape[1], 1)))
    return float(_device.to_numpy(det_gemm(det_gemm(rows, wide), columns))[0, 0])


def deviation(matrix: Array) -> float:
    """Sample standard deviation, the sums as in `total`."""
    mean = total(matrix) / matrix.size
    return math.sqrt(total((matrix.astype(np.float64) - mean) ** 2) / max(matrix.size - 1, 1))


def clip(weight: Array, bound: float, out: Array, *, status: Array) -> Array:
    """Clip to plus or minus a bound; a bound of 0 changes nothing."""
    place = _device.device_of(weight)
    return modify_weights(
        weight,
        _device.to_device(np.full(1, bound, np.float32), place),
        Modification(_CLIP),
        stream=Stream(0, 0),
        event=0,
        status=status,
        out=out,
    )
