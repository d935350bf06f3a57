"""Products of float32 and float64: chains of fused multiply-adds, one per segment and result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rpukit import _device
from rpukit._device import Device, multiprocessors, shared_limit
from rpukit._exact import twins
from rpukit._kernels import Kernel, Variant, tune
from rpukit._kernels.launch import compile_together, recording
from rpukit._kernels.replay import Replay, keep_for_graph
from rpukit._kernels.tensor_map import ALIGNMENT
from rpukit._workers import run_rows, work_grain
from rpukit.gemm import _turns
from rpukit.gemm._tiles.real_choice import candidates, pick
from rpukit.gemm._tiles.real_tiles import (
    AT_ONCE,
    IN_TURNS,
    SEGMENT,
    SPLITS,
    STREAMED,
    Problem,
    RealTile,
    Way,
    room_at_once,
    shares,
)
from rpukit.gemm._warpgroups import has_warpgroups

Array = Any

_DET_GEMM = Kernel("det_gemm")
_SECTOR = 32  # bytes that are read from memory at a time
# Terms of a sum up to which a launch begins while the one before ends: it saves 0.5 us. Its blocks
# take the first places that become free, so of longer ones some multiprocessors get too many.
_SHORT = 256


def product(
    a: Array,
    b: Array,
    out: Array,
    trans_a: bool,
    trans_b: bool,
    tile: RealTile | None = None,
    *,
    split: int = 1,
    add: int = 0,
    alpha: float = 1.0,
    segment: int = SEGMENT,
) -> None:
    """Multiply into `out`, which is C-contiguous; see `rpukit.gemm.det_gemm`.

    ``tile`` and ``split``, the number of blocks that share a tile, `IN_TURNS`, `AT_ONCE` or
    `STREAMED`, are chosen by default. It can also continue from the contents of `out`. With
    ``add=1`` that holds sums of whole segments, and with ``add=2`` chains of a segment that ends
    with these factors or later. Only on kernels: with ``add=3`` they add `alpha` times a product
    of one segment to it.
    """
    m, n = out.shape
    k = a.shape[0] if trans_a else a.shape[1]
    xp = _device.namespace(a, b, out)
    a, trans_a = _contiguous(a, trans_a, xp)
    b, trans_b = _contiguous(b, trans_b, xp)
    if not _device.runs_kernels(xp):
        left = np.ascontiguousarray(a.T) if trans_a else a
        right = np.ascontiguousarray(b.T) if trans_b else b
        mirror, grain = _mirror(out.dtype), work_grain(n * k)
        if add == 2:
            run_rows(mirror.continue_chains, m, left, right, out, grain=grain)
        else:
            run_rows(mirror.det_gemm, m, segment, add == 1, left, right, out, grain=grain)
        return
    if k == 0:
        return
    size, vectors = a.dtype.itemsize, (vector(a), vector(b), vector(out))
    device = _device.device_of(out)
    limit, n_multi = shared_limit(device), multiprocessors(device)

    def prepare(way: Way) -> Start:
        options: dict[str, Any] = {"split": way.split, "add": add, "alpha": alpha}
        sizes = (m, n, k), size, trans_a, trans_b, vectors, limit
        return start(way.tile, *sizes, **options, segment=segment, n_multi=n_multi)

    if tile is None:
        whole = min(vectors[:2]) * size == ALIGNMENT
        problem = Problem(m, n, k, size, trans_a, trans_b, whole, segment)
        way = _choose(problem, add, prepare, a, b, out)
    else:
        way = Way(tile, split)
    prepare(way).run(a, b, out)


def _choose(
    problem: Problem, add: int, prepare: Callable[[Way], Start], a: Array, b: Array, out: Array
) -> Way:
    """Choose by measured times for a plain product, else by the model of times."""
    device = _device.device_of(out)
    most = SPLITS[-1] if add < 2 and has_clusters(device) else 1
    given = has_warpgroups(device), multiprocessors(device), most
    if add or problem.segment != SEGMENT:
        return pick(problem, *given)

    def make_trial() -> tune.Trial:
        starts = {way: prepare(way) for way in found}
        compile_together([one.variant for one in starts.values()], device)
        ready: dict[Way, Callable[[], None]] = {}

        def run(way: Way) -> list[Array]:
            if way in ready:  # the host would take longer than some products
                ready[way]()
            else:
                with recording() as launches:
                    starts[way].run(a, b, out)
                ready[way] = Replay(launches, [], any_stream=True)
            return [out]

        return run

    found = candidates(problem, *given, tune.bucket(problem.m))
    if len(found) == 1:
        return found[0]
    key = (*problem[1:], a.dtype.name)
    chosen: Way = tune.choose(
        _DET_GEMM,
        key,
        found,
        make_trial,
        n_batch=problem.m,
        device=device,
        in_graph=True,
        cold=a.nbytes + b.nbytes < tune.STAYS,
    )
    return chosen


@cache
def has_clusters(device: Device) -> bool:
    """Whether blocks of a device run in clusters."""
    if device.kind == "cpu":
        return True
    return int(_device.cupy().cuda.Device(device.index).compute_capability) >= 90


@cache
def _mirror(dtype: np.dtype[Any]) -> Any:
    return twins.mirror("rpukit.gemm._mirror.real", dtype)


@dataclass(frozen=True, slots=True)
class Start:
    """Launch of the kernel without the arrays a, b, c."""

    variant: Variant
    grid: tuple[int]
    block: tuple[int]
    shared: int
    sizes: tuple[int, ...]
    turns: int = 0  # numbers by which blocks wait for each other
    segments: int = 0  # results of segments that are in memory
    early: bool = False  # whether it may begin while the launch before ends, see `Kernel.launch`

    def run(self, a: Array, b: Array, out: Array) -> None:
        """Launch."""
        memory = _turns.memory(self.turns, self.segments, out.dtype, _device.device_of(out))
        args = (*self.sizes, a, b, out, *memory)
        self.variant.launch(self.grid, self.block, args, self.shared, self.early)


def start(
    tile: RealTile,
    shape: tuple[int, int, int],
    size: int,
    trans_a: bool,
    trans_b: bool,
    vectors: tuple[int, int, int],
    limit: int,
    *,
    split: int = 1,
    add: int = 0,
    alpha: float = 1.0,
    segment: int = SEGMENT,
    n_multi: int = 0,
) -> Start:
    """Return the launch of a product of (m, n, k) elements of ``size`` bytes, k at least 1.

    ``vectors``: elements of each factor, and of the result, that are moved together, see
    `vector`; ``limit``: bytes of shared memory; ``n_multi``: multiprocessors, if the launch may
    begin early, and for `STREAMED`, without which a block makes each tile; the others: see
    `product`.
    """
    m, n, k = shape
    n_segment = -(-k // segment)
    room = tile.room(n_segment, split, add)
    fitted = tile.fitted(trans_a, trans_b, size, limit, room)
    if fitted.shared(trans_a, trans_b, size, room) > limit:
        split, room = 1, ""
        fitted = tile.fitted(trans_a, trans_b, size, limit)
    n_share = 0
    if split == STREAMED:
        problem = Problem(m, n, k, size, trans_a, trans_b, True, segment)
        n_share = shares(tile, problem, n_multi)
        split = STREAMED if n_share else 1
    at_once = split == AT_ONCE or (n_share > 0 and n_segment > 1)
    turns, count = at_once or split == IN_TURNS, tile.count(m, n)
    n_block = n_share or (n_segment if turns else split) * count
    shared = at_once and tile.adds_shares(n_segment)
    waiting = (count * (turns + shared) + n_share) * (tile.threads - tile.copiers) // 32  # warps
    macros = {
        "REAL": "double" if size == 8 else "float",
        "TRANS_A": int(trans_a),
        "TRANS_B": int(trans_b),
        "VEC_A": min(vectors[0], tile.rows) if trans_a else vectors[0],
        "VEC_B": vectors[1],
        "VEC_C": vectors[2] if split < 2 and vectors[2] * size == ALIGNMENT else 1,
        **fitted.macros,
        "BY_CACHE": _by_cache((m if trans_a else k, k if trans_b else n), vectors[:2], size),
        "ROOM": int(room == "beside"),
        "CLUSTER": max(1, split),
        "TURNS": turns + at_once + shared,
        **({"STREAM": 1, "BLOCKS": n_share // n_multi} if n_share else {}),
        "ADD": add,
        **({"ALPHA": alpha.hex()} if add == 3 else {}),
    }
    return Start(
        _DET_GEMM.variant(macros),
        (n_block,),
        (tile.threads,),
        fitted.shared(trans_a, trans_b, size, room),
        (m, n, k, segment),
        1 + waiting if waiting else 0,
        at_once * room_at_once(tile, m, n, n_segment) + n_share * tile.rows * tile.columns,
        early=n_block <= n_multi or (n_multi > 0 and min(k, segment) <= _SHORT),
    )


def _by_cache(widths: tuple[int, ...], vectors: tuple[int, ...], size: int) -> int:
    """Return the macro BY_CACHE of det_gemm.cu: 1 to copy a through the L1 cache, plus 2 for b.

    That is faster in copies of 16 bytes of float64 if every other row begins within a sector.
    """
    a, b = (
        size == 8 and vector * size == ALIGNMENT and width * size % _SECTOR == ALIGNMENT
        for width, vector in zip(widths, vectors, strict=True)
    )
    return a + 2 * b


def vector(x: Array) -> int:
    """Number of elements that one copy may take: rows begin and end at multiples of them."""
    address = x.data.ptr if _device.is_cupy(x) else x.ctypes.data
    step = math.gcd(int(address), int(x.shape[1]) * x.itemsize, ALIGNMENT)
    return max(1, step // int(x.itemsize))


def _contiguous(x: Array, transposed: bool, xp: Any) -> tuple[Array, bool]:
    """Use a transposed view in place, also of a single column; copy what is not contiguous."""
    if x.flags.f_contiguous and (not x.flags.c_contiguous or x.shape[1] == 1 < x.shape[0]):
        return x.T, not transposed
    made = xp.ascontiguousarray(x)
    if made is not x:
        keep_for_graph(made)
    return made, transposed
