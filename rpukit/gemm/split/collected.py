"""Results of several devices, joined on one while the others work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.lanes import Lanes
from rpukit.gemm.logprob import ranges
from rpukit.gemm.split.pieces import put_columns

__all__ = ["collected", "is_large"]

Array = Any
Results = Callable[[slice, slice], Array]  # by rows and by columns of a device's own

_LARGE = 1 << 25  # bytes of results: smaller ones are copied as a whole
_PARTS = 4  # of a device's results, each of which is copied while the next one is made


def is_large(m: int, n: int, dtype: Any) -> bool:
    """Whether results take long enough to be copied in parts."""
    return bool(m * n * dtype.itemsize >= _LARGE)


def collected(
    made: Sequence[Results],
    edges: Sequence[int],
    devices: Sequence[Device],
    m: int,
    dtype: Any,
    home: Device,
) -> Array:
    """Join results of m rows: device k makes columns ``edges[k]`` to ``edges[k + 1]``.

    ``made`` are functions that compute columns of a device, on it, which is current.
    """
    out, lanes = _device.empty((m, edges[-1]), dtype, home), Lanes()
    spans = list(zip(made, pairwise(edges), devices, strict=True))
    sent: list[tuple[int, Array, Any]] = []
    for results, (first, stop), device in sorted(spans, key=lambda span: span[2] == home):
        step = -(-(stop - first) // (256 * _PARTS)) * 256
        with _device.using(device):
            for columns in ranges(stop - first, step):
                part = results(slice(0, m), columns)
                if device == home:
                    put_columns(out, first + columns.start, part)
                else:
                    sent.append((first + columns.start, *lanes.send(part, home)))
    with _device.using(home):
        for first, part, copied in sent:
            lanes.wait(home, copied)
            put_columns(out, first, part)
    lanes.finish()
    return out
