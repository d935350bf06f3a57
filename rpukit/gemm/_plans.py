"""Launches of products that were made before: a call that comes again costs the host a look-up.

A key names addresses, shapes, strides and types of both factors. With it all that was checked
holds again, whatever array lies there now; nothing of the arrays themselves is kept. The same goes
for the addresses of results, by which the driver's arguments are kept ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from rpukit import _device
from rpukit._kernels import tune
from rpukit.gemm import tensor
from rpukit.gemm._tiles import Tile
from rpukit.gemm.factors import bits

Array = Any
Key = tuple[Any, ...]

_MOST, _MOST_RESULTS = 1 << 12, 64
_known: dict[Key, Known] = {}


class Known(NamedTuple):
    """A plan, and what its result has to be like."""

    plan: tensor.Plan
    shape: tuple[int, int]
    dtype: Any
    spans: tuple[tuple[int, int], ...]  # addresses of the factors
    launches: dict[int, Callable[[], None]]  # by address of the result
    n_change: int  # of the tuner's decisions when the tile was chosen


def key_of(a: Array, b: Array, trans_a: bool, trans_b: bool, dtype: Any) -> Key | None:
    """Key of a call; None where nothing is kept."""
    kind = _device.cupy_array_class()
    if kind is None or a.__class__ is not kind or b.__class__ is not kind:
        return None
    a, b = cast(Any, a), cast(Any, b)
    words = (a.data.ptr, a.shape, a.strides, a.dtype, b.data.ptr, b.shape, b.strides, b.dtype)
    return (*words, trans_a, trans_b, dtype)


def run(key: Key | None, out: Array | None) -> Array | None:
    """Launch what is known of a key, and give the result; None where that cannot be."""
    known = _known.get(key) if key is not None else None
    if known is None or known.n_change != tune.n_changes():
        return None
    if out is None:
        out = _device.cupy().empty(known.shape, known.dtype)
    elif out.shape != known.shape or out.dtype != known.dtype or not out.flags.c_contiguous:
        return None
    start = out.data.ptr
    again = known.launches.get(start)
    if again is not None:
        again()
        return out
    stop = start + out.nbytes
    if start % 16 or any(start < end and begin < stop for begin, end in known.spans):
        return None
    if len(known.launches) >= _MOST_RESULTS:
        known.launches.clear()
    words = out if known.dtype in (np.uint16, np.float32) else out.view(np.uint16)
    known.launches[start] = known.plan.bind(words)
    return out


def keep(
    key: Key | None, a: Array, b: Array, p: tensor.Factor, q: tensor.Factor, out: Array
) -> None:
    """Keep the launch of a call that needed no copy, on the only GPU."""
    if key is None or _device.gpu_count() != 1:
        return
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
    _known[key] = Known(plan, out.shape, out.dtype, spans, {}, tune.n_changes())


def _extent(x: Array) -> int:
    """Bytes from the first element to the end of the last."""
    steps = zip(x.shape, x.strides, strict=True)
    return int(sum((n - 1) * step for n, step in steps) + x.itemsize)
