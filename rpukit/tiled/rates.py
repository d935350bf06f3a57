"""Measured rates of ops: cycles of a tile by its size, for the cycle model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from rpukit._checks import Checked, Kind, Many, Whole

__all__ = ["Rate"]

_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Rate(Checked):
    """Measured cycles of an op, by the size of a tile.

    Parameters
    ----------
    op : str
        Name of the op, as in `Node`.
    launch : int
        Cycles of a tile beside its work.
    rows : tuple of int
        Ascending sizes that were measured: points of a tile; with `columns`, lengths of its rows.
    cycles : tuple of int
        For each of `rows`; with `columns`, for each pair, the columns of the first row first.
    columns : tuple of int
        Of a product: ascending lengths of the last free axis.
    depth : int
        Of a product: length of the sum that `cycles` are for.
    ends : tuple of int
        Of a product: cycles for each pair that do not depend on the length of the sum, such as
        those of loading and storing the results; none where it is empty.

    Raises
    ------
    ParameterError

    Notes
    -----
    Between two sizes, cycles are interpolated by points. A product takes as long as the next
    larger one that was measured: the rest of a GPU's last wave of blocks stays idle. Larger tiles
    take cycles in proportion to the largest size.

    Examples
    --------
    >>> from rpukit.tiled import Rate
    >>> Rate("Relu", 100, (1000, 2000), (50, 90)).tile(1500, 1, 1500)
    170
    >>> product = Rate("Gemm", 5000, (256, 512), (10, 20, 20, 30), (256, 512), 64)
    >>> product.tile(300, 200, 300 * 200 * 128)
    5040
    """

    op: str
    launch: int
    rows: tuple[int, ...]
    cycles: tuple[int, ...]
    columns: tuple[int, ...] = ()
    depth: int = 1
    ends: tuple[int, ...] = ()

    KINDS: ClassVar[dict[str, Kind]] = {
        "launch": Whole(0, _MOST),
        "rows": Many(Whole(1, _MOST)),
        "cycles": Many(Whole(0, _MOST)),
        "columns": Many(Whole(1, _MOST)),
        "depth": Whole(1, _MOST),
        "ends": Many(Whole(0, _MOST)),
    }

    def _check(self) -> None:
        for name in ("rows", "columns"):
            sizes = getattr(self, name)
            rising = all(a < b for a, b in pairwise(sizes))
            self._need(rising and (bool(sizes) or name == "columns"), name, "ascending sizes")
        n = len(self.rows) * max(1, len(self.columns))
        self._need(len(self.cycles) == n, "cycles", f"{n} numbers, one for each size")
        fits = not self.ends or (bool(self.columns) and len(self.ends) == n)
        self._need(fits, "ends", "none, or of a product one for each pair of sizes")

    def tile(self, rows: int, columns: int, points: int) -> int:
        """Compute the cycles of a tile.

        Parameters
        ----------
        rows, columns : int
            Lengths of the free axes; the last one gives the columns.
        points : int
            Multiply-adds or elements of the tile.

        Returns
        -------
        int
        """
        if not self.columns:
            return self.launch + -int(-np.interp(points, *self._line(points)) // 1)
        i, more = _place(self.rows, rows)
        j, wider = _place(self.columns, columns)
        depth, pair = points / max(1, rows * columns), i * len(self.columns) + j
        own = self.cycles[pair] * depth / self.depth + (self.ends[pair] if self.ends else 0)
        return self.launch + -int(-own * more * wider // 1)

    def tiles(self, rows: Any, columns: Any, points: Any) -> Any:
        """Compute the cycles of many tiles at once.

        Parameters
        ----------
        rows, columns, points : array of int64

        Returns
        -------
        array of int64
        """
        if not self.columns:
            found = np.interp(points, *self._line(int(np.max(points, initial=1))))
            return self.launch + np.ceil(found).astype(np.int64)
        sizes = np.array(self.rows), np.array(self.columns)
        places, more = [], np.ones(np.shape(points))
        for own, lengths in zip(sizes, (rows, columns), strict=True):
            places.append(np.minimum(np.searchsorted(own, lengths), len(own) - 1))
            more = more * np.maximum(1.0, lengths / own[-1])
        pairs = places[0] * len(sizes[1]) + places[1]
        depth = points / np.maximum(1, rows * columns)
        found = np.array(self.cycles, np.float64)[pairs] * depth / self.depth
        if self.ends:
            found = found + np.array(self.ends, np.float64)[pairs]
        return self.launch + np.ceil(found * more).astype(np.int64)

    def _line(self, most: int) -> tuple[Sequence[int], Sequence[float]]:
        """Make the ends of the line of cycles by points, from none to the most that is asked."""
        x, y = [0, *self.rows], [0.0, *map(float, self.cycles)]
        if most > x[-1]:
            x, y = [*x, most], [*y, y[-1] * most / x[-1]]
        return x, y


def _place(sizes: Sequence[int], length: int) -> tuple[int, float]:
    """Find the measured size for a length, and by how much the length exceeds the largest."""
    place = min(bisect_left(sizes, length), len(sizes) - 1)
    return place, max(1.0, length / sizes[-1])
