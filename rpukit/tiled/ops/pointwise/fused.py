"""`FusedPointwise`: a chain of elementwise steps as one op of one kernel."""

from __future__ import annotations

import math
from typing import Any

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    Numbers,
    Tensors,
    Tiled,
    by_slot,
    extents,
    fault,
    numbers,
    real_of,
    spans_of,
    strides_by_axis,
)
from rpukit.tiled.ops.elementwise import AXES, KINDS
from rpukit.tiled.ops.pointwise.chain import (
    CONSTANTS,
    INPUTS,
    LENGTH,
    PLACES,
    RESULTS,
    split,
)
from rpukit.tiled.tile_space import Axis, Box, Cut, Operand, Span, TileSpace, Whole, Window

_VALUES = INPUTS + CONSTANTS + PLACES


class FusedPointwise(Tiled):
    """Chain of elementwise steps, whose results between steps are stored nowhere.

    Notes
    -----
    Attributes: ``shape`` of the results; ``steps``, ``constants`` and ``results`` as in `Chain`;
    ``axes``: for each input, the axis that each of its dimensions follows, -1 for none and in
    front up to four; ``starts``, optional: where the part of each input begins that is read, as
    many numbers as `axes`; ``ops``: what was fused, for readers.
    """

    kernel, module, buffers = "tiled_fused", "elementwise", INPUTS + RESULTS

    def __init__(self) -> None:
        super().__init__("FusedPointwise", (0, INPUTS), (1, RESULTS))

    def axes(self, node: Node, tensors: Tensors) -> list[tuple[int, ...]]:
        """Split the attribute `axes`: the axes that each input follows."""
        return self._by_input(node, tensors, "axes")

    def _by_input(self, node: Node, tensors: Tensors, key: str) -> list[tuple[int, ...]]:
        """Split an attribute of four numbers for each input."""
        flat = tuple(node.attributes[key])
        if len(flat) != AXES * len(node.inputs):
            raise fault(node, f"{key}: got {len(flat)}, need {AXES} for each input")
        ranks = [len(tensors[name].shape) for name in node.inputs]
        return [flat[AXES * (k + 1) - rank : AXES * (k + 1)] for k, rank in enumerate(ranks)]

    def spans(self, node: Node, tensors: Tensors) -> list[tuple[Span, ...]]:
        """Find how the dimensions of each input follow from a box: cut, whole, or a part of it."""
        shape, every = tuple(node.attributes["shape"]), self.axes(node, tensors)
        parts = "starts" in node.attributes
        firsts = self._by_input(node, tensors, "starts") if parts else [(0,) * AXES] * len(every)
        found = []
        for name, axes, first in zip(node.inputs, every, firsts, strict=True):
            own = tensors[name].shape
            moving = [axis for axis in axes if axis != -1]
            fits = len(axes) == len(own) and len(set(moving)) == len(moving)
            spans: list[Span] = []
            for axis, begin, n in zip(axes, first, own, strict=False):
                inside = -1 <= axis < len(shape) and begin >= 0
                length = shape[axis] if inside and axis >= 0 else 1
                part = parts and axis >= 0
                fits = fits and inside and (begin + length <= n if part else length == n)
                whole = Whole(n) if axis < 0 else Cut(axis)
                spans.append(whole if length == n else Window(Cut(axis), n, 1, -begin, 1))
            if not fits:
                raise fault(node, f"{name} of shape {own} does not follow axes {axes} of {shape}")
            found.append(tuple(spans))
        return found

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        missing = [
            key for key in ("shape", "steps", "results", "axes") if key not in node.attributes
        ]
        if missing:
            raise fault(node, f"attributes {', '.join(missing)} are missing; use fuse_pointwise")
        shape = tuple(node.attributes["shape"])
        kind = real_of(node, tensors)
        if len(shape) > AXES:
            raise fault(node, f"shape: got {len(shape)} axes, need at most {AXES}")
        self.spans(node, tensors)
        self._check_chain(node)
        return [Tensor(name, shape, kind) for name in node.outputs]

    def _check_chain(self, node: Node) -> None:
        """Check that steps read what is there, and that results are made."""
        steps, results = tuple(node.attributes["steps"]), tuple(node.attributes["results"])
        n_constants = len(node.attributes.get("constants", ()))
        known = {*range(len(node.inputs)), *range(INPUTS, INPUTS + n_constants)}
        good = 0 < len(steps) <= LENGTH and n_constants <= CONSTANTS
        good = good and len(results) == len(node.outputs)
        for kind, made, operands in split(steps) if good else ():
            good = (
                good and 0 <= kind < len(KINDS) and known.issuperset(operands) and bool(operands)
            )
            good = good and INPUTS + CONSTANTS <= made < _VALUES
            known.add(made)
        if not (good and known.issuperset(results)):
            raise fault(node, "steps, constants and results do not match; use fuse_pointwise")

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        shape = tuple(node.attributes["shape"])
        operands = [
            Operand(name, "in", spans, slot)
            for slot, (name, spans) in enumerate(
                zip(node.inputs, self.spans(node, tensors), strict=True)
            )
        ]
        operands += [
            Operand(name, "out", spans_of(shape, range(len(shape))), INPUTS + k)
            for k, name in enumerate(node.outputs)
        ]
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(shape))
        return TileSpace(axes, tuple(operands), steps=len(split(node.attributes["steps"])))

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space, steps = self.space(node, tensors), node.attributes["steps"]
        pad = (0,) * (AXES - len(box))
        sizes = (*(1,) * len(pad), *extents(box))
        ints = [math.prod(sizes[:3]), len(steps), *sizes]
        for slot in range(self.buffers):
            ints += (*pad, *strides_by_axis(space, by_slot(space, slot), box, len(box)))
        results = node.attributes["results"]
        ints += (*results, *(-1,) * (RESULTS - len(results)))
        ints += (*steps, *(0,) * (LENGTH + 4 - len(steps)))
        constants = node.attributes.get("constants", ())
        return numbers(ints, constants, tensors[node.outputs[0]].dtype)

    def macros(self, node: Node) -> dict[str, Any]:
        a = node.attributes
        return {
            "CHAIN": ",".join(map(str, a["steps"])),
            "RESULTS": ",".join(map(str, a["results"])),
            "INPUTS": len(node.inputs),
            "CONSTANTS": len(a.get("constants", ())),
        }


OPS = [FusedPointwise()]
