"""Replay recorded launches with driver-call overhead only.

Most calls of a training step repeat those of the step before: the same kernels and launch shapes,
the same arrays except for inputs and results. `Replay` repeats recorded launches with new values
of the arguments that change. A caller either names the parameters that change (`by_name`) or lets
two calls be compared (`Replays`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from rpukit import _device
from rpukit._kernels import clock, driver, launch, tune
from rpukit._kernels.arguments import pack
from rpukit._kernels.launch import Launched

Array = Any
Places = Sequence[tuple[int, int]]  # of an argument: indices of the launch and the parameter

_MOST_STREAMS = 64  # of a replay
_graph_arrays: dict[int, Any] = {}  # a graph uses them for an unknown time


def keep_for_graph(*arrays: Any) -> None:
    """Keep alive the arrays that the graph being captured on the current stream will use."""
    here = {id(a): a for a in arrays if _device.is_cupy(a)}
    if here and _device.free_stream() is None:
        _graph_arrays.update(here)


def graph_may_allocate(device: _device.Device) -> AbstractContextManager[None]:
    """Allow allocations in a ``with`` block if the current stream is capturing a graph."""
    recording = device.kind == "gpu" and _device.free_stream() is None
    return driver.allocating() if recording else nullcontext()


class Replay:
    """Recorded launches that can be repeated; arguments that do not change are kept alive.

    Parameters
    ----------
    launches : sequence of Launched
        Launches just made on the current device and stream, or by the runner on the CPU.
    changing : sequence of sequences of (int, int)
        For each value that changes from call to call, the arguments that take it.
    any_stream : bool
        Whether the launches may go to any stream, including one that is captured. This is valid
        if no later replay reads what they write.
    thread : int, optional
        The only thread that may launch them, where others could come between two launches.
    """

    def __init__(
        self,
        launches: Sequence[Launched],
        changing: Sequence[Places],
        *,
        any_stream: bool = False,
        thread: int = 0,
    ) -> None:
        self._n_change = tune.n_changes()
        self._device = launches[0].device if launches else None
        on_gpu = self._device is not None
        self._several = on_gpu and _device.several_gpus()
        self.any_stream, self._thread = on_gpu and any_stream, thread
        self._stream = _device.current_stream() if on_gpu and not any_stream else None
        self._kept: list[Any] = []  # what kernels read or write at fixed addresses
        self.prepared: dict[int, tuple[driver.Prepared, ...]] = {}  # launches, by stream
        self._prepare: list[Callable[[int], driver.Prepared]] = []
        words: list[tuple[int, Any]] = []
        shared: dict[tuple[int, str], Any] = {}
        value_of = {at: k for k, places in enumerate(changing) for at in places}
        for i, one in enumerate(launches):
            gpu = one.device is not None
            slots = []
            for j, a in enumerate(one.variant.checked(one.args) if gpu else one.args):
                slot: Any = pack(a).reshape(1) if gpu else [a]
                k = value_of.get((i, j))
                if k is None:
                    self._kept.append(a)
                else:
                    kind = slot.dtype.str if gpu else ""
                    if (k, kind) not in shared:
                        shared[k, kind] = slot
                        words.append((k, slot.data if gpu else slot))
                    slot = shared[k, kind]
                slots.append(slot)
            self._prepare.append(_prepare(one, slots))
        self._words = tuple(words)

    @classmethod
    def by_name(cls, launches: Sequence[Launched], names: Sequence[str]) -> Replay:
        """Replay with other values of the parameters of these names, in this order."""
        every = [
            (parameter.name, (i, j))
            for i, one in enumerate(launches)
            for j, parameter in enumerate(one.parameters)
        ]
        return cls(launches, [[at for name, at in every if name == wanted] for wanted in names])

    def valid(self) -> bool:
        """Whether device, stream and the tuner's choices are those of the recording.

        False while launches are being recorded for a graph or for another replay.
        """
        if self._n_change != tune.n_changes() or launch.is_recording():
            return False
        if self._several and self._device != _device.current_index():
            return False
        return self._stream is None or self.takes(_device.current_stream())

    def takes(self, stream: int) -> bool:
        """Whether the current stream, and the thread, are those recorded.

        And the stream does not record a graph, as the default stream, 0, never does.
        """
        if self._thread and self._thread != threading.get_ident():
            return False
        return stream == self._stream and (stream == 0 or _device.free_stream() is not None)

    def __call__(self, *values: Any) -> None:
        """Launch with these numbers and addresses of arrays, in the order of `changing`."""
        for k, word in self._words:
            word[0] = values[k]
        self.again()

    def again(self) -> None:
        """Launch with the arguments of the previous call, or else those recorded."""
        stream = _device.current_stream() if self.any_stream else self._stream or 0
        driver.start(self.prepared.get(stream) or self.on(stream))

    def on(self, stream: int) -> tuple[driver.Prepared, ...]:
        """Prepare the launches for a stream; `prepared` keeps them."""
        if len(self.prepared) >= _MOST_STREAMS:
            self.prepared.clear()
        made = self.prepared[stream] = tuple(prepare(stream) for prepare in self._prepare)
        return made


def _prepare(one: Launched, slots: Sequence[Any]) -> Callable[[int], driver.Prepared]:
    """Return what prepares a launch for a stream, with the slots' contents at each start."""
    variant, grid, block, _, shared, early, together, device = one
    if device is not None:
        return variant.again(
            grid, block, slots, shared, early=early, together=together, device=device
        )

    def start() -> None:
        variant.launch(grid, block, [slot[0] for slot in slots], shared)

    return lambda _: start


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Launches of one call, with its input arrays and its numbers by name."""

    launches: list[Launched]
    inputs: Sequence[Array]
    numbers: Mapping[str, float]

    def replay(self, before: Recorded) -> Replay | None:
        """Build a replay if two calls differ in inputs and numbers alone; else return None."""
        shapes, others = (
            [(a.variant, a.grid, a.block, a.shared, a.device) for a in each.launches]
            for each in (before, self)
        )
        if shapes != others:
            return None
        places: dict[Hashable, list[tuple[int, int]]] = {}
        for i, (first, last) in enumerate(zip(before.launches, self.launches, strict=True)):
            arguments = zip(first.parameters, first.args, last.args, strict=True)
            for j, (p, a, b) in enumerate(arguments):
                if p.pointer:
                    k = self._input_of(b)
                    if (a is None) != (b is None) or before._input_of(a) != k:
                        return None
                    if k >= 0:
                        places.setdefault(k, []).append((i, j))
                elif before._takes(p, a) and self._takes(p, b):
                    places.setdefault(p.name, []).append((i, j))
                elif a != b:
                    return None
        keys = [*range(len(self.inputs)), *self.numbers]
        return Replay(self.launches, [places.get(key, []) for key in keys])

    def _takes(self, parameter: Any, a: Any) -> bool:
        """Whether an argument is the call's number of that name."""
        return bool(self.numbers.get(parameter.name) == a)

    def _input_of(self, a: Array) -> int:
        """Return the index of the input that an argument is; -1 for none."""
        return next((k for k, given in enumerate(self.inputs) if a is given), -1)


class Replays:
    """Replays of one object's calls by a key, which has to determine the launches.

    If two calls of one key made the same launches, except for inputs and numbers, later calls
    replay the second. Arrays that one launch passes to the next are kept for this.

    Parameters
    ----------
    most : int
        Largest number of keys; each keeps the arrays of its launches.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[Recorded | None, Replay | None]] = {}
        self._n_change = -1

    def run(
        self,
        key: Hashable,
        inputs: Sequence[Array],
        numbers: Mapping[str, float],
        call: Callable[[], None],
    ) -> None:
        """Replay the launches of a key if two calls agreed on them, else make the call.

        Parameters
        ----------
        key : hashable
            All that decides what is launched.
        inputs : sequence of arrays
            Inputs of the call, all different arrays.
        numbers : mapping of str to number
            Numbers that change from call to call, by parameter; the same names each time.
        call : callable
            Makes the launches in the usual way.
        """
        if self._n_change != tune.n_changes():  # other variants may be picked
            self._known.clear()
            self._n_change = tune.n_changes()
        before, replay = self._known.get(key, (None, None))
        on_gpu = _device.is_cupy(inputs[0])
        if replay is not None and replay.valid():
            given = [a.data.ptr for a in inputs] if on_gpu else inputs
            replay(*given, *numbers.values())
            return
        if on_gpu and not _may_record(inputs[0]):
            self._known.pop(key, None)  # the call may put its results elsewhere
            call()
            return
        with launch.recording() as launches:
            call()
        now = Recorded(launches, inputs, numbers)
        if len(self._known) >= self._most and key not in self._known:
            del self._known[next(iter(self._known))]
        replay = None if before is None else now.replay(before)
        self._known[key] = (None, replay) if replay is not None else (now, None)


def _may_record(array: Array) -> bool:
    """Whether the next launches can be replayed: on the current device, outside a capture."""
    return array.data.device_id == _device.current_index() and not clock.capturing()
