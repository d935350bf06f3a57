"""Tape of a graph under construction: nodes are recorded in order, shapes inferred at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import Many, Whole, any_type, shown, text
from rpukit.errors import DTypeError, GraphError, NonFiniteError
from rpukit.tiled import ops
from rpukit.tiled.graph.analog import TileRecord
from rpukit.tiled.graph.make import infer
from rpukit.tiled.ir import Node, Tensor

# Outputs that an op always produces, whether or not the caller wants them
_OUTPUTS = {
    "LayerNormalization": 3,
    "BatchNormInternal": 5,
    "SoftmaxCrossEntropyLoss": 2,
}


_TYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "bool")
_LENGTHS = Many(Whole(0, 1 << 40))


def known_type(dtype: Any) -> str:
    """Check the type of a tensor; return its name."""
    name = any_type(dtype).name
    if name not in _TYPES:
        raise DTypeError(f"dtype: got {shown(dtype)}, need one of {', '.join(_TYPES)}")
    return name


def finite_array(value: Any, dtype: str, name: str) -> np.ndarray:
    """Copy initial values or constants: finite numbers of the type of the graph."""
    array = np.array(_device.as_array(value, _device.CPU, np.dtype(dtype), name))
    if not np.isfinite(array).all():
        raise NonFiniteError(f"{name}: got NaN, infinity or a number beyond {dtype}")
    return array


class Sketch:
    """A graph under construction: its nodes, tensors and constants so far.

    Parameters
    ----------
    dtype : {"float32", "float64"}
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.tiles: dict[str, TileRecord] = {}  # analog tiles, by the output of their product

    def tensor(self, name: str, shape: Sequence[int], dtype: str) -> str:
        """Add a tensor that no node produces."""
        if not text(name, "name") or name in self.tensors:
            raise GraphError(f"tensor {name!r}: the name is taken or empty; need a new one")
        self.tensors[name] = Tensor(name, _LENGTHS.take(shape, f"shape of {name}"), dtype)
        return name

    def constant(self, name: str, value: Any) -> str:
        """Add a constant."""
        array = np.array(_device.any_array(value, None, f"constant {name}"))
        if array.dtype.kind not in "iub":
            array = finite_array(array, self.dtype, f"constant {name}")
        self.tensor(name, array.shape, array.dtype.name)
        self.constants[name] = array
        return name

    def number(self, value: float) -> str:
        """Return a constant of one number, which is added at its first use."""
        name = f"number/{value}"
        return name if name in self.constants else self.constant(name, float(value))

    def _zeros(self, like: str) -> str:
        """Return a constant of zeros, for an absent bias."""
        name, shape = f"{like}/no_bias", self.tensors[like].shape
        return name if name in self.constants else self.constant(name, np.zeros(shape))

    def fresh(self, name: str) -> str:
        """Find a name that is not taken."""
        count, found = 1, name
        while found in self.tensors:
            count += 1
            found = f"{name}_{count}"
        return found

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int | Sequence[bool],
        attributes: Mapping[str, Any],
        name: str = "",
    ) -> tuple[str, ...]:
        """Add a node.

        Parameters
        ----------
        op : str
        inputs : sequence of str
        outputs : int or sequence of bool
            How many, or which ones.
        attributes : mapping
        name : str, optional

        Returns
        -------
        tuple of str
            Names of the outputs; "" for those that are not wanted.
        """
        if not (isinstance(op, str) and ops.known(op)):
            raise GraphError(f"unknown op {shown(op)}; need one of rpukit.tiled.ops")
        text(name, "name")
        for source in inputs:
            text(source, "input")
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        wanted += [True] * (_OUTPUTS.get(op, 0) - len(wanted))
        base = self.fresh(name or op.lower())
        made = tuple(
            "" if not want else base if k == 0 else f"{base}/{k}" for k, want in enumerate(wanted)
        )
        unknown = [source for source in inputs if source and source not in self.tensors]
        if unknown:
            raise GraphError(f"node {base} ({op}): unknown input {unknown[0]}")
        self.append(Node(base, op, tuple(inputs), made, dict(attributes)))
        return made

    def append(self, node: Node) -> None:
        """Add a node whose outputs have names, and find the shapes of these.

        Outputs that its gradient needs get names if they have none.
        """
        if node.op == "LayerNormalization" and len([name for name in node.inputs if name]) == 2:
            node = replace(node, inputs=(*node.inputs[:2], self._zeros(node.inputs[1])))
        names = [*node.outputs, *[""] * (_OUTPUTS.get(node.op, 0) - len(node.outputs))]
        if node.op in _OUTPUTS:
            names = [name or self.fresh(f"{node.name}/{k}") for k, name in enumerate(names)]
            node = replace(node, outputs=tuple(names))
        tensors = infer(node, self.tensors)
        for output in filter(None, node.outputs):
            if output in self.tensors:
                raise GraphError(
                    f"node {node.name}: output {output} is already produced by another node"
                )
            if output in tensors:
                self.tensors[output] = tensors[output]
        self.nodes.append(node)

    def ancestors(self, name: str) -> list[Node]:
        """List the nodes that a tensor depends on, in their order."""
        need, found = {name}, []
        for node in reversed(self.nodes):
            if need & set(node.outputs):
                need.update(node.inputs)
                found.append(node)
        return found[::-1]
