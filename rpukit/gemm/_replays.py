"""Replays of products: a repeated call costs the host one look-up.

A key consists of the addresses, shapes, strides and types of both factors. For an equal key all
checks hold again, whichever array is at that address now; the arrays themselves are not kept. The
launches are likewise kept by the address of the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rpukit import _device
from rpukit._kernels import tune
from rpukit._kernels.launch import Launched, _here
from rpukit._kernels.replay import Replay
from rpukit.gemm import _turns, tensor

Array = Any
Key = tuple[Any, ...]

_MOST, _MOST_RESULTS = 1 << 12, 64
_OF_TURNS = ("turns", "segments", "room")  # parameters of kernels: memory that `_turns` gives
_known: dict[Key, Known] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Replays of a product by the address of its result; all have one shape, type and device."""

    shape: tuple[int, int]
    dtype: Any
    device: _device.Device
    several: bool  # whether there are other GPUs
    replays: dict[int, Replay]
    n_change: int  # of the tuner's decisions when the kernel was chosen
    current_stream: Callable[[], Any]  # of CuPy


def key_of(a: Array, b: Array, trans_a: bool, trans_b: bool, dtype: Any) -> Key:
    """Key of a call of two CuPy arrays."""
    return (
        a.data.ptr,
        b.data.ptr,
        a.shape,
        b.shape,
        a._c_contiguous or a.strides,  # either says all, and a flag costs less
        b._c_contiguous or b.strides,
        a.dtype,
        b.dtype,
        trans_a,
        trans_b,
        dtype,
    )


def run(key: Key, a: Array, b: Array, out: Array | None) -> Array | None:
    """Replay the recorded call of a key and return its result; return None if there is none.

    ``out``: a CuPy array, of the type that is in the key.
    """
    known = _known.get(key)
    if known is None or known.n_change != tune._n_change or _here.launches is not None:
        return None
    if known.several:  # an address that one GPU has freed may be another's
        index = known.device.index
        if any(x is not None and x.data.device_id != index for x in (a, b, out)):
            return None
        if _device.current_index() != index:
            with _device.using(known.device):
                return run(key, a, b, out)
    if out is None:
        out = _device.cupy_array_class()(known.shape, known.dtype)  # type: ignore[misc]
    elif out.shape != known.shape or not out._c_contiguous:
        return None
    replay = known.replays.get(out.data.ptr)
    if replay is None:
        return None
    stream = known.current_stream().ptr
    if not (replay.any_stream or replay.takes(stream)):
        return None
    for start in replay.starts:  # the addresses are the same
        start(stream)
    return out


def keep(key: Key, launches: Sequence[Launched], a: Array, b: Array, out: Array) -> None:
    """Keep the launches of a call that used no other memory than its arrays.

    Or besides them the memory of `_turns`: then they stay on their stream, and those that use
    copies of factors in their thread.
    """
    waits, thread = False, 0
    places: dict[int, list[tuple[int, int]]] = {x.data.ptr: [] for x in (a, b, out)}
    for i, one in enumerate(launches):
        for j, value in enumerate(one.args):
            if _device.is_cupy(value):
                if value.data.ptr in places:
                    places[value.data.ptr].append((i, j))
                elif _device.free_stream() is None:
                    return  # a graph has memory of its own
                elif one.parameters[j].name in _OF_TURNS:
                    waits = True
                elif _turns.is_copy(value):
                    waits, thread = True, threading.get_ident()
                else:
                    return
    if waits and _device.current_stream() == _turns.OF_THREAD:
        return  # other threads have streams of their own by that handle
    known, device = _known.get(key), _device.device_of(out)
    if known is None or known.n_change != tune.n_changes() or known.device != device:
        if len(_known) >= _MOST:
            _known.clear()
        known = _known[key] = Known(
            out.shape,
            out.dtype,
            device,
            _device.several_gpus(),
            {},
            tune.n_changes(),
            _device.cupy().cuda.get_current_stream,
        )
    if len(known.replays) >= _MOST_RESULTS:
        known.replays.clear()
    changing = [places[x.data.ptr] for x in (a, b, out)]
    ready = [one._replace(early=tensor.begins_early(one)) for one in launches]
    replay = Replay(ready, changing, any_stream=not waits, thread=thread)
    known.replays[out.data.ptr] = replay
