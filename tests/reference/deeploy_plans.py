"""Plans that Deeploy's own tiler made, and what they cost in the cycle model of this library.

Where the files leave something open it is taken in favour of Deeploy: a normalisation counts as
one pass over its input, an op's work is divided evenly over its tiles, every transfer of a tile
is as contiguous as its shape allows.
"""

from __future__ import annotations

import gzip
import json
from math import ceil, prod
from pathlib import Path

from rpukit.tiled import Hierarchy
from rpukit.tiled.planner.cycle_model import TileCycles, double_buffered, single_buffered
from rpukit.tiled.planner.tile_search import rows_of


def read(path: Path) -> dict:
    """Read one plan."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def work(op: dict) -> tuple[int, int]:
    """Multiply-adds and elements of an op, from the shapes of its operands."""
    shape = {t["name"]: t["shape"] for t in op["tensors"] if t["shape"] is not None}
    size = {name: prod(lengths) for name, lengths in shape.items()}
    ins = [name for name in op["inputs"] if name in size]
    out = next(name for name in op["outputs"] if name in size)
    kind = op["op"]
    if kind in ("Gemm", "MatMul"):
        return round((size[ins[0]] * size[ins[1]] * size[out]) ** 0.5), 0
    if kind == "Conv":
        return size[out] * size[ins[1]] // shape[ins[1]][0], 0
    if kind == "ConvGradX":
        return size[ins[0]] * size[ins[1]] // shape[ins[1]][0], 0
    if kind == "ConvGradW":
        return size[ins[0]] * size[out] // shape[out][0], 0
    return 0, max(size.values())


def cycles(op: dict, levels: Hierarchy) -> int:
    """Cycles of one op: the loop over the outer level's tiles around that of the inner one's."""
    names = [level.name for level in levels.levels[1:]]
    n = max(op["tiles"].values())
    macs, elements = work(op)
    kernel = levels.compute.cycles(ceil(macs / n), ceil(elements / n))
    body, buffers = [kernel] * n, 1
    tiles: list[TileCycles] = []
    for name in reversed(names):
        link = levels[levels.index(name)]
        ways = {"input": 0, "output": 0}
        buffers = 1
        for tensor in op["tensors"]:
            place = tensor["levels"].get(name)
            if not place or tensor["shape"] is None:  # scratch of a kernel is not moved
                continue
            buffers = max(buffers, place["buffers"])
            whole = tensor["shape"] if name == names[0] else place["tile"]
            rows = rows_of(place["tile"], whole) if len(whole) == len(place["tile"]) else 1
            ways[tensor["io"]] += link.cycles(4 * prod(place["tile"]), rows)
        tiles = [TileCycles(ways["input"], one, ways["output"]) for one in body]
        body = [sum(tile) for tile in tiles]
    return double_buffered(tiles) if buffers > 1 else single_buffered(tiles)


def total(plan: dict, levels: Hierarchy) -> int:
    """Cycles of all ops, one after another."""
    return sum(cycles(op, levels) for op in plan["ops"] if op["tiles"])
