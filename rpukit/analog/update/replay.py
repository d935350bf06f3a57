"""Pulsed updates of an array of devices by replay of earlier launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import Replay
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.update.few_samples import pulsed_samples, takes_samples
from rpukit.analog.update.ops import pulse_trains, pulsed_update
from rpukit.analog.update.trains import Trains
from rpukit.random import Stream

Array = Any
_KEPT = 1 << 21  # inputs of a batch whose trains are kept for the next


class Writer:
    """Pulsed updates of one array, with trains and launches reused from batch to batch.

    Parameters
    ----------
    changing : callable
        Called before the weights of the array change.
    """

    def __init__(self, changing: Callable[[], None]) -> None:
        self._changing = changing
        self._trains: Trains | None = None  # of the last batch, reused to save allocations
        self._key: tuple[Any, ...] = ()
        self._replay: tuple[tuple[Any, ...], Replay] | None = None  # with its key

    def write(
        self,
        array: CellArray,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        stream: Stream,
        call: int,
    ) -> None:
        """Pulse a batch into pulsed cells; lr is not 0."""
        key = (x.shape, d.shape, lr, parameters, stream)
        if self._replay is not None and key == self._replay[0] and _usual(x, d):
            replay = self._replay[1]
            if replay.valid():
                self._changing()
                replay(x.data.ptr, d.data.ptr, call, first_sample)
                return
        again, self._key = _is_whole(array, x, d) and key == self._key, key
        if again and array.stores_cells and x.size + d.size <= _KEPT and _recordable(x):
            with recording() as launches:
                self._launch(array, x, d, lr, parameters, first_sample, stream, call)
            replay = Replay.by_name(launches, ("x", "d", "call", "first_sample"))
            self._replay = key, replay
            return
        self._launch(array, x, d, lr, parameters, first_sample, stream, call)

    def _launch(
        self,
        array: CellArray,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        stream: Stream,
        call: int,
    ) -> None:
        at: Any = {"stream": stream, "first_sample": first_sample}
        whole = _is_whole(array, x, d)
        few = whole and _device.takes_kernels(array.weight) and array.stores_cells
        if few and takes_samples(len(x), array.weight.shape, parameters):
            self._changing()
            pulsed_samples(array, x, d, lr, parameters, call=call, **at)
            return
        more: Any = {"status": array.status, "call": call, "into": self._trains}
        trains = pulse_trains(x, d, abs(lr), array.granularity, parameters, **at, **more)
        self._trains = trains if trains.key and x.size + d.size <= _KEPT else None
        self._changing()
        pulsed_update(array, trains, flip=lr < 0, **at)


def _is_whole(array: CellArray, x: Array, d: Array) -> bool:
    """Whether a batch has the lines of these cells alone; else its trains are cut for them.

    Cut trains are made between launches, so that launches cannot be replayed, and few samples are
    not pulsed directly.
    """
    return bool((d.shape[1], x.shape[1]) == array.weight.shape)


def _usual(x: Array, d: Array) -> bool:
    """Whether the inputs of a batch are laid out as kernels read them."""
    return bool(x._c_contiguous and d._c_contiguous and x.dtype is d.dtype)


def _recordable(x: Array) -> bool:
    """Whether launches can be replayed: on the current device, and not under graph capture."""
    here = _device.is_cupy(x) and _device.is_current(_device.device_of(x))
    return here and _device.free_stream() is not None
