"""Weight array with a digital array that accumulates gradients (`MixedPrecision`).

A batch is cut where rows are transferred. The rows of a transfer are one batch of one-hot updates
of the devices, in which each cell gets pulses from one sample only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rpukit import _device
from rpukit.analog.arrays.base import ArrayContext, WeightArray
from rpukit.analog.arrays.compound import CompoundArray
from rpukit.analog.arrays.mixed_precision_ops import quantise_rows, take_pulses
from rpukit.analog.cells.compound import OneSided
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.deferred_errors import check_finite
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.update.ops import rank_update
from rpukit.elementwise import random_fill
from rpukit.errors import ParameterError
from rpukit.random import Op

Array = Any
_SELECT = 1 << 20  # child stream for random rows
_ROW = 2  # draw of op CHOPPER


class MixedPrecisionArray(CompoundArray):
    """A digital array that accumulates gradients for an array of devices.

    Parameters
    ----------
    cell : MixedPrecision
    context : ArrayContext
    child : WeightArray
        The array of the devices, with child 0 of the context.
    """

    def __init__(self, cell: MixedPrecision, context: ArrayContext, child: WeightArray) -> None:
        self.cell, self.context = cell, context
        self.child, self.children = child, [child]
        self.granularity = 0.0  # no trains are made from samples
        self.weight = child.weight
        self._chi = _device.zeros(context.shape, context.dtype, context.device)
        self._select = context.stream.child(_SELECT)
        context.start("transfers")

    def combine(self) -> None:
        """Do nothing: the visible weight is that of the devices."""

    def arrays(self) -> dict[str, Array]:
        return {**super().arrays(), "chi": self._chi}

    def store(self, array: Array) -> None:
        self.child.store(array)

    def check_rate(self, lr: float, parameters: UpdateParameters) -> None:
        noisy = any(part.write_noise for part in self.cell.parts())
        if parameters.exact and (noisy or isinstance(self.cell.device, OneSided)):
            raise ParameterError(
                "pulse_type: an update without pulses (NONE) needs devices without write noise "
                "that are pulsed up and down; use DETERMINISTIC_IMPLICIT"
            )

    def update(
        self,
        x: Array,
        d: Array,
        lr: float,
        parameters: UpdateParameters,
        first_sample: int,
        batch_size: int,
    ) -> None:
        guard, n = self.context.guard, len(x)
        call = guard.begin("x or d")
        for array in (x, d):
            check_finite(array, status=guard.status, call=call)
        x = self._quantised(x, Op.UPDATE_X, first_sample)
        d = self._quantised(d, Op.UPDATE_D, first_sample)
        period, start = self.cell.transfer_every * batch_size, 0
        due = range(-first_sample % period, n, period) if period else range(0)
        ends = [t + 1 for t in due if first_sample + t > 0]
        self.context.changing()
        for end in sorted({*ends, n}):
            rank_update(self._chi, x[start:end], d[start:end], -lr, status=guard.status)
            if end in ends:
                self._transfer(parameters)
            start = end

    def _quantised(self, v: Array, op: Op, first_sample: int) -> Array:
        cell, of_x = self.cell, op is Op.UPDATE_X
        n_bins = cell.n_x_bins if of_x else cell.n_d_bins
        if n_bins == 0:
            return v
        return quantise_rows(
            v,
            n_bins,
            op=op,
            stochastic=cell.stoc_round_x if of_x else cell.stoc_round_d,
            stream=self.context.stream,
            first_sample=first_sample,
            status=self.context.guard.status,
        )

    def _transfer(self, parameters: UpdateParameters) -> None:
        """Write whole pulses of the next rows to the devices."""
        cell, n_out = self.cell, self.context.shape[0]
        n_row, step = cell.rows(self.context.shape), cell.pulse
        number = self.context.tick("transfers", n_row)
        first = number % n_out
        if cell.random_row:
            u = random_fill(
                self._select, (1,), "uniform", op=Op.CHOPPER, sample=number // n_row, draw=_ROW
            )
            first = int(float(u[0]) * n_out)
        pulses, line = take_pulses(self._chi, first, n_row, step, status=self.context.guard.status)
        managed = replace(parameters, update_management=True, update_bl_management=True)
        self.child.update(pulses, line, cell.transfer_lr * step, managed, number, n_row)
