"""Copies between GPUs on streams of their own, beside what the GPUs compute.

A copy on a default stream begins when both GPUs have done all that they were given before, and
what they are given later waits for it. A copy on a stream of its own waits for events alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rpukit import _device
from rpukit._device import Device

__all__ = ["Lanes", "mark"]

Array = Any


def mark(device: Device) -> Any:
    """Record an event behind what the current stream of a GPU was given; None for the CPU."""
    if device.kind == "cpu":
        return None
    cuda = _device.cupy().cuda
    with _device.using(device):
        return cuda.get_current_stream().record(cuda.Event(disable_timing=True))


@cache
def _stream(here: Device, there: Device, purpose: str) -> Any:
    with _device.using(here):
        return _device.cupy().cuda.Stream(non_blocking=True)


class Lanes:
    """A stream for each pair of GPUs; it is the same for all lanes of one purpose.

    Copies of one lane are made in order, so those that wait long have lanes of another purpose.
    Sources are kept until `finish`, after which their GPUs may overwrite them.

    Parameters
    ----------
    purpose : str
    """

    def __init__(self, purpose: str = "results") -> None:
        self._purpose = purpose
        self._used: dict[tuple[Device, Device], Any] = {}
        self._kept: list[Array] = []

    def copy(self, source: Array, out: Array, *after: Any) -> Any:
        """Copy to a like array of another GPU, after events; return the event behind the copy.

        Both arrays are C-contiguous.
        """
        here, there = _device.device_of(source), _device.device_of(out)
        lane, cuda = _stream(here, there, self._purpose), _device.cupy().cuda
        self._used[here, there] = lane
        self._kept.append(source)
        with _device.using(here):
            for event in after:
                lane.wait_event(event)
            out.data.copy_from_device_async(source.data, source.nbytes, lane)
            return lane.record(cuda.Event(disable_timing=True))

    def put(self, source: Array, out: Array, *after: Any) -> None:
        """Copy as `copy` does; what the target's GPU is given later waits for it."""
        self.wait(_device.device_of(out), self.copy(source, out, *after))

    def send(self, source: Array, device: Device, made: Any = None) -> tuple[Array, Any]:
        """Copy an array to another device; return the copy, and the event behind it.

        ``made`` is the event after which the source is there. Default: all that its GPU was given.
        """
        here = _device.device_of(source)
        if "cpu" in (here.kind, device.kind):
            return _device.to_device(source, device), None
        if not source.flags.c_contiguous:
            with _device.using(here):
                source, made = _device.cupy().ascontiguousarray(source), None
        out = _device.empty(source.shape, source.dtype, device)
        # Memory of the copy may be in use by what its GPU was given before.
        return out, self.copy(source, out, mark(device), made or mark(here))

    def wait(self, device: Device, event: Any) -> None:
        """Let what a GPU is given later wait for a copy."""
        if event is not None:
            with _device.using(device):
                _device.cupy().cuda.get_current_stream().wait_event(event)

    def finish(self) -> None:
        """Let what may overwrite the sources wait for their copies."""
        for (here, _), lane in self._used.items():
            with _device.using(here):
                cuda = _device.cupy().cuda
                done = lane.record(cuda.Event(disable_timing=True))
                cuda.get_current_stream().wait_event(done)
        self._used.clear()
        self._kept.clear()
