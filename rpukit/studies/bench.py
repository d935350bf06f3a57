"""Fit of device models to measured pulses, one or all of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from rpukit._checks import one_of, takes
from rpukit.errors import ParameterError
from rpukit.studies.curves import CURVES, FloatArray
from rpukit.studies.device_fit import DeviceFit, Ranked
from rpukit.studies.fitting import Found, fit_curve, left_out_error
from rpukit.studies.measured import ConductanceMap, PulseData
from rpukit.studies.population import Estimate, cell_of

__all__ = ["fit_device"]

_SAME_CURVES = ("PowStepReference",)  # left out of "all": the curves of another model


@takes()
def fit_device(
    data: PulseData,
    model: Any = "SoftBounds",
    *,
    scale: ConductanceMap | None = None,
    rank: bool | None = None,
) -> DeviceFit:
    """Fit a device model, or several, to measured pulses.

    Parameters
    ----------
    data : PulseData
        From `read_pulses`.
    model : str, class or sequence of these
        A pulsed device model: ``"ConstantStep"``, ``"LinearStep"``, ``"SoftBounds"``,
        ``"SoftBoundsPmax"``, ``"SoftBoundsReference"``, ``"ExpStep"``, ``"PowStep"``,
        ``"PowStepReference"``, ``"PiecewiseStep"``; or ``"all"`` of them but
        `PowStepReference`, which has the curves of `PowStep`.
    scale : ConductanceMap, optional
        Relation of conductances and weights; default: the 1 % and 99 % quantiles of all reads
        are the weights -1 and 1.
    rank : bool, optional
        Whether the error on left-out cycles is computed, which takes about as long as the fit;
        default: if there is more than one model.

    Returns
    -------
    DeviceFit
        That of the model with the smallest AIC; the others are in its ``fits``.

    Raises
    ------
    ParameterError

    Warns
    -----
    RuntimeWarning
        If the data do not determine some parameter: a bound that no device reached, or the steps
        of a direction in which there were no pulses. Such a parameter keeps a first guess.

    Notes
    -----
    Every read is predicted from those before it: the state moves along the mean response, reads
    correct it by the gain of a Kalman filter. The parameters of the mean responses minimise
    Huber's loss of the errors of these predictions in units of their deviations
    (``least_squares`` of SciPy), which are independent where the model is right: standard errors
    come from the Jacobian. The noise of steps and that of reads, each the same in all
    devices, are found by maximum likelihood; both fits are repeated in turn until they settle.
    Spreads from device to device are those of the fitted parameters without their standard
    errors; of n devices, a spread is known to ``1 / sqrt(2 (n - 1))`` of itself.

    Writing noise and read noise cannot be told apart by reads after pulses: what exceeds the
    ``read_noise`` of the data counts as writing noise.

    Examples
    --------
    >>> import rpukit as rk
    >>> data = rk.studies.example_pulses("reram")
    >>> fit = rk.studies.fit_device(data, "SoftBounds")
    >>> tile = rk.AnalogTile((4, 6), fit.cell, seed=1)
    """
    names = _models(model)
    at = data.default_map() if scale is None else scale
    cycles = data.cycles(at)
    wanted = len(names) > 1 if rank is None else rank
    fits = {}
    for name in names:
        curve = CURVES[name]
        found = fit_curve(curve, cycles)
        error = left_out_error(curve, cycles, found) if wanted else None
        error = None if error is None else at.g_per_weight * error
        n = found.local.size + found.shared.size + 2
        line = Ranked(name, 2 * n + 2 * found.cost, error, n)
        fits[name] = _result(data, found, at, line)
    ordered = sorted(fits.values(), key=lambda fit: fit.ranking[0].aic)
    best = ordered[0]
    ranking = tuple(fit.ranking[0] for fit in ordered)
    if best.undetermined:
        warnings.warn(
            f"{best.model}: the data do not determine {', '.join(best.undetermined)} of some "
            "device: no pulses in one direction, or a bound that was not reached",
            RuntimeWarning,
            stacklevel=3,
        )
    kept = {name: getattr(best, name) for name in DeviceFit.__slots__}
    return DeviceFit(**kept | {"ranking": ranking, "fits": {fit.model: fit for fit in ordered}})


def _models(model: Any) -> list[str]:
    """List the names of the models that are meant."""
    if isinstance(model, str) and model == "all":
        return [name for name in CURVES if name not in _SAME_CURVES]
    several = isinstance(model, Sequence) and not isinstance(model, str)
    given = list(model) if several else [model]
    if not given:
        raise ParameterError("model: got none, need a name, several, or 'all'")
    names = [m.__name__ if isinstance(m, type) else m for m in given]
    return list(dict.fromkeys(one_of(name, "model", [*CURVES, "all"]) for name in names))


def _result(data: PulseData, found: Found, scale: ConductanceMap, line: Ranked) -> DeviceFit:
    curve = CURVES[line.model]
    cell, parameters = cell_of(curve, found)
    return DeviceFit(
        line.model,
        cell,
        parameters,
        {
            name: _named(curve.local, found.local[d], found.local_error[d])
            for d, name in enumerate(data.devices)
        },
        _named(curve.shared, found.shared, found.shared_error),
        _named(("step", "read"), found.noise, found.noise_error),
        scale,
        (line,),
        data.pulse.size,
        dict(data.source),
    )


def _named(names: Sequence[str], value: FloatArray, error: FloatArray) -> dict[str, Estimate]:
    pairs = zip(names, value, error, strict=True)
    return {name: Estimate(float(v), float(e)) for name, v, e in pairs}
