"""Measured rates of copies between two levels."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.tiled.machine import Level

__all__ = ["cpu_link", "gpu_link"]

_ROWS = 1024  # of the copy that gives the cycles of a row
_RUNS = 7


def _nanoseconds(act: Callable[[], Any]) -> float:
    """Find the shortest time of a call, after one that does not count."""
    times = []
    for _ in range(_RUNS + 1):
        begin = time.perf_counter_ns()
        act()
        times.append(time.perf_counter_ns() - begin)
    return float(min(times[1:]))


def _link(
    name: str, sizes: tuple[int, int], times: tuple[float, float, float], align: int
) -> Level:
    """Make a level from the times of a short copy, a long one, and a long one in rows."""
    width = max(1, round((sizes[1] - sizes[0]) / max(times[1] - times[0], 1.0)))
    setup = max(0, round(times[0] - sizes[0] / width))
    row = max(0, round((times[2] - times[1]) / _ROWS))
    return Level(name, 1, width=width, setup=setup, row=row, align=align)


def cpu_link() -> Level:
    """Measure copies within a CPU's memory, as its executor makes them.

    Returns
    -------
    Level
        "cache", of one byte.
    """
    sizes = 8192, 1 << 21
    source, target = np.ones(4 << 20, np.uint8), np.zeros(4 << 20, np.uint8)
    words = source.view(np.uint64), target.view(np.uint64)

    def copy(n: int) -> None:
        words[1][: n // 8] = words[0][: n // 8]

    wide = [one[: 2 * sizes[1] // 8].reshape(_ROWS, -1)[:, ::1] for one in words]
    half = wide[0].shape[1] // 2

    def rows() -> None:
        wide[1][:, :half] = wide[0][:, :half]

    times = tuple(_nanoseconds(partial(copy, n)) for n in sizes)
    return _link("cache", sizes, (times[0], times[1], _nanoseconds(rows)), 64)


def gpu_link(place: _device.Device) -> Level:
    """Measure copies between pinned memory and a GPU, while both directions are busy.

    Parameters
    ----------
    place : Device

    Returns
    -------
    Level
        "device", of one byte.
    """
    cp, sizes = _device.cupy(), (1 << 19, 1 << 22)
    runtime, size = cp.cuda.runtime, 2 * sizes[1]
    with cp.cuda.Device(place.index):
        host = [cp.cuda.alloc_pinned_memory(size) for _ in range(2)]
        here = [cp.zeros(size, np.uint8) for _ in range(2)]
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
        pairs = ((here[0].data.ptr, host[0].ptr), (host[1].ptr, here[1].data.ptr))
        n_copy = 8

        def both(n: int, in_rows: bool) -> None:
            for _ in range(n_copy):
                for kind, (stream, (target, source)) in enumerate(
                    zip(streams, pairs, strict=True), start=1
                ):
                    if in_rows:
                        width = n // _ROWS
                        runtime.memcpy2DAsync(
                            target, width, source, 2 * width, width, _ROWS, kind, stream.ptr
                        )
                    else:
                        runtime.memcpyAsync(target, source, n, kind, stream.ptr)
            for stream in streams:
                stream.synchronize()

        times = [_nanoseconds(partial(both, n, False)) / n_copy for n in sizes]
        short = 2048 * _ROWS  # rows of 2 KiB
        in_rows = _nanoseconds(partial(both, short, True)) / n_copy
        plain = _nanoseconds(partial(both, short, False)) / n_copy
    rows = times[1] + max(0.0, in_rows - plain)
    return _link("device", sizes, (times[0], times[1], rows), 256)
