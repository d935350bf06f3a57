"""Base of the weight arrays of a tile: one array of devices, or several that act as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.calls import CallState
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.errors import ParameterError
from rpukit.random import MAX_SAMPLE, Stream

Array = Any
_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_NO_EVENTS = ("forward", "backward", "update", "drift_time")  # sample clocks, and a time
_MOST_EVENTS = 4  # of a sample, for each line of the tile
_LATE = 1 << 31  # no clock that is earlier is near its end


@dataclass(frozen=True, slots=True)
class ArrayContext:
    """State that the arrays of a tile share, with the stream and name prefix of one array.

    Attributes
    ----------
    shape : tuple of int, (n_out, n_in)
    stream : Stream
        Source of the draws of this array.
    device : Device
    guard : Guard
    clocks : dict
        The clocks of the tile, by name.
    registers : dict
        Small arrays on the host, by name; calls replace them and never change them in place.
    prefix : str
        Prefix of the names of this array's clocks and states, for example "", "0." or "1.0.".
    count_pulses : bool
        Whether the pulses of each cell are counted.
    dtype : dtype
        Type of all floating-point arrays: float32 or float64.
    procedural : bool
        Whether the parameters of pulsed cells are drawn when needed instead of stored.
    first_row : int
        Number of row 0 in the tile, if these are some rows of a tile that is split.
    tile_rows : int
        Number of rows of such a tile; 0: these are all rows.
    first_col, tile_cols : int
        Likewise of columns.
    """

    shape: tuple[int, int]
    stream: Stream
    device: _device.Device
    guard: Guard
    clocks: dict[str, Any]
    registers: dict[str, Any]
    prefix: str = ""
    count_pulses: bool = False
    dtype: np.dtype[Any] = _FLOAT32
    procedural: bool = False
    first_row: int = 0
    tile_rows: int = 0
    first_col: int = 0
    tile_cols: int = 0

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Shape of the whole tile."""
        return self.tile_rows or self.shape[0], self.tile_cols or self.shape[1]

    @property
    def spans(self) -> dict[str, Any]:
        """First row and the one after the last, and likewise of columns, in the whole tile."""
        first = (self.first_row, self.first_col)
        ends = [(k, k + n) for k, n in zip(first, self.shape, strict=True)]
        return dict(zip(("rows", "columns"), ends, strict=True))

    @property
    def first_cell(self) -> int:
        """Number of the first cell in the whole tile."""
        return self.first_row * self.tile_shape[1] + self.first_col

    def rows_of(self, d: Array) -> Array:
        """Return the columns of d that belong to these rows."""
        if not self.tile_rows:
            return d
        part = d[:, self.first_row : self.first_row + self.shape[0]]
        return _device.namespace(part).ascontiguousarray(part)

    def columns_of(self, x: Array) -> Array:
        """Return the columns of x that belong to these columns."""
        if not self.tile_cols:
            return x
        part = x[:, self.first_col : self.first_col + self.shape[1]]
        return _device.namespace(part).ascontiguousarray(part)

    def runs_of(self, first_col: int, n_col: int) -> list[tuple[int, int]]:
        """Return the runs of these columns, first and number, that are some of the tile's.

        Columns of the tile are counted modulo their number.
        """
        n_tile, width = self.tile_shape[1], self.shape[1]
        if not self.tile_cols:
            return [(first_col, n_col)]
        first = first_col % n_tile - self.first_col
        ends = [(start, min(start + n_col, width)) for start in (first, first - n_tile)]
        return [
            (max(start, 0), stop - max(start, 0)) for start, stop in ends if stop > max(start, 0)
        ]

    def child(self, index: int) -> ArrayContext:
        """Return the context of device number ``index`` of a compound cell."""
        stream = self.stream.child(index)
        return replace(self, stream=stream, prefix=f"{self.prefix}{index}.")

    def start(self, *names: str) -> None:
        """Add clocks at 0."""
        self.clocks.update({self.prefix + name: 0 for name in names})

    def tick(self, name: str, n: int = 1) -> int:
        """Advance a clock by n; return its previous position."""
        event = int(self.clocks[self.prefix + name])
        if event + n > MAX_SAMPLE:
            raise _at_its_end(self.prefix + name, event)
        self.clocks[self.prefix + name] = event + n
        return event

    def changing(self) -> None:
        """Mark the tile, before the first change of a call in place."""
        self.guard.call_state.changing()

    def check_room(self, n: int = 1) -> None:
        """Raise if a call with n samples could pass the end of an event clock of the tile.

        It is asked before anything changes, so it allows for the most events that a sample causes.
        """
        if max(self.clocks.values()) < _LATE:
            return
        n_out, n_in = self.shape
        for name, at in self.clocks.items():
            kind = name.split(".")[-1]
            if kind in _NO_EVENTS:
                continue
            reads = n_in if kind == "refresh" else 1  # samples of the products that an event makes
            if (at + _MOST_EVENTS * n * max(n_out, n_in)) * reads > MAX_SAMPLE:
                raise _at_its_end(name, at)

    def put(self, array: Any) -> Array:
        return _device.to_device(array, self.device)


class WeightArray(ABC):
    """Interface of an array of weights that learns.

    Attributes
    ----------
    context : ArrayContext
    weight : array, shape (n_out, n_in), dtype of the context
        The visible weight.
    """

    context: ArrayContext
    weight: Array

    @property
    def _device(self) -> _device.Device:
        return self.context.device

    @property
    def _call_state(self) -> CallState:
        return self.context.guard.call_state

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """Return all state by name, without the context's prefix."""

    @property
    @abstractmethod
    def cells(self) -> Mapping[str, Array]:
        """Per-cell parameters by name (views)."""

    @abstractmethod
    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        """Raise if a learning rate is not possible, before anything changes."""

    @abstractmethod
    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        """Learn from a batch of checked arrays, samples in order; lr is not 0.

        ``batch_size`` is the size of the mini-batch that the samples belong to, for models that
        count in mini-batches.
        """

    @abstractmethod
    def store(self, array: Array) -> None:
        """Set the visible weight, as well as the devices allow, to a checked array."""

    @abstractmethod
    def settle(self) -> None:
        """Bring the weights into the bounds of cells that have just been replaced."""

    @abstractmethod
    def decay(self, alpha: float) -> None: ...

    @abstractmethod
    def diffuse(self) -> None: ...

    @abstractmethod
    def drift(self, dt: float) -> None: ...

    @abstractmethod
    def reset(self, first_col: int, n_col: int, prob: float) -> None: ...


def _at_its_end(name: str, at: int) -> ParameterError:
    return ParameterError(
        f"{name}: the clock of these events is at {at}, and ends at 2**48: continue with another "
        "tile"
    )
