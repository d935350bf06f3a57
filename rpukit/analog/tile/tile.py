"""`AnalogTile`: a crossbar array that multiplies in place and learns by pulses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import (
    check_shape,
    flag,
    instance,
    integer,
    need_memory,
    one_of,
    real_type,
)
from rpukit._kernels.calls import changes, exclusive
from rpukit._kernels.entering import enters_device
from rpukit.analog.arrays.base import ArrayContext
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells import Cell
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.describe import tile_summary
from rpukit.analog.parameters.io import IOParameters, NoiseManagement
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.product.ops import ForwardState, tile_forward
from rpukit.analog.tile.face import TileFace, with_leading
from rpukit.analog.tile.make_array import leaves, make_array
from rpukit.analog.tile.operator import SharedWeights
from rpukit.analog.tile.processes import Processes
from rpukit.analog.tile.pulse_counts import Accounting
from rpukit.analog.tile.state import Persistent
from rpukit.analog.tile.transposed import TransposedTile
from rpukit.random import MAX_SAMPLE, Stream
from rpukit.summaries import Summary

__all__ = ["AnalogTile", "TransposedTile"]

Array = Any
CLOCKS = ("forward", "backward", "update")
_AVERAGE = NoiseManagement.AVERAGE_ABS_MAX


@enters_device("_describe")
class AnalogTile(Accounting, Processes, Persistent, TileFace, SharedWeights):
    """A crossbar array of cells: a matrix that is read with noise and changed by pulses.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
    cell : Cell
        The device model or compound at each cross-point, for example `SoftBounds`, `Vector` or
        `ChoppedTransfer`; the guide to devices lists all of them.
    forward, backward : IOParameters, optional
        Converters, noise, and noise and bound management of the two products.
    update : UpdateParameters, optional
        Conversion of gradients into pulses.
    device : str
        Compute device: ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.
    seed : int, numpy.random.SeedSequence or Stream
        Source of all randomness of this tile: its cells, its noise, its pulses.
    dtype : {float32, float64}
        Type of all computations; ``docs/semantics.md`` explains the differences of float64.
    validate : {"deferred", "sync"}
        When non-finite inputs on a GPU are reported: at the next synchronising call or
        `rpukit.check`, or at once (which synchronises on every call).
    count_pulses : bool
        Count the pulses of each cell and of each update, see `pulse_counts` and `update_pulses`.
        The total, `n_pulses`, is always counted.
    storage : {"stored", "procedural"}
        Whether the parameters of each cell (`cells`) are stored, or drawn again whenever they are
        needed. Drawing gives the same bits with a fraction of the memory (`nbytes`), but is
        slower, and the cells cannot be set.

    Raises
    ------
    ParameterError, DTypeError, DeviceError

    Notes
    -----
    Results are the same to the bit on CPU and GPU, for any thread count, and for any way of
    cutting a batch: every draw is named by the absolute number of its sample. A tile keeps one
    sample clock per operation; a call with n samples moves it by n. See ``docs/semantics.md``.

    Source: Gokmen and Vlasov, Front. Neurosci. 10:333 (2016); Rasch et al., AICAS 2021.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> tile = rk.AnalogTile((2, 3), rk.ConstantStep(dw_min=0.01), seed=7)
    >>> x, d = np.ones((4, 3), np.float32), np.full((4, 2), -0.1, np.float32)
    >>> tile.forward(x).shape, tile.backward(d).shape
    ((4, 2), (4, 3))
    >>> before = np.asarray(tile)
    >>> _ = tile.update(x, d, lr=0.1)
    >>> bool((np.asarray(tile) > before).all())
    True
    >>> wide = rk.AnalogTile((2, 3), rk.ConstantStep(dw_min=0.01), seed=7, dtype=np.float64)
    >>> wide.forward([1, 0.5, -1]).dtype
    dtype('float64')
    """

    def __init__(
        self,
        shape: tuple[int, int],
        cell: Cell,
        *,
        forward: IOParameters | None = None,
        backward: IOParameters | None = None,
        update: UpdateParameters | None = None,
        device: str | _device.Device = "cpu",
        seed: int | np.random.SeedSequence | Stream = 0,
        dtype: Any = np.float32,
        validate: str = "deferred",
        count_pulses: bool = False,
        storage: str = "stored",
    ) -> None:
        self.shape = check_shape(shape)
        need_memory(4 * self.shape[0] * self.shape[1], f"a tile of shape {self.shape}")
        self._dtype = real_type(dtype)
        self.cell = instance(cell, Cell, "cell")
        self.forward_parameters = instance(forward, IOParameters, "forward", IOParameters())
        self.backward_parameters = instance(backward, IOParameters, "backward", IOParameters())
        self.update_parameters = instance(update, UpdateParameters, "update", UpdateParameters())
        self.stream = Stream.from_seed(seed)
        self.validate = one_of(validate, "validate", ("deferred", "sync"))
        self._device = _device.parse_device(device)
        self._clocks = dict.fromkeys(CLOCKS, 0)
        self._registers: dict[str, np.ndarray] = {}
        self._skipped = dict.fromkeys(CLOCKS, 0)
        self._guard = Guard(self._clocks, self._device, self._registers, self._skipped)
        self._call_state = self._guard.call_state
        self.count_pulses = flag(count_pulses, "count_pulses")
        self.storage = one_of(storage, "storage", ("stored", "procedural"))
        shared = (self._device, self._guard, self._clocks, self._registers)
        context = ArrayContext(
            self.shape,
            self.stream,
            *shared,
            count_pulses=self.count_pulses,
            dtype=self._dtype,
            procedural=storage == "procedural",
        )
        self._unit = make_array(self.cell, context)
        self._states = {
            way: ForwardState(
                io, n, self.stream, self._device, transposed=n_way > 0, dtype=self._dtype
            )
            for n_way, (way, io, n) in enumerate(
                (
                    ("forward", self.forward_parameters, self.shape[0]),
                    ("backward", self.backward_parameters, self.shape[1]),
                )
            )
        }

    # ---- properties ---------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights: float32 or float64."""
        return self._dtype

    @property
    def clocks(self) -> dict[str, int]:
        """Position of each sample or event clock (a copy)."""
        return dict(self._clocks)

    @property
    def cells(self) -> Mapping[str, Array]:
        """Per-cell parameters by name, arrays of shape (n_out, n_in), dtype of the tile (views).

        They are ``w_min``, ``w_max``, ``step_down``, ``step_up``, parameters of the model, and if
        the cell uses them, ``decay_scale``, ``diffusion_rate`` and ``reset_bias``.
        """
        return self._unit.cells

    @property
    def arrays(self) -> tuple[DeviceArray, ...]:
        """Crossbar arrays behind the weights: one, or several for compound cells."""
        return tuple(leaves(self._unit))

    @property
    def devices(self) -> tuple[DeviceArray, ...]:
        """Former name of `arrays`, kept for one release; not to be confused with `device`."""
        return self.arrays

    def _describe(self) -> Summary:
        return tile_summary(self)

    def __repr__(self) -> str:
        n_out, n_in = self.shape
        kind = "" if self._dtype == np.float32 else f", dtype={self._dtype.name}"
        cell = type(self.cell).__name__
        return f"AnalogTile(({n_out}, {n_in}), {cell}, device={self.device!r}{kind})"

    # ---- products and update ------------------------------------------------------------------

    def forward(self, x: Array, *, first_sample: int | None = None) -> Array:
        """Multiply activations by the weights, as the hardware does.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        first_sample : int, optional
            Position of the first sample on the forward clock; default: that of the clock.

        Returns
        -------
        array, shape (..., n_out), dtype of the tile

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return self._product("forward", x, self.forward_parameters, first_sample)

    def backward(self, d: Array, *, first_sample: int | None = None) -> Array:
        """Multiply errors by the transposed weights, as the hardware does.

        Parameters
        ----------
        d : array_like, shape (..., n_out)
        first_sample : int, optional
            Position of the first sample on the backward clock; default: that of the clock.

        Returns
        -------
        array, shape (..., n_in), dtype of the tile

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return self._product("backward", d, self.backward_parameters, first_sample)

    def _product(self, way: str, v: Array, io: IOParameters, first_sample: int | None) -> Array:
        transposed, state = way == "backward", self._states[way]
        name, average = "d" if transposed else "x", io.noise_management is _AVERAGE
        if average and not self._call_state.unit:
            return self._averaged(way, v, io, first_sample)
        if state.repeats and first_sample is None:
            start, guard = self._clocks[way], self._guard
            repeat = state.repeated(self._unit.weight, v, io, guard.status, self.stream)
            if repeat is not None and start + repeat.n_batch <= MAX_SAMPLE:
                if average:
                    self._call_state.changing(way)
                y = repeat(v, start, guard.number())
                guard.log(name)  # the rest of the work overlaps with the GPU
                self._finish(way, start, repeat.n_batch)
                return y
        rows, leading = self._samples(v, self.shape[0 if transposed else 1], name)
        start = self._start(way, first_sample, rows.shape[0])
        self._finite(rows, name)
        if average:
            self._call_state.changing(way)
        y = tile_forward(
            self._unit.weight,
            rows,
            io,
            stream=self.stream,
            first_sample=start,
            transposed=transposed,
            state=state,
            status=self._guard.status,
            call=self._guard.begin(name),
        )
        self._finish(way, start, rows.shape[0])
        return y if leading is None else with_leading(y, leading)

    @exclusive
    def _repeat(self, way: str, shape: tuple[int, ...], address: int, to: int) -> bool:
        """Repeat a product on a GPU from one address to another; False if that is not possible.

        The inputs are contiguous float32 numbers of this shape.
        """
        io = self.forward_parameters if way == "forward" else self.backward_parameters
        state, guard, start = self._states[way], self._guard, self._clocks[way]
        found = state.repeats.get(shape)
        if found is None or io is not state.parameters or io.noise_management is _AVERAGE:
            return False
        fits = found.fits(self._unit.weight, address, guard.status, self.stream)
        if not fits or start + found.n_batch > MAX_SAMPLE:
            return False
        found.at(address, to, start, guard.number())
        guard.log("x" if way == "forward" else "d")
        self._finish(way, start, found.n_batch)
        return True

    @changes
    def _averaged(self, way: str, v: Array, io: IOParameters, first_sample: int | None) -> Array:
        """Multiply by a periphery that keeps an average of its inputs, which is state."""
        return self._product(way, v, io, first_sample)

    @changes
    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        *,
        first_sample: int | None = None,
        batch_size: int | None = None,
    ) -> AnalogTile:
        """Change the weights by ``-lr d x^T`` on average, with pulses, in place.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        d : array_like, shape (..., n_out)
        lr : float
            Learning rate; 0 does nothing, a negative one reverses the polarity of the pulses.
        first_sample : int, optional
            Position of the first sample on the update clock; default: that of the clock.
        batch_size : int, optional
            Size of the mini-batch that the samples belong to, for cells that count in
            mini-batches; default: n_batch.

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError

        Notes
        -----
        Samples are applied in order; the same samples in several calls give the same bits.
        """
        rows_x, rows_d, lr, start = self._checked_update(x, d, lr, first_sample)
        n_batch = rows_x.shape[0]
        size = (
            n_batch
            if batch_size is None
            else integer(batch_size, "batch_size", low=1, high=2**48, what="samples at a time")
        )
        if lr == 0 or n_batch == 0:
            if self.count_pulses:
                self._mark_update()
            return self
        self._unit.check_rate(lr, self.update_parameters)
        self._unit.context.check_room(n_batch)
        if self.count_pulses:
            self._mark_update()
        self._unit.update(rows_x, rows_d, lr, self.update_parameters, start, size)
        self._finish("update", start, n_batch)
        return self

    def _position(self, clock: str) -> int:
        return int(self._clocks[clock])

    def _finish(self, clock: str, start: int, n: int) -> None:
        self._move(clock, start, n)
        self._settle()
