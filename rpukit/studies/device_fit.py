"""What a fit of a device model gives: the cell, its errors, its file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rpukit._checks import one_of, takes
from rpukit._files.schema import (
    anything,
    as_format_error,
    listing,
    number,
    optional,
    record,
    setting,
    table,
    text,
)
from rpukit._files.writing import write_text
from rpukit._version import __version__
from rpukit.analog.cells import PulsedCell
from rpukit.analog.tile.state import decode, encode
from rpukit.errors import FormatError
from rpukit.studies.curves import CURVES, FloatArray
from rpukit.studies.measured import ConductanceMap, PulseData
from rpukit.studies.population import Estimate
from rpukit.studies.prediction import Gains, Parameters, gains, open_loop, predict

__all__ = ["DeviceFit", "Overlay", "Ranked", "load_fit"]

_FORMAT, _VERSION = "rpukit.DeviceFit", 1


class Ranked(NamedTuple):
    """One line of a ranking of models.

    Attributes
    ----------
    model : str
    aic : float
        Akaike's information criterion: twice the number of parameters minus twice the logarithm
        of the likelihood. The smallest is the best; a difference of 10 is decisive.
    left_out_error : float or None, microsiemens
        Root mean square error of the response over cycles that were left out of the fit; None
        where there is only one cycle, or where it was not asked for.
    n_parameter : int
    """

    model: str
    aic: float
    left_out_error: float | None
    n_parameter: int


class Overlay(NamedTuple):
    """Measured and fitted response of one device, all arrays of shape (n_read,), microsiemens.

    Attributes
    ----------
    pulse : array
        Number of pulses before each read.
    measured : array
    mean : array
        Mean response of the fit, from the first read of each cycle.
    error : array
        Measured minus predicted from the reads before; 0 at the first read of a cycle.
    deviation : array
        Standard deviation that the fit gives to this error.
    """

    pulse: FloatArray
    measured: FloatArray
    mean: FloatArray
    error: FloatArray
    deviation: FloatArray


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """A device model fitted to measured pulses.

    Attributes
    ----------
    model : str
        Name of the class of cells.
    cell : PulsedCell
        The cell, ready for `AnalogTile`.
    parameters : dict of str to Estimate
        Fitted parameters of the cell, each with ``value`` and ``error``, its standard error, in
        weight units; the error is infinite where the data do not determine the parameter.
    devices : dict of str to dict of str to Estimate
        Parameters of the curve of each device, by its name.
    shared : dict of str to Estimate
        Parameters of the curve that all devices share.
    noise : dict of str to Estimate
        ``step``, the relative noise of a step, and ``read``, the standard deviation of a read
        beyond the read noise of the data, in weight units.
    scale : ConductanceMap
        Relation of conductances and weights.
    ranking : tuple of Ranked
        The models that were fitted, the best first.
    n_read : int
        Number of reads that were fitted.
    source : dict
        Name, SHA-256 and unit of the data.
    version : str
        Version of rpukit that made the fit.
    fits : dict of str to DeviceFit
        The fits of all models by name, in the order of the ranking; not saved in files.
    """

    model: str
    cell: PulsedCell
    parameters: Mapping[str, Estimate]
    devices: Mapping[str, Mapping[str, Estimate]]
    shared: Mapping[str, Estimate]
    noise: Mapping[str, Estimate]
    scale: ConductanceMap
    ranking: tuple[Ranked, ...]
    n_read: int
    source: Mapping[str, str]
    version: str = __version__
    fits: Mapping[str, DeviceFit] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        lines = [f"{self.model} fitted to {self.n_read} reads of {len(self.devices)} devices"]
        lines += [f"  {name:16s} {_shown(e)}" for name, e in self.parameters.items()]
        at = self.scale
        lines.append(f"  weight w is {at.g_zero:.4g} uS + w x {at.g_per_weight:.4g} uS")
        return "\n".join(lines)

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Names of the curve's parameters that the data do not determine, in some device."""
        every = [*self.devices.values(), self.shared]
        names = [name for group in every for name, e in group.items() if not isfinite(e.error)]
        return tuple(dict.fromkeys(names))

    @takes()
    def overlay(self, data: PulseData, device: str | None = None) -> Overlay:
        """Compare the fit with the reads of one device.

        Parameters
        ----------
        data : PulseData
            Those of the fit, or others of the same devices.
        device : str, optional
            Name of the device; default: the first.

        Returns
        -------
        Overlay

        Raises
        ------
        ParameterError

        Examples
        --------
        >>> import rpukit as rk
        >>> data = rk.studies.example_pulses("reram")
        >>> overlay = rk.studies.fit_device(data).overlay(data, "A2")
        >>> bool(abs(overlay.error / overlay.deviation).mean() < 1)
        True
        """
        name = data.devices[0] if device is None else one_of(device, "device", data.devices)
        one_of(name, "device", self.devices)
        rows = data.device == data.devices.index(name)
        cycles = data.cycles(self.scale)
        own = cycles.select(cycles.device == data.devices.index(name))
        own = type(own)(own.read, own.up, np.zeros_like(own.device), own.noise)
        curve, noise = CURVES[self.model], np.array([e.value for e in self.noise.values()])
        parameters = Parameters(
            np.array([[[self.devices[name][k].value for k in curve.local]]]),
            np.array([[e.value for e in self.shared.values()]]),
        )
        known: Gains = gains(curve, parameters, own, noise)
        error = predict(curve, parameters, own, known)[0] * known.deviation
        mean = open_loop(curve, parameters, own, noise)
        seen = ~np.isnan(own.read).T
        first = np.zeros(seen.shape, bool)
        first[1:, 0] = True  # the same read as the last of the cycle before
        seen &= ~first
        factor = self.scale.g_per_weight
        return Overlay(
            data.pulse[rows],
            data.conductance[rows],
            self.scale.conductance(mean.T[seen]),
            factor * error.T[seen],
            factor * known.deviation.T[seen],
        )

    @takes()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a JSON file, which `load_fit` reads.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        SaveError

        Examples
        --------
        >>> import os, tempfile, rpukit as rk
        >>> fit = rk.studies.fit_device(rk.studies.example_pulses("reram"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(os.path.join(folder, "reram.json"))
        """
        plain = {
            "format": _FORMAT,
            "version": _VERSION,
            "rpukit": self.version,
            "source": dict(self.source),
            "g_zero_uS": self.scale.g_zero,
            "g_per_weight_uS": self.scale.g_per_weight,
            "n_read": self.n_read,
            "model": self.model,
            "cell": encode(self.cell),
            "parameters": _plain(self.parameters),
            "devices": {name: _plain(group) for name, group in self.devices.items()},
            "shared": _plain(self.shared),
            "noise": _plain(self.noise),
            "ranking": [list(line) for line in self.ranking],
        }
        write_text(path, json.dumps(plain, indent=1, allow_nan=False) + "\n")


_ESTIMATES = table(record({"value": number(), "error": optional(number(0))}))
_FIELDS = record(
    {
        "format": text(_FORMAT),
        "version": number(_VERSION, _VERSION),
        "rpukit": text(),
        "source": table(text()),
        "g_zero_uS": number(),
        "g_per_weight_uS": number(0),
        "n_read": number(0),
        "model": text(*CURVES),
        "cell": table(setting),
        "parameters": _ESTIMATES,
        "devices": table(_ESTIMATES),
        "shared": _ESTIMATES,
        "noise": _ESTIMATES,
        "ranking": listing(listing(anything, 4)),
    }
)


@takes()
def load_fit(path: str | os.PathLike[str]) -> DeviceFit:
    """Read a fit that `DeviceFit.save` wrote.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    DeviceFit
        Without ``fits``.

    Raises
    ------
    FormatError
        If the file is damaged, or was not written by `DeviceFit.save`.
    OSError

    Examples
    --------
    >>> import os, tempfile, rpukit as rk
    >>> fit = rk.studies.fit_device(rk.studies.example_pulses("reram"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(os.path.join(folder, "reram.json"))
    ...     again = rk.studies.load_fit(os.path.join(folder, "reram.json"))
    >>> again == fit
    True
    """
    raw = Path(path).read_bytes()
    with as_format_error(str(path)):
        plain = _FIELDS(json.loads(raw), "fit")
        cell = decode(plain["cell"], PulsedCell)
        if type(cell).__name__ != plain["model"]:
            raise FormatError(f"cell: got {type(cell).__name__}, need a {plain['model']}")
        local, shared = CURVES[plain["model"]].local, CURVES[plain["model"]].shared
        for group, names in [
            *((d, local) for d in plain["devices"].values()),
            (plain["shared"], shared),
            (plain["noise"], ("step", "read")),
        ]:
            if tuple(group) != tuple(names):
                raise FormatError(f"parameters: got {', '.join(group)}, need {', '.join(names)}")
        return DeviceFit(
            plain["model"],
            cell,
            _estimates(plain["parameters"]),
            {name: _estimates(group) for name, group in plain["devices"].items()},
            _estimates(plain["shared"]),
            _estimates(plain["noise"]),
            ConductanceMap(plain["g_zero_uS"], plain["g_per_weight_uS"]),
            tuple(Ranked(m, float(a), e, int(n)) for m, a, e, n in plain["ranking"]),
            int(plain["n_read"]),
            plain["source"],
            plain["rpukit"],
        )


def _plain(group: Mapping[str, Estimate]) -> dict[str, Any]:
    return {
        name: {"value": e.value, "error": e.error if isfinite(e.error) else None}
        for name, e in group.items()
    }


def _estimates(plain: Mapping[str, Any]) -> dict[str, Estimate]:
    return {
        name: Estimate(float(e["value"]), inf if e["error"] is None else float(e["error"]))
        for name, e in plain.items()
    }


def _shown(estimate: Estimate) -> str:
    known = isfinite(estimate.error)
    return f"{estimate.value:10.4g}" + (f" +- {estimate.error:.2g}" if known else " (not known)")
