"""Functions between layers with the same bits on CPU and GPU, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import elementwise
from rpukit.errors import ParameterError
from rpukit.torch._torch import torch
from rpukit.torch.bridge import array_of, on_device, tensor_of

__all__ = ["cross_entropy", "tanh"]

Tensor = Any


def tanh(x: Tensor) -> Tensor:
    """Compute the hyperbolic tangent; its bits depend on neither device nor position.

    Parameters
    ----------
    x : Tensor, float32

    Returns
    -------
    Tensor, shape and type of `x`

    Raises
    ------
    DTypeError, DeviceError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> rk.torch.tanh(torch.tensor([0.0, 20.0]))
    tensor([0., 1.])
    """
    return _Tanh.apply(x)


def cross_entropy(logits: Tensor, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    """Compute the cross-entropy of softmax, as ``torch.nn.functional.cross_entropy``.

    Parameters
    ----------
    logits : Tensor, shape (n, n_class), float32
    targets : Tensor, shape (n,), int32 or int64
    reduction : {"mean", "sum", "none"}

    Returns
    -------
    Tensor, shape () or (n,)

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Losses of the samples and gradients have the same bits on CPU and GPU, for any batch.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> loss = rk.torch.cross_entropy(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    >>> torch.allclose(loss.exp(), torch.tensor(4.0))
    True
    """
    if reduction not in ("mean", "sum", "none"):
        raise ParameterError(f'reduction: got {reduction!r}, need "mean", "sum" or "none"')
    losses = _CrossEntropy.apply(logits, targets)
    return losses if reduction == "none" else getattr(losses, reduction)()


def _tanh(x: Tensor) -> Tensor:
    with on_device(x):
        return tensor_of(elementwise.tanh(array_of(x.contiguous())), None)


def _losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    with on_device(logits):
        rows, labels = array_of(logits.contiguous()), array_of(targets).astype(np.int32)
        losses, errors = elementwise.softmax_cross_entropy(rows, labels)
        return tensor_of(losses, None), tensor_of(errors, None)


# In a graph of ``torch.compile`` the functions are operators.
_LIBRARY = torch.library.Library("rpukit", "FRAGMENT")
_LIBRARY.define("tanh(Tensor x) -> Tensor")
_LIBRARY.define("cross_entropy(Tensor logits, Tensor targets) -> (Tensor, Tensor)")
_LIBRARY.impl("tanh", _tanh, "CompositeExplicitAutograd")
_LIBRARY.impl("cross_entropy", _losses, "CompositeExplicitAutograd")


@torch.library.register_fake("rpukit::tanh", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _tanh_shape(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("rpukit::cross_entropy", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _losses_shape(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty(logits.shape[:1]), logits.new_empty(logits.shape)


class _Tanh(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.ops.rpukit.tanh(x) if torch.compiler.is_compiling() else _tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return d * (1 - y * y)


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        compiling = torch.compiler.is_compiling()
        found = torch.ops.rpukit.cross_entropy if compiling else _losses
        losses, errors = found(logits, targets)
        ctx.save_for_backward(errors)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        (errors,) = ctx.saved_tensors
        return errors * d[:, None], None
