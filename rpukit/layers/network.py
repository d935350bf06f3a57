"""`Network`: layers one after another, learning by gradients and pulses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from rpukit import _device
from rpukit._checks import instance, number
from rpukit._device import Device
from rpukit._files.schema import as_format_error
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.costs.counting import count as events_of
from rpukit.costs.events import Counts, renamed
from rpukit.elementwise import softmax_cross_entropy
from rpukit.errors import ParameterError, RpukitError
from rpukit.layers.plain import Layer
from rpukit.layers.state import check_state, layers_of, state_of
from rpukit.layers.weights import TileLayer
from rpukit.summaries import Described, Fact, Summary, count, memory

__all__ = ["Network"]

Array = Any


@enters_device("_describe", "_counts")
class Network(Described):
    """Layers one after another.

    Parameters
    ----------
    layers : sequence of Layer

    Raises
    ------
    ParameterError, DTypeError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> L = rk.layers
    >>> net = L.Network([L.Dense(4, 8, rk.SoftBounds(), seed=1), L.Tanh()])
    >>> net.forward(np.ones((3, 4), np.float32)).shape
    (3, 8)

    ``rk.save("net.npz", net)`` keeps it, and ``rk.load("net.npz")`` goes on to the same bits.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._device, self._call_state = _device.CPU, CallState()
        self.layers = [instance(one, Layer, f"layers[{k}]") for k, one in enumerate(layers)]
        if not self.layers:
            raise ParameterError("layers: need at least one")
        devices = {array.device for array in self.arrays}
        if len(devices) > 1:
            raise ParameterError(f"layers: their tiles are on {sorted(devices)}, need one device")
        if devices:
            self._device = _device.parse_device(devices.pop())

    @property
    def arrays(self) -> list[Any]:
        """The `TileArray` of each layer that has weights."""
        return [layer.array for layer in self._weighted()]

    def _weighted(self) -> Iterator[TileLayer]:
        return (layer for layer in self.layers if isinstance(layer, TileLayer))

    @changes
    def forward(self, x: Array) -> Array:
        """Compute the outputs of a mini-batch, through the periphery of the tiles.

        Parameters
        ----------
        x : array, shape (n_batch, ...)
            On the device of the tiles.

        Returns
        -------
        array, shape (n_batch, ...)

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        for layer in self.layers:
            x = layer.forward(x)
        return x

    @changes
    def backward(self, d: Array, *, needed: bool = False) -> Array | None:
        """Send errors back through the layers, which keep them for `update`.

        Parameters
        ----------
        d : array, shape of the outputs of the last `forward`
        needed : bool
            Whether the gradient by the inputs is needed.

        Returns
        -------
        array, shape of the inputs, or None

        Raises
        ------
        ParameterError, ShapeError, NonFiniteError
            The layers then keep nothing of this call.
        """
        kept = [(layer, layer.n_kept) for layer in self._weighted()]
        try:
            return self._back(d, needed)
        except RpukitError:
            for layer, n in kept:
                layer.forget(n)
            raise

    def _back(self, d: Array, needed: bool) -> Array | None:
        first = next(self._weighted(), None)
        for layer in reversed(self.layers):
            if not isinstance(layer, TileLayer):
                d = layer.backward(d)
                continue
            d = layer.backward(d, needed=needed or layer is not first)
            if d is None:
                break
        return d

    @changes
    def update(self, lr: float) -> Network:
        """Change the weights by the errors since the last update, in place.

        The weight processes of one mini-batch follow (``post_step``).

        Parameters
        ----------
        lr : float

        Returns
        -------
        Network
            Itself.

        Raises
        ------
        ParameterError, NonFiniteError
        """
        rate = number(lr, "lr")
        for k, layer in enumerate(self._weighted()):
            self._call_state.changing()
            try:
                layer.update(rate)
            except RpukitError:
                if k == 0:
                    self._call_state.unchanged()
                raise
            layer.array.post_step()
        return self

    def learn(self, x: Array, labels: Array, lr: float) -> Array:
        """Take one step with a mini-batch, by the cross-entropy of softmax.

        Parameters
        ----------
        x : array, shape (n_batch, ...)
        labels : array, shape (n_batch,), int32
            0 to n_class - 1.
        lr : float
            For the sum over the samples, not for their mean.

        Returns
        -------
        array, shape (n_batch,), float32
            Loss of each sample before the step.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        loss, error = softmax_cross_entropy(self.forward(x), labels)
        self.backward(error)
        self.update(lr)
        return loss

    def accuracy(self, x: Array, labels: Array) -> float:
        """Compute the share of samples whose largest output is that of their label.

        Parameters
        ----------
        x : array, shape (n_batch, ...)
        labels : array, shape (n_batch,), int

        Returns
        -------
        float
        """
        return float((self.forward(x).argmax(axis=1) == labels).mean())

    def state(self) -> dict[str, Any]:
        """Return the layers and the complete state of their tiles as plain data on the CPU.

        Returns
        -------
        dict
            ``header`` and ``arrays``, those of layer k under names that begin with ``k.``.

        Raises
        ------
        ParameterError
            If samples wait for `update`, or a layer is of a class of the user's own.
        NonFiniteError
        """
        return state_of(self.layers)

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str | Device = "cpu") -> Self:
        """Build a network from the result of `state`.

        Parameters
        ----------
        state : dict
        device : str

        Returns
        -------
        Network

        Raises
        ------
        FormatError, DeviceError
        """
        with as_format_error("state"):
            return cls(layers_of(state, device))

    def to(self, device: str) -> Self:
        """Copy the network to a compute device.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.

        Returns
        -------
        Network
            A new network; the same later calls give the same bits on both.

        Raises
        ------
        ParameterError, DeviceError, NonFiniteError
        """
        return type(self).from_state(self.state(), device)

    _check_state = staticmethod(check_state)

    def _counts(self) -> Counts:
        """Count the events of the layers, which work one after another, for `rpukit.costs`."""
        names = [f"layer {k}" for k, one in enumerate(self.layers) if isinstance(one, TileLayer)]
        parts = map(renamed, map(events_of, self.arrays), names)
        return Counts("Network", parts=tuple(parts), together=False)

    def _describe(self) -> Summary:
        arrays = self.arrays
        parts = [array._describe() for array in arrays]
        facts = [Fact(f"layer {k}", repr(one), repr(one)) for k, one in enumerate(self.layers)]
        facts.append(count("weights in tiles", sum(a.shape[0] * a.shape[1] for a in arrays)))
        facts.append(memory(sum(part["memory"] for part in parts)))
        facts.append(count("pulses", sum(array.n_pulses for array in arrays)))
        title = f"Network of {len(self.layers)} layers, {len(arrays)} of them in tiles"
        return Summary("Network", title, tuple(facts))

    def __repr__(self) -> str:
        lines = "".join(f"\n  {layer!r}" for layer in self.layers)
        return f"Network({lines}\n)"
