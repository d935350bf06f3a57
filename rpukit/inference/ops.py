"""Ops of inference: programming, and reading after drift."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel
from rpukit._workers import run_rows
from rpukit.random import Stream

Array = Any

_PROGRAM_CONDUCTANCE = Kernel("program_conductance")
_DRIFT_CONDUCTANCE = Kernel("drift_conductance")

_BLOCK = 256
_BLOCKS = 4096  # as many as keep a GPU busy until the end
_GRAIN = 1 << 13  # cells that are worth a thread: normals, logarithms and powers each
_NONE = np.empty(0, np.float32)  # what the mirrors take for an absent array
LAWS = {"none": 0, "power": 1, "additive": 2}  # of what is drawn for drift


def _mirror() -> Any:
    return import_module("rpukit.inference._mirror")


def _grid(n: int) -> tuple[int]:
    """Four cells a thread at a time, in up to four turns where that leaves blocks enough."""
    blocks = -(-n // (_BLOCK * 4))
    return (max(min(blocks, _BLOCKS), -(-blocks // 4)),)


def wide(n: int, *arrays: Array | None) -> int:
    """Whether four neighbours of every row of n can be moved at once."""
    there = (a for a in arrays if a is not None)
    places = (a.data.ptr if _device.is_cupy(a) else a.ctypes.data for a in there)
    return int(n % 4 == 0 and all(place % 16 == 0 for place in places))


def _flat(array: Array | None) -> Array:
    return _NONE if array is None else array.reshape(-1)


@dataclass(frozen=True, slots=True)
class Split:
    """How weights become conductances, on a device: what a converter hands to the kernels.

    Parameters
    ----------
    fit : array, shape (2,), float32
        Scale (microsiemens, or nodes, a weight unit) and shift (weight units).
    planes : array, shape (n_plane, 8), float32
    shares : array, shape (n_plane,), float32
    tables, inverse : array, float32, or None
    """

    fit: Array
    planes: Array
    shares: Array
    tables: Array | None = None
    inverse: Array | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """Shares of devices that hang: at their lowest, at their highest, at any conductance.

    Parameters
    ----------
    at_low, at_high, anywhere : float, 0 to 1
        Their sum is at most 1.
    event : int
        Which draw decides; equal events give the same devices.
    """

    at_low: float = 0.0
    at_high: float = 0.0
    anywhere: float = 0.0
    event: int = 0

    @property
    def bounds(self) -> tuple[np.float32, np.float32, np.float32]:
        """The shares, summed up."""
        low, high = self.at_low, self.at_low + self.at_high
        return np.float32(low), np.float32(high), np.float32(high + self.anywhere)


def program_conductance(
    weight: Array,
    split: Split,
    curves: Array | None,
    *,
    unit: float,
    law: str,
    limits: tuple[float, float],
    nu_scale: float,
    stream: Stream,
    event: int,
    status: Array,
    kinds: tuple[int, int, int] = (0, 0, 0),
    degree: int = 5,
    stuck: Stuck | None = None,
    out: tuple[Array, Array | None] | None = None,
) -> tuple[Array, Array | None]:
    """Split weights over the devices of their cells, and write them with noise.

    Parameters
    ----------
    weight : array, any shape of n cells, float32
    split : Split
    curves : array, float32, or None
        Packed deviation of the written conductance, mean and deviation of the drift coefficient;
        None writes the targets and draws nothing.
    unit : float
        What a conductance is multiplied by before it goes into the curves.
    law : {"none", "power", "additive"}
    limits : tuple of float, microsiemens
    nu_scale : float
    stream : Stream
    event : int
        Number of the programming.
    status : array, shape (1,), int32
    kinds : tuple of int
        Kinds of the three curves.
    degree : int, 0 to 5
        The highest of their polynomials.
    stuck : Stuck, optional
    out : tuple of arrays, optional
        Where the results go.

    Returns
    -------
    conductance : array, shape (n_plane, n), float32, microsiemens
    nu : array, shape (n_plane, n), float32, or None
        Drift coefficients.

    Notes
    -----
    Kernel: kernels_cu/program_conductance.cu.
    """
    n, n_plane = weight.size, split.planes.shape[0]
    noise = curves is not None
    number = LAWS[law] if noise else 0
    device = _device.device_of(weight)
    if out is None:
        conductance = _device.empty((n_plane, n), np.float32, device)
        nu = _device.empty((n_plane, n), np.float32, device) if number else None
    else:
        conductance, nu = out
    stuck_on = stuck is not None
    stuck = stuck or Stuck()
    scalars = (
        np.float32(unit),
        np.float32(limits[0]),
        np.float32(limits[1]),
        np.float32(nu_scale),
        event,
        *stuck.bounds,
        stuck.event,
    )
    table = split.tables is not None
    if _device.runs_kernels(_device.namespace(weight, conductance)):
        args = (n, *scalars, weight, split.fit, split.planes, split.tables, curves)
        macros = {"NOISE": int(noise), "TABLE": int(table), "LAW": number, "STUCK": int(stuck_on)}
        macros |= {"PLANES": n_plane, "WIDE": wide(n, weight, conductance, nu)}
        if noise:
            macros |= dict(zip(("SIGMA", "MEAN", "STD", "DEGREE"), (*kinds, degree), strict=True))
        _PROGRAM_CONDUCTANCE.launch(
            _grid(n),
            (_BLOCK,),
            (*args, conductance, nu, status, *stream.words),
            macros=macros,
        )
    else:
        run_rows(
            _mirror().program_conductance,
            n,
            noise,
            table,
            number,
            stuck_on,
            n,
            n_plane,
            *scalars,
            weight.reshape(-1),
            split.fit,
            split.planes.reshape(-1),
            _flat(split.tables),
            _flat(curves),
            conductance.reshape(-1),
            _flat(nu),
            *stream.words,
            grain=_GRAIN,
        )
    return conductance, nu


@dataclass(frozen=True, slots=True)
class Moment:
    """What drift and reading do at one time: the numbers of a noise model.

    Parameters
    ----------
    law : {"none", "power", "additive"}
    read : {"none", "relative", "absolute"}
    log_ratio : float
        Conductances shrink by ``exp(-nu log_ratio)``.
    mean, std : float, microsiemens
        Of what is added, with the additive law.
    gain : float
        Factor of the noise of reading.
    limits : tuple of float, microsiemens
    """

    law: str = "none"
    read: str = "none"
    log_ratio: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    gain: float = 0.0
    limits: tuple[float, float] = (0.0, float("inf"))


_DRIFTS = {"none": 0, "power": 1, "additive": 2}
_READS = {"none": 0, "relative": 1, "absolute": 2}


def drift_conductance(
    conductance: Array,
    nu: Array | None,
    moment: Moment,
    split: Split,
    curve: Array | None,
    *,
    unit: float,
    stream: Stream,
    sample: int,
    status: Array,
    out: Array,
    kind: int = 0,
    degree: int = 5,
    near: bool = False,
    as_conductance: bool = False,
) -> Array:
    """Read programmed conductances at a moment, as weights or as conductances.

    Parameters
    ----------
    conductance, nu : array, shape (n_plane, n), float32
    moment : Moment
    split : Split
    curve : array, float32, or None
        Packed noise of reading.
    unit : float
    stream : Stream
    sample : int, 0 to 2**48 - 1
        What names the draws of this reading.
    status : array, shape (1,), int32
    out : array, n weights, or n_plane times n conductances, float32
    kind, degree, near : int, int, bool
        Of the curve.
    as_conductance : bool

    Returns
    -------
    array
        `out`.

    Notes
    -----
    Kernel: kernels_cu/drift_conductance.cu.
    """
    n_plane, n = conductance.shape
    law, read = _DRIFTS[moment.law], _READS[moment.read]
    table = split.inverse is not None and not as_conductance
    n_node = split.inverse.size // 2 if split.inverse is not None else 0
    scalars = tuple(
        np.float32(v)
        for v in (unit, moment.log_ratio, moment.mean, moment.std, moment.gain, *moment.limits)
    )
    if _device.runs_kernels(_device.namespace(conductance, out)):
        arrays = (conductance, nu, split.fit, split.shares, split.inverse, curve, out, status)
        _DRIFT_CONDUCTANCE.launch(
            _grid(n),
            (_BLOCK,),
            (n, n_node, *scalars, sample, *arrays, *stream.words),
            macros={
                "LAW": law,
                "READ": read,
                "TABLE": int(table),
                "OUT": int(as_conductance),
                "NOISE": kind if read else 0,
                "DEGREE": degree,
                "NEAR": int(near),
                "PLANES": n_plane,
                "WIDE": wide(n, conductance, nu, out),
            },
        )
    else:
        run_rows(
            _mirror().drift_conductance,
            n,
            law,
            read,
            table,
            as_conductance,
            n,
            n_plane,
            n_node,
            *scalars,
            sample,
            conductance.reshape(-1),
            _flat(nu),
            split.fit,
            split.shares,
            _flat(split.inverse),
            _flat(curve),
            out.reshape(-1),
            *stream.words,
            grain=_GRAIN,
        )
    return out
