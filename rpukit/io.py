"""Files: ``save`` and ``load`` keep tiles and circuits as ``.npz``: JSON and arrays, no pickle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from rpukit.analog.tile import AnalogTile
from rpukit.circuits import Circuit
from rpukit.errors import FormatError, ParameterError
from rpukit.inference.mapping import MappedMatrix
from rpukit.inference.tile import InferenceTile

__all__ = ["load", "save"]

_HEADER = "header.json"
_KINDS: dict[str, Any] = {
    "rpukit.AnalogTile": AnalogTile,
    "rpukit.Circuit": Circuit,
    "rpukit.InferenceTile": InferenceTile,
    "rpukit.MappedMatrix": MappedMatrix,
}
Tile = AnalogTile | Circuit | InferenceTile | MappedMatrix


def save(path: str | os.PathLike[str], tile: Tile) -> None:
    """Write a tile or a circuit to a ``.npz`` file, from which it continues to the same bits.

    Parameters
    ----------
    path : str or path
        Ends in ``.npz``. The file appears whole or not at all.
    tile : AnalogTile, InferenceTile, MappedMatrix or Circuit

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
    target = Path(path)
    if target.suffix != ".npz":
        raise ParameterError(f"path: got {target.name!r}, need a name that ends in .npz")
    if not isinstance(tile, tuple(_KINDS.values())):
        known = ", ".join(kind.__name__ for kind in _KINDS.values())
        raise ParameterError(f"tile: got {type(tile).__name__}, need one of {known}")
    state = tile.state()
    header = np.frombuffer(json.dumps(state["header"]).encode(), np.uint8)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(scratch, "wb") as file:
            arrays: dict[str, Any] = {_HEADER: header, **state["arrays"]}
            np.savez_compressed(file, **arrays)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], device: str = "cpu") -> Any:
    """Read a tile or a circuit that `save` wrote.

    Parameters
    ----------
    path : str or path
    device : str
        ``"cpu"``, ``"gpu"`` or ``"gpu:1"``.

    Returns
    -------
    AnalogTile, InferenceTile, MappedMatrix or Circuit

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
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (KeyError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise FormatError(f"{path}: not a file of rpukit, or damaged: {error}") from error
    kind = _KINDS.get(str(header.get("format"))) if isinstance(header, dict) else None
    if kind is None:
        raise FormatError(f"{path}: the header names none of {', '.join(_KINDS)}")
    return kind.from_state({"header": header, "arrays": arrays}, device)
