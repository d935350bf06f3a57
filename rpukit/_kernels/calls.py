"""Calls of objects with state: from one thread at a time, and whole, or known to be cut short.

`exclusive` and `changes` decorate the public methods. An object that a call changes in place is
marked before the first change, and the mark is removed when the call is complete. A call that
finds the mark on entry follows one that was cut short, and is refused. Nothing has to be caught
for this, so that no exception gets past it, wherever it is raised.

The first Ctrl-C inside such a call is raised when the call is complete; the second one at once.
"""

from __future__ import annotations

import os
import threading
from _signal import SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]
from _thread import get_ident
from collections.abc import Callable
from functools import wraps
from types import CodeType, FrameType
from typing import Any, TypeVar, cast

from rpukit import _device
from rpukit.errors import InterruptedCallError, ThreadError

# `signal.signal` of the standard library costs thirty times as much as the function it wraps.

_Method = TypeVar("_Method", bound=Callable[..., Any])

REBUILD = "build it anew, or from what was saved before (rpukit.load, from_state)"

_main = threading.main_thread().ident
_asked = False  # whether a Ctrl-C waits for the end of a call
_waits: CodeType | None = None  # code of the frames at whose end it is raised


class CallState:
    """State of the calls of one object.

    Parameters
    ----------
    remedy : str
        What to do with the object after a call was cut short, for the error message.

    Attributes
    ----------
    call : str
        Name of the present or last call that `changes` the object.
    changed : str or None
        Name of the call that has begun to change the object and is not complete.
    thread : int
        Identity of the thread of the present call; 0 or out of date when there is none.
    unit : bool
        Whether a call that `changes` the object is running.
    """

    __slots__ = ("call", "changed", "lock", "remedy", "thread", "unit")

    def __init__(self, remedy: str = REBUILD) -> None:
        self.lock: Any = threading.RLock()
        self.remedy = remedy
        self.changed: str | None = None
        self.thread = 0
        self.call = ""
        self.unit = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self.remedy, self.changed)  # a copy is not in use

    def changing(self, name: str | None = None) -> None:
        """Mark the object, before the first change in place; the end of the call removes it."""
        if self.unit and self.changed is None:
            self.changed = name or self.call

    def unchanged(self) -> None:
        """Remove the mark: all changes of the present call were undone."""
        self.changed = None

    def need_alone(self, of: Any, name: str) -> None:
        """Raise if a call of another thread is running."""
        # One line, since an interrupt between both calls would leave the lock taken.
        free = self.lock.acquire(False) and self.lock.release() is None
        if not free:
            named = {t.ident: t.name for t in threading.enumerate()}
            raise ThreadError(
                f"{name}: thread {named.get(self.thread, self.thread)!r} is inside another call "
                f"of this {type(of).__name__}. The order of calls decides the bits: call one "
                "object from one thread at a time, or give each thread a copy"
            )
        self.thread = 0  # of a call that ended by an exception

    def need_whole(self, of: Any, name: str) -> None:
        """Raise if an earlier call was cut short."""
        if self.changed is not None:
            raise InterruptedCallError(
                f"{name}: the call {self.changed!r} of this {type(of).__name__} was cut short and "
                f"left it half changed: {self.remedy}"
            )


def _copied(remedy: str, changed: str | None) -> CallState:
    state = CallState(remedy)
    state.changed = changed
    return state


def _remember(signum: int, frame: FrameType | None) -> None:
    """Handle the first Ctrl-C inside a call: it waits for the end."""
    global _asked
    inside = frame
    while inside is not None and inside.f_code is not _waits:
        inside = inside.f_back
    if _asked or inside is None:
        signal(SIGINT, default_int_handler)
        raise KeyboardInterrupt
    _asked = True


def heed() -> None:
    """Raise a Ctrl-C that waits; for calls that can be undone."""
    if _asked and get_ident() == _main:
        raise KeyboardInterrupt


def exclusive(method: _Method, name: str = "") -> _Method:
    """Decorate a method of an object with a ``_device`` and a ``_call_state``.

    It runs with that device current, and is refused while a call of another thread is running,
    and after a call was cut short. Errors call it ``name``, by default its own name.
    """
    several, name = _device.several_gpus, name or method.__name__

    @wraps(method)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        state, device = self._call_state, self._device
        here = device.kind == "cpu" or not several() or _device.current_index() == device.index
        call = method if here else _on_device(method, device)
        if state.lock._is_owned():  # part of another call
            return call(self, *args, **kwargs)
        if state.thread:
            state.need_alone(self, name)
        with state.lock:
            if state.changed is not None:
                state.need_whole(self, name)
            state.thread, state.unit = get_ident(), False
            result = call(self, *args, **kwargs)
            state.thread = 0
            return result

    entered._is_call = True  # type: ignore[attr-defined]
    return cast(_Method, entered)


def changes(method: _Method) -> _Method:
    """Decorate a method that changes its object in place; more than `exclusive` does.

    The method calls ``changing`` of the object's `CallState` before its first change in place. Its
    parts may be calls of the same kind.
    """
    return cast(_Method, _changes(method, mends=False))


def replaces(method: _Method) -> _Method:
    """Decorate a method that replaces all state: it is allowed after a call was cut short."""
    return cast(_Method, _changes(method, mends=True))


def _changes(method: Callable[..., Any], *, mends: bool) -> Callable[..., Any]:
    global _waits
    several, name = _device.several_gpus, method.__name__

    @wraps(method)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _asked
        state, device = self._call_state, self._device
        here = device.kind == "cpu" or not several() or _device.current_index() == device.index
        call = method if here else _on_device(method, device)
        inside = state.lock._is_owned()
        if inside:
            if state.unit:  # part of another call that changes the object
                return call(self, *args, **kwargs)
        elif state.thread:
            state.need_alone(self, name)
        with state.lock:
            before = None if mends else state.changed
            if before is not None and not inside:
                state.need_whole(self, name)
            state.thread = me = get_ident()
            state.unit, state.call = True, name
            defers = me == _main and getsignal(SIGINT) is default_int_handler
            if defers:
                signal(SIGINT, _remember)
            try:
                result = call(self, *args, **kwargs)
                state.changed = before
            finally:
                state.unit = False
                if defers:
                    signal(SIGINT, default_int_handler)
                    if _asked:
                        _asked = False
                        raise KeyboardInterrupt
            if not inside:
                state.thread = 0
            return result

    made: Any = entered
    _waits = made.__code__  # the same of all methods
    made._is_call = True
    return entered


def _on_device(method: Callable[..., Any], device: _device.Device) -> Callable[..., Any]:
    """Return the method with the device entered."""

    def entered(*args: Any, **kwargs: Any) -> Any:
        with _device.using(device):
            return method(*args, **kwargs)

    return entered


def _in_child() -> None:
    global _main
    _main = threading.main_thread().ident


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
