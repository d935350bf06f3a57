"""Saving and restoring the state of an inference tile."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._files.schema import (
    COUNT,
    SHAPE,
    TALLY,
    WORD,
    anything,
    as_format_error,
    check_arrays,
    integer,
    listing,
    number,
    optional,
    record,
    setting,
    table,
    text,
)
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.tile.saving import SavedTile, check_sizes, header_of
from rpukit.analog.tile.state import decode, encode
from rpukit.errors import FormatError
from rpukit.inference.conductance.converters import Converter
from rpukit.inference.noise.model import NoiseModel
from rpukit.inference.tile.hardware import TALLIES
from rpukit.inference.training.limits import InputRange, WeightClip, WeightRemap
from rpukit.inference.training.modifiers import WeightModifier
from rpukit.random import MAX_SAMPLE, Stream

Array = Any
FORMAT = "rpukit.InferenceTile"
VERSION = 1
MATRIX = "rpukit.MappedMatrix"
_CONFIGURATIONS = {
    "noise": NoiseModel,
    "converter": Converter,
    "forward": IOParameters,
    "backward": IOParameters,
    "modifier": WeightModifier,
    "weight_clip": WeightClip,
    "weight_remap": WeightRemap,
    "input_range": InputRange,
}
_NOW = {
    "mode": text("digital", "modified", "programmed"),
    "event": integer(0, MAX_SAMPLE - 2),
    "time": number(0),
    "number": integer(-1, 65535),  # -1: as written
    "range": number(0),
    "range_seen": COUNT,
}
_CLOCKS = ("forward", "backward", "program", "modify")
_HEADER = record(
    {
        **dict.fromkeys(("format", "version"), anything),
        **dict.fromkeys(_CONFIGURATIONS, optional(table(setting))),
        "shape": SHAPE,
        "compensation": text(),
        "w_max": optional(number(0)),
        "stream": listing(WORD, 2),
        "clocks": record(dict.fromkeys(_CLOCKS, COUNT)),
        "validate": text("deferred", "sync"),
        "now": record(_NOW),
    },
    {"tallies": record(dict.fromkeys(TALLIES, TALLY))},  # later in version 1
)
_MATRIX = record(
    {
        **dict.fromkeys(("format", "version"), anything),
        "grid": listing(integer(1, 1 << 32), 2),
        "tiles": table(anything),
    }
)
_LATER = ("conductance", "nu", "baseline")  # arrays that only a programmed tile has


@enters_device()
class Saved(SavedTile):
    """Part of `InferenceTile`: saving and restoring its state."""

    shape: tuple[int, int]
    stream: Stream
    _arrays: dict[str, Array]
    _now: dict[str, Any]
    _device: Device
    _guard: Guard
    _states: dict[str, Any]

    def state(self) -> dict[str, Any]:
        """Return the complete state of the tile as plain data on the CPU.

        Returns
        -------
        dict
            ``header``: JSON-able data; ``arrays``: NumPy arrays by name. `from_state` builds a
            tile that continues to the same bits.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        tile: Any = self
        tile._catch_up()
        header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "shape": list(self.shape),
            "compensation": tile.compensation.value,
            "w_max": tile.w_max,
            "stream": [self.stream.key0, self.stream.key1],
            "clocks": tile.clocks,
            "validate": tile.validate,
            "now": {name: tile._now[name] for name in _NOW},
        }
        tallies = {name: tile._now[name] for name in TALLIES}
        if tallies != _tallies_of(tile.clocks):
            header["tallies"] = tallies
        for name in _CONFIGURATIONS:
            own = f"{name}_parameters" if name in ("forward", "backward") else name
            value = getattr(tile, own)
            header[name] = None if value is None else encode(value)
        arrays = {name: np.array(_device.to_numpy(a)) for name, a in self._all_arrays().items()}
        return {"header": header, "arrays": arrays}

    def _all_arrays(self) -> dict[str, Array]:
        arrays = dict(self._whole_arrays())
        for way, state in self._states.items():
            arrays.update({f"{way}.{name}": a for name, a in state.arrays().items()})
        return arrays

    def _whole_arrays(self) -> dict[str, Array]:
        """Arrays of the cells and of the outputs by name, each whole."""
        return self._arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str | Device = "cpu") -> Self:
        """Build a tile from the result of `state`.

        Parameters
        ----------
        state : dict
        device : str

        Returns
        -------
        InferenceTile

        Raises
        ------
        FormatError, DeviceError
        """
        return cls._of_state(state, device=device)

    @classmethod
    def _of_state(cls, state: dict[str, Any], **where: Any) -> Self:
        """Build a tile; ``where`` are the arguments that say where its cells are."""
        header = cls._check_state(state)
        make: Any = cls
        with as_format_error("state"):
            options = {
                name: None if header[name] is None else decode(header[name], base)
                for name, base in _CONFIGURATIONS.items()
            }
            tile = make(
                tuple(header["shape"]),
                **options,
                compensation=header["compensation"],
                w_max=header["w_max"],
                seed=Stream(*header["stream"]),
                **where,
                validate=header["validate"],
            )
            tallies = header.get("tallies") or _tallies_of(header["clocks"])
            tile._now.update(header["clocks"] | header["now"] | tallies)
            tile._fill(state["arrays"])
        result: Self = tile
        return result

    @classmethod
    def _check_state(cls, state: Any) -> dict[str, Any]:
        """Check that a header describes a tile of the size of the arrays; return the header.

        Instead of arrays there may be records of their shapes and types.
        """
        header, arrays = header_of(state, FORMAT, {VERSION: _HEADER}), state["arrays"]
        shape = tuple(header["shape"])
        check_sizes(shape, 1, arrays)
        for name in ("target", "weight"):
            if name not in arrays:
                raise FormatError(f"arrays: without {name}")
            if tuple(arrays[name].shape) != shape:
                raise FormatError(
                    f"header.shape: got {header['shape']}, need that of the array {name}: "
                    f"{list(arrays[name].shape)}"
                )
        if header["now"]["mode"] == "programmed" and "conductance" not in arrays:
            raise FormatError("arrays: a programmed tile without conductances")
        return header

    def _fill(self, arrays: dict[str, Any]) -> None:
        tile: Any = self
        n_cell, n_plane = self.shape[0] * self.shape[1], tile.converter.n_plane
        later = {"conductance": (n_plane, n_cell), "nu": (n_plane, n_cell)}
        if "baseline" in arrays:
            later["baseline"] = np.shape(arrays["baseline"])
        for name in _LATER:
            if name in arrays:
                dtype = np.float64 if name == "baseline" else np.float32
                self._arrays[name] = _device.zeros(later[name], dtype, self._device)
        targets = self._all_arrays()
        check_arrays({name: np.asarray(array) for name, array in arrays.items()}, targets)
        for name, target in targets.items():
            target[...] = _device.to_device(arrays[name], self._device)
        tile._find_factors()


def _tallies_of(clocks: dict[str, int]) -> dict[str, int]:
    """Count what has been done by the clocks, where no call has named a place on them."""
    return {"n_readout": 0} | {f"n_{n}": clocks[n] for n in ("forward", "backward", "program")}


def parts_of(state: Any) -> list[list[dict[str, Any]]]:
    """Split the state of a `MappedMatrix` into those of its tiles, by rows."""
    return split_tiles(header_of(state, MATRIX, {1: _MATRIX}), state["arrays"])


def split_tiles(header: dict[str, Any], arrays: Any) -> list[list[dict[str, Any]]]:
    """Split arrays whose names begin with k.j. into the states of the tiles, by rows."""
    (n_row, n_column), tiles = header["grid"], header["tiles"]
    if n_row * n_column != len(tiles):
        raise FormatError(f"header.grid: got {header['grid']} and {len(tiles)} tiles")
    own: dict[str, dict[str, Any]] = {name: {} for name in tiles}
    for name, array in arrays.items():
        k, j, rest = (*str(name).split(".", 2), "", "")[:3]
        if f"{k}.{j}" not in own:
            raise FormatError(f"array {name}: the header names no such tile")
        own[f"{k}.{j}"][rest] = array
    places = [[f"{k}.{j}" for j in range(n_column)] for k in range(n_row)]
    missing = [place for row in places for place in row if place not in own]
    if missing:
        raise FormatError(f"header.tiles: without tile {missing[0]}")
    return [[{"header": tiles[p], "arrays": own[p]} for p in row] for row in places]
