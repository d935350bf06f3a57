"""Tensors of PyTorch as arrays and back, without copies, on PyTorch's current stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, TorchError

Array = Any
Tensor = Any


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
        with ExitStack() as stack:
            if inputs[0].is_cuda:
                for context in places(inputs[0].device):
                    stack.enter_context(context)
            return step(ctx, *inputs)

    return run


def places(device: Any) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return CuPy's contexts for a GPU and for PyTorch's current stream on it."""
    cuda, address = _device.cupy().cuda, pytorch().cuda.current_stream(device).cuda_stream
    adopt = getattr(cuda.Stream, "from_external", None)  # from CuPy 14.2 on
    stream = cuda.ExternalStream(address) if adopt is None else adopt(_Handle(address))
    return cuda.Device(device.index), stream


@contextmanager
def on_device(x: Tensor) -> Iterator[None]:
    """Enter PyTorch's current stream for a tensor; on a CPU nothing is to be done."""
    if not x.is_cuda:
        yield
        return
    device, stream = places(x.device)
    with device, stream:
        yield


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
    array: Array = _device.cupy().from_dlpack(plain) if x.is_cuda else plain.numpy()
    return array.view(np.uint16) if narrow else array


def tensor_of(x: Array, dtype: Any) -> Tensor:
    """Return a tensor that shares an array's memory; `dtype` marks uint16 as bfloat16."""
    torch = pytorch()
    if x.dtype != np.uint16:
        return torch.from_dlpack(x)
    return torch.from_dlpack(x.view(np.int16)).view(dtype)
