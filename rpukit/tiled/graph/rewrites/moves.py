"""Parts, joins, paddings and repetitions of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rpukit.tiled.graph.rewrites.reading import (
    MOST_ELEMENTS,
    Parts,
    Reading,
    Rewrite,
    identity,
)
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault, present

__all__ = ["REWRITES", "take"]

_END = 1 << 62  # beyond any axis


def take(parts: Parts, x: str, shape: Sequence[int], indices: np.ndarray | str, axis: int) -> str:
    """Take constant or computed indices of an axis, which become that axis.

    Parameters
    ----------
    parts : Parts
    x : str
    shape : sequence of int
    indices : array or str
        Of one axis.
    axis : int

    Returns
    -------
    str
    """
    n = shape[axis]
    if not isinstance(indices, str):
        indices = np.where(indices < 0, indices + n, indices).astype(np.int64)
        first = int(indices[0])
        if np.array_equal(indices, np.arange(first, first + len(indices))):
            return parts.slice(x, axis, first, first + len(indices))
        size, indices = len(indices), parts.array(indices)
    else:
        size = parts.reading.shapes[indices][0]
    front, rest = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if front > 1:
        x = parts.add("Transpose", parts.reshape(x, (front, n, rest)), perm=(1, 0, 2))
    rows = parts.add("GatherRows", parts.reshape(x, (n, front * rest)), indices)
    if front > 1:
        turned = parts.reshape(rows, (size, front, rest))
        rows = parts.add("Transpose", turned, perm=(1, 0, 2))
    return parts.reshape(rows, (*shape[:axis], size, *shape[axis + 1 :]))


def _slice(node: Node, reading: Reading) -> list[Node]:
    names = ("starts", "ends", "axes", "steps")
    given = {name: reading.numbers(node, 1 + k, name) for k, name in enumerate(names)}
    attributes = {key: value for key, value in given.items() if value is not None}
    attributes = {**node.attributes, **attributes}
    if all(step > 0 for step in attributes.get("steps", ())):
        return [replace(node, inputs=node.inputs[:1], attributes=attributes)]
    parts, x = Parts(node, reading), node.inputs[0]
    shape = list(reading.shape(node, x))
    starts = attributes["starts"]
    axes = attributes.get("axes", range(len(starts)))
    for axis, *ends in zip(axes, starts, attributes["ends"], attributes["steps"], strict=True):
        parts.bound(shape[axis], MOST_ELEMENTS, "elements of an axis")
        kept = np.arange(shape[axis])[slice(*(end if abs(end) < _END else None for end in ends))]
        x = take(parts, x, shape, kept, axis % len(shape))
        shape[axis] = len(kept)
    return parts.done(x)


def _split(node: Node, reading: Reading) -> list[Node]:
    """Make one Slice for each part."""
    x, n = node.inputs[0], len(node.outputs)
    axis, shape = attribute(node, "axis", 0), reading.shapes.get(x)
    sizes = reading.numbers(node, 1, "split") or attribute(node, "split", ())
    if not sizes:
        if shape is None:
            raise fault(node, f"{x} has an unknown shape; need one, or the sizes of parts")
        most = -(-shape[axis] // n)
        sizes = tuple(min(most, shape[axis] - k * most) for k in range(n))
    made, begin = [], 0
    for k, (size, end) in enumerate(zip(sizes, node.outputs, strict=True)):
        part = {"starts": (begin,), "ends": (begin + size,), "axes": (axis,)}
        made.append(Node(f"{node.name}/{k}", "Slice", (x,), (end,), part))
        begin += size
    return [one for one in made if one.outputs[0]]


def _split_sequence(node: Node, reading: Reading) -> list[Node]:
    """Split into a sequence, whose tensors are known by their places."""
    x, axis = node.inputs[0], attribute(node, "axis", 0)
    shape, given = reading.shape(node, x), reading.numbers(node, 1, "split")
    single = given is None or reading.constants[node.inputs[1]].ndim == 0
    if single:
        step = given[0] if given else 1
        Parts(node, reading).bound(shape[axis] // max(1, step), 10_000, "parts")
        sizes = [min(step, shape[axis] - k) for k in range(0, shape[axis], step)]
    else:
        sizes = list(given or ())
    parts, begin, ends = Parts(node, reading), 0, list[str]()
    for size in sizes:
        end = parts.slice(x, axis, begin, begin + size)
        own = (*shape[:axis], size, *shape[axis % len(shape) + 1 :])
        if given is None and not attribute(node, "keepdims", 1):
            own = (*shape[:axis], *shape[axis % len(shape) + 1 :])
            end = parts.reshape(end, own)
        reading.shapes[end] = own
        ends.append(end)
        begin += size
    reading.sequences[node.outputs[0]] = ends
    return parts.nodes


def _sequence(node: Node, reading: Reading) -> list[Node]:
    reading.sequences[node.outputs[0]] = list(node.inputs)
    return []


def _tensors_of(node: Node, reading: Reading) -> list[str]:
    if node.inputs[0] not in reading.sequences:
        raise fault(node, f"{node.inputs[0]}: got an unknown sequence, need one of known tensors")
    return reading.sequences[node.inputs[0]]


def _sequence_at(node: Node, reading: Reading) -> list[Node]:
    tensors, place = _tensors_of(node, reading), reading.number(node, 1, "position")
    return identity(replace(node, inputs=(tensors[int(place or 0)],)))


def _concat_sequence(node: Node, reading: Reading) -> list[Node]:
    parts, axis = Parts(node, reading), attribute(node, "axis", 0)
    tensors = _tensors_of(node, reading)
    if attribute(node, "new_axis", 0):
        tensors = [parts.add("Unsqueeze", name, axes=(axis,)) for name in tensors]
    return parts.done(parts.concat(tensors, axis))


def _gather(node: Node, reading: Reading) -> list[Node]:
    """Read one constant index as a Slice, others as rows of a table."""
    (x, indices), axis, (end,) = node.inputs, attribute(node, "axis", 0), node.outputs
    if reading.fixed(indices) and reading.constants[indices].dtype.kind not in "iu":
        raise fault(node, f"{indices}: got {reading.constants[indices].dtype}, need integers")
    if reading.fixed(indices) and reading.constants[indices].size == 1:
        index = int(reading.constants[indices].reshape(()))
        part = {"starts": (index,), "ends": (index + 1 if index != -1 else _END,), "axes": (axis,)}
        if reading.constants[indices].ndim == 1:
            return [Node(node.name, "Slice", (x,), (end,), part)]
        kept = f"{node.name}/kept"
        made = [Node(kept, "Slice", (x,), (kept,), part)]
        if not reading.constants[indices].ndim:
            return [*made, Node(node.name, "Squeeze", (kept,), (end,), {"axes": (axis,)})]
    parts, shape = Parts(node, reading), reading.shape(node, x)
    axis %= len(shape)
    if reading.fixed(indices):
        array = reading.constants[indices]
        own, flat = array.shape, array.reshape(-1)
        rows = take(parts, x, shape, flat, axis)
    else:
        if reading.types.get(indices) not in ("int32", "int64"):
            raise fault(node, f"{indices}: got {reading.types.get(indices)}, need integers")
        own = reading.shape(node, indices)
        line = parts.reshape(indices, (math.prod(own),))
        reading.shapes[line] = (math.prod(own),)
        rows = take(parts, x, shape, line, axis)
    return parts.done(parts.reshape(rows, (*shape[:axis], *own, *shape[axis + 1 :])))


def _concat(node: Node, reading: Reading) -> list[Node]:
    parts = Parts(node, reading)
    if len(node.inputs) == 1:
        return identity(node)
    return parts.done(parts.concat(node.inputs, attribute(node, "axis", 1)))


def _pad(node: Node, reading: Reading) -> list[Node]:
    """Place a tensor within zeros, axis by axis, or take pixels again."""
    shape, mode = reading.shapes.get(node.inputs[0]), attribute(node, "mode", "constant")
    pads = reading.numbers(node, 1, "pads") or attribute(node, "pads", ())
    value = reading.number(node, 2, "constant_value") or attribute(node, "value", 0.0)
    modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if shape is None or (mode == "constant" and value) or mode not in ("constant", *modes):
        raise fault(node, f"got mode {mode}, value {value}, pads {pads}, need zeros around")
    parts, x = Parts(node, reading), node.inputs[0]
    axes, own = reading.numbers(node, 3, "axes") or range(len(shape)), list(shape)
    for k, axis in enumerate(axes):
        axis %= len(shape)
        before, after = pads[k], pads[k + len(pads) // 2]
        if min(before, after) < 0:
            x = parts.slice(x, axis, max(0, -before), own[axis] - max(0, -after))
            own[axis] += min(0, before) + min(0, after)
            before, after = max(0, before), max(0, after)
        if not (before or after):
            continue
        size = before + own[axis] + after
        if mode == "constant":
            x = parts.add("Place", x, axis=axis, before=before, size=size)
        else:
            parts.bound(size, MOST_ELEMENTS, "elements of an axis")
            kept = np.pad(np.arange(own[axis]), (before, after), mode=modes[mode])  # type: ignore[call-overload]
            x = take(parts, x, own, kept, axis)
        own[axis] += before + after
    return parts.done(x) if parts.nodes else identity(node)


def _expand(node: Node, reading: Reading) -> list[Node]:
    shape, source = present(node.inputs, 1), reading.shapes.get(node.inputs[0])
    if not reading.fixed(shape) or source is None:
        raise fault(node, f"{shape} is computed, need a constant, and an input of known shape")
    whole = np.broadcast_shapes(source, tuple(int(n) for n in reading.constants[shape]))
    return [Node(node.name, "Broadcast", node.inputs[:1], node.outputs, {"shape": whole, "by": 1})]


def repeated(parts: Parts, x: str, shape: Sequence[int], axis: int, times: int, each: bool) -> str:
    """Repeat an axis as a whole, or each of its elements."""
    front, rest = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    n = shape[axis]
    one, many = ((front, n, 1, rest), (front, n, times, rest))
    if not each:
        one, many = ((front, 1, n * rest, 1), (front, times, n * rest, 1))
    x = parts.add("Broadcast", parts.reshape(x, one), shape=many, by=1)
    return parts.reshape(x, (*shape[:axis], n * times, *shape[axis + 1 :]))


def _tile(node: Node, reading: Reading) -> list[Node]:
    parts, x = Parts(node, reading), node.inputs[0]
    own, times = list(reading.shape(node, x)), reading.numbers(node, 1, "repeats")
    for axis, count in enumerate(times or ()):
        if count != 1:
            x = repeated(parts, x, own, axis, count, each=False)
            own[axis] *= count
    return parts.done(x)


def _blocks(node: Node, reading: Reading) -> list[Node]:
    """Move blocks of pixels to channels, or back."""
    parts, x, b = Parts(node, reading), node.inputs[0], node.attributes["blocksize"]
    n, c, h, w = reading.shape(node, x)
    if node.op == "SpaceToDepth":
        seen, perm = (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4)
        whole = (n, c * b * b, h // b, w // b)
    elif attribute(node, "mode", "DCR") == "DCR":
        seen, perm = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
        whole = (n, c // (b * b), h * b, w * b)
    else:
        seen, perm = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
        whole = (n, c // (b * b), h * b, w * b)
    x = parts.add("Transpose", parts.reshape(x, seen), perm=perm)
    return parts.done(parts.reshape(x, whole))


def _trilu(node: Node, reading: Reading) -> list[Node]:
    parts, shape = Parts(node, reading), reading.shape(node, node.inputs[0])
    place = int(reading.number(node, 1, "k") or 0)
    parts.bound(math.prod(shape[-2:]), MOST_ELEMENTS, "elements of a mask")
    cut = np.triu if attribute(node, "upper", 1) else np.tril
    mask = parts.array(cut(np.ones(shape[-2:]), place))
    return parts.done(parts.add("Mul", node.inputs[0], mask))


REWRITES: Mapping[str, Rewrite] = {
    "Concat": _concat,
    "ConcatFromSequence": _concat_sequence,
    "DepthToSpace": _blocks,
    "Expand": _expand,
    "Gather": _gather,
    "Pad": _pad,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence,
    "Slice": _slice,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "SplitToSequence": _split_sequence,
    "Tile": _tile,
    "Trilu": _trilu,
}
