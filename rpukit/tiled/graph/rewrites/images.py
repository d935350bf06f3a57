"""Convolutions, pools and resizing: of one axis as of two, with explicit paddings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from rpukit.tiled.graph.rewrites.moves import repeated
from rpukit.tiled.graph.rewrites.reading import MOST_ELEMENTS, Parts, Reading, Rewrite
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["REWRITES"]

_KINDS = {"Conv": "Conv", "MaxPool": "MaxPool", "AveragePool": "AveragePool"}


class _Windows:
    """Windows over an image of one or two axes, whose attributes are made explicit.

    Attributes
    ----------
    shape : tuple of int
        Of the image, (N, C, ...).
    kernel, strides, dilations, pads : list of int
    """

    def __init__(self, node: Node, reading: Reading, kernel: tuple[int, ...]) -> None:
        self.node, self.shape = node, reading.shape(node, node.inputs[0])
        self.axes = len(self.shape) - 2
        if self.axes not in (1, 2) or len(kernel) != self.axes:
            raise fault(node, f"got shape {self.shape}, need one or two axes of an image")
        self.kernel = list(kernel)
        self.strides = list(attribute(node, "strides", (1,) * self.axes))
        self.dilations = list(attribute(node, "dilations", (1,) * self.axes))
        self.pads = list(attribute(node, "pads", (0,) * 2 * self.axes))
        self._pad()
        if attribute(node, "ceil_mode", 0):
            self._ceil()

    def _reach(self, i: int) -> int:
        return int((self.kernel[i] - 1) * self.dilations[i] + 1)

    def _pad(self) -> None:
        """Compute the paddings that auto_pad stands for."""
        manner = attribute(self.node, "auto_pad", "NOTSET") or "NOTSET"
        if manner == "VALID":
            self.pads = [0] * 2 * self.axes
        elif manner != "NOTSET":
            for i, n in enumerate(self.shape[2:]):
                wanted = (-(-n // self.strides[i]) - 1) * self.strides[i] + self._reach(i)
                total = max(0, wanted - n)
                less, more = total // 2, total - total // 2
                pair = (less, more) if manner == "SAME_UPPER" else (more, less)
                self.pads[i], self.pads[i + self.axes] = pair

    def _ceil(self) -> None:
        """Pad at the end what the last window needs; it begins within the image."""
        for i, n in enumerate(self.shape[2:]):
            at, stride = self.pads[i], self.strides[i]
            far = n + at + self.pads[i + self.axes] - self._reach(i)
            count = -(-far // stride)
            if count * stride >= n + at:
                count -= 1
            extra = count * stride - far
            if extra > 0 and attribute(self.node, "count_include_pad", 0):
                raise fault(self.node, "ceil_mode with count_include_pad is not supported")
            self.pads[i + self.axes] += max(0, extra)

    def attributes(self) -> dict[str, Any]:
        """Attributes of windows over two axes; the first has one pixel where there is one axis."""
        one = self.axes == 1
        first, last = self.pads[: self.axes], self.pads[self.axes :]
        made: dict[str, Any] = {
            "kernel_shape": (1,) * one + tuple(self.kernel),
            "strides": (1,) * one + tuple(self.strides),
            "pads": (*(0,) * one, *first, *(0,) * one, *last),
        }
        if any(n != 1 for n in self.dilations):
            made["dilations"] = (1,) * one + tuple(self.dilations)
        for name in ("group", "count_include_pad"):
            if name in self.node.attributes:
                made[name] = self.node.attributes[name]
        return made


def _plain(node: Node) -> bool:
    """Tell whether the attributes of windows need no change."""
    manner = attribute(node, "auto_pad", "NOTSET") or "NOTSET"
    return manner == "NOTSET" and not attribute(node, "ceil_mode", 0)


def _with_row(parts: Parts, x: str, shape: tuple[int, ...]) -> str:
    """Give an image of one axis a second one, of one pixel."""
    return parts.reshape(x, (*shape[:2], 1, *shape[2:])) if len(shape) == 3 else x


def _without_row(parts: Parts, x: str, shape: tuple[int, ...]) -> str:
    return parts.add("Squeeze", x, axes=(2,)) if len(shape) == 3 else x


def _windows(node: Node, reading: Reading) -> list[Node]:
    """Convolution or pool."""
    shape = reading.shapes.get(node.inputs[0], ())
    if len(shape) not in (0, 3) and _plain(node):
        return [node]
    parts, (x, *weights) = Parts(node, reading), node.inputs
    kernel = (
        reading.shape(node, weights[0])[2:] if weights else attribute(node, "kernel_shape", ())
    )
    windows = _Windows(node, reading, tuple(kernel))
    if weights:
        weights[0] = _with_row(parts, weights[0], reading.shape(node, weights[0]))
    image = _with_row(parts, x, windows.shape)
    made = parts.add(_KINDS[node.op], image, *weights, **windows.attributes())
    return parts.done(_without_row(parts, made, windows.shape))


def _global_pool(node: Node, reading: Reading) -> list[Node]:
    shape = reading.shapes.get(node.inputs[0], ())
    if node.op == "GlobalAveragePool" and len(shape) in (0, 4):
        return [node]
    parts, shape = Parts(node, reading), reading.shape(node, node.inputs[0])
    if node.op == "GlobalAveragePool":
        axes = tuple(range(2, len(shape)))
        return parts.done(parts.add("ReduceMean", node.inputs[0], axes=axes, keepdims=1))
    image = parts.reshape(node.inputs[0], (*shape[:2], 1, math.prod(shape[2:])))
    kernel = {"kernel_shape": (1, math.prod(shape[2:])), "strides": (1, 1)}
    ones = (1,) * (len(shape) - 2)
    return parts.done(parts.reshape(parts.add("MaxPool", image, **kernel), (*shape[:2], *ones)))


def _turned_convolution(node: Node, reading: Reading) -> list[Node]:
    """ConvTranspose is the gradient of a convolution by its input."""
    parts, (x, w) = Parts(node, reading), node.inputs[:2]
    shape, own = reading.shape(node, x), reading.shape(node, w)
    axes, group = len(shape) - 2, attribute(node, "group", 1)
    strides = tuple(attribute(node, "strides", (1,) * axes))
    dilations = tuple(attribute(node, "dilations", (1,) * axes))
    more = tuple(attribute(node, "output_padding", (0,) * axes))
    pads = list(attribute(node, "pads", (0,) * 2 * axes))
    told, manner = attribute(node, "output_shape", ()), attribute(node, "auto_pad", "NOTSET")
    image = []
    for i, n in enumerate(shape[2:]):
        whole = strides[i] * (n - 1) + more[i] + (own[2 + i] - 1) * dilations[i] + 1
        if told or manner not in ("NOTSET", "VALID", ""):
            total = max(0, whole - (told[-axes:][i] if told else n * strides[i]))
            half = total // 2 if manner == "SAME_UPPER" else total - total // 2
            pads[i], pads[i + axes] = (half, total - half)
        image.append(whole - pads[i] - pads[i + axes])
    row, channels = (1,) * (axes == 1), own[1] * group
    first = _with_row(parts, x, shape)
    attributes: dict[str, Any] = {
        "group": group, "strides": (*row, *strides), "dilations": (*row, *dilations),
        "pads": (*(0,) * len(row), *pads[:axes], *(0,) * len(row), *pads[axes:]),
        "kernel_shape": (*row, *own[2:]), "input_shape": (shape[0], channels, *row, *image),
    }  # fmt: skip
    y = parts.add("ConvGradX", first, _with_row(parts, w, own), **attributes)
    y = _without_row(parts, y, shape)
    if present(node.inputs, 2):
        y = parts.add("Add", y, parts.reshape(node.inputs[2], (channels, *(1,) * axes)))
    return parts.done(y)


def _resize(node: Node, reading: Reading) -> list[Node]:
    """Resize each axis by a product with a constant matrix, or by repetition."""
    parts, x = Parts(node, reading), node.inputs[0]
    shape, whole = list(reading.shape(node, x)), reading.shape(node, node.outputs[0])
    if attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise fault(node, "coordinate_transformation_mode: tf_crop_and_resize is not supported")
    for axis, (n, size) in enumerate(zip(tuple(shape), whole, strict=True)):
        if n == size:
            continue
        parts.bound(n * size, MOST_ELEMENTS, "elements of a matrix")
        matrix = _resizing(node, reading, axis, n, size)
        times = size // n
        if size % n == 0 and np.array_equal(matrix, np.repeat(np.eye(n), times, 0)):
            x = repeated(parts, x, shape, axis, times, each=True)
        elif axis == len(shape) - 1:
            turned = parts.array(np.ascontiguousarray(matrix.T))
            rows = parts.add("MatMul", parts.reshape(x, (-1, n)), turned)
            x = parts.reshape(rows, (*shape[:axis], size))
        else:
            rest = math.prod(shape[axis + 1 :])
            made = parts.add("MatMul", parts.array(matrix), parts.reshape(x, (-1, n, rest)))
            x = parts.reshape(made, (*shape[:axis], size, *shape[axis + 1 :]))
        shape[axis] = size
    return parts.done(x)


def _resizing(node: Node, reading: Reading, axis: int, n: int, size: int) -> np.ndarray:
    """Compute the matrix (size, n) of a resized axis: what the node makes of unit vectors."""
    onnx = import_module("onnx")
    names = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a",
             "exclude_outside", "antialias")  # fmt: skip
    attributes = {key: value for key, value in node.attributes.items() if key in names}
    scales = reading.constants.get(present(node.inputs, 2 if node.op == "Resize" else 1))
    given = {"x": np.eye(n, dtype=np.float64)}
    if scales is not None and scales.size:
        given["scales"] = np.array([scales.reshape(-1)[axis], 1.0], np.float32)
        inputs = ["x", "", "scales"]
    else:
        given["sizes"] = np.array([size, n], np.int64)
        inputs = ["x", "", "", "sizes"]
    helper = onnx.helper
    one = helper.make_node("Resize", inputs, ["y"], **attributes)
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    end = [helper.make_empty_tensor_value_info("y")]
    opset = helper.make_opsetid("", max(reading.opset, 18))
    model = helper.make_model(helper.make_graph([one], "g", values, end), opset_imports=[opset])
    try:
        (made,) = import_module("onnx.reference").ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # of any class: the evaluator lacks a mode
        raise fault(node, f"attributes {attributes}: cannot be evaluated: {error}") from None
    if made.shape != (size, n):
        raise fault(node, f"axis {axis}: got {made.shape[0]} elements, need {size}")
    return np.asarray(made, np.float64)


def _loss_of_pixels(node: Node, reading: Reading) -> list[Node]:
    """Scores (N, C, ...) and labels (N, ...) become rows."""
    shape = reading.shapes.get(node.inputs[0], ())
    if len(shape) <= 2:
        return [node]
    if any(node.outputs[1:]):
        raise fault(node, "log-probabilities of more than two axes are not supported")
    parts, (scores, labels, *rest) = Parts(node, reading), node.inputs
    order = (0, *range(2, len(shape)), 1)
    rows = parts.reshape(parts.add("Transpose", scores, perm=order), (-1, shape[1]))
    flat = parts.reshape(labels, (math.prod(shape) // shape[1],))
    return parts.done(parts.add(node.op, rows, flat, *rest, **node.attributes))


REWRITES: Mapping[str, Rewrite] = {
    "AveragePool": _windows,
    "Conv": _windows,
    "ConvTranspose": _turned_convolution,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "MaxPool": _windows,
    "NegativeLogLikelihoodLoss": _loss_of_pixels,
    "Resize": _resize,
    "SoftmaxCrossEntropyLoss": _loss_of_pixels,
    "Upsample": _resize,
}
