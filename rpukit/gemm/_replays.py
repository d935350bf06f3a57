"""Replays of products: a repeated call costs the host one look-up.

Launches are kept by the addresses of factors and result, with the form of the call: shapes,
strides and types. For an equal form all checks hold again, whichever arrays are at those
addresses now; the arrays themselves are not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rpukit import _device
from rpukit._kernels import driver, tune
from rpukit._kernels.launch import Launched, _here
from rpukit._kernels.replay import Replay
from rpukit.gemm import _turns

Array = Any
Form = tuple[Any, ...]

_MOST, _MOST_FORMS = 1 << 12, 8  # calls, and calls at the same addresses
_OF_TURNS = ("turns", "segments", "room")  # parameters of kernels: memory that `_turns` gives
_known: dict[tuple[int, int, int], Known] = {}
_results: dict[Form, tuple[tuple[int, ...], Any]] = {}  # shape and type, by those of factors
classes: set[type] = set()  # of arrays whose calls are known: CuPy's


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Replay of a product."""

    form: Form
    device: _device.Device
    several: bool  # whether there are other GPUs
    n_change: int  # of the tuner's decisions when the kernel was chosen
    current_stream: Callable[[], Any]  # of CuPy
    replay: Replay
    other: Known | None = None  # of another form at the same addresses


def run(
    a: Array, b: Array, out: Array | None, trans_a: bool, trans_b: bool, out_dtype: Any
) -> Array | None:
    """Replay the recorded call of these arrays and return its result; None if there is none.

    ``a``, ``b``, ``out``: CuPy arrays; ``out_dtype``: None with `out`.
    """
    if out is None:
        out = _allocate(a, b, trans_a, trans_b, out_dtype)
        if out is None:
            return None
    known = _known.get((a.data.ptr, b.data.ptr, out.data.ptr))
    if known is None or known.n_change != tune._n_change or _here.launches is not None:
        return None
    form = form_of(a, b, out, trans_a, trans_b)
    while known.form != form:
        if known.other is None:
            return None
        known = known.other
    if known.several:  # an address that one GPU has freed may be another's
        index = known.device.index
        if any(x.data.device_id != index for x in (a, b, out)):
            return None
        if _device.current_index() != index:
            with _device.using(known.device):
                return run(a, b, out, trans_a, trans_b, None)
    replay, stream = known.replay, known.current_stream().ptr
    if not (replay.any_stream or replay.takes(stream)):
        return None
    try:
        for launch in replay.prepared.get(stream) or replay.on(stream):
            if code := launch():
                raise driver.refused(code)
    except driver.refusals() as error:
        raise driver.refused(error) from error
    return out


def form_of(a: Array, b: Array, out: Array, trans_a: bool, trans_b: bool) -> Form:
    """Form of a call of CuPy arrays."""
    return (
        a.shape,
        b.shape,
        out.shape,
        a._c_contiguous or a.strides,  # either says all, and a flag costs less
        b._c_contiguous or b.strides,
        out._c_contiguous,
        a.dtype,
        b.dtype,
        out.dtype,
        trans_a,
        trans_b,
    )


def _allocate(a: Array, b: Array, trans_a: bool, trans_b: bool, out_dtype: Any) -> Array | None:
    """Allocate a result as of a known call; None if there is none, or a graph is recorded."""
    given = _results.get((a.shape, b.shape, a.dtype, trans_a, trans_b, out_dtype))
    if given is None:
        return None
    with _device.using(_device.device_of(a)):
        if _device.current_stream() and _device.free_stream() is None:
            return None  # the mode of the capture may have to be changed
        return a.__class__(*given)


def keep(
    launches: Sequence[Launched],
    a: Array,
    b: Array,
    out: Array,
    trans_a: bool,
    trans_b: bool,
    out_dtype: Any,
) -> None:
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
    changing = [places[x.data.ptr] for x in (a, b, out)]
    form, place = form_of(a, b, out, trans_a, trans_b), (a.data.ptr, b.data.ptr, out.data.ptr)
    if len(_known) >= _MOST or len(_results) >= _MOST:
        _known.clear()
        _results.clear()
    classes.add(a.__class__)
    _results[a.shape, b.shape, a.dtype, trans_a, trans_b, out_dtype] = out.shape, out.dtype
    known = Known(
        form,
        _device.device_of(out),
        _device.several_gpus(),
        tune.n_changes(),
        _device.cupy().cuda.get_current_stream,
        Replay(launches, changing, any_stream=not waits, thread=thread),
    )
    _known[place] = replace(known, other=_others(_known.get(place), known))


def _others(kept: Known | None, new: Known) -> Known | None:
    """Return what stays known at the addresses of a new call: a few other forms of now."""
    found = []
    while kept is not None:
        if kept.form != new.form and kept.n_change == new.n_change:
            found.append(kept)
        kept = kept.other
    last = None
    for one in reversed(found[: _MOST_FORMS - 1]):
        last = replace(one, other=last)
    return last
