"""Soft evidence: how likely each value of a variable made what was seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit.circuits._leaf_steps import added
from rpukit.circuits._parameters import Parameters
from rpukit.circuits._passes import Pass
from rpukit.elementwise import exp, log
from rpukit.errors import NonFiniteError, ParameterError, ShapeError

__all__ = ["checked_soft", "lay_over", "reweighted"]

Array = Any


def checked_soft(parameters: Parameters, soft: Any, n: int | None, dtype: Any) -> Array:
    """Check factors of values (n_sample, n_variables, n_values)."""
    array, layout = np.asarray(soft, dtype), parameters.layout
    support = parameters.rows.support
    most = int(support.max())
    shape = (array.shape[0] if n is None and array.ndim else n, layout.n_variable, most)
    if array.shape != shape or not array.size:
        raise ShapeError(f"soft: got shape {array.shape}, need {shape}")
    if not np.isfinite(array).all():
        raise NonFiniteError("soft holds NaN or infinity")
    if array.min() < 0:
        raise ParameterError("soft: need numbers from 0")
    if (array[:, support == 0] != 1).any():
        raise ParameterError("soft: variables of numbers have no values: need ones there")
    return array


def lay_over(parameters: Parameters, run: Pass, soft: Array) -> None:
    """Values of leaves of unknown variables: log sum_x soft[x] p(x), x ascending."""
    for nodes, part, table in _tables(parameters):
        factors, total = soft[:, nodes.var], np.zeros((len(soft), nodes.n_node), soft.dtype)
        for x in range(table.shape[1]):
            total = total + factors[:, x, None] * table[:, x]
        unknown = run.codes[:, nodes.var] < 0
        run.values[:, part] = np.where(unknown[:, None], log(total), run.values[:, part])


def reweighted(parameters: Parameters, run: Pass, soft: Array, out: Array) -> None:
    """Make posteriors of unknown variables from flows, in place; known ones stay as they are."""
    unknown = run.codes < 0
    out[unknown] = 0
    for nodes, part, table in _tables(parameters):
        possible = run.flows[:, part] > 0
        shares = np.where(possible, run.flows[:, part], 0)
        shares = shares * exp(np.where(possible, -run.values[:, part], 0))
        some = unknown[:, nodes.var]
        line = out[some, nodes.var]
        for k in range(nodes.n_node):
            line[:, : table.shape[1]] += shares[some, k, None] * table[k]
        out[some, nodes.var] = line
    for var in range(out.shape[1]):
        some = unknown[:, var]
        line = out[some, var] * soft[some, var]
        whole = added(line)[:, None]
        out[some, var] = line / np.where(whole > 0, whole, 1)


def _tables(parameters: Parameters) -> Any:
    """Go through vectors of leaves that are tables: nodes, their rows, probabilities."""
    rows, first = parameters.rows, 0
    for nodes in parameters.layout.inputs:
        part = slice(first, first + nodes.n_node)
        first = part.stop
        if nodes.leaf.TABLE:
            places = rows.place[part, None] + np.arange(nodes.leaf.support)
            yield nodes, part, exp(rows.table[places])
