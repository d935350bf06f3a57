"""The backward pass under construction: nodes that rules of ops add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rpukit.tiled.graph.tape import Sketch
from rpukit.tiled.ir import Node

_MOST = 7  # inputs of a Concat


class Backward:
    """Adds the nodes of a backward pass to a sketch.

    Parameters
    ----------
    sketch : Sketch
    wanted : iterable of str
        Tensors whose gradients are needed.
    """

    def __init__(self, sketch: Sketch, wanted: Iterable[str]) -> None:
        self.sketch = sketch
        self.needed = set(wanted)  # these, and all tensors that depend on them
        self.changed: list[str] = []  # tensors that analog tiles change in place
        self._parts: dict[str, list[str]] = {}
        self._places: dict[str, Node] = {}  # parts within zeros, by their names

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.sketch.tensors[name].shape

    def need(self, name: str) -> bool:
        """Tell whether the gradient of a tensor is needed."""
        return name in self.needed

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output."""
        made = self.sketch.add(op, inputs, 1, attributes)[0]
        if op == "Place":
            self._places[made] = self.sketch.nodes[-1]
        return made

    def like(self, value: str, shape: Sequence[int]) -> str:
        """Reshape a value."""
        same = self.shape(value) == tuple(shape)
        return value if same else self.add("Reshape", value, shape=tuple(shape))

    def times(self, value: str, factor: float) -> str:
        """Multiply by a number."""
        return value if factor == 1 else self.add("Mul", value, self.sketch.number(factor))

    def summed_to(self, value: str, name: str) -> str:
        """Undo a broadcast: sum a gradient down to the shape of a tensor."""
        have, want = self.shape(value), self.shape(name)
        ahead = len(have) - len(want)
        axes = [*range(ahead)]
        axes += [ahead + i for i, n in enumerate(want) if n == 1 and have[ahead + i] != 1]
        total = self.add("ReduceSum", value, axes=tuple(axes), keepdims=1) if axes else value
        return self.like(total, want)

    def _covering(self, parts: Sequence[str]) -> list[Node]:
        """Find the nodes that place parts within zeros, in order, if these cover one axis."""
        if len(parts) < 2 or not all(part in self._places for part in parts):
            return []
        nodes = [self._places[part] for part in parts]
        axes = {node.attributes["axis"] for node in nodes}
        nodes.sort(key=lambda node: node.attributes["before"])
        end = 0
        for node in nodes:
            if len(axes) > 1 or node.attributes["before"] != end:
                return []
            end += self.shape(node.inputs[0])[node.attributes["axis"]]
        return nodes if end == nodes[0].attributes["size"] else []

    def _drop(self, nodes: Sequence[Node]) -> None:
        """Remove nodes whose outputs nothing reads."""
        gone = {node.outputs[0] for node in nodes}
        self.sketch.nodes[:] = [n for n in self.sketch.nodes if n.outputs[0] not in gone]
        for name in gone:
            del self.sketch.tensors[name]

    def give(self, name: str, slope: str) -> None:
        """Record a contribution to the gradient of a tensor."""
        if slope:
            self._parts.setdefault(name, []).append(slope)

    def slope(self, name: str) -> str:
        """Gradient of a tensor: its contributions, added in the order of their creation.

        Those of slices that cover the tensor are put side by side instead. Zero is added to them,
        as in the sum, so that a negative zero becomes a positive one.
        """
        parts = self._parts.get(name, [])
        places = self._covering(parts)
        if places:
            self._drop(places)
            values = [node.inputs[0] for node in places]
            axis = places[0].attributes["axis"]
            while len(values) > 1:
                groups = [values[k : k + _MOST] for k in range(0, len(values), _MOST)]
                values = [
                    self.add("Concat", *one, axis=axis) if len(one) > 1 else one[0]
                    for one in groups
                ]
            parts[:] = [self.add("Add", values[0], self.sketch.number(0.0))]
        while len(parts) > 1:
            parts[:2] = [self.add("Add", *parts[:2])]
        return parts[0] if parts else ""
