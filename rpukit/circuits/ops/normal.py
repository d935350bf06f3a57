"""Ops of normal leaves of several variables: values, statistics, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.compiled.leaf_tables import FunctionNodes
from rpukit.elementwise import normal_quantile

__all__ = [
    "choose_normal",
    "expected_normal",
    "normal_density",
    "normal_statistic",
    "slopes_of_normal",
]

Array = Any

_MIRROR = "rpukit.circuits._mirror.normal"
_DRAWS = "rpukit.circuits._mirror.evaluated"
_TILE, _MOST_ROWS = 64, 65535  # samples of a block; largest grid along y
_NORMAL_DENSITY = Kernel("normal_density")
_NORMAL_STATISTIC = Kernel("normal_statistic")


def normal_density(
    one: FunctionNodes, parameters: Array, numbers: Array, values: Array, *, best: bool = False
) -> None:
    """Compute the values of leaves of one kind, columns of ``values``; NaN counts as summed out.

    With ``best`` missing values count as the most probable ones.
    """
    d, n_leaf, tables = one.leaf.n_columns, len(one.rows), (one.rows, one.variable, one.place)
    if _device.takes_kernels(values):
        macros = {"REAL": real(parameters.dtype), "N_COLUMN": d}
        sizes = (len(values), numbers.shape[1], values.shape[1], int(best))
        grid = (n_leaf, min(-(-len(values) // _TILE), _MOST_ROWS))
        launched = (*sizes, *tables, numbers, parameters, values)
        _NORMAL_DENSITY.launch(grid, (_TILE,), launched, macros=macros)
        return
    go = mirror(_MIRROR, parameters.dtype).normal_density
    grain = work_grain(10 * d * d * n_leaf)
    run_rows(go, len(values), d, best, *tables, numbers, parameters, values, grain=grain)


def normal_statistic(
    held: Any, one: FunctionNodes, parameters: Array, numbers: Array, flows: Array
) -> None:
    """Accumulate the statistics of leaves of one kind."""
    d, n_node = one.leaf.n_columns, len(one.statistic)
    tables = (one.statistic, one.parameter, one.use_first, one.use_row, one.use_variable)
    data = (numbers, parameters, flows, held.leaf_chains, held.leaf_totals)
    if _device.takes_kernels(flows):
        macros = {"REAL": real(flows.dtype), "N_COLUMN": d}
        sizes = (len(flows), numbers.shape[1], flows.shape[1])
        launched = (*sizes, held.clock, *tables, *data)
        _NORMAL_STATISTIC.launch((n_node,), (128,), launched, macros=macros)
        return
    go = mirror(_MIRROR, flows.dtype).normal_statistic
    grain = work_grain(5 * d * d * len(flows))
    run_rows(go, n_node, held.n_sample, d, *tables, *data, grain=grain)


def choose_normal(
    one: FunctionNodes,
    parameters: Array,
    draws: tuple[Any, ...],
    codes: Array,
    numbers: Array,
    chosen: Array,
) -> None:
    """Set unknown variables by their marked leaf given the known ones: the mode, or a draw.

    ``draws`` are those of `leaf_choose`. The host chooses; the k-th variable of a leaf takes the
    uniform number of 52 bits of draw k.
    """
    best, first_sample, k0, k1, op = draws
    d, device = one.leaf.n_columns, _device.device_of(numbers)
    rows = _device.to_numpy(one.rows)
    column = _device.to_numpy(one.variable).reshape(-1, d)
    known = _device.to_numpy(numbers)
    unknown = np.isnan(known[:, column]).any(axis=2)
    sample, leaf = np.nonzero(_device.to_numpy(chosen)[:, rows] & unknown)
    if not len(sample):
        return
    x = known[sample[:, None], column[leaf]].astype(np.float64)
    noise = np.zeros_like(x)
    if not best:
        places = [rows[leaf].astype(np.uint64), sample.astype(np.uint64) + np.uint64(first_sample)]
        go, u = mirror(_DRAWS, np.float32).leaf_uniforms_of, np.empty_like(x)
        run_rows(go, len(u), k0, k1, op, *places, u, grain=work_grain(50 * d))
        noise = normal_quantile(u)
    _fill(one, parameters, leaf, x, noise)
    at = tuple(_device.to_device(a, device) for a in (sample[:, None], column[leaf]))
    numbers[at] = _device.to_device(x, device, numbers.dtype)
    codes[at] = -1


def expected_normal(one: FunctionNodes, parameters: Array, numbers: Array) -> tuple[Array, Array]:
    """Mean and mean square of the variables of all leaves, given what is known of each sample.

    Both are (n_sample, n_leaf, n_columns), float64, on the host.
    """
    d = one.leaf.n_columns
    column = _device.to_numpy(one.variable).reshape(-1, d)
    x = _device.to_numpy(numbers).astype(np.float64)[:, column]
    shape, x = x.shape, x.reshape(-1, d)
    leaf = np.tile(np.arange(len(column)), shape[0])
    variance = _fill(one, parameters, leaf, x, np.zeros_like(x))
    return x.reshape(shape), (x * x + variance).reshape(shape)


def slopes_of_normal(one: FunctionNodes, parameters: Array, numbers: Array) -> Array:
    """Slopes of the values of all leaves in their known variables, 0 in missing ones.

    (n_sample, n_leaf, n_columns), float64, on the host: a missing variable that has its expected
    value given the rest leaves the slopes in the others as they are.
    """
    at = _device.to_numpy(one.place)[:, None] + np.arange(one.leaf.n_parameters)
    own = _device.to_numpy(parameters).astype(np.float64)[at]
    expected = expected_normal(one, parameters, numbers)[0]
    slopes = one.leaf._slopes_of_values(own, expected - own[:, : one.leaf.n_columns])
    column = _device.to_numpy(one.variable).reshape(len(at), -1)
    found: Array = np.where(np.isnan(_device.to_numpy(numbers)[:, column]), 0.0, slopes)
    return found


def _fill(one: FunctionNodes, parameters: Array, leaf: Array, x: Array, noise: Array) -> Array:
    """Complete samples in place, each by a leaf; return the variances given what was known."""
    at = _device.to_numpy(one.place)[leaf][:, None] + np.arange(one.leaf.n_parameters)
    own, variance = _device.to_numpy(parameters).astype(np.float64)[at], np.empty_like(x)
    go = mirror(_MIRROR, np.float64).fill_normal
    run_rows(go, len(x), x, own, noise, variance, grain=work_grain(10 * x.shape[1] ** 3))
    return variance
