"""Validator of plans: proves that a plan is correct, from the plan and the graph alone.

It checks the structure (types, addresses, lengths), then that the plan belongs to the graph. Then
it executes the plan symbolically, which finds whatever would compute a different result.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpukit._checks import takes
from rpukit.errors import PlanError
from rpukit.tiled.ir import BaseGraph, Training, graphs_of
from rpukit.tiled.program import BasePlan
from rpukit.tiled.verify.structure import MOST_FAULTS, structural_faults
from rpukit.tiled.verify.symbolic import SymbolicRun

__all__ = ["check_plan", "check_programs", "find_faults"]


@takes()
def check_plan(plan: BasePlan, graph: BaseGraph | Training) -> None:
    """Check that a plan is safe and complete; raise an error if not.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training

    Raises
    ------
    PlanError
        With the faults that `find_faults` found.
    """
    faults = find_faults(plan, graph)
    if faults:
        raise PlanError("the plan is not safe to run:\n" + "\n".join(faults))


@takes()
def find_faults(plan: BasePlan, graph: BaseGraph | Training) -> list[str]:
    """List the faults of a plan.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training

    Returns
    -------
    list of str
        At most 20. Each begins with its kind: budget, bounds, race, uninitialised, stale, order,
        coverage, token_reuse, unknown_token, unwaited_at_end, missing, format.
    """
    return _faults(plan, graphs_of(graph))


def check_programs(plan: BasePlan, graphs: Sequence[BaseGraph]) -> None:
    """Check that a plan belongs to these graphs, and is safe and complete.

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
        return [f"missing: got {len(plan.programs)} programs for {len(graphs)} graphs"]
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
