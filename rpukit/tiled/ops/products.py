"""Gemm and MatMul: Y = alpha op(A) op(B) + beta C, or Relu of it, with axes of matrices in front.

Y may be C.
"""

from __future__ import annotations

from rpukit.tiled.ir import Node, Tensor
from rpukit.tiled.ops._base import (
    Numbers,
    Tensors,
    Tiled,
    attribute,
    by_slot,
    extents,
    fault,
    numbers,
    present,
    real_of,
    spans_of,
    strides_by_axis,
)
from rpukit.tiled.tile_space import Axis, Box, Operand, TileSpace

SEGMENT = 16384  # a chain of products restarts at its multiples
_FRONT = 2  # most batch axes of the kernel


class Product(Tiled):
    """Matrix product: Gemm and MatMul, with batch axes."""

    kernel, module, buffers = "tiled_gemm", "gemm", 4
    _activations: tuple[str, ...] = ("", "Relu")

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        chosen = attribute(node, "activation", "")
        if chosen not in self._activations:
            known = " or ".join(name or "none" for name in self._activations)
            raise fault(node, f"activation: got {chosen}, need {known}")
        real = real_of(node, tensors)
        front, (m, n, _), _ = _sizes(node, tensors)
        return [Tensor(node.outputs[0], (*front, m, n), real)]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        front, (m, n, k), turned = _sizes(node, tensors)
        f = len(front)
        axes = [Axis(f"b{i}", size) for i, size in enumerate(front)]
        quantum = SEGMENT if k > SEGMENT else 1
        axes += [Axis("m", m), Axis("n", n), Axis("k", k, "reduce", quantum)]
        pairs = [(f, f + 2), (f + 2, f + 1)]
        operands = []
        for slot, (name, pair, turn) in enumerate(zip(node.inputs, pairs, turned, strict=False)):
            shape = tensors[name].shape
            own = len(shape) - 2
            ahead = [f - own + i if shape[i] > 1 else -1 for i in range(own)]
            spans = spans_of(shape, [*ahead, *(pair[::-1] if turn else pair)])
            operands.append(Operand(name, "in", spans, slot))
        bias = present(node.inputs, 2)
        if bias:
            shape = tensors[bias].shape
            places = [f + 2 - len(shape) + i if shape[i] > 1 else -1 for i in range(len(shape))]
            operands.append(Operand(bias, "in", spans_of(shape, places), 2))
        out = tensors[node.outputs[0]].shape
        operands.append(Operand(node.outputs[0], "out", spans_of(out, range(f + 2)), 3))
        return TileSpace(tuple(axes), tuple(operands), product=True)

    def parameters(self, node: Node, tensors: Tensors, box: Box) -> Numbers:
        space = self.space(node, tensors)
        pad = (1,) * (_FRONT + 3 - len(box))
        sizes = (*pad, *extents(box))
        strides = [
            (0,) * len(pad) + strides_by_axis(space, by_slot(space, slot), box, len(box))
            for slot in range(4)
        ]
        b0, b1, m, n, k = sizes
        whole_k = space.axes[-1].extent
        last = space.last(box) * (2 if attribute(node, "activation", "") else 1)
        ints = [b0 * b1 * m, b0, b1, m, n, k, space.first(box), last]
        ints += [whole_k > SEGMENT, self._added(node)]
        for steps in strides:
            ints += steps
        scales = (attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0))
        return numbers(ints, scales, tensors[node.outputs[0]].dtype)

    def _added(self, node: Node) -> int:
        """Encode what a product is added to: nothing (0), C (1), or Y itself (2)."""
        return int(bool(present(node.inputs, 2)))


class ProductUpdate(Product):
    """Product that updates in place: A, B, W -> W + alpha op(A) op(B)."""

    _activations = ("",)

    def infer(self, node: Node, tensors: Tensors) -> list[Tensor]:
        found, own = super().infer(node, tensors), tensors[node.inputs[2]].shape
        if len(own) != 2 or found[0].shape != own:
            raise fault(node, f"got W of shape {own}, need that of the product {found[0].shape}")
        return found

    def aliases(self, node: Node) -> list[tuple[str, str]]:
        return [(node.outputs[0], node.inputs[2])]

    def space(self, node: Node, tensors: Tensors) -> TileSpace:
        space = super().space(node, tensors)
        m, n, k = space.axes
        a, b, w, _ = space.operands
        own = Operand(w.tensor, "inout", w.spans, 3, 0)
        whole = Axis("k", k.extent, quantum=k.extent)  # W needs the complete sum
        return TileSpace((m, n, whole), (a, b, own), product=True)

    def _added(self, node: Node) -> int:
        return 2


def _sizes(
    node: Node, tensors: Tensors
) -> tuple[tuple[int, ...], tuple[int, int, int], tuple[bool, bool]]:
    """Find the batch axes, (m, n, k), and which of A and B is transposed."""
    a, b = (tensors[name].shape for name in node.inputs[:2])
    if len(a) < 2 or len(b) < 2:
        raise fault(node, f"got shapes {a} and {b}, need two axes or more")
    turned = (bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0)))
    m, k = a[-2:][::-1] if turned[0] else a[-2:]
    k_b, n = b[-2:][::-1] if turned[1] else b[-2:]
    front = tuple(max(pair) for pair in _aligned(a[:-2], b[:-2]))
    fits = all(size in (1, most) for s in (a, b) for size, most in _ends(s[:-2], front))
    if k != k_b or not fits or k < 1:
        raise fault(node, f"shapes {a} and {b} do not match")
    if len(front) > _FRONT:
        raise fault(node, f"got {len(front)} batch axes, need at most {_FRONT}")
    bias = present(node.inputs, 2)
    if bias:
        c = tensors[bias].shape
        if len(c) > len(front) + 2 or any(s not in (1, t) for s, t in _ends(c, (*front, m, n))):
            raise fault(
                node, f"C of shape {c} cannot be broadcast to the result of {(*front, m, n)}"
            )
    return front, (m, n, k), turned


def _aligned(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[int, int]]:
    n = max(len(a), len(b))
    wide = [(1,) * (n - len(s)) + s for s in (a, b)]
    return list(zip(*wide, strict=True))


def _ends(shape: tuple[int, ...], whole: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pair sizes with those at the end of a longer shape."""
    return list(zip(shape, whole[len(whole) - len(shape) :], strict=True))


OPS = [
    Product("Gemm", (2, 3)),
    Product("MatMul", (2, 2)),
    ProductUpdate("GemmUpdate", (3, 3)),
]
