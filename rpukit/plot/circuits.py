"""Figure of the structure of a circuit."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import Any

import numpy as np

from rpukit._checks import takes
from rpukit.circuits import Circuit, InputNodes, Nodes, ProductNodes, SumNodes
from rpukit.plot.axes import axes as _axes

__all__ = ["plot_structure"]

Axes = Any


@takes()
def plot_structure(
    circuit: Circuit, x: Any = None, *, missing: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw the graph of a circuit; with data, the widths of edges show their flows.

    Sums are circles, products are crosses and leaves are squares; each vector of nodes is a row.
    The width of an edge is its weight or, with data, its flow. The flow is the mean probability,
    given a sample, that the edge is used. Edges of tied sums show the mean over all uses.

    Parameters
    ----------
    circuit : Circuit
        A small circuit: every node is drawn.
    x, missing : array, optional
        Data as for `Circuit.log_likelihood`, whose flow is drawn.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError, ShapeError, DTypeError, NonFiniteError, ParameterError

    Examples
    --------
    >>> import numpy as np, rpukit as rk
    >>> x = np.random.default_rng(0).integers(0, 2, (100, 6))
    >>> pc = rk.Circuit(rk.circuits.hclt(x, 3), seed=1)
    >>> ax = rk.plot.plot_structure(pc, x)  # doctest: +SKIP
    """
    ax = _axes(ax)
    nodes = circuit.layout.nodes
    shares, places = _edge_shares(circuit, x, missing), _places(circuit)
    through = {v.number: np.full(v.n_node, 0.0 if x is not None else 0.3) for v in nodes}
    lines, widths = [], []
    for vector in reversed(nodes):  # parents before children
        for child, above, below, share in _edges(vector, shares, through):
            if x is not None:
                np.add.at(through[child.number], below, share)
            drawn = share > 0.005
            ends = places[vector.number][above[drawn]], places[child.number][below[drawn]]
            lines.append(np.stack(ends, axis=1))
            widths.append(share[drawn])
    every = np.concatenate(widths)
    colours = np.stack([np.full(every.size, c) for c in (0.1, 0.3, 0.6)], axis=1)
    alpha = np.clip(0.1 + 0.9 * every, 0, 1)[:, None]
    edges = import_module("matplotlib.collections").LineCollection(
        np.concatenate(lines), linewidths=0.2 + 2.3 * every, colors=np.hstack([colours, alpha])
    )
    ax.add_collection(edges)
    for kind, marker, name in (
        (SumNodes, "o", "sum"),
        (ProductNodes, "x", "product"),
        (InputNodes, "s", "leaf"),
    ):
        found = [places[v.number] for v in nodes if isinstance(v, kind)]
        if found:
            at = np.concatenate(found).T
            ax.scatter(*at, s=12, marker=marker, color="k", lw=0.8, zorder=3, label=name)
    for vector in nodes:
        if isinstance(vector, InputNodes):
            middle = places[vector.number].mean(axis=0)
            ax.annotate(
                f"$x_{{{vector.var}}}$", middle, (0, -6), textcoords="offset points",
                ha="center", va="top", fontsize="small",
            )  # fmt: skip
    width = "weight" if x is None else "flow"
    ax.plot([], [], color=(0.1, 0.3, 0.6), lw=2.5, label=f"width: {width}")
    ax.legend(
        loc="lower center", bbox_to_anchor=(0.5, -0.12), ncols=4, frameon=False,
        fontsize="small", columnspacing=1.0, handlelength=1.0, handletextpad=0.4,
    )  # fmt: skip
    ax.margins(0.04, 0.12)
    ax.set_axis_off()
    return ax


def _edge_shares(circuit: Circuit, x: Any, missing: Any) -> dict[int, Any]:
    """Weights of the edges of sums or, with data, the mean flow of each edge per sample."""
    sums = [nodes for nodes in circuit.layout.nodes if isinstance(nodes, SumNodes)]
    if x is None:
        return {nodes.number: circuit.parameters(nodes) for nodes in sums}
    other = deepcopy(circuit)  # the flows that the circuit has accumulated do not change
    pairs = zip(circuit.layout.nodes, other.layout.nodes, strict=True)
    twins = {a.number: b for a, b in pairs if isinstance(b, SumNodes)}
    before = {number: other.parameter_flows(twin) for number, twin in twins.items()}
    n_sample = len(other.accumulate(x, missing=missing))
    n_use: dict[int, int] = {}
    for twin in twins.values():
        n_use[twin.source.number] = n_use.get(twin.source.number, 0) + 1
    return {
        number: (other.parameter_flows(twin) - before[number])
        / (n_sample * n_use[twin.source.number])
        for number, twin in twins.items()
    }


def _edges(
    vector: Nodes, shares: dict[int, Any], through: dict[int, Any]
) -> list[tuple[Nodes, Any, Any, Any]]:
    """Edges of a vector to each child: the child, parent and child indices, share of the flow."""
    if isinstance(vector, ProductNodes):
        own, parts = np.arange(vector.n_node), zip(vector.children, vector.edges.T, strict=True)
        return [(child, own, below, through[vector.number]) for child, below in parts]
    if not isinstance(vector, SumNodes):
        return []
    share = shares[vector.number]
    block, child_block = np.arange(share.shape[1]), np.arange(share.shape[2])
    owner: Any = vector.source
    blocks, child_blocks = owner.edges
    above = (blocks[:, None, None] * block.size + block[:, None]) + 0 * child_block
    below = (child_blocks[:, None, None] * child_block.size + child_block) + 0 * block[:, None]
    found, first = [], 0
    for child in vector.children:
        inside = (below >= first) & (below < first + child.n_node)
        found.append((child, above[inside], below[inside] - first, share[inside]))
        first += child.n_node
    return found


def _places(circuit: Circuit) -> dict[int, Any]:
    """Coordinates of nodes: above all their descendants, centred over their leaves."""
    nodes, depth = circuit.layout.nodes, dict[int, int]()
    for vector in reversed(nodes):  # parents before children
        own = depth.setdefault(vector.number, 0)
        for child in vector.children:
            depth[child.number] = max(depth.get(child.number, 0), own + 1)
    centre: dict[int, float] = {}
    right = 0.0
    for vector in nodes:
        if vector.children:
            centre[vector.number] = float(np.mean([centre[c.number] for c in vector.children]))
        else:
            centre[vector.number] = right + vector.n_node / 2
            right += vector.n_node + 2
    places: dict[int, Any] = {}
    for level in set(depth.values()):
        end = -np.inf  # vectors of a level do not overlap
        here = [vector for vector in nodes if depth[vector.number] == level]
        for vector in sorted(here, key=lambda v: centre[v.number]):
            start = max(centre[vector.number] - vector.n_node / 2, end)
            end = start + vector.n_node + 1
            at = start + 0.5 + np.arange(vector.n_node)
            places[vector.number] = np.stack([at, np.full(vector.n_node, -level)], axis=1)
    return places
