"""Parts of the parameters of a circuit, each of which one GPU changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit.circuits.compiled.leaf_tables import LeafRun
from rpukit.circuits.compiled.tables import Uses
from rpukit.circuits.parameters import Parameters

__all__ = ["Part", "cut", "whole"]

Array = Any


@dataclass(frozen=True, slots=True)
class Part:
    """Adjacent blocks of weights and adjacent nodes of leaves.

    Attributes
    ----------
    theta : slice
        Weights, their chains and totals.
    statistic, parameter : slice
        Statistics and parameters of leaves.
    blocks : slice
        Blocks of weights.
    runs : tuple of LeafRun
        The nodes of leaves.
    """

    theta: slice
    statistic: slice
    parameter: slice
    blocks: slice
    runs: tuple[LeafRun, ...]

    def uses(self, parameters: Parameters) -> Uses:
        """Select the tables from which `sum_maximise` knows the weights to change."""
        uses = parameters.uses
        host: Uses = uses.tiles.get("host", uses)
        first, stop = np.searchsorted(host.column_block, (self.blocks.start, self.blocks.stop))
        columns = slice(int(first), int(stop))
        own: Uses = replace(
            uses,
            theta=uses.theta[self.blocks],
            column_block=uses.column_block[columns],
            column_node=uses.column_node[columns],
        )
        return own

    def of(self, sums: Array, leaves: Array) -> tuple[Array, Array]:
        """Select from counts of weights and of leaves, or from rows of them."""
        rows = (slice(None),) * (sums.ndim - 1)
        return sums[(*rows, self.theta)], leaves[(*rows, self.statistic)]

    def parameters(self, of: Parameters) -> list[Array]:
        """Select weights and parameters of leaves, those that there are."""
        arrays = (of.theta[self.theta], of.rows.parameters[self.parameter])
        return [array for array in arrays if array.size]


def whole(parameters: Parameters) -> Part:
    """Return all parameters as one part."""
    (part,) = cut(parameters, 1)
    return part


def cut(parameters: Parameters, n: int) -> list[Part]:
    """Cut the parameters into n parts of nearly equal sizes; some may be empty."""
    blocks = np.array([0, *(first + m * k for first, m, k in parameters.uses.theta)], np.int64)
    edges = _edges_of_leaves(parameters.runs)
    ends = np.concatenate([blocks, blocks[-1] + edges[1:, 0]])
    wanted = ends[-1] * np.arange(n + 1) / n
    at = np.searchsorted(ends, wanted)
    at -= (at > 0) & (wanted - ends[at - 1] < ends[at] - wanted)
    parts = []
    for a, b in pairwise(at.tolist()):
        sums = slice(min(a, len(blocks) - 1), min(b, len(blocks) - 1))
        nodes = slice(max(a - len(blocks) + 1, 0), max(b - len(blocks) + 1, 0))
        (s0, p0, _), (s1, p1, _) = edges[nodes.start].tolist(), edges[nodes.stop].tolist()
        theta = slice(int(blocks[sums.start]), int(blocks[sums.stop]))
        runs = _within(parameters.runs, edges, nodes)
        parts.append(Part(theta, slice(s0, s1), slice(p0, p1), sums, runs))
    return parts


def _edges_of_leaves(runs: list[LeafRun]) -> Array:
    """Where statistics, parameters and tables of each node begin, and where the last ones end."""
    edges = [np.zeros((1, 3), np.int64)]
    for run in runs:
        ends = [
            part.start + (part.stop - part.start) // run.n_node * np.arange(1, run.n_node + 1)
            for part in (run.statistic, run.parameter, run.table)
        ]
        edges.append(np.stack(ends, axis=1))
    return np.concatenate(edges)


def _within(runs: list[LeafRun], edges: Array, nodes: slice) -> tuple[LeafRun, ...]:
    """Select nodes of runs."""
    found, first = [], 0
    for run in runs:
        a, b = max(nodes.start, first), min(nodes.stop, first + run.n_node)
        first += run.n_node
        if a < b:
            own = zip(edges[a].tolist(), edges[b].tolist(), strict=True)
            statistic, parameter, table = (slice(*span) for span in own)
            found.append(LeafRun(run.leaf, b - a, parameter, table, statistic))
    return tuple(found)
