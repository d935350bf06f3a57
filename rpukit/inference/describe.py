"""Facts of `rpukit.summary` about inference tiles and matrices over several of them."""

from __future__ import annotations

from typing import Any

from rpukit import _device
from rpukit.analog.describe import samples, waiting
from rpukit.summaries import (
    Fact,
    Summary,
    count,
    histogram_of,
    memory,
)


def tile_summary(tile: Any) -> Summary:
    """Describe an inference tile without reading it or computing its weights."""
    n_out, n_in = tile.shape
    n = n_out * n_in
    now, arrays = tile._now, tile._whole_arrays()
    written = arrays.get("conductance")
    facts = [Fact("shape", f"{n_out:,} outputs x {n_in:,} inputs, float32", [n_out, n_in])]
    facts.append(_named("noise", tile.noise))
    facts.append(_named("converter", tile.converter))
    if written is None:
        facts.append(Fact("devices", "none written yet", 0))
    else:
        facts.append(count("devices", written.size, f", {written.size // n} a weight"))
    facts += _history(tile)
    compensation = tile.compensation.name.lower()
    facts.append(Fact("compensation", compensation, compensation))
    facts.append(memory(_bytes(tile)))
    facts.append(samples(tile.samples))
    facts.append(count("macs per sample", n))
    facts += waiting(tile._guard)
    # Results of programming exist once they were requested; a request would change the tile.
    digital = now["mode"] == "digital" or now["late"]
    if digital:
        facts.append(Fact("weights are", "as set, in digital", "digital"))
    else:
        facts.append(Fact("weights are", "as the products see them, without scales", now["mode"]))
    title = f"InferenceTile {n_out} x {n_in} of {type(tile.noise).__name__} on {tile.device}"
    weight = arrays["target" if digital else "weight"]
    return Summary("InferenceTile", title, tuple(facts), histogram_of(weight))


def _named(name: str, part: object) -> Fact:
    return Fact(name, type(part).__name__, type(part).__name__)


def _history(tile: Any) -> list[Fact]:
    now = tile._now
    programmed = now["mode"] == "programmed"
    if programmed and now["number"] < 0:
        text = "programmed, not read since"
    elif programmed:
        text = f"programmed, read at {now['time']:.6g} s"
    else:
        text = str(now["mode"])
    facts = [Fact("state", text, now["mode"])]
    if programmed:
        facts.append(Fact("time", f"{now['time']:.6g} s after programming", float(now["time"])))
    facts.append(count("programmed", now["program"], " times"))
    return facts


def _bytes(tile: Any) -> int:
    states = [a for s in tile._states.values() for a in s.arrays().values()]
    arrays = [*tile._whole_arrays().values(), *states]
    return sum({_device.address(a): int(a.nbytes) for a in arrays}.values())


def matrix_summary(matrix: Any) -> Summary:
    """Describe a matrix over several tiles; the facts of its tiles are added up."""
    n_out, n_in = matrix.shape
    tiles = list(matrix)
    rows, columns = len(matrix.tiles), len(matrix.tiles[0])
    written = [tile._arrays.get("conductance") for tile in tiles]
    grid = f"{len(tiles)}: {rows} blocks of outputs x {columns} of inputs"
    largest = max(tile.shape[0] for tile in tiles), max(tile.shape[1] for tile in tiles)
    facts = [
        Fact("shape", f"{n_out:,} outputs x {n_in:,} inputs, float32", [n_out, n_in]),
        Fact("tiles", f"{grid}, up to {largest[0]} x {largest[1]}", [rows, columns]),
        _named("noise", tiles[0].noise),
        _named("converter", tiles[0].converter),
        count("devices", sum(0 if a is None else a.size for a in written), " written"),
        *_history(tiles[0])[:1],
        memory(sum(_bytes(tile) for tile in tiles)),
        count("macs per sample", n_out * n_in),
    ]
    title = f"MappedMatrix {n_out} x {n_in} over {len(tiles)} tiles on {matrix.device}"
    return Summary("MappedMatrix", title, tuple(facts))


def grid_summary(array: Any) -> Summary:
    """Describe an array of tiles of any kind; the facts of its tiles are added up."""
    n_out, n_in = array.shape
    rows, columns = array.grid
    tiles = list(array)
    cell = type(tiles[0].noise if array._exact else array.cell).__name__
    size = f"{tiles[0].shape[0]} x {tiles[0].shape[1]}"
    used = array.utilisation
    facts = [
        Fact("shape", f"{n_out:,} outputs x {n_in:,} inputs, {array.dtype.name}", [n_out, n_in]),
        Fact("cell", cell, cell),
        Fact("tiles", f"{len(tiles)}: {rows} x {columns}, the largest {size}", [rows, columns]),
        Fact("utilisation", f"{100 * used:.1f} % of their cells", used),
        Fact("bias", array.bias_kind, array.bias_kind),
    ]
    scale = array.output_scale
    if scale is not None:
        how = "learned" if scale.learned else "fixed"
        facts.append(Fact("output scale", f"{how}, per {scale.per}", how))
    if array._exact:
        facts += _history(tiles[0])[:1]
        facts.append(memory(sum(_bytes(tile) for tile in tiles)))
    else:
        facts.append(memory(sum(tile.nbytes for tile in tiles)))
        facts.append(count("pulses", array.n_pulses))
    counts = array.samples
    facts.append(samples({name: counts[name] for name in ("forward", "backward")}))
    facts.append(count("macs per sample", n_out * n_in))
    title = f"TileArray {n_out} x {n_in} of {cell} on {array.device}"
    return Summary("TileArray", title, tuple(facts))
