"""Deferred errors of a tile on a GPU.

A kernel that meets a non-finite value stores the number of the call in the tile's status array;
every later kernel of the tile then does nothing. So a steady step needs no host synchronisation,
and nothing is ever half-changed. The error is raised at the next synchronising call or by
``rpukit.check()``, which also puts the sample clocks back to where the failing call found them.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._exact import twins
from rpukit._kernels import Kernel
from rpukit._kernels.calls import CallState
from rpukit._kernels.entering import enters
from rpukit._workers import run_rows
from rpukit.errors import NonFiniteError

_CHECK_FINITE = Kernel("check_finite")
_CHECK_EVERY = 4096  # calls between synchronisations, so that the log of calls stays short
_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """Status array and log of calls of one tile.

    ``clocks``, ``registers`` and ``skipped`` are what calls change on the host; they are put back
    to where a failing call found them. ``call_state`` is that of the tile and of its arrays.
    """

    def __init__(
        self,
        clocks: dict[str, Any],
        device: _device.Device,
        registers: dict[str, Any] | None = None,
        skipped: dict[str, int] | None = None,
    ) -> None:
        self._device, self.call_state = device, CallState()
        self.status: Any = _device.zeros((1,), np.int32, device)
        kept = (clocks, registers, skipped)
        self._memories = tuple(memory for memory in kept if memory is not None)
        self._calls: list[tuple[str, list[dict[str, Any]]]] = []
        _guards.add(self)

    def begin(self, what: str) -> int:
        """Log a call, and give the number that its kernels store when they meet a bad value."""
        number = self.number()
        self.log(what)
        return number

    def number(self) -> int:
        """The number of the call to come."""
        if len(self._calls) >= _CHECK_EVERY and self._may_wait():
            self.check()
        return len(self._calls) + 1

    def log(self, what: str) -> None:
        """Log a call, before it moves a clock."""
        self._calls.append((what, [dict(memory) for memory in self._memories]))

    def _may_wait(self) -> bool:
        return not _device.is_cupy(self.status) or _device.free_stream() is not None

    @enters
    def check(self) -> None:
        """Synchronise; raise what a kernel has found since the last check.

        Raises
        ------
        NonFiniteError
        """
        failed = int(_device.to_numpy(self.status)[0])
        calls, self._calls = self._calls, []
        if failed:
            self.status.fill(0)
            what, memories = calls[failed - 1]
            for memory, before in zip(self._memories, memories, strict=True):
                memory.update(before)
            self.call_state.unchanged()
            raise NonFiniteError(
                f"{what} holds NaN or infinity: that call and the {len(calls) - failed} tile "
                "calls after it did nothing; the tile is as it was before"
            )


def is_finite(array: np.ndarray) -> bool:
    """Whether all values are finite; to count costs less than ``all``, for small arrays."""
    return bool(np.count_nonzero(np.isfinite(array)) == array.size)


def check_finite(x: Any, *, status: Any, call: int) -> None:
    """Store ``call`` in ``status``, if that is 0, where x is not finite."""
    if _device.runs_kernels(_device.namespace(x)):
        grid = min(max(-(-x.size // 256), 1), 1024)
        macros = {"REAL": twins.real(x.dtype)}
        _CHECK_FINITE.launch((grid,), (256,), (x.size, call, x, status), macros=macros)
    else:
        mirror = twins.mirror("rpukit.analog._mirror.guard", x.dtype).check_finite
        run_rows(mirror, x.size, call, x.reshape(-1), status, grain=1 << 16)


def check() -> None:
    """Raise the deferred errors of all tiles, synchronising with their GPUs.

    Raises
    ------
    NonFiniteError
        If a tile got NaN or infinity in a call since the last check.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.check()
    """
    for guard in list(_guards):
        guard.check()
