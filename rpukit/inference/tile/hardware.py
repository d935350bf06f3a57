"""Programming, drift, reading and compensation of an inference tile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import integer
from rpukit._device import Device
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.product.ops import ForwardState, tile_forward
from rpukit.errors import ParameterError
from rpukit.inference.conductance.converters import Converter
from rpukit.inference.conductance.curves import pack
from rpukit.inference.conductance.ops import WHOLE, Part, drift_conductance
from rpukit.inference.conductance.records import Moment, Split, Stuck
from rpukit.inference.noise.model import NoiseModel, packed, read_noise, sample_of, write
from rpukit.inference.tile.compensation import PERFECT, DriftCompensation, readout
from rpukit.inference.training.modifiers import WeightModifier
from rpukit.random import MAX_SAMPLE, Stream

Array = Any
_OTHER = MAX_SAMPLE - 1  # child of the stream that modifiers draw from
TALLIES = ("n_forward", "n_backward", "n_program", "n_readout")  # what has been done, not clocks
AS_WRITTEN = -1  # instead of a reading's number: nothing has been read yet


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Cells of a tile on one device: all of them, unless the tile is split.

    Attributes
    ----------
    arrays : dict
        target, weight, and once they are programmed conductance and nu.
    device : Device
    status : array, shape (1,), int32
    part : Part
        Which cells of the tile these are.
    """

    arrays: dict[str, Array]
    device: Device
    status: Array
    part: Part = WHOLE


@enters_device()
class Hardware(ABC):
    """Part of `InferenceTile`: programming, drift, reading and drift compensation."""

    shape: tuple[int, int]
    noise: NoiseModel
    converter: Converter
    compensation: DriftCompensation
    modifier: WeightModifier
    w_max: float | None
    stream: Stream
    _arrays: dict[str, Array]
    _now: dict[str, Any]
    _device: _device.Device
    _guard: Guard
    _call_state: CallState
    _split: Split | None
    _curves: dict[Any, Array]

    @property
    def time(self) -> float | None:
        """Seconds since programming; None before it."""
        return self._now["time"] if self._now["mode"] == "programmed" else None

    @property
    def conductances(self) -> Array:
        """Conductances as they were written, shape (n_plane, n_out, n_in), microsiemens (view)."""
        self._need_programmed()
        return self._arrays["conductance"].reshape(-1, *self.shape)

    @property
    def drift_coefficients(self) -> Array | None:
        """Drift coefficient of each device, shape (n_plane, n_out, n_in), or None (view)."""
        self._need_programmed()
        nu = self._arrays.get("nu")
        return None if nu is None else nu.reshape(-1, *self.shape)

    @property
    def alpha(self) -> Array:
        """Factor of drift compensation of each output, shape (n_out,), float32 (a copy)."""
        return self._arrays["alpha"].copy()

    @changes
    def program(self, *, event: int | None = None) -> Self:
        """Write the weights into the cells, in place.

        Parameters
        ----------
        event : int, optional
            Number of the programming, which identifies its draws; default: the next one.

        Returns
        -------
        InferenceTile
            The tile itself at time 0, with its conductances as written.

        Raises
        ------
        ParameterError, NonFiniteError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.InferenceTile((2, 3), seed=7).set_weights(np.ones((2, 3), np.float32))
        >>> once = np.asarray(tile.program(event=0))
        >>> bool((np.asarray(tile.program(event=0)) == once).all())
        True
        """
        event = self._now["program"] if event is None else event
        event = integer(event, "event", low=0, high=_OTHER - 1, what="number of a programming")
        self._call_state.changing()
        self._write(int(event), self.stream)
        self._now["program"] = int(event) + 1
        self._now["n_program"] += 1
        self._now["event"], self._now["mode"] = int(event), "programmed"
        self._now["time"], self._now["number"] = 0.0, AS_WRITTEN
        self._now["late"] = True  # the weights are computed on the first request
        self._measure_baseline()
        return self

    @changes
    def drift_to(self, t: float, *, number: int = 0) -> Self:
        """Set the time after programming and read the cells at that time, in place.

        Times may come in any order: each starts from the programmed conductances.

        Parameters
        ----------
        t : float, at least 0, seconds
            Rounded to float32, whose bits identify the draws of the reading.
        number : int, 0 to 65535
            Of several readings at this time.

        Returns
        -------
        InferenceTile
            Itself.

        Raises
        ------
        ParameterError
        """
        self._need_programmed()
        time = self.noise.check_time(t)
        sample_of(time, number)
        self._call_state.changing()
        self._show(time, int(number))
        self._compensate()
        return self

    @changes
    def read(self, *, number: int | None = None) -> Self:
        """Read the cells again at the present time, with fresh noise, in place.

        Parameters
        ----------
        number : int, 0 to 65535, optional
            Number of the reading at this time; default: the next one.

        Returns
        -------
        InferenceTile
            Itself.

        Raises
        ------
        ParameterError
        """
        self._need_programmed()
        number = self._now["number"] + 1 if number is None else number
        return self.drift_to(self._now["time"], number=number)

    @changes
    def unprogram(self) -> Self:
        """Restore the digital weights, in place.

        Returns
        -------
        InferenceTile
            Itself.
        """
        self._call_state.changing()
        self._leave("digital")
        return self

    # ---- how it is done ------------------------------------------------------------------------

    def _leave(self, mode: str) -> None:
        if self._now["mode"] == "programmed":
            self._set_alpha(None)
        self._now["mode"] = mode

    def _need_programmed(self) -> None:
        if self._now["mode"] != "programmed":
            raise ParameterError("the tile is not programmed: call program() first")

    def _pieces(self) -> Iterator[Piece]:
        """Yield the cells of each device."""
        yield Piece(self._arrays, self._device, self._guard.status)

    def _fitted(self, device: Device) -> Split:
        """Fit the converter to the weights; return its numbers on a device."""
        if self._split is None:
            self._split = self.converter.split(self._arrays["target"], self.w_max)
        return self._split

    def _curve(self, key: Any, values: Any, device: Device) -> Array:
        """Keep packed curves on a device."""
        if (key, device) not in self._curves:
            self._curves[key, device] = _device.to_device(values(), device)
        return self._curves[key, device]

    def _write(self, event: int, stream: Stream, **options: Any) -> None:
        for piece in self._pieces():
            with _device.using(piece.device):
                self._write_piece(piece, event, stream, **options)

    def _write_piece(self, piece: Piece, event: int, stream: Stream, **options: Any) -> None:
        found = piece.arrays.get("conductance")
        conductance, nu = write(
            self.noise,
            piece.arrays["target"],
            self._fitted(piece.device),
            stream=stream,
            event=event,
            status=piece.status,
            curves=self._curve("program", lambda: packed(self.noise), piece.device),
            out=None if found is None else (found, piece.arrays.get("nu")),
            part=piece.part,
            **options,
        )
        piece.arrays["conductance"] = conductance
        if nu is not None:
            piece.arrays["nu"] = nu

    def _show(self, t: float, number: int) -> None:
        """Compute the weights at a time; a negative number means before any reading."""
        still = number == AS_WRITTEN and not self.noise.RESAMPLES
        moment = Moment(limits=self.noise.limits) if still else self.noise.moment(t)
        self._see(moment, t, max(number, 0), self.stream.child(self._now["event"]))
        self._now["time"], self._now["number"], self._now["late"] = t, number, False

    @property
    def _seen(self) -> Any:
        """Weights that the products use now, without digital scales."""
        self._catch_up()
        digital = self._now["mode"] == "digital" or self._each_its_own
        return self._arrays["target" if digital else "weight"]

    @property
    def _each_its_own(self) -> bool:
        """Whether each sample of a product has its own weights."""
        return self._now["mode"] == "modified" and self.modifier.per_batch_sample

    def _catch_up(self) -> None:
        """Compute the weights of the last programming, if not done yet."""
        if self._now["mode"] == "programmed" and self._now["late"]:
            self._show(self._now["time"], self._now["number"])

    def _see(self, moment: Moment, t: float, number: int, stream: Stream) -> None:
        curve = self.noise.reading(t)
        sample = sample_of(t, number)
        for piece in self._pieces():
            values = self._curve(curve, lambda: pack([curve]), piece.device)
            noise, fitted = read_noise(self.noise, curve, values), self._fitted(piece.device)
            with _device.using(piece.device):
                drift_conductance(
                    piece.arrays["conductance"],
                    piece.arrays.get("nu"),
                    moment,
                    fitted,
                    noise,
                    stream=stream,
                    sample=sample,
                    status=piece.status,
                    out=piece.arrays["weight"],
                    part=piece.part,
                )

    def _imitate(self, stream: Stream, event: int, t: float, stuck: Stuck | None) -> None:
        """Write and read the weights for training, with separate draws."""
        time, stream = self.noise.check_time(t), stream.child(_OTHER)
        self._write(event, stream, stuck=stuck)
        self._see(self.noise.moment(time), time, 0, stream.child(event))

    # ---- compensation --------------------------------------------------------------------------

    def _response(self, io: IOParameters) -> Array:
        # The draws of a measurement are identified by what is measured, not by a clock.
        t, number = self._now["time"], self._now["number"]
        sample = sample_of(t, number) if number >= 0 else _OTHER
        self._now["n_readout"] += 1
        seen, call = self._seen, self._guard.begin("unit inputs")
        state = ForwardState(io, self.shape[0], self.stream, self._device)
        draws = self.stream.child(self._now["event"]).child(sample)

        def respond(x: Array) -> Array:
            return self._multiply(seen, x, io, state, stream=draws, first_sample=0, call=call)

        return readout(respond, self.shape, self.compensation, self._device)

    def _measure_baseline(self) -> None:
        if self.compensation is DriftCompensation.NONE:
            return
        exact = self.compensation is DriftCompensation.GLOBAL_EXACT
        io = PERFECT if exact else self._periphery()
        found = self._response(io)
        self._arrays.setdefault("baseline", found)
        self._assign("baseline", found)
        self._set_alpha(None)

    def _compensate(self) -> None:
        if self.compensation is not DriftCompensation.NONE:
            now = self._response(self._periphery())
            self._set_alpha((self._arrays["baseline"] / now).astype(np.float32))

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
        """Multiply samples by weights that `_seen` has given."""
        return tile_forward(
            weight,
            x,
            io,
            stream=stream,
            first_sample=first_sample,
            transposed=transposed,
            state=state,
            status=self._guard.status,
            call=call,
        )

    @abstractmethod
    def _periphery(self) -> IOParameters:
        """Return the periphery of forward products."""

    @abstractmethod
    def _assign(self, name: str, value: Array) -> None:
        """Set an array, unless an error of an earlier call is pending."""

    @abstractmethod
    def _set_alpha(self, alpha: Array | None) -> None:
        """Set the compensation factors; None sets them to 1."""
