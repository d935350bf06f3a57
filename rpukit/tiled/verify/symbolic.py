"""Symbolic execution of a plan, on names of values instead of numbers.

Every piece of memory holds the name of its content: the tensor, the element, the version, and how
much of a sum. So a kernel that would read a stale, half summed or pending value, or another
tensor, is found without computing anything, whatever the transfers' timing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd, prod
from typing import TypeGuard

import numpy as np

from rpukit.tiled import ops
from rpukit.tiled.ir import BaseGraph, Node, Tensor
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Home, OpPlan, Program, Wait
from rpukit.tiled.tile_space import Box, Operand, TileSpace
from rpukit.tiled.verify.hazards import covered_once
from rpukit.tiled.verify.structure import MOST_FAULTS

__all__ = ["SymbolicRun"]

_NOTHING = -1


def _contiguous_from(shape: Sequence[int], part: Box) -> int:
    """Find the first axis of a rectangle from which on it is contiguous in its tensor."""
    whole = len(shape)
    while whole and part[whole - 1] == (0, shape[whole - 1]):
        whole -= 1
    return max(whole - 1, 0)


def _runs(tensor: Tensor, part: Box) -> Iterator[int]:
    """Yield the bytes of a contiguous run of a rectangle, and the steps between its runs."""
    first, whole = 0, _contiguous_from(tensor.shape, part)
    for i, (lo, hi) in enumerate(part):
        step = prod(tensor.shape[i + 1 :]) * tensor.itemsize
        first += lo * step
        if i < whole and hi - lo > 1:
            yield step
    yield first
    yield prod(hi - lo for lo, hi in part[whole:]) * tensor.itemsize


def _is_tile(one: object) -> TypeGuard[ComputeTile]:
    return isinstance(one, ComputeTile)


class _Memory:
    """Memory of one level: the content of every granule, and the transfers that touch it."""

    def __init__(self, size: int, granule: int) -> None:
        n = -(-size // granule) + 1
        self.granule, self.size = granule, size
        self.holds = np.full(n, _NOTHING, np.int64)
        self.reading = np.zeros(n, np.int16)
        self.writing = np.zeros(n, np.int16)

    def view(
        self, array: np.ndarray, address: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> np.ndarray:
        g, s = self.granule, array.itemsize
        lengths = (*shape[:-1], -(-shape[-1] // g))
        steps = (*(step // g * s for step in strides[:-1]), s)
        return np.ndarray(lengths, array.dtype, array, address // g * s, steps)


class _Transfer:
    """A pending copy."""

    def __init__(self, source: np.ndarray, target: np.ndarray) -> None:
        self.source, self.target = source, target
        self.moved = np.empty(0)
        self.into = np.empty(0)


class SymbolicRun:
    """Symbolic run of one program of a plan, whose structure was checked before.

    Parameters
    ----------
    plan : BasePlan
    program : Program
    graph : BaseGraph
    value : mapping of str to str
        The value that each tensor of the graph is a part of.
    """

    def __init__(
        self, plan: BasePlan, program: Program, graph: BaseGraph, value: Mapping[str, str]
    ) -> None:
        self.plan, self.program, self.graph, self.value = plan, program, graph, value
        self.homes = {home.value: home for home in plan.homes}
        self.ops: dict[str, OpPlan] = {op.node: op for op in program.ops}
        self.nodes = {node.name: node for node in graph.nodes}
        self.faults: list[str] = []
        self.spaces: dict[str, TileSpace] = {}
        self._compare()
        if self.faults:  # a plan of another graph
            return
        self.granule = self._granule()
        self.inner = plan.hierarchy.levels[-1].name
        self.memory = {
            level.name: _Memory(max(plan.peaks.get(level.name, 0), 8), self.granule)
            for level in plan.hierarchy.levels
        }
        self.base = self._names()
        self.blocks = self._blocks()
        self.pending: dict[int, _Transfer] = {}
        self.partial: dict[tuple[str, Box], tuple[int, int]] = {}  # name, points of the sum
        self.next_partial = -2
        self.covered: dict[str, list[Box]] = {}

    def _compare(self) -> None:
        """Check that the plan belongs to the graph: nodes, operands, sizes of values."""
        for name, tensor in self.graph.tensors.items():
            home = self.homes.get(self.value[name])
            if home is not None and home.bytes != tensor.nbytes:
                self.fault("bounds", f"{name} is {tensor.nbytes} bytes, its home {home.bytes}")
        for plan in self.program.ops:
            node = self.nodes.get(plan.node)
            if node is None or node.op != plan.op or ops.find(node.op).view:
                self.fault("missing", f"{plan.op} {plan.node} is no node of {self.graph.name}")
                continue
            space = self.space(node)
            if len(plan.extents[0]) != len(space.axes):
                self.fault("order", f"{plan.op} {plan.node}: need tiles of {len(space.axes)} axes")
            wanted = [(o.tensor, self.value[o.tensor], o.mode) for o in space.operands]
            if [(o.tensor, o.value, o.mode) for o in plan.operands] != wanted:
                self.fault("missing", f"{plan.op} {plan.node}: operands differ from the graph's")

    def _granule(self) -> int:
        """Find the largest size that divides every address, step and run."""
        found = 0
        for one in self.program.instructions:
            if isinstance(one, Copy):
                steps = (*one.source_strides[:-1], *one.target_strides[:-1])
                tensor = self.graph.tensors.get(one.tensor)
                runs = (one.shape[-1],) if tensor is None or tensor.size > 1 else ()
                found = gcd(found, one.source[1], one.target[1], *steps, *runs)
            elif isinstance(one, ComputeTile):
                found = gcd(found, *one.addresses)
        for home in self.plan.homes:
            found = gcd(found, home.address)
        for tensor in self.graph.tensors.values():
            if tensor.size > 1:
                found = gcd(found, tensor.nbytes)
        boxes = {(one.node, one.box) for one in self.program.instructions if _is_tile(one)}
        for name, box in boxes:
            node = self.nodes.get(name)
            if node is None or name not in self.ops or self.space(node).problem(box):
                continue
            for operand in self.space(node).operands:
                tensor = self.graph.tensors[operand.tensor]
                if tensor.size > 1:
                    found = gcd(found, *_runs(tensor, self.space(node).rectangle(operand, box)))
        return found or 4

    def _names(self) -> dict[str, int]:
        """Number the pieces of every version of every value."""
        base: dict[str, int] = {}
        same: dict[str, str] = {}
        for node in self.graph.nodes:
            if ops.find(node.op).view:
                same[node.outputs[0]] = same.get(node.inputs[0], node.inputs[0])
        total = 0
        for name, tensor in self.graph.tensors.items():
            if name not in same:
                base[name] = total
                total += -(-tensor.nbytes // self.granule) + 1
        for name, source in same.items():
            base[name] = base[source]
        return base

    def _blocks(self) -> dict[tuple[str, str], list[tuple[int, int]]]:
        found: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for home in self.plan.homes:
            key = (home.level, home.value)
            found.setdefault(key, []).append((home.address, home.address + home.bytes))
        for op in self.program.ops:
            for operand in op.operands:
                for place in operand.places:
                    spans = [(a, a + place.bytes) for a in place.addresses]
                    found.setdefault((place.level, operand.value), []).extend(spans)
        return found

    def fault(self, kind: str, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"{kind}: {self.program.name}: {text}")

    def run(self) -> list[str]:
        if self.faults:
            return self.faults
        for name in (*self.graph.inputs, *self.graph.constants):
            home = self.homes.get(self.value[name])
            if home is not None:
                self.pieces(home)[...] = self.wanted(name, None).reshape(-1)
        for one in self.program.instructions:
            if isinstance(one, Copy):
                self.copy(one)
            elif isinstance(one, Wait):
                self.wait(one)
            else:
                self.compute(one)
        if self.pending:
            self.fault("unwaited_at_end", f"{len(self.pending)} transfers")
        self.end()
        return self.faults

    def pieces(self, home: Home) -> np.ndarray:
        memory = self.memory[home.level]
        return memory.view(memory.holds, home.address, (home.bytes,), (1,))

    def wanted(self, tensor: str, part: Box | None) -> np.ndarray:
        """Name the pieces of a rectangle, row by row; empty if it does not consist of pieces."""
        shape, size = self.graph.tensors[tensor].shape, self.graph.tensors[tensor].itemsize
        part = tuple((0, n) for n in shape) if part is None else part
        lengths = tuple(hi - lo for lo, hi in part)
        whole = _contiguous_from(shape, part)
        in_a_row = prod(lengths[whole:]) * size
        run = -(-in_a_row // self.granule)
        first = 0
        starts = np.zeros((), np.int64)
        for i, (lo, hi) in enumerate(part):
            step = prod(shape[i + 1 :]) * size
            if i < whole:
                starts = starts[..., None] + np.arange(lo, hi) * step
            else:
                first += lo * step
        cut = in_a_row % self.granule and self.graph.tensors[tensor].size > 1
        if cut or ((starts + first) % self.granule).any():
            return np.empty(0, np.int64)
        names = (starts.reshape(-1, 1) + first) // self.granule + np.arange(run)
        return np.asarray(names + self.base[tensor], np.int64)

    def inside(self, level: str, value: str, lo: int, hi: int, what: str) -> bool:
        if hi > self.memory[level].size or lo < 0:
            self.fault("bounds", f"{what}: bytes {lo} to {hi} of {level} are beyond what is taken")
            return False
        if not any(a <= lo and hi <= b for a, b in self.blocks.get((level, value), ())):
            self.fault("bounds", f"{what}: bytes {lo} to {hi} of {level} are in no block of it")
        return True

    def in_place(self, node: str, k: int, lo: int, hi: int) -> bool:
        """Tell whether bytes of the innermost level belong to an operand while its op runs."""
        op = self.ops[node]
        operand = op.operands[k] if k < len(op.operands) else None
        home = self.homes.get(operand.value) if operand else None
        spans = [
            (a, a + place.bytes)
            for place in (operand.places if operand else ())
            if place.level == self.inner
            for a in place.addresses
        ]
        if home is not None and home.level == self.inner:
            spans.append((home.address, home.address + home.bytes))
        return any(a <= lo and hi <= b for a, b in spans)

    def copy(self, one: Copy) -> None:
        what = f"transfer {one.token} of {one.tensor}"
        value = self.value.get(one.tensor, one.tensor)
        arrays = []
        for (level, address), strides in (
            (one.source, one.source_strides),
            (one.target, one.target_strides),
        ):
            span = sum((n - 1) * s for n, s in zip(one.shape, strides, strict=True)) + 1
            if not self.inside(level, value, address, address + span, what):
                return
            memory = self.memory[level]
            arrays.append(
                [
                    memory.view(array, address, one.shape, strides)
                    for array in (memory.holds, memory.reading, memory.writing)
                ]
            )
        (here, reading, other), (there, read, writing) = arrays
        if other.any() or writing.any() or read.any():
            self.fault("race", f"{what} overlaps with a pending one")
        if (here == _NOTHING).any():
            self.fault("uninitialised", f"{what} reads memory that was never written")
        if one.token in self.pending:
            self.fault("token_reuse", f"{what}: the token is still pending")
        transfer = _Transfer(reading, writing)
        transfer.moved, transfer.into = here.copy(), there
        reading += 1
        writing += 1
        there[...] = _NOTHING
        self.pending[one.token] = transfer

    def wait(self, one: Wait) -> None:
        transfer = self.pending.pop(one.token, None)
        if transfer is None:
            self.fault("unknown_token", f"wait for {one.token}, which is not pending")
            return
        transfer.source -= 1
        transfer.target -= 1
        transfer.into[...] = transfer.moved

    def space(self, node: Node) -> TileSpace:
        if node.name not in self.spaces:
            op = ops.find(node.op)
            assert isinstance(op, ops.Tiled)
            self.spaces[node.name] = op.space(node, self.graph.tensors)
        return self.spaces[node.name]

    def compute(self, one: ComputeTile) -> None:
        node = self.nodes.get(one.node)
        if node is None or one.node not in self.ops:
            self.fault("missing", f"the graph has no node {one.node}")
            return
        space, what = self.space(node), f"{node.op} {node.name} {one.box}"
        problem = space.problem(one.box)
        if problem or len(one.addresses) != len(space.operands):
            self.fault("order", f"{what}: {problem or 'wrong number of addresses'}")
            return
        written = []
        for k, operand in enumerate(space.operands):
            part = space.rectangle(operand, one.box)
            size = prod(hi - lo for lo, hi in part) * self.graph.tensors[operand.tensor].itemsize
            if not size:
                continue
            address, label = one.addresses[k], f"{what}, {operand.tensor}"
            value = self.value[operand.tensor]
            if not self.inside(self.inner, value, address, address + size, label):
                continue
            if not self.in_place(one.node, k, address, address + size):
                self.fault(
                    "bounds", f"{label}: bytes {address} to {address + size} are not its own"
                )
            memory = self.memory[self.inner]
            holds, reading, writing = (
                memory.view(array, address, (size,), (1,))
                for array in (memory.holds, memory.reading, memory.writing)
            )
            if writing.any() or (operand.mode != "in" and reading.any()):
                self.fault("race", f"{label} overlaps with a pending transfer")
            wanted = self.wanted(operand.tensor, part).reshape(-1)
            if wanted.size != holds.size:
                self.fault("order", f"{label}: the tile does not belong to the tiling of its op")
                continue
            if operand.mode != "out":
                self.expect(holds, wanted, label)
            if operand.mode != "in":
                written.append((operand, part, holds))
        for operand, part, holds in written:
            self.write(node, space, operand, part, holds, one.box)

    def expect(self, holds: np.ndarray, wanted: np.ndarray, label: str) -> None:
        if np.array_equal(holds, wanted):
            return
        if (holds == _NOTHING).any():
            self.fault("uninitialised", f"{label} reads memory not written yet")
        elif (holds < _NOTHING).any():
            self.fault("stale", f"{label} reads an unfinished sum")
        else:
            self.fault("stale", f"{label} reads another value")

    def write(
        self,
        node: Node,
        space: TileSpace,
        operand: Operand,
        part: Box,
        holds: np.ndarray,
        box: Box,
    ) -> None:
        """Continue a partial sum, or complete a result."""
        label = f"{node.op} {node.name} {box}, {operand.tensor}"
        reduce = [
            (r, axis.extent)
            for axis, r in zip(space.axes, box, strict=True)
            if axis.kind == "reduce"
        ]
        start = 0
        for (lo, _), extent in reduce:
            start = start * extent + lo
        points = prod(hi - lo for (lo, hi), _ in reduce)
        key = (node.name, part)
        name, reached = self.partial.pop(key, (0, 0))
        if start != reached:
            self.fault("order", f"{label}: the sum is at {reached}, the tile begins at {start}")
        elif start and not (holds == name).all():
            self.fault("uninitialised", f"{label}: the sum so far is not in this buffer")
        if start + points < prod(extent for _, extent in reduce):
            self.partial[key] = (self.next_partial, start + points)
            holds[...] = self.next_partial
            self.next_partial -= 1
            return
        output = operand.tensor if operand.alias is None else node.outputs[operand.alias]
        holds[...] = self.wanted(output, part).reshape(-1)
        self.covered.setdefault(output, []).append(part)

    def end(self) -> None:
        """Check that every output was computed once, and that wanted values are at home."""
        for node in self.graph.nodes:
            if ops.find(node.op).view:
                continue
            space = self.space(node)
            for operand in space.operands:
                if operand.mode == "in":
                    continue
                name = operand.tensor
                name = name if operand.alias is None else node.outputs[operand.alias]
                part = space.rectangle(operand, space.whole)
                boxes = [
                    tuple((a - lo, b - lo) for (a, b), (lo, _) in zip(box, part, strict=True))
                    for box in self.covered.get(name, [])
                ]
                lengths = tuple(hi - lo for lo, hi in part)
                if prod(lengths) and not covered_once(boxes, lengths):
                    self.fault("coverage", f"{node.op} {node.name}: {name} is not computed once")
        for name in self._kept():
            home = self.homes.get(self.value[name])
            if home is None:
                self.fault("missing", f"{name} has no home")
            elif not np.array_equal(self.pieces(home), self.final(name)):
                self.fault("missing", f"{name} is not at home in {home.level} at the end")

    def final(self, name: str) -> np.ndarray:
        """Name the pieces of a value at the end: rows that an update left out are the old ones."""
        pieces = self.wanted(name, None).reshape(-1)
        for node in self.graph.nodes if name in self.graph.aliases else ():
            for operand in self.space(node).operands if name in node.outputs else ():
                if operand.alias is None or node.outputs[operand.alias] != name:
                    continue
                part = self.space(node).rectangle(operand, self.space(node).whole)
                own = self.wanted(name, part).reshape(-1)
                old = self.wanted(operand.tensor, None).reshape(-1)
                pieces = np.where(np.isin(pieces, own), pieces, old)
        return pieces

    def _kept(self) -> Iterable[str]:
        """Name the last version of each value that has to be at home at the end."""
        last: dict[str, str] = {}
        for node in self.graph.nodes:
            for output, source in ops.find(node.op).aliases(node):
                if not ops.find(node.op).view:
                    last[self.value[source]] = output
        lasting = {home.value for home in self.plan.homes if home.lasting}
        kept: Mapping[str, str] = {
            self.value[name]: name
            for name in (*self.graph.inputs, *self.graph.constants, *self.graph.outputs)
            if self.value[name] in lasting or name in self.graph.outputs
        }
        return [last.get(value, name) for value, name in kept.items()]
