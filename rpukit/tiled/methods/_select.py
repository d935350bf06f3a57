"""Selection of parameters by patterns, and removal of nodes that nothing needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from rpukit._checks import shown
from rpukit.errors import GraphError, ParameterError
from rpukit.tiled.ir import BaseGraph, Node, Training
from rpukit.tiled.ops.pointwise.chain import trimmed

__all__ = ["forward_nodes", "live_nodes", "matching", "need_accumulators", "readers_of"]


def matching(patterns: Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """List the names that match a pattern, in their own order.

    Parameters
    ----------
    patterns : sequence of str
        Names, or patterns with ``*``, ``?`` and ``[...]``; each has to match a name.
    names : sequence of str
    what : str
        What the names are, for errors.

    Returns
    -------
    list of str

    Raises
    ------
    ParameterError
    """
    if not patterns:
        raise ParameterError(f"{what}: got no pattern, need at least one name or pattern")
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise ParameterError(f"{what}: got {shown(pattern)}, need a name or a pattern")
        if not any(name == pattern or fnmatchcase(name, pattern) for name in names):
            known = ", ".join(names) or "none"
            raise ParameterError(f"{what}: no name matches {shown(pattern)}, need some of {known}")
    return [n for n in names if any(n == p or fnmatchcase(n, p) for p in patterns)]


def need_accumulators(training: Training) -> None:
    """Check that each parameter has an accumulator, as before `fuse_updates`."""
    if len(training.accumulators) != len(training.parameters) or not training.parameters:
        raise GraphError(
            f"{training.train.name}: need parameters with one accumulator each; apply this method "
            "before fuse_updates"
        )


def live_nodes(nodes: Sequence[Node], wanted: Iterable[str]) -> list[Node]:
    """List the nodes that wanted tensors depend on, in their order.

    Parameters
    ----------
    nodes : sequence of Node
        Sorted.
    wanted : iterable of str

    Returns
    -------
    list of Node
        Fused chains without the steps that no wanted tensor depends on.
    """
    need, found = set(wanted), []
    for node in reversed(nodes):
        if need.intersection(node.outputs):
            if node.op == "FusedPointwise":
                node = trimmed(node, need)
            need.update(filter(None, node.inputs))
            found.append(node)
    return found[::-1]


def forward_nodes(training: Training) -> list[Node]:
    """List the nodes that the loss depends on, in their order."""
    return live_nodes(training.train.nodes, [training.loss])


def readers_of(graph: BaseGraph) -> Mapping[str, list[Node]]:
    """Map each tensor to the nodes that read it."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(filter(None, node.inputs)):
            found.setdefault(name, []).append(node)
    return found
