"""Replays of products: a repeated call costs the host one look-up.

A key consists of the addresses, devices, shapes, strides and types of both factors. For an equal
key all checks hold again, whichever array is at that address now; the arrays themselves are not
kept. The launches are likewise kept by the address of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rpukit import _device
from rpukit._kernels import tune
from rpukit._kernels.launch import Launched, is_recording
from rpukit._kernels.replay import Replay
from rpukit.gemm._tiles import EARLY_STAGES

Array = Any
Key = tuple[Any, ...]

_MOST, _MOST_RESULTS = 1 << 12, 64
_OF_TURNS = ("turns", "segments", "room")  # parameters of kernels: memory that `_turns` gives
_known: dict[Key, Known] = {}


class Known(NamedTuple):
    """Replays of a product by the address of its result; all have one shape, type and device."""

    shape: tuple[int, int]
    dtype: Any
    device: _device.Device
    replays: dict[int, Replay]
    n_change: int  # of the tuner's decisions when the kernel was chosen


def key_of(a: Array, b: Array, trans_a: bool, trans_b: bool, dtype: Any) -> Key:
    """Key of a call of two CuPy arrays."""
    at, bt = a.data, b.data
    # An address that one GPU has freed may be another's.
    left = at.ptr, at.device_id, a.shape, a.strides, a.dtype
    right = bt.ptr, bt.device_id, b.shape, b.strides, b.dtype
    return left, right, trans_a, trans_b, dtype


def run(key: Key, out: Array | None) -> Array | None:
    """Replay the recorded call of a key and return its result; return None if there is none.

    ``out``: a CuPy array.
    """
    known = _known.get(key)
    if known is None or known.n_change != tune.n_changes() or is_recording():
        return None
    if _device.several_gpus() and not _device.is_current(known.device):
        with _device.using(known.device):
            return run(key, out)
    if out is None:
        out = _device.cupy_array_class()(known.shape, known.dtype)  # type: ignore[misc]
    elif out.shape != known.shape or out.dtype != known.dtype or not out._c_contiguous:
        return None
    place = out.data
    replay = known.replays.get(place.ptr)
    if replay is None or place.device_id != known.device.index:
        return None
    if not (replay.any_stream or replay.valid()):
        return None
    replay.again()  # the addresses are the same
    return out


def keep(key: Key, launches: Sequence[Launched], a: Array, b: Array, out: Array) -> None:
    """Keep the launches of a call that used no other memory than its arrays.

    Or besides them the memory of `_turns`: then they stay on their stream.
    """
    waits = False
    places: dict[int, list[tuple[int, int]]] = {x.data.ptr: [] for x in (a, b, out)}
    for i, one in enumerate(launches):
        for j, value in enumerate(one.args):
            if _device.is_cupy(value):
                if value.data.ptr in places:
                    places[value.data.ptr].append((i, j))
                elif one.parameters[j].name in _OF_TURNS and _device.free_stream() is not None:
                    waits = True
                else:
                    return
    known = _known.get(key)
    if known is None or known.n_change != tune.n_changes():
        if len(_known) >= _MOST:
            _known.clear()
        known = Known(out.shape, out.dtype, _device.device_of(out), {}, tune.n_changes())
        _known[key] = known
    if len(known.replays) >= _MOST_RESULTS:
        known.replays.clear()
    changing = [places[x.data.ptr] for x in (a, b, out)]
    ready = [one._replace(early=one.early or begins_early(one)) for one in launches]
    known.replays[out.data.ptr] = Replay(ready, changing, any_stream=not waits)


def begins_early(one: Launched) -> bool:
    """Whether a replayed launch may begin while the launch before it ends.

    It saves a microsecond where blocks are few and have a multiprocessor each, or share it.
    Elsewhere the blocks of the next launch take the first places that become free, and crowd
    there.
    """
    macros = one.variant.macros
    if one.variant.entry == "det_gemm_mma":
        return int(macros.get("COPIERS", 0)) > 0
    if one.variant.entry != "det_gemm_tensor" or int(macros.get("OUT_T", 0)) == 0:
        return False
    slabs = int(macros.get("ST", 0)) * int(macros.get("SLABS", 1))
    return slabs >= EARLY_STAGES and "CLUSTER" not in macros
