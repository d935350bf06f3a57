"""Compute devices and array namespaces: the only file that imports CuPy.

CuPy is imported the first time somebody asks for a GPU or hands in a CuPy array, never before.
"""

from __future__ import annotations

import importlib
import math
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError

Array = Any  # numpy.ndarray or cupy.ndarray

_LINE = 64  # bytes of a line of the cache of a CPU
_LARGE = 1 << 16  # bytes
_INSTALL = 'pip install "rpukit[cuda12x]" (or "rpukit[cuda13x]" for CUDA 13)'


@dataclass(frozen=True, slots=True)
class Device:
    """One compute device: ``Device("cpu")`` or ``Device("gpu", 1)``."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        if self.kind == "cpu":
            return "cpu"
        return "gpu" if self.index == 0 else f"gpu:{self.index}"


CPU = Device("cpu")

_emulation_depth = 0  # nested testing.on_cpu() blocks: inside one, NumPy arrays run .cu sources


def parse_device(device: str | Device) -> Device:
    """Read ``"cpu"``, ``"gpu"`` or ``"gpu:1"``; check that the device is there."""
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise ParameterError(f"device: got {type(device).__name__}, need text")
    if device == "cpu":
        return CPU
    if device == "gpu" or device.startswith("gpu:"):
        text = device[4:]
        if text and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ParameterError(f'device: got {device!r}, need "cpu", "gpu" or "gpu:<number>"')
        index = int(text or 0)
        n_gpu = gpu_count(required=True)
        if index >= n_gpu:
            raise DeviceError(f"device {device!r}: this machine has {n_gpu} GPU(s), from gpu:0 on")
        return _gpu(index)
    raise ParameterError(f'device: got {device!r}, need "cpu", "gpu" or "gpu:<number>"')


def cupy() -> ModuleType:
    """Import CuPy, or say how to install it."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"CuPy is not installed: {error}. Try {_INSTALL}") from error


def nvrtc() -> ModuleType:
    """CuPy's thin binding of NVRTC, which compiles without a GPU."""
    cupy()
    module: ModuleType = importlib.import_module("cupy.cuda").nvrtc
    try:
        module.getVersion()
    except Exception as error:  # CuPy raises its own kinds when the library is missing
        raise DeviceError(
            f"the CUDA compiler library NVRTC was not found: {error}. "
            'Try pip install "rpukit[cuda12x]" or pip install "cuda-toolkit[nvrtc,cudart]==12.*"'
        ) from error
    return module


def gpu_count(*, required: bool = False) -> int:
    """Count the GPUs that CuPy can use; with ``required``, no GPU is an error that says why."""
    try:
        n_gpu = int(cupy().cuda.runtime.getDeviceCount())
    except DeviceError:
        if required:
            raise
        return 0
    except Exception as error:  # a CUDARuntimeError: no driver, or no device
        if required:
            raise DeviceError(
                f"no usable GPU: {error}. Check `nvidia-smi` and the driver"
            ) from error
        return 0
    if n_gpu == 0 and required:
        raise DeviceError("no usable GPU: the driver reports none. Check `nvidia-smi`")
    return n_gpu


def memory(device: Device) -> int:
    """Tell how many bytes of memory a GPU has."""
    return int(cupy().cuda.runtime.getDeviceProperties(device.index)["totalGlobalMem"])


@cache
def multiprocessors(device: Device) -> int:
    """Number of multiprocessors; a few for the runner on the CPU."""
    if device.kind == "cpu":
        return 3
    properties = cupy().cuda.runtime.getDeviceProperties(device.index)
    return int(properties["multiProcessorCount"])


@cache
def shared_limit(device: Device) -> int:
    """Bytes of shared memory that a block may have; Hopper's for the runner on the CPU."""
    if device.kind == "cpu":
        return 227 * 1024
    properties = cupy().cuda.runtime.getDeviceProperties(device.index)
    return int(properties["sharedMemPerBlockOptin"])


def is_cupy(x: object) -> bool:
    """Whether ``x`` is a CuPy array, without importing CuPy for the question."""
    module = sys.modules.get("cupy")
    return module is not None and isinstance(x, module.ndarray)


def cupy_array_class() -> type | None:
    """Class of CuPy's arrays where CuPy is in use."""
    module = sys.modules.get("cupy")
    return None if module is None else module.ndarray


def namespace(*arrays: object) -> ModuleType:
    """NumPy or CuPy, whichever all of the arrays belong to; None is skipped.

    Raises
    ------
    DeviceError
        If NumPy and CuPy arrays are mixed, or live on different GPUs.
    """
    gpu_class = cupy_array_class()
    if gpu_class is None:
        return np
    gpu = {x.data.device_id for x in arrays if isinstance(x, gpu_class)}  # type: ignore[attr-defined]
    if not gpu:
        return np
    if any(isinstance(x, np.ndarray) for x in arrays):
        raise DeviceError(
            "arrays on the CPU and on a GPU in one call: nothing moves by itself, "
            "use .to(device), cupy.asarray or cupy.asnumpy"
        )
    if len(gpu) > 1:
        raise DeviceError(f"arrays on several GPUs in one call: {sorted(gpu)}")
    return sys.modules["cupy"]


@cache
def _gpu(index: int) -> Device:
    return Device("gpu", index)


def device_of(array: Array) -> Device:
    """Tell on which device an array lives."""
    return _gpu(int(array.data.device_id)) if is_cupy(array) else CPU


def address(array: Array) -> int:
    """Address of the first element of an array."""
    return int(array.data.ptr if is_cupy(array) else array.ctypes.data)


def runs_kernels(xp: ModuleType) -> bool:
    """Whether kernels work on arrays of ``xp``; else mirrors do."""
    return xp is not np or _emulation_depth > 0


def takes_kernels(x: Array) -> bool:
    """Whether kernels work on this array; else mirrors do."""
    return _emulation_depth > 0 or is_cupy(x)


def namespace_of(device: Device) -> ModuleType:
    """Find the array module of a device."""
    return np if device.kind == "cpu" else cupy()


def current_index() -> int:
    """Index of the calling thread's current GPU."""
    index: int = sys.modules["cupy"].cuda.runtime.getDevice()
    return index


@cache
def several_gpus() -> bool:
    """Whether arrays may be on different GPUs, so that calls have to look which one is current."""
    return gpu_count() > 1


def is_current(device: Device) -> bool:
    """Whether arrays of a device may be used without entering it: the CPU's always."""
    return device.kind == "cpu" or not several_gpus() or current_index() == device.index


class _Entered:
    """Makes a GPU the current one inside a block; see `using`."""

    __slots__ = ("_before", "_index")

    def __init__(self, index: int) -> None:
        self._index, self._before = index, index

    def __enter__(self) -> None:
        runtime = sys.modules["cupy"].cuda.runtime
        self._before = runtime.getDevice()
        runtime.setDevice(self._index)

    def __exit__(self, *_: object) -> None:
        sys.modules["cupy"].cuda.runtime.setDevice(self._before)


_INSIDE: AbstractContextManager[None] = nullcontext()


def using(device: Device) -> AbstractContextManager[None]:
    """Enter a device for a block: the one place where the current GPU changes.

    The current stream inside is the one that the calling thread has made current on that device,
    by default its default stream: CuPy keeps one for each device and thread. So a user's stream
    stays in force, whichever device was current outside. Where the device is current already, and
    on the CPU, nothing is done.
    """
    return _INSIDE if is_current(device) else _Entered(device.index)


def to_device(array: Array, device: Device, dtype: Any = None) -> Array:
    """Copy an array to a device (always a fresh, C-contiguous copy).

    A copy waits for what the current stream of the source's device was given before, and work
    that either device's current stream is given later waits for the copy.
    """
    if device.kind == "cpu":
        host = to_numpy(array)
        out = _on_lines(host.shape, host.dtype if dtype is None else dtype)
        out[...] = host
        return out
    xp = cupy()
    if is_cupy(array) and int(array.data.device_id) != device.index:
        return _between_gpus(array, device, dtype)
    with using(device):
        return xp.array(array, dtype=dtype, order="C")


def _between_gpus(array: Array, device: Device, dtype: Any) -> Array:
    """Copy from GPU to GPU on the target's current stream, in step with the source's."""
    cuda = cupy().cuda
    with using(device_of(array)):
        kind = array.dtype if dtype is None else np.dtype(dtype)
        source = array.astype(kind, order="C", copy=False)
        source_stream = cuda.get_current_stream()
        made = source_stream.record(cuda.Event(disable_timing=True))
    with using(device):
        stream = cuda.get_current_stream()
        out = empty(source.shape, kind, device)
        stream.wait_event(made)
        out.data.copy_from_device_async(source.data, source.nbytes, stream)
        copied = stream.record(cuda.Event(disable_timing=True))
    with using(device_of(array)):  # work that overwrites or frees the source comes after
        source_stream.wait_event(copied)
    return out


def to_numpy(array: Array) -> np.ndarray:
    """Bring an array to the CPU (no copy when it is there)."""
    if not is_cupy(array):
        return np.asarray(array)
    with using(device_of(array)):  # whose current stream the copy waits for
        host: np.ndarray = array.get()
        return host


def current_stream() -> int:
    """The driver's handle of the current stream of the current GPU."""
    return int(sys.modules["cupy"].cuda.get_current_stream().ptr)


def free_stream() -> int | None:
    """The driver's handle of the current stream; None while that records a graph."""
    stream = sys.modules["cupy"].cuda.get_current_stream()
    return None if stream.is_capturing() else stream.ptr


def _on_lines(shape: tuple[int, ...], dtype: Any) -> Array:
    """Allocate on the CPU; a large array begins with a line of the cache, as its rows then may."""
    n_byte = math.prod(shape) * np.dtype(dtype).itemsize
    if n_byte < _LARGE:
        return np.empty(shape, dtype)
    room = np.empty(n_byte + _LINE, np.uint8)
    at = -room.ctypes.data % _LINE
    return room[at : at + n_byte].view(dtype).reshape(shape)


def empty(shape: tuple[int, ...], dtype: Any, device: Device) -> Array:
    """Allocate an uninitialised array on a device."""
    if device.kind == "cpu":
        return _on_lines(shape, dtype)
    with using(device):
        return sys.modules["cupy"].empty(shape, dtype)


def zeros(shape: tuple[int, ...], dtype: Any, device: Device) -> Array:
    """Allocate an array of zeros on a device."""
    if device.kind == "cpu":
        out = _on_lines(shape, dtype)
        out.fill(0)  # np.zeros gives pages that are one and the same until they are written to
        return out
    xp = cupy()
    with using(device):
        return xp.zeros(shape, dtype)


def as_array(x: object, device: Device, dtype: Any, name: str) -> Array:
    """Take an input at the public boundary: an array of any library, or a nested list.

    Taken are NumPy and CuPy arrays, objects with DLPack or the CUDA array interface, what NumPy
    reads (``__array__``, buffers), lists and numbers; the last two become arrays on ``device``.
    Nothing moves by itself. The result is C-contiguous and of ``dtype``: booleans and integers
    are converted, floats of any width and byte order rounded once (NumPy's rule "same_kind").

    Raises
    ------
    DeviceError, ShapeError
        For an array on another device; for a list whose parts have different lengths.
    DTypeError
        For complex numbers, objects, text, dates, and floats where integers are needed.
    """
    kind = x.__class__
    if kind is np.ndarray:
        host: Array = x
        if host.dtype is dtype and device is CPU and host.flags.c_contiguous:
            return host
    elif kind is cupy_array_class():
        usual: Array = x
        if usual.dtype is dtype and usual._c_contiguous and _gpu(usual.data.device_id) is device:
            return usual
    if isinstance(x, np.ndarray):
        array: Array = unmasked(x, name)
    else:
        array = x if is_cupy(x) else _imported(x, device, dtype, name)
    here = device_of(array)
    if here != device:
        raise DeviceError(f"{name} is on {here}, need {device}: move it first")
    array = _as_dtype(array, dtype, name)
    return array if array.flags.c_contiguous else namespace_of(device).ascontiguousarray(array)


def any_array(x: Any, beside: Any, name: str) -> Array:
    """Take an input of any kind that `as_array` takes, with the type that it has.

    Lists have none: they take that of ``beside``, an array, or become float64 on the CPU.
    """
    if x.__class__ is np.ndarray or is_cupy(x):
        return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if isinstance(x, np.ndarray):
        return unmasked(x, name)
    known = isinstance(beside, np.ndarray) or is_cupy(beside)
    if speaks_of_memory(x):
        return _imported(x, device_of(beside) if known else _place_of(x), None, name)
    if hasattr(x, "__array__"):
        return listed(x, name)
    where, dtype = (device_of(beside), beside.dtype) if known else (CPU, np.float64)
    return as_array(x, where, dtype, name)


def speaks_of_memory(x: Any) -> bool:
    """Whether an object hands over its memory, by DLPack or the CUDA array interface."""
    return hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")


def imported(x: Any, device: Device, name: str) -> Array:
    """Array of NumPy or CuPy over the memory of an object that speaks of it, with its own type."""
    return _imported(x, device, None, name)


def _place_of(x: Any) -> Device:
    """Device of an object of another library."""
    if hasattr(x, "__dlpack_device__"):
        kind, index = x.__dlpack_device__()
        return _gpu(int(index)) if kind in _DLPACK_GPU else CPU
    return device_of(cupy().asarray(x)) if hasattr(x, "__cuda_array_interface__") else CPU


def _as_dtype(array: Array, dtype: Any, name: str) -> Array:
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "iub" and not np.can_cast(array.dtype, dtype, "same_kind"):
        need = np.dtype(dtype)
        raise DTypeError(
            f"{name}: got dtype {array.dtype}, need {need} or what rounds to it; use .astype"
        )
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is then refused
        return array.astype(dtype)


_DLPACK_HOST, _DLPACK_GPU = (1, 3), (2, 13)  # kinds of memory: plain and pinned, CUDA and managed


def _imported(x: Any, device: Device, dtype: Any, name: str) -> Array:
    """Make an array of NumPy or CuPy of an object of another library, or of a list."""
    if hasattr(x, "__dlpack__"):
        where, index = (1, 0) if not hasattr(x, "__dlpack_device__") else x.__dlpack_device__()
        if where not in (*_DLPACK_HOST, *_DLPACK_GPU):
            raise DeviceError(f"{name} is on a device of DLPack kind {int(where)}, need {device}")
        here = _gpu(int(index)) if where in _DLPACK_GPU else CPU
        if here != device:
            raise DeviceError(f"{name} is on {here}, need {device}: move it first")
        try:
            return np.from_dlpack(x) if device.kind == "cpu" else cupy().from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise DTypeError(f"{name}: DLPack does not hand it over: {error}") from error
    if hasattr(x, "__cuda_array_interface__"):
        if device.kind == "cpu":
            raise DeviceError(f"{name} is on a GPU, need {device}: move it first")
        return cupy().asarray(x)
    return to_device(_as_dtype(listed(x, name), dtype, name), device)


def unmasked(array: np.ndarray, name: str) -> np.ndarray:
    """Plain array of a subclass; masked values have no number, and are refused."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.getmaskarray(array).any():
        raise DTypeError(f"{name}: some values are masked, need numbers: use .filled(value)")
    return np.asarray(array)


def listed(x: Any, name: str) -> np.ndarray:
    """Array that NumPy makes of a list, a number or an object with ``__array__``."""
    try:
        return np.asarray(x)
    except (ValueError, RuntimeError) as error:
        raise ShapeError(f"{name}: got a list that is no array: {error}") from error
    except (TypeError, BufferError, OverflowError, UserWarning) as error:
        raise DTypeError(f"{name}: got {type(x).__name__}, which is no array: {error}") from error
