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
_COLD, _COLD_CALLS = 2e-4, 8  # seconds of a call that is timed so, and calls of a graph
_MORE_THAN_L2 = 64 << 20  # bytes
_SHORT = 3e-5  # seconds of a call that the host may take longer to launch


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


def gpu_time(
    candidate: Any, run: Callable[[], Any], *, in_graph: bool = False, cold: bool = False
) -> float:
    """Median time of a call in seconds, by events on the current stream.

    ``in_graph``: whether short calls may be captured, so that the host does not limit them: they
    allocate nothing. ``cold``: whether these find nothing in L2.
    """
    for _ in range(_WARM_UP):
        run()
    once = _elapsed(run, 1)  # which has waited for what came before
    if cold and in_graph and once < _COLD:
        found = _cold_time(run)
        if found is not None:
            return found
    calls = min(max(round(_SPAN / max(once, 1e-7)), 1), _MOST_CALLS)
    if in_graph and once < _SHORT:
        graph = _captured(run, calls)
        if graph is not None:
            return statistics.median(_elapsed(graph.launch, 1) for _ in range(_REPEATS)) / calls
    return statistics.median(_elapsed(run, calls) for _ in range(_REPEATS))


def _cold_time(run: Callable[[], Any]) -> float | None:
    """Time a call after L2 was filled with other data, without the filling; None if that fails."""
    cupy = _device.cupy()
    try:
        other = cupy.empty(_MORE_THAN_L2, "uint8")
    except cupy.cuda.memory.OutOfMemoryError:
        return None  # a product has room where this has none

    def fill() -> None:
        other.data.memset_async(0, other.nbytes, cupy.cuda.get_current_stream())

    def both() -> None:
        fill()
        run()

    graphs = [_captured(call, _COLD_CALLS) for call in (fill, both)]
    if None in graphs:
        return None
    spans = [[_elapsed(graph.launch, 1) for graph in graphs] for _ in range(_REPEATS)]
    return max(statistics.median(b - a for a, b in spans), 1e-9) / _COLD_CALLS


def _captured(run: Callable[[], Any], calls: int) -> Any:
    """Return a graph of calls; None if they cannot be captured."""
    cuda = _device.cupy().cuda
    stream = cuda.Stream(non_blocking=True)
    try:
        with stream:
            stream.begin_capture(cuda.runtime.streamCaptureModeRelaxed)
            try:
                for _ in range(calls):
                    run()
            finally:
                graph = stream.end_capture()
        graph.launch()
    except cuda.runtime.CUDARuntimeError:
        return None
    return graph


def _elapsed(run: Callable[[], Any], calls: int) -> float:
    cuda = _device.cupy().cuda
    start, stop = cuda.Event(), cuda.Event()
    start.record()
    for _ in range(calls):
        run()
    stop.record()
    stop.synchronize()
    return float(cuda.get_elapsed_time(start, stop)) * 1e-3 / calls
