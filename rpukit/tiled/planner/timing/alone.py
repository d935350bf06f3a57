"""Cycles of ops with nothing beside them; each kind of op is scheduled once."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any

from rpukit.tiled.machine import Hierarchy
from rpukit.tiled.planner.draft import OpDraft
from rpukit.tiled.planner.instructions import schedule
from rpukit.tiled.planner.lifetimes import Lifetimes
from rpukit.tiled.planner.residents import Placement
from rpukit.tiled.planner.tasks import trace
from rpukit.tiled.program import Home, OperandPlan, OpPlan, Place
from rpukit.tiled.tile_space import TileSpace

__all__ = ["OpTimes", "shape_of"]


def shape_of(space: TileSpace) -> tuple[Any, ...]:
    """Make a key that is equal for ops with the same tilings.

    Parameters
    ----------
    space : TileSpace

    Returns
    -------
    tuple
    """
    operands = tuple((o.mode, o.spans) for o in space.operands)
    return space.axes, operands, space.product, space.divide, space.steps


class OpTimes:
    """Cycles of ops with nothing beside them, wherever their buffers are.

    Parameters
    ----------
    lifetimes : Lifetimes
    levels : Hierarchy
    """

    def __init__(self, lifetimes: Lifetimes, levels: Hierarchy) -> None:
        self.lifetimes, self.levels = lifetimes, levels
        self.known: dict[Hashable, int] = {}

    def cycles(self, draft: OpDraft, placement: Placement, overlap: str = "inside") -> int:
        """Count the cycles of one op.

        Parameters
        ----------
        draft : OpDraft
        placement : Placement
            Tells in which level each value lives.
        overlap : {"none", "inside"}
            Whether its transfers overlap with its kernels.

        Returns
        -------
        int
        """
        step = draft.step
        tensors = self.lifetimes.graph(step).tensors
        own = [tensors[o.tensor] for o in step.space.operands]
        names = [self.lifetimes.root(step, o.tensor) for o in step.space.operands]
        key = (
            shape_of(step.space),
            tuple((one.shape, one.itemsize) for one in own),
            tuple((names.index(name), placement.home(name)) for name in names),
            tuple(draft.choices),
            overlap,
            step.node.op if self.levels.compute.rates else "",
        )
        if key not in self.known:
            self.known[key] = self._cycles(draft, placement, overlap)
        return self.known[key]

    def _cycles(self, draft: OpDraft, placement: Placement, overlap: Any) -> int:
        step, operands, homes, top = draft.step, [], {}, 0
        tensors, n_hops = self.lifetimes.graph(step).tensors, len(self.levels) - 1
        for k, operand in enumerate(step.space.operands):
            name = self.lifetimes.root(step, operand.tensor)
            home, size = placement.home(name), self.lifetimes.values[name].bytes
            homes[name] = Home(name, self.levels[home].name, top, size, 0, 0, False)
            top += self.levels[0].rounded(size)
            places = []
            for hop in range(home, n_hops):
                lengths = step.space.worst(operand, draft.choices[hop].extents)
                size = prod(lengths) * tensors[operand.tensor].itemsize
                n = draft.choices[hop].slots[k]
                addresses = tuple(top + i * size for i in range(n))
                top += n * size
                level = self.levels[hop + 1].name
                places.append(Place(level, "slots", f"{level}:{k}", addresses, size, 0, 0))
            operands.append(OperandPlan(operand.tensor, name, operand.mode, tuple(places)))
        extents, orders = zip(*((c.extents, c.order) for c in draft.choices), strict=True)
        node, every = step.node, tuple(operands)
        op = OpPlan(node.name, node.op, extents, orders, every, overlap, "", 1)
        tasks = trace(self.lifetimes, self.levels, homes, [(step, op)])
        return schedule(tasks, [(step.number, op)], self.levels).cycles[step.number]

    def one_by_one(
        self, drafts: list[OpDraft], placement: Placement, bounds: list[int], most: int
    ) -> int:
        """Add up the cycles of ops that overlap with no other, while the sum may be below `most`.

        Parameters
        ----------
        drafts : list of OpDraft
        placement : Placement
        bounds : list of int
            Lower bound of the cycles of each op.
        most : int

        Returns
        -------
        int
            The cycles of a plan of these drafts, or `most` or more.
        """
        total = sum(bounds)
        for draft, bound in zip(drafts, bounds, strict=True):
            if total >= most:
                break
            total += self.cycles(draft, placement, draft.overlap) - bound
        return total
