"""Summaries of plans and trainers for `rpukit.summary`."""

from __future__ import annotations

from typing import Any

from rpukit.summaries import Fact, Summary, count, memory, size
from rpukit.tiled import ops
from rpukit.tiled.program import BasePlan, Program


def plan_summary(plan: BasePlan) -> Summary:
    """Summarise a plan: the contents of each level, the cost of each program."""
    n_op = sum(len(program.ops) for program in plan.programs)
    facts = [
        Fact("buffering", plan.buffering, plan.buffering),
        *_levels(plan),
        count("ops", n_op, f", programs: {len(plan.programs)}"),
        count("tiles", sum(op.n_tiles for op in plan.ops())),
        count("cycles", plan.cycles, " in the model"),
        *(fact for program in plan.programs for fact in _program(program)),
    ]
    levels = " > ".join(level.name for level in plan.hierarchy.levels)
    title = f"Plan of {n_op} ops over {levels}: {plan.cycles:,} cycles"
    return Summary("Plan", title, tuple(facts))


def _levels(plan: BasePlan) -> list[Fact]:
    facts = []
    for level in plan.hierarchy.levels:
        used = int(plan.peaks[level.name])
        homes = sum(home.level == level.name for home in plan.homes)
        share = f"{100 * used / level.bytes:.3g} %" if level.bytes else "all"
        text = f"{size(used)} of {size(level.bytes)} ({share}), home of {homes} values"
        value = {"used": used, "bytes": int(level.bytes), "values": homes}
        facts.append(Fact(f"level {level.name}", text, value))
    return facts


def _program(program: Program) -> list[Fact]:
    moved = {name: [int(i), int(o)] for name, (i, o) in program.moved.items()}
    over = "; ".join(f"{name} {size(i)} in, {size(o)} out" for name, (i, o) in moved.items())
    hidden = 100 * program.hidden / program.transferring if program.transferring else 100.0
    text = f"{program.cycles:,} cycles, {hidden:.0f} % of transfers beside kernels"
    value = {"cycles": program.cycles, "ops": len(program.ops), "moved": moved}
    return [Fact(f"program {program.name}", f"{text}; {over}" if over else text, value)]


def trainer_summary(trainer: Any) -> Summary:
    """Summarise a trainer: graph, parameters, steps and multiply-adds."""
    training = trainer.training
    tensors = training.train.tensors
    parameters = [tensors[name] for name in training.parameters]
    batch = tensors[training.data].shape
    macs = _macs(trainer)
    n = batch[0] if batch else 1
    facts = [
        count("steps", trainer.n_step, " mini-batches so far"),
        Fact("batch", " x ".join(map(str, batch)) or "one number", list(batch)),
        count("parameters", sum(t.size for t in parameters), f", arrays: {len(parameters)}"),
        memory(sum(t.nbytes for t in parameters), " of parameters"),
        count("macs per step", macs),
        Fact("macs per sample", f"{macs / max(n, 1):,.0f}", macs / max(n, 1)),
        *plan_summary(trainer.plan).facts,
    ]
    title = f"Trainer of {training.train.name}, {trainer.n_step:,} steps so far"
    return Summary("Trainer", title, tuple(facts))


def _macs(trainer: Any) -> int:
    """Count the multiply-adds of one pass through the training graph."""
    graph = trainer.training.train
    found = 0
    for node in graph.nodes:
        op = ops.find(node.op)
        if isinstance(op, ops.Tiled):
            space = op.space(node, graph.tensors)
            found += space.macs(space.whole)
    return found
