"""Factors of products of 16-bit floats, and copies of them to aligned rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from rpukit import _device
from rpukit._device import Device, multiprocessors
from rpukit._kernels import Kernel
from rpukit._kernels.replay import keep_for_graph
from rpukit._kernels.tensor_map import ALIGNMENT, fits
from rpukit._workers import run_rows, work_grain
from rpukit.gemm import _turns
from rpukit.gemm._warpgroups import has_warpgroups
from rpukit.gemm.formats import bits

Array = Any

_COPY = Kernel("align_rows")
_CHUNK, _THREADS, _BLOCKS = 8, 256, 8  # words of 16 bytes; threads; blocks a multiprocessor
_SECTOR = 16  # words of a sector of L2, 32 bytes
_BRIEF = 1 << 26  # bytes of copies whose memory is kept for later products


class Factor(NamedTuple):
    """Factor of a product: its 16-bit words in memory.

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
        """Return the words (lines, depth) of a part of the sum, for the mirror."""
        part = self.words[start:stop].T if self.along else self.words[:, start:stop]
        return np.ascontiguousarray(part)


def factor(x: Array, sum_axis: int) -> Factor:
    """Use a matrix in place if the copy engine can read it; else copy it once."""
    return tight(in_place(x, sum_axis))[0]


def in_place(x: Array, sum_axis: int) -> Factor:
    """Use the words of a matrix whose rows are contiguous; copy a matrix without such rows."""
    words = bits(x)
    if words.strides[0] == 2 and (words.strides[1] != 2 or words.shape[1] == 1):
        words, sum_axis = words.T, 1 - sum_axis
    if words.shape[0] == 1 and words.strides[1] == 2:  # whose pitch may be anything
        pitch = -(-words.shape[1] * 2 // ALIGNMENT) * ALIGNMENT
        strided = _device.namespace(words).lib.stride_tricks.as_strided
        words = strided(words, shape=words.shape, strides=(pitch, 2))
    pitch, step = words.strides
    if words.size and (step != 2 or pitch < 2 * words.shape[1]):
        words = _device.namespace(words).ascontiguousarray(words)
        keep_for_graph(words)
    return Factor(words, 1 - sum_axis, x.dtype == np.float16)


def tight(
    *given: Factor, too: Sequence[bool] = (False, False), brief: bool = False
) -> list[Factor]:
    """Copy to rows of whole sectors what the copy engine cannot read.

    ``too``: which factors to copy in any case; ``brief``: whether only the next launch reads the
    copies, so that later ones may take their memory.
    """
    copied = [
        f.words.size > 0 and (wanted or not fits(f.words))
        for f, wanted in zip(given, too, strict=False)
    ]
    moved = [f.words for f, moves in zip(given, copied, strict=True) if moves]
    if not moved:
        return list(given)
    rooms = _rooms(moved, brief)
    align_rows(*zip(moved, rooms, strict=True))
    left = iter(rooms)
    return [
        f._replace(words=next(left)[:, : f.words.shape[1]]) if moves else f
        for f, moves in zip(given, copied, strict=True)
    ]


def _rooms(matrices: Sequence[Array], brief: bool) -> list[Array]:
    """Memory for copies of matrices of words to rows of whole sectors."""
    device = _device.device_of(matrices[0])
    shapes = [(len(x), -(-x.shape[1] // _SECTOR) * _SECTOR) for x in matrices]
    count = sum(rows * width for rows, width in shapes)
    if not brief or device.kind == "cpu" or 2 * count > _BRIEF:
        return [aligned(x.shape, np.uint16, device, _SECTOR) for x in matrices]
    words, found = _turns.room(count, np.dtype(np.uint16), device, copies=True), []
    for rows, width in shapes:
        found.append(words[: rows * width].reshape(rows, width))
        words = words[rows * width :]
    return found


def crosses(x: Factor) -> bool:
    """Whether the copy engine takes a factor, but rows begin within sectors of L2."""
    return fits(x.words) and _begins(x) % (2 * _SECTOR) != 0


def _begins(x: Factor) -> int:
    address = x.words.data.ptr if _device.is_cupy(x.words) else x.words.ctypes.data
    return int(address) | int(x.words.strides[0])


def elements(x: Factor) -> int:
    """Largest of 8, 4, 2 and 1 elements at whose multiples rows begin."""
    begins = _begins(x)
    return next(n for n in (8, 4, 2, 1) if begins % (2 * n) == 0)


def align_rows(*moves: tuple[Array, Array]) -> None:
    """Copy the rows of one or two matrices of words to rows laid out by `aligned`.

    What a longer row holds beyond is set to 0.
    """
    if not _device.runs_kernels(_device.namespace(*(x for move in moves for x in move))):
        mirror = import_module("rpukit.gemm._mirror.lines").align_rows
        for words, room in moves:
            run_rows(mirror, len(room), words, room, grain=work_grain(room.shape[1]))
        return
    sizes: list[int] = []
    arrays: list[Array] = []
    for words, room in (moves[0], moves[-1]):
        rows, columns = words.shape
        second = len(moves) == 1 and bool(sizes)
        sizes += [0 if second else rows, columns, words.strides[0] // 2, room.shape[1]]
        arrays += [beginning(words), room]
    n_chunk = sum(room.size // _CHUNK for _, room in moves)
    most = _BLOCKS * multiprocessors(_device.device_of(moves[0][0]))
    grid = (min(-(-n_chunk // _THREADS), most),)
    _COPY.launch(grid, (_THREADS,), (*sizes, *arrays), early=True)


def aligned(
    shape: tuple[int, int], dtype: Any, device: _device.Device, step: int = _CHUNK
) -> Array:
    """Allocate a matrix with rows padded to `step` columns, at an address aligned to 16 bytes.

    A graph that is being captured keeps it.
    """
    rows, columns = shape
    size = np.dtype(dtype).itemsize
    unit = ALIGNMENT // size
    width = -(-columns // step) * step
    if device.kind == "gpu":
        room = _device.empty((rows, width), dtype, device)
    else:
        words = np.empty(rows * width + unit, dtype)  # NumPy aligns to less
        start = -words.ctypes.data % ALIGNMENT // size
        room = words[start : start + rows * width].reshape(rows, width)
    keep_for_graph(room)
    return room


def is_aligned(x: Array) -> bool:
    """Whether the rows have the layout of `aligned`."""
    address = x.data.ptr if _device.is_cupy(x) else x.ctypes.data
    return bool(x.shape[1] % 8 == 0 and address % ALIGNMENT == 0)


def beginning(words: Array) -> Array:
    """Contiguous view of the first word, as launches require."""
    if words.flags.c_contiguous:
        return words
    strided = _device.namespace(words).lib.stride_tricks.as_strided
    return strided(words, shape=(1,), strides=(2,))


# What factors whose rows begin within sectors of L2 add to the time of a large product, as a part:
# a alone, b alone, both. Measured on an H200 with three products, by tiles in clusters.
_CROSSING = {
    (False, False): 0.0,
    (True, False): 0.05,
    (False, True): 0.08,
    (True, True): 0.13,
}
_MUCH_WORK, _RATE = 3e9, 3.75e8  # multiply-adds, from which on it was seen; a microsecond
_ALIGNED = 3.5e6  # bytes a microsecond of a copy of chunks of 16 bytes
_LAUNCH = 2.2  # microseconds of such a copy


@cache
def copied(
    m: int, n: int, k: int, crossing: tuple[bool, bool], device: Device
) -> tuple[bool, bool]:
    """Tell which of the factors with rows that begin within sectors of L2 to copy first."""
    if m * n * k < _MUCH_WORK or not has_warpgroups(device):
        return False, False

    def time(choice: tuple[bool, bool]) -> float:
        left = crossing[0] and not choice[0], crossing[1] and not choice[1]
        moved = sum(4 * k * x for x, wanted in zip((m, n), choice, strict=True) if wanted)
        return (1 + _CROSSING[left]) * m * n * k / _RATE + moved / _ALIGNED + _LAUNCH * any(choice)

    return min(_CROSSING, key=time)
