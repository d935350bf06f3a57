"""Largest value, sum and deviation of a matrix, in a fixed order; clipping."""

from __future__ import annotations

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
    return float(_device.to_numpy(total_there(matrix))[0])


def total_there(matrix: Array) -> Array:
    """Sum as of `total`, as an array of one element on the device of the matrix."""
    xp = _device.namespace(matrix)
    if matrix.size == 0:
        return xp.zeros(1)
    wide = matrix.astype(np.float64)
    rows, columns = (xp.ones((1, wide.shape[0])), xp.ones((wide.shape[1], 1)))
    return det_gemm(det_gemm(rows, wide), columns).reshape(1)


def deviation_there(matrix: Array) -> Array:
    """Sample standard deviation, the sums as in `total`, as an array of one element."""
    xp, mean = _device.namespace(matrix), total_there(matrix) / matrix.size
    squares = (matrix.astype(np.float64) - mean) ** 2
    return xp.sqrt(total_there(squares) / max(matrix.size - 1, 1))


def clip(weight: Array, bound: float | Array, out: Array, *, status: Array) -> Array:
    """Clip to plus or minus a bound; a bound of 0 changes nothing.

    An array of one element, on the device of the weights, is read there.
    """
    if isinstance(bound, (int, float)):
        bound = _device.namespace(weight).full(1, bound, np.float32)
    return modify_weights(
        weight,
        bound.astype(np.float32, copy=False),
        Modification(_CLIP),
        stream=Stream(0, 0),
        event=0,
        status=status,
        out=out,
    )
