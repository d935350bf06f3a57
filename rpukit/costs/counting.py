"""Events of tiles, arrays of tiles and networks, from the counts that these keep."""

from __future__ import annotations

import math
from typing import Any

from rpukit.analog.cells import Ideal
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.cells.transfer import Transfer
from rpukit.analog.parameters.io import IOParameters, NoiseManagement
from rpukit.analog.sharded.tile import ShardedTile
from rpukit.analog.tile.tile import AnalogTile
from rpukit.costs.events import Counts, Event, merged, renamed
from rpukit.errors import DTypeError
from rpukit.inference.grid.grid import TileGrid
from rpukit.inference.tile.compensation import DriftCompensation
from rpukit.inference.tile.tile import InferenceTile

__all__ = ["count"]

Phases = dict[str, tuple[Event, ...]]


def count(obj: Any) -> Counts:
    """Count the events that an object has caused so far.

    Parameters
    ----------
    obj : tile, TileArray, MappedMatrix, network of `rpukit.layers`, torch module, or a sequence
        Of a torch module, its analog layers. The parts of a sequence work one after another.

    Returns
    -------
    Counts

    Raises
    ------
    DTypeError
        For another kind of object.

    Notes
    -----
    Counts follow from the samples that a tile has processed; only the pulses are counted by the
    kernels, and reading their number synchronises with a GPU. Counted once a sample are: one round
    of a product (repetitions by bound management depend on the data and are not counted), and as
    many slots of a pulse train as `UpdateParameters.desired_bl` (management may send fewer).
    Converters without a resolution are not counted. See docs/costs.md.

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> tile = rk.AnalogTile((10, 64), rk.ConstantStep(), seed=7)
    >>> y = tile.forward(np.ones((5, 64), np.float32))
    >>> rk.costs.count(tile)["forward"]["cell_read"]
    3200
    """
    if isinstance(obj, TileGrid):
        return _grid(obj)
    if isinstance(obj, InferenceTile):
        return _inference(obj)
    if isinstance(obj, (AnalogTile, ShardedTile)):
        return _analog(obj)
    if hasattr(obj, "_counts"):
        own: Counts = obj._counts()
        return own
    if hasattr(obj, "named_modules"):
        named = [(name, getattr(module, "array", None)) for name, module in obj.named_modules()]
        found = [renamed(count(a), name) for name, a in named if isinstance(a, TileGrid)]
        return Counts(type(obj).__name__, parts=tuple(found), together=False)
    if isinstance(obj, (list, tuple)):
        return Counts(f"{len(obj)} parts", parts=tuple(map(count, obj)), together=False)
    raise DTypeError(
        f"obj: got {type(obj).__name__}, need a tile, an array of tiles, a network or a list"
    )


# ---- products -----------------------------------------------------------------------------------


def bits_of(resolution: float, bound: float) -> int:
    """Bits of a converter by its resolution, as `IOParameters` has it; 0: none."""
    if resolution <= 0 or bound <= 0:
        return 0
    steps = resolution if resolution > 1 else 1 / resolution
    return math.ceil(math.log2(round(steps, 6) + 1))


def product_events(
    io: IOParameters, n: int, n_from: int, n_to: int, n_read: int, item: int
) -> tuple[Event, ...]:
    """List the events of n samples of a product.

    Parameters
    ----------
    io : IOParameters
    n, n_from, n_to : int
        Samples, inputs, outputs.
    n_read : int
        Devices that are read at each cross-point.
    item : int
        Bytes of a number without converter.

    Returns
    -------
    tuple of Event
    """
    cells = n_from * n_to
    if io.exact:
        moved = Event("byte", n * (n_from + n_to) * item, n_from + n_to)
        return Event("mac", n * cells, cells), moved
    n_pass, n_convert = (1 if io.passes == 1 else 2), (2 if io.passes == 3 else 1)
    bits_in, bits_out = bits_of(io.inp_res, io.inp_bound), bits_of(io.out_res, io.out_bound)
    found = [Event("pass", n * n_pass, 1), Event("cell_read", n * n_pass * cells * n_read, cells)]
    if bits_in:
        found.append(Event("dac", n * n_pass * n_from, n_from, bits_in))
    if bits_out:
        found.append(Event("adc", n * n_convert * n_to, n_to, bits_out))
    if n_convert > 1:
        found.append(Event("add", n * n_to, n_to))
    if io.noise_management is not NoiseManagement.NONE:  # scales inputs and outputs
        found.append(Event("multiply", n * (n_from + n_to), n_from + n_to))
    size_in, size_out = (-(-bits // 8) or item for bits in (bits_in, bits_out))
    n_byte = n * (n_pass * n_from * size_in + n_convert * n_to * size_out)
    found.append(Event("byte", n_byte, n_from + n_to))
    return tuple(found)


def _both(tile: Any, n_read: int, forward: IOParameters) -> Phases:
    n_out, n_in = tile.shape
    samples, item = tile.samples, tile.dtype.itemsize
    back = tile.backward_parameters
    return {
        "forward": product_events(forward, samples["forward"], n_in, n_out, n_read, item),
        "backward": product_events(back, samples["backward"], n_out, n_in, n_read, item),
    }


# ---- training tiles -----------------------------------------------------------------------------


def _analog(tile: Any) -> Counts:
    n_out, n_in = tile.shape
    arrays = tile.arrays
    if isinstance(tile.cell, Transfer) and tile.cell.hidden:  # products see the slowest alone
        last = str(len(tile.cell.devices) - 1)
        seen = [a for a in arrays if _part_of(a) == last]
    else:
        seen = arrays
    n_read = _cells(seen) // (n_out * n_in)
    events = merged(_both(tile, n_read, tile.forward_parameters), _learning(tile))
    return Counts(type(tile).__name__, events, _cells(arrays))


def _part_of(array: Any) -> str:
    """Number of the device of a compound cell that an array belongs to."""
    return str(array.context.prefix).split(".")[0]


def _cells(arrays: Any) -> int:
    return sum(math.prod(array.context.shape) for array in arrays)


def _learning(tile: Any) -> Phases:
    """List the events of updates, and of transfers between the devices of a cell."""
    (n_out, n_in), n, item = tile.shape, tile.samples["update"], tile.dtype.itemsize
    cells, update, cell = n_out * n_in, tile.update_parameters, tile.cell
    moved = Event("byte", n * (n_out + n_in) * item, n_out + n_in)
    exact = update.exact or isinstance(cell, Ideal)
    if isinstance(cell, MixedPrecision):
        found: Phases = {"update": (Event("mac", n * cells, cells), moved)}
        rows = tile.clocks["transfers"]
        pulses = Event("pulse", tile.n_pulses, cells)
        return found | {"transfer": (pulses, Event("byte", rows * n_in * item, n_in))}
    if exact:
        return {"update": (Event("mac", n * cells, cells), moved)}
    slots = Event("slot", n * update.desired_bl, 1)
    if not isinstance(cell, Transfer):
        learnt: Phases = {"update": (Event("pulse", tile.n_pulses, cells), slots, moved)}
        return learnt | _refreshes(tile)
    fast = sum(a.n_pulses for a in tile.arrays if _part_of(a) == "0")
    slow = Event("pulse", tile.n_pulses - fast, cells)
    transfer = (slow, *_slices(tile))
    return {"update": (Event("pulse", fast, cells), slots, moved), "transfer": transfer}


def _slices(tile: Any) -> tuple[Event, ...]:
    """List the reads of slices that a transfer cell has made, and the slots of the writes."""
    cell, clocks = tile.cell, tile.clocks
    n_read = sum(n for name, n in clocks.items() if name.startswith("transfers_"))
    n_line = cell.slices(tile.shape)[1]
    one = product_events(cell.transfer_forward, n_read, 1, n_line, 1, tile.dtype.itemsize)
    return (*one, Event("slot", n_read * cell.transfer_update.desired_bl, 1))


def _refreshes(tile: Any) -> Phases:
    """List the reads of refreshes: every column of both devices of a one-sided cell."""
    n = sum(at for name, at in tile.clocks.items() if name.split(".")[-1] == "refresh")
    if not n:
        return {}
    io, (n_out, n_in) = tile.cell.refresh_forward, tile.shape
    return {"read": product_events(io, 2 * n * n_in, 1, n_out, 1, tile.dtype.itemsize)}


# ---- inference tiles, arrays of tiles -----------------------------------------------------------


def _inference(tile: Any) -> Counts:
    n_out, n_in = tile.shape
    n_plane = tile.converter.n_plane
    devices = n_plane * n_out * n_in
    io = tile._periphery()
    events = _both(tile, n_plane, io)
    if tile.n_programmed:
        events["program"] = (Event("write", tile.n_programmed * devices, devices),)
    if tile.n_readout:
        # The reference of GLOBAL_EXACT is computed, the later readouts are measured.
        exact = tile.compensation is DriftCompensation.GLOBAL_EXACT
        n = tile.n_readout - (tile.n_programmed if exact else 0)
        events["read"] = product_events(io, n * n_in, n_in, n_out, n_plane, 4)
    return Counts("InferenceTile", events, devices)


def _grid(array: TileGrid) -> Counts:
    """Count the events of all tiles, and the digital operations between them."""
    n_row, n_column = array.grid
    n_out, n_in = array._out[-1], array._in[-1]
    samples = array.samples
    forward = [Event("add", samples["forward"] * (n_column - 1) * n_out, n_out)]
    backward = [Event("add", samples["backward"] * (n_row - 1) * n_in, n_in)]
    update = []
    if "scale" in getattr(array, "_own", {}):
        forward.append(Event("multiply", samples["forward"] * n_out, n_out))
        backward.append(Event("multiply", samples["backward"] * n_out, n_out))
    if "bias" in getattr(array, "_own", {}):
        forward.append(Event("add", samples["forward"] * n_out, n_out))
        update.append(Event("mac", samples.get("update", 0) * n_out, n_out))
    own = {"forward": tuple(forward), "backward": tuple(backward), "update": tuple(update)}
    parts = tuple(renamed(count(tile), f"tile {k}, {j}") for k, j, tile in array._placed())
    return Counts(type(array).__name__, own, parts=parts)
