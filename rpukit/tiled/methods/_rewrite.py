"""Copies of builders with other nodes, for methods that change the forward pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rpukit.tiled.graph.builder import Builder
from rpukit.tiled.graph.make import make_graph
from rpukit.tiled.ir import Node, Tensor

__all__ = ["PRODUCTS", "Rewriter", "short_constant"]

PRODUCTS = ("Gemm", "MatMul", "Conv")


class Rewriter:
    """Copies a builder node by node; the given one is not changed.

    Parameters
    ----------
    builder : Builder
    fixed : collection of str
        Parameters that become constants.
    """

    def __init__(self, builder: Builder, fixed: Collection[str] = ()) -> None:
        self.source = builder
        self.sketch = builder._sketch
        self.made = made = Builder(builder.name, dtype=self.sketch.dtype)
        for name in builder._inputs:
            tensor = self.sketch.tensors[name]
            made.input(name, tensor.shape, tensor.dtype)
        for name, value in builder._parameters.items():
            if name in fixed:
                made.constant(name, value)
            else:
                made.parameter(name, value)
        for name, value in builder._kept.items():
            made._keep(name, value)
        for name, value in self.sketch.constants.items():
            made.constant(name, value)
        made._sketch.tiles.update(self.sketch.tiles)
        made._fuse = builder._fuse

    @property
    def values(self) -> Mapping[str, np.ndarray]:
        """Values of parameters and constants of the given builder."""
        return {**self.sketch.constants, **self.source._parameters}

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor of the given builder."""
        return self.sketch.tensors[name].shape

    def copy(self, node: Node, named: Mapping[str, str], output: str = "") -> None:
        """Copy a node that reads other tensors, and may have another name for its output."""
        inputs = tuple(named.get(name, name) for name in node.inputs)
        outputs = (output, *node.outputs[1:]) if output else node.outputs
        self.made._sketch.append(replace(node, inputs=inputs, outputs=outputs))

    def number(self, value: float) -> str:
        """Return a constant of one number."""
        return self.made._sketch.number(value)


def short_constant(values: Sequence[np.ndarray], to: str) -> np.ndarray:
    """Round a constant to int8 or float16.

    Parameters
    ----------
    values : sequence of array
        The constant and, for int8, its scale.
    to : {"int8", "float16"}

    Returns
    -------
    array
        The bits of the op `Quantize`.
    """
    given = {f"x{k}": value for k, value in enumerate(values)}
    node = Node("short", "Quantize", tuple(given), ("short",), {"to": to})
    inputs = [Tensor(name, value.shape, value.dtype.name) for name, value in given.items()]
    return make_graph("short", [node], inputs, ["short"]).run(given)["short"]
