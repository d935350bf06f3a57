"""Tiles whose cells hold a fast and slow arrays: the transfer family.

Which slice of the fast array is read after which sample of a batch follows from counters alone. A
batch is cut so that no slice is read twice in a part. Then a part takes a fixed number of
launches: the samples are turned round by the choppers of the time, each read walks the pulses of
its slice up to its own sample, what was read goes through the buffer into the slow array, and the
fast array learns all samples at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import clock
from rpukit.analog import _schedule
from rpukit.analog._choppers import Choppers
from rpukit.analog._compound import CompoundUnit
from rpukit.analog._guard import check_finite
from rpukit.analog._reading import Cells, Reading, Replay
from rpukit.analog._schedule import Events
from rpukit.analog._unit import Site
from rpukit.analog.chopped_cells import ChoppedTransfer, DynamicTransfer
from rpukit.analog.combine import combine_devices
from rpukit.analog.forward import ForwardState, tile_forward
from rpukit.analog.io_parameters import BoundManagement, IOParameters, NoiseManagement, WeightNoise
from rpukit.analog.transfer import auto_scale, transfer_read, transfer_write
from rpukit.analog.transfer_cells import Transfer
from rpukit.analog.update import pulse_trains
from rpukit.analog.update_parameters import UpdateParameters

Array = Any
_READS = 64  # slices that are multiplied at once where a read is a product
_WRITES = 0  # child stream of a device for reads and writes of its own
_SELECT = 1 << 20  # child stream for choppers and random slices
_captured: list[Any] = []  # a graph goes on using what it was captured with
_W_NOISES = {WeightNoise.ADDITIVE_CONSTANT: 1, WeightNoise.PCM_READ: 2}


class TransferUnit(CompoundUnit):
    """A fast array and slower ones (`Transfer` and its kin)."""

    def __init__(self, cell: Transfer, site: Site) -> None:
        self._choppers: Choppers | None = None
        self._hidden = cell.hidden
        super().__init__(cell, site)
        n_device = len(self.children)
        site.start(*(f"transfers_{k}" for k in range(n_device)))
        self._n = cell.slices(site.shape)
        self._reads = cell.reads(site.shape)
        self._select = site.stream.child(_SELECT)
        self._random = self._select if cell.random_selection else None
        self._io = _one_hot_io(cell.transfer_forward)
        # Where other lines have noise, or lines a place along the wires, the whole array is read;
        # where wires are not ideal, by a product.
        self._whole = not self._io.exact and (self._io.inp_noise > 0 or self._io.ir_drop > 0)
        self._apart = self._whole or not (self._io.exact or self._io.ideal_wires)
        self._streams = [child.site.stream.child(_WRITES) for child in self.children]
        self._states = [
            ForwardState(
                self._io,
                self._n[1],
                stream,
                site.device,
                transposed=not cell.transfer_columns,
                dtype=site.dtype,
            )
            for stream in self._streams
        ]
        self._own: dict[str, Array] = {}
        if cell.BUFFERED:
            self._own["buffer"] = self._zeros(n_device - 1, *self._n)
        if isinstance(cell, DynamicTransfer):
            self._own.update({name: self._zeros(*self._n) for name in ("mean", "past")})
        self._scales = getattr(cell, "auto_scale", False) and cell.fast_lr > 0
        if self._scales:
            self._own["running"] = self._zeros(2)
        if isinstance(cell, ChoppedTransfer):
            self._choppers = Choppers(cell, self._select, site, self._n)
            self._own.update(self._choppers.arrays())
        self._cells = [Cells.of(child) for child in self.children]
        self._readings = [self._reading(k) for k in range(n_device - 1)]
        if self._hidden:
            self.weight = self.children[-1].weight

    def _zeros(self, *shape: int) -> Array:
        return _device.zeros(shape, self.site.dtype, self.site.device)

    def _reading(self, k: int) -> Reading:
        """Gather how the slices of array k are read, and what is behind them."""
        cell, state = self.cell, self._states[k]
        forget, length = getattr(cell, "forget_buffer", True), cell.transfer_update.desired_bl
        momentum, threshold = getattr(cell, "momentum", 0.0), 0.0
        if not (forget or isinstance(cell, DynamicTransfer)):
            momentum = min(max(momentum, 0.0), 1.0)
        if cell.BUFFERED and self._choppers is None:
            threshold = cell.thres_scale * cell.devices[k + 1].granularity
        mu = cap = 0.0
        if isinstance(cell, DynamicTransfer):
            mu = min(cell.tail_weightening / cell.chop_period, 1.0)
            cap = cell.buffer_cap * length
        keep = float(not getattr(cell, "no_buffer", False))
        exact, columns = self._io.exact, cell.transfer_columns
        periphery = (0 if self._io.out_scale == 1 else 1) if exact else 2
        w_noise = _W_NOISES.get(self._io.w_noise_type, 0) if self._io.w_noise > 0 else 0
        flags = (forget, periphery, w_noise, columns)
        rule = np.array((threshold, length, momentum, keep, mu, cap, *flags), self.site.dtype)
        return Reading(
            1 if not cell.BUFFERED else 2 if self._choppers is None else 4 if mu else 3,
            columns,
            self.site.put(rule),
            state.io,
            state.line_noise,
            self._streams[k],
            self._own["buffer"][k] if cell.BUFFERED else None,
            self._own.get("mean"),
            self._own.get("past"),
            self._own.get("chopper_in"),
            self._own.get("switched"),
        )

    def combine(self) -> None:
        if self._hidden:
            return
        signs: tuple[Array | None, Array | None] = (None, None)
        if self._choppers is not None:
            signs = (self._choppers.lines, self._choppers.slices)
            signs = signs if self.cell.transfer_columns else signs[::-1]
        status = self.site.guard.status
        combine_devices(self.weight, self._stack, self._gamma, signs, status=status)

    def arrays(self) -> dict[str, Array]:
        return {**super().arrays(), **self._own}

    def store(self, array: Array) -> None:
        *fast, slow = self.children
        for child in fast:
            child.store(self._zeros(*self.site.shape))
        gamma = self.site.dtype.type(self.cell.weights_of_parts()[-1])
        slow.store(array if gamma == 1 else array / gamma)
        self.combine()

    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        rate = abs(self.cell.fast_rate(lr))
        if rate:
            parameters.base_length(rate, self.granularity)

    # ---- a batch ----------------------------------------------------------------------------

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        periods = self.cell.periods(self.site.shape, batch_size)
        ends = self._ends(periods, first_sample, len(x), parameters)
        call = self.site.guard.begin("x or d")
        if len(ends) > 1 or self._scales:
            # Found before the first part is learnt, so that a bad sample changes nothing.
            for array in (x, d):
                check_finite(array, status=self.site.guard.status, call=call)
        start = 0
        for end in ends:
            part = (x, d) if len(ends) == 1 else (x[start:end], d[start:end])
            counts = (first_sample + start, periods[0], batch_size)
            self._learn(*part, lr, parameters, counts, call)
            for k, period in enumerate(periods[1:], start=1):
                if period and (first_sample + end) % period == 0:
                    self._move_on(k, lr)
            start = end
        self.combine()

    def _ends(
        self, periods: list[int], first_sample: int, n: int, parameters: UpdateParameters
    ) -> list[int]:
        """Cut a batch where slow arrays are read, and where the fast one must have learnt."""
        ends = {n}
        for period in periods[1:]:
            if period:
                ends.update(range(period - first_sample % period, n + 1, period))
        due, n_slice = self._events(0, periods[0], first_sample, n), self._n[0]
        n_transfer = due.n // due.reads
        if self._apart or parameters.exact:
            last = range(n_transfer)
        else:  # those after which a slice comes again
            most = n_slice // due.reads
            last = range(most - 1, n_transfer, most)
        ends.update(due.offset + t * due.period + 1 for t in last)
        if self.cell.random_selection or self.cell.with_reset_prob > 0:
            ends.update(self._random_ends(due))
        if self._choppers is not None and self.cell.out_chop_prob > 0:
            passes = range(n_slice - 1 - due.first_slice, due.n, n_slice)
            ends.update(due.offset + t * due.period + 1 for t in passes)
        return sorted(ends)

    def _random_ends(self, due: Events) -> set[int]:
        """Cut a batch before a drawn slice comes again, and after a slice is reset."""
        slices = _schedule.slices_of(due, self._n[0], self._random)
        before = _schedule.repeats(slices, due.reads) if self._random else []
        after = {t // due.reads for t in self._resets(0, due).tolist()}
        last = {t - 1 for t in before} | after
        return {due.offset + t * due.period + 1 for t in last}

    def _events(self, k: int, period: int, first_sample: int, n: int) -> Events:
        number = int(self.site.clocks[f"{self.site.prefix}transfers_{k}"])
        return _schedule.events(period, first_sample, n, number, self._reads, self._n[0])

    def _learn(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        counts: tuple[int, int, int],
        call: int,
    ) -> None:
        """Pulse a part of a batch into the fast array, and hand over what is read meanwhile."""
        first_sample, period, batch_size = counts
        due = self._events(0, period, first_sample, len(x))
        self.site.tick("transfers_0", due.n)
        if due.n and self.cell.transfer_rate(0, lr) == 0:
            due = replace(due, n=0)
        rate = self.cell.fast_rate(lr)
        rates = self._scaled(x, d, rate, parameters, batch_size) if self._scales else None
        turns = None
        if self._choppers is not None and self.cell.transfer_columns:
            x, d, turns = self._choppers.turn(x, d, due)
        elif self._choppers is not None:
            d, x, turns = self._choppers.turn(d, x, due)
        fast, status = self.children[0], self.site.guard.status
        trains = pulse_trains(
            x,
            d,
            abs(rate),
            self.granularity,
            parameters,
            stream=self.site.stream,
            first_sample=first_sample,
            status=status,
            call=call,
            rates=rates,
        )
        ahead = due.n > 0 and due.offset < len(x) - 1  # of the last pulses of the part
        replay = Replay(trains, rate < 0, fast.site.stream, first_sample) if ahead else None
        if not ahead:
            fast.pulse(trains, rate < 0, first_sample)
        d_of_write = None
        if due.n:
            rate_now = rate if rates is None else rates
            d_of_write = self._transfer(0, due, lr, rate_now, turns, replay)
        if ahead:
            fast.pulse(trains, rate < 0, first_sample)
        self._reset(0, due)
        if self._choppers is not None:
            self._choppers.flip_lines(due)
        if self.site.device.kind == "gpu" and clock.capturing():
            _captured.append((x, d, rates, turns, d_of_write))

    def _scaled(
        self, x: Array, d: Array, rate: float, parameters: UpdateParameters, batch_size: int
    ) -> Array:
        """Give the rate of each sample, by the running maxima of x and d."""
        cell = self.cell
        factor = abs(rate) * parameters.desired_bl * cell.devices[0].granularity
        t = (1 - cell.auto_momentum) / batch_size
        return auto_scale(x, d, factor, t, self._own["running"], status=self.site.guard.status)

    def _resets(self, k: int, due: Events) -> np.ndarray:
        """Draw which reads reset their slice."""
        if self.cell.with_reset_prob == 0:
            return np.zeros(0, np.int64)
        number = due.number + np.arange(due.n)
        u = _schedule.draws(self._select.child(k), number, _schedule.RESET)
        return np.flatnonzero(u < np.float32(self.cell.with_reset_prob))

    def _reset(self, k: int, due: Events) -> None:
        which = self._resets(k, due)
        if which.size:
            slices = _schedule.slices_of(due, self._n[0], self._random)
            for t in which.tolist():
                self.children[k].reset(int(slices[t]), 1, 1.0, event=due.number + t)

    # ---- a transfer ---------------------------------------------------------------------------

    def _move_on(self, k: int, lr: float) -> None:
        """Transfer the next slices of a slow array to the one behind it."""
        due = self._events(k, 1, 0, 1)
        self.site.tick(f"transfers_{k}", due.n)
        if k + 1 < len(self.children) and self.cell.transfer_rate(k, lr) != 0:
            self._transfer(k, due, lr, 0.0, None, None)
            self._reset(k, due)

    def _transfer(
        self,
        k: int,
        due: Events,
        lr: float,
        rate: Any,
        turns: Array | None,
        replay: Replay | None,
    ) -> Array:
        """Read slices of array k, write what comes out of the buffer to the next one; give it."""
        cell, status, z = self.cell, self.site.guard.status, None
        if self._apart or self._random is not None:
            slices = _schedule.slices_of(due, self._n[0], self._random)
            z = self._products(k, due, slices) if self._apart else None
            if self._random is not None:
                due = replace(due, slices=self.site.put(slices.astype(np.int32)))
        step = cell.transfer_rate(k, lr)
        kappas, writes = self._factors(due, abs(step), rate)
        correct = getattr(cell, "correct_gradient_magnitudes", False)
        d = transfer_read(
            self._cells[k],
            self._readings[k],
            due,
            kappas,
            writes,
            replay=replay,
            turns=turns,
            line_sign=self._choppers.lines if self._choppers is not None else None,
            rates=rate if correct and not isinstance(rate, float) else None,
            z=z,
            status=status,
        )
        if cell.BUFFERED:
            step = cell.step * cell.devices[k + 1].granularity
        stream, columns, update = self._streams[k + 1], cell.transfer_columns, cell.transfer_update
        if not update.implicit:
            to = self._cells[k + 1]
            transfer_write(to, d, due, step, update, columns=columns, stream=stream, status=status)
            return d
        one_hot = self._one_hot(_schedule.slices_of(due, self._n[0], self._random))
        sides = (one_hot, d) if columns else (d, one_hot)
        self.children[k + 1].write(*sides, step, update, due.number, stream)
        return d

    def _factors(
        self, due: Events, step: float, rate: Any
    ) -> tuple[tuple[float, float], tuple[bool, bool]]:
        """Give the factor of the reads of this pass and of the next, and whether they write."""
        cell = self.cell
        if self._choppers is None:
            return (step, step), (True, True)
        fast, slow = cell.devices
        kappa = step / cell.threshold(self.site.shape)
        if cell.correct_gradient_magnitudes:
            kappa = step / (cell.threshold(self.site.shape) * slow.granularity / fast.granularity)
            kappa /= abs(rate) if isinstance(rate, float) else 1.0
        if not isinstance(cell, DynamicTransfer):
            return (kappa, kappa), (True, True)
        passes, divisors = due.number // self._n[0], [1.0, 1.0]
        if cell.experimental_correct_accumulation:
            ages = ((passes + later) % cell.chop_period + 1 for later in (0, 1))
            divisors = [min(age, 1 / fast.granularity) for age in ages]
        writes = (passes > cell.chop_period, passes + 1 > cell.chop_period)
        return (kappa / divisors[0], kappa / divisors[1]), writes

    def _one_hot(self, which: np.ndarray) -> Array:
        """Make an input for each slice, shape (n, n_slice)."""
        made = np.zeros((len(which), self._n[0]), self.site.dtype)
        made[np.arange(len(which)), which] = 1
        return self.site.put(made)

    def _products(self, k: int, due: Events, slices: np.ndarray) -> Array:
        """Read slices by products of all of the array, or of no more than them."""
        weight, columns = self.children[k].weight, self.cell.transfer_columns
        if self._whole:
            return self._product(k, weight, self._one_hot(slices), due.number)
        xp, parts = _device.namespace(weight), []
        for start in range(0, due.n, _READS):
            index = self.site.put(slices[start : start + _READS])
            part = xp.ascontiguousarray(weight[:, index] if columns else weight[index])
            one_hot = self.site.put(np.eye(len(index), dtype=self.site.dtype))
            parts.append(self._product(k, part, one_hot, due.number + start))
        return xp.concatenate(parts)

    def _product(self, k: int, weight: Array, one_hot: Array, number: int) -> Array:
        return tile_forward(
            weight,
            one_hot,
            self._io,
            stream=self._streams[k],
            first_sample=number,
            transposed=not self.cell.transfer_columns,
            state=self._states[k],
            status=self.site.guard.status,
            call=self.site.guard.begin("transfer"),
        )


def _one_hot_io(io: IOParameters) -> IOParameters:
    """Turn off what a one-hot read never uses."""
    return replace(
        io, noise_management=NoiseManagement.NONE, bound_management=BoundManagement.NONE
    )
