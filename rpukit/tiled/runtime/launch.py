"""Launches of tile kernels, which take (ints, floats, *buffers) as their mirrors do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

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
    "tiled_concat": (256, (2, 3)),
    "tiled_conv": (256, (2, 3)),
    "tiled_conv_grad_w": (128, (1, 2, 3)),
    "tiled_conv_grad_x": (128, (2, 3)),
    "tiled_cross_entropy_grad": (256, (1,)),
    "tiled_gather_rows": (256, (1,)),
    "tiled_gemm": (256, (4,)),
    "tiled_label_weights": (256, ()),
    "tiled_layer_norm": (128, ()),
    "tiled_layer_norm_grad": (128, ()),
    "tiled_map": (256, (5,)),
    "tiled_nll": (32, ()),
    "tiled_pool": (256, (2, 3)),
    "tiled_pool_grad": (128, (2, 3)),
    "tiled_rank_update": (256, (1,)),
    "tiled_reduce": (128, ()),
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


def launch(
    name: str,
    ints: np.ndarray,
    numbers: tuple[Array, Array],
    buffers: Sequence[Array | None],
    macros: Mapping[str, Any] | None = None,
) -> None:
    """Launch the kernel of a tile on the current stream; see `bind`."""
    bind(name, ints, numbers, buffers, macros)()


def bind(
    name: str,
    ints: np.ndarray,
    numbers: tuple[Array, Array],
    buffers: Sequence[Array | None],
    macros: Mapping[str, Any] | None = None,
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

    Returns
    -------
    callable

    Raises
    ------
    LaunchError
    """
    width, places = _SHAPES[name]
    threads = int(ints[0]) * math.prod(int(ints[place]) for place in places)
    chosen = {**(macros or {}), **_VARIANTS.get(name, _plain)(ints)}
    if "TEAM" in chosen:
        width = chosen["TEAM"]
        threads *= width
    threads *= _TEAMS.get(name, 1)
    if threads >= 1 << 32:
        raise LaunchError(
            f"{name}: got a tile of {threads} threads, need fewer than 2**32; use smaller tiles"
        )
    if numbers[1].dtype == np.float64:
        chosen["REAL"] = "double"
    args = [numbers[0], numbers[1] if numbers[1].size else None]
    args += [b.view(np.uint8) if b is not None and b.dtype == bool else b for b in buffers]
    grid, block = (-(-threads // width),), (width,)
    return partial(_KERNELS[name].launch, grid, block, args, macros=chosen)


def _plain(_: np.ndarray) -> dict[str, Any]:
    return {}


def _map_variant(ints: np.ndarray) -> dict[str, Any]:
    """Find the inputs that move, if each of these has the layout of the result."""
    lengths, strides = ints[2:6], ints[6:38].reshape(8, 4)
    moving = lengths > 1
    steps = np.append(np.cumprod(lengths[:0:-1])[::-1], 1)[moving]
    flat = [np.array_equal(own, steps) for own in strides[:, moving]]
    still = [not own.any() for own in strides[:, moving]]
    fits = flat[7] and all(a or b for a, b in zip(flat, still, strict=True))
    inputs = sum(1 << k for k in range(7) if not still[k])
    return {"KIND": int(ints[1]), "FLAT": inputs if fits else -1}


def _reduce_variant(ints: np.ndarray) -> dict[str, Any]:
    """Assign a block to each result where there are few results of many rows."""
    team = int(ints[0]) < 4096 and math.prod(int(n) for n in ints[8:11]) >= 32
    return {"KIND": int(ints[1])} | ({"TEAM": _TEAM} if team else {})


_TEAM = 256
_VARIANTS = {"tiled_map": _map_variant, "tiled_reduce": _reduce_variant}
