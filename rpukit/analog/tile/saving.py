"""Saving and loading of tiles: parts that all kinds of tiles share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from rpukit._device import Device
from rpukit.errors import FormatError

Array = Any


class SavedTile(ABC):
    """Base class of tiles that are copied, moved and pickled through their state."""

    _device: Device

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the complete state of the tile, as plain data on the CPU."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: dict[str, Any], device: str | Device = "cpu") -> Self:
        """Build a tile from a state that `state` returned."""

    def to(self, device: str) -> Self:
        """Copy the tile to a compute device.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.

        Returns
        -------
        tile
            A new tile; the same later calls give the same bits on both.

        Raises
        ------
        ParameterError, DeviceError, NonFiniteError
        """
        return type(self).from_state(self.state(), device)

    def copy(self) -> Self:
        """Copy the tile; the same later calls give the same bits on both.

        Returns
        -------
        tile
        """
        return type(self).from_state(self.state(), self._device)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles are made on the CPU, so that a machine without a GPU can load them.
        return type(self).from_state, (self.state(),)


def header_of(state: Any, form: str, versions: Sequence[int]) -> dict[str, Any]:
    """Return the header of a state; raise unless it has this format and a known version."""
    if not isinstance(state, dict) or not {"header", "arrays"} <= state.keys():
        raise FormatError("state: need a dictionary with header and arrays, as from state()")
    header: Any = state["header"]
    if not isinstance(header, dict) or header.get("format") != form:
        raise FormatError(f"state: this is not a {form}")
    if header.get("version") not in versions:
        known = f"{versions[0]}" if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
        raise FormatError(
            f"state: format version {header.get('version')!r}, this rpukit reads {known}: "
            "update rpukit"
        )
    return header


def check_arrays(arrays: Mapping[str, Any], targets: Mapping[str, Array]) -> None:
    """Check that the arrays of a state match those of the tile in name, shape and type."""
    if arrays.keys() != targets.keys():
        raise FormatError(f"state: got arrays {sorted(arrays)}, need {sorted(targets)}")
    for name, target in targets.items():
        source = np.asarray(arrays[name])
        if source.shape != target.shape or source.dtype != target.dtype:
            raise FormatError(
                f"state: array {name} is {source.dtype}{list(source.shape)}, "
                f"need {target.dtype}{list(target.shape)}"
            )
