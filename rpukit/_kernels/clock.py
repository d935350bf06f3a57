"""Time launches on the current GPU, and tell whether its stream is being captured."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import cache
from typing import Any

from rpukit import _device
from rpukit._device import Device

_WARM_UP = 2
_REPEATS = 7
_SPAN = 2e-4  # seconds that one repeat should last, so that the events' resolution does not matter
_MOST_CALLS = 32


@cache
def device_name(device: Device) -> str:
    """Name under which the times of a device are stored."""
    if device.kind == "cpu":
        return "cpu"
    runtime = _device.cupy().cuda.runtime
    properties = runtime.getDeviceProperties(device.index)
    return f"{properties['name'].decode()} sm_{properties['major']}{properties['minor']}"


def capturing() -> bool:
    """Whether a graph is being captured on the current stream, so that nothing may wait for it."""
    return bool(_device.cupy().cuda.get_current_stream().is_capturing())


def gpu_time(candidate: Any, run: Callable[[], Any]) -> float:
    """Median time of a call in seconds, by events on the current stream."""
    for _ in range(_WARM_UP):
        run()
    calls = min(max(round(_SPAN / max(_elapsed(run, 1), 1e-7)), 1), _MOST_CALLS)
    return statistics.median(_elapsed(run, calls) for _ in range(_REPEATS))


def _elapsed(run: Callable[[], Any], calls: int) -> float:
    cuda = _device.cupy().cuda
    start, stop = cuda.Event(), cuda.Event()
    start.record()
    for _ in range(calls):
        run()
    stop.record()
    stop.synchronize()
    return float(cuda.get_elapsed_time(start, stop)) * 1e-3 / calls
