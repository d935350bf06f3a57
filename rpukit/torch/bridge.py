"""Tensors of PyTorch as arrays and back, without copies, on PyTorch's current stream."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache, wraps
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, TorchError

Array = Any
Tensor = Any


@cache
def pytorch() -> Any:
    """Import PyTorch, or say how to install it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchError('rpukit.torch needs PyTorch: pip install "rpukit[torch]"') from error


def on_stream(step: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a step of an operation: it runs on PyTorch's stream for its first tensor."""

    @wraps(step)
    def run(ctx: Any, *inputs: Any) -> Any:
        with on_device(inputs[0]):
            return step(ctx, *inputs)

    return run


Contexts = Callable[[], AbstractContextManager[Any]]
_NOTHING: AbstractContextManager[Any] = nullcontext()
_MOST_STREAMS = 64
_streams: dict[tuple[int, int], Any] = {}  # CuPy's view of PyTorch's streams
_around: Contexts | None = None


def set_around(contexts: Contexts | None) -> Contexts | None:
    """Enter another context in each operation on a GPU, in the thread that runs it.

    Parameters
    ----------
    contexts : callable or None
        Makes the context.

    Returns
    -------
    callable or None
        The one before.
    """
    global _around
    before, _around = _around, contexts
    return before


def on_device(x: Tensor) -> AbstractContextManager[Any]:
    """Make PyTorch's current stream on the GPU of a tensor that of CuPy.

    On a CPU, and where both use the same stream already, there is nothing to enter.
    """
    if not x.is_cuda:
        return _NOTHING
    index = x.device.index
    address_of, is_capturing, device_now, stream_now = _calls()
    address, captures = address_of(index), is_capturing()
    here = device_now() == index and stream_now().ptr == address
    if here and not captures and _around is None:
        return _NOTHING
    cuda, stack = _device.cupy().cuda, ExitStack()
    stack.enter_context(cuda.Device(index))
    stack.enter_context(_stream(cuda, index, address))
    if captures:
        stack.enter_context(cuda.using_allocator(_memory_of_graphs().malloc))
    if _around is not None:
        stack.enter_context(_around())
    return stack


@cache
def _calls() -> tuple[Callable[..., Any], ...]:
    """Look up what each operation on a GPU asks, once."""
    torch, cuda = pytorch(), _device.cupy().cuda
    address_of = getattr(torch._C, "_cuda_getCurrentRawStream", _address_of)
    return (
        *(address_of, torch.cuda.is_current_stream_capturing),
        *(cuda.runtime.getDevice, cuda.get_current_stream),
    )


def _address_of(index: int) -> int:
    return int(pytorch().cuda.current_stream(index).cuda_stream)


@cache
def _memory_of_graphs() -> Any:
    """Make an allocator for CuPy that takes the memory of the graph which PyTorch is capturing.

    Memory of CuPy's own pool would be given to others between the replays.
    """
    cuda = pytorch().cuda

    def allocate(size: int, index: int) -> int:
        return int(cuda.caching_allocator_alloc(max(size, 1), index))

    def free(address: int, _: int, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():  # the modules may be gone
            cuda.caching_allocator_delete(address)

    return _device.cupy().cuda.PythonFunctionAllocator(allocate, free)


def _stream(cuda: Any, index: int, address: int) -> Any:
    """Return CuPy's view of a stream of PyTorch on a GPU, which is the current one."""
    found = _streams.get((index, address))
    if found is None:
        adopt = getattr(cuda.Stream, "from_external", None)  # from CuPy 14.2 on
        made = cuda.ExternalStream(address) if adopt is None else adopt(_Handle(address))
        if len(_streams) >= _MOST_STREAMS:
            _streams.clear()
        found = _streams[index, address] = made
    return found


class _Handle:
    """A foreign stream, by the protocol of CuPy."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def array_of(x: Tensor) -> Array:
    """Return an array that shares a tensor's memory; bfloat16 becomes uint16."""
    torch = pytorch()
    if not isinstance(x, torch.Tensor):
        raise DTypeError(f"got {type(x).__name__}, need a Tensor")
    if x.device.type not in ("cpu", "cuda"):
        raise DeviceError(f"got a tensor on {x.device}, need one on the CPU or a CUDA GPU")
    narrow = x.dtype == torch.bfloat16
    plain = x.detach().view(torch.int16) if narrow else x.detach()
    array: Array = _on_gpu(plain) if x.is_cuda else plain.numpy()
    return array.view(np.uint16) if narrow else array


def _on_gpu(x: Tensor) -> Array:
    """Return an array of CuPy that shares a tensor's memory.

    A contiguous one is described here, in a fifth of the time that DLPack takes: both libraries
    work on one stream, so there is nothing to wait for.
    """
    cupy, kind, size = _device.cupy(), _kinds().get(x.dtype), x.numel()
    if kind is None or not size or not x.is_contiguous():
        return cupy.from_dlpack(x)
    memory = cupy.cuda.UnownedMemory(x.data_ptr(), size * kind.itemsize, x, x.device.index)
    return cupy.ndarray(tuple(x.shape), kind, cupy.cuda.MemoryPointer(memory, 0))


@cache
def _kinds() -> dict[Any, np.dtype[Any]]:
    torch = pytorch()
    names = ("float32", "float64", "float16", "int64", "int32", "int16")
    return {getattr(torch, name): np.dtype(name) for name in names}


def tensor_of(x: Array, dtype: Any) -> Tensor:
    """Return a tensor that shares an array's memory; `dtype` marks uint16 as bfloat16."""
    torch = pytorch()
    narrow = x.dtype == np.uint16
    plain = x.view(np.int16) if narrow else x
    if type(plain) is np.ndarray:
        found = torch.from_numpy(plain)
    elif _device.is_cupy(plain):  # on the stream of both: nothing to wait for
        found = torch.utils.dlpack.from_dlpack(plain.__dlpack__(stream=-1))
    else:
        found = torch.from_dlpack(plain)
    return found.view(dtype) if narrow else found
