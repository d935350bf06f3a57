"""Analog tiles: the periphery of a product, pulse trains, and the update of the cells in place.

The product itself is `Gemm`. All rounds of bound management are computed in one pass over the
weights, as further samples, and each sample's round is chosen afterwards.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    Numbers,
    Tensors,
    Tiled,
    extents,
    fault,
    numbers,
    present,
)
from rpukit.tiled.ops.updates import InPlace
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, Span, TileSpace, Whole

SLOTS = 31  # pulse slots in one word of a train


class _Analog(Tiled):
    """Base class of analog ops, with their common checks."""

    module = "analog"

    def _need(self, node: Node, tensors: Tensors, place: int, shape: tuple[Any, ...]) -> None:
        """Check the shape of an input; None fits every length."""
        name = node.inputs[place]
        have = tensors[name].shape
        fits = len(have) == len(shape)
        if not fits or any(w not in (None, h) for h, w in zip(have, shape, strict=True)):
            raise fault(node, f"{name}: got shape {have}, need {shape}")

    def _kinds(self, node: Node, tensors: Tensors, kinds: tuple[str, ...]) -> None:
        """Check the dtypes of inputs."""
        for name, kind in zip(node.inputs, kinds, strict=False):
            if name and tensors[name].dtype != kind:
                raise fault(node, f"{name}: got {tensors[name].dtype}, need {kind}")


def _whole(name: str, size: int) -> Axis:
    return Axis(name, size, quantum=max(size, 1))


class Scale(_Analog):
    """Input scaling: x (n_batch, n_in) -> scales (2, n_batch)."""

    kernel, buffers = "tiled_analog_scale", 2

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        self._kinds(node, tensors, ("float32",))
        self._need(node, tensors, 0, (None, None))
        n_batch = tensors[node.inputs[0]].shape[0]
        return [Tensor(node.outputs[0], (2, n_batch), "float32")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n_batch, n_in = tensors[node.inputs[0]].shape
        operands = (
            Operand(node.inputs[0], "in", (Cut(0), Cut(1)), 0),
            Operand(node.outputs[0], "out", (Whole(2), Cut(0)), 1),
        )
        return TileSpace((Axis("n", n_batch), _whole("i", n_in)), operands)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        a = node.attributes
        ints = [*extents(box), a["mode"], a["worst"]]
        return numbers(ints, [a[key] for key in ("threshold", "step", "res", "bound")], "float32")


class Inputs(_Analog):
    """Input conversion: x (n_batch, n_in), scales, clock -> (n_round, n_batch, n_in)."""

    kernel, buffers = "tiled_analog_inputs", 4

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        self._kinds(node, tensors, ("float32", "float32", "int64"))
        x = tensors[node.inputs[0]].shape
        self._need(node, tensors, 1, (2, x[0]))
        self._need(node, tensors, 2, (1,))
        return [Tensor(node.outputs[0], (len(node.attributes["rhos"]), *x), "float32")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n_batch, n_in = tensors[node.inputs[0]].shape
        axes = (Axis("r", len(node.attributes["rhos"])), Axis("n", n_batch), _whole("i", n_in))
        operands = (
            Operand(node.inputs[0], "in", (Cut(1), Cut(2)), 0),
            Operand(node.inputs[1], "in", (Whole(2), Cut(1)), 1),
            Operand(node.inputs[2], "in", (Whole(1),), 2),
            Operand(node.outputs[0], "out", (Cut(0), Cut(1), Cut(2)), 3),
        )
        return TileSpace(axes, operands)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        (r0, r1), (n0, _), _ = box
        rounds, n, n_in = extents(box)
        a = node.attributes
        ints = [rounds * n, n, n_in, r0, n0, a["worst"], a["tag"], *a["key"]]
        return numbers(ints, (*a["io"], *a["rhos"][r0:r1]), "float32")


class Outputs(_Analog):
    """Output conversion: sums (n_round, n_batch, n_out), scales, clock[, deviations] -> y."""

    kernel, buffers = "tiled_analog_outputs", 5

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        self._kinds(node, tensors, ("float32", "float32", "int64", "float32"))
        self._need(node, tensors, 0, (len(node.attributes["rhos"]), None, None))
        _, n_batch, n_out = tensors[node.inputs[0]].shape
        self._need(node, tensors, 1, (2, n_batch))
        self._need(node, tensors, 2, (1,))
        if present(node.inputs, 3):
            self._need(node, tensors, 3, (n_out,))
        return [Tensor(node.outputs[0], (n_batch, n_out), "float32")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        rounds, n_batch, n_out = tensors[node.inputs[0]].shape
        axes = (Axis("n", n_batch), _whole("r", rounds), _whole("o", n_out))
        operands = [
            Operand(node.inputs[0], "in", (Cut(1), Cut(0), Cut(2)), 0),
            Operand(node.inputs[1], "in", (Whole(2), Cut(0)), 1),
            Operand(node.inputs[2], "in", (Whole(1),), 2),
        ]
        if present(node.inputs, 3):
            operands.append(Operand(node.inputs[3], "in", (Cut(2),), 3))
        operands.append(Operand(node.outputs[0], "out", (Cut(0), Cut(2)), 4))
        return TileSpace(axes, tuple(operands))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        n, rounds, n_out = extents(box)
        a = node.attributes
        noisy = bool(present(node.inputs, 3))
        ints = [n, rounds, n_out, box[0][0], a["worst"], noisy, a["tag"], *a["key"]]
        return numbers(ints, (*a["io"], *a["rhos"]), "float32")


class Trains(_Analog):
    """Pulse trains: x (n_batch, n_in), d (n_batch, n_out), clock -> trains of both."""

    kernel, buffers = "tiled_analog_trains", 5

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        self._kinds(node, tensors, ("float32", "float32", "int64"))
        (n_batch, n_in), words = tensors[node.inputs[0]].shape, node.attributes["words"]
        self._need(node, tensors, 1, (n_batch, None))
        self._need(node, tensors, 2, (1,))
        sizes = (n_in, tensors[node.inputs[1]].shape[1])
        return [
            Tensor(name, (n_batch, words, size), "uint32")
            for name, size in zip(node.outputs, sizes, strict=True)
        ]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        (n_batch, n_in), (_, n_out) = (tensors[name].shape for name in node.inputs[:2])
        words = node.attributes["words"]
        axes = (Axis("n", n_batch), _whole("i", n_in), _whole("o", n_out))
        operands = (
            Operand(node.inputs[0], "in", (Cut(0), Cut(1)), 0),
            Operand(node.inputs[1], "in", (Cut(0), Cut(2)), 1),
            Operand(node.inputs[2], "in", (Whole(1),), 2),
            Operand(node.outputs[0], "out", (Cut(0), Whole(words), Cut(1)), 3),
            Operand(node.outputs[1], "out", (Cut(0), Whole(words), Cut(2)), 4),
        )
        # An element is a slot of the train of one line, not a pair of lines of x and d.
        slots = words * SLOTS * (n_in + n_out)
        return TileSpace(axes, operands, divide=max(1, n_in * n_out // max(slots, 1)))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        a = node.attributes
        whole = [a["length"], a["unit_scale"], a["managed"], a["managed_length"], a["rounding"]]
        ints = [*extents(box), a["words"], box[0][0], *whole, a["coding"], *a["key"]]
        floats = [abs(a["lr"]), a["granularity"], a["grad_scale"], a["x_res"], a["d_res"]]
        return numbers(ints, floats, "float32")


class Cells(_Analog, InPlace):
    """Pulsed update in place: weights (n_out, n_in), planes of cells, model, trains, clock."""

    kernel, buffers = "tiled_analog_update", 6

    def __init__(self) -> None:
        InPlace.__init__(self, "AnalogUpdate", [0], 6)

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        kinds = ("float32", "float32", "float32", "uint32", "uint32", "int64")
        self._kinds(node, tensors, kinds)
        n_out, n_in = tensors[node.inputs[0]].shape
        self._need(node, tensors, 1, (None, n_out, n_in))
        self._need(node, tensors, 3, (None, None, n_in))
        self._need(node, tensors, 4, (*tensors[node.inputs[3]].shape[:2], n_out))
        self._need(node, tensors, 5, (1,))
        return [Tensor(node.outputs[0], (n_out, n_in), "float32")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n_out, n_in = tensors[node.inputs[0]].shape
        shapes = [tensors[name].shape for name in node.inputs]
        spans: list[tuple[Span, ...]] = [
            (Cut(0), Cut(1)),
            (Whole(shapes[1][0]), Cut(0), Cut(1)),
            (Whole(shapes[2][0]),),
            (Cut(2), Whole(shapes[3][1]), Cut(1)),
            (Cut(2), Whole(shapes[4][1]), Cut(0)),
            (Whole(1),),
        ]
        operands = tuple(
            Operand(name, "in" if slot else "inout", spans[slot], slot, None if slot else 0)
            for slot, name in enumerate(node.inputs)
        )
        axes = (Axis("o", n_out), _whole("i", n_in), _whole("n", shapes[3][0]))
        return TileSpace(axes, operands, divide=2)  # for most samples only two words are read

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        a = node.attributes
        n_plane, words = tensors[node.inputs[1]].shape[0], tensors[node.inputs[3]].shape[1]
        ints = [*extents(box), words, n_plane, box[0][0], a["flip"], a["coding"], *a["key"]]
        return numbers(ints, (), "float32")

    def arguments(self, node: Node) -> tuple[Any, ...]:
        steps = import_module("rpukit.analog._steps")
        name = node.attributes["step"]
        run = steps.RUNS.get(name) if node.attributes["has_run"] else None
        blank = (np.float32(0),) * node.attributes["n_plane"]
        return steps.STEPS[name], run or steps.no_run, name in steps.DEAR, blank

    def macros(self, node: Node) -> dict[str, Any]:
        a = node.attributes
        names = ("STEP", "HAS_RUN", "N_PLANE", "N_GLOBAL", "N_WORD", "IMPLICIT")
        keys = ("step", "has_run", "n_plane", "n_global", "words", "coding")
        return {name: a[key] for name, key in zip(names, keys, strict=True)}


class Rank(_Analog, InPlace):
    """Update of ideal cells in place: weights, x, d -> weights - lr d x^T."""

    kernel, buffers = "tiled_rank_update", 3

    def __init__(self) -> None:
        InPlace.__init__(self, "AnalogRankUpdate", [0], 3)

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        self._kinds(node, tensors, ("float32",) * 3)
        n_out, n_in = tensors[node.inputs[0]].shape
        self._need(node, tensors, 1, (None, n_in))
        self._need(node, tensors, 2, (tensors[node.inputs[1]].shape[0], n_out))
        return [Tensor(node.outputs[0], (n_out, n_in), "float32")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        n_out, n_in = tensors[node.inputs[0]].shape
        n_batch = tensors[node.inputs[1]].shape[0]
        operands = (
            Operand(node.inputs[0], "inout", (Cut(0), Cut(1)), 0, 0),
            Operand(node.inputs[1], "in", (Cut(2), Cut(1)), 1),
            Operand(node.inputs[2], "in", (Cut(2), Cut(0)), 2),
        )
        axes = (Axis("o", n_out), Axis("i", n_in), _whole("n", n_batch))
        return TileSpace(axes, operands, product=True)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        return numbers(extents(box), [node.attributes["lr"]], "float32")


class Clock(_Analog, InPlace):
    """Advance a clock in place by the attribute `by`."""

    kernel, buffers = "tiled_advance", 1

    def __init__(self) -> None:
        InPlace.__init__(self, "AdvanceClock", [0], 1)

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        self._kinds(node, tensors, ("int64",))
        self._need(node, tensors, 0, (1,))
        return [Tensor(node.outputs[0], (1,), "int64")]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        clock = Operand(node.inputs[0], "inout", (Whole(1),), 0, 0)
        return TileSpace((_whole("one", 1),), (clock,))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        return numbers([1, node.attributes["by"]], (), "float32")


OPS = [
    Scale("AnalogScale", (1, 1)),
    Inputs("AnalogInputs", (3, 3)),
    Outputs("AnalogOutputs", (3, 4)),
    Trains("AnalogTrains", (3, 3), (2, 2)),
    Cells(),
    Rank(),
    Clock(),
]
