"""Layers with their weights in tiles: what all share, and `AnalogLinear`."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

import numpy as np

from rpukit.errors import FormatError, ParameterError, ShapeError
from rpukit.inference.grid.array import TileArray
from rpukit.random import Stream
from rpukit.torch._torch import torch
from rpukit.torch.bridge import array_of, on_device, tensor_of
from rpukit.torch.function import analog_linear
from rpukit.torch.layers.compiled import compiled_linear, new_handle
from rpukit.torch.settings import AnalogSettings, settings_of
from rpukit.torch.weight import AnalogWeight

__all__ = ["AnalogLayer", "AnalogLinear"]

Tensor = Any
nn = torch.nn


class AnalogLayer(torch.nn.Module):  # type: ignore[misc]
    """Base class of layers whose weights are one matrix in tiles.

    Attributes
    ----------
    analog_weight : AnalogWeight
        The tiles, as a parameter.
    bias : Parameter or None
        A digital bias.
    output_scale : Parameter or None
        Learned factors of the outputs.
    settings : AnalogSettings
    kind : torch.dtype
        Type of the computations of the tiles.
    handle : int
        Number by which graphs of ``torch.compile`` find the layer.
    token : Tensor
        What calls in such graphs are declared to change.
    """

    DIGITAL: ClassVar[Any] = None

    analog_weight: AnalogWeight
    settings: AnalogSettings
    kind: Any
    handle: int
    token: Tensor

    def _register(self) -> None:
        """Become known to graphs of ``torch.compile``, as a layer of its own."""
        self.kind = getattr(torch, self.settings.dtype)
        self.handle, self.token = new_handle(self), torch.zeros(1, dtype=torch.int64)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._register()

    def _adopt(self, module: Any, cell: Any, seed: Any) -> None:
        """Take over the weights of a digital module, and where it is."""
        self.settings = settings_of(cell)
        self._register()
        weight, bias = module.weight.detach(), module.bias
        shape = (weight.shape[0], weight[0].numel())
        stream = int(torch.randint(2**62, ())) if seed is None else seed
        where = weight.device if weight.is_cuda else torch.device("cpu")
        name = f"gpu:{where.index or 0}" if weight.is_cuda else "cpu"
        with on_device(weight):  # cells are drawn where they are used, with the same bits
            array = self.settings.array(shape, bias is not None, stream, device=name)
        self.analog_weight = AnalogWeight(array)
        kind = self.kind
        digital = bias is not None and array.bias_kind == "none"
        start = torch.zeros(shape[0], dtype=kind, device=where) if digital else None
        self.register_parameter("bias", None if start is None else nn.Parameter(start))
        self.register_parameter("output_scale", self._learned_scale(kind, where))
        self.set_weights(weight, None if bias is None else bias.detach())
        self.train(module.training)
        self.to(weight.device)

    def _learned_scale(self, kind: Any, where: Any) -> Any:
        scale = self.settings.output_scale
        if scale is None or not scale.learned:
            return None
        n = self.array.shape[0] if scale.per == "column" else 1
        return nn.Parameter(torch.full((n,), scale.value, dtype=kind, device=where))

    # ---- weights ------------------------------------------------------------------------------

    @property
    def array(self) -> TileArray:
        """The tiles of the layer."""
        return self.analog_weight.array

    def get_weights(self) -> Tensor:
        """Read the weights that the products see now, factors of the outputs included.

        Returns
        -------
        Tensor, shape of the weights of the digital layer
            A copy.
        """
        with on_device(self.analog_weight), torch.no_grad():
            weight = tensor_of(self.array.get_weights(), None)
            scale = self.output_scale
            weight = weight if scale is None else weight * scale[:, None]
        return weight.reshape(self._weight_shape())

    def get_bias(self) -> Tensor | None:
        """Read the bias, digital or analog.

        Returns
        -------
        Tensor, shape (n_out,), or None
            A copy.
        """
        if self.bias is not None:
            return self.bias.detach().clone()
        with on_device(self.analog_weight), torch.no_grad():
            found = self.array.get_bias()
            if found is None:
                return None
            bias = tensor_of(found, None)
            return bias if self.output_scale is None else bias * self.output_scale

    def set_weights(self, weight: Tensor, bias: Tensor | None = None) -> Self:
        """Set the weights, and the bias if it is given, in place.

        Parameters
        ----------
        weight : Tensor, shape of the weights of the digital layer
        bias : Tensor, shape (n_out,), optional

        Returns
        -------
        AnalogLayer
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError, ParameterError
        """
        place = {"device": self.analog_weight.device, "dtype": getattr(torch, self.settings.dtype)}
        shape = self.array.shape
        if weight.numel() != shape[0] * shape[1]:
            raise ShapeError(f"weight: got shape {tuple(weight.shape)}, need {shape}")
        flat = weight.detach().reshape(shape).to(**place)
        last = None if bias is None else bias.detach().to(**place)
        with on_device(self.analog_weight), torch.no_grad():
            if self.output_scale is not None:
                flat, last = self._fit_scale(flat, last)
            in_tiles = last if self.bias is None else None
            cells = None if in_tiles is None else array_of(in_tiles)
            self.array.set_weights(array_of(flat), cells)
            if self.bias is not None and bias is not None:
                self.bias.copy_(bias)
        return self

    def _fit_scale(self, flat: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Choose learned factors for new weights, and divide the weights by them."""
        given: Any = self.settings.output_scale
        n_out = flat.shape[0]
        now = array_of(self.output_scale.expand(n_out).contiguous())
        scale = tensor_of(given.fitted(array_of(flat), now), None)
        self.output_scale.copy_(scale[: self.output_scale.numel()])
        flat = (flat / scale[:, None]).contiguous()
        return flat, last if last is None or self.bias is not None else last / scale

    def _weight_shape(self) -> tuple[int, ...]:
        return self.array.shape

    # ---- what PyTorch asks of a module ----------------------------------------------------------

    def product(self, x: Tensor) -> Tensor:
        """Multiply samples by the weights of the layer.

        Parameters
        ----------
        x : Tensor, shape (..., n_in)

        Returns
        -------
        Tensor, shape (..., n_out)
        """
        if torch.compiler.is_compiling():
            return compiled_linear(x, self)
        return analog_linear(x, self.analog_weight, self.bias, self.output_scale)

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation.

        In evaluation, inference tiles use their weights without the modifier.

        Parameters
        ----------
        mode : bool

        Returns
        -------
        AnalogLayer
            Itself.
        """
        before = self.training
        super().train(mode)
        array = self.array
        if array._exact and array.tiles[0][0].modifier.is_on:
            state = array.tiles[0][0]._now["mode"]
            with on_device(self.analog_weight):
                if not mode and state == "modified":
                    array.unprogram()
                elif mode and not before and state == "digital":
                    array.post_step()
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        place = fn(self.analog_weight.detach()).device
        if place.type not in ("cpu", "cuda"):
            raise ParameterError(f"device: got {place}, analog layers are on the CPU or a GPU")
        held = on_device(self.analog_weight)
        super()._apply(fn, recurse)
        kind = self.analog_weight.kind
        for parameter in (self.bias, self.output_scale):  # the type of the tiles stays
            if parameter is not None and parameter.dtype is not kind:
                parameter.data = parameter.data.to(kind)
        name = "cpu" if place.type == "cpu" else f"gpu:{place.index or 0}"
        with held:
            if self.array.device != name:
                self.analog_weight.array = self.array.to(name)
                self.analog_weight.samples.clear()
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the tiles, for ``state_dict``: plain data and tensors on the CPU."""
        with on_device(self.analog_weight):
            state = self.array.state()
        arrays = {name: torch.from_numpy(np.array(a)) for name, a in state["arrays"].items()}
        return {"header": json.dumps(state["header"]), "arrays": arrays}

    def set_extra_state(self, state: Any) -> None:
        """Take over the state of the tiles, from ``load_state_dict``.

        Parameters
        ----------
        state : dict

        Raises
        ------
        FormatError
        """
        try:
            header = json.loads(state["header"])
            arrays = {name: a.cpu().numpy() for name, a in state["arrays"].items()}
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise FormatError(f"state of an analog layer: {error!r}") from error
        found = TileArray.from_state({"header": header, "arrays": arrays}, self.array.device)
        if (found.shape, found.bias_kind) != (self.array.shape, self.array.bias_kind):
            raise FormatError(
                f"state: got tiles of shape {found.shape} with bias {found.bias_kind!r}, need "
                f"{self.array.shape} with {self.array.bias_kind!r}"
            )
        self.analog_weight.array = found
        self.analog_weight.samples.clear()

    def _replicate_for_data_parallel(self) -> Any:
        raise ParameterError(
            "DataParallel: replicas of a layer would each have the same tiles and write to them "
            "at the same time; use one process a GPU, each with a model of its own"
        )

    @classmethod
    def from_digital(cls, module: Any, cell: Any, *, seed: int | Stream | None = None) -> Self:
        """Make an analog layer with the weights and settings of a digital one.

        Parameters
        ----------
        module : Module
            Of the class that this layer replaces.
        cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
        seed : int or Stream, optional
            Default: drawn from PyTorch's generator.

        Returns
        -------
        AnalogLayer
            On the device of the module.

        Raises
        ------
        ParameterError
        """
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._take(module)
        layer._adopt(module, cell, seed)
        return layer

    def _take(self, module: Any) -> None:
        """Take over the settings of a digital module."""
        raise NotImplementedError  # pragma: no cover


class AnalogLinear(AnalogLayer):
    """A linear layer with its weights in tiles: the analog form of ``torch.nn.Linear``.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
        What sits at each cross-point; `AnalogSettings` say more.
    seed : int or Stream, optional
        Source of all randomness of the tiles; default: drawn from PyTorch's generator, so that
        ``torch.manual_seed`` fixes it.
    device : torch.device or str, optional

    Raises
    ------
    ParameterError, DeviceError

    Notes
    -----
    The weights start as those of ``torch.nn.Linear``, drawn on the CPU, clipped to the bounds of
    the cells. Inputs may have any leading axes, strides and floating-point type.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogLinear(4, 3, cell=rk.SoftBounds(), seed=7)
    >>> x = torch.ones(5, 2, 4, requires_grad=True)
    >>> layer(x).sum().backward()
    >>> x.grad.shape
    torch.Size([5, 2, 4])
    """

    DIGITAL = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        cell: Any,
        seed: int | Stream | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        module = nn.Linear(in_features, out_features, bias)
        self._take(module)
        self._adopt(module, cell, seed)
        self.to(device or "cpu")

    def _take(self, module: Any) -> None:
        self.in_features, self.out_features = module.in_features, module.out_features

    def forward(self, x: Tensor) -> Tensor:
        """Multiply samples by the weights, and add the bias.

        Parameters
        ----------
        x : Tensor, shape (..., in_features)

        Returns
        -------
        Tensor, shape (..., out_features)
        """
        if torch.compiler.is_compiling():
            return compiled_linear(x, self)
        return analog_linear(x, self.analog_weight, self.bias, self.output_scale)

    def extra_repr(self) -> str:
        """Describe the layer in the printed model."""
        n_row, n_column = self.array.grid
        more = f", bias={self.get_bias() is not None}, tiles={n_row}x{n_column}"
        return f"in_features={self.in_features}, out_features={self.out_features}{more}"

    def to_digital(self) -> Any:
        """Make the digital layer with the weights that the products see now.

        Returns
        -------
        torch.nn.Linear
        """
        bias = self.get_bias()
        module = nn.Linear(self.in_features, self.out_features, bias is not None)
        return fill(module, self, bias)


def fill(module: Any, layer: Any, bias: Tensor | None) -> Any:
    """Write the weights of an analog layer to a digital module."""
    weight = layer.get_weights()
    module.to(device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        module.weight.copy_(weight)
        if bias is not None:
            module.bias.copy_(bias)
    return module.train(layer.training)
