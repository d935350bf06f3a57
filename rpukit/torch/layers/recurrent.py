"""Recurrent layers with their weights in tiles: `AnalogRNN`, `AnalogLSTM`, `AnalogGRU`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from rpukit.errors import DTypeError, ParameterError, ShapeError
from rpukit.random import Stream
from rpukit.torch._torch import torch
from rpukit.torch.layers.linear import AnalogLinear

__all__ = ["AnalogGRU", "AnalogLSTM", "AnalogRNN"]

Tensor = Any
State = tuple[Tensor, ...]
nn = torch.nn
Packed: Any = torch.nn.utils.rnn.PackedSequence
_SETTINGS = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout")


class _Direction(torch.nn.Module):  # type: ignore[misc]
    """The two matrices of one direction of one layer: of the inputs, and of the hidden state."""

    def __init__(self, ih: AnalogLinear, hh: AnalogLinear) -> None:
        super().__init__()
        self.ih, self.hh = ih, hh


class _AnalogRecurrent(torch.nn.Module):  # type: ignore[misc]
    """Base class of the recurrent layers."""

    DIGITAL: ClassVar[Any] = None
    N_STATES: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        cell: Any,
        seed: int | Stream | None = None,
        device: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        sizes = (input_size, hidden_size, num_layers)
        settings = {"bias": bias, "batch_first": batch_first, "dropout": dropout}
        module = self.DIGITAL(*sizes, **settings, bidirectional=bidirectional, **options)
        self._adopt(module, cell, seed)
        self.to(device or "cpu")

    @classmethod
    def from_digital(cls, module: Any, cell: Any, *, seed: int | Stream | None = None) -> Self:
        """Make an analog layer with the weights and settings of a digital one.

        Parameters
        ----------
        module : Module
            Of the class that this layer replaces, without projections.
        cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
        seed : int or Stream, optional
            Default: drawn from PyTorch's generator.

        Returns
        -------
        Module

        Raises
        ------
        ParameterError
        """
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._adopt(module, cell, seed)
        return layer

    def _adopt(self, module: Any, cell: Any, seed: Any) -> None:
        if module.proj_size:
            raise ParameterError(f"proj_size: got {module.proj_size}, need 0")
        for name in (*_SETTINGS, "bidirectional"):
            setattr(self, name, getattr(module, name))
        self.nonlinearity = getattr(module, "nonlinearity", "tanh")
        stream = Stream.from_seed(int(torch.randint(2**62, ())) if seed is None else seed)
        directions: list[_Direction] = []
        for k in range(self.num_layers):
            for ending in ("", "_reverse")[: 1 + self.bidirectional]:
                pair: list[AnalogLinear] = []
                for part in ("ih", "hh"):
                    weight = getattr(module, f"weight_{part}_l{k}{ending}").detach()
                    linear = nn.Linear(weight.shape[1], weight.shape[0], self.bias)
                    linear.to(weight.device)
                    with torch.no_grad():
                        linear.weight.copy_(weight)
                        if self.bias:
                            linear.bias.copy_(getattr(module, f"bias_{part}_l{k}{ending}"))
                    child = stream.child(2 * len(directions) + len(pair))
                    pair.append(AnalogLinear.from_digital(linear, cell, seed=child))
                directions.append(_Direction(*pair))
        self.directions = nn.ModuleList(directions)
        self.train(module.training)

    def to_digital(self) -> Any:
        """Make the digital layer with the weights that the products see now.

        Returns
        -------
        Module
        """
        settings = {name: getattr(self, name) for name in (*_SETTINGS, "bidirectional")}
        if self.DIGITAL is nn.RNN:
            settings["nonlinearity"] = self.nonlinearity
        module = self.DIGITAL(**settings)
        first = self.directions[0].ih.get_weights()
        module.to(device=first.device, dtype=first.dtype)
        with torch.no_grad():
            for n, direction in enumerate(self.directions):
                k, back = divmod(n, 1 + self.bidirectional)
                for part, linear in (("ih", direction.ih), ("hh", direction.hh)):
                    name = f"{part}_l{k}{'_reverse' if back else ''}"
                    getattr(module, f"weight_{name}").copy_(linear.get_weights())
                    if self.bias:
                        getattr(module, f"bias_{name}").copy_(linear.get_bias())
        return module.train(self.training)

    def forward(self, x: Tensor, states: Any = None) -> tuple[Tensor, Any]:
        """Run over the steps of sequences.

        Parameters
        ----------
        x : Tensor, shape (n_step, n, input_size), or (n, n_step, input_size) with `batch_first`
            Without the axis of n: one sequence. Or a ``PackedSequence`` of sequences of several
            lengths, whose padding is no sample of the tiles.
        states : Tensor or pair of Tensor, shape (n_layer * n_direction, n, hidden_size), optional
            As of the layer of PyTorch; default: zeros.

        Returns
        -------
        output : Tensor, shape of `x` with n_direction * hidden_size at the end
            For a ``PackedSequence``, another one.
        states : Tensor or pair of Tensor
            After the last step of each sequence.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        if isinstance(x, Packed):
            return self._packed(x, states)
        if not isinstance(x, torch.Tensor):
            raise DTypeError(f"x: got {type(x).__name__}, need a Tensor or a PackedSequence")
        if x.dim() not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(f"x: got shape {tuple(x.shape)}, need (..., {self.input_size})")
        single = x.dim() == 2
        h = x.unsqueeze(0) if single else x if self.batch_first else x.transpose(0, 1)
        h, found = self._layers(h, self._states(states, h.shape[0], h, single), self._run)
        if single:
            h, found = h.squeeze(0), tuple(state.squeeze(1) for state in found)
        elif not self.batch_first:
            h = h.transpose(0, 1)
        return h, found if self.N_STATES > 1 else found[0]

    def _packed(self, x: Any, states: Any) -> tuple[Any, Any]:
        """Run over sequences of several lengths, the longest first."""
        data, sizes = x.data, x.batch_sizes.tolist()
        if data.shape[-1] != self.input_size:
            raise ShapeError(f"x: got {data.shape[-1]} inputs, need {self.input_size}")
        given = self._states(states, sizes[0], data, False)
        if x.sorted_indices is not None:
            given = tuple(state.index_select(1, x.sorted_indices) for state in given)

        def run(direction: Any, h: Tensor, state: State, back: bool) -> tuple[Tensor, State]:
            return self._run_packed(direction, h, sizes, state, back)

        h, found = self._layers(data, given, run)
        if x.unsorted_indices is not None:
            found = tuple(state.index_select(1, x.unsorted_indices) for state in found)
        out = Packed(h, x.batch_sizes, x.sorted_indices, x.unsorted_indices)
        return out, found if self.N_STATES > 1 else found[0]

    def _layers(self, h: Tensor, given: State, run: Any) -> tuple[Tensor, State]:
        """Run all layers and directions; `run` takes one of them over its steps."""
        n_way, last = 1 + self.bidirectional, []
        for k in range(self.num_layers):
            outs = []
            for way in range(n_way):
                n = k * n_way + way
                start = tuple(state[n] for state in given)
                out, end = run(self.directions[n], h, start, way == 1)
                outs.append(out)
                last.append(end)
            h = outs[0] if n_way == 1 else torch.cat(outs, dim=-1)
            if self.dropout and k + 1 < self.num_layers:
                h = nn.functional.dropout(h, self.dropout, self.training)
        return h, tuple(torch.stack(parts) for parts in zip(*last, strict=True))

    def _states(self, states: Any, n: int, like: Tensor, single: bool) -> State:
        shape = (len(self.directions), n, self.hidden_size)
        if states is None:
            return (like.new_zeros(shape),) * self.N_STATES
        given = tuple(states) if self.N_STATES > 1 else (states,)
        given = tuple(s.unsqueeze(1) for s in given) if single else given
        for state in given:
            if tuple(state.shape) != shape:
                raise ShapeError(f"states: got shape {tuple(state.shape)}, need {shape}")
        return given

    def _run(self, direction: Any, h: Tensor, state: State, back: bool) -> tuple[Tensor, State]:
        """Run over the steps of (n, n_step, n_in), all inputs in one product."""
        inputs, outs = direction.ih(h), []
        steps = range(h.shape[1])
        for t in reversed(steps) if back else steps:
            state = self._step(inputs[:, t], direction.hh(state[0]), state)
            outs.append(state[0])
        outs = outs[::-1] if back else outs
        return torch.stack(outs, dim=1), state

    def _run_packed(
        self, direction: Any, h: Tensor, sizes: list[int], start: State, back: bool
    ) -> tuple[Tensor, State]:
        """Run over the steps of sequences of which `sizes` are left at each step."""
        inputs = direction.ih(h).split(sizes)
        outs: list[Tensor] = []
        ended: list[State] = []  # of the sequences that are over, the shortest first
        steps = list(enumerate(sizes))
        state = tuple(s[: sizes[-1 if back else 0]] for s in start)
        for t, n in reversed(steps) if back else steps:
            now = len(state[0])
            if n < now:
                ended.append(tuple(s[n:] for s in state))
                state = tuple(s[:n] for s in state)
            elif n > now:  # backwards: the next longest ones begin
                both = zip(state, start, strict=True)
                state = tuple(torch.cat((s, first[now:n])) for s, first in both)
            state = self._step(inputs[t], direction.hh(state[0]), state)
            outs.append(state[0])
        parts = zip(state, *reversed(ended), strict=True)
        return torch.cat(outs[::-1] if back else outs), tuple(torch.cat(p) for p in parts)

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        """Compute the next state from the products of the inputs and of the hidden state."""
        raise NotImplementedError  # pragma: no cover

    def extra_repr(self) -> str:
        """Describe the layer in the printed model."""
        more = ", bidirectional" if self.bidirectional else ""
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}{more}"


class AnalogRNN(_AnalogRecurrent):
    """An Elman network with its weights in tiles, as ``torch.nn.RNN``.

    Parameters
    ----------
    input_size, hidden_size, num_layers : int
    bias, batch_first, dropout, bidirectional : as of ``torch.nn.RNN``
    cell, seed, device : as of `AnalogLinear`
        Each matrix has tiles of its own.
    **options
        ``nonlinearity``, "tanh" or "relu".

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogRNN(3, 4, cell=rk.SoftBounds(), seed=7)
    >>> output, h = layer(torch.ones(6, 2, 3))
    >>> output.shape, h.shape
    (torch.Size([6, 2, 4]), torch.Size([1, 2, 4]))
    """

    DIGITAL = nn.RNN

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        act = torch.tanh if self.nonlinearity == "tanh" else torch.relu
        return (act(x + h),)


class AnalogLSTM(_AnalogRecurrent):
    """Long short-term memory with its weights in tiles, as ``torch.nn.LSTM``.

    Parameters
    ----------
    input_size, hidden_size, num_layers : int
    bias, batch_first, dropout, bidirectional : as of ``torch.nn.LSTM``, without projections
    cell, seed, device : as of `AnalogLinear`
        Each matrix has tiles of its own.
    **options
        Others of ``torch.nn.LSTM``.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogLSTM(3, 4, batch_first=True, cell=rk.SoftBounds(), seed=7)
    >>> output, (h, c) = layer(torch.ones(2, 6, 3))
    >>> output.shape, h.shape, c.shape
    (torch.Size([2, 6, 4]), torch.Size([1, 2, 4]), torch.Size([1, 2, 4]))
    """

    DIGITAL, N_STATES = nn.LSTM, 2

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        i, f, g, o = (x + h).chunk(4, dim=-1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class AnalogGRU(_AnalogRecurrent):
    """Gated recurrent units with their weights in tiles, as ``torch.nn.GRU``.

    Parameters
    ----------
    input_size, hidden_size, num_layers : int
    bias, batch_first, dropout, bidirectional : as of ``torch.nn.GRU``
    cell, seed, device : as of `AnalogLinear`
        Each matrix has tiles of its own.
    **options
        Others of ``torch.nn.GRU``.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogGRU(3, 4, cell=rk.SoftBounds(), seed=7)
    >>> layer(torch.ones(6, 2, 3))[0].shape
    torch.Size([6, 2, 4])
    """

    DIGITAL = nn.GRU

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        (xr, xz, xn), (hr, hz, hn) = x.chunk(3, dim=-1), h.chunk(3, dim=-1)
        z = torch.sigmoid(xz + hz)
        new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        return ((1 - z) * new + z * state[0],)
