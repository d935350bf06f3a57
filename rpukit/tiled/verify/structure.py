"""Structural invariants of a plan: types, addresses and lengths, without the graph.

A plan that breaks one of these could make an executor leave its memory. So they are proved before
a plan is used: `rpukit.tiled.verify.check_plan` and every executor rely on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rpukit.tiled.program import (
    BasePlan,
    ComputeTile,
    Copy,
    Home,
    OperandPlan,
    OpPlan,
    Place,
    Program,
    Wait,
)

__all__ = ["MOST_FAULTS", "shared_memory", "structural_faults", "token_faults"]

MOST_FAULTS = 20
Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _naturals(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_natural, value))


def _rows_of_naturals(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_naturals, value))


def _end(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and _text(value[0]) and _natural(value[1])


def _box(value: Any) -> bool:
    return isinstance(value, tuple) and all(_naturals(one) and len(one) == 2 for one in value)


def _one_of(*words: str) -> Test:
    return lambda value: _text(value) and value in words


def _tuple_of(kind: type | tuple[type, ...]) -> Test:
    return lambda value: isinstance(value, tuple) and all(isinstance(v, kind) for v in value)


_ENGINE = _one_of("in", "out")
_FIELDS: Mapping[type, Mapping[str, Test]] = {
    Home: {
        "value": _text, "level": _text, "address": _natural, "bytes": _natural,
        "lower": _natural, "upper": _natural, "lasting": _flag,
    },
    Place: {
        "level": _text, "kind": _one_of("slots", "resident"), "block": _text,
        "addresses": _naturals, "bytes": _natural, "lower": _natural, "upper": _natural,
        "store": _flag,
    },
    OperandPlan: {
        "tensor": _text, "value": _text, "mode": _one_of("in", "out", "inout"),
        "places": _tuple_of(Place),
    },
    OpPlan: {
        "node": _text, "op": _text, "extents": _rows_of_naturals, "orders": _rows_of_naturals,
        "operands": _tuple_of(OperandPlan), "overlap": _one_of("none", "inside", "across"),
        "reason": _text, "n_tiles": _natural, "cycles": _natural, "alone": _natural,
        "serial": _natural, "least": _natural, "band": _natural,
    },
    Program: {
        "name": _text, "ops": _tuple_of(OpPlan),
        "instructions": _tuple_of((Copy, Wait, ComputeTile)), "cycles": _natural,
        "transferring": _natural, "hidden": _natural,
    },
    Copy: {
        "token": _natural, "engine": _ENGINE, "tensor": _text, "source": _end, "target": _end,
        "shape": _naturals, "source_strides": _naturals, "target_strides": _naturals,
    },
    Wait: {"token": _natural},
    ComputeTile: {"node": _text, "box": _box, "addresses": _naturals},
}  # fmt: skip


def structural_faults(plan: BasePlan) -> list[str]:
    """Find values of the wrong type, and addresses or lengths that leave their memory.

    Parameters
    ----------
    plan : BasePlan

    Returns
    -------
    list of str
        At most 20. Each begins with its kind: format, budget or bounds.
    """
    return _Structure(plan).run()


def token_faults(program: Program) -> list[str]:
    """Find reused tokens, waits without a transfer, and transfers that are never waited for.

    Parameters
    ----------
    program : Program

    Returns
    -------
    list of str
        Each begins with its kind: token_reuse, unknown_token or unwaited_at_end.
    """
    faults, pending = [], set()
    for one in program.instructions:
        if isinstance(one, Copy):
            if one.token in pending:
                faults.append(f"token_reuse: {program.name}: token {one.token} is pending")
            pending.add(one.token)
        elif isinstance(one, Wait):
            if one.token not in pending:
                faults.append(f"unknown_token: {program.name}: token {one.token}: no transfer")
            pending.discard(one.token)
    if pending:
        faults.append(f"unwaited_at_end: {program.name}: {len(pending)} transfers")
    return faults[:MOST_FAULTS]


def shared_memory(plan: BasePlan) -> list[str]:
    """Find homes that share memory while both values live.

    Parameters
    ----------
    plan : BasePlan

    Returns
    -------
    list of str
        Each begins with "bounds".
    """
    faults = []
    for level in plan.hierarchy.levels:
        own = [home for home in plan.homes if home.level == level.name and home.bytes]
        rows = [(h.address, h.address + h.bytes, h.lower, h.upper) for h in own]
        lo, hi, lower, upper = np.array(rows, np.int64).reshape(-1, 4).T
        for k, home in enumerate(own):
            meets = (lo < hi[k]) & (lo[k] < hi) & (lower < upper[k]) & (lower[k] < upper)
            for n in map(int, np.flatnonzero(meets[:k])):
                names = f"{own[n].value} and {home.value}"
                faults.append(f"bounds: homes of {names} in {level.name} share memory")
    return faults[:MOST_FAULTS]


class _Structure:
    def __init__(self, plan: BasePlan) -> None:
        self.plan = plan
        self.levels = [level.name for level in plan.hierarchy.levels]
        self.faults: list[str] = []

    def fault(self, kind: str, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"{kind}: {text}")

    def run(self) -> list[str]:
        """Run the stages in order; each relies on those before, so the first fault ends it."""
        for stage in (self.machine, self.types, self.sizes, self.homes, self.ops, self.programs):
            stage()
            if self.faults:
                break
        return self.faults

    def machine(self) -> None:
        levels, compute = self.plan.hierarchy.levels, self.plan.hierarchy.compute
        if not all(map(_text, self.levels)) or not _text(self.plan.buffering):
            self.fault("format", f"got {self.levels}, need names of levels and a strategy")
        for level in levels:
            numbers = (level.bytes, level.width, level.setup, level.row, level.align)
            if not all(map(_natural, numbers)) or not _flag(level.duplex):
                self.fault("format", f"level {level.name}: got {level}, need whole numbers")
        if not all(map(_natural, (compute.launch, compute.macs, compute.ew))):
            self.fault("format", f"got {compute}, need whole numbers")
        peaks = self.plan.peaks
        if not isinstance(peaks, Mapping) or set(peaks) != set(self.levels):
            self.fault("format", f"peaks: need one for each of {', '.join(self.levels)}")
        elif not all(map(_natural, peaks.values())):
            self.fault("format", f"peaks: got {dict(peaks)}, need numbers of bytes")

    def record(self, one: Any, where: str) -> None:
        """Check the types of a record's fields."""
        for name, test in _FIELDS[type(one)].items():
            if not test(getattr(one, name)):
                text = f"{getattr(one, name)!r:.60}"
                self.fault("format", f"{where}: {type(one).__name__}.{name}: got {text}")

    def types(self) -> None:
        if not _tuple_of(Home)(self.plan.homes) or not _tuple_of(Program)(self.plan.programs):
            self.fault("format", "homes and programs: need tuples")
            return
        for home in self.plan.homes:
            self.record(home, f"home of {home.value}")
        for program in self.plan.programs:
            self.record(program, f"program {program.name}")
            if self.faults:
                return
            if not isinstance(program.moved, Mapping) or not all(
                _text(name) and _naturals(both) and len(both) == 2
                for name, both in program.moved.items()
            ):
                self.fault("format", f"program {program.name}: moved: need pairs of bytes")
            for op in program.ops:
                self.record(op, f"op {op.node}")
                for operand in op.operands if not self.faults else ():
                    self.record(operand, f"operand {operand.tensor} of {op.node}")
                    for place in operand.places if not self.faults else ():
                        self.record(place, f"place of {operand.tensor} of {op.node}")
            for number, one in enumerate(program.instructions):
                self.record(one, f"instruction {number} of {program.name}")

    def sizes(self) -> None:
        """Check peaks: within the level, and no more than its blocks need."""
        taken: dict[str, dict[Any, int]] = {name: {} for name in self.levels}
        for home in self.plan.homes:
            if home.level in taken:
                taken[home.level][home.value] = home.bytes
        for op in self.plan.ops():
            for operand in op.operands:
                for place in operand.places:
                    for address in place.addresses:
                        taken.get(place.level, {})[place.block, address] = place.bytes
        for level in self.plan.hierarchy.levels:
            peak, blocks = self.plan.peaks[level.name], taken[level.name].values()
            if peak > level.bytes:
                self.fault("budget", f"{level.name} holds {peak} bytes, it has {level.bytes}")
            if peak > sum(map(level.rounded, blocks)):
                self.fault("budget", f"{level.name}: {peak} bytes are more than its blocks take")

    def within(self, level: str, address: int, size: int, what: str) -> bool:
        """Tell whether bytes are within the part of a level that is taken."""
        if level not in self.levels:
            self.fault("format", f"{what}: got level {level!r}, need one of {self.levels}")
            return False
        if address + size > self.plan.peaks[level]:
            self.fault(
                "bounds",
                f"{what}: bytes {address} to {address + size} of {level} are beyond the "
                f"{self.plan.peaks[level]} that are taken",
            )
            return False
        return True

    def homes(self) -> None:
        """Check that each value has one home, within its level."""
        seen: set[str] = set()
        n_steps = sum(len(program.ops) for program in self.plan.programs)
        for home in self.plan.homes:
            what = f"home of {home.value}"
            if home.value in seen:
                self.fault("format", f"{what}: the value has two homes")
            seen.add(home.value)
            self.within(home.level, home.address, home.bytes, what)
            if home.lower > home.upper or home.upper > max(n_steps, 1):
                self.fault("format", f"{what}: lives from {home.lower} to {home.upper}")

    def ops(self) -> None:
        """Check the cuts for every hop, and the places of operands within their levels."""
        values = {home.value for home in self.plan.homes}
        n_hops = len(self.levels) - 1
        for program in self.plan.programs:
            names = [op.node for op in program.ops]
            if len(set(names)) < len(names):
                self.fault("format", f"program {program.name}: a node has two ops")
            for op in program.ops:
                if not len(op.extents) == len(op.orders) == n_hops:
                    self.fault("format", f"op {op.node}: need extents and orders of {n_hops} hops")
                for extents, order in zip(op.extents, op.orders, strict=False):
                    if sorted(order) != list(range(len(op.extents[0]))) or (
                        len(extents) != len(order) or min(extents, default=1) < 1
                    ):
                        self.fault("format", f"op {op.node}: got tile {extents}, loops {order}")
                for operand in op.operands:
                    self.operand(op, operand, values)

    def operand(self, op: OpPlan, operand: OperandPlan, values: set[str]) -> None:
        what = f"{operand.tensor} of {op.node}"
        if operand.value not in values:
            self.fault("missing", f"{what}: value {operand.value} has no home")
        for place in operand.places:
            if place.level == self.levels[0]:
                self.fault("format", f"{what}: a place in {place.level}, the outermost level")
            for address in place.addresses:
                self.within(place.level, address, place.bytes, f"place of {what}")

    def programs(self) -> None:
        for program in self.plan.programs:
            ops = {op.node: op for op in program.ops}
            for number, one in enumerate(program.instructions):
                if isinstance(one, Copy):
                    self.copy(one, f"{program.name}: transfer {one.token} of {one.tensor}")
                elif isinstance(one, ComputeTile):
                    self.tile(one, ops, f"{program.name}: instruction {number}")

    def copy(self, one: Copy, what: str) -> None:
        if not len(one.shape) == len(one.source_strides) == len(one.target_strides) > 0:
            self.fault("format", f"{what}: shape and strides have different lengths")
            return
        if min(one.shape) < 1:
            self.fault("bounds", f"{what}: got shape {one.shape}, need lengths from 1")
            return
        for (level, address), strides in (
            (one.source, one.source_strides),
            (one.target, one.target_strides),
        ):
            span = _span(one.shape, strides)
            if not span:
                self.fault(
                    "bounds",
                    f"{what}: got strides {strides} for shape {one.shape}, need the last to be 1 "
                    "and each other one at least what lies within it",
                )
                return
            if not self.within(level, address, span, what):
                return
        ends = one.source[0], one.target[0]
        outer, inner = map(self.levels.index, ends if one.engine == "in" else ends[::-1])
        if inner != outer + 1:
            self.fault("bounds", f"{what}: goes {one.engine} from {ends[0]} to {ends[1]}")

    def tile(self, one: ComputeTile, ops: Mapping[str, OpPlan], what: str) -> None:
        op = ops.get(one.node)
        if op is None:
            self.fault("missing", f"{what}: node {one.node} is none of the program's")
            return
        if len(one.box) != len(op.extents[0]) or any(lo > hi for lo, hi in one.box):
            self.fault("bounds", f"{what}: got tile {one.box} of {one.node}")
        if len(one.addresses) != len(op.operands):
            need = len(op.operands)
            self.fault("bounds", f"{what}: got {len(one.addresses)} addresses, need {need}")
        for address in one.addresses:
            self.within(self.levels[-1], address, 0, f"{what}, a tile of {one.node}")


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Count the bytes that a copy spans; 0 where rows overlap or the run is not dense."""
    if strides[-1] != 1:
        return 0
    span = 1
    for n, step in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and step < span:
            return 0
        span += (n - 1) * step
    return span
