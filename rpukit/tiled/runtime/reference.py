"""Reference execution: a tile by its mirror, a graph node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Array
from rpukit._exact import twins
from rpukit._workers import run_rows
from rpukit.errors import DTypeError, GraphError, ShapeError
from rpukit.tiled import ops
from rpukit.tiled.ir import BaseGraph, Node, Tensor
from rpukit.tiled.runtime import launch as kernels
from rpukit.tiled.tile_space import Box


def mirror(op: ops.Tiled, dtype: Any) -> Any:
    """Find the mirror of an op.

    Parameters
    ----------
    op : Tiled
    dtype : {float32, float64}

    Returns
    -------
    callable
        ``mirror(start, stop, ints, floats, *buffers)`` on flat packed buffers.
    """
    return getattr(_module(op.module, np.dtype(dtype).name), op.kernel)


@lru_cache
def _module(name: str, dtype: str) -> Any:
    return twins.mirror(f"rpukit.tiled._mirror.{name}", np.dtype(dtype))


def run_tile(
    node: Node, tensors: Mapping[str, Tensor], box: Box, buffers: Sequence[Array | None]
) -> None:
    """Compute one tile by the mirror on CPU buffers, or by the kernel on GPU buffers.

    Parameters
    ----------
    node : Node
    tensors : mapping of str to Tensor
    box : Box
    buffers : sequence of array or None
        One for each buffer of the kernel, flat, each the packed rectangle of its operand; None
        where there is no operand.
    """
    op = ops.find(node.op)
    assert isinstance(op, ops.Tiled)
    ints, floats = op.parameters(node, tensors, box)
    buffers = [
        b.view(np.uint16) if b is not None and b.dtype == np.float16 else b for b in buffers
    ]
    xp = _device.namespace(*(buffer for buffer in buffers if buffer is not None))
    if _device.runs_kernels(xp):
        kernels.launch(
            op.kernel, ints, (xp.asarray(ints), xp.asarray(floats)), buffers, op.macros(node)
        )
        return
    nothing = np.empty(0, floats.dtype)
    given = [nothing if buffer is None else buffer for buffer in buffers]
    function, more = mirror(op, floats.dtype), op.arguments(node)
    run_rows(function, int(ints[0]), *more, ints, floats, *given)


def run(graph: BaseGraph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Compute all tensors of a graph, node by node, each as one tile.

    Parameters
    ----------
    graph : Graph
    inputs : mapping of str to array

    Returns
    -------
    dict of str to array

    Raises
    ------
    ShapeError, DTypeError, GraphError
    """
    values = {name: np.array(value, order="C") for name, value in graph.constants.items()}
    for name in graph.inputs:
        values[name] = checked(graph, name, inputs)
    for node in graph.nodes:
        op = ops.find(node.op)
        if op.view:
            shape = graph.tensors[node.outputs[0]].shape
            values[node.outputs[0]] = values[node.inputs[0]].reshape(shape)
            continue
        assert isinstance(op, ops.Tiled)
        space = op.space(node, graph.tensors)
        buffers: list[np.ndarray | None] = [None] * op.buffers
        for operand in space.operands:
            if operand.mode == "out":
                tensor = graph.tensors[operand.tensor]
                values[operand.tensor] = np.empty(tensor.shape, tensor.dtype)
            if operand.alias is not None:
                values[node.outputs[operand.alias]] = values[operand.tensor]
            value = values[operand.tensor]
            if operand.mode != "out":  # windows may not cover all; changed ones are whole rows
                part = tuple(slice(lo, hi) for lo, hi in space.rectangle(operand, space.whole))
                value = np.ascontiguousarray(value[part])
            buffers[operand.slot] = value.reshape(-1)
        run_tile(node, graph.tensors, space.whole, buffers)
    return values


def checked(graph: BaseGraph, name: str, inputs: Mapping[str, Any]) -> np.ndarray:
    """Check the shape and dtype of an input, and copy it."""
    tensor = graph.tensors[name]
    if name not in inputs:
        raise GraphError(f"{graph.name}: input {name} is missing; need {', '.join(graph.inputs)}")
    value = np.array(inputs[name], order="C")
    if value.shape != tensor.shape:
        raise ShapeError(f"{name}: got shape {value.shape}, need {tensor.shape}")
    if value.dtype != tensor.dtype:
        raise DTypeError(f"{name}: got {value.dtype}, need {tensor.dtype}; use .astype")
    return value
