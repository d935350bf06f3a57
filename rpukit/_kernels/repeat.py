"""Calls that make the same launches again and again, at the cost of the driver's calls alone.

What a call launches is recorded. Where two calls of one key made the same launches, those after
them make them with the arguments of the second, but for the inputs and some numbers, which go by
their names in the sources. Arrays that one launch passes to the next are kept for that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rpukit import _device
from rpukit._kernels import clock, launch, tune
from rpukit._kernels.arguments import pack

Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What a call launched, what it was given, and its numbers by name."""

    launches: list[launch.Launched]
    inputs: Sequence[Array]
    numbers: Mapping[str, float]

    def agrees(self, other: Recorded) -> bool:
        """Whether another call made the same launches, but for inputs and numbers."""
        shapes, others = (
            [(a.variant, a.grid, a.block, a.shared) for a in each.launches]
            for each in (self, other)
        )
        return shapes == others and all(
            self._same(other, *each)
            for a, b in zip(self.launches, other.launches, strict=True)
            for each in zip(a.parameters, a.args, b.args, strict=True)
        )

    def _same(self, other: Recorded, parameter: Any, a: Any, b: Any) -> bool:
        if parameter.pointer:
            return (a is None) == (b is None) and self.input_of(a) == other.input_of(b)
        return bool(a == b) or (self.takes(parameter, a) and other.takes(parameter, b))

    def takes(self, parameter: Any, a: Any) -> bool:
        """Whether an argument is the call's number of that name."""
        return not parameter.pointer and bool(self.numbers.get(parameter.name) == a)

    def input_of(self, a: Array) -> int:
        """Tell which input an argument is; -1 for none."""
        return next((k for k, given in enumerate(self.inputs) if a is given), -1)


class Repeat:
    """Launches that two calls made, to be made again.

    Parameters
    ----------
    first, last : Recorded
        They agree.
    """

    def __init__(self, first: Recorded, last: Recorded) -> None:
        self._on_gpu = any(map(_device.is_cupy, last.inputs))
        self._launches: list[tuple[Any, list[Any]]] = []
        self._kept: list[Any] = []
        self._inputs: list[list[Any]] = [[] for _ in last.inputs]
        self._numbers: dict[str, list[Any]] = {name: [] for name in last.numbers}
        for before, now in zip(first.launches, last.launches, strict=True):
            slots: list[Any] = [[a] for a in now.args]
            start: Any = now
            if self._on_gpu:
                slots = [pack(a).reshape(1) for a in now.variant.checked(now.args)]
                how = {"early": now.early, "together": now.together}
                start = now.variant.again(now.grid, now.block, slots, now.shared, **how)
            self._launches.append((start, slots))
            for p, slot, a, b in zip(now.parameters, slots, before.args, now.args, strict=True):
                if first.takes(p, a) and last.takes(p, b):
                    self._numbers[p.name].append(slot)
                elif p.pointer and last.input_of(b) >= 0:
                    self._inputs[last.input_of(b)].append(slot)
                elif p.pointer:
                    self._kept.append(b)

    def __call__(self, inputs: Sequence[Array], numbers: Mapping[str, float]) -> None:
        """Launch with inputs of the types and shapes of those recorded, and with numbers."""
        for slots, given in zip(self._inputs, inputs, strict=True):
            value = given.data.ptr if self._on_gpu else given
            for slot in slots:
                slot[0] = value
        for name, number in numbers.items():
            for slot in self._numbers[name]:
                slot[0] = number
        if self._on_gpu:
            stream = _device.current_stream()
            for start, _ in self._launches:
                start(stream)
            return
        for start, slots in self._launches:
            args = [slot[0] for slot in slots]
            start.variant.launch(start.grid, start.block, args, start.shared)


class Repeats:
    """What one object launched in its last calls, by key: all that decides the launches.

    Parameters
    ----------
    most : int
        Keys that are known at a time; each keeps the arrays of its launches.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._known: dict[Hashable, Recorded | Repeat] = {}
        self._n_change = -1

    def run(
        self,
        key: Hashable,
        inputs: Sequence[Array],
        numbers: Mapping[str, float],
        call: Callable[[], None],
    ) -> None:
        """Make the launches of a key where two calls agreed on them, else the call.

        Parameters
        ----------
        key : hashable
            All that decides what is launched.
        inputs : sequence of arrays
            What the call is given; no two are the same.
        numbers : mapping of str to number
            What changes from call to call, by the names of parameters.
        call : callable
            Launches in the usual way.
        """
        if self._n_change != tune.n_changes():  # other variants may be picked
            self._known.clear()
            self._n_change = tune.n_changes()
        before = self._known.get(key)
        if isinstance(before, Repeat):
            before(inputs, numbers)
            return
        with launch.recording() as launches:
            call()
        now = Recorded(launches, inputs, numbers)
        if len(self._known) >= self._most and key not in self._known:
            del self._known[next(iter(self._known))]
        again = before is not None and before.agrees(now)
        self._known[key] = Repeat(before, now) if again else now  # type: ignore[arg-type]


def repeatable(array: Array) -> bool:
    """Whether launches on an array may be made again: on the only GPU, and not for a graph."""
    if _device.is_cupy(array):
        return not (launch.several_gpus() or clock.capturing())
    return _device.takes_kernels(array)
