"""Launches of tile kernels, which take (ints, floats, *buffers) as their mirrors do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Array
from rpukit._kernels.launch import Kernel
from rpukit.errors import LaunchError

# By kernel: threads of a block, and the ints that give the number of threads, times the rows.
_SHAPES: dict[str, tuple[int, tuple[int, ...]]] = {
    "tiled_accumulate": (256, ()),
    "tiled_advance": (32, ()),
    "tiled_analog_inputs": (256, (2,)),
    "tiled_analog_outputs": (256, ()),
    "tiled_analog_scale": (256, ()),
    "tiled_analog_trains": (256, ()),
    "tiled_analog_update": (256, (1,)),
    "tiled_arg_max": (128, ()),
    "tiled_concat": (256, (2, 3)),
    "tiled_conv": (256, (2, 3)),
    "tiled_conv_grad_w": (128, (1, 2, 3)),
    "tiled_conv_grad_x": (128, (2, 3)),
    "tiled_cross_entropy_grad": (256, (1,)),
    "tiled_dequantise": (256, (1,)),
    "tiled_fused": (256, (5,)),
    "tiled_gather_rows": (256, (1,)),
    "tiled_gemm": (256, (4,)),
    "tiled_label_weights": (256, ()),
    "tiled_layer_norm": (128, ()),
    "tiled_layer_norm_grad": (128, ()),
    "tiled_map": (256, (5,)),
    "tiled_nll": (32, ()),
    "tiled_pool": (256, (2, 3)),
    "tiled_pool_grad": (128, (2, 3)),
    "tiled_quantise": (256, (1,)),
    "tiled_quantise_grad": (256, ()),
    "tiled_rank_update": (256, (1,)),
    "tiled_reduce": (64, ()),
    "tiled_scatter_rows": (256, ()),
    "tiled_softmax": (128, ()),
    "tiled_softmax_grad": (128, ()),
    "tiled_update": (256, ()),
}
# Kernels in which several threads work on a row.
_TEAMS = {
    "tiled_analog_outputs": 256,
    "tiled_analog_scale": 32,
    "tiled_analog_trains": 256,
    "tiled_scatter_rows": 256,
}
_KERNELS = {name: Kernel(name) for name in _SHAPES}
_TEAM = 256  # threads that share rows in shared memory
_ROW_ARRAYS = {
    "tiled_layer_norm": 1,
    "tiled_layer_norm_grad": 2,
    "tiled_softmax": 1,
    "tiled_softmax_grad": 2,
}
_ROOM = 96 * 1024  # bytes of shared memory that every architecture gives to a block
_FEW_ROOM = 40 * 1024  # of a block that shares its multiprocessor with others
_BLOCKS = 512  # as many as occupy a GPU
_SHORT = 32  # rows below this length need no shared memory
_PIECE = 4096  # PIECE of tiled_reduce.cu
_SEGMENT = 16384  # SEGMENT of tiled_gemm.cu


def launch(
    name: str,
    ints: np.ndarray,
    numbers: tuple[Array, Array],
    buffers: Sequence[Array | None],
    macros: Mapping[str, Any] | None = None,
) -> None:
    """Launch the kernel of a tile on the current stream; see `bind`."""
    xp = _device.namespace(*numbers)
    parts = xp.empty(parts_of(name, ints), numbers[1].dtype)
    bind(name, ints, numbers, buffers, macros, parts)()


def bind(
    name: str,
    ints: np.ndarray,
    numbers: tuple[Array, Array],
    buffers: Sequence[Array | None],
    macros: Mapping[str, Any] | None = None,
    parts: Array | None = None,
) -> Callable[[], None]:
    """Make a callable that launches the kernel of a tile on the current stream.

    Parameters
    ----------
    name : str
    ints : array, int64
        The numbers of the tile, for the size of the launch.
    numbers : tuple of array
        Ints and floats as the kernel reads them: device arrays, or NumPy's within
        `rpukit.testing.on_cpu`.
    buffers : sequence of array or None
        Flat packed rectangles.
    macros : mapping, optional
        Macros that the op needs, see `Tiled.macros`.
    parts : array, optional
        Memory for sums of rows, which many blocks make where it has room for `parts_of`.

    Returns
    -------
    callable

    Raises
    ------
    LaunchError
    """
    floats = numbers[1]
    args = [numbers[0], floats if floats.size else None]
    args += [b.view(np.uint8) if b is not None and b.dtype == bool else b for b in buffers]
    starts = [
        Start(start.grid, start.width, {**(macros or {}), **start.macros}, start.shared)
        for start in starts_of(
            name, ints, floats.dtype.itemsize, 0 if parts is None else parts.size
        )
    ]
    if floats.dtype == np.float64:
        for start in starts:
            start.macros["REAL"] = "double"
    kernel = _KERNELS[name]
    if len(starts) == 1:
        return _launcher(kernel, starts[0], args)
    return partial(
        _both,
        _launcher(kernel, starts[0], [*args[:-1], parts]),
        _launcher(kernel, starts[1], [*args[:2], parts, *args[3:]]),
    )


def _launcher(kernel: Kernel, start: Start, args: Sequence[Any]) -> Callable[[], None]:
    grid, block = (start.grid,), (start.width,)
    return partial(kernel.launch, grid, block, args, shared=start.shared, macros=start.macros)


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


@dataclass(frozen=True, slots=True)
class Start:
    """Launch of a tile's kernel: blocks, threads of a block, macros, bytes of shared memory."""

    grid: int
    width: int
    macros: dict[str, Any] = field(default_factory=dict)
    shared: int = 0


def starts_of(name: str, ints: np.ndarray, size: int, room: int = 0) -> list[Start]:
    """Find the launches of a tile: two of `tiled_reduce` where sums of rows have room.

    Parameters
    ----------
    name : str
        Of the kernel.
    ints : array, int64
        The numbers of the tile.
    size : int
        Bytes of an element.
    room : int
        Elements that there is memory for beside the tile, see `parts_of`.

    Returns
    -------
    list of Start

    Raises
    ------
    LaunchError
    """
    special = _SPECIAL.get(name)
    if special is not None:
        found = special(name, ints, size, room)
        if found:
            return found
    width, places = _SHAPES[name]
    threads = int(ints[0]) * math.prod(int(ints[place]) for place in places)
    threads *= _TEAMS.get(name, 1)
    if threads >= 1 << 32:
        raise LaunchError(
            f"{name}: got a tile of {threads} threads, need fewer than 2**32; use smaller tiles"
        )
    macros = _VARIANTS.get(name)
    return [Start(-(-threads // width), width, macros(ints) if macros else {})]


def parts_of(name: str, ints: np.ndarray) -> int:
    """Count the sums of rows that `tiled_reduce` makes before it adds them; 0 for other kernels.

    Parameters
    ----------
    name : str
    ints : array, int64

    Returns
    -------
    int
    """
    if name != "tiled_reduce":
        return 0
    results, n_row, length = _reduced(ints)
    return results * n_row if _is_shared(results, n_row) and length >= _SHORT else 0


def _kind(ints: np.ndarray) -> dict[str, Any]:
    return {"KIND": int(ints[1])}


def _flat(lengths: np.ndarray, strides: np.ndarray, n_inputs: int) -> int:
    """Find the set of inputs that move, if each has the layout of the result; else -1."""
    moving = lengths > 1
    steps = np.append(np.cumprod(lengths[:0:-1])[::-1], 1)[moving]
    flat = [np.array_equal(own, steps) for own in strides[:, moving]]
    still = [not own.any() for own in strides[:, moving]]
    fits = flat[n_inputs] and all(a or b for a, b in zip(flat, still, strict=True))
    return sum(1 << k for k in range(n_inputs) if not still[k]) if fits else -1


def _map_variant(ints: np.ndarray) -> dict[str, Any]:
    return {"KIND": int(ints[1]), "FLAT": _flat(ints[2:6], ints[6:38].reshape(8, 4), 7)}


def _fused_variant(ints: np.ndarray) -> dict[str, Any]:
    return {"FLAT": _flat(ints[2:6], ints[6:54].reshape(12, 4), 8)}


def _rows(rows: int, length: int, arrays: int, size: int) -> tuple[int, int] | None:
    """Distribute rows over blocks: their number, and bytes of shared memory (`tiled_rows.cuh`).

    None where a row does not fit.
    """
    one = ((length + 31) // 32 * 32 + 16 // size) * size * arrays
    if one > _ROOM or rows < 1:
        return None
    most = max(1, min(32, _FEW_ROOM // one, -(-rows // _BLOCKS)))
    return -(-rows // most), most * one


def _row_launch(name: str, ints: np.ndarray, size: int, _: int) -> list[Start]:
    """Give TEAM threads some rows, where these lie along memory."""
    length, softmax = int(ints[2]), name.startswith("tiled_softmax")
    if length < _SHORT or (softmax and ints[3] != 1):
        return []
    found = _rows(int(ints[0]), length, _ROW_ARRAYS[name], size)
    return [Start(found[0], _TEAM, {"TEAM": _TEAM}, found[1])] if found else []


def _reduced(ints: np.ndarray) -> tuple[int, int, int]:
    """Find the numbers of results and of rows of each, and the length of a row."""
    return int(ints[0]), math.prod(int(n) for n in ints[8:11]), int(ints[11])


def _is_shared(results: int, n_row: int) -> bool:
    """Whether a thread for each result would be too few threads."""
    return results < 4096 and n_row >= 32


def _reduce_launch(_: str, ints: np.ndarray, size: int, room: int) -> list[Start]:
    """Sum rows by many blocks, then their sums; or rows that are whole sums in one launch."""
    results, n_row, length = _reduced(ints)
    macros, arrays = {**_kind(ints), "TEAM": _TEAM}, 2 if ints[1] == 3 else 1
    if length == 1 and n_row == ints[10]:  # one axis
        along = ints[18] == 1 and n_row >= _SHORT  # rows lie along memory
        found = _rows(results, n_row, arrays, size) if along else None
        return [Start(found[0], _TEAM, {**macros, "PARTS": 1}, found[1])] if found else []
    if not _is_shared(results, n_row):
        return []
    n_part = parts_of("tiled_reduce", ints)
    if 0 < n_part <= room:
        sums = _rows(n_part, length, arrays, size)
        ends = _rows(results, min(n_row, _PIECE), 1, size)
        if sums and ends:
            return [
                Start(sums[0], _TEAM, {**macros, "PARTS": 1}, sums[1]),
                Start(ends[0], _TEAM, {**macros, "PARTS": 2}, ends[1]),
            ]
    return [Start(results, _TEAM, macros)]


def _gemm_launch(_: str, ints: np.ndarray, size: int, __: int) -> list[Start]:
    """Give blocks 8 to 64 rows of 64 results of a product that has a part of as many."""
    b0, b1, m, n, k = (int(v) for v in ints[1:6])
    tile = 64 if m >= 128 or (m - 1) % 64 >= 32 else 32 if m > 16 else 16 if m > 8 else 8
    blocks = -(-m // tile) * -(-n // 64)
    if m * n * 16 < blocks * tile * 64 or not 0 < k <= _SEGMENT:
        return []
    return [Start(b0 * b1 * blocks, 128, {"TILE": tile}, 2 * 128 * (tile + 4 + 68))]


_VARIANTS: dict[str, Callable[[np.ndarray], dict[str, Any]]] = {
    "tiled_fused": _fused_variant,
    "tiled_map": _map_variant,
    "tiled_reduce": _kind,
}
_SPECIAL: dict[str, Callable[[str, np.ndarray, int, int], list[Start]]] = {
    **dict.fromkeys(_ROW_ARRAYS, _row_launch),
    "tiled_gemm": _gemm_launch,
    "tiled_reduce": _reduce_launch,
}
