"""Batch-invariant products and log-probabilities as operations of PyTorch, with gradients.

Tensors and the arrays that rpukit computes with share their memory (DLPack): nothing is copied. On
a GPU the kernels run on PyTorch's current stream. PyTorch is imported by the first call
(``pip install "rpukit[torch]"``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache, wraps
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device, gemm
from rpukit.errors import DeviceError, DTypeError, TorchError
from rpukit.gemm import logprob, ops

__all__ = ["det_gemm", "linear_logprob"]

Array = Any
Tensor = Any

_FLOATS = ("float32", "float64", "float16", "bfloat16")


def det_gemm(a: Tensor, b: Tensor, *, trans_a: bool = False, trans_b: bool = False) -> Tensor:
    """Multiply two matrices with batch-invariant bits, also in the backward pass.

    Parameters
    ----------
    a : Tensor, shape (m, k), or (k, m) with `trans_a`
        float32, float64, float16 or bfloat16, on the CPU or a GPU, any strides.
    b : Tensor, shape (k, n), or (n, k) with `trans_b`, dtype of `a`
    trans_a, trans_b : bool
        Use the transpose of the factor.

    Returns
    -------
    Tensor, shape (m, n), dtype of `a`

    Raises
    ------
    ShapeError, DTypeError, DeviceError, TorchError

    Notes
    -----
    Results and gradients have the bits of `rpukit.det_gemm` and `rpukit.det_gemm_backward`.

    Examples
    --------
    >>> import torch, rpukit as rk  # doctest: +SKIP
    >>> x, weight = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)  # doctest: +SKIP
    >>> rk.torch.det_gemm(x, weight, trans_b=True).sum().backward()  # doctest: +SKIP
    >>> weight.grad[0].tolist()  # doctest: +SKIP
    [2.0, 2.0, 2.0]
    """
    _check(a=a, b=b)
    return _functions()[0].apply(a, b, trans_a, trans_b)


def linear_logprob(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Compute the log-probability of one token per row under ``softmax(hidden @ weight.T)``.

    Parameters
    ----------
    hidden : Tensor, shape (n_row, n_in)
        float32, float64, float16 or bfloat16.
    weight : Tensor, shape (n_vocab, n_in), dtype of `hidden`
    targets : Tensor, shape (n_row,), int32 or int64
        A negative target marks padding, whose log-probability is 0.

    Returns
    -------
    Tensor, shape (n_row,), float32, or float64 for float64

    Raises
    ------
    ShapeError, DTypeError, DeviceError, ParameterError, TorchError

    Notes
    -----
    Values and gradients have the bits of `rpukit.linear_logprob` and
    `rpukit.linear_logprob_backward`.

    Examples
    --------
    >>> import torch, rpukit as rk  # doctest: +SKIP
    >>> hidden = torch.ones(3, 2, requires_grad=True)  # doctest: +SKIP
    >>> targets = torch.tensor([0, 3, -1])  # doctest: +SKIP
    >>> rk.torch.linear_logprob(hidden, torch.zeros(4, 2), targets).exp()  # doctest: +SKIP
    tensor([0.2500, 0.2500, 1.0000], grad_fn=<ExpBackward0>)
    """
    _check(hidden=hidden, weight=weight)
    return _functions()[1].apply(hidden, weight, targets)


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchError('rpukit.torch needs PyTorch: pip install "rpukit[torch]"') from error


@cache
def _functions() -> tuple[Any, Any]:
    """Define the operations as subclasses of PyTorch's autograd function."""
    torch = _torch()
    function: Any = torch.autograd.Function
    once: Callable[[Any], Any] = torch.autograd.function.once_differentiable

    class Product(function):  # type: ignore[misc]
        @staticmethod
        @_on_stream
        def forward(ctx: Any, a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Tensor:
            ctx.save_for_backward(a, b)
            ctx.options = {"trans_a": trans_a, "trans_b": trans_b}
            return _tensor(gemm.det_gemm(_array(a), _array(b), **ctx.options), a.dtype)

        @staticmethod
        @once
        @_on_stream
        def backward(ctx: Any, dc: Tensor) -> tuple[Any, ...]:
            a, b = ctx.saved_tensors
            arrays = [_array(x) for x in (a, b, dc)]
            both = (ops.gradient_of_a, ops.gradient_of_b)
            made = [
                _tensor(gradient(*arrays, **ctx.options), a.dtype) if needed else None
                for gradient, needed in zip(both, ctx.needs_input_grad, strict=False)
            ]
            return (*made, None, None)

    class LogProbability(function):  # type: ignore[misc]
        @staticmethod
        @_on_stream
        def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            arrays = [_array(x) for x in (hidden, weight, targets)]
            found = gemm.linear_logprob(*arrays, with_normaliser=True)
            values, normaliser = (_tensor(x, None) for x in found)
            ctx.save_for_backward(hidden, weight, targets, normaliser)
            return values

        @staticmethod
        @once
        @_on_stream
        def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
            *inputs, normaliser = ctx.saved_tensors
            hidden, weight, targets = (_array(x) for x in inputs)
            given = (_array(slope), _array(normaliser))
            dz = logprob.gradient_of_logits(hidden, weight, targets, *given)
            wanted, kind = ctx.needs_input_grad, inputs[0].dtype
            by_hidden = gemm.det_gemm(dz, weight) if wanted[0] else None
            by_weight = gemm.det_gemm(dz, hidden, trans_a=True) if wanted[1] else None
            return (
                *(None if x is None else _tensor(x, kind) for x in (by_hidden, by_weight)),
                None,
            )

    return Product, LogProbability


def _on_stream(step: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a step of an operation: it runs on PyTorch's stream for its first tensor."""

    @wraps(step)
    def run(ctx: Any, *inputs: Any) -> Any:
        with ExitStack() as stack:
            if inputs[0].is_cuda:
                for context in _places(inputs[0].device):
                    stack.enter_context(context)
            return step(ctx, *inputs)

    return run


def _places(device: Any) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return CuPy's contexts for a GPU and for PyTorch's current stream on it."""
    cuda, address = _device.cupy().cuda, _torch().cuda.current_stream(device).cuda_stream
    adopt = getattr(cuda.Stream, "from_external", None)  # from CuPy 14.2 on
    stream = cuda.ExternalStream(address) if adopt is None else adopt(_Handle(address))
    return cuda.Device(device.index), stream


class _Handle:
    """A foreign stream, by the protocol of CuPy."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def _check(**tensors: Tensor) -> None:
    torch = _torch()
    known = [getattr(torch, name) for name in _FLOATS]
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor) or x.dtype not in known:
            got = getattr(x, "dtype", type(x).__name__)
            raise DTypeError(f"{name}: got {got}, need a Tensor of {', '.join(_FLOATS)}")


def _array(x: Tensor) -> Array:
    """Return an array that shares a tensor's memory; bfloat16 becomes uint16."""
    torch = _torch()
    if not isinstance(x, torch.Tensor):
        raise DTypeError(f"got {type(x).__name__}, need a Tensor")
    if x.device.type not in ("cpu", "cuda"):
        raise DeviceError(f"got a tensor on {x.device}, need one on the CPU or a CUDA GPU")
    narrow = x.dtype == torch.bfloat16
    plain = x.detach().view(torch.int16) if narrow else x.detach()
    array: Array = _device.cupy().from_dlpack(plain) if x.is_cuda else plain.numpy()
    return array.view(np.uint16) if narrow else array


def _tensor(x: Array, dtype: Any) -> Tensor:
    """Return a tensor that shares an array's memory; `dtype` marks uint16 as bfloat16."""
    torch = _torch()
    if x.dtype != np.uint16:
        return torch.from_dlpack(x)
    return torch.from_dlpack(x.view(np.int16)).view(dtype)
