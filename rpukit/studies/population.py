"""From the parameters of some devices to a cell: means, spreads from device to device, noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rpukit.analog.cells import (
    ConstantStep,
    ExpStep,
    LinearStep,
    PiecewiseStep,
    PowStep,
    PowStepReference,
    PulsedCell,
    SoftBounds,
    SoftBoundsPmax,
    SoftBoundsReference,
)
from rpukit.studies.curves import Curve, FloatArray
from rpukit.studies.fitting import Found

__all__ = ["CELLS", "Estimate", "cell_of"]

CELLS: Mapping[str, type[PulsedCell]] = {
    kind.__name__: kind
    for kind in (
        ConstantStep,
        LinearStep,
        SoftBounds,
        SoftBoundsPmax,
        SoftBoundsReference,
        ExpStep,
        PowStep,
        PowStepReference,
        PiecewiseStep,
    )
}
_SHARE = 0.99  # of the range of `SoftBoundsPmax` that its pulses cover


class Estimate(NamedTuple):
    """A fitted number and its standard error.

    Attributes
    ----------
    value : float
    error : float
        Infinite where the data do not determine the value.
    """

    value: float
    error: float


def _ratio(a: Estimate, b: Estimate) -> Estimate:
    """Divide independent estimates."""
    ratio = a.value / b.value
    its = ratio * (b.error / b.value) if ratio else 0.0
    return Estimate(ratio, float(np.hypot(a.error / b.value, its)))


def _times(a: Estimate, factor: float) -> Estimate:
    """Multiply by a number that is known."""
    return Estimate(a.value * factor, a.error * abs(factor))


class _Sample(NamedTuple):
    """One parameter of several devices, with standard errors."""

    value: FloatArray
    error: FloatArray

    def mean(self) -> Estimate:
        """Mean over devices, the better known ones with more weight."""
        known = np.isfinite(self.error)
        if not known.any():
            return Estimate(float(self.value.mean()), float("inf"))
        value, error = self.value[known], self.error[known]
        weight = 1 / np.maximum(self.spread().value ** 2 + error**2, 1e-30)
        return Estimate(float((weight * value).sum() / weight.sum()), float(weight.sum() ** -0.5))

    def spread(self) -> Estimate:
        """Standard deviation from device to device, without that of the estimates themselves."""
        known = np.isfinite(self.error)
        n = int(known.sum())
        if n < 2:
            return Estimate(0.0, float("inf"))
        total = float(self.value[known].var(ddof=1))
        left = max(total - float((self.error[known] ** 2).mean()), 0.0)
        return Estimate(float(np.sqrt(left)), float(np.sqrt(total / (2 * (n - 1)))))

    def half(self, other: _Sample, sign: int) -> _Sample:
        """Half the sum or difference of two independent parameters."""
        error = np.hypot(self.error, other.error) / 2
        return _Sample((self.value + sign * other.value) / 2, error)


def _sides(up: _Sample, down: _Sample) -> dict[str, Estimate]:
    """Size, asymmetry and their spreads, of which models make up and down steps."""
    rise, fall = up.mean(), down.mean()
    large, small = (rise, fall) if rise.value >= fall.value else (fall, rise)
    ratio = _ratio(small, large)
    asymmetry = 1 - ratio.value if large is rise else ratio.value - 1
    one = Estimate(large.value, 0.0)
    return {
        "size": large,
        "up_down": Estimate(asymmetry, ratio.error),
        "size_dtod": _ratio(up.half(down, 1).spread(), one),
        "up_down_dtod": _ratio(up.half(down, -1).spread(), one),
    }


def _over(spread: Estimate, mean: Estimate) -> Estimate:
    """Relative spread; its error is that of the spread."""
    return Estimate(abs(spread.value / mean.value), abs(spread.error / mean.value))


def cell_of(curve: Curve, found: Found) -> tuple[PulsedCell, dict[str, Estimate]]:
    """Make the cell of a fit, and list its parameters with their standard errors.

    Parameters
    ----------
    curve : Curve
    found : Found

    Returns
    -------
    cell : PulsedCell
    parameters : dict of str to Estimate
        By the names of the cell; weight units.
    """
    own = {
        name: _Sample(found.local[:, k], found.local_error[:, k])
        for k, name in enumerate(curve.local)
    }
    shared = {
        name: Estimate(float(v), float(e))
        for name, v, e in zip(curve.shared, found.shared, found.shared_error, strict=True)
    }
    if curve.model == "SoftBoundsPmax":
        known = _of_pmax(own)
    else:
        known = _of_steps(curve, own, shared)
    sigma, written = (
        Estimate(float(v), float(e)) for v, e in zip(found.noise, found.noise_error, strict=True)
    )
    known["dw_min_std"] = sigma
    kind = CELLS[curve.model]
    step = known.pop("step")
    if hasattr(kind, "write_noise_std"):
        heard = np.isfinite(written.error)
        noise = _ratio(written, step) if heard else Estimate(0.0, written.error / step.value)
        known["write_noise_std"] = noise
    values: dict[str, Any] = {name: e.value for name, e in known.items()}
    if curve.model == "ExpStep":
        values |= {"a": 0.5, "b": 0.0}
    if curve.model == "LinearStep":
        values["allow_increasing"] = min(values["gamma_up"], values["gamma_down"]) < 0
    for way in ("up", "down") if curve.model == "PiecewiseStep" else ():
        outer = [values.pop(f"piecewise_{way}_{k}") for k in (0, 1, 3, 4)]
        values[f"piecewise_{way}"] = (*outer[:2], 1.0, *outer[2:])
    return kind(**values), known


def _of_steps(
    curve: Curve, own: dict[str, _Sample], shared: dict[str, Estimate]
) -> dict[str, Estimate]:
    """Parameters of models with two bounds and two steps."""
    up, down = own["step_up"], own["step_down"]
    if curve.model == "ExpStep":  # its steps at weight 0 have a factor 1 - A
        up, down = (
            _Sample(s.value / (1 - shared[a].value), s.error / (1 - shared[a].value))
            for s, a in ((up, "A_up"), (down, "A_down"))
        )
    steps = _sides(up, down)
    known = {
        "dw_min": steps["size"],
        "dw_min_dtod": steps["size_dtod"],
        "up_down": steps["up_down"],
        "up_down_dtod": steps["up_down_dtod"],
        "step": steps["size"],
    }
    for name in ("w_max", "w_min"):
        known[name] = own[name].mean()
        known[f"{name}_dtod"] = _over(own[name].spread(), known[name])
    if curve.model == "LinearStep":
        for way, bound in (("up", "w_max"), ("down", "w_min")):
            scale = abs(known[bound].value)
            known[f"gamma_{way}"] = _times(own[f"slope_{way}"].mean(), scale)
            known[f"gamma_{way}_dtod"] = _times(own[f"slope_{way}"].spread(), scale)
    if "gamma_up" in own:
        powers = _sides(own["gamma_up"], own["gamma_down"])
        known["pow_gamma"] = powers["size"]
        known["pow_gamma_dtod"] = powers["size_dtod"]
        known["pow_up_down"] = powers["up_down"]
        known["pow_up_down_dtod"] = powers["up_down_dtod"]
    return known | shared


def _of_pmax(own: dict[str, _Sample]) -> dict[str, Estimate]:
    """Parameters of `SoftBoundsPmax`: of a curve to 99 % of the range."""
    low, span, rate = (own[name] for name in ("range_min", "range", "alpha"))
    alpha = rate.mean()
    high = _Sample(low.value + span.value, np.hypot(low.error, span.error))
    reach = _Sample(low.value + _SHARE * span.value, np.hypot(low.error, _SHARE * span.error))
    dw = _Sample(
        span.value * rate.value, np.hypot(span.error * rate.value, rate.error * span.value)
    )
    p_max = -float(np.log(1 - _SHARE)) / alpha.value
    return {
        "range_min": low.mean(),
        "range_max": reach.mean(),
        "alpha": alpha,
        "p_max": Estimate(p_max, p_max * alpha.error / alpha.value),
        "dw_min_dtod": _over(dw.spread(), dw.mean()),
        "w_max_dtod": _over(high.spread(), high.mean()),
        "w_min_dtod": _over(low.spread(), low.mean()),
        "up_down_dtod": Estimate(0.0, float("inf")),
        "step": dw.mean(),
    }
