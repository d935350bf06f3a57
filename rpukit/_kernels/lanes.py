"""Copies between GPUs on streams of their own, beside what the GPUs compute.

A copy on a default stream begins when both GPUs have done all that they were given before, and
what they are given later waits for it. A copy on a stream of its own waits for events alone.
"""

from __future__ import annotations

from collections.abc import Iterable
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
def _stream(device: Device) -> Any:
    with _device.using(device):
        return _device.cupy().cuda.Stream(non_blocking=True)


class Lanes:
    """A stream of each GPU for copies to others; it is the same for all lanes.

    Sources are kept until `finish`, after which their GPUs may overwrite them.

    Parameters
    ----------
    devices : iterable of Device
        CPUs among them have no stream: copies from and to them are made at once.
    """

    def __init__(self, devices: Iterable[Device]) -> None:
        self._streams = {each: _stream(each) for each in devices if each.kind == "gpu"}
        self._kept: list[Array] = []

    def copy(self, source: Array, out: Array, *after: Any) -> Any:
        """Copy to a like array of another GPU, after events; return the event behind the copy.

        Both arrays are C-contiguous.
        """
        here = _device.device_of(source)
        lane, cuda = self._streams[here], _device.cupy().cuda
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
        cuda = _device.cupy().cuda if self._streams else None
        for device, lane in self._streams.items():
            with _device.using(device):
                done = lane.record(cuda.Event(disable_timing=True))  # type: ignore[union-attr]
                cuda.get_current_stream().wait_event(done)  # type: ignore[union-attr]
        self._kept.clear()
