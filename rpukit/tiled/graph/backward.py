"""The backward pass under construction: nodes that rules of ops add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rpukit.tiled.graph.tape import Sketch


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

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.sketch.tensors[name].shape

    def need(self, name: str) -> bool:
        """Tell whether the gradient of a tensor is needed."""
        return name in self.needed

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output."""
        return self.sketch.add(op, inputs, 1, attributes)[0]

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

    def give(self, name: str, slope: str) -> None:
        """Record a contribution to the gradient of a tensor."""
        if slope:
            self._parts.setdefault(name, []).append(slope)

    def slope(self, name: str) -> str:
        """Gradient of a tensor: its contributions, added in the order of their creation."""
        parts = self._parts.get(name, [])
        while len(parts) > 1:
            parts[:2] = [self.add("Add", *parts[:2])]
        return parts[0] if parts else ""
