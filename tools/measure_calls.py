"""Measure what the guards of calls cost the host, beside a plain call of the same method.

python tools/measure_calls.py
"""

from __future__ import annotations

import sys
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit import _device
from rpukit._kernels.calls import CallState, changes, exclusive
from rpukit._kernels.entering import enters

N, REPEATS = 5000, 200


class Thing:
    """An object with one method under each decorator."""

    def __init__(self) -> None:
        self._device, self._call_state = _device.CPU, CallState()

    @enters
    def on_its_device(self) -> None:
        """Enter the device only."""

    @exclusive
    def reads(self) -> None:
        """Refuse other threads."""

    @changes
    def writes(self) -> None:
        """Refuse other threads, mark the object, and let Ctrl-C wait."""
        self._call_state.changing()


def main() -> None:
    thing = Thing()
    for name in ("on_its_device", "reads", "writes"):
        best = min(timeit.repeat(getattr(thing, name), number=N, repeat=REPEATS))
        print(f"{name:15} {best / N * 1e6:.2f} us a call")


if __name__ == "__main__":
    main()
