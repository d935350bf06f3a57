"""Products of 16-bit floats: on tensor cores, or by the mirror that models them."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._kernels.tensor_map import ALIGNMENT, fits, tensor_map
from rpukit._workers import run_rows, work_grain
from rpukit.gemm import _tiles
from rpukit.gemm.factors import bits

Array = Any

SEGMENT = 16384  # where a chain begins anew; RK_SEGMENT of the kernels
_HOPPER = Kernel("det_gemm_tensor")
_STEP, _FRACTION = 16, 25  # of the tensor core that the mirror models
_NOTHING = np.empty((0, 0), np.float32)


class Factor(NamedTuple):
    """A factor of a product as its 16-bit words lie in memory.

    ``along`` 0: words (lines, depth), the sum runs along the rows; 1: words (depth, lines).
    ``half``: float16, else bfloat16.
    """

    words: Array
    along: int
    half: bool

    @property
    def lines(self) -> int:
        return int(self.words.shape[self.along])

    @property
    def depth(self) -> int:
        return int(self.words.shape[1 - self.along])

    def upright(self, start: int, stop: int) -> np.ndarray:
        """Words (lines, depth) of a part of the sum, for the mirror."""
        part = self.words[start:stop].T if self.along else self.words[:, start:stop]
        return np.ascontiguousarray(part)


def factor(x: Array, sum_axis: int) -> Factor:
    """Take a matrix as it lies, if the copy engine can; else copy it once."""
    words = bits(x)
    if words.strides[1] != 2 and words.strides[0] == 2:
        words, sum_axis = words.T, 1 - sum_axis
    if words.size and not fits(words):
        room = aligned(words.shape, np.uint16, _device.device_of(words))
        room[:, : words.shape[1]] = words
        words = room[:, : words.shape[1]]
    return Factor(words, 1 - sum_axis, x.dtype == np.float16)


def aligned(shape: tuple[int, int], dtype: Any, device: _device.Device) -> Array:
    """Allocate with rows lengthened to a multiple of 8 columns, at a multiple of 16 bytes."""
    rows, columns = shape
    size = np.dtype(dtype).itemsize
    step = ALIGNMENT // size
    width = -(-columns // 8) * 8
    if device.kind == "gpu":
        return _device.empty((rows, width), dtype, device)
    room = np.empty(rows * width + step, dtype)  # NumPy aligns to less
    start = -room.ctypes.data % ALIGNMENT // size
    return room[start : start + rows * width].reshape(rows, width)


def is_aligned(x: Array) -> bool:
    """Whether rows lie as `aligned` lays them."""
    address = x.data.ptr if _device.is_cupy(x) else x.ctypes.data
    return bool(x.shape[1] % 8 == 0 and address % ALIGNMENT == 0)


def product(p: Factor, q: Factor, out: Array) -> None:
    """All of a product, segment by segment: ``out`` (lines of p, lines of q), any float."""
    words = out if out.dtype == np.float32 else bits(out)
    device = _device.device_of(out)
    room = words if is_aligned(words) else aligned(words.shape, words.dtype, device)
    edges = [*range(0, p.depth, SEGMENT), p.depth] if p.depth else [0, 0]
    total = None
    for start, stop in pairwise(edges):
        target = room
        if stop < p.depth:
            target = aligned(room.shape, np.float32, device) if total is None else total
        det_gemm_tensor(p, q, target, part=(start, stop), total=total)
        total = target
    if room is not words:
        words[:] = room[:, : words.shape[1]]


def det_gemm_tensor(
    p: Factor,
    q: Factor,
    out: Array,
    *,
    part: tuple[int, int] | None = None,
    partial: Array | None = None,
    total: Array | None = None,
    tile: _tiles.Tile | None = None,
) -> None:
    """Multiply two factors over a part of their sum that lies in one segment.

    Parameters
    ----------
    p, q : Factor
        Of one format and one depth.
    out : array, shape (lines of p, at least lines of q), float32, or uint16: bits of the format
        Rows begin at multiples of 16 bytes; what is beyond the lines of q is not promised.
    part : (int, int), optional
        Part of the sum, from a multiple of 64 on; default: all.
    partial : array, like `out`, float32, optional
        Where the chains stand; default: 0. It may be `out`.
    total : array, like `out`, float32, optional
        What the chains' results are added to, with one rounding. It may be `out`.
    tile : Tile, optional
        Default: by shape. It does not change the result.

    Notes
    -----
    Steps of 16 in ascending order, one accumulator. Kernel: kernels_cu/det_gemm_tensor.cu.
    """
    start, stop = part or (0, p.depth)
    if not out.size:
        return
    if _device.runs_kernels(_device.namespace(p.words, q.words, out)):
        _launch(p, q, out, start, stop, partial, total, tile)
    else:
        _run_mirror(p, q, out, start, stop, partial, total)


def _launch(
    p: Factor,
    q: Factor,
    out: Array,
    start: int,
    stop: int,
    partial: Array | None,
    total: Array | None,
    tile: _tiles.Tile | None,
) -> None:
    device, wide = _device.device_of(out), out.dtype == np.float32
    result, ld = out[:, : q.lines], out.shape[1]
    tile = tile or _tiles.pick(p.lines, q.lines, bool(p.along), device)
    if tile.turned:
        p, q = q, p
    macros = {
        "NC": tile.groups,
        "BN": tile.columns,
        "ST": tile.stages,
        "BLOCKS": tile.blocks,
        "P_MN": p.along,
        "Q_MN": q.along,
        "OUT_T": int(tile.turned),
        "RESULT": "float" if wide else "u16",
        "FROM": int(partial is not None),
        "ADD": int(total is not None),
        "HALF": int(p.half),
    }
    p_map = tensor_map(p.words, 64 if p.along else tile.rows)
    q_map = tensor_map(q.words, 64 if q.along else tile.columns)
    straight = wide or tile.turned  # then the copy engine takes no results
    n_tile = tile.count(p.lines, q.lines)
    _HOPPER.launch(
        (_tiles.grid(tile, n_tile, device),),
        (tile.threads,),
        (
            p.lines,
            q.lines,
            stop - start,
            start,
            ld,
            _tiles.group(),
            p_map,
            q_map,
            q_map if straight else tensor_map(result, 64),
            partial,
            total,
            out,
        ),
        shared=tile.shared(wide),
        macros=macros,
    )


def _run_mirror(
    p: Factor,
    q: Factor,
    out: np.ndarray,
    start: int,
    stop: int,
    partial: np.ndarray | None,
    total: np.ndarray | None,
) -> None:
    mirror = import_module("rpukit.gemm._mirror.tensor")
    a, b = p.upright(start, stop), np.ascontiguousarray(q.upright(start, stop).T)
    (sa, ea, rows), (sb, eb, columns) = (_split(mirror, words, p.half) for words in (a, b))
    run_rows(
        mirror.det_gemm_tensor,
        p.lines,
        p.half,
        _STEP,
        _FRACTION,
        partial is not None,
        total is not None,
        a,
        sa,
        ea,
        b,
        sb,
        eb,
        rows.any(1),
        columns.any(0),
        _NOTHING if partial is None else partial,
        _NOTHING if total is None else total,
        out,
        grain=work_grain(8 * max(b.size, 1)),
    )


def _split(mirror: Any, words: np.ndarray, half: bool) -> tuple[np.ndarray, ...]:
    significand, exponent = np.empty(words.shape, np.float32), np.empty(words.shape, np.int32)
    special = np.zeros(words.shape, np.bool_)
    run_rows(
        mirror.split,
        words.shape[0],
        half,
        words,
        significand,
        exponent,
        special,
        grain=work_grain(words.shape[1]),
    )
    return significand, exponent, special
