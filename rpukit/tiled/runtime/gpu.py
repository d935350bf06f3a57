"""Running plans on a GPU, out of core: tensors in pinned memory of the host, one arena on the GPU.

The compute stream is the core of the plan, in its program order. A copy runs on the stream of its
direction, after all that the core was given before it; a wait lets the core go on after the copy.
Nothing is waited for on the host before the end of a program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit._kernels.replay import Replay
from rpukit.errors import DeviceError, PlanError, TransferError
from rpukit.gemm.real import SEGMENT, product
from rpukit.tiled.ir import BaseGraph
from rpukit.tiled.program import BasePlan, Copy, Program, Wait
from rpukit.tiled.runtime import launch as kernels
from rpukit.tiled.runtime.executor import Executor, PreparedTile

__all__ = ["GpuExecutor", "Overlap"]

_ALIGN = 256
_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyKind
_HOST = 8000  # nanoseconds that the host takes for an instruction


@dataclass(frozen=True, slots=True)
class Overlap:
    """Times of a program: as a whole, and of its parts alone.

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
        """How much of the time that could be hidden was hidden, 0 to 1."""
        every = self.compute + self.inward + self.outward
        hideable = every - max(self.compute, self.copies)
        hidden = every - self.total
        return min(1.0, max(0.0, hidden / hideable)) if hideable > 0 else 1.0


class GpuExecutor(Executor):
    """Programs of a plan of two levels, host and device.

    Parameters
    ----------
    plan : Plan
        Of `rpukit.tiled.gpu` levels, or others of two.
    graphs : sequence of Graph
    device : str
    captured : bool, optional
        Replay each program as one CUDA graph after its first run. Default: where launches one by
        one would take the host longer than the program takes in the model; else these are faster,
        since copies both ways never wait for one another in the graph's own streams.

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
            raise PlanError(f"levels {names}: a GPU runs plans of two levels, as tiled.gpu makes")
        self._place = _device.parse_device(device)
        self._cupy = cp = _device.cupy()
        host, inner = (plan.peaks[level.name] for level in levels)
        with cp.cuda.Device(self._place.index):
            self._arenas = {levels[0].name: _pinned(cp, host), levels[1].name: _arena(cp, inner)}
            self._arenas[levels[1].name].fill(255)
            self._core, self._in, self._out = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
            self._fill_constants()
            self._kept: list[_Tables] = []  # launches that come again know addresses alone
            pairs = zip(plan.programs, graphs, strict=True)
            self._ready = [self._prepared(program, graph) for program, graph in pairs]
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
        """Time a program and its parts; what lasts is afterwards as before.

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

    def _run_part(self, k: int, kind: str) -> None:
        with self._cupy.cuda.Device(self._place.index), self._core:
            self._enqueue(k, kind)
            for stream in (self._core, self._in, self._out):
                stream.synchronize()

    def _enqueue(self, k: int, only: str = "") -> None:
        """Give a program to the streams; with `only`, its tiles, its copies or those one way."""
        events: dict[int, Any] = {}
        fresh = iter(self._events)  # those of earlier runs are over
        moved = None  # an event after all that the core was given so far
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
                    self._core.wait_event(events.pop(token))
                    moved = None
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
        """Do a tile, and make what does it again at the cost of the driver's calls alone."""
        with recording() as launches:
            act()
        return Replay(launches, ())

    def _prepared(
        self, program: Program, graph: BaseGraph
    ) -> list[tuple[str, int, Callable[..., None]]]:
        """Look up everything once; the numbers of all tiles go to the GPU in two tables."""
        found = list(self._tiles(program, graph))
        tiles = [one for one in found if isinstance(one, PreparedTile)]
        tables = _Tables(self._cupy, tiles)
        self._kept.append(tables)
        inner = self._arenas[self.plan.hierarchy.levels[1].name]
        ready: list[tuple[str, int, Callable[..., None]]] = []
        for one in found:
            if isinstance(one, PreparedTile):
                ready.append(("compute", 0, self._call(one, tables, inner)))
            elif isinstance(one, Copy):
                ready.append((one.engine, one.token, self._copy(one)))
            else:
                assert isinstance(one, Wait)
                ready.append(("wait", one.token, _nothing))
        return ready

    def _call(self, tile: PreparedTile, tables: _Tables, inner: Any) -> Callable[[], None]:
        buffers = [None if span is None else _view(inner, *span) for span in tile.spans]
        if tile.op.kernel == "tiled_gemm":
            whole = _product(tile, buffers)
            if whole is not None:
                last, added = tile.ints[7], tile.ints[9]
                plain = not last or added == 2 or (last == 1 and tile.floats[0] == 1 and not added)
                return whole if plain else partial(_both, whole, tables.ends(tile, buffers))
        numbers = tables.of(tile)
        macros = tile.op.macros(tile.node)
        return kernels.bind(tile.op.kernel, tile.ints, numbers, buffers, macros)

    def _copy(self, copy: Copy) -> Callable[[int], None]:
        """Make what starts a copy on a stream: rows of bytes, with two axes at a time."""
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
            raise PlanError(f"a copy at {address} leaves {level}")
        return _device.address(arena) + address


class _Tables:
    """Numbers of all tiles of a program, in one array of ints and one of floats on the GPU."""

    def __init__(self, cp: Any, tiles: Sequence[PreparedTile]) -> None:
        self._places: dict[tuple[int, bool], tuple[slice, slice]] = {}
        rows: list[np.ndarray] = []
        reals: list[np.ndarray] = []
        n_int = n_real = 0
        for tile in tiles:
            both = [tile.ints, _end_of(tile)] if tile.op.kernel == "tiled_gemm" else [tile.ints]
            for ints in both:
                self._places[id(tile), ints is not tile.ints] = (
                    slice(n_int, n_int + ints.size),
                    slice(n_real, n_real + tile.floats.size),
                )
                rows.append(ints)
                n_int += ints.size
            reals.append(tile.floats)
            n_real += tile.floats.size
        kinds = {tile.floats.dtype for tile in tiles} or {np.dtype(np.float32)}
        if len(kinds) > 1:
            raise PlanError("a program of float32 and float64 tiles: need one of them")
        self._tiles = tiles  # their ids are the keys
        self._ints = cp.asarray(np.concatenate([*rows, np.zeros(1, np.int64)]))
        self._reals = cp.asarray(np.concatenate([*reals, np.zeros(1, kinds.pop())]))

    def of(self, tile: PreparedTile, end: bool = False) -> tuple[Any, Any]:
        """Numbers of a tile where the kernel reads them."""
        ints, reals = self._places[id(tile), end]
        return self._ints[ints], self._reals[reals]

    def ends(self, tile: PreparedTile, buffers: Sequence[Any]) -> Callable[[], None]:
        """What follows a product: scale, bias, Relu, as the end of a tile without products."""
        numbers = self.of(tile, end=True)
        return kernels.bind(tile.op.kernel, _end_of(tile), numbers, buffers)


def _end_of(tile: PreparedTile) -> np.ndarray:
    """Numbers of the rest of a product: no steps, not the first."""
    ints = tile.ints.copy()
    ints[5], ints[6] = 0, 0
    return ints


def _product(tile: PreparedTile, buffers: Sequence[Any]) -> Callable[[], None] | None:
    """Make a tile a product of `det_gemm`, which has the same chains.

    None for a stack of products; one whose matrices share the second factor is one product.
    """
    rows, b0, b1, m, n, k, first, _, long, added = (int(v) for v in tile.ints[:10])
    a, b, y = buffers[0], buffers[1], buffers[3]
    if a is None or b is None or (added == 2 and k > SEGMENT):
        return None
    turned_a, turned_b = tile.ints[10 + 2] == 1 and m > 1, tile.ints[15 + 3] != 1 and n > 1
    if b0 * b1 != 1:
        if turned_a or a.size != rows * k or b.size != k * n:
            return None
        m = rows
    shapes = [(k, m) if turned_a else (m, k), (n, k) if turned_b else (k, n)]
    flat = (a.reshape(shapes[0]), b.reshape(shapes[1]), y.reshape(m, n))
    add = 3 if added == 2 else 0 if first else 1 if long else 2
    turned = bool(turned_a), bool(turned_b)
    return partial(product, *flat, *turned, add=add, alpha=float(tile.floats[0]))


def _both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


def _nothing() -> None:
    """Stand in the place of an action that a wait does not have."""


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
    """Memory of the host that the GPU copies from and to by itself."""
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
    """One piece of the GPU's memory: the budget; a step takes no other."""
    try:
        return cp.empty(max(1, -(-n_bytes // 8) * 8), np.uint8)
    except cp.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(
            f"the GPU has no {n_bytes} bytes left for the arena: plan with a smaller budget"
        ) from error


def _median(act: Callable[[], None], repeat: int) -> float:
    def once() -> float:
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin

    return float(np.median([once() for _ in range(repeat)]))
