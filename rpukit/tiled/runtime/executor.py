"""Base class of executors: addresses of tensors, and programs prepared to run many times."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpukit._device import Array
from rpukit.errors import PlanError
from rpukit.tiled import ops
from rpukit.tiled.ir import BaseGraph, Node, Tensor
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Home, Program, Wait
from rpukit.tiled.tile_space import Box, TileSpace
from rpukit.tiled.verify.check_plan import check_programs

__all__ = ["Executor", "PreparedTile"]


@dataclass(frozen=True, slots=True)
class PreparedTile:
    """A tile prepared for execution: its kernel, its numbers, and where its buffers are.

    Parameters
    ----------
    op : Tiled
    node : Node
    ints, floats : array
    spans : tuple of (int, int, str) or None
        Address, elements and dtype of each buffer of the kernel; None where it has no operand.
    work : (TileSpace, Box)
        All tiles of the op, and the box of this one, for the cycle model.
    """

    op: ops.Tiled
    node: Node
    ints: np.ndarray
    floats: np.ndarray
    spans: tuple[tuple[int, int, str] | None, ...]
    work: tuple[TileSpace, Box]


class Executor(ABC):
    """Base of executors: runs the programs of a plan over arenas of bytes, one for each level.

    Parameters
    ----------
    plan : Plan
    graphs : sequence of Graph
        One for each program of the plan.

    Raises
    ------
    PlanError
        If the plan does not belong to these graphs, or `find_faults` finds a fault.
    """

    def __init__(self, plan: BasePlan, graphs: Sequence[BaseGraph]) -> None:
        if len(graphs) != len(plan.programs):
            raise PlanError(
                f"graphs: got {len(graphs)}, need {len(plan.programs)}: one for each "
                f"program of the plan"
            )
        check_programs(plan, graphs)
        self.plan, self.graphs = plan, tuple(graphs)
        self._homes: dict[str, Home] = {home.value: home for home in plan.homes}
        self._aliases = [graph.aliases for graph in graphs]
        self._arenas: dict[str, Array] = {}

    def home(self, name: str, program: int = 0) -> Home:
        """Find where a tensor lives between ops.

        Parameters
        ----------
        name : str
        program : int
            Index of the program; tensors of the second one alone may repeat names of the first.

        Returns
        -------
        Home

        Raises
        ------
        PlanError
        """
        root = self._aliases[program].get(name, name)
        found = self._homes.get(f"{root}@{program}") or self._homes.get(root)
        if found is None or name not in self.graphs[program].tensors:
            raise PlanError(f"tensor {name!r} has no home in this plan; need one of its tensors")
        return found

    def has_home(self, name: str, program: int = 0) -> bool:
        """Tell whether a tensor that aliases no other has a home.

        Parameters
        ----------
        name : str
        program : int

        Returns
        -------
        bool
        """
        return f"{name}@{program}" in self._homes or name in self._homes

    def array(self, name: str, program: int = 0) -> Any:
        """View a tensor in its home: writing into the array changes it.

        Parameters
        ----------
        name : str
        program : int

        Returns
        -------
        array
        """
        home, tensor = self.home(name, program), self.graphs[program].tensors[name]
        part = self._arenas[home.level][home.address : home.address + tensor.nbytes]
        return part.view(tensor.dtype).reshape(tensor.shape)

    @abstractmethod
    def run(self, k: int) -> None:
        """Run a program from its first to its last instruction.

        Parameters
        ----------
        k : int

        Raises
        ------
        TransferError
        """

    @abstractmethod
    def tile_times(self, k: int, repeat: int = 5) -> list[tuple[ComputeTile, float]]:
        """Time the tiles of a program, each alone, on what a run left in memory.

        Parameters
        ----------
        k : int
        repeat : int
            Runs of each tile.

        Returns
        -------
        list of (ComputeTile, float)
            In order of execution, with seconds.
        """

    def _fill_constants(self) -> None:
        for k, graph in enumerate(self.graphs):
            for name, value in graph.constants.items():
                if self.has_home(name, k):
                    self.array(name, k)[...] = value

    def _tiles(self, program: Program, graph: BaseGraph) -> Iterator[Copy | Wait | PreparedTile]:
        """Iterate over a program, with every tile prepared."""
        nodes = {node.name: node for node in graph.nodes}
        size = self.plan.peaks[self.plan.hierarchy.levels[-1].name]
        for one in program.instructions:
            if not isinstance(one, ComputeTile):
                yield one
                continue
            if one.node not in nodes:
                raise PlanError(
                    f"node {one.node!r} of the plan is not in graph {graph.name}; plan it anew"
                )
            yield _tile(nodes[one.node], graph.tensors, one, size)


def _tile(node: Node, tensors: Mapping[str, Tensor], one: ComputeTile, size: int) -> PreparedTile:
    op = ops.find(node.op)
    assert isinstance(op, ops.Tiled)
    space = op.space(node, tensors)
    problem = space.problem(one.box)
    if problem or len(one.addresses) != len(space.operands):
        need = f"need {len(space.operands)} addresses, got {len(one.addresses)}"
        raise PlanError(f"tile {one.box} of node {node.name}: {problem or need}")
    spans: list[tuple[int, int, str] | None] = [None] * op.buffers
    for operand, address in zip(space.operands, one.addresses, strict=True):
        tensor = tensors[operand.tensor]
        count = math.prod(hi - lo for lo, hi in space.rectangle(operand, one.box))
        if not 0 <= address <= size - count * tensor.itemsize:
            raise PlanError(
                f"tile {one.box} of node {node.name}: {operand.tensor} at {address} is outside"
            )
        kind = "uint16" if tensor.dtype == "float16" else tensor.dtype  # kernels read its bits
        spans[operand.slot] = (address, count, kind)
    ints, floats = op.parameters(node, tensors, one.box)
    return PreparedTile(op, node, ints, floats, tuple(spans), (space, one.box))
