"""Mean responses of device models: the formulas of their steps, in float64 NumPy.

A curve has *local* parameters, one of each for every device, and *shared* ones. All arrays
broadcast over the leading axes: many sets of parameters are followed through the pulses at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CURVES", "Curve", "FloatArray"]

FloatArray = Any  # numpy.ndarray of float64
Columns = Sequence[FloatArray]
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean response of a device model, and how its noise depends on the step.

    Parameters
    ----------
    model : str
        Name of the class of cells.
    local : tuple of str
        Parameters of each device. The first four are its bounds and its steps at weight 0, or the
        numbers that `planes` makes them from.
    shared : tuple of str
        Parameters that all devices share.
    step : callable
        ``step(planes, shared, w, up)``: change by one pulse.
    low, high : tuple of float
        Limits of local, then shared parameters.
    starts : tuple of tuple of float
        Values to begin with: of the local parameters after the first four, then of shared ones.
    additive : bool
        Whether the noise of a step has the size of the step at weight 0; otherwise that of the
        step itself.
    planes : callable
        Makes w_min, w_max, step_down, step_up and the rest from local parameters.
    first : callable
        The inverse, for the first four.
    """

    model: str
    local: tuple[str, ...]
    step: Callable[[Columns, Columns, FloatArray, FloatArray], FloatArray]
    low: tuple[float, ...]
    high: tuple[float, ...]
    starts: tuple[tuple[float, ...], ...] = ((),)
    shared: tuple[str, ...] = ()
    additive: bool = False
    planes: Callable[[Columns], Columns] = lambda local: local
    first: Callable[[Columns], Columns] = lambda planes: planes

    def noise_scale(self, planes: Columns, dw: FloatArray, up: FloatArray) -> FloatArray:
        """Size that the relative noise of a step multiplies."""
        return np.where(up, planes[3], planes[2]) if self.additive else np.abs(dw)


def _range(p: Columns) -> FloatArray:
    return np.maximum(p[1] - p[0], _TINY)


def _constant(p: Columns, shared: Columns, w: FloatArray, up: FloatArray) -> FloatArray:
    return np.where(up, p[3], -p[2]) + 0 * w


def _linear(p: Columns, shared: Columns, w: FloatArray, up: FloatArray) -> FloatArray:
    """Steps ``step_up (1 - slope_up w)`` and ``step_down (1 + slope_down w)``."""
    return np.where(up, p[3] * (1 - p[5] * w), -p[2] * (1 + p[4] * w))


def _soft(p: Columns, shared: Columns, w: FloatArray, up: FloatArray) -> FloatArray:
    return np.where(up, p[3] * (1 - w / p[1]), -p[2] * (1 - w / p[0]))


def _power(p: Columns, shared: Columns, w: FloatArray, up: FloatArray) -> FloatArray:
    left = np.where(up, p[1] - w, w - p[0]) / _range(p)
    factor = np.maximum(left, _TINY) ** np.where(up, p[5], p[4])
    return np.where(up, p[3], -p[2]) * factor


def _exponential(p: Columns, shared: Columns, w: FloatArray, up: FloatArray) -> FloatArray:
    """Steps by ``1 - A exp(+-gamma z)``, ``z = w / (w_max - w_min)``, relative to z = 0."""
    size: Any = np.where(up, shared[1], shared[0])
    rate = np.where(up, shared[3], -shared[2])
    factor = (1 - size * np.exp(rate * np.clip(w / _range(p), -2, 2))) / (1 - size)
    return np.where(up, p[3], -p[2]) * np.maximum(factor, 0)


def _piecewise(p: Columns, shared: Columns, w: FloatArray, up: FloatArray) -> FloatArray:
    """Steps relative to that in the middle of the range, with straight lines between nodes."""
    one = np.ones_like(shared[0])
    down = np.stack(np.broadcast_arrays(*shared[:2], one, *shared[2:4]))
    rise = np.stack(np.broadcast_arrays(*shared[4:6], one, *shared[6:8]))
    at = np.clip((w - p[0]) / _range(p), 0, 1) * (len(rise) - 1)
    factor: Any = 0.0
    for k, (one_up, one_down) in enumerate(zip(rise, down, strict=True)):
        factor = factor + np.where(up, one_up, one_down) * np.maximum(1 - np.abs(at - k), 0)
    return np.where(up, p[3], -p[2]) * factor


def _from_curve(local: Columns) -> Columns:
    """Bounds and steps of `SoftBoundsPmax` from its lower bound, its range and its rate."""
    low, span, rate = local
    up_down = 1 + 2 * low / span
    dw = span * rate
    up, down = dw * (1 + np.minimum(up_down, 0)), dw * (1 - np.maximum(up_down, 0))
    return low, low + span, down, up


_FOUR = ("w_min", "w_max", "step_down", "step_up")
_LOW, _HIGH = (-30.0, 0.02, 1e-7, 1e-7), (-0.02, 30.0, 3.0, 3.0)
_NODES = tuple(f"piecewise_{way}_{k}" for way in ("down", "up") for k in (0, 1, 3, 4))

CURVES = {
    curve.model: curve
    for curve in (
        Curve("ConstantStep", _FOUR, _constant, _LOW, _HIGH),
        Curve(
            "LinearStep",
            (*_FOUR, "slope_down", "slope_up"),
            _linear,
            (*_LOW, -5.0, -5.0),
            (*_HIGH, 5.0, 5.0),
            ((0.1, 0.1), (0.6, 0.6)),
        ),
        Curve("SoftBounds", _FOUR, _soft, _LOW, _HIGH),
        Curve(
            "SoftBoundsPmax",
            ("range_min", "range", "alpha"),
            _soft,
            (-30.0, 0.04, 1e-7),
            (-0.02, 60.0, 2.0),
            planes=_from_curve,
            first=lambda p: (p[0], p[1] - p[0], (p[2] + p[3]) / 2 / (p[1] - p[0])),
        ),
        Curve("SoftBoundsReference", _FOUR, _soft, _LOW, _HIGH, additive=True),
        Curve(
            "ExpStep",
            _FOUR,
            _exponential,
            (*_LOW, -200.0, -200.0, -15.0, -15.0),
            (*_HIGH, 0.98, 0.98, 15.0, 15.0),
            ((-0.1, -0.1, -5.0, -5.0), (0.3, 0.3, 2.0, 2.0)),
            shared=("A_down", "A_up", "gamma_down", "gamma_up"),
        ),
        Curve(
            "PowStep",
            (*_FOUR, "gamma_down", "gamma_up"),
            _power,
            (*_LOW, 0.0, 0.0),
            (*_HIGH, 10.0, 10.0),
            ((1.0, 1.0), (2.0, 2.0)),
        ),
        Curve(
            "PowStepReference",
            (*_FOUR, "gamma_down", "gamma_up"),
            _power,
            (*_LOW, 0.0, 0.0),
            (*_HIGH, 10.0, 10.0),
            ((1.0, 1.0), (2.0, 2.0)),
        ),
        Curve(
            "PiecewiseStep",
            _FOUR,
            _piecewise,
            (*_LOW, *(0.0,) * 8),
            (*_HIGH, *(30.0,) * 8),
            ((1.0,) * 8, (0.3, 0.6, 1.4, 1.8, 1.8, 1.4, 0.6, 0.3)),
            shared=_NODES,
        ),
    )
}
