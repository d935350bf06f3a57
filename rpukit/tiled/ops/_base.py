"""Base classes of ops: shape inference, tile space, and kernel parameters of one tile."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rpukit.errors import GraphError
from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.tile_space import Box, Cut, Operand, Span, TileSpace, Whole, Window, axis_of

Tensors = Mapping[str, Tensor]
Numbers = tuple[np.ndarray, np.ndarray]
REALS = ("float32", "float64")


class Op(ABC):
    """Base class of ops: name, number of inputs and outputs, shape inference.

    Parameters
    ----------
    name : str
    n_inputs, n_outputs : tuple of int
        Least and greatest number.
    """

    view = False

    def __init__(
        self, name: str, n_inputs: tuple[int, int], n_outputs: tuple[int, int] = (1, 1)
    ) -> None:
        self.name, self.n_inputs, self.n_outputs = name, n_inputs, n_outputs

    def check(self, node: Node, tensors: Tensors) -> None:
        """Check the numbers of a node's inputs and outputs, and that its inputs are known."""
        for kind, names, (least, most) in (
            ("inputs", node.inputs, self.n_inputs),
            ("outputs", node.outputs, self.n_outputs),
        ):
            if not least <= len(names) <= most or not all(names[:least]):
                raise fault(node, f"got {len(names)} {kind}, need {least} to {most}")
        for name in filter(None, node.inputs):
            if name not in tensors:
                raise fault(node, f"unknown input {name}")

    @abstractmethod
    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        """Infer shapes and dtypes of the outputs that are present.

        Raises
        ------
        GraphError
        """

    def aliases(self, node: Node) -> list[tuple[str, str]]:
        """List (output, input) that share memory."""
        return []


class Tiled(Op):
    """Base class of ops that a kernel computes, tile by tile.

    Attributes
    ----------
    kernel : str
        Name of the kernel, of its mirror and of its C function.
    module : str
        The file of the mirror, in ``rpukit.tiled._mirror``.
    buffers : int
        How many buffers the kernel takes; see `Operand.slot`.
    """

    kernel = ""
    module = ""
    buffers = 0

    @abstractmethod
    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        """Return the legal tilings of a node."""

    @abstractmethod
    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        """Compute the numbers that a kernel needs for one tile.

        Returns
        -------
        ints : array, int64
            The first is the number of rows: independent parts that run in parallel.
        floats : array, dtype of the output
        """

    def arguments(self, node: Node) -> tuple[Any, ...]:
        """Return the functions and constants that the mirror takes before the numbers."""
        return ()

    def macros(self, node: Node) -> dict[str, Any]:
        """Return the macros that the kernel is compiled with, besides the type."""
        return {}


def fault(node: Node, text: str) -> GraphError:
    """Make the error of a node."""
    return GraphError(f"node {node.name} ({node.op}): {text}")


def real_of(node: Node, tensors: Tensors, *places: int) -> str:
    """Find the float dtype that inputs share."""
    names = [node.inputs[i] for i in places] if places else [n for n in node.inputs if n]
    kinds = {tensors[name].dtype for name in names}
    if len(kinds) != 1 or not kinds <= set(REALS):
        raise fault(node, f"inputs have dtypes {sorted(kinds)}, need all float32 or all float64")
    return kinds.pop()


def attribute(node: Node, name: str, default: Any) -> Any:
    """Read an attribute."""
    return node.attributes.get(name, default)


def present(names: Sequence[str], place: int) -> str:
    """Name the input or output at a place; "" where it is absent."""
    return names[place] if place < len(names) else ""


def extents(rectangle: Box) -> tuple[int, ...]:
    """Compute the lengths of a box or rectangle."""
    return tuple(hi - lo for lo, hi in rectangle)


def packed(lengths: Sequence[int]) -> tuple[int, ...]:
    """Compute the strides, in elements, of a packed array of these lengths."""
    return tuple(math.prod(lengths[i + 1 :]) for i in range(len(lengths)))


def spans_of(shape: Sequence[int], axes: Sequence[int]) -> tuple[Span, ...]:
    """Make spans that cut each dimension along its axis; one without an axis (-1) is whole."""
    return tuple(
        Whole(size) if axis < 0 else Cut(axis) for size, axis in zip(shape, axes, strict=True)
    )


def strides_by_axis(
    space: TileSpace, operand: Operand | None, box: Box, n_axes: int
) -> tuple[int, ...]:
    """Compute strides of a packed operand along the first axes of a space; 0 where constant."""
    found = [0] * n_axes
    if operand is not None:
        steps = packed(extents(space.rectangle(operand, box)))
        for span, step in zip(operand.spans, steps, strict=True):
            if isinstance(span, Cut):
                found[span.axis] = step
            elif isinstance(span, Window):  # of one element: a slice
                found[axis_of(span)] = step * span.stride
    return tuple(found)


def by_slot(space: TileSpace, slot: int) -> Operand | None:
    """Find the operand of a buffer; None if it is absent."""
    return next((operand for operand in space.operands if operand.slot == slot), None)


def numbers(ints: Sequence[int], floats: Sequence[float], dtype: str) -> Numbers:
    """Make the arrays of a kernel's parameters."""
    return np.array(ints, np.int64), np.array(floats, dtype)
