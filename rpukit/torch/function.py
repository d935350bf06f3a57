"""The product of an array of tiles as an operation of PyTorch, with gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.update.ops import rank_update
from rpukit.torch._torch import torch
from rpukit.torch.bridge import array_of, on_device, tensor_of
from rpukit.torch.gathering import refuse_plain_ddp
from rpukit.torch.weight import AnalogWeight

Array = Any
Tensor = Any
_FEW = 1 << 14  # numbers that NumPy adds up in less time than the kernel takes to start


def analog_linear(x: Tensor, weight: AnalogWeight, bias: Tensor, scale: Tensor) -> Tensor:
    """Multiply samples by the weights in tiles: ``scale * (x @ weight.T) + bias``.

    Parameters
    ----------
    x : Tensor, shape (..., n_in), any floating-point type
        Computed in the type of the tiles.
    weight : AnalogWeight
    bias, scale : Tensor, shape (n_out,), type of the tiles, or None
        A scale may have one element.

    Returns
    -------
    Tensor, shape (..., n_out)
        Of the type of `x`; under autocast, of the type of the tiles.

    Raises
    ------
    ShapeError, DTypeError, DeviceError, NonFiniteError
    """
    kind, given = weight.kind, x.dtype
    if given is not kind:
        x = x.to(kind)
    if torch.is_grad_enabled():
        y = (_Product.apply if _transforms() else _apply)(x, weight, bias, scale)
    elif x.is_cuda:
        with on_device(x):
            y = forward_product(x, weight, bias, scale)[0]
    else:
        y = forward_product(x, weight, bias, scale)[0]
    if given is kind or torch.is_autocast_enabled(x.device.type):
        return y
    return y.to(given)


def forward_product(
    x: Tensor, weight: Any, bias: Tensor, scale: Tensor, learns: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Multiply samples of the type of the tiles by their weights, on the current stream.

    Parameters
    ----------
    x, weight, bias, scale : as of `analog_linear`
    learns : bool
        Whether the samples are those of a step of training.

    Returns
    -------
    y : Tensor, shape (..., n_out)
    raw : Tensor, shape (..., n_out), or None
        Outputs of the tiles before a scale.
    """
    if x.is_cuda:
        out = weight.repeated("forward", x)
        if out is not None:
            return _finished(out, bias, scale)
    y = (weight._counted_product if learns else weight.forward_product)(_plain(x))
    raw = None
    if scale is not None:
        raw, y = y, y * _plain(scale)
    if bias is not None:
        y += _plain(bias)
    return _tensor(y), None if raw is None else _tensor(raw)


def _finished(y: Tensor, bias: Tensor, scale: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scale the outputs of tiles and add the bias, as `forward_product` does with arrays."""
    raw = None
    if scale is not None:
        raw, y = y, y * scale.detach()
    if bias is not None:
        y += bias.detach()
    return y, raw


class _Product(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Tensor, scale: Tensor) -> Tensor:
        if weight.group is None:
            refuse_plain_ddp()
        if x.is_cuda:
            with on_device(x):
                y, raw = forward_product(x, weight, bias, scale, True)
        else:
            y, raw = forward_product(x, weight, bias, scale, True)
        ctx.save_for_backward(x, raw)
        ctx.parts = weight, bias, scale
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        if not d.is_cuda:
            return _backward(ctx, d)
        with on_device(d):
            return _backward(ctx, d.contiguous())


# Inside transforms of `torch.func` alone, `apply` of Function has more to do than its base class.
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_apply = super(torch.autograd.Function, _Product).apply


def _backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
    x, raw = ctx.saved_tensors
    return layer_gradients(d, x, raw, ctx.parts, ctx.needs_input_grad[0]), None, None, None


def layer_gradients(
    d: Tensor, x: Tensor, raw: Tensor, parts: tuple[Any, Any, Any], wanted: bool
) -> Tensor | None:
    """Give the parameters of a layer their gradients, and return that of its input.

    Parameters
    ----------
    d : Tensor, shape (..., n_out)
        Errors.
    x : Tensor, shape (..., n_in)
    raw : Tensor, shape (..., n_out)
        Outputs of the tiles before a scale; without a scale it is not used.
    parts : tuple
        Weight, bias and scale of `analog_linear`.
    wanted : bool
        Whether the gradient of the input is needed.

    Returns
    -------
    Tensor, shape (..., n_in), or None
    """
    weight, bias, scale = parts
    inside = d
    if scale is not None:
        if scale.requires_grad:
            _add_slope(scale, d * raw)
        inside = d * scale.detach()
    if bias is not None and bias.requires_grad:
        _add_slope(bias, d)
    array, grad, raw_grad = weight.array, None, None
    learns = array._exact and array.ranges is not None
    if wanted or learns:
        grad = weight.repeated("backward", inside) if inside.is_cuda else None
        if grad is None:
            grad = _tensor(weight.backward_product(_plain(inside)))
    if learns:
        raw_grad, rows = grad, (-1, array.shape[1])
        masked = array.through_range(_plain(x).reshape(rows), _plain(grad).reshape(rows))
        grad = _tensor(masked).reshape(x.shape)
    weight.keep(x.detach(), inside, raw_grad)
    return grad if wanted else None


def _add_slope(parameter: Tensor, slopes: Tensor) -> None:
    """Add the slopes of samples to a parameter's gradient, in one chain, samples ascending.

    The chain goes on from the gradient that is there, so a mini-batch in several backward passes
    gives the bits of one.
    """
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    grad = _plain(parameter.grad).reshape(-1)
    rows = _plain(slopes).reshape(-1, grad.shape[0])
    if not slopes.is_cuda and rows.size <= _FEW:
        grad[...] = np.add.accumulate(np.concatenate((grad[None], rows)), axis=0)[-1]
        return
    device = _device.device_of(grad)
    stream = _device.free_stream() if device.kind == "gpu" else 0
    make = _constants if stream is not None else _constants.__wrapped__  # a graph fills its own
    every, status = make(rows.shape[0], rows.dtype, device, stream)
    contiguous = _device.namespace(grad).ascontiguousarray(rows)
    rank_update(grad.reshape(-1, 1), every, contiguous, -1.0, status=status)


@lru_cache(maxsize=16)
def _constants(
    n: int, dtype: Any, device: _device.Device, stream: int | None
) -> tuple[Array, Array]:
    """Make ones for n samples, and a status without a fault, on a stream that goes on to read."""
    zero = _device.zeros((1,), np.int32, device)
    with _device.using(device):
        ones = _device.namespace(zero).ones((n, 1), dtype)
    return ones, zero


def _plain(x: Tensor) -> Array:
    """Return an array that shares the memory of a tensor of a tile's type."""
    return array_of(x) if x.is_cuda or x.device.type != "cpu" else x.detach().numpy()


def _tensor(y: Array) -> Tensor:
    """Return a tensor that shares an array's memory."""
    return torch.from_numpy(y) if type(y) is np.ndarray else tensor_of(y, None)
