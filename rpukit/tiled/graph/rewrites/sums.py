"""Reductions, running sums and products by letters, as sums, pools and matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rpukit.tiled.graph.rewrites.reading import MOST_ELEMENTS, Parts, Reading, Rewrite
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import attribute, fault

__all__ = ["REWRITES"]


class _Rows:
    """A tensor with the axes of a reduction side by side: (front, summed, rest)."""

    def __init__(self, node: Node, reading: Reading) -> None:
        self.parts, shape = Parts(node, reading), reading.shape(node, node.inputs[0])
        axes = reading.axes(node, len(shape))
        free = [i for i in range(len(shape)) if i not in axes]
        self.x, self.empty = node.inputs[0], not axes
        keep = attribute(node, "keepdims", 1)
        self.shape = tuple(
            1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes
        )
        self.n = math.prod(shape[i] for i in axes)
        together = bool(axes) and axes == list(range(axes[0], axes[0] + len(axes)))
        if not together and axes:
            self.x = self.parts.add("Transpose", self.x, perm=(*free, *axes))
        ahead = free[: axes[0]] if together else free
        self.front = math.prod(shape[i] for i in ahead)
        self.rest = math.prod(shape[i] for i in free[len(ahead) :])

    def largest(self, x: str) -> str:
        """Compute the largest element over the axes; shape (front, rest)."""
        image = self.parts.reshape(x, (1, self.front, self.n, self.rest))
        kernel = {"kernel_shape": (self.n, 1), "strides": (1, 1)}
        return self.parts.add("MaxPool", image, **kernel)

    def done(self, value: str) -> list[Node]:
        """Return the nodes; the value gets the shape of the result."""
        return self.parts.done(self.parts.reshape(value, self.shape))


def _extreme(sign: float) -> Rewrite:
    def rewrite(node: Node, reading: Reading) -> list[Node]:
        rows = _Rows(node, reading)
        return rows.done(rows.parts.times(rows.largest(rows.parts.times(rows.x, sign)), sign))

    return rewrite


def _product(node: Node, reading: Reading) -> list[Node]:
    """Multiply halves of the elements by one another until one is left."""
    rows = _Rows(node, reading)
    parts, n = rows.parts, rows.n
    x = parts.reshape(rows.x, (rows.front, n, rows.rest))
    while n > 1:
        half = n // 2
        last = parts.slice(x, 1, 2 * half, n) if n % 2 else ""
        x = parts.add("Mul", parts.slice(x, 1, 0, half), parts.slice(x, 1, half, 2 * half))
        x = parts.add("Concat", x, last, axis=1) if last else x
        n = half + n % 2
    return rows.done(x)


def _log_sum_exp(node: Node, reading: Reading) -> list[Node]:
    rows = _Rows(node, reading)
    parts, whole = rows.parts, (rows.front, rows.n, rows.rest)
    top = parts.reshape(rows.largest(rows.x), (rows.front, 1, rows.rest))
    far = parts.add("Sub", parts.reshape(rows.x, whole), top)
    total = parts.add("ReduceSum", parts.add("Exp", far), axes=(1,), keepdims=1)
    return rows.done(parts.add("Add", parts.add("Log", total), top))


def _sum_of(before: str, after: str) -> Rewrite:
    """Make the rewrite of a sum of functions, and a function of the sum."""

    def rewrite(node: Node, reading: Reading) -> list[Node]:
        rows = _Rows(node, reading)
        parts, x = rows.parts, rows.x
        if before == "square":
            x = parts.add("Mul", x, x)
        elif before == "abs":
            x = parts.add("Sub", parts.add("Relu", x), parts.add("Clip", x, max=0.0))
        x = parts.reshape(x, (rows.front, rows.n, rows.rest))
        total = parts.add("ReduceSum", x, axes=(1,), keepdims=0)
        return rows.done(parts.add(after, total) if after else total)

    return rewrite


def _running_sum(node: Node, reading: Reading) -> list[Node]:
    """Multiply by a triangle of ones."""
    parts, x = Parts(node, reading), node.inputs[0]
    shape, axis = reading.shape(node, x), reading.number(node, 1, "axis")
    at = int(axis or 0) % len(shape)
    n, rest = shape[at], math.prod(shape[at + 1 :])
    parts.bound(n * n, MOST_ELEMENTS, "elements of a matrix")
    ones = np.tril(np.ones((n, n)), -1 if attribute(node, "exclusive", 0) else 0)
    if attribute(node, "reverse", 0):
        ones = ones.T
    if rest == 1:
        rows = parts.reshape(x, (-1, n))
        made = parts.add("MatMul", rows, parts.array(np.ascontiguousarray(ones.T)))
    else:
        made = parts.add("MatMul", parts.array(ones), parts.reshape(x, (-1, n, rest)))
    return parts.done(parts.reshape(made, shape))


def _letters(node: Node, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Read the letters of the inputs and of the result; dots become capital letters."""
    equation = node.attributes["equation"].replace(" ", "")
    left, _, right = equation.partition("->")
    inputs, dots = left.split(","), ""
    if len(inputs) != len(ranks):
        raise fault(node, f"equation: {equation} has {len(inputs)} inputs, got {len(ranks)}")
    spare = [chr(n) for n in range(0x3B1, 0x3C9)]  # Greek, which equations cannot hold
    for k, (one, rank) in enumerate(zip(inputs, ranks, strict=True)):
        if "..." in one:
            own = "".join(spare[len(spare) - (rank - len(one) + 3) :])
            inputs[k], dots = one.replace("...", own), max(dots, own, key=len)
        if len(inputs[k]) != rank or len(set(inputs[k])) != rank:
            raise fault(node, f"equation: {equation}: need each letter of an input once")
    every = "".join(inputs)
    if "->" not in equation:
        right = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    return inputs, right.replace("...", dots)


class _Product:
    """Matrix products of tensors whose axes have letters."""

    def __init__(self, parts: Parts, sizes: Mapping[str, int]) -> None:
        self.parts, self.sizes = parts, sizes

    def size(self, letters: str) -> int:
        """Multiply the lengths of axes."""
        return math.prod(self.sizes[c] for c in letters)

    def summed(self, x: str, have: str, keep: set[str]) -> tuple[str, str]:
        """Sum over the axes that nothing else has."""
        gone = tuple(i for i, c in enumerate(have) if c not in keep)
        if gone:
            x = self.parts.add("ReduceSum", x, axes=gone, keepdims=0)
        return x, "".join(c for c in have if c in keep)

    def turned(self, x: str, have: str, want: str) -> str:
        """Put axes into another order."""
        perm = tuple(have.index(c) for c in want)
        return x if have == want else self.parts.add("Transpose", x, perm=perm)

    def multiplied(self, a: str, la: str, b: str, lb: str, keep: set[str]) -> tuple[str, str]:
        """Multiply two tensors: axes of both that are kept stay in front."""
        common = [c for c in la if c in lb]
        front = "".join(c for c in common if c in keep)
        inner = "".join(c for c in common if c not in keep)
        rows, columns = ("".join(c for c in one if c not in common) for one in (la, lb))
        a = self.turned(a, la, front + rows + inner)
        b = self.turned(b, lb, front + inner + columns)
        n, m, k, width = map(self.size, (front, rows, inner, columns))
        batch = (n,) if front else ()
        pair = self.parts.reshape(a, (*batch, m, k)), self.parts.reshape(b, (*batch, k, width))
        made = self.parts.add("MatMul" if inner else "Mul", *pair)
        letters = front + rows + columns
        return self.parts.reshape(made, [self.sizes[c] for c in letters]), letters


def _einsum(node: Node, reading: Reading) -> list[Node]:
    shapes = [reading.shape(node, name) for name in node.inputs]
    letters, right = _letters(node, [len(shape) for shape in shapes])
    sizes: dict[str, int] = {}
    for name, own, shape in zip(node.inputs, letters, shapes, strict=True):
        for c, n in zip(own, shape, strict=True):
            if sizes.setdefault(c, n) != n:
                raise fault(node, f"{name}: axis {c} of {n}, need {sizes[c]}")
    product = _Product(Parts(node, reading), sizes)
    pairs = list(zip(node.inputs, letters, strict=True))
    x, have = pairs[0]
    for k, (other, own) in enumerate(pairs[1:], 1):
        later = set(right).union(*(one for _, one in pairs[k + 1 :]))
        x, have = product.summed(x, have, later | set(own))
        other, own = product.summed(other, own, later | set(have))
        x, have = product.multiplied(x, have, other, own, later)
    x, have = product.summed(x, have, set(right))
    return product.parts.done(product.turned(x, have, right))


def _arg_min(node: Node, reading: Reading) -> list[Node]:
    """Find the largest element of the negative."""
    parts = Parts(node, reading)
    minus = parts.times(node.inputs[0], -1.0)
    return [*parts.nodes, replace(node, op="ArgMax", inputs=(minus,))]


REWRITES: Mapping[str, Rewrite] = {
    "ArgMin": _arg_min,
    "CumSum": _running_sum,
    "Einsum": _einsum,
    "ReduceL1": _sum_of("abs", ""),
    "ReduceL2": _sum_of("square", "Sqrt"),
    "ReduceLogSum": _sum_of("", "Log"),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(1.0),
    "ReduceMin": _extreme(-1.0),
    "ReduceProd": _product,
    "ReduceSumSquare": _sum_of("square", ""),
}
