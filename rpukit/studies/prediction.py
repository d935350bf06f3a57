"""Prediction of each read from those before it: a Kalman filter along the mean response.

The state is the persistent weight of a device. A pulse changes it by the step of a curve and by
noise relative to that step; a read adds the noise of writing and reading. The errors of the
predictions are independent of one another where the model is right, so that least squares over
them gives honest standard errors; errors of a curve that is simply laid over a measured one are
not, since the noise of the steps adds up along it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np

from rpukit.studies.curves import Columns, Curve, FloatArray

__all__ = ["LIMIT", "Cycles", "Gains", "Parameters", "gains", "open_loop", "predict", "unlikely"]

LIMIT = 3.0  # deviations: a read that is further off counts no more than one at this distance
_LEAST = 5e-4  # deviation of a read at least, weight units: no instrument reads better
_SQRT_2PI = sqrt(2 * pi)


@dataclass(frozen=True, slots=True)
class Cycles:
    """Reads of all cycles side by side, in weight units.

    Attributes
    ----------
    read : array, shape (n_pulse + 1, n_cycle), float64
        Row 0 is before the first pulse of the cycle; NaN where nothing was read.
    up : array, shape (n_pulse, n_cycle), bool
    device : array, shape (n_cycle,), int64
        Number of the device.
    noise : array, shape (n_pulse + 1, n_cycle), float64
        Known standard deviations of reads, 0 where none are known.
    """

    read: FloatArray
    up: FloatArray
    device: FloatArray
    noise: FloatArray

    def select(self, chosen: FloatArray) -> Cycles:
        """Keep some of the cycles."""
        return Cycles(
            self.read[:, chosen], self.up[:, chosen], self.device[chosen], self.noise[:, chosen]
        )


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sets of parameters: ``local`` (n_set, n_device, n_local), ``shared`` (n_set, n_shared)."""

    local: FloatArray
    shared: FloatArray

    def planes(self, curve: Curve, device: FloatArray) -> tuple[Columns, Columns]:
        """Spread parameters over cycles: arrays (n_set, n_cycle) and (n_set, 1)."""
        local = [self.local[:, :, k] for k in range(self.local.shape[2])]
        spread = [plane[:, device] for plane in curve.planes(local)]
        return spread, [self.shared[:, k, None] for k in range(self.shared.shape[1])]


@dataclass(frozen=True, slots=True)
class Gains:
    """What a filter does at each read, for one set of parameters: arrays (n_pulse + 1, n_cycle).

    Attributes
    ----------
    gain : array
        Share of the error of a prediction by which the state is corrected.
    deviation : array
        Standard deviation of that error, weight units.
    spread : array
        Standard deviation of the state after a pulse, before it is held in its bounds.
    """

    gain: FloatArray
    deviation: FloatArray
    spread: FloatArray


def _clipped(
    mean: FloatArray, spread: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Mean of a normal variable that is held in bounds, and what its variance needs."""
    from scipy.special import ndtr

    a, b = (low - mean) / spread, (high - mean) / spread
    below, inside = ndtr(a), ndtr(b)
    above, inside = 1 - inside, inside - below
    at_a, at_b = np.exp(-0.5 * a * a) / _SQRT_2PI, np.exp(-0.5 * b * b) / _SQRT_2PI
    held = low * below + high * above + mean * inside + spread * (at_a - at_b)
    return held, (a, b, below, above, inside, at_a, at_b)


def _variance(
    mean: FloatArray,
    spread: FloatArray,
    bounds: tuple[FloatArray, FloatArray],
    held: FloatArray,
    parts: tuple[FloatArray, ...],
) -> FloatArray:
    """Variance of a normal variable that is held in bounds, whose mean is then ``held``."""
    a, b, below, above, inside, at_a, at_b = parts
    low, high = bounds
    within = (mean**2 + spread**2) * inside + 2 * mean * spread * (at_a - at_b)
    within = within + spread**2 * (a * at_a - b * at_b)
    result: FloatArray = np.maximum(low**2 * below + high**2 * above + within - held**2, 0)
    return result


def predict(
    curve: Curve, parameters: Parameters, cycles: Cycles, known: Gains, *, correct: bool = True
) -> FloatArray:
    """Compute the errors of predictions in units of their deviations.

    Parameters
    ----------
    curve : Curve
    parameters : Parameters
    cycles : Cycles
    known : Gains
        Of one set of parameters, held fixed.
    correct : bool
        Whether reads correct the state; otherwise each cycle is predicted from its first read.

    Returns
    -------
    array, shape (n_set, n_pulse + 1, n_cycle), float64
        0 where nothing was read, and in row 0.
    """
    p, shared = parameters.planes(curve, cycles.device)
    w = np.broadcast_to(cycles.read[0], np.broadcast_shapes(p[0].shape, cycles.read[0].shape))
    out = np.zeros((w.shape[0], *cycles.read.shape))
    gain = known.gain * known.deviation
    for t, up in enumerate(cycles.up):
        w, _ = _clipped(w + curve.step(p, shared, w, up), known.spread[t + 1], p[0], p[1])
        error = (cycles.read[t + 1] - w) / known.deviation[t + 1]
        out[:, t + 1] = error = np.where(np.isnan(error), 0.0, error)
        if correct:
            w = w + gain[t + 1] * np.clip(error, -LIMIT, LIMIT)
    return out


def _filtered(
    curve: Curve, parameters: Parameters, cycles: Cycles, noise: FloatArray
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Run the filter: errors of predictions, gains, deviations, spreads, read by read.

    ``noise`` has shape (n_set, 2): relative noise of a step, and deviation of a read.
    """
    p, shared = parameters.planes(curve, cycles.device)
    shape = (max(p[0].shape[0], len(noise)), cycles.read.shape[1])
    w = np.broadcast_to(cycles.read[0], shape)
    sigma, written = noise[:, :1], np.maximum(noise[:, 1:], _LEAST) ** 2
    reads = written[:, None] + cycles.noise**2
    variance = np.broadcast_to(reads[:, 0], shape)
    small = 1e-5 * (p[1] - p[0])
    for t, up in enumerate(cycles.up):
        dw = curve.step(p, shared, w, up)
        slope = (curve.step(p, shared, w + small, up) - dw) / small
        step_noise = sigma * curve.noise_scale(p, dw, up)
        spread = np.sqrt(np.maximum((1 + slope) ** 2 * variance + step_noise**2, _LEAST**2))
        held, parts = _clipped(w + dw, spread, p[0], p[1])
        variance = _variance(w + dw, spread, (p[0], p[1]), held, parts)
        deviation = np.sqrt(variance + reads[:, t + 1])
        gain = variance / deviation**2
        error = (cycles.read[t + 1] - held) / deviation
        seen = ~np.isnan(error)
        error = np.where(seen, error, 0.0)
        w = held + gain * deviation * np.clip(error, -LIMIT, LIMIT)
        variance = np.where(seen, (1 - gain) * variance, variance)
        yield error, np.where(seen, gain, 0.0), deviation, spread


def gains(curve: Curve, parameters: Parameters, cycles: Cycles, noise: FloatArray) -> Gains:
    """Compute the gains of one set of parameters and one of noise, shape (2,)."""
    rows: list[Any] = list(zip(*_filtered(curve, parameters, cycles, noise[None]), strict=True))
    first = np.ones(cycles.read.shape[1])
    found = [np.concatenate([first[None], np.stack(row)[:, 0]]) for row in rows[1:]]
    return Gains(*found)


def unlikely(
    curve: Curve, parameters: Parameters, cycles: Cycles, noise: FloatArray
) -> FloatArray:
    """Compute the negative logarithm of the likelihood, shape (n_set,).

    Errors have Huber's density: normal up to `LIMIT` deviations, exponential beyond.
    """
    total: Any = 0.0
    for t, (error, _, deviation, _) in enumerate(_filtered(curve, parameters, cycles, noise)):
        size = np.abs(error)
        cost = np.where(size < LIMIT, 0.5 * size**2, LIMIT * (size - LIMIT / 2))
        cost = cost + np.log(deviation * _SQRT_2PI)
        total = total + np.where(np.isnan(cycles.read[t + 1]), 0.0, cost).sum(axis=-1)
    return np.asarray(total)


def open_loop(
    curve: Curve, parameters: Parameters, cycles: Cycles, noise: FloatArray
) -> FloatArray:
    """Compute the mean response of each cycle from its first read, weight units.

    Parameters
    ----------
    curve : Curve
    parameters : Parameters
        One set.
    cycles : Cycles
    noise : array, shape (2,)
        Relative noise of a step, which rounds corners at the bounds, and deviation of a read.

    Returns
    -------
    array, shape (n_pulse + 1, n_cycle), float64
    """
    unseen = np.full_like(cycles.read, np.nan)
    unseen[0] = cycles.read[0]
    blind = Cycles(unseen, cycles.up, cycles.device, cycles.noise)
    p, shared = parameters.planes(curve, cycles.device)
    w, rows = cycles.read[0][None], [cycles.read[0]]
    for up, spread in zip(
        cycles.up, gains(curve, parameters, blind, noise).spread[1:], strict=True
    ):
        w, _ = _clipped(w + curve.step(p, shared, w, up), spread, p[0], p[1])
        rows.append(w[0])
    return np.stack(rows)
