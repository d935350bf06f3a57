"""Launches of tiles on a GPU: their numbers in device memory, products by `det_gemm`'s kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rpukit.errors import PlanError
from rpukit.gemm._tiles.real_tiles import LONG_SEGMENT
from rpukit.gemm.real import product
from rpukit.tiled.runtime import launch as kernels
from rpukit.tiled.runtime.executor import PreparedTile

__all__ = ["Tables", "launcher"]


def launcher(tile: PreparedTile, buffers: Sequence[Any], tables: Tables) -> Callable[[], None]:
    """Make a callable that launches a tile on the current stream.

    Parameters
    ----------
    tile : PreparedTile
    buffers : sequence of array or None
        Flat packed rectangles in device memory.
    tables : Tables
        Those of its program.

    Returns
    -------
    callable
    """
    if tile.op.kernel == "tiled_gemm":
        whole = _product(tile, buffers)
        if whole is not None:
            last, added = tile.ints[7], tile.ints[9]
            plain = not last or added == 2 or (last == 1 and tile.floats[0] == 1 and not added)
            return whole if plain else partial(_both, whole, tables.ends(tile, buffers))
    macros = tile.op.macros(tile.node)
    numbers = tables.of(tile)
    return kernels.bind(tile.op.kernel, tile.ints, numbers, buffers, macros, tables.parts)


class Tables:
    """What the tiles of a program have on the GPU beside their operands.

    Their numbers, in one array of ints and one of floats, and memory for sums of rows: `parts`.

    Parameters
    ----------
    cp : module
        CuPy.
    tiles : sequence of PreparedTile
    room : int
        Bytes that `parts` may take.
    """

    def __init__(self, cp: Any, tiles: Sequence[PreparedTile], room: int) -> None:
        self._places: dict[tuple[int, bool], tuple[slice, slice]] = {}
        rows: list[np.ndarray] = []
        reals: list[np.ndarray] = []
        n_int = n_real = 0
        for tile in tiles:
            both = [tile.ints, _end_of(tile)] if tile.op.kernel == "tiled_gemm" else [tile.ints]
            for ints in both:
                self._places[id(tile), ints is not tile.ints] = (
                    slice(n_int, n_int + ints.size),
                    slice(n_real, n_real + tile.floats.size),
                )
                rows.append(ints)
                n_int += ints.size
            reals.append(tile.floats)
            n_real += tile.floats.size
        kinds = {tile.floats.dtype for tile in tiles} or {np.dtype(np.float32)}
        if len(kinds) > 1:
            raise PlanError("got a program of float32 and float64 tiles, need one dtype")
        self._tiles = tiles  # their ids are the keys
        self._ints = cp.asarray(np.concatenate([*rows, np.zeros(1, np.int64)]))
        kind = kinds.pop()
        self._reals = cp.asarray(np.concatenate([*reals, np.zeros(1, kind)]))
        sizes = [kernels.parts_of(tile.op.kernel, tile.ints) for tile in tiles]
        most = max([0, *(size for size in sizes if size * kind.itemsize <= room)])
        self.parts = cp.empty(most, kind)

    def of(self, tile: PreparedTile, end: bool = False) -> tuple[Any, Any]:
        """Return the numbers of a tile in device memory."""
        ints, reals = self._places[id(tile), end]
        return self._ints[ints], self._reals[reals]

    def ends(self, tile: PreparedTile, buffers: Sequence[Any]) -> Callable[[], None]:
        """Make the epilogue of a product (scale, bias, Relu): a tile without multiply-adds."""
        numbers = self.of(tile, end=True)
        return kernels.bind(tile.op.kernel, _end_of(tile), numbers, buffers)


def _end_of(tile: PreparedTile) -> np.ndarray:
    """Return the numbers of a product's epilogue: no steps of the sum, and not its first tile."""
    ints = tile.ints.copy()
    ints[5], ints[6] = 0, 0
    return ints


def _product(tile: PreparedTile, buffers: Sequence[Any]) -> Callable[[], None] | None:
    """Compute a tile as a product of `det_gemm`, which has the same chains.

    Returns None for a stack of products; a stack that shares the second factor is one product.
    """
    rows, b0, b1, m, n, k, first, _, long, added = (int(v) for v in tile.ints[:10])
    a, b, y = buffers[0], buffers[1], buffers[3]
    if a is None or b is None or (added == 2 and k > LONG_SEGMENT):
        return None
    turned_a, turned_b = tile.ints[10 + 2] == 1 and m > 1, tile.ints[15 + 3] != 1 and n > 1
    if b0 * b1 != 1:
        if turned_a or a.size != rows * k or b.size != k * n:
            return None
        m = rows
    shapes = [(k, m) if turned_a else (m, k), (n, k) if turned_b else (k, n)]
    flat = (a.reshape(shapes[0]), b.reshape(shapes[1]), y.reshape(m, n))
    add = 3 if added == 2 else 0 if first else 1 if long else 2
    turned = bool(turned_a), bool(turned_b)
    alpha = float(tile.floats[0])
    return partial(product, *flat, *turned, add=add, alpha=alpha, segment=LONG_SEGMENT)


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()
