"""Calls of the CUDA driver that CuPy does not bind: launches with attributes, tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DeviceError, LaunchError

_TOGETHER = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE of cuda.h
_OVERLAP = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
Prepared = Callable[[], Any]  # launches: returns an error of the driver, or raises CuPy's
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_byte * 60),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("n_attribute", ctypes.c_uint),
    )


@cache
def library() -> Any:
    """Load the driver's library."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
        found.cuTensorMapEncodeTiled  # noqa: B018
        found.cuLaunchKernelEx  # noqa: B018
    except (OSError, AttributeError) as error:
        raise DeviceError(
            f"no tensor maps: {error}. They need a driver for CUDA 12 or later"
        ) from error
    return found


def capture_number(stream: int) -> int:
    """Return the driver's id of the graph capture on a stream; 0 if it is unknown."""
    ask = getattr(library(), "cuStreamGetCaptureInfo_v2", None)
    if ask is None:
        return 0
    status, number = ctypes.c_int(), ctypes.c_uint64()
    ask.argtypes = (ctypes.c_void_p,) * 6
    code = ask(stream, ctypes.addressof(status), ctypes.addressof(number), None, None, None)
    return 0 if code else number.value


@contextmanager
def allocating() -> Iterator[None]:
    """Set this thread's capture mode to "relaxed", so that it may allocate during a capture.

    In the other modes an allocation ends the capture with an error; PyTorch's is "global".
    """
    exchange = library().cuThreadExchangeStreamCaptureMode
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))  # which then holds the mode before
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def launcher(
    function: int,
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
    arguments: Sequence[np.ndarray],
    early: bool,
    together: bool = False,
) -> Callable[[int], Prepared]:
    """Return a function that prepares launches of a kernel, its arguments laid out once.

    Parameters
    ----------
    function : int
        The driver's handle.
    grid, block : tuple of int
    shared : int
    arguments : sequence of arrays
        The bytes of each argument, which launches read.
    early : bool
        Whether the kernel may begin before the previous one has ended. It has to call
        `rk_wait_for_earlier` before it accesses memory.
    together : bool
        Whether all blocks have to be there at once, because they wait for each other; not with
        ``early``.

    Returns
    -------
    callable
        Takes the driver's handle of a stream; see `Prepared`. It has to be kept as long as what
        it returns, which reads its memory.
    """
    addresses = (ctypes.c_void_p * len(arguments))(*(a.ctypes.data for a in arguments))
    sizes: list[Any] = [(*map(int, shape), 1, 1)[:3] for shape in (grid, block)]
    number = _TOGETHER if together else _OVERLAP if early else 0
    make: Callable[..., Prepared] = _with_attribute if number else _plain

    def prepare(stream: int, kept: Any = (arguments, addresses)) -> Prepared:
        return make(function, *sizes, int(shared), stream, kept[1], number)

    return prepare


def start(launches: Sequence[Prepared]) -> None:
    """Make launches that `launcher` has prepared.

    Raises
    ------
    LaunchError
    """
    try:
        for launch in launches:
            if code := launch():
                raise refused(code)
    except refusals() as error:
        raise refused(error) from error


def refusals() -> type[Exception]:
    """CuPy's error of the driver."""
    found: type[Exception] = _device.cupy().cuda.driver.CUDADriverError
    return found


def refused(why: Any) -> LaunchError:
    """Describe a launch that the driver refused: its code, or CuPy's error."""
    return LaunchError(f"the driver refused a launch with error {why}")


def _plain(
    function: int, grid: Any, block: Any, shared: int, stream: int, addresses: Any, _: int
) -> Prepared:
    """Prepare a launch without attributes, by CuPy's binding: ctypes takes longer, as does Ex."""
    launch = _device.cupy().cuda.driver.launchKernel
    return partial(launch, function, *grid, *block, shared, stream, ctypes.addressof(addresses), 0)


def _with_attribute(
    function: int, grid: Any, block: Any, shared: int, stream: int, addresses: Any, number: int
) -> Prepared:
    attribute, three = _Attribute(number=number, value=1), ctypes.c_uint * 3
    made = _Launch(three(*grid), three(*block), shared, stream, ctypes.pointer(attribute), 1)
    launch = library().cuLaunchKernelEx
    # Objects of ctypes, as declared types would be looked at in every call.
    return partial(launch, ctypes.byref(made), ctypes.c_void_p(function), addresses, None)
