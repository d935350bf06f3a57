"""Products of 16-bit floats: on tensor cores, or by the mirror that models them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import numpy as np

from rpukit import _device
from rpukit._kernels import Kernel, Variant, tune
from rpukit._kernels.launch import compile_together
from rpukit._kernels.tensor_map import tensor_map
from rpukit.errors import ParameterError
from rpukit.gemm import _turns
from rpukit.gemm._segments import by_segments, run_mirror
from rpukit.gemm._tiles.tensor_choice import (
    by_time_of_all,
    candidates,
    fastest,
    pick_alone,
    repeated,
)
from rpukit.gemm._tiles.tensor_tile import box_of
from rpukit.gemm._tiles.tensor_tiles import (
    BRIEF,
    CLUSTER_SIZES,
    DEPTH,
    GROUP,
    SEGMENT,
    TILES,
    Tile,
    WarpTile,
    joins,
    resident,
)
from rpukit.gemm.formats import bits
from rpukit.gemm.lines import (
    Factor,
    aligned,
    beginning,
    copied,
    crosses,
    elements,
    factor,
    in_place,
    is_aligned,
    tight,
)

__all__ = [
    "SEGMENT",
    "Factor",
    "aligned",
    "factor",
    "in_place",
    "is_aligned",
    "multiply",
    "product",
]

Array = Any

_HOPPER = Kernel("det_gemm_tensor")
_WARPS = Kernel("det_gemm_mma")


def product(p: Factor, q: Factor, out: Array, *, thin: bool = True) -> None:
    """Compute a whole product by segments into ``out`` (lines of p, lines of q), any float.

    ``p``, ``q``: as `in_place` gives them; they are copied to aligned rows if their tile needs it.
    ``thin``: whether a tile that does not need it may be chosen.
    """
    words = out if out.dtype == np.float32 else bits(out)
    device, tile = _device.device_of(out), None
    if _device.runs_kernels(_device.namespace(out)):
        if thin and _HOPPER.name not in tune.fixed():
            tile = choose_of_all(p, q, words, device)
        if not isinstance(tile, WarpTile):
            too = copied(p.lines, q.lines, p.depth, (crosses(p), crosses(q)), device)
            p, q = tight(p, q, too=too, brief=True)
    multiply(p, q, words, tile=tile)


def multiply(
    p: Factor,
    q: Factor,
    out: Array,
    *,
    part: tuple[int, int] | None = None,
    partial: Array | None = None,
    total: Array | None = None,
    tile: Tile | WarpTile | None = None,
) -> None:
    """Multiply two factors over a part of their sum.

    Parameters
    ----------
    p, q : Factor
        Of one format and one depth.
    out : array, shape (lines of p, at least lines of q), float32, or uint16: bits of the format
        Contiguous; laid out by `aligned` if `partial` or `total` are given. What is beyond the
        lines of q is not promised.
    part : (int, int), optional
        Part of the sum, from a multiple of 64 on; default: all. Its chains restart after every
        `SEGMENT` terms from there. For a tile with warps that copy, factors may begin anywhere.
        With `partial` or `total`, at most `SEGMENT` terms.
    partial : array, like `out`, float32, optional
        Initial values of the chains; default: 0. It may be `out`.
    total : array, like `out`, float32, optional
        Sum to which the chains' results are added, with one rounding. It may be `out`.
    tile : Tile or WarpTile, optional
        Default: by shape. It does not change the result.

    Raises
    ------
    ParameterError
        For a part longer than a segment with `partial` or `total`, or a tile that cannot take
        these; for a tile that has no room for the terms of the part.
    """
    if not out.size:
        return
    part, goes_on = part or (0, p.depth), not (partial is None and total is None)
    if goes_on and part[1] - part[0] > SEGMENT:
        raise ParameterError(
            f"part: got {part} with partial or total, need at most {SEGMENT} terms"
        )
    if tile is None:
        tile = choose(p, q, out, part, alone=not goes_on)
    else:
        _check(tile, part[1] - part[0], goes_on)
    if isinstance(tile, Tile):
        det_gemm_tensor(p, q, out, part, partial, total, tile)
    else:
        det_gemm_mma(p, q, out, part, partial, total, tile)


def _check(tile: Tile | WarpTile, depth: int, goes_on: bool) -> None:
    """Refuse a tile that cannot compute a sum of ``depth`` terms.

    ``goes_on``: with `partial` or `total`.
    """
    got = f"tile: got {tile.name!r}"
    if isinstance(tile, WarpTile):
        most = tile.stages * DEPTH
        if tile.short and depth > most:
            raise ParameterError(f"{got} for a sum of {depth} terms, need at most {most} terms")
    elif goes_on and not tile.goes_on:
        raise ParameterError(
            f"{got} with partial or total, need a tile without a cluster, turned or with a "
            "multiple of 64 columns"
        )
    n_segment = _n_segment(depth)
    if tile.joined and n_segment > 1 and not joins(tile, n_segment):
        numbers = (1, *(x for x in range(2, CLUSTER_SIZES[-1] + 1) if joins(tile, x)))
        raise ParameterError(f"{got} for a sum of {n_segment} segments, need one of {numbers}")


def _n_segment(depth: int) -> int:
    """Count the segments of a sum."""
    return max(1, -(-depth // SEGMENT))


def choose(
    p: Factor, q: Factor, out: Array, part: tuple[int, int], *, alone: bool = True
) -> Tile | WarpTile:
    """Choose a tile by measured times for a plain product, else by the model of times.

    Trials write their results to `out`, all the same bits.
    """
    device = _device.device_of(out)
    if not _device.runs_kernels(_device.namespace(out)):
        return TILES[0]  # the mirror does not use tiles
    shape = (p.lines, q.lines, part[1] - part[0], bool(p.along), bool(q.along))
    if not alone:
        return pick_alone(*shape, device)
    found = candidates(*shape, device)  # of single warps there is one, and no trial

    def make_trial() -> tune.Trial:
        plans = {tile: prepare(p, q, out, part, cast("Tile", tile)) for tile in found}
        compile_together([*dict.fromkeys(plan.variant for plan in plans.values())], device)
        return repeated(lambda tile: plans[tile].run(out), out[:, : q.lines])

    key = (*shape[1:], out.dtype.name)
    return fastest(_HOPPER, key, found, make_trial, p, q)


def choose_of_all(
    p: Factor, q: Factor, out: Array, device: _device.Device
) -> Tile | WarpTile | None:
    """Choose also among tiles that take factors where they are, by measured times.

    None if no such tile comes into question. Trials write their results to `out`, all the same
    bits.
    """
    begins = elements(p), elements(q)
    shape = (p.lines, q.lines, p.depth, bool(p.along), bool(q.along), begins)
    found = by_time_of_all(*shape, device)
    if not any(isinstance(tile, WarpTile) for tile in found):
        return None

    def make_trial() -> tune.Trial:
        copies = any(isinstance(tile, Tile) for tile in found)
        a, b = tight(p, q, brief=True) if copies else (p, q)
        variants = [
            _warp_variant(p, q, out, tile, p.depth)
            if isinstance(tile, WarpTile)
            else prepare(a, b, out, (0, p.depth), tile).variant
            for tile in found
        ]
        compile_together([*dict.fromkeys(variants)], device)

        def run(tile: Tile | WarpTile) -> None:
            x, y = tight(p, q, brief=True) if isinstance(tile, Tile) else (p, q)
            multiply(x, y, out, tile=tile)

        return repeated(run, out[:, : q.lines])

    key = (*shape[1:5], *begins, out.dtype.name)
    return fastest(_WARPS, key, found, make_trial, p, q)


def det_gemm_tensor(
    p: Factor,
    q: Factor,
    out: Array,
    part: tuple[int, int],
    partial: Array | None,
    total: Array | None,
    tile: Tile,
) -> None:
    """Implement `multiply` by warpgroups of Hopper: kernels_cu/det_gemm_tensor.cu."""
    if not _device.runs_kernels(_device.namespace(p.words, q.words, out)):
        run_mirror("det_gemm_tensor", p, q, out, part, partial, total, SEGMENT)
        return
    given = partial is not None, total is not None
    prepare(p, q, out, part, tile, *given).run(out, partial, total)


class Plan(NamedTuple):
    """Launch of det_gemm_tensor without its results; it may be kept, since it holds no memory."""

    variant: Variant
    grid: tuple[int]
    block: tuple[int]
    arguments: tuple[Any, ...]  # up to the factors' tensor maps
    columns: int  # of a result, if the copy engine takes it; else 0
    shared: int
    early: bool  # see `Kernel.launch`
    parts: _turns.Parts

    def run(self, out: Array, partial: Array | None = None, total: Array | None = None) -> None:
        """Launch into ``out``, float32 or uint16, with the layout of `aligned`."""
        maps = map(self._map, (out, partial, total))
        arguments = (*self.arguments, *maps, partial, total, out, *self.parts.memory(out))
        self.variant.launch(self.grid, self.block, arguments, self.shared, self.early)

    def _map(self, sums: Array | None) -> np.ndarray:
        """Tensor map of the results or sums; any valid one if the copy engine moves none."""
        if sums is None or not self.columns:
            return cast("np.ndarray", self.arguments[-1])
        words = sums.view(np.uint16)  # of which float32 has two
        return tensor_map(words[:, : self.columns * sums.itemsize // 2], 64)


def prepare(
    p: Factor,
    q: Factor,
    out: Array,
    part: tuple[int, int],
    tile: Tile,
    going: bool = False,
    adding: bool = False,
) -> Plan:
    """Prepare a launch for these factors and a result like `out`."""
    wide, columns = out.dtype == np.float32, q.lines
    if tile.turned:
        p, q = q, p
    tile = tile.for_columns(bool(q.along))
    loose, depth = not is_aligned(out), part[1] - part[0]
    count, n_segment = tile.count(p.lines, q.lines), _n_segment(depth)
    n_work = count * n_segment if tile.apart or tile.joined else count
    workers = resident(tile, _device.device_of(out))
    streams = not (going or adding)
    streams &= tile.streams(count, depth, workers // tile.together, SEGMENT)
    blocks = n_work if tile.joined else workers if streams else min(n_work, workers)
    macros = {
        **tile.macros,
        **_macros(p, q, wide, going, adding),
        "LOOSE": int(loose),
        **tile.segment_macros(n_segment, SEGMENT, streams=streams),
    }
    return Plan(
        _HOPPER.variant(macros),
        (blocks,),
        (tile.threads,),
        (
            np.int32(p.lines),
            np.int32(q.lines),
            np.int32(depth),
            np.int32(part[0]),
            np.int32(out.shape[1]),
            np.int32(GROUP // tile.cluster[0]),
            *_maps(p, q, tile, part[1]),
        ),
        0 if tile.turned or loose or tile.columns % 64 else columns,
        tile.shared(wide),
        tile.early or depth <= BRIEF,
        _turns.Parts(*tile.segment_memory(count, n_segment, blocks, streams=streams)),
    )


def _maps(p: Factor, q: Factor, tile: Tile, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Tensor maps of the boxes of p and q that a block copies for a stage.

    A block of a cluster copies a part of each and multicasts it. Terms from ``stop`` on are read
    as zeros, since a part may end within a stage.
    """
    i, j = tile.cluster
    columns = tile.columns // i if i > 1 else min(tile.columns, q.lines)

    def box(x: Factor, height: int, lines: int) -> np.ndarray:
        words = x.words if stop == x.depth else x.words[:stop] if x.along else x.words[:, :stop]
        width = box_of(lines) if x.along else DEPTH
        return tensor_map(words, height, width, wide=not tile.reads_alone and not crosses(x))

    return (
        box(p, (DEPTH if p.along else tile.rows) // j, tile.lines),
        box(q, DEPTH // i if q.along else columns, tile.columns),
    )


def det_gemm_mma(
    p: Factor,
    q: Factor,
    out: Array,
    part: tuple[int, int],
    partial: Array | None,
    total: Array | None,
    tile: WarpTile,
) -> None:
    """Implement `multiply` by single warps: kernels_cu/det_gemm_mma.cu."""
    if not _device.runs_kernels(_device.namespace(p.words, q.words, out)):
        run_mirror("det_gemm_mma", p, q, out, part, partial, total, SEGMENT)
        return
    if part[1] - part[0] > SEGMENT and not tile.anywhere:
        by_segments(functools.partial(det_gemm_mma, tile=tile), p, q, out, part, SEGMENT)
        return
    depth = part[1] - part[0]
    variant = _warp_variant(p, q, out, tile, depth, partial is not None, total is not None)
    if tile.turned:
        p, q = q, p
    count, n_segment = tile.count(p.lines, q.lines), _n_segment(depth)
    parts = _turns.Parts(*tile.segment_memory(count, n_segment))
    variant.launch(
        (count * tile.parts(n_segment),),
        (tile.threads,),
        (
            p.lines,
            q.lines,
            depth,
            p.words.strides[0] // 2,
            q.words.strides[0] // 2,
            out.shape[1],
            GROUP,
            _beginning(p, part[0]),
            _beginning(q, part[0]),
            partial,
            total,
            out,
            *parts.memory(out),
        ),
        tile.shared(depth),
        early=tile.anywhere,
    )


def _warp_variant(
    p: Factor,
    q: Factor,
    out: Array,
    tile: WarpTile,
    depth: int,
    going: bool = False,
    adding: bool = False,
) -> Variant:
    """Return det_gemm_mma for these factors and a result like `out`."""
    if tile.turned:
        p, q = q, p
    macros = {**tile.macros, **_macros(p, q, out.dtype == np.float32, going, adding)}
    if tile.anywhere:
        macros |= {"P_VEC": elements(p), "Q_VEC": elements(q), "SEGMENT": SEGMENT}
        several = _n_segment(depth) > 1
        macros["APART"] = int(tile.apart and several)
        macros |= {"CLUSTER": _n_segment(depth)} if tile.joined and several else {}
    return _WARPS.variant(macros)


def _macros(p: Factor, q: Factor, wide: bool, going: bool, adding: bool) -> dict[str, Any]:
    return {
        "P_MN": p.along,
        "Q_MN": q.along,
        "RESULT": "float" if wide else "u16",
        "FROM": int(going),
        "ADD": int(adding),
        "HALF": int(p.half),
    }


def _beginning(x: Factor, start: int) -> Array:
    return beginning(x.words[start:] if x.along else x.words[:, start:])
