"""Device memory that products share: counters, partial sums of segments, copies of factors."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels import clock, driver
from rpukit._kernels.replay import keep_for_graph

Array = Any

_ROOM = 1 << 18  # numbers that are set aside for graphs at a time
_rooms: dict[Device, Array] = {}
_segments: dict[Any, Array] = {}
_lock = threading.Lock()
_MOST_STREAMS = 16
OF_THREAD = 2  # the driver's handle of each thread's default stream


def zeros(count: int, device: Device) -> Array:
    """Numbers for one launch, which leaves them at 0; a graph that is being captured keeps them.

    A graph takes them from what was set to 0 before, so that it need not do this at each replay.
    """
    if device.kind == "cpu":
        made = _device.zeros((count,), np.uint32, device)
        keep_for_graph(made)
        return made
    capturing = clock.capturing()
    with _lock:
        room = _rooms.get(device)
        if not capturing and (room is None or 2 * room.size < _ROOM):
            _rooms[device] = _device.zeros((_ROOM,), np.uint32, device)
            _device.cupy().cuda.get_current_stream().synchronize()  # other streams will use it
        elif capturing and room is not None and room.size >= count:
            made, _rooms[device] = room[:count], room[count:]
            keep_for_graph(made)
            return made
    made = _device.zeros((count,), np.uint32, device)
    keep_for_graph(made)
    return made


def memory(
    n_turn: int, n_sum: int, dtype: Any, device: Device
) -> tuple[Array | None, Array | None]:
    """Numbers of `zeros` and results of `room` for one launch; None for those it does not need."""
    turns = zeros(n_turn, device) if n_turn else None
    return turns, room(n_sum, np.dtype(dtype), device) if n_sum else None


class Parts(NamedTuple):
    """Sizes of the memory that holds the results of segments until they are added."""

    turns: int = 0  # numbers by which blocks know which of them is the last
    room: int = 0  # float32 numbers

    def memory(self, out: Array) -> tuple[Array | None, Array | None]:
        """Take it, on the device of `out`."""
        return memory(self.turns, self.room, np.float32, _device.device_of(out))


def room(count: int, dtype: np.dtype[Any], device: Device, *, copies: bool = False) -> Array:
    """Memory for results of segments, which launches of one stream use one after the other.

    A graph has memory of its own, as it may be launched on any stream. ``copies``: memory for
    copies of factors, between two launches of a thread.
    """
    if device.kind == "cpu":
        made = _device.empty((count,), dtype, device)
        keep_for_graph(made)
        return made
    stream, graph = _device.current_stream(), 0
    if _device.free_stream() is None:
        graph = driver.capture_number(stream) or -1
    thread = threading.get_ident() if copies or stream == OF_THREAD else 0
    key = device, stream, graph, thread, copies
    n_byte = count * dtype.itemsize
    words = _segments.get(key)
    if words is None or words.nbytes < n_byte or graph < 0:
        if len(_segments) >= _MOST_STREAMS:
            _segments.clear()
        words = _device.empty((1 << (n_byte - 1).bit_length(),), np.uint8, device)
        _segments[key] = words
        keep_for_graph(words)
    found: Array = words[:n_byte].view(dtype)
    return found


def is_copy(array: Array) -> bool:
    """Whether an array is a copy of a factor, in memory of `room`."""
    address = array.data.ptr
    return any(
        key[-1] and room.data.ptr <= address < room.data.ptr + room.nbytes
        for key, room in list(_segments.items())
    )
