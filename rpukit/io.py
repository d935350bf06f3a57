"""Files: ``save`` and ``load`` keep objects as ``.npz``: JSON and arrays, no pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rpukit._files import archive
from rpukit._files.schema import Spec, as_format_error, check_numbers
from rpukit.analog.sharded.tile import ShardedTile
from rpukit.analog.tile.tile import AnalogTile
from rpukit.circuits import Circuit, Partials
from rpukit.errors import FormatError, ParameterError
from rpukit.inference.grid.array import TileArray
from rpukit.inference.grid.mapping import MappedMatrix
from rpukit.inference.sharded.tile import ShardedInferenceTile
from rpukit.inference.tile.tile import InferenceTile
from rpukit.layers.network import Network

__all__ = ["load", "save"]

_KINDS: dict[str, Any] = {
    "rpukit.AnalogTile": AnalogTile,
    "rpukit.Circuit": Circuit,
    "rpukit.InferenceTile": InferenceTile,
    "rpukit.MappedMatrix": MappedMatrix,
    "rpukit.Network": Network,
    "rpukit.Partials": Partials,
    "rpukit.TileArray": TileArray,
}
Tile = (
    AnalogTile
    | ShardedTile
    | TileArray
    | Circuit
    | InferenceTile
    | MappedMatrix
    | Network
    | Partials
)


def save(path: str | os.PathLike[str], tile: Tile) -> None:
    """Write an object to a ``.npz`` file, from which it continues to the same bits.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz``. The file is replaced whole, or stays as it was: when the disk is full,
        and when the process is killed.
    tile : AnalogTile, InferenceTile, TileArray, MappedMatrix, Circuit, Partials or Network
        Or a ShardedTile, whose file is that of the same `AnalogTile`.

    Raises
    ------
    ParameterError, NonFiniteError, SaveError

    Examples
    --------
    >>> import os, tempfile, numpy as np, rpukit as rk
    >>> tile = rk.AnalogTile((2, 3), rk.SoftBounds(), seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rk.save(os.path.join(folder, "tile.npz"), tile)
    ...     again = rk.load(os.path.join(folder, "tile.npz"))
    >>> np.array_equal(np.asarray(again), np.asarray(tile))
    True
    """
    if not isinstance(tile, (*_KINDS.values(), ShardedTile)):
        known = ", ".join(kind.__name__ for kind in _KINDS.values())
        raise ParameterError(f"tile: got {type(tile).__name__}, need one of {known}")
    state = tile.state()
    archive.write(path, state["header"], state["arrays"])


def load(path: str | os.PathLike[str], device: str | tuple[str, ...] = "cpu") -> Any:
    """Read a tile, a network or a circuit that `save` wrote.

    Parameters
    ----------
    path : str or path
    device : str or tuple of str
        ``"cpu"``, ``"gpu"`` or ``"gpu:1"``; several, as ``("gpu:0", "gpu:1")``, share a circuit,
        or make a `ShardedTile` or `ShardedInferenceTile` of a tile, split by rows.

    Returns
    -------
    AnalogTile, InferenceTile, TileArray, MappedMatrix, Circuit, Partials, Network, ShardedTile or
    ShardedInferenceTile

    Raises
    ------
    FormatError
        If the file is damaged, which its checksum tells, or was not written by rpukit.
    DeviceError, OSError

    Notes
    -----
    Nothing in the file is run, and its claims are compared with its bytes before memory is taken.

    Examples
    --------
    >>> import os, tempfile, rpukit as rk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rk.save(os.path.join(folder, "tile.npz"), rk.AnalogTile((2, 3), rk.Ideal()))
    ...     rk.load(os.path.join(folder, "tile.npz"))
    AnalogTile((2, 3), Ideal, device='cpu')
    """
    header, arrays, _ = archive.read(path, _check)
    with as_format_error(str(path)), np.errstate(over="raise", invalid="raise"):
        check_numbers(arrays)
        kind, state = _kind(header), {"header": header, "arrays": arrays}
        if not isinstance(device, (tuple, list)):
            return kind.from_state(state, device)
        if kind is Circuit:
            return Circuit.from_state(state, devices=device)
    split: Any = {AnalogTile: ShardedTile, InferenceTile: ShardedInferenceTile}.get(kind)
    if split is None:
        raise ParameterError(f"device: got {device}, need one device for {kind.__name__}")
    try:
        return split.from_state(state, device)
    except FormatError as error:  # others are of the devices
        raise FormatError(f"{path}: {error}") from error


def _kind(header: dict[str, Any]) -> Any:
    form = header.get("format")
    kind = _KINDS.get(form) if isinstance(form, str) else None
    if kind is None:
        raise FormatError(f"the header names none of {', '.join(_KINDS)}")
    return kind


def _check(header: dict[str, Any], arrays: Mapping[str, Spec]) -> None:
    """Check header, shapes and types before memory is taken for the arrays."""
    _kind(header)._check_state({"header": header, "arrays": arrays})
