"""The cases behind the golden hashes of tiled training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rpukit.tiled import ops
from rpukit.tiled.runtime.reference import run as compute
from rpukit.tiled.runtime.reference import run_tile
from tests.golden.cases.case import Case, put
from tests.tiled.analog_nets import TILES, built
from tests.tiled.op_cases import NARROW, made
from tests.tiled.op_formulas import CASES


def whole_node(graph, node, values, device):
    """Compute a node as one tile, and give what it writes."""
    op, found = ops.find(node.op), []
    space = op.space(node, graph.tensors)
    buffers = [None] * op.buffers
    for operand in space.operands:
        tensor = graph.tensors[operand.tensor]
        blank = np.zeros(tensor.shape, tensor.dtype)
        value = blank if operand.mode == "out" else values[operand.tensor]
        part = tuple(slice(lo, hi) for lo, hi in space.rectangle(operand, space.whole))
        buffers[operand.slot] = put(np.ascontiguousarray(value[part]).reshape(-1), device)
        if operand.mode != "in":
            found.append(buffers[operand.slot])
    run_tile(node, graph.tensors, space.whole, buffers)
    return found


def whole(name, dtype):
    """One node as one tile: what it writes."""

    def run(device):
        graph, values, _ = made(name, dtype)
        return whole_node(graph, graph.nodes[0], values, device)

    return run


def of_a_net(name, number):
    """One node of a training graph of analog tiles as one tile: what it writes."""

    def run(device):
        training, steps, _ = built(name)
        graph = training.train
        inputs = {key: training.initial[key] for key in training.kept}
        inputs |= {"x": steps[0][0], "t": steps[0][1]}
        values = {**compute(graph, inputs), **inputs}  # inputs that change in place, as they were
        return whole_node(graph, graph.nodes[number], values, device)

    return run


def cases() -> Iterator[tuple[str, Case]]:
    for name in CASES:
        for dtype in ("float32", "float64"):
            if dtype == "float64" and CASES[name][0] in NARROW:
                continue
            graph = made(name, dtype)[0]
            op = ops.find(graph.nodes[0].op)
            if not op.view:
                yield (
                    op.kernel,
                    Case(f"{name}-{dtype}", whole(name, dtype), small="long" not in name),
                )
    for name in TILES:
        nodes = built(name)[0].train.nodes
        for number, node in enumerate(nodes):
            kernel = ops.find(node.op).kernel
            if kernel.startswith(("tiled_analog", "tiled_advance", "tiled_rank")):
                yield kernel, Case(f"{name}-{node.name.replace('/', '-')}", of_a_net(name, number))
