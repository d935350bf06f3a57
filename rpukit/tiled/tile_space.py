"""Tile spaces: legal tilings of an op, and the part of each operand that a tile needs.

A *box* is ``((lo, hi), ...)``, one range for each axis of the space. A *rectangle* is the same for
the dimensions of one operand: what a tile reads or writes of it, halo included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from rpukit.errors import ParameterError

__all__ = [
    "Axis",
    "Back",
    "Box",
    "Cut",
    "Operand",
    "Scaled",
    "Span",
    "TileSpace",
    "Whole",
    "Window",
    "axis_of",
]

Box = tuple[tuple[int, int], ...]


class Span(Protocol):
    """How one dimension of an operand follows from a box."""

    def range(self, box: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the first index and the one after the last."""
        ...

    def worst(self, extents: Sequence[int]) -> int:
        """Return the largest length over all boxes of these extents."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A dimension that every tile needs as a whole.

    Parameters
    ----------
    size : int
    """

    size: int

    def range(self, box: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return 0, self.size

    def worst(self, extents: Sequence[int]) -> int:
        return self.size


@dataclass(frozen=True, slots=True)
class Cut:
    """A dimension that is cut along an axis.

    Parameters
    ----------
    axis : int
    """

    axis: int

    def range(self, box: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return box[self.axis]

    def worst(self, extents: Sequence[int]) -> int:
        return extents[self.axis]


@dataclass(frozen=True, slots=True)
class Scaled:
    """Channels of grouped convolutions: `per` channels for each `of` steps of an axis.

    Parameters
    ----------
    axis, per, of : int
    """

    axis: int
    per: int
    of: int

    def range(self, box: Sequence[tuple[int, int]]) -> tuple[int, int]:
        lo, hi = box[self.axis]
        return lo // self.of * self.per, -(-hi // self.of) * self.per

    def worst(self, extents: Sequence[int]) -> int:
        return -(-extents[self.axis] // self.of) * self.per


@dataclass(frozen=True, slots=True)
class Window:
    """Inputs that a range of outputs reads: a sliding window with its halo.

    Parameters
    ----------
    over : Span
        The outputs.
    size : int
        Length of the dimension.
    stride, pad, kernel : int
        `kernel` is the reach of the window, dilation included.
    """

    over: Span
    size: int
    stride: int
    pad: int
    kernel: int

    def range(self, box: Sequence[tuple[int, int]]) -> tuple[int, int]:
        lo, hi = self.over.range(box)
        if lo >= hi:
            return 0, 0
        first = min(max(0, lo * self.stride - self.pad), self.size)
        last = min(self.size, (hi - 1) * self.stride - self.pad + self.kernel)
        return first, max(first, last)

    def worst(self, extents: Sequence[int]) -> int:
        n = self.over.worst(extents)
        return min(self.size, (n - 1) * self.stride + self.kernel) if n > 0 else 0


@dataclass(frozen=True, slots=True)
class Back:
    """Outputs whose windows overlap a range of inputs; there may be none.

    Parameters
    ----------
    over : Span
        The inputs.
    size : int
        Number of outputs.
    stride, pad, kernel : int
    """

    over: Span
    size: int
    stride: int
    pad: int
    kernel: int

    def range(self, box: Sequence[tuple[int, int]]) -> tuple[int, int]:
        lo, hi = self.over.range(box)
        first = max(0, -((self.kernel - 1 - self.pad - lo) // self.stride))
        last = min(self.size, (hi - 1 + self.pad) // self.stride + 1)
        return (first, last) if lo < hi and first < last else (0, 0)

    def worst(self, extents: Sequence[int]) -> int:
        n = self.over.worst(extents)
        return min(self.size, (n + self.kernel - 2) // self.stride + 1) if n > 0 else 0


def axis_of(span: Any) -> int:
    """Find the axis that a dimension follows; -1 for none.

    Parameters
    ----------
    span : Span

    Returns
    -------
    int
    """
    while hasattr(span, "over"):
        span = span.over
    return int(getattr(span, "axis", -1))


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of an op.

    Parameters
    ----------
    name : str
    extent : int
    kind : {"free", "reduce"}
        Reduced axes are listed in the specified order of their sum, outermost first.
    quantum : int
        Cuts are at multiples of it; an axis with ``quantum >= extent`` is not cut.
    """

    name: str
    extent: int
    kind: str = "free"
    quantum: int = 1

    @property
    def whole(self) -> bool:
        """Tell whether the axis cannot be cut."""
        return self.quantum >= self.extent


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a tile, with the buffer of the kernel that holds it.

    Parameters
    ----------
    tensor : str
    mode : {"in", "out", "inout"}
    spans : tuple of Span
        One for each dimension of the tensor.
    slot : int
        Index of the kernel's buffer; buffers without an operand are absent.
    alias : int or None
        For "inout": the output of the node that shares its memory.
    """

    tensor: str
    mode: str
    spans: tuple[Span, ...]
    slot: int
    alias: int | None = None


@dataclass(frozen=True, slots=True)
class TileSpace:
    """All legal tilings of one node.

    Parameters
    ----------
    axes : tuple of Axis
        Free ones first.
    operands : tuple of Operand
        No written operand depends on a reduced axis.
    product : bool
        Whether a point of the space is a multiply-add, rather than an element.
    divide : int
        Points for one multiply-add or element: a strided gradient skips the others.
    steps : int
        Elementary steps of each element: those of a fused chain.

    Notes
    -----
    A tile may cut an axis of a sum only where the axes of sums before it have length 1 in the tile
    and those after it are whole. Then tiles in lexicographic order continue one chain of
    additions, and give the bits of the op computed whole.
    """

    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    product: bool = False
    divide: int = 1
    steps: int = 1

    @property
    def whole(self) -> Box:
        """The box of the whole op."""
        return tuple((0, axis.extent) for axis in self.axes)

    def rectangle(self, operand: Operand, box: Box) -> Box:
        """Find what a tile needs of an operand; it may be empty.

        Parameters
        ----------
        operand : Operand
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        tuple of (int, int)
            One range for each dimension of the tensor.
        """
        return tuple(span.range(box) for span in operand.spans)

    def worst(self, operand: Operand, extents: Sequence[int]) -> tuple[int, ...]:
        """Find the slot of an operand that every tile of these extents fits in.

        Parameters
        ----------
        operand : Operand
        extents : sequence of int
            One for each axis.

        Returns
        -------
        tuple of int
            One for each dimension of the tensor.
        """
        return tuple(span.worst(extents) for span in operand.spans)

    def points(self, box: Box) -> int:
        """Count the points of a box.

        Parameters
        ----------
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        int
        """
        return math.prod(hi - lo for lo, hi in box)

    def macs(self, box: Box) -> int:
        """Count the multiply-adds of a tile; 0 for ops that are no products.

        Parameters
        ----------
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        int
        """
        return -(-self.points(box) // self.divide) if self.product else 0

    def elements(self, box: Box) -> int:
        """Count the elementary steps of a tile; 0 for products.

        Parameters
        ----------
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        int
        """
        return 0 if self.product else -(-self.points(box) * self.steps // self.divide)

    def first(self, box: Box) -> bool:
        """Tell whether the sums of a tile begin with it.

        Parameters
        ----------
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        bool
        """
        return all(r[0] == 0 for a, r in zip(self.axes, box, strict=True) if a.kind == "reduce")

    def last(self, box: Box) -> bool:
        """Tell whether the sums of a tile end with it.

        Parameters
        ----------
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        bool
        """
        ranges = zip(self.axes, box, strict=True)
        return all(hi == axis.extent for axis, (_, hi) in ranges if axis.kind == "reduce")

    def problem(self, box: Box) -> str:
        """Explain why a box is not legal.

        Parameters
        ----------
        box : tuple of (int, int)
            One range for each axis.

        Returns
        -------
        str
            "" if the box is legal.
        """
        if len(box) != len(self.axes):
            return f"got {len(box)} ranges, need {len(self.axes)}"
        one = True  # the axes of sums so far have length 1
        for axis, (lo, hi) in zip(self.axes, box, strict=True):
            if not 0 <= lo <= hi <= axis.extent or (lo == hi and axis.extent):
                return f"{axis.name}: got [{lo}, {hi}), need a range within {axis.extent}"
            if lo % axis.quantum or (hi != axis.extent and hi % axis.quantum):
                return f"{axis.name}: got [{lo}, {hi}), need cuts at multiples of {axis.quantum}"
            if axis.kind == "reduce":
                if hi - lo < axis.extent and not one:
                    return f"{axis.name}: cut, but an outer axis of the sum has length above 1"
                one = one and hi - lo == 1
        return ""

    def tiles(self, extents: Sequence[int]) -> Iterator[Box]:
        """Cut the op into boxes of these extents, in lexicographic order, the last axis fastest.

        Parameters
        ----------
        extents : sequence of int
            One for each axis.

        Yields
        ------
        tuple of (int, int)

        Raises
        ------
        ParameterError
            If a box is not legal.
        """
        if len(extents) != len(self.axes) or any(n < 1 for n in extents):
            raise ParameterError(f"extents: got {tuple(extents)}, need {len(self.axes)} from 1")
        ranges = [
            [(lo, min(lo + n, axis.extent)) for lo in range(0, axis.extent, n)]
            for axis, n in zip(self.axes, extents, strict=True)
        ]
        for box in product(*ranges):
            problem = self.problem(box)
            if problem:
                raise ParameterError(f"extents: {tuple(extents)}: {problem}")
            yield box
