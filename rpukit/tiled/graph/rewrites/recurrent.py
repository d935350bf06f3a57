"""Recurrent networks, written out step by step: LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rpukit.tiled.graph.rewrites.reading import Parts, Reading, Rewrite
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["REWRITES"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULT = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_MOST_STEPS = 10_000
_ACTIVATIONS = {name.lower(): name for name in ("Sigmoid", "Tanh", "Relu", "HardSigmoid")}


@dataclass
class _Way:
    """One direction of a network: products of all inputs, weights and functions.

    Attributes
    ----------
    product : str
        Inputs by weights with biases, shape (steps x samples, gates x hidden).
    weight : str
        Of the state, shape (gates x hidden, hidden).
    bias : str
        Of the state, where it is not in `product`; "" if none.
    functions : tuple of str
    """

    product: str
    weight: str
    bias: str
    functions: tuple[str, ...]


class _Network:
    """The steps of a recurrent network."""

    def __init__(self, node: Node, reading: Reading) -> None:
        self.node, self.parts = node, Parts(node, reading)
        self.reading, self.gates = reading, _GATES[node.op]
        self.batch_first = bool(attribute(node, "layout", 0))
        shape = reading.shape(node, node.inputs[0])
        self.t, self.n, self.wide = shape
        if self.batch_first:
            self.n, self.t = shape[:2]
        self.hidden = reading.shape(node, node.inputs[2])[2]
        direction = attribute(node, "direction", "forward")
        self.ways = 2 if direction == "bidirectional" else 1
        self.back = [direction == "reverse"] if self.ways == 1 else [False, True]
        self._check()

    def _check(self) -> None:
        node, reading = self.node, self.reading
        self.parts.bound(self.t, _MOST_STEPS, "steps to write out")
        lengths = present(node.inputs, 4)
        if lengths and reading.scalar(lengths) != self.t:
            raise fault(node, f"{lengths}: got lengths of sequences, need all of {self.t} steps")
        if attribute(node, "clip", 0.0) or attribute(node, "input_forget", 0):
            raise fault(node, "clip and input_forget are not supported")
        if present(node.inputs, 7) and reading.scalar(node.inputs[7]) != 0:
            raise fault(node, "P: peepholes are not supported")

    def _functions(self, way: int) -> tuple[str, ...]:
        default = _DEFAULT[self.node.op]
        given = attribute(self.node, "activations", default * self.ways)
        given = tuple(given)[way * len(default) : (way + 1) * len(default)]
        names = [name.decode() if isinstance(name, bytes) else name for name in given]
        unknown = [name for name in names if name.lower() not in _ACTIVATIONS]
        if unknown:
            raise fault(self.node, f"activations: got {unknown[0]}, need Sigmoid, Tanh or Relu")
        return tuple(_ACTIVATIONS[name.lower()] for name in names)

    def part(self, place: int, way: int, *shape: int) -> str:
        """Take what belongs to a direction of an input; "" where the input is absent."""
        name = present(self.node.inputs, place)
        if not name:
            return ""
        if self.batch_first and place in (5, 6):
            name = self.parts.add("Transpose", name, perm=(1, 0, 2))
        if self.ways > 1:
            name = self.parts.slice(name, 0, way, way + 1)
        return self.parts.reshape(name, shape)

    def way(self, k: int, rows: str) -> _Way:
        """Multiply the inputs of all steps by the weights of a direction."""
        parts, size = self.parts, self.gates * self.hidden
        weight, state = self.part(1, k, size, self.wide), self.part(2, k, size, self.hidden)
        biases, both, later = self.part(3, k, 2, size), "", ""
        if biases:
            first, later = (
                parts.reshape(parts.slice(biases, 0, i, i + 1), (size,)) for i in (0, 1)
            )
            both, later = (
                (first, later) if self.node.op == "GRU" else (parts.add("Add", first, later), "")
            )
        inputs = (rows, weight, both) if both else (rows, weight)
        return _Way(parts.add("Gemm", *inputs, transB=1), state, later, self._functions(k))

    def run(self) -> list[Node]:
        """Write out all steps; return the nodes."""
        parts, x = self.parts, self.node.inputs[0]
        if self.batch_first:
            x = parts.add("Transpose", x, perm=(1, 0, 2))
        rows, step = parts.reshape(x, (self.t * self.n, self.wide)), _STEPS[self.node.op]
        every, last, cells = list[str](), list[str](), list[str]()
        for k, back in enumerate(self.back):
            way, made = self.way(k, rows), list[str]()
            state = (self.part(5, k, self.n, self.hidden), self.part(6, k, self.n, self.hidden))
            for i in range(self.t)[:: -1 if back else 1]:
                own = parts.slice(way.product, 0, i * self.n, (i + 1) * self.n)
                state = step(self, way, own, *state)
                made.append(state[0])
            last.append(parts.reshape(state[0], (1, self.n, self.hidden)))
            cells.append(parts.reshape(state[1], (1, self.n, self.hidden)) if state[1] else "")
            whole = parts.concat(made[:: -1 if back else 1], 0)
            every.append(parts.reshape(whole, (self.t, 1, self.n, self.hidden)))
        ends = [parts.concat(every, 1), parts.concat(last, 0)]
        ends += [parts.concat(cells, 0)] if all(cells) else []
        if self.batch_first:
            ends[0] = parts.add("Transpose", ends[0], perm=(2, 0, 1, 3))
            ends[1:] = [parts.add("Transpose", one, perm=(1, 0, 2)) for one in ends[1:]]
        for end, output in zip(ends, self.node.outputs, strict=False):
            if output:
                parts.done(end, output)
        return parts.nodes

    def gate(self, rows: str, first: int, last: int = 0) -> str:
        """Take the columns of some gates."""
        end = (last or first + 1) * self.hidden
        return self.parts.slice(rows, 1, first * self.hidden, end)

    def summed(self, way: _Way, own: str, h: str) -> str:
        """Add the product of the state, which is 0 at first unless it is given."""
        return self.parts.add("Gemm", h, way.weight, own, transB=1) if h else own


State = tuple[str, str]


def _lstm(net: _Network, way: _Way, own: str, h: str, c: str) -> State:
    """Gates in, out and forget, and the new content of the cell."""
    add, (f, g, end) = net.parts.add, way.functions
    rows = net.summed(way, own, h)
    gates, new = add(f, net.gate(rows, 0, 3)), add(g, net.gate(rows, 3))
    kept = add("Mul", net.gate(gates, 0), new)
    c = add("Add", add("Mul", net.gate(gates, 2), c), kept) if c else kept
    return add("Mul", net.gate(gates, 1), add(end, c)), c


def _gru(net: _Network, way: _Way, own: str, h: str, c: str) -> State:
    """Gates update and reset, and the new state."""
    parts, (f, g) = net.parts, way.functions
    add, size = parts.add, 3 * net.hidden
    if not h:
        h = parts.array(np.zeros((net.n, net.hidden)))
    first, last = (parts.slice(way.weight, 0, *ends) for ends in (
        (0, 2 * net.hidden), (2 * net.hidden, size)))  # fmt: skip
    biases = [parts.slice(way.bias, 0, 0, 2 * net.hidden)] if way.bias else []
    late = [parts.slice(way.bias, 0, 2 * net.hidden, size)] if way.bias else []
    sums = add("Add", net.gate(own, 0, 2), add("Gemm", h, first, *biases, transB=1))
    gates, new = add(f, sums), net.gate(own, 2)
    reset = net.gate(gates, 1)
    if attribute(net.node, "linear_before_reset", 0):
        inner = add("Mul", reset, add("Gemm", h, last, *late, transB=1))
    else:
        inner = add("Gemm", add("Mul", reset, h), last, *late, transB=1)
    new = add(g, add("Add", new, inner))
    return add("Add", new, add("Mul", net.gate(gates, 0), add("Sub", h, new))), ""


def _rnn(net: _Network, way: _Way, own: str, h: str, c: str) -> State:
    return net.parts.add(way.functions[0], net.summed(way, own, h)), ""


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _written_out(node: Node, reading: Reading) -> list[Node]:
    return _Network(node, reading).run()


REWRITES: Mapping[str, Rewrite] = dict.fromkeys(_GATES, _written_out)
