"""CPU executor of plans."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rpukit._workers import run_rows
from rpukit.errors import PlanError, TransferError
from rpukit.tiled.ir import BaseGraph
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Program, Wait
from rpukit.tiled.runtime.executor import Executor, PreparedTile
from rpukit.tiled.runtime.reference import mirror
from rpukit.tiled.runtime.transfers import Transfers, make_transfers, poison

__all__ = ["CpuExecutor"]

_LINE = 64  # arenas begin at a multiple of it


class CpuExecutor(Executor):
    """Executes the programs of a plan on a CPU, with one arena for each level.

    Parameters
    ----------
    plan : Plan
    graphs : sequence of Graph
    transfers : {"at_issue", "at_wait", "mixed", "threads"} or Transfers
        When copies are done between their start and their wait. No choice changes a bit of the
        results of a correct plan. With "at_wait" and "mixed", the target of a pending copy is NaN.
    seed : int
        Of "mixed".

    Raises
    ------
    PlanError, ParameterError
    """

    def __init__(
        self,
        plan: BasePlan,
        graphs: Sequence[BaseGraph],
        transfers: str | Transfers = "at_issue",
        seed: int = 0,
    ) -> None:
        super().__init__(plan, graphs)
        self._transfers: Transfers = (
            make_transfers(transfers, seed) if isinstance(transfers, str) else transfers
        )
        self._arenas = {
            level.name: _arena(plan.peaks[level.name]) for level in plan.hierarchy.levels
        }
        self._fill_constants()
        self._free = [
            part for level in plan.hierarchy.levels[1:] for part in self._rest(level.name)
        ]
        pairs = zip(plan.programs, graphs, strict=True)
        self._ready = [self._prepared(program, graph) for program, graph in pairs]

    def run(self, k: int) -> None:
        for part in self._free:
            poison(part)
        start, wait, between = (getattr(self._transfers, n) for n in ("start", "wait", "between"))
        try:
            for kind, given in self._ready[k]:
                if kind == 0:
                    between()
                    run_rows(*given)
                elif kind == 1:
                    start(*given)
                else:
                    wait(given)
        except BaseException as error:
            self._transfers.drop()
            if not isinstance(error, (OSError, RuntimeError, ValueError, MemoryError)):
                raise
            name = self.plan.programs[k].name
            raise TransferError(f"program {name}: a transfer failed: {error}") from error

    def tile_times(self, k: int, repeat: int = 5) -> list[tuple[ComputeTile, float]]:
        found = []
        instructions = self.plan.programs[k].instructions
        for one, (kind, given) in zip(instructions, self._ready[k], strict=True):
            if kind == 0 and isinstance(one, ComputeTile):
                times = []
                for _ in range(repeat):
                    begin = time.perf_counter()
                    run_rows(*given)
                    times.append(time.perf_counter() - begin)
                found.append((one, min(times)))
        return found

    def _prepared(self, program: Program, graph: BaseGraph) -> list[tuple[int, Any]]:
        """Prepare the instructions of a program once, as a list of calls."""
        ready: list[tuple[int, Any]] = []
        inner = self._arenas[self.plan.hierarchy.levels[-1].name]
        for one in self._tiles(program, graph):
            if isinstance(one, PreparedTile):
                ready.append((0, _call(one, inner)))
            elif isinstance(one, Copy):
                ready.append((1, (one.token, one.engine == "in", *self._ends(one))))
            else:
                assert isinstance(one, Wait)
                ready.append((2, one.token))
        return ready

    def _rest(self, level: str) -> Iterator[np.ndarray]:
        """Find the parts of an arena that are no home: their contents end with a run."""
        arena, begin = self._arenas[level], 0
        homes = [home for home in self.plan.homes if home.level == level]
        for home in sorted(homes, key=lambda home: home.address):
            if home.address > begin:
                yield arena[begin : home.address]
            begin = max(begin, home.address + home.bytes)
        yield arena[begin:]

    def _ends(self, one: Copy) -> tuple[np.ndarray, np.ndarray]:
        """View source and target of a copy, in the widest words that fit both."""
        sides = ((one.source, one.source_strides), (one.target, one.target_strides))
        steps = [n for place, strides in sides for n in (place[1], *strides[:-1])]
        width = next(w for w in (8, 4, 1) if not any(n % w for n in (*steps, one.shape[-1])))
        source, target = (self._part(*place, one.shape, s, width) for place, s in sides)
        return source, target

    def _part(
        self,
        level: str,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        width: int,
    ) -> np.ndarray:
        """View a rectangle of an arena in words."""
        arena = self._arenas[level]
        end = address + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
        if min(shape) < 1 or address < 0 or end > arena.size:
            raise PlanError(
                f"copy: got shape {shape} at address {address}, which does not fit into {level}"
            )
        words = arena[: arena.size // width * width].view(f"u{width}")[address // width :]
        lengths = (*shape[:-1], shape[-1] // width)
        return np.lib.stride_tricks.as_strided(words, lengths, (*strides[:-1], width))


def _arena(n_bytes: int) -> np.ndarray:
    memory = np.empty(n_bytes + 2 * _LINE, np.uint8)
    first = -memory.ctypes.data % _LINE
    arena: np.ndarray = memory[first : first + -(-n_bytes // 8) * 8]
    poison(arena)
    return arena


def _call(tile: PreparedTile, inner: np.ndarray) -> tuple[Any, ...]:
    """Make the arguments of `run_rows` for a tile."""
    nothing = np.empty(0, tile.floats.dtype)
    buffers = [nothing if span is None else _view(inner, *span) for span in tile.spans]
    kernel = mirror(tile.op, tile.floats.dtype)
    more = tile.op.arguments(tile.node)
    return (kernel, int(tile.ints[0]), *more, tile.ints, tile.floats, *buffers)


def _view(inner: np.ndarray, address: int, count: int, dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    return inner[address : address + count * kind.itemsize].view(kind)
