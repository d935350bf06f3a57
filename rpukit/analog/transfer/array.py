"""Weight arrays of the transfer family: a fast array and slower ones.

Counters alone decide which slice of the fast array is read after which sample of a batch. A batch
is cut into parts in which no slice is read twice. Each part takes a fixed number of launches: the
choppers set the signs of the samples, each read replays the pulses of its slice up to its sample
and goes through the buffer into the slow array, then the fast array learns all samples at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import held
from rpukit._kernels import clock
from rpukit._kernels.replay import Replays
from rpukit.analog.arrays.base import ArrayContext
from rpukit.analog.arrays.compound import ARRAY_CLASSES, CompoundArray
from rpukit.analog.arrays.compound_ops import combine_devices
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.analog.cells.transfer import Transfer
from rpukit.analog.deferred_errors import check_finite
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.product.ops import ForwardState, tile_forward
from rpukit.analog.transfer import schedule as _schedule
from rpukit.analog.transfer.choppers import Choppers
from rpukit.analog.transfer.ops import auto_scale, sample_maxima, transfer_read, transfer_write
from rpukit.analog.transfer.rates import Rates, rates_of
from rpukit.analog.transfer.reads import Reading, Replay, one_hot_io
from rpukit.analog.transfer.schedule import Events
from rpukit.analog.update.ops import pulse_trains
from rpukit.analog.update.trains import Trains

Array = Any
_MOST_KNOWN = 64  # learning rates
_MOST_EVENTS = 65535  # reads of one launch
_FEW_EVENTS = 16  # reads of a part on a CPU, where launches are cheap and replaying pulses is not
_KEPT = 1 << 18  # inputs of a batch whose trains are kept for the next
_READS = 64  # slices multiplied at once if reads are products
_WRITES = 0  # child stream of a device for its own reads and writes
_NESTED = 1 << 21  # the same for a compound cell, whose devices have the first streams
_SELECT = 1 << 20  # child stream for choppers and random slices
_captured: list[Any] = []  # arrays that captured graphs still use


class TransferArray(CompoundArray):
    """A fast array and slower ones (`Transfer` and its subclasses)."""

    def __init__(self, cell: Transfer, context: ArrayContext) -> None:
        self._choppers: Choppers | None = None
        self._hidden = cell.hidden
        super().__init__(cell, context)
        n_device = len(self.children)
        context.start(*(f"transfers_{k}" for k in range(n_device)))
        self._n = cell.slices(context.shape)
        self._reads = cell.reads(context.tile_shape)
        self._select = context.stream.child(_SELECT)
        self._random = self._select if cell.random_selection else None
        self._io = one_hot_io(cell.transfer_forward)
        # The whole array is read if other lines add noise or the position of a line matters;
        # if wires are not ideal, it is read by a product.
        self._whole = not self._io.exact and (self._io.inp_noise > 0 or self._io.ir_drop > 0)
        self._apart = self._whole or not (self._io.exact or self._io.ideal_wires)
        self._nested = [not isinstance(child, DeviceArray) for child in self.children]
        self._streams = [
            child.context.stream.child(_NESTED if nested else _WRITES)
            for child, nested in zip(self.children, self._nested, strict=True)
        ]
        self._states = [
            ForwardState(
                self._io,
                self._n[1],
                stream,
                context.device,
                transposed=not cell.transfer_columns,
                dtype=context.dtype,
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
            self._choppers = Choppers(cell, self._select, context, self._n)
            self._own.update(self._choppers.arrays())
        self._corrects = getattr(cell, "correct_gradient_magnitudes", False)
        # A compound fast device learns like a separate tile: no pulses are replayed on it.
        drawn = cell.random_selection or cell.with_reset_prob > 0
        one = not (self._apart or drawn or any(self._nested))
        self._even = one and not getattr(cell, "out_chop_prob", 0.0) > 0
        # A batch is cut only where slices are read again, or after so many reads.
        kernels = _device.takes_kernels(self.weight)
        most = min(self._n[0], _MOST_EVENTS if kernels else _FEW_EVENTS)
        self._most = max(1, most // self._reads) * self._reads
        self._trains: Trains | None = None  # of the last part, to be reused
        self._known: dict[tuple[float, int], Rates] = {}
        self._parameters: UpdateParameters | None = None  # of the replayed launches
        self._repeats = Replays()
        self._cells = [child.record for child in self.children]
        self._readings = [
            Reading.of(cell, k, self._io, state, stream, self._own)
            for k, (state, stream) in enumerate(zip(self._states, self._streams, strict=True))
            if k + 1 < n_device
        ]
        if self._hidden:
            self.weight = self.children[-1].weight

    def _zeros(self, *shape: int) -> Array:
        return _device.zeros(shape, self.context.dtype, self.context.device)

    @staticmethod
    def _child(part: Any, context: ArrayContext, weight: Array) -> Any:
        make = ARRAY_CLASSES.get(type(part), DeviceArray)
        return make(part, context, weight)

    def combine(self) -> None:
        if self._hidden:
            return
        signs: tuple[Array | None, Array | None] = (None, None)
        if self._choppers is not None:
            signs = (self._choppers.lines, self._choppers.slices)
            signs = signs if self.cell.transfer_columns else signs[::-1]
        status = self.context.guard.status
        combine_devices(self.weight, self._stack, self._gamma, signs, status=status)

    def arrays(self) -> dict[str, Array]:
        return {**super().arrays(), **self._own}

    def store(self, array: Array) -> None:
        *fast, slow = self.children
        for child in fast:
            child.store(self._zeros(*self.context.shape))
        gamma = self.context.dtype.type(self.cell.weights_of_parts()[-1])
        slow.store(array if gamma == 1 else array / gamma)
        self.combine()

    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        rate = held(abs(self.cell.fast_rate(lr)))
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
        n, rates = len(x), self._rates_of(lr, batch_size)
        due = self._events(0, rates.periods[0], first_sample, n)
        call = self.context.guard.begin("x or d")
        self.context.changing()
        whole = rates.even and self._even and due.n <= self._most and not parameters.exact
        if whole or n == 1:
            self.context.tick("transfers_0", due.n)

            def learn() -> None:
                self._learn(x, d, rates, parameters, first_sample, batch_size, due, call)
                self._move_on(rates, first_sample + n)
                self.combine()

            if whole and self._comes_again(x, d, parameters):
                key = (n, due.n, due.offset < n - 1, id(rates))
                numbers = self._numbers(due, rates, first_sample, call)
                self._repeats.run(key, (x, d), numbers, learn)
            else:
                learn()
            return
        # Checked before the first part is learnt, so that a bad sample changes nothing.
        for array in (x, d):
            check_finite(array, status=self.context.guard.status, call=call)
        start = 0
        for end in self._ends(due, rates.periods, first_sample, n, parameters):
            part, first = slice(start, end), first_sample + start
            due = self._events(0, rates.periods[0], first, end - start)
            self.context.tick("transfers_0", due.n)
            self._learn(x[part], d[part], rates, parameters, first, batch_size, due, call)
            self._move_on(rates, first_sample + end)
            start = end
        self.combine()

    def _comes_again(self, x: Array, d: Array, parameters: UpdateParameters) -> bool:
        """Whether the launches of a batch may be replayed: only small ones, bound by the host."""
        whole = not self.context.tile_rows  # else trains are cut between launches
        small = whole and x.size + d.size <= _KEPT and x is not d
        if not small or self.cell.transfer_update.implicit or not _device.takes_kernels(x):
            return False
        if parameters is not self._parameters:
            self._parameters, self._repeats = parameters, Replays()
        return True

    def _numbers(
        self, due: Events, rates: Rates, first_sample: int, call: int
    ) -> dict[str, float]:
        """Return the arguments that change from batch to batch, by their names in the kernels."""
        flips = self._choppers.regular(due) if self._choppers is not None else (False, False)
        kappas, writes = rates.factors(0, due.number // self._n[0])
        return {
            "call": call,
            "first_sample": first_sample,
            "offset": due.offset,
            "first_slice": due.first_slice,
            "number": due.number,
            "regular_0": flips[0],
            "regular_1": flips[1],
            "kappa_0": kappas[0],
            "kappa_1": kappas[1],
            "writes": writes[0] + 2 * writes[1],
        }

    def _rates_of(self, lr: float, batch_size: int) -> Rates:
        key = (lr, batch_size)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
                self._repeats = Replays()
            shape, scales = self.context.tile_shape, self._scales
            self._known[key] = rates_of(self.cell, shape, lr, batch_size, scales=scales)
        return self._known[key]

    def _ends(
        self,
        due: Events,
        periods: tuple[int, ...],
        first_sample: int,
        n: int,
        parameters: UpdateParameters,
    ) -> list[int]:
        """Cut a batch where slow arrays are read, and where the fast one must have learnt."""
        ends = {n}
        for period in periods[1:]:
            if period:
                ends.update(range(period - first_sample % period, n + 1, period))
        n_transfer = due.n // due.reads
        if self._apart or self._nested[0] or parameters.exact:
            last = range(n_transfer)
        else:  # samples after which a slice is read again
            most = self._most // due.reads
            last = range(most - 1, n_transfer, most)
        ends.update(due.offset + t * due.period + 1 for t in last)
        if self.cell.random_selection or self.cell.with_reset_prob > 0:
            ends.update(self._random_ends(due))
        if self._choppers is not None and self.cell.out_chop_prob > 0:
            n_slice = self._n[0]
            passes = range(n_slice - 1 - due.first_slice, due.n, n_slice)
            ends.update(due.offset + t * due.period + 1 for t in passes)
        return sorted(ends)

    def _random_ends(self, due: Events) -> set[int]:
        """Cut a batch before a drawn slice is read again, and after a slice is reset."""
        slices = _schedule.slices_of(due, self._n[0], self._random)
        before = _schedule.repeats(slices, due.reads) if self._random else []
        after = {t // due.reads for t in self._resets(0, due).tolist()}
        last = {t - 1 for t in before} | after
        return {due.offset + t * due.period + 1 for t in last}

    def _events(self, k: int, period: int, first_sample: int, n: int) -> Events:
        number = int(self.context.clocks[f"{self.context.prefix}transfers_{k}"])
        return _schedule.events(period, first_sample, n, number, self._reads, self._n[0])

    def _learn(
        self,
        x: Array,
        d: Array,
        rates: Rates,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
        due: Events,
        call: int,
    ) -> None:
        """Pulse a part of a batch into the fast array, and transfer the slices read meanwhile."""
        if due.n and rates.steps[0] == 0:
            due = replace(due, n=0)
        fast, rate, running = self.children[0], rates.fast, None
        if self._scales:
            running = self._scaled(x, d, rate, parameters, batch_size, call)
        turns = None
        if self._choppers is not None and self.cell.transfer_columns:
            x, d, turns = self._choppers.turn(x, d, due)
        elif self._choppers is not None:
            d, x, turns = self._choppers.turn(d, x, due)
        trains = pulse_trains(
            x,
            d,
            abs(rate),
            self.granularity,
            parameters,
            stream=self.context.stream,
            first_sample=first_sample,
            status=self.context.guard.status,
            call=call,
            rates=running,
            into=self._trains,
        )
        self._trains = trains if trains.key and x.size + d.size <= _KEPT else None
        trains = trains.of_rows(self.context.first_row, self.context.shape[0])
        ahead = due.n > 0 and due.offset < len(x) - 1  # reads precede the last pulses of the part
        replay = Replay(trains, rate < 0, fast.context.stream, first_sample) if ahead else None
        if not ahead:
            more = {"batch_size": batch_size} if self._nested[0] else {}
            fast.pulse(trains, rate < 0, first_sample, **more)
        written = self._transfer(0, due, rates, running, turns, replay) if due.n else None
        if ahead:
            fast.pulse(trains, rate < 0, first_sample)
        self._reset(0, due)
        if self._choppers is not None:
            self._choppers.flip_lines(due)
        self._keep(x, d, running, turns, written)

    def _keep(self, *arrays: Array) -> None:
        if self.context.device.kind == "gpu" and clock.capturing():
            _captured.extend(arrays)

    def _scaled(
        self,
        x: Array,
        d: Array,
        rate: float,
        parameters: UpdateParameters,
        batch_size: int,
        call: int,
    ) -> Array:
        """Compute the rate of each sample from the running maxima of x and d."""
        cell, status = self.cell, self.context.guard.status
        factor = abs(rate) * parameters.desired_bl * cell.devices[0].granularity
        t = (1 - cell.auto_momentum) / batch_size
        maxima = sample_maxima(x, d, status=status, call=call)
        rates = auto_scale(maxima, factor, t, self._own["running"], status=status)
        self._keep(maxima)
        return rates

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

    def _move_on(self, rates: Rates, sample: int) -> None:
        """Transfer the next slices of each slow array whose transfer is due at this sample."""
        for k, period in enumerate(rates.periods[1:], start=1):
            if not period or sample % period:
                continue
            due = self._events(k, 1, 0, 1)
            self.context.tick(f"transfers_{k}", due.n)
            if k + 1 < len(self.children) and rates.steps[k] != 0:
                self._keep(self._transfer(k, due, rates, None, None, None))
                self._reset(k, due)

    def _transfer(
        self,
        k: int,
        due: Events,
        rates: Rates,
        running: Array | None,
        turns: Array | None,
        replay: Replay | None,
    ) -> Array:
        """Read slices of array k and write the buffered result to the next array; return it."""
        cell, status, z = self.cell, self.context.guard.status, None
        if self._apart or self._random is not None:
            slices = _schedule.slices_of(due, self._n[0], self._random)
            z = self._products(k, due, slices) if self._apart else None
            if self._random is not None:
                due = replace(due, slices=self.context.put(slices.astype(np.int32)))
        kappas, writes = rates.factors(k, due.number // self._n[0])
        d = transfer_read(
            self._cells[k],
            self._readings[k],
            due,
            kappas,
            writes,
            replay=replay,
            turns=turns,
            line_sign=self._choppers.lines if self._choppers is not None else None,
            rates=running if self._corrects else None,
            z=z,
            status=status,
        )
        step = cell.step * cell.devices[k + 1].granularity if cell.BUFFERED else rates.steps[k]
        stream, columns, update = self._streams[k + 1], cell.transfer_columns, cell.transfer_update
        if z is not None or due.slices is not None:
            self._keep(z, due.slices)
        if not (update.implicit or self._nested[k + 1]):
            to = self._cells[k + 1]
            transfer_write(to, d, due, step, update, columns=columns, stream=stream, status=status)
            return d
        one_hot = self._one_hot(_schedule.slices_of(due, self._n[0], self._random))
        sides = (one_hot, d) if columns else (d, one_hot)
        if self._nested[k + 1]:
            self.children[k + 1].update(*sides, step, update, due.number, 1)
        else:
            self.children[k + 1].write(*sides, step, update, due.number, stream)
        return d

    def _one_hot(self, which: np.ndarray) -> Array:
        """Make a one-hot input for each slice, shape (n, n_slice)."""
        made = np.zeros((len(which), self._n[0]), self.context.dtype)
        made[np.arange(len(which)), which] = 1
        return self.context.put(made)

    def _products(self, k: int, due: Events, slices: np.ndarray) -> Array:
        """Read slices by products with the whole array, or with these slices only."""
        weight, columns = self.children[k].weight, self.cell.transfer_columns
        if self._whole:
            return self._product(k, weight, self._one_hot(slices), due.number)
        xp, parts = _device.namespace(weight), []
        for start in range(0, due.n, _READS):
            index = self.context.put(slices[start : start + _READS])
            part = xp.ascontiguousarray(weight[:, index] if columns else weight[index])
            one_hot = self.context.put(np.eye(len(index), dtype=self.context.dtype))
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
            status=self.context.guard.status,
            call=self.context.guard.begin("transfer"),
        )
