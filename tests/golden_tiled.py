"""The cases behind the golden hashes of tiles; `golden_cases` takes them in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from golden_cases import Case, put

sys.path.append(str(Path(__file__).parent / "tiled"))

from tile_formulas import CASES
from tiled_cases import made

from rpukit.tiled import ops
from rpukit.tiled.run import run_tile


def whole(name, dtype):
    """One node as one tile: what it writes."""

    def run(device):
        graph, values, _ = made(name, dtype)
        node, found = graph.nodes[0], []
        op = ops.find(node.op)
        space = op.space(node, graph.tensors)
        buffers = [None] * op.buffers
        for operand in space.operands:
            tensor = graph.tensors[operand.tensor]
            value = values.get(operand.tensor, np.zeros(tensor.shape, tensor.dtype))
            part = tuple(slice(lo, hi) for lo, hi in space.rectangle(operand, space.whole))
            buffers[operand.slot] = put(np.ascontiguousarray(value[part]).reshape(-1), device)
            if operand.mode != "in":
                found.append(buffers[operand.slot])
        run_tile(node, graph.tensors, space.whole, buffers)
        return found

    return run


def cases() -> Iterator[tuple[str, Case]]:
    for name in CASES:
        for dtype in ("float32", "float64"):
            graph = made(name, dtype)[0]
            op = ops.find(graph.nodes[0].op)
            if not op.view:
                yield (
                    op.kernel,
                    Case(f"{name}-{dtype}", whole(name, dtype), small="long" not in name),
                )
