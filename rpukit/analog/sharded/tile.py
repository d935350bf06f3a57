"""`ShardedTile`: a crossbar that is split over several devices, with the bits of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import check_shape, flag, instance, integer, need_memory, one_of
from rpukit._device import Device
from rpukit._kernels.calls import changes
from rpukit._kernels.entering import enters_device
from rpukit.analog.arrays.base import ArrayContext
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells import Cell
from rpukit.analog.describe import tile_summary
from rpukit.analog.parameters.io import IOParameters, NoiseManagement
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.product.ops import ForwardState
from rpukit.analog.sharded.blocks import HomeGuard, ShardedArray
from rpukit.analog.sharded.checks import UNITS, layout_of, periphery, splittable
from rpukit.analog.sharded.products import multiply
from rpukit.analog.sharded.state import ShardedState
from rpukit.analog.tile.face import TileFace, with_leading
from rpukit.analog.tile.make_array import leaves
from rpukit.analog.tile.processes import Processes
from rpukit.analog.tile.pulse_counts import Accounting
from rpukit.random import Stream
from rpukit.summaries import Summary

Array = Any
CLOCKS = ("forward", "backward", "update")
_AVERAGE = NoiseManagement.AVERAGE_ABS_MAX


@enters_device("_describe")
class ShardedTile(ShardedState, Accounting, Processes, TileFace):
    """An `AnalogTile` whose rows (outputs) or columns (inputs) are split over several devices.

    Everything that it gives has the bits of the tile on one device, for any number of devices
    and any cuts.

    Parameters
    ----------
    shape : tuple of int, (n_out, n_in)
    cell : Cell
        A pulsed device model, `Ideal`, `Vector`, `Reference`, or of the transfer family: with
        single devices, columns as slices, and transfers without update management.
    devices : sequence of str
        Different GPUs, for example ``("gpu:0", "gpu:1")``; "cpu" may be repeated. Inputs and
        results are on the first one.
    split : {"outputs", "inputs"}
        Whether each device has some rows (outputs), or some columns (inputs). The transfer family
        is split by outputs.
    cuts : sequence of int, optional
        First row or column of the second device, of the third one, and so on; columns at multiples
        of 32. Default: equal parts.
    forward, backward : IOParameters, optional
        As for `AnalogTile`, with ideal wires and without read noise (``w_noise``).
    update : UpdateParameters, optional
    seed : int, numpy.random.SeedSequence or Stream
    validate : {"deferred", "sync"}
    count_pulses : bool
    storage : {"stored", "procedural"}
        As for `AnalogTile`.

    Raises
    ------
    ParameterError, DeviceError

    Notes
    -----
    Draws are named by the rows and columns of the whole tile, so each device draws what it would
    draw on one. The first device converts inputs and outputs, the others get the converted inputs
    (4 bytes a sample and line) and return their sums. Products that add over a split axis
    (backward over rows, forward over columns) are chains that go on from device to device, in
    groups of results. Each device makes the pulse trains of an update itself. Tiles are float32.
    See docs/several_gpus.md.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x, d = np.ones((4, 3), np.float32), np.full((4, 5), -0.1, np.float32)
    >>> one = rk.AnalogTile((5, 3), rk.SoftBounds(), seed=7)
    >>> places = ("cpu", "cpu")  # or ("gpu:0", "gpu:1")
    >>> two = rk.ShardedTile((5, 3), rk.SoftBounds(), places, seed=7)
    >>> _ = one.update(x, d, lr=0.1), two.update(x, d, lr=0.1)
    >>> bool((one.forward(x) == two.forward(x)).all())
    True
    """

    def __init__(
        self,
        shape: tuple[int, int],
        cell: Cell,
        devices: Sequence[str | Device],
        *,
        split: str = "outputs",
        cuts: Sequence[int] | None = None,
        forward: IOParameters | None = None,
        backward: IOParameters | None = None,
        update: UpdateParameters | None = None,
        seed: int | np.random.SeedSequence | Stream = 0,
        validate: str = "deferred",
        count_pulses: bool = False,
        storage: str = "stored",
    ) -> None:
        self.shape = check_shape(shape)
        need_memory(4 * self.shape[0] * self.shape[1], f"a tile of shape {self.shape}")
        self._layout = layout_of(self.shape, devices, split, cuts, UNITS)
        self.cell = splittable(instance(cell, Cell, "cell"), self._layout.axis)
        self.forward_parameters = periphery(forward, "forward")
        self.backward_parameters = periphery(backward, "backward")
        self.update_parameters = instance(update, UpdateParameters, "update", UpdateParameters())
        self.stream = Stream.from_seed(seed)
        self.validate = one_of(validate, "validate", ("deferred", "sync"))
        self._device = self._layout.devices[0]
        self._dtype = np.dtype(np.float32)
        self.count_pulses = flag(count_pulses, "count_pulses")
        self.storage = one_of(storage, "storage", ("stored", "procedural"))
        self._clocks = dict.fromkeys(CLOCKS, 0)
        self._registers: dict[str, np.ndarray] = {}
        self._skipped = dict.fromkeys(CLOCKS, 0)
        self._guard = HomeGuard(self._clocks, self._device, self._registers, self._skipped)
        self._call_state = self._guard.call_state
        context = ArrayContext(
            self.shape,
            self.stream,
            self._device,
            self._guard,
            self._clocks,
            self._registers,
            count_pulses=self.count_pulses,
            procedural=storage == "procedural",
        )
        self._unit = ShardedArray(self.cell, context, self._layout)
        with _device.using(self._device):
            self._states = {
                way: ForwardState(io, n, self.stream, self._device, transposed=way == "backward")
                for way, io, n in (
                    ("forward", self.forward_parameters, self.shape[0]),
                    ("backward", self.backward_parameters, self.shape[1]),
                )
            }

    _unit: ShardedArray

    # ---- properties ---------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the weights: float32."""
        return self._dtype

    @property
    def clocks(self) -> dict[str, int]:
        """Position of each sample or event clock (a copy)."""
        return dict(self._clocks)

    @property
    def arrays(self) -> tuple[DeviceArray, ...]:
        """Crossbar arrays of all blocks, each on the device of its block."""
        return tuple(leaf for block in self._unit.blocks for leaf in leaves(block.unit))

    @property
    def pulse_counts(self) -> Array:
        """Number of pulses that each cell has received, shape (n_out, n_in), int64 (a copy).

        Raises
        ------
        ParameterError
            If the tile was made without ``count_pulses=True``.
        """
        parts = []
        for block in self._unit.blocks:
            with _device.using(block.device):
                counts = [leaf.pulse_counts for leaf in leaves(block.unit)]
                for more in counts[1:]:
                    counts[0] += more
                parts.append(counts[0])
        return self._unit.joined("pulse_counts", parts)

    def _position(self, clock: str) -> int:
        return int(self._clocks[clock])

    def _mark_update(self) -> None:
        for block in self._unit.blocks:
            with _device.using(block.device):
                for leaf in leaves(block.unit):
                    leaf.mark()

    def _describe(self) -> Summary:
        return tile_summary(self)

    def __repr__(self) -> str:
        n_out, n_in = self.shape
        return f"ShardedTile(({n_out}, {n_in}), {type(self.cell).__name__}, {self.devices})"

    # ---- products and update ------------------------------------------------------------------

    def forward(self, x: Array, *, first_sample: int | None = None) -> Array:
        """Multiply activations by the weights, as `AnalogTile.forward` does.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
            On the first device.
        first_sample : int, optional
            Position of the first sample on the forward clock; default: that of the clock.

        Returns
        -------
        array, shape (..., n_out), float32
            On the first device.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError

        Notes
        -----
        Bound management asks after each round whether samples wait, which synchronises.
        """
        return self._product("forward", x, first_sample)

    def backward(self, d: Array, *, first_sample: int | None = None) -> Array:
        """Multiply errors by the transposed weights, as `AnalogTile.backward` does.

        Parameters
        ----------
        d : array_like, shape (..., n_out)
            On the first device.
        first_sample : int, optional
            Position of the first sample on the backward clock; default: that of the clock.

        Returns
        -------
        array, shape (..., n_in), float32
            On the first device.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        return self._product("backward", d, first_sample)

    def _product(self, way: str, v: Array, first_sample: int | None) -> Array:
        back, state = way == "backward", self._states[way]
        n_in = self.shape[0 if back else 1]
        io = self.backward_parameters if back else self.forward_parameters
        average, name = io.noise_management is _AVERAGE, "d" if back else "x"
        if average and not self._call_state.unit:
            return self._averaged(way, v, first_sample)
        rows, leading = self._samples(v, n_in, name)
        n_batch = rows.shape[0]
        start = self._start(way, first_sample, n_batch)
        self._finite(rows, name)
        call = self._guard.begin(name)
        if average:
            self._call_state.changing(way)
        at: Any = {"stream": self.stream, "first_sample": start, "call": call, "transposed": back}
        given = (self._layout, self._unit.weights(), rows, io, state)
        y = multiply(*given, status=self._guard.status, **at)
        self._move(way, start, n_batch)
        self._settle()
        return y if leading is None else with_leading(y, leading)

    @changes
    def _averaged(self, way: str, v: Array, first_sample: int | None) -> Array:
        """Multiply by a periphery that keeps an average of its inputs, which is state."""
        return self._product(way, v, first_sample)

    @changes
    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        *,
        first_sample: int | None = None,
        batch_size: int | None = None,
    ) -> ShardedTile:
        """Change the weights by ``-lr d x^T`` on average, as `AnalogTile.update` does.

        Parameters
        ----------
        x : array_like, shape (..., n_in)
        d : array_like, shape (..., n_out)
            Both on the first device.
        lr : float
        first_sample, batch_size : int, optional
            See `AnalogTile.update`.

        Returns
        -------
        ShardedTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        rows_x, rows_d, lr, start = self._checked_update(x, d, lr, first_sample)
        n_batch = rows_x.shape[0]
        size = n_batch
        if batch_size is not None:
            size = integer(batch_size, "batch_size", low=1, high=2**48, what="samples at a time")
        if lr and n_batch:
            self._unit.check_rate(lr, self.update_parameters)
        if self.count_pulses:
            self._mark_update()
        if lr and n_batch:
            self._call_state.changing()
            self._unit.update(rows_x, rows_d, lr, self.update_parameters, start, size)
            self._move("update", start, n_batch)
            self._settle()
        return self
