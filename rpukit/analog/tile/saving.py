"""Saving and loading of tiles: parts that all kinds of tiles share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any, Self

from rpukit._device import Device
from rpukit._files.schema import Check, Spec
from rpukit.errors import FormatError

_MOST_PLANES = 64  # numbers of a cell, and arrays of a device
_MOST_NUMBERS = 1 << 20  # of a whole tile


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


def header_of(state: Any, form: str, fields: Mapping[int, Check]) -> dict[str, Any]:
    """Return the header of a state, by the check of its version.

    Parameters
    ----------
    state : dict
        With ``header`` and ``arrays``.
    form : str
        Name of the format.
    fields : mapping of int to check
        Of the whole header, by version of the format.

    Returns
    -------
    dict

    Raises
    ------
    FormatError
    """
    if not isinstance(state, dict) or not {"header", "arrays"} <= state.keys():
        raise FormatError("state: need a dictionary with header and arrays, as from state()")
    header: Any = state["header"]
    if not isinstance(header, dict) or header.get("format") != form:
        raise FormatError(f"state: this is not a {form}")
    version = header.get("version")
    if type(version) is not int or version not in fields:
        known = " to ".join(map(str, sorted({min(fields), max(fields)})))
        raise FormatError(
            f"state: format version {version!r}, this rpukit reads {known}: update rpukit"
        )
    if not isinstance(state["arrays"], Mapping):
        raise FormatError("state: arrays: need a dictionary")
    checked: dict[str, Any] = fields[version](header, "header")
    return checked


def check_sizes(shape: tuple[int, int], n_device: int, arrays: Mapping[str, Spec]) -> None:
    """Check that arrays are not larger, or more, than those of any tile of this shape."""
    n_out, n_in = shape
    most = _MOST_PLANES * (n_out * n_in + n_out + n_in) + _MOST_NUMBERS
    for name, array in arrays.items():
        if prod(array.shape) > most:
            raise FormatError(f"array {name}: got shape {array.shape} for a tile of shape {shape}")
    if len(arrays) > _MOST_PLANES * (n_device + 1):
        raise FormatError(f"arrays: got {len(arrays)} for {n_device} devices at a cross-point")
