"""A stand-in for CuPy with two GPUs, whose kernels the runner takes: it finds what is misplaced.

Arrays are NumPy's behind a class of their own. Each piece of memory knows its device and by which
streams it was last written and read. A launch, copy, operator, allocation or read fails when an
array is not on the current device, or when its stream was not told, by an event or by the host's
waiting, to come after the work that it depends on. Everything is done at once, so the results are
those of kernels in order.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

N_GPU = 2


class Misplaced(AssertionError):
    """Work on a device or a stream where it may not be."""


class Machine:
    """Current device and streams, and what each stream and the host know to be done."""

    def __init__(self) -> None:
        self._here, self.clock = threading.local(), itertools.count(1)
        self.lock = threading.RLock()
        self.known: dict[Any, dict[Any, int]] = {}  # by stream, or "host": last work of streams
        self.log: list[str] = []

    @property
    def device(self) -> int:
        """Current device of the calling thread."""
        return getattr(self._here, "device", 0)

    @device.setter
    def device(self, index: int) -> None:
        self._here.device = index

    @property
    def current(self) -> list[Stream]:
        """Current stream of each device, of the calling thread."""
        if not hasattr(self._here, "current"):
            self._here.current = [Stream.null] * N_GPU
        return self._here.current

    def key(self, stream: Stream | None = None) -> tuple[int, int]:
        """Name a stream; default: the current one. Stream 0 there is once for each device."""
        stream = stream or self.current[self.device]
        return (self.device if stream.device_id < 0 else stream.device_id, stream.ptr)

    def knowledge(self, of: Any) -> dict[Any, int]:
        return self.known.setdefault(of, {})

    def tell(self, to: Any, what: dict[Any, int]) -> None:
        """Let a stream, or the host, know of finished work."""
        with self.lock:
            mine = self.knowledge(to)
            for stream, time in what.items():
                mine[stream] = max(mine.get(stream, 0), time)

    def work(
        self,
        what: str,
        reads: Sequence[Array],
        writes: Sequence[Array] = (),
        stream: Stream | None = None,
    ) -> None:
        """Do work on a stream of the current device; peer copies read from another device."""
        with self.lock:
            self._work(what, reads, writes, stream)

    def _work(
        self, what: str, reads: Sequence[Array], writes: Sequence[Array], stream: Stream | None
    ) -> None:
        key = self.key(stream)
        for a in (*reads, *writes):
            if a._memory.device != self.device and what != "peer copy":
                raise Misplaced(
                    f"{what}: an array is on gpu:{a._memory.device}, current is gpu:{self.device}"
                )
        if key[0] != self.device:
            raise Misplaced(f"{what}: on a stream of gpu:{key[0]}, current is gpu:{self.device}")
        self.tell(key, self.knowledge("host"))
        known, time = self.knowledge(key), next(self.clock)
        for a, writing in [(a, False) for a in reads] + [(a, True) for a in writes]:
            memory, (low, high) = a._memory, bounds(a)
            for first, end, other, last in (*memory.written, *(memory.read if writing else ())):
                apart = end <= low or high <= first or other == key
                if not apart and known.get(other, 0) < last:
                    raise Misplaced(f"{what}: stream {key} does not wait for stream {other}")
        known[key] = time
        for a in reads:
            a._memory.read = [*_outside(a._memory.read, a, key), (*bounds(a), key, time)]
        for a in writes:
            a._memory.written = [*_outside(a._memory.written, a), (*bounds(a), key, time)]
            a._memory.read = _outside(a._memory.read, a)
        self.log.append(f"{what} on gpu:{self.device}")

    def wait(self, stream: Stream | None = None) -> None:
        """Have the host wait for a stream."""
        self.tell("host", dict(self.knowledge(self.key(stream))))


class Memory:
    """What is known of one allocation: first byte, end, stream and time of uses of its parts."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.written: list[Use] = []
        self.read: list[Use] = []


Use = tuple[int, int, Any, int]


def bounds(array: Array) -> tuple[int, int]:
    """First byte of an array, and the end."""
    host = array._host
    if not host.size:
        return 0, 0
    spans = [(n - 1) * step for n, step in zip(host.shape, host.strides, strict=True)]
    first = host.ctypes.data + sum(span for span in spans if span < 0)
    return first, first + sum(map(abs, spans)) + host.itemsize


def _outside(uses: list[Use], array: Array, stream: Any = None) -> list[Use]:
    """Leave out the uses, or those by a stream, that lie within an array."""
    a, b = bounds(array)
    return [u for u in uses if not (a <= u[0] and u[1] <= b and stream in (None, u[2]))]


class Stream:
    """A stream of the device that is current when it is made."""

    null: Any = None
    _numbers = itertools.count(7)

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr = 0 if null else next(self._numbers)
        self.device_id = -1 if null else machine().device
        self.capturing = False
        self._before: list[Any] = []

    def use(self) -> Stream:
        here = machine()
        if self.device_id not in (-1, here.device):
            raise Misplaced(f"stream of gpu:{self.device_id}, current is gpu:{here.device}")
        here.current[here.device] = self
        return self

    def __enter__(self) -> Stream:
        here = machine()
        self._before.append((here.device, here.current[here.device]))
        return self.use()

    def __exit__(self, *_: object) -> None:
        device, stream = self._before.pop()
        machine().current[device] = stream

    def is_capturing(self) -> bool:
        return self.capturing

    def synchronize(self) -> None:
        machine().wait(self)

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        machine().tell(machine().key(self), event.known)


Stream.null = Stream(null=True)


class Event:
    """What its stream had been given when it was recorded."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.device, self.known = machine().device, {}

    def record(self, stream: Stream | None = None) -> None:
        key = machine().key(stream)
        if key[0] != self.device:
            raise Misplaced(f"event of gpu:{self.device} on a stream of gpu:{key[0]}")
        self.known = dict(machine().knowledge(key))

    def synchronize(self) -> None:
        machine().tell("host", self.known)


class Device:
    """A GPU, to be made the current one."""

    compute_capability = "90"

    def __init__(self, index: int | None = None) -> None:
        self.id = machine().device if index is None else index
        self._before: list[int] = []

    def use(self) -> None:
        machine().device = self.id

    def __enter__(self) -> Device:
        self._before.append(machine().device)
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        machine().device = self._before.pop()

    def synchronize(self) -> None:
        for key in [k for k in machine().known if k != "host" and k[0] == self.id]:
            machine().tell("host", dict(machine().knowledge(key)))


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on a GPU; memory is allocated on the current one."""

    def __init__(
        self, shape: Any, dtype: Any = float, host: Any = None, memory: Memory | None = None
    ) -> None:
        self._host = np.empty(shape, dtype) if host is None else host
        self._memory = memory or Memory(machine().device)

    # ---- what costs a GPU nothing --------------------------------------------------------------

    @property
    def data(self) -> Any:
        return Pointer(self)

    @property
    def _c_contiguous(self) -> bool:
        return bool(self._host.flags.c_contiguous)

    @property
    def T(self) -> Array:
        return self._like(self._host.T)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def _like(self, host: Any) -> Array:
        return Array(None, None, host, self._memory)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._host, name)
        if not callable(value):
            return value
        if name in ("reshape", "view", "ravel", "transpose"):
            return lambda *a, **k: _viewed(self, value(*a, **k))
        return lambda *a, **k: _called(name, value, (self,), a, k)

    # ---- what is work --------------------------------------------------------------------------

    def __getitem__(self, at: Any) -> Array:
        keys = at if isinstance(at, tuple) else (at,)
        if all(k is None or isinstance(k, (int, np.integer, slice, type(...))) for k in keys):
            return self._like(self._host[(*keys, ...)])  # a view, of a scalar as well
        machine().work("indexing", [self, *(k for k in keys if isinstance(k, Array))])
        return _fresh(self._host[_bare(at)])

    def __setitem__(self, at: Any, value: Any) -> None:
        used = [v for v in (value, at) if isinstance(v, Array)]
        machine().work("assignment", used, [self])
        self._host[_bare(at)] = _bare(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(a, np.ndarray) and a.ndim for a in inputs):
            raise TypeError("a NumPy array among arrays of a GPU")
        out = options.pop("out", None)
        made = getattr(ufunc, method)(*map(_bare, inputs), **options)
        reads = [a for a in inputs if isinstance(a, Array)]
        machine().work(ufunc.__name__, reads, out or ())
        if out is None:
            return _fresh(made)
        out[0]._host[...] = made
        return out[0]

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        machine().work("copy to the host", [self])
        machine().wait()
        out = np.empty_like(self._host, order="C") if out is None else out
        assert out.flags.c_contiguous and (out.shape, out.dtype) == (self.shape, self.dtype)
        out[...] = self._host
        return out

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array: use .get()")

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def fill(self, value: Any) -> None:
        machine().work("fill", [], [self])
        self._host.fill(_bare(value))


class Pointer:
    """Where an array lies."""

    def __init__(self, array: Array) -> None:
        self._array, self.ptr = array, int(array._host.ctypes.data)
        self.device_id = array._memory.device

    def copy_from_device_async(self, source: Pointer, size: int, stream: Any = None) -> None:
        machine().work("peer copy", [source._array], [self._array], stream)
        ctypes.memmove(self.ptr, source.ptr, size)


def _bare(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_bare, value))
    return value._host if isinstance(value, Array) else value


def _viewed(of: Array, host: Any) -> Array:
    return of._like(host) if np.may_share_memory(host, of._host) else _called_copy(of, host)


def _called_copy(of: Array, host: Any) -> Array:
    machine().work("copy", [of])
    return _fresh(host)


def _fresh(host: Any) -> Any:
    """A result on the current device."""
    if isinstance(host, (tuple, list)):
        return type(host)(map(_fresh, host))
    if not isinstance(host, (np.ndarray, np.generic)):
        return host
    made = Array(None, None, np.array(host))
    machine().work("result", [], [made])
    return made


def _arrays_in(values: Any) -> list[Array]:
    if isinstance(values, (tuple, list)):
        return [a for v in values for a in _arrays_in(v)]
    return [values] if isinstance(values, Array) else []


def _called(name: str, function: Any, own: Sequence[Array], args: Any, options: Any) -> Any:
    machine().work(name, [*own, *_arrays_in(args), *_arrays_in(list(options.values()))])
    made = function(*map(_bare, args), **{k: _bare(v) for k, v in options.items()})
    if name in ("item", "tolist"):
        machine().wait()
        return made
    return _fresh(made)


class Cupy(ModuleType):
    """The module: NumPy's functions, on arrays of the current device."""

    ndarray = Array

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        if isinstance(value, type) or not callable(value) or name in ("dtype", "finfo"):
            return value
        return lambda *a, **k: _called(name, value, (), a, k)

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        return Array(shape, dtype)

    def zeros(self, shape: Any, dtype: Any = float) -> Array:
        return _fresh(np.zeros(shape, dtype))

    def asarray(self, x: Any, dtype: Any = None) -> Array:
        same = isinstance(x, Array) and dtype in (None, x.dtype)
        return x if same else self.array(x, dtype)

    def array(self, x: Any, dtype: Any = None, order: str = "C") -> Array:
        if isinstance(x, Array):
            machine().work("copy", [x])
        return _fresh(np.array(_bare(x), dtype=dtype, order=order))

    def ascontiguousarray(self, x: Array, dtype: Any = None) -> Array:
        return x if x._c_contiguous and dtype in (None, x.dtype) else self.array(x, dtype)


_machines: list[Machine] = []


def machine() -> Machine:
    assert _machines, "the GPUs are not installed"
    return _machines[-1]


def module() -> Cupy:
    made = Cupy("cupy")
    properties = {
        "name": b"pretended", "major": 9, "minor": 0, "multiProcessorCount": 3,
        "sharedMemPerBlockOptin": 227 * 1024, "totalGlobalMem": 1 << 34,
    }  # fmt: skip
    runtime = SimpleNamespace(
        getDevice=lambda: machine().device,
        setDevice=lambda index: setattr(machine(), "device", index),
        getDeviceCount=lambda: N_GPU,
        getDeviceProperties=lambda _: properties,
    )

    def current(device: int = -1) -> Stream:
        return machine().current[machine().device if device < 0 else device]

    made.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        runtime=runtime, Device=Device, Stream=Stream, Event=Event, get_current_stream=current
    )
    strided = SimpleNamespace(
        as_strided=lambda a, **k: a._like(np.lib.stride_tricks.as_strided(a._host, **k))
    )
    made.lib = SimpleNamespace(stride_tricks=strided)  # type: ignore[attr-defined]
    return made


@contextmanager
def started() -> Iterator[Machine]:
    """Start with a new machine, on which nothing has been done."""
    _machines.append(Machine())
    try:
        yield _machines[-1]
    finally:
        _machines.pop()


def bare(value: Any) -> Any:
    """NumPy's arrays behind a value's arrays."""
    return _bare(value)
