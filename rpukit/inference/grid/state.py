"""Files and states of arrays of tiles: what a header may say, and its parts."""

from __future__ import annotations

from typing import Any

from rpukit._files.schema import (
    SHAPE,
    anything,
    integer,
    listing,
    optional,
    record,
    setting,
    table,
    text,
)
from rpukit.analog.tile.saving import header_of
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import FormatError
from rpukit.inference.tile.state import split_tiles
from rpukit.inference.tile.tile import InferenceTile

FORMAT = "rpukit.TileArray"
OWN = {"bias", "scale"}  # arrays of the whole matrix
_HEADER = record(
    {
        **dict.fromkeys(("format", "version"), anything),
        "grid": listing(integer(1, 1 << 32), 2),
        "tiles": table(anything),
        "tile_shape": optional(SHAPE),
        "bias": text("none", "digital", "analog"),
        "output_scale": optional(table(setting)),
    }
)


def parts_of_array(state: Any) -> tuple[dict[str, Any], Any, list[list[dict[str, Any]]]]:
    """Return the checked header, the class of the tiles, and their states by rows."""
    header = header_of(state, FORMAT, {1: _HEADER})
    of_tiles = {name: a for name, a in state["arrays"].items() if name not in OWN}
    first = header["tiles"].get("0.0")
    analog = isinstance(first, dict) and first.get("format") == "rpukit.AnalogTile"
    return header, AnalogTile if analog else InferenceTile, split_tiles(header, of_tiles)


def check_state(state: Any) -> None:
    """Check a state before memory is taken for it; see `InferenceTile`."""
    _, kind, parts = parts_of_array(state)
    for row in parts:
        for part in row:
            kind._check_state(part)
    n_out = sum(int(row[0]["header"]["shape"][0]) for row in parts)
    for name in OWN & state["arrays"].keys():
        if tuple(state["arrays"][name].shape) != (n_out,):
            raise FormatError(f"array {name}: need one number for each of {n_out} outputs")
