"""Running nodes tile by tile in the plainest way, to compare with the whole."""

from __future__ import annotations

import numpy as np

from rpukit.tiled import ops
from rpukit.tiled.runtime.reference import run_tile


def random_extents(space, rng):
    """Draw extents of a legal tiling, the whole among them."""
    sizes = []
    one = True  # the sums outside have length 1
    for axis in space.axes:
        pieces = -(-axis.extent // axis.quantum)
        n = int(rng.choice([1, rng.integers(1, pieces + 1), pieces])) * axis.quantum
        if axis.kind == "reduce" and not one:
            n = axis.extent
        sizes.append(min(n, axis.extent))
        one = one and (axis.kind == "free" or sizes[-1] == 1)
    return sizes


def poisoned(tensor):
    """What nobody has written: NaN, or a number that cannot be right."""
    real = tensor.dtype.startswith("float")
    return np.full(tensor.shape, np.nan if real else 77, tensor.dtype)


def run_cut(node, tensors, values, rng, extents=None):
    """Compute a node in tiles over packed slots; free slots hold NaN.

    ``values`` holds the inputs; what the node changes in place is changed there.
    """
    op = ops.find(node.op)
    space = op.space(node, tensors)
    extents = extents or random_extents(space, rng)
    for operand in space.operands:
        if operand.mode == "out":
            values[operand.tensor] = poisoned(tensors[operand.tensor])
    tiles = list(space.tiles(extents))
    slots = [None] * op.buffers
    for box in tiles:
        assert not space.problem(box)
        parts = {}
        for operand in space.operands:
            rectangle = space.rectangle(operand, box)
            lengths = tuple(hi - lo for lo, hi in rectangle)
            worst = space.worst(operand, extents)
            assert all(n <= most for n, most in zip(lengths, worst, strict=True))
            part = tuple(slice(lo, hi) for lo, hi in rectangle)
            parts[operand.slot] = (operand, part, lengths)
            if operand.mode != "out" or not space.first(box):
                slots[operand.slot] = values[operand.tensor][part].copy().reshape(-1)
            else:
                slot = poisoned(tensors[operand.tensor])[part]
                slots[operand.slot] = np.ascontiguousarray(slot).reshape(-1)
        run_tile(node, tensors, box, slots)
        for slot, (operand, part, lengths) in parts.items():
            if operand.mode != "in":
                values[operand.tensor][part] = slots[slot].reshape(lengths)
    for operand in space.operands:
        if operand.alias is not None:
            values[node.outputs[operand.alias]] = values[operand.tensor]
    return len(tiles)
