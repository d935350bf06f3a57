"""What the parts of `Circuit` share: its arrays, and checks of what users give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rpukit import _device
from rpukit._kernels.replay import replayable
from rpukit.circuits.compiled.encoder import checked_weights
from rpukit.circuits.graph.nodes import InputNodes, Nodes, SumNodes
from rpukit.circuits.queries.passes import Pass
from rpukit.circuits.queries.propagation import Rule, Way, way_of
from rpukit.circuits.queries.soft_evidence import checked_soft, leaf_soft
from rpukit.errors import ParameterError

if TYPE_CHECKING:
    from rpukit._device import Device
    from rpukit.circuits.compiled.encoder import Encoder
    from rpukit.circuits.compiled.layout import Layout
    from rpukit.circuits.memory import Memory
    from rpukit.circuits.parameters import Parameters, Statistics
    from rpukit.random import Stream

__all__ = ["Held"]

Array = Any


class Held:
    """The state of a circuit; base of the parts of `Circuit`."""

    dtype: np.dtype[Any]
    layout: Layout
    _device: Device
    _parameters: Parameters
    _statistics: Statistics
    _stream: Stream
    _n_drawn: int
    _places: dict[Nodes, Any] | None = None  # columns of node vectors
    _encoder: Encoder
    _memory: Memory

    def _encoded(self, x: Any, missing: Any) -> tuple[Array, Array]:
        return self._encoder(x, missing)

    def _parts(self, n: int) -> Iterator[slice]:
        """Cut samples into passes that fit the memory, which each takes its arrays from."""
        step = self._memory.fitting(learns=True)
        for first in range(0, n, step):
            part = slice(first, min(first + step, n))
            with self._memory.opened(part.stop - first, learns=True):
                yield part

    def _weights(self, weights: Any, n: int) -> Array:
        shape = (n, self.layout.root_rows.size)
        return checked_weights(weights, shape, self.dtype, self._device)

    def _one_root(self, name: str) -> None:
        if self.layout.root_rows.size > 1:
            raise ParameterError(f"{name}: needs one root, this circuit has several")

    def _owner(self, nodes: Nodes) -> Any:
        if nodes.number not in self.layout.rows or not isinstance(nodes, (SumNodes, InputNodes)):
            raise ParameterError(f"{nodes!r} is no sum and no input of this circuit")
        return nodes.source

    def _way(self, rule: Rule | None) -> Way:
        return way_of(self._parameters, rule)

    def _evidence(self, x: Any, missing: Any, soft: Any) -> tuple[Array, Array, Array]:
        """Give codes, numbers and, with soft evidence, its factors."""
        codes, numbers = self._encoded(self._beside(soft, x), missing)
        return codes, numbers, self._factors(soft, len(codes))

    def _beside(self, soft: Any, x: Any) -> Any:
        """Samples beside soft evidence: unknown ones where none are given."""
        if soft is None or x is not None:
            return x
        soft = self._factors(soft, None)
        return _device.namespace(soft).full(soft.shape[:2], np.nan, self.dtype)

    def _factors(self, soft: Any, n: int | None) -> Array:
        return None if soft is None else checked_soft(self._parameters, soft, n, self.dtype)

    def _up(
        self, way: Way, codes: Array, numbers: Array, soft: Array = None, *, keep: bool = False
    ) -> Pass:
        run = way.leaves(codes, numbers)
        if soft is not None:
            leaf_soft(self._parameters.rows, run.codes, soft, run.values)
        return way.up(run, keep=keep)

    def _values(self, way: Way, codes: Array, numbers: Array, soft: Array = None) -> Array:
        """Values of all rows, which the next pass may overwrite."""
        memory, n = self._memory, len(codes)

        def call() -> None:
            memory.tops[n] = self._up(way, codes, numbers, soft).values

        with memory.opened(n, learns=False):
            if soft is not None or type(way) is not Way or not replayable(codes):
                return self._up(way, codes, numbers, soft).values
            memory.repeats.run(("up", n), (codes, numbers), {}, call)
        return memory.tops[n]

    def _both_ways(
        self, evidence: Sequence[Array], weights: Array, way: Way, out: Array = None
    ) -> Pass:
        run = self._up(way, *evidence, keep=True)
        run.weights, run.out = weights, out
        return way.down(run, weights)

    def _by_nodes(self, array: Array) -> dict[Nodes, Array]:
        """Columns of each node vector that has rows: views where they lie side by side."""
        if self._places is None:
            rows, on_device = self.layout.rows, self._parameters.on_device
            own = [nodes for nodes in self.layout.nodes if nodes.number in rows]
            spans = [_span(rows[nodes.number]) for nodes in own]
            self._places = {
                nodes: span if isinstance(span, slice) else on_device(span)
                for nodes, span in zip(own, spans, strict=True)
            }
        return {nodes: array[:, place] for nodes, place in self._places.items()}


def _span(rows: Array) -> Any:
    """Rows as a slice if they ascend one by one."""
    first = int(rows[0])
    return slice(first, first + rows.size) if (np.diff(rows) == 1).all() else rows
