"""Buffering strategies: number of buffers per op and per hop.

"rotate" chooses the number by operand: one buffer if it does not move, two if it does, three if it
is changed in place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from rpukit._checks import did_you_mean, shown
from rpukit.errors import ParameterError
from rpukit.tiled.ir import Node
from rpukit.tiled.planner.lifetimes import Lifetimes, Step

__all__ = ["STRATEGIES", "Wish", "deeploy_buffers", "wishes"]

STRATEGIES = ("auto", "deeploy_buffers", "double", "double_outer", "single")
ALIASES = {"deeploy": "deeploy_buffers"}  # earlier names of strategies
OPTED_OUT = ("InPlaceAccumulatorV2", "SGD", "SoftmaxCrossEntropyLossGrad")

Wish = tuple[str, str]  # "single", "double" or "auto", and the reason for "single"


def deeploy_buffers(
    op: str,
    shapes: Sequence[Sequence[int]],
    *,
    outer: bool = True,
    opted_out: Collection[str] = OPTED_OUT,
) -> tuple[int, str]:
    """Find how many buffers Deeploy's training strategy gives every operand of an op.

    Parameters
    ----------
    op : str
    shapes : sequence of sequence of int
        Of all operands.
    outer : bool
        False on the inner hop of two, which is single buffered there.
    opted_out : collection of str
        Ops that always have one buffer.

    Returns
    -------
    int
    str
        Why there is one buffer; "" where there are two.

    Examples
    --------
    >>> from rpukit.tiled.planner.buffering import deeploy_buffers
    >>> deeploy_buffers("Relu", [(1, 64), (1, 64)])
    (2, '')
    >>> deeploy_buffers("MSELoss", [(1, 128), (1, 128), ()])
    (1, 'an operand has one element')
    """
    if op in opted_out:
        return 1, f"{op} is opted out"
    if any(prod(shape) <= 1 for shape in shapes):
        return 1, "an operand has one element"
    return (2, "") if outer else (1, "inner hop")


def wishes(
    lifetimes: Lifetimes, step: Step, buffering: str, single: Collection[str], n_hops: int
) -> list[Wish]:
    """Find the buffering that a strategy asks for on each hop of an op, the outermost first.

    Parameters
    ----------
    lifetimes : Lifetimes
    step : Step
    buffering : {"auto", "deeploy_buffers", "double", "double_outer", "single"}
    single : collection of str
        Ops and nodes that are to be single buffered.
    n_hops : int

    Returns
    -------
    list of (str, str)

    Raises
    ------
    ParameterError
    """
    node = step.node
    buffering = ALIASES.get(buffering, buffering)
    if buffering not in STRATEGIES:
        raise ParameterError(f"buffering: got {buffering!r}, need one of {', '.join(STRATEGIES)}")
    chosen = {node.op, node.name, node.origin} & set(single)
    if chosen:
        return [("single", f"asked for: {min(chosen)}")] * n_hops
    if buffering == "single":
        return [("single", "strategy")] * n_hops
    if buffering in ("auto", "double"):
        return [(buffering, "")] * n_hops
    found: list[Wish] = []
    for hop in range(n_hops):
        outer = hop == 0
        if buffering == "double_outer":
            found.append(("double", "") if outer else ("single", "inner hop"))
            continue
        tensors = lifetimes.graph(step).tensors
        shapes = [tensors[o.tensor].shape for o in step.space.operands]
        n, reason = deeploy_buffers(_deeploy_name(node), shapes, outer=outer)
        found.append(("double", "") if n == 2 else ("single", reason))
    return found


def _deeploy_name(node: Node) -> str:
    return {"CrossEntropyGrad": "SoftmaxCrossEntropyLossGrad"}.get(node.op, node.op)


def check_names(lifetimes: Lifetimes, single: Collection[str]) -> None:
    """Refuse names in ``single=`` that are neither ops nor nodes of the graphs.

    Parameters
    ----------
    lifetimes : Lifetimes
    single : collection of str

    Raises
    ------
    ParameterError
    """
    known: set[str] = set()
    for graph in lifetimes.graphs:
        for node in graph.nodes:
            known |= {node.op, node.name, node.origin}
    if isinstance(single, str) or not all(isinstance(name, str) for name in single):
        raise ParameterError(f"single: got {shown(single)}, need names of ops or nodes")
    unknown = sorted(set(single) - known)
    if unknown:
        raise ParameterError(
            f"single: got {', '.join(unknown)}, need ops ({', '.join(sorted(_ops(lifetimes)))}) "
            f"or names of nodes{did_you_mean(unknown[0], known)}"
        )


def _ops(lifetimes: Lifetimes) -> set[str]:
    return {step.node.op for step in lifetimes.steps}
