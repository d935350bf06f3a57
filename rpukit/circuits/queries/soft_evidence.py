"""Soft evidence: likelihood factors of the values of unknown variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact.twins import mirror, real
from rpukit._kernels import Kernel
from rpukit._workers import run_rows, work_grain
from rpukit.circuits.parameters import LeafRows, Parameters, support_of
from rpukit.errors import NonFiniteError, ParameterError, ShapeError

__all__ = ["checked_soft", "leaf_soft", "soft_posterior"]

Array = Any

_LEAF_SOFT = Kernel("leaf_soft")
_SOFT_POSTERIOR = Kernel("soft_posterior")
_QUERIES = "rpukit.circuits._mirror.queries"
_MOST_ROWS = 65535  # of a grid along y


def checked_soft(parameters: Parameters, soft: Any, n: int | None, dtype: Any) -> Array:
    """Check factors of values (n_sample, n_variables, n_values)."""
    array, layout = (
        _device.as_array(soft, parameters.device, np.dtype(dtype), "soft"),
        parameters.layout,
    )
    xp, support = _device.namespace(array), support_of(layout)
    shape = (array.shape[0] if n is None and array.ndim else n, layout.n_variable, support.max())
    if array.shape != shape or not array.size:
        raise ShapeError(f"soft: got shape {array.shape}, need {shape}")
    if not xp.isfinite(array).all():
        raise NonFiniteError("soft: got NaN or infinity, need finite factors from 0")
    if array.min() < 0:
        raise ParameterError(f"soft: got {float(array.min())!r}, need factors from 0")
    if (array[:, np.flatnonzero(support == 0)] != 1).any():
        raise ParameterError(
            "soft: variables with densities (Gaussian, Poisson) have no table of values: "
            "give factors of 1 there"
        )
    return array


def leaf_soft(rows: LeafRows, codes: Array, soft: Array, values: Array) -> None:
    """Values of leaves of unknown variables: log sum_x soft[x] p(x), x ascending."""
    arrays = (rows.sizes, rows.variable, rows.place, rows.table, codes, soft, values)
    if _device.takes_kernels(values):
        sizes = (len(values), rows.sizes.size, codes.shape[1], values.shape[1], soft.shape[2])
        grid = (-(-rows.sizes.size // 256), min(len(values), _MOST_ROWS))
        _LEAF_SOFT.launch(grid, (256,), (*sizes, *arrays), macros={"REAL": real(soft.dtype)})
        return
    grain = work_grain(rows.sizes.size * soft.shape[2])
    run_rows(mirror(_QUERIES, soft.dtype).leaf_soft, len(values), *arrays, grain=grain)


def soft_posterior(
    rows: LeafRows, codes: Array, values: Array, flows: Array, soft: Array, out: Array
) -> None:
    """Probabilities of the values of unknown variables; ``out``, of soft's shape, holds 0."""
    arrays = (codes, values, flows, soft, out)
    if _device.takes_kernels(out):
        sizes = (*out.shape[:2], flows.shape[1], out.shape[2])
        tables = (rows.first, rows.rows, rows.place, rows.sizes, rows.support, rows.table)
        grid, macros = (out.shape[1], min(len(out), _MOST_ROWS)), {"REAL": real(out.dtype)}
        _SOFT_POSTERIOR.launch(grid, (128,), (*sizes, *tables, *arrays), macros=macros)
        return
    args = (rows.sizes, rows.variable, rows.place, rows.support, rows.table, *arrays)
    grain = work_grain(rows.sizes.size * out.shape[2] * 10)
    run_rows(mirror(_QUERIES, out.dtype).soft_posterior, len(out), *args, grain=grain)
