"""Simulation of a plan's instructions by the cycle model."""

from __future__ import annotations

from math import prod

from rpukit.tiled import ops
from rpukit.tiled.ir import BaseGraph, Training, graphs_of
from rpukit.tiled.program import BasePlan, Busy, Copy, Wait
from rpukit.tiled.tile_space import TileSpace

__all__ = ["simulate"]


def simulate(plan: BasePlan, graph: BaseGraph | Training, program: int = 0) -> list[Busy]:
    """Simulate a program: find when every transfer and every kernel runs.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training
    program : int
        0 for the graph or the training graph, 1 for the optimiser's.

    Returns
    -------
    list of Busy
        In order of issue; `Busy.step` counts the ops of the program from 0.
    """
    one = graphs_of(graph)[program]
    spaces: dict[str, TileSpace] = {}
    ops_of = {node.name: node.op for node in one.nodes}
    for node in one.nodes:
        op = ops.find(node.op)
        if isinstance(op, ops.Tiled):
            spaces[node.name] = op.space(node, one.tensors)
    place = {op.node: number for number, op in enumerate(plan.programs[program].ops)}
    levels, machine = plan.hierarchy, plan.hierarchy.compute
    now, step = 0, 0
    ends: dict[int, int] = {}
    free: dict[tuple[str, str], int] = {}
    found = []
    for instruction in plan.programs[program].instructions:
        if isinstance(instruction, Wait):
            now = max(now, ends[instruction.token])
        elif isinstance(instruction, Copy):
            into = instruction.engine == "in"
            link = levels[levels.index((instruction.target if into else instruction.source)[0])]
            key = link.name, instruction.engine if link.duplex else ""
            start = max(now, free.get(key, 0))
            rows = prod(instruction.shape[:-1])
            end = start + link.cycles(prod(instruction.shape), rows)
            free[key] = ends[instruction.token] = end
            found.append(Busy(f"{link.name} {instruction.engine}", step, start, end))
        else:
            space, step = spaces[instruction.node], place[instruction.node]
            box = instruction.box
            end = now + machine.tile(ops_of[instruction.node], space, box)
            found.append(Busy("compute", step, now, end))
            now = end
    return found
