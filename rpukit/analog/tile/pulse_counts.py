"""Counts of samples and pulses, pulse trains and pulse energy of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import number
from rpukit._kernels.entering import enters_device
from rpukit.analog.arrays.base import WeightArray
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells import Cell
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.update.ops import SLOTS, pulse_trains
from rpukit.errors import ParameterError
from rpukit.random import Stream

Array = Any


@enters_device()
class Accounting:
    """Mixin of `AnalogTile`: counts of samples and pulses, pulse trains and pulse energy."""

    cell: Cell
    stream: Stream
    update_parameters: UpdateParameters
    count_pulses: bool
    _guard: Guard
    _unit: WeightArray
    _clocks: dict[str, Any]
    _skipped: dict[str, int]

    @property
    def samples(self) -> dict[str, int]:
        """Number of samples that each operation has processed: forward, backward, update.

        They differ from `clocks` where a call has named its own ``first_sample``.
        """
        return {name: int(self._clocks[name]) - gap for name, gap in self._skipped.items()}

    def _move(self, clock: str, start: int, n: int) -> None:
        """Set a sample clock behind n samples from a start; the gap before them is no work."""
        if start != self._clocks[clock]:
            self._skipped[clock] += start - self._clocks[clock]
        self._clocks[clock] = start + n

    @property
    def arrays(self) -> tuple[DeviceArray, ...]:
        """Crossbar arrays behind the weights: one, or several for compound cells."""
        raise NotImplementedError  # pragma: no cover

    @property
    def n_pulses(self) -> int:
        """Number of pulses that cells have received; reading it synchronises."""
        return sum(array.n_pulses for array in self.arrays)

    @property
    def update_pulses(self) -> int:
        """Number of pulses that the last `update` sent; reading it synchronises.

        It is summed over the devices of each cell, and includes the transfers that the update
        triggered. It is 0 before the first update of a tile or of a copy.

        Raises
        ------
        ParameterError
            If the tile was made without ``count_pulses=True``.
        """
        if not self.count_pulses:
            raise ParameterError("this tile does not count pulses: make it with count_pulses=True")
        return sum(array.n_pulses_since for array in self.arrays)

    def _mark_update(self) -> None:
        """Start to count the pulses of an update."""
        for array in self.arrays:
            array.mark()

    @property
    def pulse_counts(self) -> Array:
        """Number of pulses that each cell has received, shape (n_out, n_in), int64 (a copy).

        It is summed over the devices of each cell; `arrays` has the counts of each device.

        Raises
        ------
        ParameterError
            If the tile was made without ``count_pulses=True``.
        """
        counts = [array.pulse_counts for array in self.arrays]
        total = counts[0]
        for more in counts[1:]:
            total += more
        return total

    def energy(self, energy_per_pulse: float) -> float:
        """Compute the energy of all pulses so far.

        Parameters
        ----------
        energy_per_pulse : float, at least 0, in any unit of energy

        Returns
        -------
        float
            In the same unit; reading it synchronises.

        Raises
        ------
        ParameterError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.AnalogTile((2, 3), rk.ConstantStep(), seed=1)
        >>> tile.energy(27e-15)
        0.0
        """
        return self.n_pulses * number(energy_per_pulse, "energy_per_pulse", low=0)

    def pulse_trains(
        self, x: Array, d: Array, lr: float, *, first_sample: int | None = None
    ) -> tuple[Array, Array]:
        """Return the pulse trains that `update` would send, without changing the tile.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        d : array_like, shape (..., n_out)
        lr : float, not 0
        first_sample : int, optional
            Position of the first sample on the update clock; default: that of the clock.

        Returns
        -------
        x_train : array, shape (n_batch, n_slot, n_in), int8
        d_train : array, shape (n_batch, n_slot, n_out), int8
            0 where a line does not fire in a slot, else the sign of its value. Cell (i, j) gets a
            pulse in each slot in which both lines fire: down if the signs agree, else up; a
            negative lr reverses the polarity.

        Raises
        ------
        ParameterError
            For implicit pulses, which have no trains, and for cells whose samples make no pulses.
        ShapeError, DTypeError, DeviceError, NonFiniteError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.AnalogTile((2, 3), rk.ConstantStep(), seed=1)
        >>> x_train, d_train = tile.pulse_trains(np.ones(3, "f4"), np.ones(2, "f4"), lr=0.1)
        >>> x_train.shape, d_train.shape
        ((1, 31, 3), (1, 31, 2))
        """
        granularity = getattr(self._unit, "granularity", 0.0)
        if not granularity or self.update_parameters.implicit:
            raise ParameterError("pulse_trains: these cells or this pulse type have no trains")
        checked = self._checked_update(x, d, lr, first_sample)  # type: ignore[attr-defined]
        rows_x, rows_d, rate, start = checked
        if rate == 0:
            raise ParameterError("lr: got 0, which sends no pulses")
        self._unit.check_rate(rate, self.update_parameters)
        trains = pulse_trains(
            rows_x,
            rows_d,
            abs(rate),
            granularity,
            self.update_parameters,
            stream=self.stream,
            first_sample=start,
            status=self._guard.status,
            call=self._guard.begin("x or d"),
        )
        self._guard.check()
        length, _ = self.update_parameters.base_length(abs(rate), granularity)
        return _unpacked(trains.x, length), _unpacked(trains.d, length)


def _unpacked(train: Array, length: int) -> Array:
    """Unpack words (n_batch, n_word, n) into slots (n_batch, length, n) of 0 and the signs."""
    words = _device.to_numpy(train)
    shifts = np.arange(SLOTS, dtype=np.uint32)[None, None, :, None]
    fired = ((words[:, :, None, :] >> shifts) & 1).astype(np.int8)
    negative = np.any(words >> np.uint32(31), axis=1, keepdims=True)
    slots = fired.reshape(len(words), -1, words.shape[2])[:, :length]
    signed = np.where(negative, -slots, slots).astype(np.int8)
    return _device.to_device(signed, _device.device_of(train))
