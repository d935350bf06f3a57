"""Products of tiles as operators of PyTorch, for graphs that ``torch.compile`` makes.

A graph knows a layer by a number, its handle. Each call moves the clocks of tiles, so it is
declared as a change of a tensor of the layer, its token: no call is dropped, merged with another
or moved past one of the same layer.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from rpukit.torch._torch import torch
from rpukit.torch.bridge import on_device
from rpukit.torch.function import analog_linear, forward_product, layer_gradients

__all__ = ["compiled_linear", "new_handle"]

Tensor = Any
# Before 2.6 a product is left to the call, between two graphs.
_IN_GRAPHS = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)
_outside: Any = torch.compiler.disable(analog_linear)
_NUMBERS = count(1)
_LAYERS: WeakValueDictionary[int, Any] = WeakValueDictionary()
_LIBRARY = torch.library.Library("rpukit", "FRAGMENT")
_LIBRARY.define(
    "analog_forward(Tensor x, Tensor? bias, Tensor? scale, Tensor(a!) token, int handle)"
    " -> (Tensor, Tensor)"
)
_LIBRARY.define(
    "analog_backward(Tensor d, Tensor x, Tensor raw, Tensor(a!) token, int handle, bool wanted)"
    " -> Tensor"
)


def new_handle(layer: Any) -> int:
    """Give a layer a number, by which graphs find it as long as it lives."""
    handle = next(_NUMBERS)
    _LAYERS[handle] = layer
    return handle


def compiled_linear(x: Tensor, layer: Any) -> Tensor:
    """Multiply samples by the weights of a layer, inside a function that is being compiled.

    Parameters
    ----------
    x : Tensor, shape (..., n_in), any floating-point type
    layer : AnalogLayer

    Returns
    -------
    Tensor, shape (..., n_out)
        As of `rpukit.torch.function.analog_linear`, with the same bits.
    """
    if not _IN_GRAPHS:
        return _outside(x, layer.analog_weight, layer.bias, layer.output_scale)
    given, kind = x.dtype, layer.kind
    y = _Compiled.apply(
        x.to(kind),
        layer.analog_weight,
        layer.bias,
        layer.output_scale,
        layer.token,
        layer.handle,
    )
    return y if given is kind or torch.is_autocast_enabled(x.device.type) else y.to(given)


def _forward(
    x: Tensor, bias: Tensor, scale: Tensor, token: Tensor, handle: int
) -> tuple[Tensor, Tensor]:
    token.add_(1)
    layer = _LAYERS[handle]
    with torch.no_grad(), on_device(x):
        y, raw = forward_product(x, layer.analog_weight, bias, scale, layer.training)
    return y, x.new_empty(0) if raw is None else raw


def _backward(
    d: Tensor, x: Tensor, raw: Tensor, token: Tensor, handle: int, wanted: bool
) -> Tensor:
    token.add_(1)
    layer = _LAYERS[handle]
    weight = layer.analog_weight
    if weight.collects:  # a graph uses the memory of its tensors again before the step
        x, d = x.clone(), d.clone()
    with torch.no_grad(), on_device(d):
        parts = (weight, layer.bias, layer.output_scale)
        grad = layer_gradients(d, x, raw, parts, wanted)
    return x.new_empty(0) if grad is None else grad


_LIBRARY.impl("analog_forward", _forward, "CompositeExplicitAutograd")
_LIBRARY.impl("analog_backward", _backward, "CompositeExplicitAutograd")


@torch.library.register_fake("rpukit::analog_forward", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _forward_shape(
    x: Tensor, bias: Tensor, scale: Tensor, token: Tensor, handle: int
) -> tuple[Tensor, Tensor]:
    y = x.new_empty((*x.shape[:-1], _LAYERS[handle].array.shape[0]))
    return y, x.new_empty(0) if scale is None else torch.empty_like(y)


@torch.library.register_fake("rpukit::analog_backward", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _backward_shape(
    d: Tensor, x: Tensor, raw: Tensor, token: Tensor, handle: int, wanted: bool
) -> Tensor:
    return x.new_empty(x.shape if wanted else 0)


class _Compiled(torch.autograd.Function):  # type: ignore[misc]
    """The two operators as one function; bias and tiles get their gradients as a side effect."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Any, bias: Tensor, scale: Tensor, token: Tensor, handle: int
    ) -> Tensor:
        y, raw = torch.ops.rpukit.analog_forward(x, bias, scale, token, handle)
        ctx.save_for_backward(x, raw)
        ctx.token, ctx.handle = token, handle
        return y

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        x, raw = ctx.saved_tensors
        wanted = ctx.needs_input_grad[0]
        grad = torch.ops.rpukit.analog_backward(d, x, raw, ctx.token, ctx.handle, wanted)
        return grad if wanted else None, None, None, None, None, None
