"""GPU executor of plans, out of core: tensors in pinned host memory, one arena on the GPU.

The compute stream is the core of the plan, in its program order. A copy runs on the stream of its
direction, after all earlier work of the compute stream; a wait makes the compute stream wait for
the copy. The host does not block before the end of a program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import Replay
from rpukit.errors import DeviceError, PlanError, TransferError
from rpukit.tiled.ir import BaseGraph
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Program, Wait
from rpukit.tiled.runtime.executor import Executor, PreparedTile
from rpukit.tiled.runtime.gpu_tiles import Tables, launcher

__all__ = ["GpuExecutor", "Overlap"]

_ALIGN = 256
_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyKind
_PARTS = 256  # part of the budget that sums of rows may take, of the one in 128 beside the arena
_HOST = 8000  # nanoseconds that the host takes for an instruction


@dataclass(frozen=True, slots=True)
class Overlap:
    """Measured times of a program: as a whole, and of its parts alone.

    Parameters
    ----------
    total, compute, inward, outward, copies : float
        Seconds of the whole, of all tiles, of all copies to the GPU, of all back, and of all
        copies both ways at once, which slow one another down.
    """

    total: float
    compute: float
    inward: float
    outward: float
    copies: float

    @property
    def fraction(self) -> float:
        """Fraction of the hideable time that was hidden, 0 to 1."""
        every = self.compute + self.inward + self.outward
        hideable = every - max(self.compute, self.copies)
        hidden = every - self.total
        return min(1.0, max(0.0, hidden / hideable)) if hideable > 0 else 1.0


class GpuExecutor(Executor):
    """Executes the programs of a plan over two levels, host and device, on a GPU.

    Parameters
    ----------
    plan : Plan
        Of `rpukit.tiled.gpu` levels, or others of two.
    graphs : sequence of Graph
    device : str
    captured : bool, optional
        Replay each program as one CUDA graph after its first run. Default: True where single
        launches would take the host longer than the program takes in the model. Else single
        launches are faster, since copies in both directions never wait for one another.

    Raises
    ------
    PlanError, DeviceError
    """

    def __init__(
        self,
        plan: BasePlan,
        graphs: Sequence[BaseGraph],
        device: str = "gpu",
        captured: bool | None = None,
    ) -> None:
        super().__init__(plan, graphs)
        levels = plan.hierarchy.levels
        if len(levels) != 2:
            names = ", ".join(level.name for level in levels)
            raise PlanError(f"levels: got {names}, need two levels, such as those of tiled.gpu")
        self._place = _device.parse_device(device)
        self._cupy = cp = _device.cupy()
        host, inner = (plan.peaks[level.name] for level in levels)
        with cp.cuda.Device(self._place.index):
            self._arenas = {levels[0].name: _pinned(cp, host), levels[1].name: _arena(cp, inner)}
            self._arenas[levels[1].name].fill(255)
            self._core, self._in, self._out = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
            self._fill_constants()
            self._kept: list[Tables] = []  # kept alive: replayed launches hold addresses only
            pairs = zip(plan.programs, graphs, strict=True)
            self._ready = [self._prepared(program, graph) for program, graph in pairs]
            # The streams of programs do not wait for this one, which fills memory and tables.
            cp.cuda.get_current_stream().synchronize()
        self._capture = [
            len(p.instructions) * _HOST > p.cycles if captured is None else captured
            for p in plan.programs
        ]
        self._captured: list[Any] = [None] * len(graphs)
        self._warm = [False] * len(graphs)
        self._events: list[Any] = []
        self._bound = _device.gpu_count() > 0

    def run(self, k: int) -> None:
        cp = self._cupy
        try:
            with cp.cuda.Device(self._place.index), self._core:
                if self._capture[k] and self._captured[k] is None and self._warm[k]:
                    self._core.begin_capture()
                    self._enqueue(k)
                    self._captured[k] = self._core.end_capture()
                if self._capture[k] and self._captured[k] is not None:
                    self._captured[k].launch(self._core)
                else:
                    self._enqueue(k)
                self._core.synchronize()
                self._warm[k] = True
        except cp.cuda.runtime.CUDARuntimeError as error:
            name = self.plan.programs[k].name
            raise TransferError(f"program {name}: {error}") from error

    def measure(self, k: int, repeat: int = 5) -> Overlap:
        """Time a program and its parts; persistent values are restored afterwards.

        Parameters
        ----------
        k : int
        repeat : int
            Runs of each, of which the median counts.

        Returns
        -------
        Overlap
        """
        home = self._arenas[self.plan.hierarchy.levels[0].name]
        kept = home.copy()
        self.run(k)
        self.run(k)
        kinds = ("compute", "in", "out", "copies")
        times = [_median(partial(self.run, k), repeat)]
        times += [_median(partial(self._run_part, k, kind), repeat) for kind in kinds]
        home[...] = kept
        return Overlap(*times)

    def waits(self, k: int) -> list[tuple[Copy, float]]:
        """Time each wait of a program for a copy: how long the compute stream stood still.

        Parameters
        ----------
        k : int

        Returns
        -------
        list of (Copy, float)
            In order of the waits, with seconds. Persistent values are restored afterwards.
        """
        copies = {
            one.token: one for one in self.plan.programs[k].instructions if isinstance(one, Copy)
        }
        home = self._arenas[self.plan.hierarchy.levels[0].name]
        kept, marks = home.copy(), list[tuple[int, Any, Any]]()
        with self._cupy.cuda.Device(self._place.index), self._core:
            self._enqueue(k, marks=marks)
            self._core.synchronize()
        home[...] = kept
        elapsed = self._cupy.cuda.get_elapsed_time
        return [(copies[token], 1e-3 * elapsed(*pair)) for token, *pair in marks]

    def tile_times(self, k: int, repeat: int = 5) -> list[tuple[ComputeTile, float]]:
        cp, events, found = self._cupy, [], []
        instructions = self.plan.programs[k].instructions
        with cp.cuda.Device(self._place.index), self._core:
            for one, (kind, _, act) in zip(instructions, self._ready[k], strict=True):
                if kind == "compute" and isinstance(one, ComputeTile):
                    marks = [cp.cuda.Event() for _ in range(repeat + 1)]
                    marks[0].record()
                    for mark in marks[1:]:
                        act()
                        mark.record()
                    events.append((one, marks))
            self._core.synchronize()
            for one, marks in events:
                times = [cp.cuda.get_elapsed_time(*pair) for pair in pairwise(marks)]
                found.append((one, 1e-3 * min(times)))
        return found

    def _run_part(self, k: int, kind: str) -> None:
        with self._cupy.cuda.Device(self._place.index), self._core:
            self._enqueue(k, kind)
            for stream in (self._core, self._in, self._out):
                stream.synchronize()

    def _enqueue(
        self, k: int, only: str = "", marks: list[tuple[int, Any, Any]] | None = None
    ) -> None:
        """Enqueue a program; with `only`, its tiles, its copies, or those in one direction.

        `marks` receives the token of each wait, and an event before and one after it.
        """
        events: dict[int, Any] = {}
        fresh = iter(self._events)  # those of earlier runs have completed
        moved = None  # an event after all work of the compute stream so far
        for place, (kind, token, act) in enumerate(self._ready[k]):
            if kind == "compute":
                if not only or only == kind:
                    if self._warm[k] or not self._bound:
                        act()
                    else:
                        self._ready[k][place] = (kind, token, self._bind(act))
                    moved = None
            elif kind == "wait":
                if not only:
                    begin = None if marks is None else self._core.record()
                    self._core.wait_event(events.pop(token))
                    moved = None
                    if marks is not None:
                        marks.append((token, begin, self._core.record()))
            elif only in ("", kind, "copies"):
                stream = self._in if kind == "in" else self._out
                if moved is None:
                    moved = self._event(self._core, fresh)
                stream.wait_event(moved)
                act(stream.ptr)
                events[token] = self._event(stream, fresh)

    def _event(self, stream: Any, fresh: Iterator[Any]) -> Any:
        event = next(fresh, None)
        if event is None:
            event = self._cupy.cuda.Event(block=False, disable_timing=True)
            self._events.append(event)
        event.record(stream)
        return event

    def _bind(self, act: Callable[[], None]) -> Callable[[], None]:
        """Launch a tile, and make a callable that repeats it with driver-call overhead only."""
        with recording() as launches:
            act()
        return Replay(launches, ())

    def _prepared(
        self, program: Program, graph: BaseGraph
    ) -> list[tuple[str, int, Callable[..., None]]]:
        """Prepare a program once; the numbers of all tiles go to the GPU in two tables."""
        found, budget = list(self._tiles(program, graph)), self.plan.hierarchy.levels[1].bytes
        tiles = [one for one in found if isinstance(one, PreparedTile)]
        tables = Tables(self._cupy, tiles, budget // _PARTS)
        self._kept.append(tables)
        inner = self._arenas[self.plan.hierarchy.levels[1].name]
        ready: list[tuple[str, int, Callable[..., None]]] = []
        for one in found:
            if isinstance(one, PreparedTile):
                buffers = [None if span is None else _view(inner, *span) for span in one.spans]
                ready.append(("compute", 0, launcher(one, buffers, tables)))
            elif isinstance(one, Copy):
                ready.append((one.engine, one.token, self._copy(one)))
            else:
                assert isinstance(one, Wait)
                ready.append(("wait", one.token, _nothing))
        return ready

    def _copy(self, copy: Copy) -> Callable[[int], None]:
        """Make a callable that starts a copy on a stream: rows of bytes, two axes at a time."""
        kind = _TO_DEVICE if copy.engine == "in" else _TO_HOST
        target, source = self._address(copy.target), self._address(copy.source)
        runtime, lengths = self._cupy.cuda.runtime, copy.shape
        if len(lengths) == 1:
            return partial(_copy_1d, runtime, target, source, lengths[0], kind)
        steps = list(zip(copy.target_strides[:-1], copy.source_strides[:-1], strict=True))
        places = [
            (target + sum(i * t for i, (t, _) in zip(at, steps, strict=False)),
             source + sum(i * s for i, (_, s) in zip(at, steps, strict=False)))
            for at in np.ndindex(*lengths[:-2])
        ]  # fmt: skip
        return partial(_copy_2d, runtime, places, steps[-1], lengths[-1], lengths[-2], kind)

    def _address(self, place: tuple[str, int]) -> int:
        level, address = place
        arena = self._arenas[level]
        if not 0 <= address < arena.nbytes:
            raise PlanError(f"copy: got address {address}, which is outside {level}")
        return _device.address(arena) + address


def _nothing() -> None:
    """Do nothing: a wait launches no work."""


def _copy_1d(runtime: Any, target: int, source: int, size: int, kind: int, stream: int) -> None:
    runtime.memcpyAsync(target, source, size, kind, stream)


def _copy_2d(
    runtime: Any,
    places: Sequence[tuple[int, int]],
    pitch: tuple[int, int],
    width: int,
    height: int,
    kind: int,
    stream: int,
) -> None:
    for target, source in places:
        runtime.memcpy2DAsync(target, pitch[0], source, pitch[1], width, height, kind, stream)


def _view(inner: Any, address: int, count: int, dtype: str) -> Any:
    kind = np.dtype(dtype)
    return inner[address : address + count * kind.itemsize].view(kind)


def _pinned(cp: Any, n_bytes: int) -> np.ndarray:
    """Allocate pinned host memory, which the GPU accesses directly."""
    try:
        memory = cp.cuda.alloc_pinned_memory(n_bytes + _ALIGN)
    except (cp.cuda.runtime.CUDARuntimeError, MemoryError) as error:
        raise DeviceError(
            f"could not pin {n_bytes} bytes of the host: {error}. Plan a smaller graph, or raise "
            "the limit of locked memory (ulimit -l)"
        ) from error
    whole = np.frombuffer(memory, np.uint8, n_bytes + _ALIGN)
    first = -whole.ctypes.data % _ALIGN
    arena: np.ndarray = whole[first : first + n_bytes]
    arena[...] = 255
    return arena


def _arena(cp: Any, n_bytes: int) -> Any:
    """Allocate the arena in GPU memory: the whole budget; steps allocate nothing else."""
    try:
        return cp.empty(max(1, -(-n_bytes // 8) * 8), np.uint8)
    except cp.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(
            f"the arena needs {n_bytes} bytes, more than the GPU has free; plan with a smaller "
            "budget"
        ) from error


def _median(act: Callable[[], None], repeat: int) -> float:
    def once() -> float:
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin

    return float(np.median([once() for _ in range(repeat)]))
