"""`AnalogGroupedConv`: a grouped convolution as one matrix in tiles for each group."""

from __future__ import annotations

from typing import Any, Self

from rpukit.errors import ParameterError, ShapeError
from rpukit.random import Stream
from rpukit.torch._torch import torch
from rpukit.torch.layers.convolutions import AnalogConv1d, AnalogConv2d, AnalogConv3d

__all__ = ["AnalogGroupedConv"]

Tensor = Any
nn = torch.nn
_CLASSES = {kind.DIGITAL: kind for kind in (AnalogConv1d, AnalogConv2d, AnalogConv3d)}


class AnalogGroupedConv(torch.nn.Module):  # type: ignore[misc]
    """A grouped convolution with its weights in tiles, made of a digital one.

    Each group is a matrix of its own, with tiles and draws of its own, as on hardware: a crossbar
    cannot leave out the products of other groups. Depthwise convolutions use tiny tiles, so that
    `rpukit.torch.convert` leaves them digital unless `overrides` name them.

    Parameters
    ----------
    module : torch.nn.Conv1d, Conv2d or Conv3d
        With groups.
    cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
    seed : int or Stream, optional
        Group g draws from child g; default: drawn from PyTorch's generator.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> digital = torch.nn.Conv2d(4, 6, 3, groups=2)
    >>> layer = rk.torch.nn.AnalogGroupedConv(digital, rk.SoftBounds(), seed=7)
    >>> layer(torch.ones(5, 4, 8, 8)).shape, len(rk.torch.analog_layers(layer))
    (torch.Size([5, 6, 6, 6]), 2)
    """

    def __init__(self, module: Any, cell: Any, *, seed: int | Stream | None = None) -> None:
        super().__init__()
        if type(module) not in _CLASSES:
            raise ParameterError(f"module: got {type(module).__name__}, need a Conv1d to Conv3d")
        kind = _CLASSES[type(module)]
        self.in_channels, self.groups = module.in_channels, module.groups
        stream = Stream.from_seed(int(torch.randint(2**62, ())) if seed is None else seed)
        parts = enumerate(_split(module))
        self.parts = nn.ModuleList(
            kind.from_digital(part, cell, seed=stream.child(g)) for g, part in parts
        )
        self.train(module.training)

    @classmethod
    def from_digital(cls, module: Any, cell: Any, *, seed: int | Stream | None = None) -> Self:
        """Make a layer, as the class itself does.

        Parameters
        ----------
        module : Module
        cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
        seed : int or Stream, optional

        Returns
        -------
        AnalogGroupedConv
        """
        return cls(module, cell, seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve the channels of each group with its weights.

        Parameters
        ----------
        x : Tensor, shape (n, in_channels, *axes) or (in_channels, *axes)

        Returns
        -------
        Tensor, shape (n, out_channels, *axes) or (out_channels, *axes)

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        axis = x.dim() - 1 - self.parts[0].N_AXES
        if axis not in (0, 1) or x.shape[axis] != self.in_channels:
            raise ShapeError(f"x: got shape {tuple(x.shape)}, need {self.in_channels} channels")
        groups = zip(self.parts, x.chunk(self.groups, dim=axis), strict=True)
        return torch.cat([part(channels) for part, channels in groups], dim=axis)

    def to_digital(self) -> Any:
        """Make the digital layer with the weights that the products see now.

        Returns
        -------
        Module
        """
        parts = [part.to_digital() for part in self.parts]
        first = parts[0]
        settings = {
            name: getattr(first, name)
            for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        }
        sizes = (self.in_channels, self.groups * first.out_channels)
        module = type(first)(*sizes, **settings, groups=self.groups, bias=first.bias is not None)
        module.to(device=first.weight.device, dtype=first.weight.dtype)
        with torch.no_grad():
            module.weight.copy_(torch.cat([part.weight for part in parts]))
            if first.bias is not None:
                module.bias.copy_(torch.cat([part.bias for part in parts]))
        return module.train(self.training)


def _split(module: Any) -> list[Any]:
    """Make a digital convolution of each group."""
    n = module.groups
    names = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    settings = {name: getattr(module, name) for name in names}
    biases = (None,) * n if module.bias is None else module.bias.detach().chunk(n)
    found = []
    for weight, bias in zip(module.weight.detach().chunk(n), biases, strict=True):
        sizes = (module.in_channels // n, module.out_channels // n)
        part = type(module)(*sizes, **settings, bias=bias is not None)
        part.to(weight.device, weight.dtype).train(module.training)
        with torch.no_grad():
            part.weight.copy_(weight)
            if bias is not None:
                part.bias.copy_(bias)
        found.append(part)
    return found
