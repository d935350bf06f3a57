"""Tiles whose cells hold a fast and slow arrays: the transfer family.

A batch is planned before it is run: which slice of the fast array is read after which sample
follows from counters alone. The fast array then learns in passes, in which every slice stops at
its next read; so all reads of a batch take a few launches, not one each, and a cell still sees its
samples in order. What was read goes through the buffer and into the slow array as one batch of
one-hot updates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog import _schedule
from rpukit.analog._compound import CompoundUnit
from rpukit.analog._guard import check_finite
from rpukit.analog._launch_update import Trains
from rpukit.analog._schedule import Choppers, Events
from rpukit.analog._unit import Site
from rpukit.analog.chopped_cells import ChoppedTransfer, DynamicTransfer
from rpukit.analog.combine import combine_devices
from rpukit.analog.forward import ForwardState, tile_forward
from rpukit.analog.io_parameters import BoundManagement, IOParameters, NoiseManagement
from rpukit.analog.transfer import BEGINS, FIRST, WRITES, Rule, auto_scale, transfer_buffer
from rpukit.analog.transfer_cells import Transfer
from rpukit.analog.update import pulse_trains
from rpukit.analog.update_parameters import UpdateParameters

Array = Any
_READS = 64  # slices that are read at once
_FEW = 1 << 16  # elements that are sooner copied to a GPU than made there
_WRITES = 0  # child stream of a device for reads and writes of its own
_SELECT = 1 << 20  # child stream for choppers and random slices


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
        self._io = _one_hot_io(cell.transfer_forward)
        # Where other lines have noise, or lines a place along the wires, the whole array is read.
        self._whole = not self._io.exact and (self._io.inp_noise > 0 or self._io.ir_drop > 0)
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
        self._line_sign = site.put(np.ones(self._n[1], site.dtype))
        if isinstance(cell, ChoppedTransfer):
            registers = (site.registers, site.prefix)
            self._choppers = Choppers(cell, self._select, *registers, self._n)
        if self._hidden:
            self.weight = self.children[-1].weight

    def _zeros(self, *shape: int) -> Array:
        return _device.zeros(shape, self.site.dtype, self.site.device)

    def combine(self) -> None:
        if self._hidden:
            return
        signs = None
        if self._choppers is not None:
            pair = [self._choppers.get(f"chopper_{end}") for end in ("out", "in")]
            pair = pair if self.cell.transfer_columns else pair[::-1]
            signs = tuple(self.site.put(sign.astype(self.site.dtype)) for sign in pair)
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
        ends = self._ends(periods, first_sample, len(x))
        call = self.site.guard.begin("x or d")
        if len(ends) > 1 or self._scales:
            # Found before the first part is learnt, so that a bad sample changes nothing.
            for array in (x, d):
                check_finite(array, status=self.site.guard.status, call=call)
        start = 0
        for end in ends:
            part = slice(start, end)
            counts = (first_sample + start, periods[0], batch_size)
            self._learn(x[part], d[part], lr, parameters, counts, call)
            for k, period in enumerate(periods[1:], start=1):
                if period and (first_sample + end) % period == 0:
                    self._move_on(k, lr)
            start = end
        self.combine()

    def _ends(self, periods: list[int], first_sample: int, n: int) -> list[int]:
        """Cut a batch where slow arrays are read, and where choppers of lines may flip."""
        ends = {n}
        for period in periods[1:]:
            if period:
                ends.update(range(period - first_sample % period, n + 1, period))
        due = self._events(0, periods[0], first_sample, n)
        if self._whole:
            ends.update((due.offset + 1).tolist())
        if self._choppers is not None and self.cell.out_chop_prob > 0:
            ends.update((due.offset[due.slice == self._n[0] - 1] + 1).tolist())
        return sorted(ends)

    def _events(self, k: int, period: int, first_sample: int, n: int) -> Events:
        random = self._select if self.cell.random_selection else None
        number = int(self.site.clocks[f"{self.site.prefix}transfers_{k}"])
        return _schedule.events(period, first_sample, n, number, self._reads, self._n[0], random)

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
        self.site.tick("transfers_0", len(due))
        rate = self.cell.fast_rate(lr)
        rates = self._scaled(x, d, rate, parameters, batch_size) if self._scales else None
        moves = self.cell.transfer_rate(0, lr) != 0
        due = due if moves else Events(*(v[:0] for v in (due.number, due.offset, due.slice)))
        turn = _schedule.occurrences(due.slice)
        alone = len(due) == 0 or int(turn.max()) == 0
        z = self._zeros(0 if alone else len(due), self._n[1])
        signs, begins = np.ones(len(due), np.int8), np.zeros(len(due), bool)
        lines = np.ones(self._n[1], np.int8)
        chopper = np.ones(self._n[0], np.int8)
        if self._choppers is not None:
            lines = self._choppers.get("chopper_out")
            chopper = self._choppers.get("chopper_in").copy()
            signs, begins = self._choppers.take(due)
        begin = np.zeros(self._n[0], np.int64)
        for p in range(int(turn.max(initial=-1)) + 2):
            here = np.flatnonzero(turn == p)
            end = np.full(self._n[0], len(x))
            end[due.slice[here]] = due.offset[here] + 1
            if (begin < end).any() and rate:
                window = (begin, end)
                signs_now = (chopper, lines)
                how = (parameters, first_sample, call)
                self._pulse(x, d, rate, rates, how, window, signs_now)
            begin = np.where(begin < end, end, begin)
            if len(here):
                read = self._slices(0, due, here)
                if len(here) == len(due):
                    z = read
                else:
                    z[self._put_index(here)] = read
                self._reset(0, due, here)
            later = np.flatnonzero(turn == p + 1)
            chopper = chopper.copy()
            chopper[due.slice[later]] = signs[later]
            done = np.setdiff1d(due.slice[here], due.slice[later])
            if self._choppers is not None:
                chopper[done] = self._choppers.get("chopper_in")[done]
        if len(due):
            self._hand_over(0, due, z, lr, rate if rates is None else rates, signs, begins, lines)

    def _pulse(
        self,
        x: Array,
        d: Array,
        rate: float,
        rates: Array | None,
        how: tuple[UpdateParameters, int, int],
        window: tuple[np.ndarray, np.ndarray],
        signs: tuple[np.ndarray, np.ndarray],
    ) -> None:
        """Pulse into the fast array those samples of each slice that are in its window."""
        columns, (parameters, first_sample, call) = self.cell.transfer_columns, how
        of_x, of_d = signs if columns else signs[::-1]
        trains = pulse_trains(
            self._chopped(x, of_x),
            self._chopped(d, of_d),
            abs(rate),
            self.granularity,
            parameters,
            stream=self.site.stream,
            first_sample=first_sample,
            status=self.site.guard.status,
            call=call,
            rates=rates,
        )
        begin, end = window
        if begin.any() or (end < len(x)).any():
            sample = np.arange(len(x))[:, None]
            keep = (begin <= sample) & (sample < end)
            trains = _windowed(trains, keep, self.site, columns=columns)
        self.children[0].pulse(trains, rate < 0, first_sample)

    def _scaled(
        self, x: Array, d: Array, rate: float, parameters: UpdateParameters, batch_size: int
    ) -> Array:
        """Give the rate of each sample, by the running maxima of x and d."""
        cell = self.cell
        factor = abs(rate) * parameters.desired_bl * cell.devices[0].granularity
        t = (1 - cell.auto_momentum) / batch_size
        return auto_scale(x, d, factor, t, self._own["running"], status=self.site.guard.status)

    def _chopped(self, v: Array, signs: np.ndarray) -> Array:
        if (signs > 0).all():
            return v
        return v * self.site.put(signs.astype(self.site.dtype))

    def _put_index(self, index: np.ndarray) -> Array:
        return self.site.put(np.ascontiguousarray(index))

    def _slices(self, k: int, due: Events, here: np.ndarray) -> Array:
        """Copy slices of an array as they are, or read with all of it: shape (n, n_line)."""
        weight, which = self.children[k].weight, due.slice[here]
        if self._whole:
            return self._product(k, weight, self._one_hot(which), int(due.number[here[0]]))
        first, last = int(which[0]), int(which[-1]) + 1
        index: Any = slice(first, last)
        if last - first != len(which) or (np.diff(which) != 1).any():
            index = self._put_index(which)
        part = weight[:, index].T if self.cell.transfer_columns else weight[index]
        return part.copy(order="C")

    def _one_hot(self, which: np.ndarray) -> Array:
        """Make an input for each slice, shape (n, n_slice)."""
        n, n_slice = len(which), self._n[0]
        if n * n_slice <= _FEW:
            made = np.zeros((n, n_slice), self.site.dtype)
            made[np.arange(n), which] = 1
            return self.site.put(made)
        one_hot = self._zeros(n, n_slice)
        one_hot[self._put_index(np.arange(n)), self._put_index(which)] = 1
        return one_hot

    def _reset(self, k: int, due: Events, here: np.ndarray) -> None:
        if self.cell.with_reset_prob == 0:
            return
        child = self.children[k]
        number = due.number[here]
        u = _schedule.draws(self._select.child(k), number, _schedule.FIRST_SLICE + 1)
        for t in here[u < np.float32(self.cell.with_reset_prob)]:
            child.reset(int(due.slice[t]), 1, 1.0, event=int(due.number[t]))

    # ---- a transfer ---------------------------------------------------------------------------

    def _move_on(self, k: int, lr: float) -> None:
        """Transfer the next slices of a slow array to the one behind it."""
        due = self._events(k, 1, 0, 1)
        self.site.tick(f"transfers_{k}", len(due))
        if k + 1 < len(self.children) and self.cell.transfer_rate(k, lr) != 0:
            z = self._slices(k, due, np.arange(len(due)))
            self._reset(k, due, np.arange(len(due)))
            ones = np.ones(len(due), np.int8)
            lines = np.ones(self._n[1], np.int8)
            self._hand_over(k, due, z, lr, 0.0, ones, ones < 0, lines)

    def _hand_over(
        self,
        k: int,
        due: Events,
        z: Array,
        lr: float,
        rate: Any,
        signs: np.ndarray,
        begins: np.ndarray,
        lines: np.ndarray,
    ) -> None:
        """Read, gather and write the slices z of array k."""
        cell = self.cell
        z = self._read(k, due, z)
        step = cell.transfer_rate(k, lr)
        if cell.BUFFERED:
            d = self._gather(k, due, z, step, rate, signs, begins, lines)
            step = cell.step * cell.devices[k + 1].granularity
        else:
            d = -z
        one_hot = self._one_hot(due.slice)
        x, d = (one_hot, d) if cell.transfer_columns else (d, one_hot)
        number = int(due.number[0])
        stream = self._streams[k + 1]
        self.children[k + 1].write(x, d, step, cell.transfer_update, number, stream)

    def _read(self, k: int, due: Events, z: Array) -> Array:
        """Read slices through the periphery, each by a one-hot input."""
        xp = _device.namespace(z)
        if self._whole or (self._io.exact and self._io.out_scale == 1):
            return xp.ascontiguousarray(z)
        columns, parts = self.cell.transfer_columns, []
        for start in range(0, len(due), _READS):
            part = xp.ascontiguousarray(z[start : start + _READS])
            weight = xp.ascontiguousarray(part.T) if columns else part
            one_hot = self.site.put(np.eye(len(part), dtype=self.site.dtype))
            parts.append(self._product(k, weight, one_hot, int(due.number[start])))
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

    def _gather(
        self,
        k: int,
        due: Events,
        z: Array,
        step: float,
        rate: Any,
        signs: np.ndarray,
        begins: np.ndarray,
        lines: np.ndarray,
    ) -> Array:
        """Put reads in the buffer; give the d of the write."""
        cell, n = self.cell, len(due)
        correct = getattr(cell, "correct_gradient_magnitudes", False)
        kappas = np.empty((n, 2), self.site.dtype)
        kappas[:, 0], kappas[:, 1] = signs, abs(step)
        writes = np.ones(n, bool)
        length = float(cell.transfer_update.desired_bl)
        momentum = float(cell.momentum)
        if isinstance(cell, ChoppedTransfer):
            kappas[:, 1], writes = self._factors(cell, due, abs(step), rate)
            if not (cell.forget_buffer or isinstance(cell, DynamicTransfer)):
                momentum = min(max(momentum, 0.0), 1.0)
            kind = 4 if isinstance(cell, DynamicTransfer) else 3
            rule = Rule(kind, 0.0, length, momentum, cell.forget_buffer, float(not cell.no_buffer))
            if isinstance(cell, DynamicTransfer):
                mu = min(cell.tail_weightening / cell.chop_period, 1.0)
                rule = replace(rule, mu=mu, cap=cell.buffer_cap * length)
        else:
            if not cell.forget_buffer:
                momentum = min(max(momentum, 0.0), 1.0)
            threshold = cell.thres_scale * cell.devices[k + 1].granularity
            rule = Rule(2, threshold, length, momentum, cell.forget_buffer)
        table = np.empty((n, 4), np.int32)
        table[:, 0], table[:, 1] = due.slice, _schedule.following(due.slice)
        first = np.flatnonzero(_schedule.occurrences(due.slice) == 0)
        table[:, 2] = begins * BEGINS + writes * WRITES
        table[first, 2] += FIRST
        table[:, 3] = due.offset
        return transfer_buffer(
            z,
            rule,
            self.site.put(table),
            self.site.put(kappas),
            self._chopped(self._line_sign, lines),
            self._own["buffer"][k],
            (self._own["mean"], self._own["past"]) if "mean" in self._own else None,
            None if isinstance(rate, float) or not correct else rate,
            status=self.site.guard.status,
        )

    def _factors(
        self, cell: ChoppedTransfer, due: Events, step: float, rate: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Give the factor of each read of a chopped array, and whether it may write."""
        threshold, (fast, slow) = cell.threshold(self.site.shape), cell.devices
        kappa = np.full(len(due), step / threshold)
        if cell.correct_gradient_magnitudes:
            kappa[:] = step / (threshold * slow.granularity / fast.granularity)
            kappa /= abs(rate) if isinstance(rate, float) else 1.0
        writes = np.ones(len(due), bool)
        if isinstance(cell, DynamicTransfer):
            passes = due.number // self._n[0]
            writes = passes > cell.chop_period
            if cell.experimental_correct_accumulation:
                cur = passes % cell.chop_period + 1
                kappa /= np.minimum(cur, 1 / fast.granularity)
        return kappa, writes


def _one_hot_io(io: IOParameters) -> IOParameters:
    """Turn off what a one-hot read never uses."""
    return replace(
        io, noise_management=NoiseManagement.NONE, bound_management=BoundManagement.NONE
    )


def _windowed(trains: Trains, keep: np.ndarray, site: Site, *, columns: bool) -> Trains:
    """Silence lines of x (or of d) in the samples where ``keep`` (n_batch, n_line) is False."""
    side = trains.x if columns else trains.d
    mask = site.put(keep.astype(side.dtype))
    mask = mask[:, None] if side.ndim == 3 else mask
    if not columns:
        return replace(trains, d=trains.d * mask)
    made = replace(trains, x=trains.x * mask)
    if trains.x_slices is not None:
        n_batch, n_line = keep.shape
        padded = np.zeros((n_batch, -(-n_line // 32) * 32), np.uint8)
        padded[:, :n_line] = keep
        words = np.packbits(padded, axis=1, bitorder="little").view("<u4")
        made = replace(made, x_slices=trains.x_slices & site.put(words)[:, :, None])
    return made
