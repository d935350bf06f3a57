"""Other GPUs of one host that pass over a circuit's samples; the circuit's own adds up.

Parameters, statistics and momenta are on the first GPU. The others have copies of the parameters
and give back results of samples and counts of whole blocks, which the first one adds in the
written order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device, parse_device
from rpukit.circuits.compiled.encoder import Encoder
from rpukit.circuits.core import Core
from rpukit.circuits.memory import Memory
from rpukit.circuits.parameters import Parameters, Statistics
from rpukit.circuits.partials import BLOCK
from rpukit.errors import DeviceError, ParameterError

__all__ = ["Peers", "copy_across", "has_numbers", "make_peers", "parse_devices"]

Array = Any
Share = slice

_RUNS = 4  # most tables of leaves that are computed anew instead of copied
_ROUND = 8  # most blocks of samples that a GPU counts before they are added


class Peers:
    """The GPUs of a circuit beside its own.

    Parameters
    ----------
    owner : Core
        Of the circuit; its parameters are those that count.
    devices : sequence of Device
        The other GPUs.
    budget : int, optional
        Bytes of each GPU.

    Raises
    ------
    PlanError
    """

    def __init__(self, owner: Core, devices: Sequence[Device], budget: int | None) -> None:
        self._owner, self.devices = owner, (owner.device, *devices)
        size = owner.dtype.itemsize * (
            owner.statistics.chains.size + owner.statistics.leaf_chains.size
        )
        self.n_block, n_piece = _ROUND if budget is None else 1, len(owner.pieces)
        # Counts that wait for their turn, and the statistics of two blocks of a pass.
        beside = (self.n_block * n_piece + 2 * (1 + n_piece * 8 // owner.dtype.itemsize)) * size
        owner.memory = Memory(owner.parameters, owner.statistics, budget, beside)
        self.cores = [_copy_on(owner, device, budget, beside) for device in devices]
        self._pool = ThreadPoolExecutor(len(devices), thread_name_prefix="rpukit-gpu")
        self._version = owner.parameters.version

    def update(self) -> None:
        """Copy the parameters to the other GPUs, if they changed."""
        if self._version == self._owner.parameters.version:
            return
        whole = len(self._owner.parameters.runs) > _RUNS
        own = _arrays(self._owner.parameters, whole)
        for core in self.cores:
            for source, target in zip(own, _arrays(core.parameters, whole), strict=True):
                copy_across(source, target)
            if not whole:
                with _device.using(core.device):
                    core.parameters.refresh_all()
        self.updated()

    def updated(self) -> None:
        """Note that the other GPUs have the parameters already."""
        self._version = self._owner.parameters.version

    def rows(self, n: int) -> list[Share]:
        """Cut n samples into a share for each GPU, the circuit's own first."""
        n_gpu = len(self.devices)
        edges = [-(-n * k // n_gpu) for k in range(n_gpu + 1)]  # one sample is the first one's
        return [slice(a, b) for a, b in pairwise(edges)]

    def blocks(self, first: int, n: int) -> list[Share]:
        """Cut samples first to first + n - 1 where blocks end, into shares in ascending order.

        The circuit's own GPU has the first share, which finishes the open block, and the last
        one; each other GPU has one of those between. Shares may be empty.
        """
        head = min(n, -first % BLOCK)
        n_block, n_gpu = -(-(n - head) // BLOCK), len(self.devices)
        shares, at = [slice(0, head)], head
        for k in [*range(1, n_gpu), 0]:  # the circuit's own has the most, and the open block
            mine = n_block // n_gpu + (k < n_block % n_gpu)
            end = min(n, at + mine * BLOCK)
            shares.append(slice(at, end))
            at = end
        return shares

    def spread(
        self,
        arrays: Sequence[Array | None],
        here: Callable[[slice], None],
        there: Callable[..., Array],
        out: Array,
    ) -> None:
        """Compute results of samples: ``here`` a share of them, ``there`` those of other GPUs.

        ``there`` gets a `Core` and the rows of the arrays, and returns rows of ``out``.
        """
        self.update()
        shares = self.rows(len(out))
        jobs: list[Callable[[], Any] | None] = []
        for core, share in zip(self.cores, shares[1:], strict=True):
            if share.start == share.stop:
                jobs.append(None)
                continue
            mine = self.sent(core, *(None if a is None else a[share] for a in arrays))
            jobs.append(partial(there, core, *mine))
        found = self.run(partial(here, shares[0]), jobs)
        for share, made in zip(shares[1:], found[1:], strict=True):
            if made is not None:
                (out[share],) = self.taken(made)

    def sent(self, core: Core, *arrays: Array | None) -> list[Array | None]:
        """Copy arrays of samples to another GPU."""
        return [None if a is None else _device.to_device(a, core.device) for a in arrays]

    def event(self, core: Core) -> Any:
        """Record an event behind what a GPU was given so far."""
        with _device.using(core.device):
            return _current_stream().record(_device.cupy().cuda.Event(disable_timing=True))

    def hand_on(self, source: Core, target: Core, free: Any = None) -> None:
        """Copy totals of blocks to another GPU, which goes on to add to them.

        ``free`` is an event after which nothing uses the target's totals. Then the copy does not
        wait for what that GPU was given later.
        """
        one, two = source.statistics, target.statistics
        for name in ("totals", "leaf_totals"):
            copy_across(getattr(one, name), getattr(two, name), free)

    def taken(self, *arrays: Array) -> list[Array]:
        """Copy results of another GPU to the circuit's own."""
        return [_device.to_device(a, self._owner.device) for a in arrays]

    def run(self, own: Callable[[], Any], others: Sequence[Callable[[], Any] | None]) -> list[Any]:
        """Run a function for each GPU at once: the first here, each other one in its own thread.

        A thread works on the streams that are current here. Raises the first error, after all
        have ended.
        """
        streams = [_stream_of(device) for device in self.devices]
        jobs: list[Future[Any] | None] = [
            None if call is None else self._pool.submit(self._call, core.device, streams, call)
            for core, call in zip(self.cores, others, strict=True)
        ]
        try:
            found = [own()]
        finally:
            wait([job for job in jobs if job is not None])
        return found + [None if job is None else job.result() for job in jobs]

    def _call(self, device: Device, streams: Sequence[Any], call: Callable[[], Any]) -> Any:
        for each, stream in zip(self.devices, streams, strict=True):
            with _device.using(each):
                stream.use()
        with _device.using(device):
            return call()


def make_peers(owner: Core, devices: Sequence[Device], budget: int | None) -> Peers | None:
    """Make the peers of a circuit on the first of these devices; None for one alone."""
    return Peers(owner, devices[1:], budget) if len(devices) > 1 else None


def parse_devices(device: str, devices: Sequence[str] | None) -> list[Device]:
    """Check where a circuit is to be: one device, or different GPUs of one kind."""
    if devices is None:
        return [parse_device(device)]
    if device != "cpu":
        raise ParameterError(
            f"devices: got {devices!r} beside device {device!r}, need one of both"
        )
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        raise ParameterError(f'devices: got {devices!r}, need names such as ("gpu:0", "gpu:1")')
    found = [parse_device(each) for each in devices]
    if len(found) == 1:
        return found
    names = ", ".join(map(str, found))
    if any(each.kind == "cpu" for each in found):
        raise ParameterError(f"devices: got {names}, need GPUs: a CPU's threads work together")
    if len(set(found)) < len(found):
        raise ParameterError(f"devices: got {names}, need each GPU once")
    kinds = [_description(each) for each in found]
    if len(set(kinds)) > 1:
        told = "; ".join(f"{each} is {kind}" for each, kind in zip(found, kinds, strict=True))
        raise DeviceError(
            f"devices: {told}. Need GPUs of one kind, which share the samples evenly"
        )
    return found


def _copy_on(owner: Core, device: Device, budget: int | None, beside: int) -> Core:
    """Copy of the compiled graph and the parameters on another GPU."""
    with _device.using(device):
        parameters = owner.parameters.on(device)
        statistics = Statistics(parameters)
        encoder = Encoder(owner.layout, owner.dtype, device)
        memory = Memory(parameters, statistics, budget, beside)
    return Core(
        owner.layout,
        owner.dtype,
        device,
        parameters,
        statistics,
        encoder,
        memory,
        owner.stream,
    )


def _arrays(parameters: Parameters, whole: bool) -> list[Array]:
    """Arrays of parameters that learning changes; ``whole``: those made of others as well."""
    rows = parameters.rows
    arrays = [parameters.theta, rows.parameters]
    if whole:
        arrays.append(rows.table)
        if parameters.rounded is not None:
            arrays.append(parameters.rounded.words)
    return [array for array in arrays if array.size]


def _description(device: Device) -> str:
    """Describe a GPU: its name, compute capability, multiprocessors and memory."""
    found = _device.cupy().cuda.runtime.getDeviceProperties(device.index)
    capability = f"{found['major']}.{found['minor']}"
    return (
        f"{found['name'].decode()} ({capability}, {found['multiProcessorCount']} "
        f"multiprocessors, {found['totalGlobalMem'] >> 20} MiB)"
    )


def _stream_of(device: Device) -> Any:
    with _device.using(device):
        return _current_stream()


def has_numbers(core: Core) -> bool:
    """Whether some leaf reads numbers, and not codes."""
    _, _, number, count = core.layout.columns
    return bool(np.any(number) or np.any(count))


def copy_across(source: Array, out: Array, free: Any = None) -> None:
    """Copy to a like array of another GPU.

    The copy is work of the target's current stream, in step with the source's. With an event
    ``free``, after which nothing uses the target, it is work of the source's current stream.
    """
    event, stream_of = partial(_device.cupy().cuda.Event, disable_timing=True), _current_stream
    here, there = _device.device_of(source), _device.device_of(out)
    if free is not None:
        with _device.using(here):
            stream_of().wait_event(free)
            out.data.copy_from_device_async(source.data, source.nbytes, stream_of())
            copied = stream_of().record(event())
        with _device.using(there):
            stream_of().wait_event(copied)
        return
    with _device.using(here):
        made = stream_of().record(event())
    with _device.using(there):
        stream_of().wait_event(made)
        out.data.copy_from_device_async(source.data, source.nbytes, stream_of())
        copied = stream_of().record(event())
    with _device.using(here):  # what overwrites the source waits
        stream_of().wait_event(copied)


def _current_stream() -> Any:
    return _device.cupy().cuda.get_current_stream()
