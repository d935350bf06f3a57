"""Array of single devices: pulsed updates and weight processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.calls import changes, exclusive
from rpukit._kernels.entering import enters
from rpukit.analog.arrays.base import ArrayContext, WeightArray
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.cells.draw import SLOW, Recipe, bounds_of, draw_cells, recipe_of
from rpukit.analog.cells.user_steps import check_step
from rpukit.analog.deferred_errors import check_finite
from rpukit.analog.describe import array_summary
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.processes.ops import (
    Bounds,
    DriftMemory,
    clip_weights,
    decay,
    diffusion,
    drift,
    reset,
    write_noise,
)
from rpukit.analog.update.ops import pulsed_update, rank_update
from rpukit.analog.update.replay import Writer
from rpukit.analog.update.trains import Trains
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.random import Stream
from rpukit.summaries import Described, Summary

Array = Any
SLOW_CELLS = ("decay_scale", "diffusion_rate", "drift_nu", "reset_bias")
MEMORY = ("origin", "previous", "written")  # arrays of `DriftMemory`
CLOCKS = ("diffusion", "drift", "drift_time", "reset", "write_noise")


class DeviceArray(Described, WeightArray):
    """A crossbar of single devices: one array of a tile, reached by `AnalogTile.arrays`.

    Parameters
    ----------
    cell : Cell
        `Ideal` or a pulsed model.
    context : ArrayContext
    weight : array, shape (n_out, n_in), dtype of the context, optional
        Array that stores the visible weight.
    """

    def __init__(self, cell: Cell, context: ArrayContext, weight: Array | None = None) -> None:
        check_step(cell, context.dtype, context.device.kind != "cpu")
        self.cell, self.context = cell, context
        self.on_change: Callable[[], None] = nothing
        self._writer = Writer(context.changing)
        self._marked: Array | None = None
        context.start(*CLOCKS)
        self.granularity = float(getattr(cell, "granularity", 0.0))
        # Drawn in float32 for either type, so that a seed always gives the same cells.
        where = (context.stream, context.tile_shape, context.device, context.dtype)
        self._recipe: Recipe | None = None
        planes: Array | None = None
        slow: dict[str, Array] = {}
        if isinstance(cell, PulsedCell) and context.procedural:
            self._recipe = recipe_of(cell, *where, keep=True, **context.spans)
        else:
            planes, slow = draw_cells(cell, *where, **context.spans)
        arrays: dict[str, np.ndarray] = {}
        if isinstance(cell, PulsedCell):
            arrays["globals"] = cell.globals().astype(context.dtype)
            if cell.write_noise > 0:
                arrays["persistent"] = np.zeros(context.shape, context.dtype)
        if self._drift is not None and self._drift.active:
            for name in MEMORY:
                dtype = np.float64 if name == "written" else context.dtype
                arrays[f"drift_{name}"] = np.zeros(context.shape, dtype)
        arrays["n_pulses"] = np.zeros(1, np.int64)
        if context.count_pulses:
            arrays["pulse_counts"] = np.zeros(context.shape, np.int64)
        self._arrays = {name: context.put(array) for name, array in arrays.items()}
        self._arrays |= slow
        if planes is not None:
            self._arrays["planes"] = planes
        if self._recipe is not None:
            self._arrays["recipe"] = self._recipe.values
        if weight is None:
            weight = _device.zeros(context.shape, context.dtype, context.device)
        self.weight = self._arrays["weight"] = weight
        self.record: CellArray | None = None
        if isinstance(cell, PulsedCell):
            self.record = CellArray(
                cell,
                weight,
                self.planes,
                self._arrays["globals"],
                self._arrays["n_pulses"],
                context.guard.status,
                self.granularity,
                self._arrays.get("persistent"),
                self._arrays.get("pulse_counts"),
                context.first_row,
                context.first_col,
                context.tile_cols,
            )
            if cell.corrupt_devices_prob or not cell.enforce_consistency:
                self.settle()  # otherwise 0 is within all bounds, and no cells need to be drawn

    def _describe(self) -> Summary:
        return array_summary(self)

    @property
    def _drift(self) -> DriftParameters | None:
        return getattr(self.cell, "drift", None)

    @property
    def stored(self) -> Array:
        """Weights that pulses and weight processes act on."""
        return self._arrays.get("persistent", self.weight)

    @property
    def planes(self) -> Array | Recipe:
        """Per-cell parameters of the steps, or the recipe that draws them."""
        return self._recipe or self._arrays["planes"]

    @property
    def stores_cells(self) -> bool:
        """Whether the parameters of the cells are stored; else they are drawn when needed."""
        return self._recipe is None

    def has(self, name: str) -> bool:
        """Whether the cells have a parameter of a weight process."""
        return name in (self._recipe.slow if self._recipe else self._arrays)

    def _strips(self, *names: str) -> Iterator[tuple[int, slice, Bounds, list[Array | None]]]:
        """Yield bounds and parameters of the weight processes, for all cells or strip by strip.

        Yields the number of the first cell, the rows, the bounds (None for ideal cells), and the
        parameters (None for those that the cells do not have).
        """
        start = self.context.first_cell
        if self._recipe is None:
            bounds = next(bounds_of(self.planes))[1] if "planes" in self._arrays else None
            found = self._arrays
            yield start, slice(None), bounds, [found.get(name) for name in names]
            return
        here = [name for name in SLOW if name in names and name in self._recipe.slow]
        for rows, drawn in self._recipe.strips(2, here):
            found = dict(zip(here, drawn[2:], strict=True))
            first = start + rows.start * self.context.tile_shape[1]
            yield first, rows, (drawn[0], drawn[1]), [found.get(name) for name in names]

    @property
    @enters
    def n_pulses(self) -> int:
        """Number of pulses that the cells have received; reading it synchronises."""
        self.context.guard.check()
        return int(_device.to_numpy(self._arrays["n_pulses"])[0])

    def mark(self) -> None:
        """Remember the number of pulses so far, without waiting for it."""
        if self._marked is None:
            self._marked = self._arrays["n_pulses"].copy()
        self._marked[...] = self._arrays["n_pulses"]

    @property
    @enters
    def n_pulses_since(self) -> int:
        """Number of pulses since the last `mark`, 0 without one; reading it synchronises."""
        marked = self._arrays["n_pulses"] if self._marked is None else self._marked
        return self.n_pulses - int(_device.to_numpy(marked)[0])

    @property
    @enters
    def pulse_counts(self) -> Array:
        """Number of pulses that each cell has received, shape (n_out, n_in), int64 (a copy)."""
        if "pulse_counts" not in self._arrays:
            raise ParameterError("this tile does not count pulses: make it with count_pulses=True")
        self.context.guard.check()
        return self._arrays["pulse_counts"].copy()

    def arrays(self) -> dict[str, Array]:
        return self._arrays

    @property
    @enters
    def cells(self) -> Mapping[str, Array]:
        """Per-cell parameters by name, arrays of shape (n_out, n_in), the tile's dtype.

        They are views, or if none are stored, new arrays, which are read-only in NumPy.
        """
        names = self.cell.PLANES
        if self._recipe is None:
            own = dict(zip(names, self._arrays.get("planes", ()), strict=True))
            own.update({name: self._arrays[name] for name in SLOW_CELLS if name in self._arrays})
        else:
            drawn = self._recipe.draw(len(names), self._recipe.slow)
            if isinstance(drawn, np.ndarray):
                drawn.flags.writeable = False
            own = dict(zip((*names, *self._recipe.slow), drawn, strict=True))
        return MappingProxyType(own)

    # ---- learning -------------------------------------------------------------------------------

    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        if isinstance(self.cell, PulsedCell):
            parameters.base_length(abs(lr), self.granularity)

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        guard = self.context.guard
        if self.record is not None:
            self.write(x, d, lr, parameters, first_sample)
            return
        call = guard.begin("x or d")
        for array in (x, d):
            check_finite(array, status=guard.status, call=call)
        self.context.changing()
        part = self.context.columns_of(x), self.context.rows_of(d)
        rank_update(self.weight, *part, lr, status=guard.status)

    def write(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        stream: Stream | None = None,
    ) -> None:
        """Pulse a batch into pulsed cells, with draws of their own stream or of another one."""
        call = self.context.guard.begin("x or d")
        at = (first_sample, stream or self.context.stream, call)
        self._writer.write(self.record, x, d, lr, parameters, *at)  # type: ignore[arg-type]

    def pulse(
        self,
        trains: Trains,
        flip: bool,
        first_sample: int,
        *,
        polarity: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """Change the weights by the coincidences of trains.

        With ``polarity`` 1 only up pulses are applied; with -1 only down pulses, as up pulses.
        """
        self.context.changing()
        pulsed_update(
            self.record,  # type: ignore[arg-type]
            trains,
            flip=flip,
            polarity=polarity,
            stream=stream or self.context.stream,
            first_sample=first_sample,
        )

    # ---- setting --------------------------------------------------------------------------------

    @exclusive
    def get_weights(self) -> Array:
        """Read the weights exactly: a copy, shape (n_out, n_in), the tile's dtype."""
        self.context.guard.check()
        return self.weight.copy()

    @changes
    def set_weights(self, weight: Array) -> DeviceArray:
        """Set the weights, clipped to the bounds of their cells, in place.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), the tile's dtype

        Returns
        -------
        DeviceArray
            Itself; the tile shows the change.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        array = checked_array(weight, self.context, "weight")
        self.context.changing()
        self.store(array)
        self.on_change()
        return self

    def store(self, array: Array) -> None:
        self.stored[...] = array
        self.clip()
        self.show(noise=getattr(self.cell, "apply_write_noise_on_set", False))

    def settle(self) -> None:
        self.clip()
        self.show(noise=False)

    def clip(self) -> None:
        """Bring the stored weights into the bounds of their cells."""
        if isinstance(self.cell, PulsedCell):
            for rows, bounds in bounds_of(self.planes):
                clip_weights(self.stored[rows], bounds, status=self.context.guard.status)

    def show(self, *, noise: bool = True) -> None:
        """Set the visible weights to the stored ones, with or without write noise."""
        if "persistent" not in self._arrays:
            return
        if noise:
            write_noise(
                self.stored,
                self.weight,
                self.cell.write_noise,
                first_cell=self.context.first_cell,
                pitch=self.context.tile_cols,
                stream=self.context.stream,
                event=self.context.tick("write_noise"),
                status=self.context.guard.status,
            )
        else:
            self.weight[...] = self.stored

    def invert(self) -> None:
        """Exchange up and down of every cell: steps, bounds and related parameters."""
        if self._recipe is not None:
            self._recipe.turn()
            self.settle()
            return
        cells = self.cells
        for name, sign in (("step", 1), ("slope", -1), ("gamma", 1), ("w", -1)):
            ends = ("min", "max") if name == "w" else ("down", "up")
            down, up = (cells.get(f"{name}_{end}") for end in ends)
            if down is not None and up is not None:
                kept = down.copy()
                down[...] = sign * up
                up[...] = sign * kept
        if "reference" in cells:
            cells["reference"][...] = -cells["reference"]
        self.settle()

    # ---- weight processes -----------------------------------------------------------------------

    def decay(self, alpha: float) -> None:
        if not self.has("decay_scale"):
            return
        status = self.context.guard.status
        for _, rows, bounds, (scale, bias) in self._strips("decay_scale", "reset_bias"):
            decay(self.stored[rows], alpha, scale, bias, bounds, status=status)
        self.show()

    def diffuse(self) -> None:
        if not self.has("diffusion_rate"):
            return
        event = self.context.tick("diffusion")
        for first_cell, rows, bounds, (rate,) in self._strips("diffusion_rate"):
            diffusion(
                self.stored[rows],
                rate,
                bounds,
                first_cell=first_cell,
                pitch=self.context.tile_cols,
                stream=self.context.stream,
                event=event,
                status=self.context.guard.status,
            )
        self.show()

    def drift(self, dt: float) -> None:
        parameters, context = self._drift, self.context
        if parameters is None or not parameters.active:
            return
        clock = f"{context.prefix}drift_time"
        event = context.tick("drift")
        context.clocks[clock] = float(context.clocks[clock]) + dt / parameters.t_0
        origin, previous, written = (self._arrays[f"drift_{name}"] for name in MEMORY)
        for first_cell, rows, bounds, (nu,) in self._strips("drift_nu"):
            drift(
                self.stored[rows],
                context.clocks[clock],
                parameters,
                DriftMemory(origin[rows], previous[rows], written[rows], nu),
                bounds,
                first_cell=first_cell,
                pitch=self.context.tile_cols,
                stream=context.stream,
                event=event,
                status=context.guard.status,
            )
        self.show()

    def reset(
        self,
        first_col: int,
        n_col: int,
        prob: float,
        chosen: Array | None = None,
        event: int | None = None,
    ) -> None:
        """Reset columns.

        ``chosen`` (n_out, n_in), the tile's dtype, excludes the cells where it is 0. A given
        ``event`` draws from child 1 of the stream.
        """
        stream = self.context.stream if event is None else self.context.stream.child(1)
        event = self.context.tick("reset") if event is None else event
        for first_cell, rows, bounds, (bias,) in self._strips("reset_bias"):
            for first, n in self.context.runs_of(first_col, n_col):
                reset(
                    self.stored[rows],
                    first,
                    n,
                    prob,
                    self.cell.reset_std,  # type: ignore[attr-defined]
                    bias,
                    bounds,
                    chosen=None if chosen is None else chosen[rows],
                    first_cell=first_cell,
                    pitch=self.context.tile_cols,
                    stream=stream,
                    event=event,
                    status=self.context.guard.status,
                )
        self.show()


def nothing() -> None:
    """Do nothing: the default of `on_change`."""


def checked_array(array: Array, context: ArrayContext, name: str) -> Array:
    """Return an array of the shape and dtype of a tile; raise if it is not finite."""
    array = _device.as_array(array, context.device, context.dtype, name)
    if array.shape != context.shape:
        raise ShapeError(f"{name}: got shape {tuple(array.shape)}, need {context.shape}")
    if not np.isfinite(_device.to_numpy(array)).all():
        raise NonFiniteError(f"{name} holds NaN or infinity; the tile is unchanged")
    return array
