"""What `rpukit.summary` says of a tile and of one of its arrays of devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog.cells import PulsedCell
from rpukit.summaries import (
    Fact,
    Summary,
    count,
    histogram_of,
    listed,
    memory,
)


def tile_summary(tile: Any) -> Summary:
    """Describe a tile."""
    n_out, n_in = tile.shape
    arrays = tile.arrays
    name = type(tile.cell).__name__
    cells = [type(array.cell).__name__ for array in arrays]
    n = n_out * n_in
    facts = [_shape(tile.shape, tile.dtype)]
    facts.append(Fact("cell", name if cells == [name] else f"{name} of {listed(cells)}", name))
    more = f", in {len(arrays)} arrays" if len(arrays) > 1 else ""
    facts.append(count("devices", n * len(arrays), more))
    facts += _states(arrays)
    how = ", cells drawn when they are needed" if tile.storage == "procedural" else ""
    facts.append(memory(tile.nbytes, how))
    pulses = [array._arrays["n_pulses"] for array in arrays]
    facts.append(count("pulses", sum(int(_device.to_numpy(p)[0]) for p in pulses)))
    facts.append(samples(tile.samples))
    facts.append(count("macs per sample", n))
    facts += waiting(tile._guard)
    title = f"AnalogTile {n_out} x {n_in} of {name} on {tile.device}"
    return Summary("AnalogTile", title, tuple(facts), histogram_of(tile._unit.weight))


def array_summary(array: Any) -> Summary:
    """Describe one array of devices of a tile."""
    n_out, n_in = array.context.shape
    name = type(array.cell).__name__
    facts = [_shape(array.context.shape, array.context.dtype), Fact("cell", name, name)]
    facts += [count("devices", n_out * n_in), *_states((array,))]
    own = {_device.address(a): a.nbytes for a in array.arrays().values()}
    facts.append(memory(sum(own.values())))
    facts.append(count("pulses", int(_device.to_numpy(array._arrays["n_pulses"])[0])))
    facts += waiting(array.context.guard)
    title = f"array of {n_out} x {n_in} devices {name} on {array.context.device}"
    return Summary("DeviceArray", title, tuple(facts), histogram_of(array.weight))


def _shape(shape: tuple[int, int], dtype: np.dtype[Any]) -> Fact:
    text = f"{shape[0]:,} outputs x {shape[1]:,} inputs, {dtype.name}"
    return Fact("shape", text, list(shape))


def _states(arrays: tuple[Any, ...]) -> list[Fact]:
    """States of each kind of pulsed device, between the mean bounds of its description."""
    found = [float(a.cell.n_states) for a in arrays if isinstance(a.cell, PulsedCell)]
    if not found:
        return []
    texts = listed([f"{states:,.4g}" if states < 1000 else f"{states:,.0f}" for states in found])
    return [Fact("states", f"{texts} between the mean bounds", found)]


def samples(counts: dict[str, int]) -> Fact:
    """Make a fact of the numbers of samples."""
    text = ", ".join(f"{name} {n:,}" for name, n in counts.items())
    return Fact("samples", text, dict(counts))


def waiting(guard: Any) -> list[Fact]:
    """Say so where an error of an earlier call on a GPU waits to be raised."""
    if not int(_device.to_numpy(guard.status)[0]):
        return []
    return [Fact("error", "an earlier call met NaN or infinity; rk.check() raises it", True)]
