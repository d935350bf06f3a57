"""Pulse batches into an array of devices, by replaying the launches of the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import Replay
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.update.few_samples import pulsed_samples, takes_samples
from rpukit.analog.update.launch import Trains
from rpukit.analog.update.ops import pulse_trains
from rpukit.random import Stream

if TYPE_CHECKING:
    from rpukit.analog.arrays.single import DeviceArray

Array = Any
_KEPT = 1 << 18  # inputs of a batch whose trains are kept for the next


class Writer:
    """What pulses batches into one array keeps from batch to batch."""

    def __init__(self) -> None:
        self._trains: Trains | None = None  # of the last batch: to allocate takes time
        self._key: tuple[Any, ...] = ()
        self._replay: tuple[tuple[Any, ...], Replay] | None = None  # with its key

    def write(
        self,
        array: DeviceArray,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        stream: Stream,
    ) -> None:
        """Pulse a batch into pulsed cells; lr is not 0."""
        call = array.site.guard.begin("x or d")
        key = (x.shape, d.shape, lr, parameters, stream)
        if self._replay is not None and key == self._replay[0] and _usual(x, d):
            replay = self._replay[1]
            if replay.valid():
                replay(x.data.ptr, d.data.ptr, call, first_sample)
                return
        again, self._key = key == self._key, key
        if again and array.stores_cells and x.size + d.size <= _KEPT and _recordable(x):
            with recording() as launches:
                self._launch(array, x, d, lr, parameters, first_sample, stream, call)
            replay = Replay.by_name(launches, ("x", "d", "call", "first_sample"))
            self._replay = key, replay
            return
        self._launch(array, x, d, lr, parameters, first_sample, stream, call)

    def _launch(
        self,
        array: DeviceArray,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        stream: Stream,
        call: int,
    ) -> None:
        arrays, status = array.arrays(), array.site.guard.status
        few = takes_samples(len(x), array.site.shape, parameters)
        if few and array.stores_cells and _device.takes_kernels(array.weight):
            pulsed_samples(
                array.weight,
                x,
                d,
                lr,
                array.cell,  # type: ignore[arg-type]
                arrays["planes"],
                arrays["globals"],
                arrays["n_pulses"],
                array.granularity,
                parameters,
                persistent=arrays.get("persistent"),
                pulse_counts=arrays.get("pulse_counts"),
                stream=stream,
                first_sample=first_sample,
                status=status,
                call=call,
            )
            return
        trains = pulse_trains(
            x,
            d,
            abs(lr),
            array.granularity,
            parameters,
            stream=stream,
            first_sample=first_sample,
            status=status,
            call=call,
            into=self._trains,
        )
        self._trains = trains if trains.key and x.size + d.size <= _KEPT else None
        array.pulse(trains, lr < 0, first_sample, stream=stream)


def _usual(x: Array, d: Array) -> bool:
    """Whether inputs of a batch lie as kernels read them."""
    return bool(x._c_contiguous and d._c_contiguous and x.dtype is d.dtype)


def _recordable(x: Array) -> bool:
    """Whether the launches to come can be replayed: on the current device, and not for a graph."""
    here = _device.is_cupy(x) and _device.is_current(_device.device_of(x))
    return here and _device.free_stream() is not None
