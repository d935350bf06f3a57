"""What the parts of `Circuit` share: its arrays, and checks of what users give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rpukit.circuits._data import checked_weights, encoded
from rpukit.circuits._passes import Pass, run_down, run_up
from rpukit.circuits.nodes import InputNodes, Nodes, SumNodes
from rpukit.errors import ParameterError

if TYPE_CHECKING:
    from rpukit._device import Device
    from rpukit.circuits._layout import Layout
    from rpukit.circuits._parameters import Parameters, Statistics
    from rpukit.random import Stream

__all__ = ["BUDGET", "Held"]

Array = Any

BUDGET = 1 << 25  # values of rows that a pass holds at a time


class Held:
    """The state of a circuit; base of the parts of `Circuit`."""

    dtype: np.dtype[Any]
    layout: Layout
    _device: Device
    _parameters: Parameters
    _statistics: Statistics
    _stream: Stream
    _n_drawn: int

    def _encoded(self, x: Any, missing: Any) -> tuple[Array, Array]:
        return encoded(self.layout, self.dtype, x, missing, self._device)

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

    def _both_ways(self, codes: Array, numbers: Array, weights: Array) -> Pass:
        run = run_up(self._parameters, codes, numbers, keep=True)
        return run_down(self._parameters, run, weights)
