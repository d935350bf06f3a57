"""The shortest executor there is: every transfer is done when it is issued."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rpukit.tiled import ops
from rpukit.tiled.lifetimes import graphs_of
from rpukit.tiled.plans import Compute, Copy, Plan
from rpukit.tiled.run import run_tile


class Plain:
    """Memories as bytes, and a graph whose plan is run on them."""

    def __init__(self, plan: Plan, graph) -> None:
        self.plan, self.graphs = plan, graphs_of(graph)
        self.memory = {
            level.name: np.full(plan.peaks[level.name] + 8, 0xFF, np.uint8)  # all are NaN
            for level in plan.hierarchy.levels
        }
        self.homes = {home.value: home for home in plan.homes}

    def value(self, name: str, program: int = 0) -> np.ndarray:
        """A value at home, as an array that can be written."""
        graph = self.graphs[program]
        root = graph.aliases.get(name, name)
        home = self.homes.get(root if program == 0 or root in self.homes else f"{root}@{program}")
        tensor = graph.tensors[name]
        part = self.memory[home.level][home.address : home.address + home.bytes]
        return part.view(tensor.dtype).reshape(tensor.shape)

    def run(self, program: int = 0) -> None:
        graph = self.graphs[program]
        nodes = {node.name: node for node in graph.nodes}
        inner = self.memory[self.plan.hierarchy.levels[-1].name]
        for one in self.plan.programs[program].instructions:
            if isinstance(one, Copy):
                source, target = (
                    as_strided(self.memory[level][address:], one.shape, strides)
                    for (level, address), strides in (
                        (one.source, one.source_strides),
                        (one.target, one.target_strides),
                    )
                )
                target[...] = source
            elif isinstance(one, Compute):
                node = nodes[one.node]
                op = ops.find(node.op)
                space = op.space(node, graph.tensors)
                buffers = [None] * op.buffers
                for operand, address in zip(space.operands, one.addresses, strict=True):
                    dtype = np.dtype(graph.tensors[operand.tensor].dtype)
                    part = space.rectangle(operand, one.box)
                    size = int(np.prod([hi - lo for lo, hi in part], dtype=np.int64))
                    taken = inner[address : address + size * dtype.itemsize]
                    buffers[operand.slot] = taken.view(dtype)
                run_tile(node, graph.tensors, one.box, buffers)
