"""State of a tile: copies, moves between devices, plain data, pickles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._checks import one_of
from rpukit._device import Device
from rpukit._files.schema import (
    COUNT,
    FLAG,
    SHAPE,
    WORD,
    anything,
    as_format_error,
    check_arrays,
    integer,
    listing,
    number,
    record,
    setting,
    table,
    text,
)
from rpukit._kernels.entering import enters_device
from rpukit.analog.arrays.base import WeightArray
from rpukit.analog.arrays.single import DeviceArray
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.analog.cells.piecewise_step import PiecewiseStep
from rpukit.analog.deferred_errors import Guard
from rpukit.analog.parameters.drift import DriftParameters
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.tile.make_array import leaves
from rpukit.analog.tile.saving import check_sizes, header_of
from rpukit.errors import FormatError, ParameterError
from rpukit.random import MAX_SAMPLE, Stream

Array = Any
FORMAT = "rpukit.AnalogTile"
VERSION = 3  # 1 had neither drift nor counts of each cell, 2 no dtype
_CONFIGURATIONS = {
    "cell": Cell,
    "forward": IOParameters,
    "backward": IOParameters,
    "update": UpdateParameters,
}
_FIELDS = {
    **dict.fromkeys(("format", "version"), anything),
    **dict.fromkeys(_CONFIGURATIONS, table(setting)),
    "shape": SHAPE,
    "stream": listing(WORD, 2),
    "clocks": table(number(0)),
    "validate": text("deferred", "sync"),
}
_COUNTING = {"count_pulses": FLAG}
_TYPED = {"dtype": text("float32", "float64")}
_SKIPPED = table(integer(-MAX_SAMPLE, MAX_SAMPLE))
_LATER = {"storage": text("stored", "procedural"), "skipped": _SKIPPED}  # later in version 3
_HEADERS = {
    1: record(_FIELDS),
    2: record(_FIELDS, _COUNTING),
    3: record({**_FIELDS, **_COUNTING, **_TYPED}, _LATER),
}
_SIGNS = ("chopper_in", "chopper_out", "switched")
_COUNTS = ("n_pulses", "pulse_counts")


def encode(config: Any) -> dict[str, Any]:
    """Convert a configuration object to JSON-able data."""
    data: dict[str, Any] = {"class": type(config).__name__}
    for field in fields(config):
        value = getattr(config, field.name)
        data[field.name] = _plain(value)
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return encode(value) if is_dataclass(value) else value


def decode(data: Any, base: type) -> Any:
    """Build a configuration object of class ``base`` or a subclass from its data."""
    if not isinstance(data, dict) or "class" not in data:
        raise FormatError(f"configuration: got {data!r}, need a dictionary with the key 'class'")
    name = data["class"]
    found = [cls for cls in _family(base) if cls.__name__ == name and is_dataclass(cls)]
    if not found:
        raise FormatError(
            f"configuration: no {base.__name__} is called {name!r}; import its module first"
        )
    try:
        return found[-1](**{key: _rich(value) for key, value in data.items() if key != "class"})
    except TypeError as error:
        raise FormatError(f"configuration of {name}: {error}") from error


def _rich(value: Any) -> Any:
    """Build nested values of a configuration: other configurations and tuples of them."""
    if isinstance(value, list):
        return tuple(_rich(v) for v in value)
    if isinstance(value, dict):
        bases = (Cell, DriftParameters, IOParameters, UpdateParameters)
        owner = [b for b in bases if value.get("class") in {c.__name__ for c in _family(b)}]
        return decode(value, owner[0] if owner else Cell)
    return value


def _family(base: type) -> list[type]:
    children: list[type] = base.__subclasses__()
    return [base, *(cls for child in children for cls in _family(child))]


@enters_device("_take")
class Persistent:
    """Mixin of `AnalogTile`: copies, states, pickles."""

    shape: tuple[int, int]
    cell: Cell
    forward_parameters: IOParameters
    backward_parameters: IOParameters
    update_parameters: UpdateParameters
    stream: Stream
    validate: str
    count_pulses: bool
    storage: str
    _clocks: dict[str, Any]
    _registers: dict[str, np.ndarray]
    _device: _device.Device
    _dtype: np.dtype[Any]
    _guard: Guard
    _states: dict[str, Any]
    _unit: WeightArray

    def state(self) -> dict[str, Any]:
        """Return the complete state of the tile, as plain data on the CPU.

        Returns
        -------
        dict
            ``header``: JSON-able data (format, version, shape, configurations, stream, clocks);
            ``arrays``: NumPy arrays by name. On a tile that `from_state` builds, the same later
            calls give the same bits.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        arrays = {name: np.array(_device.to_numpy(a)) for name, a in self._all_arrays().items()}
        return {"header": header_of_tile(self), "arrays": arrays}

    def _all_arrays(self) -> dict[str, Array]:
        arrays = {**self._unit.arrays(), **self._registers}
        for way, state in self._states.items():
            arrays.update({f"{way}.{name}": a for name, a in state.arrays().items()})
        return arrays

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str | Device = "cpu") -> Self:
        """Build a tile from a state that `state` returned.

        Parameters
        ----------
        state : dict
        device : str

        Returns
        -------
        AnalogTile

        Raises
        ------
        FormatError, DeviceError
        """
        header = cls._check_state(state)
        with as_format_error("state"):
            tile = cls._made(header, device)
            tile._fill(state["arrays"])
        return tile

    @classmethod
    def _check_state(cls, state: Any) -> dict[str, Any]:
        """Check that a header describes a tile of the size of the arrays; return the header.

        Instead of arrays there may be records of their shapes and types.
        """
        header = header_of(state, FORMAT, _HEADERS)
        with as_format_error("header.cell"):
            cell = decode(header["cell"], Cell)
        stored = header.get("storage", "stored") == "stored"
        n_device, n_pulsed = _devices_of(cell)
        check_sizes(tuple(header["shape"]), n_device, state["arrays"])
        for kind, need in (("weight", n_device), ("planes", n_pulsed * stored)):
            found = [
                tuple(array.shape[-2:])
                for name, array in state["arrays"].items()
                if name.split(".")[-1] == kind
            ]
            if found.count(tuple(header["shape"])) < need:
                raise FormatError(
                    f"header.shape: got {header['shape']}, need that of the arrays: {need} times "
                    f"{kind!r}, got these with {sorted(set(found))}"
                )
        return header

    @classmethod
    def _made(cls, header: dict[str, Any], device: str | Device) -> Self:
        tile = made_of_header(cls, header, device=device, dtype=header.get("dtype", "float32"))
        return tile  # type: ignore[no-any-return]

    def _fill(self, arrays: Mapping[str, Any]) -> None:
        """Copy the arrays of a state, once all of them have been checked."""
        targets = self._all_arrays()
        given = {name: np.asarray(array) for name, array in arrays.items()}
        check_arrays(given, targets)
        for name, array in given.items():
            kind = name.split(".")[-1]
            least = 0 if kind in _COUNTS else -1 if kind in _SIGNS else None
            if least is not None and array.size and array.min() < least:
                raise FormatError(f"array {name}: got {array.min()}, need numbers from {least}")
        for device_array in leaves(self._unit):
            _check_places(device_array, given)
        self._take(given)

    def _take(self, arrays: Mapping[str, Any]) -> None:
        """Copy arrays, which are on one device, into those of the tile."""
        for name, target in self._all_arrays().items():
            if name in self._registers:
                self._registers[name] = np.array(arrays[name])
            else:
                target[...] = _device.to_device(arrays[name], self._device)

    def to(self, device: str) -> Self:
        """Copy the tile to a compute device.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.

        Returns
        -------
        AnalogTile
            A new tile; the same later calls give the same bits on both.

        Raises
        ------
        ParameterError, DeviceError, NonFiniteError
        """
        self._guard.check()
        header = header_of_tile(self)
        made = self._made(header, device)
        made._take(self._all_arrays())  # from device to device
        return made

    def copy(self, *, storage: str | None = None) -> Self:
        """Copy the tile; the same later calls give the same bits on both.

        Parameters
        ----------
        storage : {"stored", "procedural"}, optional
            Whether the copy stores the parameters of its cells; default: as this tile does.

        Returns
        -------
        AnalogTile

        Raises
        ------
        ParameterError
            For "procedural", if cells have been set: they cannot be drawn again.

        Examples
        --------
        >>> import rpukit as rk
        >>> small = rk.AnalogTile((8, 8), rk.SoftBounds(), seed=1, storage="procedural")
        >>> small.nbytes < small.copy(storage="stored").nbytes / 2
        True
        """
        state, arrays = self.state(), {}
        if storage is not None:
            one_of(storage, "storage", ("stored", "procedural"))
        if storage is None or storage == self.storage:
            return type(self).from_state(state, self._device)
        copy = self._made({**state["header"], "storage": storage}, self._device)
        if storage == "procedural":
            drawn = copy._unit.cells
            for name, array in self._unit.cells.items():
                if (_device.to_numpy(drawn[name]) != _device.to_numpy(array)).any():
                    raise ParameterError(
                        f'storage: {name} has been set and cannot be drawn: use storage="stored"'
                    )
        for name, array in copy._all_arrays().items():
            arrays[name] = state["arrays"].get(name, array)
        copy._fill({name: _device.to_numpy(array) for name, array in arrays.items()})
        return copy

    @property
    def nbytes(self) -> int:
        """Memory of the tile in bytes: weights, cell parameters, state of weight processes."""
        return sum({_device.address(a): a.nbytes for a in self._all_arrays().values()}.values())

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles are made on the CPU, so that a machine without a GPU can load them.
        return type(self).from_state, (self.state(),)


def _devices_of(cell: Any) -> tuple[int, int]:
    """Count the devices at a cross-point, and how many of them have parameters of their own."""
    if isinstance(cell, PulsedCell) or not isinstance(cell, Cell):
        return 1, 1
    nested = [getattr(cell, field.name) for field in fields(cell)]
    parts = [one for v in nested for one in (v if isinstance(v, tuple) else (v,))]
    counts = [_devices_of(one) for one in parts if isinstance(one, Cell)]
    return (sum(n for n, _ in counts), sum(n for _, n in counts)) if counts else (1, 0)


def _check_places(array: DeviceArray, given: Mapping[str, np.ndarray]) -> None:
    """Check the numbers of a state by which kernels find what they read."""
    prefix = array.context.prefix
    if not array.stores_cells:
        with as_format_error(f"array {prefix}recipe"):
            array.planes.check(given[f"{prefix}recipe"])
    if isinstance(array.cell, PiecewiseStep):
        found, own = given[f"{prefix}globals"][1:3], array.cell.globals()[1:3]
        if (found != own).any():
            raise FormatError(f"array {prefix}globals: got {found} nodes, need {own}")


def header_of_tile(tile: Any) -> dict[str, Any]:
    """Return the JSON-able part of a tile's state."""
    skipped = {"skipped": dict(tile._skipped)} if any(tile._skipped.values()) else {}
    return {
        "format": FORMAT,
        "version": VERSION,
        "shape": list(tile.shape),
        "dtype": tile.dtype.name,
        "cell": encode(tile.cell),
        "forward": encode(tile.forward_parameters),
        "backward": encode(tile.backward_parameters),
        "update": encode(tile.update_parameters),
        "stream": [tile.stream.key0, tile.stream.key1],
        "clocks": dict(tile._clocks),
        "validate": tile.validate,
        "count_pulses": tile.count_pulses,
        "storage": tile.storage,
        **skipped,
    }


def made_of_header(cls: type, header: dict[str, Any], **where: Any) -> Any:
    """Build the tile that a checked header describes, with its clocks but without its arrays.

    ``where`` are the arguments of the class that a header does not have, such as the device.
    """
    with as_format_error("header"):
        made = {name: decode(header[name], base) for name, base in _CONFIGURATIONS.items()}
        tile = cls(
            tuple(header["shape"]),
            **made,
            seed=Stream(*header["stream"]),
            validate=header["validate"],
            count_pulses=header.get("count_pulses", False),
            storage=header.get("storage", "stored"),
            **where,
        )
    clocks = dict(header["clocks"])
    if header["version"] == 1:
        clocks = {"drift": 0, "drift_time": 0, **clocks}
    if clocks.keys() != tile._clocks.keys():
        raise FormatError(f"clocks: got {sorted(clocks)}, need {sorted(tile._clocks)}")
    for name, at in clocks.items():
        if name.split(".")[-1] != "drift_time":  # seconds; all others count
            COUNT(at, f"header.clocks.{name}")
    tile._clocks.update(clocks)
    skipped = header.get("skipped", {})
    if not skipped.keys() <= tile._skipped.keys():
        raise FormatError(f"skipped: got {sorted(skipped)}, need {sorted(tile._skipped)}")
    tile._skipped.update(skipped)
    return tile
