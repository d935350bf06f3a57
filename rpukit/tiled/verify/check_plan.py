"""The validator: proves that a plan is right, from the plan and the graph alone.

First its structure (types, addresses, lengths), then that it belongs to the graph, then a run on
names instead of numbers, which finds whatever would compute something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpukit.errors import PlanError
from rpukit.tiled.ir import BaseGraph, Training, graphs_of
from rpukit.tiled.program import BasePlan
from rpukit.tiled.verify.structure import MOST_FAULTS, structural_faults
from rpukit.tiled.verify.symbolic import SymbolicRun

__all__ = ["check_plan", "check_programs", "find_faults"]


def check_plan(plan: BasePlan, graph: BaseGraph | Training) -> None:
    """Refuse a plan that is not safe or not complete.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training

    Raises
    ------
    PlanError
        With what `find_faults` found.
    """
    faults = find_faults(plan, graph)
    if faults:
        raise PlanError("the plan is not safe to run:\n" + "\n".join(faults))


def find_faults(plan: BasePlan, graph: BaseGraph | Training) -> list[str]:
    """Find what is wrong with a plan.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training

    Returns
    -------
    list of str
        At most 20, each begins with its kind: budget, bounds, race, uninitialised, stale, order,
        coverage, token_reuse, unknown_token, unwaited_at_end, missing, format.
    """
    return _faults(plan, graphs_of(graph))


def check_programs(plan: BasePlan, graphs: Sequence[BaseGraph]) -> None:
    """Refuse a plan that does not belong to these graphs, or is not safe or not complete.

    Parameters
    ----------
    plan : BasePlan
    graphs : sequence of BaseGraph
        One for each program.

    Raises
    ------
    PlanError
    """
    faults = _faults(plan, graphs)
    if faults:
        names = ", ".join(graph.name for graph in graphs)
        raise PlanError(
            f"the plan is none of {names}, or is not safe to run; plan these graphs anew:\n"
            + "\n".join(faults)
        )


def _faults(plan: BasePlan, graphs: Sequence[BaseGraph]) -> list[str]:
    if len(plan.programs) != len(graphs):
        return [f"missing: {len(plan.programs)} programs for {len(graphs)} graphs"]
    faults = structural_faults(plan)
    if faults:
        return faults
    homes = {home.value for home in plan.homes}
    for number, (program, graph) in enumerate(zip(plan.programs, graphs, strict=True)):
        values = {}
        for name in graph.tensors:
            root = graph.aliases.get(name, name)
            own = f"{root}@{number}"  # a value that the programs do not share
            values[name] = own if number and own in homes else root
        faults += SymbolicRun(plan, program, graph, values).run()
    return faults[:MOST_FAULTS]
