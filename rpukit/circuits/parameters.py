"""Parameters of a circuit, and the expected counts that learning accumulates."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.circuits.compiled.layout import Layout
from rpukit.circuits.compiled.leaf_tables import (
    LONG,
    LeafRows,
    LeafRun,
    LeafSource,
    function_nodes,
    leaf_nodes,
    leaf_rows,
    leaf_runs,
    leaf_sources,
    support_of,
)
from rpukit.circuits.compiled.tables import Uses, by_ties, make_program, make_uses, moved
from rpukit.circuits.graph.leaves import GAUSSIAN
from rpukit.circuits.graph.nodes import InputNodes, SumNodes
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.ops.counts import TIES
from rpukit.circuits.ops.scaling import stretches
from rpukit.circuits.ops.sum_tensor_core import Rounded, round_weights, rounded_weights
from rpukit.elementwise import power, random_fill
from rpukit.random import Stream

__all__ = [
    "LeafRows",
    "LeafSource",
    "Parameters",
    "Statistics",
    "parts",
    "shift_moments",
    "support_of",
]

Array = Any

PERTURBATION = 2.0
_PART = 1 << 20  # weights in a slice of float64 work arrays
_GATHERED = ("chains", "leaf_chains", "totals", "leaf_totals", "clock", "weighed")


class Parameters:
    """Weights (children, nodes) of all groups, and parameters and tables of all leaves."""

    rounded: Rounded | None = None  # weights for tensor cores
    version = 0  # changes with every change of the parameters

    def __init__(
        self,
        layout: Layout,
        stream: Stream,
        dtype: Any,
        device: _device.Device = _device.CPU,
        *,
        precision: str = "fp32",
    ) -> None:
        self.precision = precision
        self.layout, self.device = layout, _device.CPU
        self.theta = np.empty(layout.n_theta, dtype)
        self.sums = [n for n in layout.nodes if isinstance(n, SumNodes) and n.source is n]
        self.sources = leaf_sources(layout)
        self.runs = leaf_runs(self.sources)
        ends = self.sources[-1]
        n_parameter, n_table = ends.parameter.stop, ends.table.stop
        self.rows = LeafRows(
            *leaf_rows(layout, self.sources),
            support_of(layout),
            np.empty(n_table, dtype),
            np.empty(n_parameter, dtype),
            max(s.leaf.support for s in self.sources) * all(s.leaf.TABLE for s in self.sources),
            function_nodes(layout, self.sources),
        )
        if self.rows.most > LONG:
            self.rows.nodes = leaf_nodes(layout, self.sources)
        for number, nodes in enumerate(self._owners()):
            given, own = nodes.parameters, stream.child(number)
            if isinstance(nodes, SumNodes):
                if given is None and nodes.zero_mask is None:
                    self._draw_sums(nodes, own)
                    continue
                if given is None:
                    given = np.exp(-PERTURBATION * _uniform(own, nodes.parameter_shape))
                if nodes.zero_mask is not None:
                    given = nodes.checked(np.where(nodes.zero_mask, 0.0, given))
            elif given is None:
                shape = (nodes.n_node, nodes.leaf.n_parameters)
                given = nodes.leaf.drawn(_uniform(own, shape), PERTURBATION)
            self.put(nodes, given)
        self.program = make_program(layout)
        self._put_tables(device)
        self.first_root = int(layout.root_rows.min())
        self.theta, self.rows = self.on_device(self.theta), self._rows_on(device)
        self._put_rounded()
        self.round()

    def _put_rounded(self) -> None:
        """Allocate the weights of tensor cores."""
        if self.precision != "fp32":
            split = self.precision == "bf16x3"
            self.rounded = rounded_weights(make_uses(self.layout), self.device, split=split)

    def _rows_on(self, device: _device.Device) -> LeafRows:
        """Copy the tables of the rows of leaves from the host."""
        rows: LeafRows = moved(self.rows, device)
        if device.kind != "cpu":
            rows.functions = tuple(one.on(device) for one in rows.functions)
        if rows.nodes is not None:
            rows.nodes = moved(rows.nodes, device)
        return rows

    def _put_tables(self, device: _device.Device) -> None:
        """Copy the tables of the layout to the device that these parameters are for."""
        self.device, layout = device, self.layout
        uses = make_uses(layout)
        self.uses = moved(uses, device)
        self.counted: tuple[tuple[Uses, bool], ...] = ((self.uses, False),)
        if self.precision == "bf16x3":
            halves = (moved(half, device) for half in by_ties(uses, TIES))
            both = zip(halves, (False, True), strict=True)
            self.counted = tuple((half, split) for half, split in both if half.theta)
        self.layers = [moved(layer, device) for layer in layout.layers]
        scales = self.theta.dtype == np.float32  # float64 resolves what is lost
        self.downward = list(stretches(self.layers[::-1], scales=scales))
        self.root_rows = self.on_device(layout.root_rows)

    def _owners(self) -> list[Any]:
        owned = {n.source.number: n.source for n in self.layout.nodes}
        kinds = (SumNodes, InputNodes)
        return [n for n in owned.values() if isinstance(n, kinds)]

    def _draw_sums(self, nodes: SumNodes, stream: Stream) -> None:
        """Draw weights by groups of blocks, since float64 copies of all would need much memory."""
        uniform = random_fill(stream, nodes.parameter_shape, "uniform")
        size = nodes.block_size
        for block in self.layout.blocks[nodes.number]:
            theta = self.theta[block.first : block.first + block.size]
            theta = theta.reshape(block.n_child, block.n_node)
            step = max(1, _PART // (block.n_child * size))
            for first in range(0, len(block.edges), step):
                tiles = uniform[block.edges[first : first + step]].astype(np.float64)
                tiles *= -PERTURBATION  # (block, child block, node, child)
                np.exp(tiles, out=tiles)
                totals = np.add.accumulate(tiles.sum(axis=3), axis=1)[:, -1]
                tiles /= totals[:, None, :, None]
                columns = tiles.transpose(1, 3, 0, 2).reshape(block.n_child, -1)
                theta[:, first * size : first * size + columns.shape[1]] = columns

    def put(self, nodes: Any, given: Array) -> None:
        """Set the parameters of a node vector that owns them."""
        self.version += 1
        if isinstance(nodes, SumNodes):
            for block in self.layout.blocks[nodes.number]:
                weights = block.gather(given).reshape(-1)
                part = slice(block.first, block.first + block.size)
                self.theta[part] = self.on_device(weights, self.theta.dtype)
            self.round()
        else:
            source = next(s for s in self.sources if s.nodes is nodes)
            values = self.on_device(given.reshape(-1), self.theta.dtype)
            self.rows.parameters[source.parameter] = values
            self.refresh(source)

    def on_device(self, array: Array, dtype: Any = None) -> Array:
        """Copy an array to the device of the parameters."""
        if self.device.kind == "cpu":
            return array
        return _device.to_device(np.asarray(array, dtype), self.device)

    def get(self, nodes: Any) -> Array:
        """Give parameters as a user sets them, float64."""
        if isinstance(nodes, SumNodes):
            tiles = np.zeros(nodes.parameter_shape)
            for block in self.layout.blocks[nodes.number]:
                weights = _device.to_numpy(self.theta[block.first : block.first + block.size])
                block.scatter(weights.reshape(block.n_child, block.n_node), tiles)
            return tiles
        source = next(s for s in self.sources if s.nodes is nodes)
        held = _device.to_numpy(self.rows.parameters[source.parameter])
        parameters = held.astype(np.float64)
        return parameters.reshape(nodes.n_node, nodes.leaf.n_parameters)

    def refresh(self, source: LeafSource | LeafRun) -> None:
        """Recompute the table of leaves after a change of their parameters."""
        if source.traits.support:
            ops.leaf_table(
                source.traits,
                self.rows.parameters[source.parameter],
                self.rows.table[source.table],
            )

    def round(self) -> None:
        """Recompute the bfloat16 weights of tensor cores after a change of the weights."""
        if self.rounded is not None:
            round_weights(self.uses, self.theta, self.rounded)

    def in_float32(self) -> Parameters:
        """View these parameters without bfloat16 weights, for sums in float32."""
        other = copy(self)
        other.rounded = None
        return other

    def on(self, device: _device.Device) -> Parameters:
        """Copy parameters and tables to another GPU."""
        other = copy(self)
        other._put_tables(device)
        other.theta = _device.to_device(self.theta, device)
        arrays = {f.name: getattr(self.rows, f.name) for f in fields(self.rows)}
        on_device = {
            name: _device.to_device(value, device)
            for name, value in arrays.items()
            if hasattr(value, "dtype")
        }
        on_device["functions"] = tuple(one.on(device) for one in self.rows.functions)
        if self.rows.nodes is not None:
            on_device["nodes"] = moved(leaf_nodes(self.layout, self.sources), device)
        other.rows = replace(self.rows, **on_device)
        other._put_rounded()
        other.round()
        return other

    def duplicated(self) -> Parameters:
        """Copy the arrays that learning changes; the tables of the layout are shared."""
        other, rows = copy(self), self.rows
        other.theta = self.theta.copy()
        other.rows = replace(rows, parameters=rows.parameters.copy(), table=rows.table.copy())
        if self.rounded is not None:
            other.rounded = replace(self.rounded, words=self.rounded.words.copy())
        return other

    def copied(self) -> tuple[Array, Array]:
        """Copy weights and parameters of leaves, for `take`."""
        return self.theta.copy(), self.rows.parameters.copy()

    def take(self, arrays: tuple[Array, Array]) -> None:
        """Restore parameters from `copied`."""
        self.theta[:], self.rows.parameters[:] = arrays
        self.refresh_all()

    def refresh_all(self) -> None:
        """Recompute all tables after a change of the parameters."""
        self.version += 1
        self.refresh_tables()

    def refresh_tables(self) -> None:
        """Recompute all tables of leaves and the bfloat16 weights."""
        self.round()
        for run in self.runs:
            self.refresh(run)


class Statistics:
    """Expected counts since the last step: running chains, and totals of finished blocks."""

    def __init__(self, parameters: Parameters) -> None:
        dtype, device = parameters.theta.dtype, parameters.device
        sources, layout = parameters.sources, parameters.layout
        sizes = (parameters.theta.size, sources[-1].statistic.stop)
        self.chains, self.leaf_chains = (_device.zeros((n,), dtype, device) for n in sizes)
        self.totals, self.leaf_totals = (_device.zeros((n,), np.float64, device) for n in sizes)
        self.n_sample = 0
        self.clock = _device.zeros((1,), np.int64, device)  # n_sample, where kernels read it
        self.weighed = _device.zeros((1,), np.float64, device)  # sum of root flows
        self.exponent = 1.0  # counts are multiplied by weights to this power in the end
        self.leaves = parameters.rows.nodes or moved(leaf_nodes(layout, sources), device)

    def fresh(self) -> Statistics:
        """Allocate statistics of the same circuit, all 0."""
        other = copy(self)
        for name in _GATHERED:
            array = getattr(self, name)
            setattr(other, name, _device.zeros(array.shape, array.dtype, _device.device_of(array)))
        other.n_sample, other.exponent = 0, 1.0
        return other

    def duplicated(self) -> Statistics:
        """Copy the statistics."""
        other = copy(self)
        for name in _GATHERED:
            setattr(other, name, getattr(self, name).copy())
        return other

    def for_weights(self, theta: Array) -> None:
        """Convert counts for weights theta^a to counts for weights theta."""
        if self.exponent == 1:
            return
        xp = _device.namespace(theta)
        for part in parts(theta.size):
            w = theta[part].astype(np.float64)
            factor = power(xp.where(w > 0, w, 1.0), self.exponent - 1)
            counts = factor * (self.totals[part] + self.chains[part])
            self.totals[part] = xp.where(w > 0, counts, 0.0)
        self.chains[:] = 0
        self.exponent = 1.0

    def clear(self) -> None:
        """Reset all counts to 0."""
        for name in _GATHERED:
            getattr(self, name).fill(0)
        self.n_sample, self.exponent = 0, 1.0

    def resume(self, n_sample: int, weight: float) -> None:
        """Set the number and weight of the samples counted so far."""
        self.n_sample = n_sample
        self.clock.fill(n_sample)
        self.weighed.fill(weight)

    @property
    def weight(self) -> float:
        """Sum of the root flows so far; synchronises with a GPU."""
        return float(_device.to_numpy(self.weighed)[0])


def shift_moments(
    source: LeafSource, parameters: Parameters, flow: Array, *, back: bool = False
) -> None:
    """Convert statistics of Gaussians, float64, in place: from about their means to about 0.

    ``flow`` are those of one vector of leaves; ``back`` converts them to moments about the means.
    Statistics of other leaves stay.
    """
    if source.traits.kind != GAUSSIAN:
        return
    mean = parameters.rows.parameters[source.parameter].reshape(-1, 2)[:, 0].astype(np.float64)
    mean, moments = -mean if back else mean, flow.reshape(-1, 4)
    moments[:, 1] += (2 * mean) * moments[:, 0] + (mean * mean) * moments[:, 2]
    moments[:, 0] += mean * moments[:, 2]


def parts(size: int) -> Iterator[slice]:
    """Split weights into slices of bounded size."""
    return (slice(first, min(first + _PART, size)) for first in range(0, size, _PART))


def _uniform(stream: Stream, shape: tuple[int, ...]) -> Array:
    return random_fill(stream, shape, "uniform").astype(np.float64)
