"""Time launches on the current GPU, and tell whether its stream is being captured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import cache, partial
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


def gpu_times(
    runs: Sequence[Callable[[], Any]], *, in_graph: bool = False, cold: bool = False
) -> list[float]:
    """Median time of each call in seconds, by events on the current stream.

    Repeats of all calls alternate, since a GPU that is hot is slower. ``in_graph``: whether short
    calls may be captured, so that the host does not limit them: they allocate nothing. ``cold``:
    whether to average this time with that of calls that find nothing in L2.
    """
    once = [_once(run) for run in runs]
    times = _medians([_repeat(*pair, in_graph) for pair in zip(runs, once, strict=True)])
    after = _cold_times(runs) if cold and in_graph and min(once) < _COLD else None
    return times if after is None else [sum(x) / 2 for x in zip(times, after, strict=True)]


def _once(run: Callable[[], Any]) -> float:
    """Time one call after a few others."""
    for _ in range(_WARM_UP):
        run()
    return _elapsed(run, 1)  # which has waited for what came before


def _repeat(run: Callable[[], Any], once: float, in_graph: bool) -> Callable[[], float]:
    """Return a function that makes many calls and returns the seconds of one.

    ``once``: a first measurement of these seconds, which decides how many calls are made.
    """
    calls = min(max(round(_SPAN / max(once, 1e-7)), 1), _MOST_CALLS)
    graph = _captured(run, calls) if in_graph and once < _SHORT else None
    if graph is not None:
        return lambda: _elapsed(graph.launch, 1) / calls
    return lambda: _elapsed(run, calls)


def _medians(repeats: Sequence[Callable[[], float]]) -> list[float]:
    """Call the functions in turn, several times, and return the median of each."""
    rounds = [[repeat() for repeat in repeats] for _ in range(_REPEATS)]
    return [statistics.median(x) for x in zip(*rounds, strict=True)]


def _cold_times(runs: Sequence[Callable[[], Any]]) -> list[float] | None:
    """Return the seconds of each call when L2 holds other data; None if those do not fit."""
    cupy = _device.cupy()
    try:
        other = cupy.empty(_MORE_THAN_L2, "uint8")
    except cupy.cuda.memory.OutOfMemoryError:
        return None  # a product has room where this has none

    def fill() -> None:
        other.data.memset_async(0, other.nbytes, cupy.cuda.get_current_stream())

    def after(run: Callable[[], Any]) -> None:
        fill()
        run()

    graphs = [_captured(fill, _COLD_CALLS)]
    graphs += [_captured(partial(after, run), _COLD_CALLS) for run in runs]
    if None in graphs:
        return None
    filled, *both = _medians([partial(_elapsed, graph.launch, 1) for graph in graphs])
    return [max(x - filled, 1e-9) / _COLD_CALLS for x in both]


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
