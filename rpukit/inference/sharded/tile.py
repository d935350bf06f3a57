"""`ShardedInferenceTile`: an inference tile on several devices, with the bits of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import check_shape
from rpukit._device import Device
from rpukit._files.schema import as_format_error, check_arrays
from rpukit._kernels.calls import changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.sharded.blocks import HomeGuard, OtherGuard
from rpukit.analog.sharded.checks import layout_of, periphery
from rpukit.analog.sharded.face import SplitFace
from rpukit.analog.sharded.products import Layout, multiply
from rpukit.analog.tile.state import decode
from rpukit.analog.update.ops import rank_update
from rpukit.errors import ParameterError
from rpukit.gemm.split.pieces import at, on
from rpukit.inference.conductance.ops import Part
from rpukit.inference.conductance.records import Split
from rpukit.inference.tile.hardware import Piece
from rpukit.inference.tile.tile import InferenceTile
from rpukit.inference.training.limits import ClipType, RemapType
from rpukit.random import Stream

__all__ = ["ShardedInferenceTile"]

Array = Any
UNITS = (4, 4)  # neighbouring cells that share draws
_WAYS = ("forward", "backward")
CELLS = ("target", "weight", "conductance", "nu")  # arrays of the size of the tile


def _layout_of(
    shape: tuple[int, int],
    devices: Sequence[str | Device],
    split: str,
    cuts: Sequence[int] | None,
) -> Layout:
    layout = layout_of(shape, devices, split, cuts, UNITS)
    if layout.axis and shape[1] % UNITS[1]:
        raise ParameterError(
            f"split: got {shape[1]} inputs, need a multiple of {UNITS[1]} to split them: use "
            'split="outputs"'
        )
    return layout


@enters_device()
class ShardedInferenceTile(SplitFace, InferenceTile):
    """An `InferenceTile` whose rows (outputs) or columns (inputs) are split over several devices.

    Everything that it gives has the bits of the tile on one device, for any number of devices
    and any cuts.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
    devices : sequence of str
        Different GPUs, for example ``("gpu:0", "gpu:1")``; "cpu" may be repeated. Inputs and
        results are on the first one.
    split : {"outputs", "inputs"}
        Whether each device has some rows (outputs), or some columns (inputs) of a tile whose
        number of inputs is a multiple of 4.
    cuts : sequence of int, optional
        First row or column of the second device, of the third one, and so on, multiples of 4;
        default: about equal parts.
    **options
        Of `InferenceTile`, but for ``device``; peripheries with ideal wires and without read noise
        (``w_noise``).

    Raises
    ------
    ParameterError, ShapeError, DTypeError, DeviceError

    Notes
    -----
    Programming, drift and reading need no other device; products are those of `ShardedTile`.
    `update` and the digital scales work as on one device, `post_step` where nothing is clipped,
    remapped or modified. Train with these on one device, and split the tile by
    ``ShardedInferenceTile.from_state(tile.state(), devices)``. See docs/several_gpus.md.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> w = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 12)
    >>> one = rk.InferenceTile((8, 12), seed=7).set_weights(w)
    >>> places = ("cpu", "cpu")  # or ("gpu:0", "gpu:1")
    >>> two = rk.ShardedInferenceTile((8, 12), places, split="inputs", seed=7).set_weights(w)
    >>> x = np.ones((2, 12), np.float32)
    >>> y = [tile.program().drift_to(3600.0).forward(x) for tile in (one, two)]
    >>> bool((y[0] == y[1]).all())
    True
    """

    WHOLE = InferenceTile

    def __init__(
        self,
        shape: tuple[int, int],
        devices: Sequence[str | Device],
        *,
        split: str = "outputs",
        cuts: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        self._layout = _layout_of(check_shape(shape), devices, split, cuts)
        if "device" in options:
            raise ParameterError(f"device: got {options['device']!r}, need devices only")
        for name in _WAYS:
            periphery(options.get(name), name)
        super().__init__(shape, device=self._layout.devices[0], **options)

    _guard: HomeGuard

    def _made_guard(self) -> Guard:
        return HomeGuard(self._now, self._device, {}, {})

    def _make_cells(self) -> None:
        (n_out, n_in), axis = self.shape, self._layout.axis
        edges, places = self._layout.edges, self._layout.devices
        self._blocks: list[tuple[Piece, Guard]] = []
        self._splits: dict[Device, Split] = {}
        for (start, stop), device in zip(pairwise(edges), places, strict=True):
            guard: Guard = OtherGuard(self._guard, {}, device) if start else self._guard
            shape = (n_out, stop - start) if axis else (stop - start, n_in)
            part = Part(start, stop - start, n_in) if axis else Part(start * n_in)
            arrays = {k: _device.zeros(shape, np.float32, device) for k in CELLS[:2]}
            self._blocks.append((Piece(arrays, device, guard.status, part), guard))

    # ---- properties ---------------------------------------------------------------------------

    @property
    def conductances(self) -> Array:
        """Conductances as they were written, shape (n_plane, n_out, n_in), microsiemens (copy)."""
        self._need_programmed()
        return self._joined("conductance", self._device)

    @property
    def drift_coefficients(self) -> Array | None:
        """Drift coefficient of each device, shape (n_plane, n_out, n_in), or None (a copy)."""
        self._need_programmed()
        here = "nu" in self._blocks[0][0].arrays
        return self._joined("nu", self._device) if here else None

    def __repr__(self) -> str:
        n_out, n_in = self.shape
        at = "" if self.time is None else f", t={self.time:g}"
        name = type(self.noise).__name__
        return f"ShardedInferenceTile(({n_out}, {n_in}), {name}{at}, {self.devices})"

    # ---- cells --------------------------------------------------------------------------------

    def _pieces(self) -> Iterator[Piece]:
        for piece, guard in self._blocks:
            if isinstance(guard, OtherGuard):
                guard.follow()  # do nothing if an earlier call met a bad value
            yield piece

    def _fitted(self, device: Device) -> Split:
        if self._split is None:
            whole = self._joined("target", _device.CPU)
            self._split = self.converter.split(whole, self.w_max, self._device)
        if self._split is not self._splits.get(self._device):
            self._splits = {self._device: self._split}
        if device not in self._splits:
            values = {f.name: getattr(self._split, f.name) for f in fields(self._split)}
            self._splits[device] = replace(
                self._split,
                **{
                    k: None if a is None else _device.to_device(a, device)
                    for k, a in values.items()
                },
            )
        return self._splits[device]

    def _place(self, number: int, n_axis: int = 2) -> tuple[slice, ...]:
        """Where the rows or columns of a block are, in an array (..., n_out, n_in)."""
        edges, places = self._layout.edges, [slice(None)] * n_axis
        places[n_axis - 2 + self._layout.axis] = slice(edges[number], edges[number + 1])
        return tuple(places)

    def _joined(self, name: str, device: Device) -> Array:
        """Join an array of all blocks on a device, shape (..., n_out, n_in)."""
        parts = [piece.arrays[name] for piece, _ in self._blocks]
        ahead = parts[0].shape[:-2] if name in CELLS[:2] else (parts[0].shape[0],)
        out = _device.empty((*ahead, *self.shape), np.float32, device)
        for number, part in enumerate(parts):
            block = self._blocks[number][0].arrays["target"].shape
            with _device.using(device):
                here = _device.device_of(part) == device
                whole = part if here else _device.to_device(part, device)
                out[self._place(number, out.ndim)] = whole.reshape(*ahead, *block)
        return out

    def _store(self, array: Array) -> None:
        for number, piece in enumerate(self._pieces()):
            part = _device.to_device(array[self._place(number)], piece.device)
            with _device.using(piece.device):
                piece.arrays["target"][...] = part

    @property
    def _seen(self) -> list[Array]:
        self._catch_up()
        name = "target" if self._now["mode"] == "digital" else "weight"
        return [piece.arrays[name] for piece, _ in self._blocks]

    def _seen_whole(self) -> Array:
        self._catch_up()
        return self._joined("target" if self._now["mode"] == "digital" else "weight", self._device)

    def _multiply(
        self,
        weight: Any,
        x: Array,
        io: IOParameters,
        state: ForwardState,
        *,
        stream: Stream,
        first_sample: int,
        call: int,
        transposed: bool = False,
    ) -> Array:
        at: Any = {"first_sample": first_sample, "call": call, "transposed": transposed}
        at |= {"stream": stream, "status": self._guard.status}
        return multiply(self._layout, weight, x, io, state, **at)

    # ---- learning -----------------------------------------------------------------------------

    def _add_rank(self, x: Array, d: Array, lr: float) -> None:
        edges, axis = self._layout.edges, self._layout.axis
        for number, piece in enumerate(self._pieces()):
            part = (edges[number], edges[number + 1], piece.device)
            of_x = at(x, *part) if axis else on(x, piece.device)
            of_d = on(d, piece.device) if axis else at(d, *part)
            with _device.using(piece.device):
                rank_update(piece.arrays["target"], of_x, of_d, lr, status=piece.status)

    @changes
    def post_step(self) -> Self:
        """Return to the digital weights, where a step neither clips, remaps nor modifies them.

        Returns
        -------
        ShardedInferenceTile
            Itself.

        Raises
        ------
        ParameterError
            If the tile has a `weight_clip`, `weight_remap` or `modifier`.
        """
        kinds = self.weight_clip.type, self.weight_remap.type
        if kinds != (ClipType.NONE, RemapType.NONE) or self.modifier.is_on:
            raise ParameterError(
                "post_step: clipping, remapping and modifying weights needs all of them on one "
                "device: use .to(device) for training"
            )
        self._call_state.changing()
        self._leave("digital")
        self._settle()
        return self

    # ---- state --------------------------------------------------------------------------------

    def _whole_arrays(self) -> dict[str, Array]:
        held = [name for name in CELLS if name in self._blocks[0][0].arrays]
        cells = {name: self._joined(name, _device.CPU) for name in held}
        for name in set(held) - set(CELLS[:2]):
            cells[name] = cells[name].reshape(len(cells[name]), -1)
        return {**cells, **self._arrays}

    @classmethod
    def from_state(  # type: ignore[override]
        cls,
        state: dict[str, Any],
        devices: Sequence[str | Device],
        *,
        split: str = "outputs",
        cuts: Sequence[int] | None = None,
    ) -> Self:
        """Build a tile from a state of an `InferenceTile`, split or not.

        Parameters
        ----------
        state : dict
            As `InferenceTile.state` returns it.
        devices : sequence of str
        split : {"outputs", "inputs"}
        cuts : sequence of int, optional
            See `ShardedInferenceTile`.

        Returns
        -------
        ShardedInferenceTile

        Raises
        ------
        FormatError, ParameterError, DeviceError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.InferenceTile((8, 3), seed=1)
        >>> two = rk.ShardedInferenceTile.from_state(tile.state(), ("cpu", "cpu"))
        >>> np.array_equal(two.get_weights(), tile.get_weights())
        True
        """
        header = cls._check_state(state)
        _layout_of(tuple(header["shape"]), devices, split, cuts)
        with as_format_error("header"):
            ios = {way: header[way] and decode(header[way], IOParameters) for way in _WAYS}
        for way, io in ios.items():
            periphery(io, way)
        if header["now"]["mode"] == "modified":
            raise ParameterError(
                "state: its weights are modified for training: call program or unprogram before "
                "the tile is split"
            )
        return cls._of_state(state, devices=devices, split=split, cuts=cuts)

    def _fill(self, arrays: dict[str, Any]) -> None:
        with _device.using(self._device):
            self._fill_all(arrays)

    def _fill_all(self, arrays: dict[str, Any]) -> None:
        n_plane = self.converter.n_plane
        for piece, _ in self._blocks:
            shape = (n_plane, piece.arrays["target"].size)
            for name in set(CELLS[2:]) & arrays.keys():
                piece.arrays[name] = _device.zeros(shape, np.float32, piece.device)
        if "baseline" in arrays:
            shape = np.shape(arrays["baseline"])
            self._arrays["baseline"] = _device.zeros(shape, np.float64, self._device)
        targets = self._all_arrays()
        check_arrays({name: np.asarray(array) for name, array in arrays.items()}, targets)
        for number, (piece, _) in enumerate(self._blocks):
            for name, target in piece.arrays.items():
                whole = np.asarray(arrays[name]).reshape(-1, *self.shape)
                part = np.ascontiguousarray(whole[self._place(number, 3)]).reshape(target.shape)
                with _device.using(piece.device):
                    target[...] = _device.to_device(part, piece.device)
        states = [state.arrays().items() for state in self._states.values()]
        own = {f"{way}.{k}": a for way, s in zip(self._states, states, strict=True) for k, a in s}
        for name, target in {**self._arrays, **own}.items():
            target[...] = _device.to_device(arrays[name], self._device)
        self._find_factors()
