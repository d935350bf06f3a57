"""Ops of conductances: programming, and reading after drift."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._checks import held
from rpukit._kernels import Kernel
from rpukit._workers import run_rows
from rpukit.inference.conductance.records import Moment, ReadNoise, Split, Stuck, WriteNoise
from rpukit.random import Stream

Array = Any

_PROGRAM_CONDUCTANCE = Kernel("program_conductance")
_DRIFT_CONDUCTANCE = Kernel("drift_conductance")

_BLOCK = 256
_BLOCKS = 4096  # as many as keep a GPU busy until the end
_GRAIN = 1 << 13  # cells per thread, at least: each needs normals, logarithms and powers
_NONE = np.empty(0, np.float32)  # stands for an absent array in the mirrors
LAWS = {"none": 0, "power": 1, "additive": 2}  # of what is drawn for drift


def _mirror() -> Any:
    return import_module("rpukit.inference._mirror")


def _grid(n: int) -> tuple[int]:
    """Launch grid: four cells per thread at a time, up to four times if blocks remain enough."""
    blocks = -(-n // (_BLOCK * 4))
    return (max(min(blocks, _BLOCKS), -(-blocks // 4)),)


def wide(n: int, *arrays: Array | None) -> int:
    """Whether four neighbours of every row of n can be loaded and stored at once."""
    there = (a for a in arrays if a is not None)
    places = (a.data.ptr if _device.is_cupy(a) else a.ctypes.data for a in there)
    return int(n % 4 == 0 and all(place % 16 == 0 for place in places))


@dataclass(frozen=True, slots=True)
class Part:
    """Which cells of a tile an array has: some rows, or some columns.

    Parameters
    ----------
    first_cell : int
        Number of the first cell in the tile; a multiple of 4, since four cells share draws.
    width, pitch : int
        Columns of the array and of the tile, multiples of 4; 0: rows are whole.
    """

    first_cell: int = 0
    width: int = 0
    pitch: int = 0

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Arguments of the kernels."""
        return self.first_cell, self.width, self.pitch

    @property
    def macros(self) -> dict[str, Any]:
        return {"BY_COLUMNS": 1} if self.pitch else {}


WHOLE = Part()


def _run(mirror: Any, part: Part, n: int, how: tuple[Any, ...], *args: Any) -> None:
    """Run a mirror on n cells, row by row where these are some columns of a tile."""
    if not part.pitch:
        run_rows(mirror, n, *how, part.first_cell, *args, grain=_GRAIN)
        return
    for row, first in enumerate(range(0, n, part.width)):
        base = part.first_cell + row * (part.pitch - part.width)
        mirror(first, first + part.width, *how, base, *args)


def _flat(array: Array | None) -> Array:
    return _NONE if array is None else array.reshape(-1)


def program_conductance(
    weight: Array,
    split: Split,
    noise: WriteNoise,
    *,
    stream: Stream,
    event: int,
    status: Array,
    stuck: Stuck | None = None,
    out: tuple[Array, Array | None] | None = None,
    part: Part = WHOLE,
) -> tuple[Array, Array | None]:
    """Split weights over the devices of their cells, and write them with noise.

    Parameters
    ----------
    weight : array, any shape of n cells, float32
    split : Split
    noise : WriteNoise
    stream : Stream
    event : int
        Number of the programming.
    status : array, shape (1,), int32
    stuck : Stuck, optional
    out : tuple of arrays, optional
        Where the results go.
    part : Part, optional
        Which cells of a tile these are; default: all.

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
    noisy = noise.curves is not None
    number = LAWS[noise.law] if noisy else 0
    device = _device.device_of(weight)
    if out is None:
        conductance = _device.empty((n_plane, n), np.float32, device)
        nu = _device.empty((n_plane, n), np.float32, device) if number else None
    else:
        conductance, nu = out
    stuck_on = stuck is not None
    stuck = stuck or Stuck()
    scalars = (
        np.float32(noise.unit),
        *map(np.float32, map(held, noise.limits)),
        np.float32(noise.nu_scale),
        event,
        *stuck.bounds,
        stuck.event,
    )
    table = split.tables is not None
    if _device.runs_kernels(_device.namespace(weight, conductance)):
        args = (
            n,
            *part.numbers,
            *scalars,
            weight,
            split.fit,
            split.planes,
            split.tables,
            noise.curves,
        )
        macros = {"NOISE": int(noisy), "TABLE": int(table), "LAW": number, "STUCK": int(stuck_on)}
        macros |= {"PLANES": n_plane, "WIDE": wide(n, weight, conductance, nu)}
        macros |= part.macros
        if noisy:
            forms = (*noise.kinds, noise.degree)
            macros |= dict(zip(("SIGMA", "MEAN", "STD", "DEGREE"), forms, strict=True))
        _PROGRAM_CONDUCTANCE.launch(
            _grid(n),
            (_BLOCK,),
            (*args, conductance, nu, status, *stream.words),
            macros=macros,
        )
    else:
        _run(
            _mirror().program_conductance,
            part,
            n,
            (noisy, table, number, stuck_on, n),
            n_plane,
            *scalars,
            weight.reshape(-1),
            split.fit,
            split.planes.reshape(-1),
            _flat(split.tables),
            _flat(noise.curves),
            conductance.reshape(-1),
            _flat(nu),
            *stream.words,
        )
    return conductance, nu


_DRIFTS = {"none": 0, "power": 1, "additive": 2}
_READS = {"none": 0, "relative": 1, "absolute": 2}


def drift_conductance(
    conductance: Array,
    nu: Array | None,
    moment: Moment,
    split: Split,
    noise: ReadNoise,
    *,
    stream: Stream,
    sample: int,
    status: Array,
    out: Array,
    as_conductance: bool = False,
    part: Part = WHOLE,
) -> Array:
    """Read programmed conductances at one time, as weights or as conductances.

    Parameters
    ----------
    conductance, nu : array, shape (n_plane, n), float32
    moment : Moment
    split : Split
    noise : ReadNoise
    stream : Stream
    sample : int, 0 to 2**48 - 1
        Coordinate of the draws of this reading.
    status : array, shape (1,), int32
    out : array, n weights, or n_plane times n conductances, float32
    as_conductance : bool
    part : Part, optional
        Which cells of a tile these are; default: all.

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
        for v in (
            noise.unit,
            moment.log_ratio,
            moment.mean,
            moment.std,
            moment.gain,
            *map(held, moment.limits),
        )
    )
    if _device.runs_kernels(_device.namespace(conductance, out)):
        arrays = (
            conductance,
            nu,
            split.fit,
            split.shares,
            split.inverse,
            noise.curve,
            out,
            status,
        )
        _DRIFT_CONDUCTANCE.launch(
            _grid(n),
            (_BLOCK,),
            (n, *part.numbers, n_node, *scalars, sample, *arrays, *stream.words),
            macros={
                "LAW": law,
                "READ": read,
                "TABLE": int(table),
                "OUT": int(as_conductance),
                "NOISE": noise.kind if read else 0,
                "DEGREE": noise.degree,
                "NEAR": int(noise.near),
                "PLANES": n_plane,
                "WIDE": wide(n, conductance, nu, out),
                **part.macros,
            },
        )
    else:
        _run(
            _mirror().drift_conductance,
            part,
            n,
            (law, read, table, as_conductance, n),
            n_plane,
            n_node,
            *scalars,
            sample,
            conductance.reshape(-1),
            _flat(nu),
            split.fit,
            split.shares,
            _flat(split.inverse),
            _flat(noise.curve),
            out.reshape(-1),
            *stream.words,
        )
    return out
