"""Numbers by which blocks of a launch wait for each other: 0 before and after it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels import clock
from rpukit._kernels.replay import keep_for_graph

Array = Any

_ROOM = 1 << 18  # numbers that are set aside for graphs at a time
_rooms: dict[Device, Array] = {}
_lock = threading.Lock()


def zeros(count: int, device: Device) -> Array:
    """Numbers for one launch; a graph that is being captured keeps them.

    A graph takes them from what was set to 0 before, so that it need not do this at each replay.
    """
    if device.kind == "cpu":
        return _device.zeros((count,), np.uint32, device)
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
