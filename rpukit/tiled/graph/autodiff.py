"""Reverse-mode differentiation of a graph, by one rule for each op."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rpukit.errors import GraphError
from rpukit.tiled.graph.backward import Backward
from rpukit.tiled.graph.rules import LOSSES, RULES
from rpukit.tiled.graph.tape import Sketch
from rpukit.tiled.ir import Node
from rpukit.tiled.ops._base import fault


def _run(back: Backward, nodes: Sequence[Node], loss: str) -> None:
    """Differentiate a scalar by going through the nodes in reverse order."""
    for node in nodes:
        if any(back.need(name) for name in node.inputs):
            back.needed.update(filter(None, node.outputs))
    if loss not in back.needed:
        raise GraphError(f"loss {loss} depends on no trained parameter")
    for node in reversed(nodes):
        is_loss = node.outputs[0] == loss
        slopes = ["" if is_loss else back.slope(name) for name in node.outputs]
        if not (is_loss or any(slopes)) or not any(map(back.need, node.inputs)):
            continue
        if node.op not in RULES:
            raise fault(node, "has no gradient")
        if is_loss and node.op not in LOSSES:
            one = np.ones(back.shape(loss))
            slopes[0] = back.sketch.constant(f"{loss}_grad", one)
        for name, slope in zip(node.inputs, RULES[node.op](back, node, slopes), strict=False):
            if name and back.need(name):
                back.give(name, slope)


def gradients(
    sketch: Sketch, loss: str, wanted: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Add the backward pass of a scalar to a sketch.

    Parameters
    ----------
    sketch : Sketch
    loss : str
    wanted : sequence of str

    Returns
    -------
    gradients : dict of str to str
        The gradient of each wanted tensor.
    changed : list of str
        Tensors that analog tiles change in place.

    Raises
    ------
    GraphError
        If the loss does not depend on a wanted tensor, or an op has no rule.
    """
    nodes = sketch.ancestors(loss)
    back = Backward(sketch, [*wanted, *(tile.weight for tile in sketch.tiles.values())])
    _run(back, nodes, loss)
    found = {name: back.slope(name) for name in wanted}
    lost = [name for name, slope in found.items() if not slope]
    if lost:
        raise GraphError(f"loss {loss} does not depend on parameters {', '.join(lost)}")
    return found, back.changed
