"""Summary of a circuit, for `rpukit.summary`."""

from __future__ import annotations

from typing import Any

from rpukit.circuits.graph.nodes import InputNodes, SumNodes
from rpukit.summaries import Fact, Summary, count, histogram_of, listed, memory


def circuit_summary(pc: Any) -> Summary:
    """Describe a circuit; the histogram is of the weights of its sums."""
    layout = pc.layout
    of_kind = {
        kind: sum(nodes.n_node for nodes in layout.nodes if kind == nodes.KIND)
        for kind in ("sum", "product", "input")
    }
    leaves = sorted({type(n.leaf).__name__ for n in layout.nodes if isinstance(n, InputNodes)})
    vectors = sum(isinstance(n, SumNodes) for n in layout.nodes)
    nodes = ", ".join(f"{n:,} {kind}s" for kind, n in of_kind.items())
    numbers = f"{pc.dtype.name}, sums by {pc.precision}" if pc.precision != "fp32" else pc.dtype
    facts = [
        count("variables", pc.n_variables, f", leaves {listed(leaves)}"),
        count("roots", layout.root_rows.size),
        Fact("nodes", nodes, of_kind),
        count("layers", len(layout.layers), f", {vectors:,} vectors of sums"),
        count("edges", pc.n_edges),
        count("parameters", pc.n_parameters),
        Fact("type", str(numbers), pc.dtype.name),
        memory(pc._core.memory.held, ", parameters, statistics and tables"),
        count("samples", pc._core.statistics.n_sample, " gathered since the last step"),
        count("drawn", pc._core.n_drawn, " samples"),
        count("macs per sample", pc.n_edges, " for a likelihood"),
    ]
    if pc.budget is not None:
        facts.append(count("budget", pc.budget, " bytes"))
    title = f"Circuit of {pc.n_variables:,} variables and {pc.n_parameters:,} parameters"
    theta = pc._core.parameters.theta
    weights = histogram_of(theta) if theta.size else None
    return Summary("Circuit", f"{title} on {pc.device}", tuple(facts), weights)
