"""Replays of products on tensor cores: a repeated call costs the host one look-up.

A key consists of the addresses, shapes, strides and types of both factors. For an equal key all
checks hold again, whichever array is at that address now; the arrays themselves are not kept. The
driver's arguments are likewise kept by the address of the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rpukit import _device
from rpukit._kernels import tune
from rpukit._kernels.launch import is_recording
from rpukit._kernels.replay import Replay
from rpukit.gemm import tensor
from rpukit.gemm._tiles import Tile
from rpukit.gemm.formats import bits

Array = Any
Key = tuple[Any, ...]

_MOST, _MOST_RESULTS = 1 << 12, 64
_known: dict[Key, Known] = {}


class Known(NamedTuple):
    """Launch plan of a product, with the shape, type and device of its result."""

    plan: tensor.Plan
    shape: tuple[int, int]
    dtype: Any
    device: _device.Device
    spans: tuple[tuple[int, int], ...]  # addresses of the factors
    replays: dict[int, Replay]  # by address of the result
    n_change: int  # of the tuner's decisions when the tile was chosen


def key_of(a: Array, b: Array, trans_a: bool, trans_b: bool, dtype: Any) -> Key:
    """Key of a call of two CuPy arrays."""
    words = (a.data.ptr, a.shape, a.strides, a.dtype, b.data.ptr, b.shape, b.strides, b.dtype)
    return (*words, trans_a, trans_b, dtype)


def run(key: Key, out: Array | None) -> Array | None:
    """Replay the recorded call of a key and return its result; None if that is impossible."""
    known = _known.get(key)
    if known is None or known.n_change != tune.n_changes() or is_recording():
        return None
    if not _device.is_current(known.device):
        with _device.using(known.device):
            return run(key, out)
    if out is None:
        out = _device.cupy_array_class()(known.shape, known.dtype)  # type: ignore[misc]
    elif out.shape != known.shape or out.dtype != known.dtype or not out.flags.c_contiguous:
        return None
    start = out.data.ptr
    replay = known.replays.get(start)
    if replay is not None:
        replay(start)
        return out
    stop = start + out.nbytes
    if start % 16 or any(start < end and begin < stop for begin, end in known.spans):
        return None
    if _device.device_of(out) != known.device:
        return None
    if len(known.replays) >= _MOST_RESULTS:
        known.replays.clear()
    words = out if known.dtype in (np.uint16, np.float32) else out.view(np.uint16)
    known.replays[start] = known.plan.bind(words)
    return out


def keep(key: Key, a: Array, b: Array, p: tensor.Factor, q: tensor.Factor, out: Array) -> None:
    """Record the launch of a call that needed no copy."""
    direct = all(f.words.data.ptr == x.data.ptr for f, x in ((p, a), (q, b)))
    if not direct or p.depth > tensor.SEGMENT or not tensor.is_aligned(out):
        return
    words = out if out.dtype == np.float32 else bits(out)
    tile = tensor.choose(p, q, words, (0, p.depth))
    if not isinstance(tile, Tile):
        return
    plan = tensor.prepare(p, q, words, (0, p.depth), tile)
    spans = tuple((x.data.ptr, x.data.ptr + _extent(x)) for x in (a, b))
    if len(_known) >= _MOST:
        _known.clear()
    device = _device.device_of(out)
    _known[key] = Known(plan, out.shape, out.dtype, device, spans, {}, tune.n_changes())


def _extent(x: Array) -> int:
    """Number of bytes from the first element to the end of the last."""
    steps = zip(x.shape, x.strides, strict=True)
    return int(sum((n - 1) * step for n, step in steps) + x.itemsize)
