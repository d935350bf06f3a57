"""State of a sharded tile: that of an `AnalogTile`, so that it loads on any number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit._device import Device
from rpukit._files.schema import as_format_error, check_arrays
from rpukit._kernels.entering import enters_device
from rpukit.analog.cells import Cell
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.sharded.blocks import ShardedArray
from rpukit.analog.sharded.checks import UNITS, layout_of, periphery, splittable
from rpukit.analog.sharded.face import SplitFace
from rpukit.analog.tile.state import decode, header_of_tile, made_of_header
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import DTypeError, ParameterError

Array = Any


@enters_device()
class ShardedState(SplitFace):
    """Mixin of `ShardedTile`: states and weights."""

    WHOLE = AnalogTile

    _device: Device
    _guard: Any
    _registers: dict[str, np.ndarray]
    _states: dict[str, Any]
    _unit: ShardedArray

    def state(self) -> dict[str, Any]:
        """Return the complete state of the tile, as plain data on the CPU.

        Returns
        -------
        dict
            What `AnalogTile.state` returns for the same tile on one device: either class builds a
            tile of it, on any number of devices.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        own = {name: np.array(_device.to_numpy(a)) for name, a in self._lines().items()}
        arrays = {**self._unit.arrays(), **own}  # those of the cells are copies already
        return {"header": header_of_tile(self), "arrays": arrays}

    def _lines(self) -> dict[str, Array]:
        """Return the arrays of the state that are not of the cells."""
        return {**self._registers, **self._periphery_arrays()}

    def _periphery_arrays(self) -> dict[str, Array]:
        return {
            f"{way}.{name}": a
            for way, state in self._states.items()
            for name, a in state.arrays().items()
        }

    @classmethod
    def from_state(
        cls,
        state: dict[str, Any],
        devices: Sequence[str | Device],
        *,
        cuts: Sequence[int] | None = None,
        split: str = "outputs",
    ) -> Self:
        """Build a tile from a state of an `AnalogTile` or `ShardedTile`.

        Parameters
        ----------
        state : dict
            As `AnalogTile.state` returns it.
        devices : sequence of str
        cuts : sequence of int, optional
        split : {"outputs", "inputs"}
            See `ShardedTile`.

        Returns
        -------
        ShardedTile

        Raises
        ------
        FormatError, ParameterError, DTypeError, DeviceError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.AnalogTile((5, 3), rk.SoftBounds(), seed=1)
        >>> two = rk.ShardedTile.from_state(tile.state(), ("cpu", "cpu"))
        >>> np.array_equal(two.get_weights(), tile.get_weights())
        True
        """
        header = AnalogTile._check_state(state)
        if header.get("dtype", "float32") != "float32":
            raise DTypeError(f"dtype: got a tile of {header['dtype']}, need float32 to split it")
        cls._check_where(header, devices, split, cuts)
        tile = made_of_header(cls, header, devices=devices, cuts=cuts, split=split)
        tile._unit.set_clocks()
        tile._fill(state["arrays"])
        return tile  # type: ignore[no-any-return]

    @staticmethod
    def _check_where(
        header: dict[str, Any],
        devices: Sequence[str | Device],
        split: str,
        cuts: Sequence[int] | None,
    ) -> None:
        """Raise what is wrong with the arguments, before errors are those of the state."""
        layout = layout_of(tuple(header["shape"]), devices, split, cuts, UNITS)
        with as_format_error("header"):
            cell = decode(header["cell"], Cell)
            ios = {way: decode(header[way], IOParameters) for way in ("forward", "backward")}
        splittable(cell, layout.axis)
        for way, io in ios.items():
            periphery(io, way)

    def _fill(self, arrays: dict[str, Any]) -> None:
        needed = {**self._unit.specs(), **self._lines()}
        check_arrays({n: np.asarray(a) for n, a in arrays.items()}, needed)
        for name in self._registers:
            if (np.asarray(arrays[name]) != 1).any():
                raise ParameterError(f"state: {name} has flipped: such a tile cannot be split")
        self._unit.fill(arrays)
        with _device.using(self._device):
            for name, target in self._periphery_arrays().items():
                target[...] = _device.to_device(arrays[name], self._device)

    @property
    def nbytes(self) -> int:
        """Memory of the tile in bytes, on all devices together."""
        own = [*self._periphery_arrays().values()]
        for block in self._unit.blocks:
            own += block.unit.arrays().values()
        found = {(str(_device.device_of(a)), _device.address(a)): a.nbytes for a in own}
        return sum(found.values())

    def get_weights(self) -> Array:
        """Read the weights exactly, without the periphery.

        Returns
        -------
        array, shape (n_out, n_in), float32
            A copy on the first device; reading synchronises.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        return self._unit.weight

    def set_cells(self, **arrays: Array) -> Any:
        """Refuse to replace per-cell parameters: they are set before a tile is split.

        Parameters
        ----------
        **arrays : array

        Returns
        -------
        ShardedTile

        Raises
        ------
        ParameterError
        """
        raise ParameterError(
            f"cells: got {', '.join(arrays)}, and a tile that is split: set them by "
            "AnalogTile.set_cells, and split its state by ShardedTile.from_state"
        )
