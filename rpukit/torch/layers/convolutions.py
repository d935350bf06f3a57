"""Convolutions with their weights in tiles: patches of the input are the samples of the tiles."""

from __future__ import annotations

from itertools import product
from operator import mul
from typing import Any

from rpukit.errors import ParameterError, ShapeError
from rpukit.random import Stream
from rpukit.torch._torch import torch
from rpukit.torch.layers.linear import AnalogLayer, fill

__all__ = ["AnalogConv1d", "AnalogConv2d", "AnalogConv3d"]

Tensor = Any
nn = torch.nn
_SETTINGS = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")


class _Patches(torch.autograd.Function):  # type: ignore[misc]
    """Patches of a padded input, (n, *out, channels, *kernel), as a copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Any, stride: Any, dilation: Any) -> Tensor:
        ctx.shape, ctx.geometry = x.shape, (kernel, stride, dilation)
        space = zip(x.shape[2:], kernel, stride, dilation, strict=True)
        out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in space]
        first, channel, *steps = x.stride()
        sizes = (x.shape[0], *out, x.shape[1], *kernel)
        jumps = [step * s for step, s in zip(steps, stride, strict=True)]
        spacing = [step * d for step, d in zip(steps, dilation, strict=True)]
        view = x.as_strided(sizes, (first, *jumps, channel, *spacing))
        return view.contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d: Tensor) -> tuple[Any, ...]:
        # Sums in one written order, offsets of the kernel ascending: the same bits everywhere.
        kernel, stride, dilation = ctx.geometry
        n = len(kernel)
        slopes, grad = d.movedim(1 + n, 1), d.new_zeros(ctx.shape)
        sizes, steps, jumps = slopes.shape[: 2 + n], grad.stride(), slopes.stride()
        to = (*steps[:2], *(step * s for step, s in zip(steps[2:], stride, strict=True)))
        spacing = [step * s for step, s in zip(steps[2:], dilation, strict=True)]
        for offset in product(*map(range, kernel)):
            place = sum(map(mul, offset, spacing))
            start = slopes.storage_offset() + sum(map(mul, offset, jumps[2 + n :]))
            part = slopes.as_strided(sizes, jumps[: 2 + n], start)
            grad.as_strided(sizes, to, place).add_(part)
        return grad, None, None, None


class _AnalogConv(AnalogLayer):
    """Base class of the convolutions."""

    N_AXES = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        cell: Any,
        seed: int | Stream | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation)
        module = self.DIGITAL(*sizes, groups, bias, padding_mode)
        self._take(module)
        self._adopt(module, cell, seed)
        self.to(device or "cpu")

    def _take(self, module: Any) -> None:
        if module.groups != 1:
            raise ParameterError(
                f"groups: got {module.groups}, need 1; a grouped convolution is several matrices: "
                "make an AnalogGroupedConv of a digital one, or name it in overrides= of convert"
            )
        for name in (*_SETTINGS, "padding_mode"):
            setattr(self, name, getattr(module, name))
        ends: list[int] = []
        for axis in reversed(range(self.N_AXES)):
            if self.padding == "same":
                whole = self.dilation[axis] * (self.kernel_size[axis] - 1)
                ends += [whole // 2, whole - whole // 2]
            else:
                ends += [0 if self.padding == "valid" else self.padding[axis]] * 2
        self._ends = ends

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels, *self.kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve an input with the weights, and add the bias.

        Parameters
        ----------
        x : Tensor, shape (n, in_channels, *axes) or (in_channels, *axes)
            In any memory format.

        Returns
        -------
        Tensor, shape (n, out_channels, *axes) or (out_channels, *axes)
            In the memory format of `x`.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        n_axes = self.N_AXES + 2
        batched = x.dim() == n_axes
        if not batched and x.dim() != n_axes - 1:
            raise ShapeError(f"x: got {x.dim()} axes, need {n_axes}, or one less for one sample")
        given, whole = x.dtype, x if batched else x.unsqueeze(0)
        whole = whole.to(getattr(torch, self.settings.dtype))
        if any(self._ends):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            whole = nn.functional.pad(whole, self._ends, mode=mode)
        patches = _Patches.apply(whole, self.kernel_size, self.stride, self.dilation)
        y = self.product(patches.flatten(-1 - self.N_AXES)).movedim(-1, 1)
        if x.is_contiguous():
            y = y.contiguous()
        if not torch.is_autocast_enabled(x.device.type):
            y = y.to(given)
        return y if batched else y.squeeze(0)

    def extra_repr(self) -> str:
        """Describe the layer in the printed model."""
        n_row, n_column = self.array.grid
        kernel = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return f"{self.in_channels}, {self.out_channels}, {kernel}, tiles={n_row}x{n_column}"

    def to_digital(self) -> Any:
        """Make the digital layer with the weights that the products see now.

        Returns
        -------
        Module
        """
        bias, settings = self.get_bias(), {name: getattr(self, name) for name in _SETTINGS}
        module = self.DIGITAL(**settings, bias=bias is not None, padding_mode=self.padding_mode)
        return fill(module, self, bias)


class AnalogConv1d(_AnalogConv):
    """A convolution of one axis with its weights in tiles, as ``torch.nn.Conv1d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, dilation, groups, bias, padding_mode : as of ``torch.nn.Conv1d``
        groups has to be 1.
    cell, seed, device : as of `AnalogLinear`

    Raises
    ------
    ParameterError, DeviceError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogConv1d(2, 4, 3, padding=1, cell=rk.SoftBounds(), seed=7)
    >>> layer(torch.ones(5, 2, 10)).shape
    torch.Size([5, 4, 10])
    """

    DIGITAL, N_AXES = nn.Conv1d, 1


class AnalogConv2d(_AnalogConv):
    """A convolution of two axes with its weights in tiles, as ``torch.nn.Conv2d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, dilation, groups, bias, padding_mode : as of ``torch.nn.Conv2d``
        groups has to be 1.
    cell, seed, device : as of `AnalogLinear`

    Raises
    ------
    ParameterError, DeviceError

    Notes
    -----
    Each patch of the input is one sample of the tiles: (sample of the batch, row, column).

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogConv2d(1, 4, 3, stride=2, cell=rk.SoftBounds(), seed=7)
    >>> layer(torch.ones(5, 1, 9, 9)).shape
    torch.Size([5, 4, 4, 4])
    """

    DIGITAL, N_AXES = nn.Conv2d, 2


class AnalogConv3d(_AnalogConv):
    """A convolution of three axes with its weights in tiles, as ``torch.nn.Conv3d``.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, dilation, groups, bias, padding_mode : as of ``torch.nn.Conv3d``
        groups has to be 1.
    cell, seed, device : as of `AnalogLinear`

    Raises
    ------
    ParameterError, DeviceError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogConv3d(1, 2, 3, cell=rk.SoftBounds(), seed=7)
    >>> layer(torch.ones(1, 1, 5, 5, 5)).shape
    torch.Size([1, 2, 3, 3, 3])
    """

    DIGITAL, N_AXES = nn.Conv3d, 3
