"""Checks of data: what a table or a density reads of a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits._layout import Layout
from rpukit.circuits.leaves import POISSON
from rpukit.errors import DTypeError, NonFiniteError, ParameterError, ShapeError

__all__ = ["checked_weights", "encoded", "taken"]

Array = Any


def encoded(
    layout: Layout, dtype: Any, x: Any, missing: Any, device: _device.Device
) -> tuple[Array, Array]:
    """Turn data into codes (-1 missing) for tables and numbers (NaN missing) for the rest."""
    array, xp = taken(x, device, "x"), _device.namespace_of(device)
    if array.dtype.kind not in "iubf":
        raise DTypeError(f"x: got dtype {array.dtype}, need integers or floats")
    if array.ndim == 1 and layout.n_variable > 1:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != layout.n_variable or not len(array):
        raise ShapeError(
            f"x: got shape {np.shape(x)}, need (n_sample from 1, {layout.n_variable})"
        )
    unknown = xp.isnan(array) if array.dtype.kind == "f" else xp.zeros(array.shape, bool)
    if array.dtype.kind == "f" and xp.isinf(array).any():
        raise NonFiniteError("x holds infinity")
    if missing is not None:
        mask = taken(missing, device, "missing")
        if mask.dtype != bool or mask.shape not in (array.shape, array.shape[1:]):
            raise ShapeError(f"missing: need bool of shape {array.shape} or {array.shape[1:]}")
        unknown = unknown | mask
    codes = xp.full(array.shape, -1, np.int32)
    numbers = xp.full(array.shape, np.nan, dtype)
    for var, leaf in {(n.var, n.leaf) for n in layout.inputs}:
        column, known = array[:, var], ~unknown[:, var]
        if leaf.TABLE:
            codes[known, var] = _coded(column[known], leaf.support, var)
        else:
            if leaf.KIND == POISSON and (column[known] < 0).any():
                raise ParameterError(f"x: variable {var} counts, got a negative number")
            numbers[known, var] = column[known]
    return codes, numbers


def taken(x: Any, device: _device.Device, name: str) -> Array:
    """Take an array where it is, which has to be the device; lists are brought there."""
    if not (isinstance(x, np.ndarray) or _device.is_cupy(x)):
        return _device.to_device(np.asarray(x), device)
    return _device.as_array(x, device, x.dtype, name)


def checked_weights(
    weights: Any, shape: tuple[int, int], dtype: Any, device: _device.Device
) -> Array:
    """Check weights of samples; give them for each root."""
    n, xp = shape[0], _device.namespace_of(device)
    if weights is None:
        return xp.ones(shape, dtype)
    array = taken(weights, device, "weights").astype(dtype)
    if array.shape == (n,):
        array = xp.repeat(array[:, None], shape[1], axis=1)
    if array.shape != shape:
        raise ShapeError(f"weights: got shape {array.shape}, need {(n,)} or {shape}")
    if not xp.isfinite(array).all() or array.min() < 0:
        raise ParameterError("weights: need finite numbers from 0")
    return array


def _coded(values: Array, support: int, var: int) -> Array:
    whole = values.astype(np.int64)
    if (whole != values).any():
        raise ParameterError(f"x: variable {var} takes whole numbers, got a fraction")
    if whole.size and (whole.min() < 0 or whole.max() >= support):
        raise ParameterError(
            f"x: variable {var} takes 0 to {support - 1}, got {whole.min()} to {whole.max()}"
        )
    return whole
