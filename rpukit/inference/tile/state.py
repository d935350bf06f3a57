"""Saving and restoring the state of an inference tile."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._kernels.entering import enters_device
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.tile.saving import SavedTile, check_arrays, header_of
from rpukit.analog.tile.state import decode, encode
from rpukit.errors import FormatError
from rpukit.inference.conductance.converters import Converter
from rpukit.inference.noise.model import NoiseModel
from rpukit.inference.training.limits import InputRange, WeightClip, WeightRemap
from rpukit.inference.training.modifiers import WeightModifier
from rpukit.random import Stream

Array = Any
FORMAT = "rpukit.InferenceTile"
VERSION = 1
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
_NOW = {"mode": str, "event": int, "time": float, "number": int, "range": float, "range_seen": int}
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
        for name in _CONFIGURATIONS:
            own = f"{name}_parameters" if name in ("forward", "backward") else name
            value = getattr(tile, own)
            header[name] = None if value is None else encode(value)
        arrays = {name: np.array(_device.to_numpy(a)) for name, a in self._all_arrays().items()}
        return {"header": header, "arrays": arrays}

    def _all_arrays(self) -> dict[str, Array]:
        arrays = dict(self._arrays)
        for way, state in self._states.items():
            arrays.update({f"{way}.{name}": a for name, a in state.arrays().items()})
        return arrays

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
        header = header_of(state, FORMAT, (VERSION,))
        make: Any = cls
        try:
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
                device=device,
                validate=header["validate"],
            )
            clocks = {str(name): int(n) for name, n in header["clocks"].items()}
            now = {name: kind(header["now"][name]) for name, kind in _NOW.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"state: the header is damaged: {error!r}") from error
        if clocks.keys() != tile.clocks.keys():
            raise FormatError(f"state: got clocks {sorted(clocks)}, need {sorted(tile.clocks)}")
        if now["mode"] not in ("digital", "modified", "programmed"):
            raise FormatError(f"state: there is no mode {now['mode']!r}")
        tile._now.update(clocks | now)
        tile._fill(state["arrays"])
        result: Self = tile
        return result

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
        check_arrays(arrays, targets)
        if tile._now["mode"] == "programmed" and "conductance" not in arrays:
            raise FormatError("state: a programmed tile without conductances")
        for name, target in targets.items():
            target[...] = _device.to_device(arrays[name], self._device)
        tile._find_factors()
