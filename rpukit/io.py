"""Files: ``save`` and ``load`` keep tiles and circuits as ``.npz``: JSON and arrays, no pickle."""

from __future__ import annotations

import os
from typing import Any

from rpukit import _archive
from rpukit.analog.tile.tile import AnalogTile
from rpukit.circuits import Circuit, Partials
from rpukit.errors import FormatError, ParameterError
from rpukit.inference.tile.mapping import MappedMatrix
from rpukit.inference.tile.tile import InferenceTile

__all__ = ["load", "save"]

_KINDS: dict[str, Any] = {
    "rpukit.AnalogTile": AnalogTile,
    "rpukit.Circuit": Circuit,
    "rpukit.InferenceTile": InferenceTile,
    "rpukit.MappedMatrix": MappedMatrix,
    "rpukit.Partials": Partials,
}
Tile = AnalogTile | Circuit | InferenceTile | MappedMatrix | Partials


def save(path: str | os.PathLike[str], tile: Tile) -> None:
    """Write a tile or a circuit to a ``.npz`` file, from which it continues to the same bits.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz``. The file appears whole or not at all.
    tile : AnalogTile, InferenceTile, MappedMatrix, Circuit or Partials

    Raises
    ------
    ParameterError, NonFiniteError, OSError

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
    if not isinstance(tile, tuple(_KINDS.values())):
        known = ", ".join(kind.__name__ for kind in _KINDS.values())
        raise ParameterError(f"tile: got {type(tile).__name__}, need one of {known}")
    state = tile.state()
    _archive.write(path, state["header"], state["arrays"])


def load(path: str | os.PathLike[str], device: str = "cpu") -> Any:
    """Read a tile or a circuit that `save` wrote.

    Parameters
    ----------
    path : str or path
    device : str
        ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.

    Returns
    -------
    AnalogTile, InferenceTile, MappedMatrix, Circuit or Partials

    Raises
    ------
    FormatError, DeviceError, OSError

    Examples
    --------
    >>> import os, tempfile, rpukit as rk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rk.save(os.path.join(folder, "tile.npz"), rk.AnalogTile((2, 3), rk.Ideal()))
    ...     rk.load(os.path.join(folder, "tile.npz"))
    AnalogTile((2, 3), Ideal, device='cpu')
    """
    header, arrays = _archive.read(path)
    kind = _KINDS.get(str(header.get("format")))
    if kind is None:
        raise FormatError(f"{path}: the header names none of {', '.join(_KINDS)}")
    return kind.from_state({"header": header, "arrays": arrays}, device)
