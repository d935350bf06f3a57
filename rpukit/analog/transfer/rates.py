"""Periods and rates of a transfer cell for one learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rpukit._checks import held
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer

_Pair = tuple[tuple[float, float], tuple[bool, bool]]
_ALWAYS = (True, True)


@dataclass(frozen=True, slots=True)
class Rates:
    """Periods and rates of one tile, for one learning rate and size of mini-batches.

    Attributes
    ----------
    cell : Transfer
    periods : tuple of int
        Samples between two transfers of each device; 0 means never.
    fast : float
        Rate of the pulses on the fast array.
    steps : tuple of float
        Rate of the transfer from each device to the next.
    kappas : tuple of float
        Factor of a read of each device, before the division by running values.
    even : bool
        Whether only the first device is transferred.
    """

    cell: Any
    periods: tuple[int, ...]
    fast: float
    steps: tuple[float, ...]
    kappas: tuple[float, ...]
    even: bool

    def factors(self, k: int, passes: int) -> _Pair:
        """Return factors of reads of array k, and whether they write, in two successive passes."""
        cell, kappa = self.cell, self.kappas[k]
        if not isinstance(cell, DynamicTransfer):
            return (kappa, kappa), _ALWAYS
        period, divisors = cell.chop_period, (1.0, 1.0)
        if cell.experimental_correct_accumulation:
            most = 1 / cell.devices[0].granularity
            first, second = (min(p % period + 1, most) for p in (passes, passes + 1))
            divisors = (first, second)
        writes = (passes > period, passes + 1 > period)
        return (held(kappa / divisors[0]), held(kappa / divisors[1])), writes


def rates_of(
    cell: Any, shape: tuple[int, int], lr: float, batch_size: int, *, scales: bool
) -> Rates:
    """Compute periods and rates; with ``scales`` the fast rate varies from sample to sample."""
    fast, periods = held(cell.fast_rate(lr)), tuple(cell.periods(shape, batch_size))
    steps = tuple(held(cell.transfer_rate(k, lr)) for k in range(len(periods)))
    kappas = tuple(abs(step) for step in steps)
    if isinstance(cell, ChoppedTransfer):
        threshold = cell.threshold(shape)
        if cell.correct_gradient_magnitudes:
            fast_g, slow_g = (device.granularity for device in cell.devices)
            threshold = threshold * slow_g / fast_g
        kappas = tuple(held(kappa / threshold) for kappa in kappas)
        if cell.correct_gradient_magnitudes and not scales:
            kappas = tuple(held(kappa / abs(fast)) for kappa in kappas)
    return Rates(cell, periods, fast, steps, kappas, not any(periods[1:]))
