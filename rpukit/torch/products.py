"""Products of `rpukit.gemm` for PyTorch, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rpukit import gemm
from rpukit.errors import DTypeError
from rpukit.gemm import logprob, ops
from rpukit.torch.bridge import array_of, on_stream, pytorch, tensor_of

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


@cache
def _functions() -> tuple[Any, Any]:
    """Define the operations as subclasses of PyTorch's autograd function."""
    torch = pytorch()
    function: Any = torch.autograd.Function
    once: Callable[[Any], Any] = torch.autograd.function.once_differentiable
    outside: Callable[[Any], Any] = torch.compiler.disable  # between two graphs of torch.compile

    class Product(function):  # type: ignore[misc]
        @staticmethod
        @outside
        @on_stream
        def forward(ctx: Any, a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Tensor:
            ctx.save_for_backward(a, b)
            ctx.options = {"trans_a": trans_a, "trans_b": trans_b}
            return tensor_of(gemm.det_gemm(array_of(a), array_of(b), **ctx.options), a.dtype)

        @staticmethod
        @once
        @outside
        @on_stream
        def backward(ctx: Any, dc: Tensor) -> tuple[Any, ...]:
            a, b = ctx.saved_tensors
            arrays = [array_of(x) for x in (a, b, dc)]
            both = (ops.gradient_of_a, ops.gradient_of_b)
            made = [
                tensor_of(gradient(*arrays, **ctx.options), a.dtype) if needed else None
                for gradient, needed in zip(both, ctx.needs_input_grad, strict=False)
            ]
            return (*made, None, None)

    class LogProbability(function):  # type: ignore[misc]
        @staticmethod
        @outside
        @on_stream
        def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            arrays = [array_of(x) for x in (hidden, weight, targets)]
            found = gemm.linear_logprob(*arrays, with_normaliser=True)
            values, normaliser = (tensor_of(x, None) for x in found)
            ctx.save_for_backward(hidden, weight, targets, normaliser)
            return values

        @staticmethod
        @once
        @outside
        @on_stream
        def backward(ctx: Any, slope: Tensor) -> tuple[Any, ...]:
            *inputs, normaliser = ctx.saved_tensors
            hidden, weight, targets = (array_of(x) for x in inputs)
            given = (array_of(slope), array_of(normaliser))
            dz = logprob.gradient_of_logits(hidden, weight, targets, *given)
            wanted, kind = ctx.needs_input_grad, inputs[0].dtype
            by_hidden = gemm.det_gemm(dz, weight) if wanted[0] else None
            by_weight = gemm.det_gemm(dz, hidden, trans_a=True) if wanted[1] else None
            return (
                *(None if x is None else tensor_of(x, kind) for x in (by_hidden, by_weight)),
                None,
            )

    return Product, LogProbability


def _check(**tensors: Tensor) -> None:
    torch = pytorch()
    known = [getattr(torch, name) for name in _FLOATS]
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor) or x.dtype not in known:
            got = getattr(x, "dtype", type(x).__name__)
            raise DTypeError(f"{name}: got {got}, need a Tensor of {', '.join(_FLOATS)}")
