"""Checks of data: what a table or a density reads of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpukit import _device
from rpukit.circuits.leaves import POISSON
from rpukit.circuits.nodes import InputNodes
from rpukit.errors import DTypeError, NonFiniteError, ParameterError, ShapeError

if TYPE_CHECKING:
    from rpukit.circuits._layout import Layout

__all__ = ["checked_weights", "columns_of", "encoded", "taken"]

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
    support, table, number, count = (xp.asarray(a) for a in layout.columns)
    known = ~unknown
    with np.errstate(invalid="ignore"):  # of too large numbers, which then differ
        whole = xp.where(known & table, array, 0).astype(np.int64)
    wrong = known & table & (whole != array)
    if wrong.any():
        raise ParameterError(f"x: variable {_column(wrong)} takes whole numbers, got a fraction")
    wrong = known & table & ((whole < 0) | (whole >= support))
    if wrong.any():
        var = _column(wrong)
        given = whole[known[:, var], var]
        raise ParameterError(
            f"x: variable {var} takes 0 to {support[var] - 1}, got {given.min()} to {given.max()}"
        )
    wrong = known & count & (array < 0)
    if wrong.any():
        raise ParameterError(f"x: variable {_column(wrong)} counts, got a negative number")
    codes = xp.where(known & table, whole, -1).astype(np.int32)
    return codes, xp.where(known & number, array, np.nan).astype(dtype)


def columns_of(inputs: list[InputNodes], n_variable: int) -> tuple[Array, Array, Array, Array]:
    """Say of each variable: its largest support, if it has tables, densities, and counts."""
    support = np.zeros(n_variable, np.int64)
    table, number, count = (np.zeros(n_variable, bool) for _ in range(3))
    for var, leaf in {(nodes.var, nodes.leaf) for nodes in inputs}:
        table[var] |= leaf.TABLE
        number[var] |= not leaf.TABLE
        count[var] |= leaf.KIND == POISSON
        if leaf.TABLE:
            support[var] = max(support[var], leaf.support)
    return support, table, number, count


def _column(wrong: Array) -> int:
    """First variable with something wrong."""
    return int(wrong.any(axis=0).argmax())


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
