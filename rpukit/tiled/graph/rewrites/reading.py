"""What the rewriting of a node may look at and add to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["MOST_ELEMENTS", "UNKNOWN", "Parts", "Reading", "Rewrite", "identity", "text_of"]

UNKNOWN = "the shape is unknown"
MOST_ELEMENTS = 1 << 24  # of a constant that a rewrite makes


@dataclass
class Reading:
    """Constants, shapes and types of a file, and what its masks and sequences became.

    Attributes
    ----------
    name : str
        Of the graph.
    constants : dict of str to array
    trained : collection of str
        Initialisers that training changes.
    types : dict of str to str
        Dtypes of tensors, as far as they are known.
    shapes : dict of str to tuple of int
    outputs : collection of str
        Outputs of the graph.
    opset : int
        Version of ONNX's operators.
    batch_statistics : bool
        Whether every BatchNormalization uses statistics of the batch.
    masks : set of str
        Truth values that nodes compute; here they are numbers 0 and 1.
    sequences : dict of str to list of str
        Tensors in each sequence.
    """

    name: str
    constants: dict[str, np.ndarray]
    trained: Collection[str]
    types: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    outputs: Collection[str]
    opset: int = 13
    batch_statistics: bool = False
    masks: set[str] = field(default_factory=set)
    sequences: dict[str, list[str]] = field(default_factory=dict)

    def fixed(self, name: str) -> bool:
        """Tell whether a tensor is a constant that training does not change."""
        return name in self.constants and name not in self.trained

    def scalar(self, name: str) -> float | None:
        """Read a constant whose elements are all equal; None for any other tensor."""
        if not self.fixed(name) or not self.constants[name].size:
            return None
        first = self.constants[name].reshape(-1)[0]
        return float(first) if (self.constants[name] == first).all() else None

    def number(self, node: Node, place: int, what: str) -> float | None:
        """Read a constant of one element; None where the input is absent."""
        name = present(node.inputs, place)
        if not name:
            return None
        known = self.fixed(name) and self.constants[name].dtype.kind in "biuf"
        if not known or self.constants[name].size != 1:
            raise fault(node, f"{what}: got the tensor {name}, need a constant of one element")
        return float(self.constants[name].reshape(()))

    def numbers(self, node: Node, place: int, what: str) -> tuple[int, ...] | None:
        """Read a constant of integers; None where the input is absent."""
        name = present(node.inputs, place)
        if not name:
            return None
        if not self.fixed(name):
            raise fault(node, f"{what}: {name} is computed, need a constant")
        if self.constants[name].dtype.kind not in "biu":
            raise fault(node, f"{what}: got {self.constants[name].dtype}, need integers")
        return tuple(int(n) for n in self.constants[name].reshape(-1))

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant."""
        self.constants[name] = value
        return name

    def shape(self, node: Node, name: str) -> tuple[int, ...]:
        """Find the shape of a tensor.

        Raises
        ------
        GraphError
            If it is unknown.
        """
        if name not in self.shapes:
            raise fault(node, f"{name}: {UNKNOWN}; export with fixed shapes")
        return self.shapes[name]

    def axes(self, node: Node, rank: int, place: int = 1) -> list[int]:
        """Read the axes of a reduction, ascending, from an attribute or a constant."""
        axes = self.numbers(node, place, "axes")
        axes = attribute(node, "axes", None) if axes is None else axes
        if not axes:
            return [] if attribute(node, "noop_with_empty_axes", 0) else list(range(rank))
        if any(not -rank <= axis < rank for axis in axes):
            raise fault(node, f"axes: got {tuple(axes)}, need axes of {rank}")
        return sorted({axis % rank for axis in axes})


Rewrite = Callable[[Node, Reading], list[Node]]


class Parts:
    """Collects the nodes that take the place of one node.

    Parameters
    ----------
    node : Node
    reading : Reading
    """

    def __init__(self, node: Node, reading: Reading) -> None:
        self.node, self.reading, self.nodes = node, reading, list[Node]()
        self._count = 0

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output; return the name of that."""
        name = f"{self.node.name}/{op.lower()}_{len(self.nodes)}"
        self.nodes.append(Node(name, op, inputs, (name,), attributes))
        return name

    def number(self, value: float) -> str:
        """Add a constant of one number."""
        return self.reading.constant(f"{self.node.name}/{value!r}", np.array(float(value)))

    def array(self, value: np.ndarray) -> str:
        """Add a constant array."""
        self._count += 1
        return self.reading.constant(f"{self.node.name}/constant_{self._count}", value)

    def bound(self, count: int, most: int, what: str) -> None:
        """Check that a file does not ask for more than a target could ever hold.

        Raises
        ------
        GraphError
        """
        if count > most:
            raise fault(self.node, f"got {count} {what}, need at most {most}")

    def times(self, value: str, factor: float) -> str:
        """Multiply by a number."""
        return value if factor == 1 else self.add("Mul", value, self.number(factor))

    def plus(self, value: str, number: float) -> str:
        """Add a number."""
        return value if number == 0 else self.add("Add", value, self.number(number))

    def step(self, value: str) -> str:
        """Compute 1 where a value is greater than 0, else 0."""
        return self.add("ReluGrad", self.number(1.0), value)

    def choose(self, mask: str, first: str, second: str) -> str:
        """Take the first value where a mask is 1, else the second."""
        rest = self.add("Sub", self.number(1.0), mask)
        chosen = self.add("ReluGrad", first, mask)
        return self.add("Add", chosen, self.add("ReluGrad", second, rest))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Change the shape."""
        return self.add("Reshape", value, shape=tuple(shape), allowzero=1)

    def slice(self, value: str, axis: int, start: int, stop: int) -> str:
        """Take a part along an axis."""
        return self.add("Slice", value, starts=(start,), ends=(stop,), axes=(axis,))

    def concat(self, values: Sequence[str], axis: int, most: int = 7) -> str:
        """Put tensors side by side, at most seven in one node, as many as the kernel takes."""
        values = list(values)
        while len(values) > 1:
            groups = [values[k : k + most] for k in range(0, len(values), most)]
            values = [
                self.add("Concat", *one, axis=axis) if len(one) > 1 else one[0] for one in groups
            ]
        return values[0]

    def done(self, value: str, output: str = "") -> list[Node]:
        """Name a value as an output of the node (default: the first), and return all nodes."""
        output = output or self.node.outputs[0]
        if self.nodes and self.nodes[-1].outputs == (value,):
            self.nodes[-1] = replace(self.nodes[-1], outputs=(output,))
            return self.nodes
        name = f"{self.node.name}/identity_{len(self.nodes)}"
        self.nodes.append(Node(name, "Identity", (value,), (output,), {}))
        return self.nodes


def identity(node: Node) -> list[Node]:
    """Pass the first input on as the first output."""
    return [Node(node.name, "Identity", node.inputs[:1], node.outputs[:1], {})]


def text_of(number: int) -> str:
    """Name a type of ONNX."""
    return {1: "float32", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
            16: "bfloat16"}.get(number, f"type {number}")  # fmt: skip
