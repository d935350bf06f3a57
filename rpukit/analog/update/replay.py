"""Batches pulsed into an array of devices: in one launch or two, or as the last one was."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from rpukit import _device
from rpukit._kernels.again import Again
from rpukit._kernels.launch import Launched, recording
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.update.few_samples import pulsed_samples, takes_samples
from rpukit.analog.update.ops import pulse_trains, pulsed_update
from rpukit.analog.update.trains import Trains
from rpukit.random import Stream

Array = Any
_KEPT = 1 << 18  # inputs of a batch whose trains are kept for the next


class Repeat:
    """An update that came before; like it comes again, it costs the driver's calls."""

    def __init__(self, x: Array, key: tuple[Any, ...], launches: Sequence[Launched]) -> None:
        self._again = Again(launches, ("x", "d", "call", "first_sample"))
        self._like, self._key = (type(x), x.dtype), key

    def may(self, x: Array, d: Array, key: tuple[Any, ...]) -> bool:
        """Whether an update is like that one."""
        same = all(type(v) is self._like[0] and v.dtype is self._like[1] for v in (x, d))
        contiguous = same and x._c_contiguous and d._c_contiguous
        return contiguous and key == self._key and self._again.may()

    def __call__(self, x: Array, d: Array, first_sample: int, call: int) -> None:
        self._again(x.data.ptr, d.data.ptr, call, first_sample)


class Writer:
    """What pulses batches into one array keeps from batch to batch."""

    def __init__(self) -> None:
        self._trains: Trains | None = None  # of the last batch: to allocate takes time
        self._key: tuple[Any, ...] = ()
        self._repeat: Repeat | None = None

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
        if self._repeat is not None and self._repeat.may(x, d, key):
            self._repeat(x, d, first_sample, call)
            return
        usual = _device.is_cupy(x) and array.stores_cells and x.size + d.size <= _KEPT
        again = usual and key == self._key and _device.gpu_count() == 1
        self._key = key
        with recording() if again and _device.free_stream() is not None else nullcontext() as seen:
            self._launch(array, x, d, lr, parameters, first_sample, stream, call)
        if seen:
            self._repeat = Repeat(x, key, seen)

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
        few = array.stores_cells and _device.takes_kernels(array.weight)
        if few and takes_samples(len(x), array.weight.shape, parameters):
            pulsed_samples(array, x, d, lr, parameters, call=call, **at)
            return
        more: Any = {"status": array.status, "call": call, "into": self._trains}
        trains = pulse_trains(x, d, abs(lr), array.granularity, parameters, **at, **more)
        self._trains = trains if trains.key and x.size + d.size <= _KEPT else None
        pulsed_update(array, trains, flip=lr < 0, **at)
