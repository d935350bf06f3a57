"""Products of whole tiles, and rows of words that end at any word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from unittest import mock

import numpy as np

import rpukit as rk
from rpukit import _device, elementwise
from rpukit._kernels.launch import recording
from rpukit.gemm import real, tensor
from rpukit.gemm._tiles import tensor_tiles
from rpukit.gemm._tiles.real_tiles import DOUBLE_TILES, FLOAT_TILES
from tests.golden.cases.case import Case, put
from tests.golden.cases.gemm import by_tile, gemm, mma_gemm, thin_gemm


def cut_rows(shapes):
    """Copies of the first columns of a matrix, of an odd number, to aligned rows."""

    def run(device):
        from rpukit.gemm import lines

        found, where = [], _device.parse_device(device)
        for shape, columns in shapes:
            drawn = elementwise.random_fill(rk.Stream.from_seed(31), shape)
            x = put(rk.gemm.to_bfloat16(drawn), device)[:, :columns]
            found.append(lines.aligned(x.shape, np.uint16, where))
            lines.align_rows((x, found[-1]))
        return found

    return run


class Product(NamedTuple):
    """A product of `det_gemm` by a tile: its name, sizes, layouts, and how its sum is made."""

    tile: str
    m: int
    n: int
    k: int
    trans: str = "nn"  # of a and b
    split: int = 1
    segment: int = 1024
    add: int = 0
    vanishing: bool = False  # a sum of products that are rounded to -0


# Sizes are multiples of tiles, stages and segments, and one or a few more.
STEPS = (
    Product("64x64", 65, 64, 5 * 32, "nt"),
    Product("64x64", 64, 67, 6 * 32 + 5, "tn", segment=64),
    Product("64x64", 20, 67, 96, "tt", segment=32, add=1),
    Product("64x64", 64, 64, 70, add=2),
    Product("64x64", 3, 5, 32 + 5, vanishing=True),
    Product("32x64", 33, 64, 6 * 64 + 4, "nt", segment=128),
    Product("32x64", 32, 66, 6 * 64, "tn", split=2, segment=64),
    Product("128x128", 130, 130, 4 * 32 + 3, segment=64),
)
DOUBLES = (
    Product("64x64 tensor", 64, 64, 6 * 16 + 5),
    Product("128x64 tensor", 128, 64, 5 * 16),
    Product("128x128 tensor", 128, 128, 3 * 32 + 4),
    Product("64x64 tensor", 65, 10, 5 * 16, "tt", segment=32),
    Product("32x32 tensor", 33, 32, 9 * 16, "nt", segment=32),
    Product("32x32 tensor", 32, 34, 8 * 16 + 1, "tn", segment=32, split=2, add=1),
    Product("32x32", 33, 33, 6 * 16 + 2, "nt", segment=32),
    Product("4x32", 5, 33, 4 * 32, "nn"),
    Product("32x32", 20, 20, 40, add=2),
)
CLUSTERS = (
    Product("4x16", 36, 32, 3 * 128, split=4, segment=128),
    Product("8x64", 17, 64, 4 * 64, "nt", split=2, segment=64, add=1),
    Product("64x128", 65, 128, 3 * 64, split=2, segment=64),
    Product("4x32", 4, 33, 2 * 256, "tn", segment=256),
    Product("4x16", 3, 5, 3 * 128, split=4, segment=128, vanishing=True),
    Product("4x16", 3, 5, 4 * 128, split=2, segment=128, vanishing=True),
)
FEW = (
    Product("4x16 few", 4, 16, 2 * 128),
    Product("4x16 few", 36, 33, 9 * 128 + 3, segment=128),
    Product("4x16 few", 4, 17, 4 * 128, "nt", split=8, segment=128),
    Product("8x32 few", 9, 32, 6 * 128, "tn", split=4, segment=128),
    Product("32x64 few", 33, 64, 4 * 64 + 1, add=2),
    Product("4x16 few", 3, 5, 128 + 5, vanishing=True),
    Product("16x32 few", 5, 31, 8 * 64 + 4, "nt", split=2, segment=64, add=1),
)
FEW_DOUBLES = (
    Product("4x16 few", 4, 16, 2 * 64),
    Product("16x16 tensor few", 17, 16, 8 * 64, segment=128),
    Product("16x32 tensor few", 16, 33, 7 * 32 + 3, "nt", split=2, segment=32),
    Product("16x16 tensor few", 3, 5, 64 + 5, vanishing=True),
    Product("32x32 tensor few", 33, 32, 5 * 32, "tn", split=2, segment=32, add=1),
    Product("4x16 few", 5, 17, 7 * 64 + 1, "tn", segment=64),
)
# Tiles whose lines are no power of two, or that are high and narrow: parts of a row of copies.
HIGH = (
    Product("128x64", 130, 66, 5 * 16 + 3, "nt"),
    Product("128x64", 127, 64, 6 * 16, "tt", segment=32),
    Product("96x64", 97, 64, 6 * 16, "tn", segment=32),
    Product("96x64", 20, 67, 8 * 16 + 1, split=2, segment=32, add=1),
    Product("96x64", 3, 5, 2 * 16 + 5, vanishing=True),
    Product("64x128", 65, 127, 5 * 16, "tn", segment=32),
)
HIGH_DOUBLES = (
    Product("80x64 tensor", 81, 64, 6 * 16 + 5),
    Product("80x64 tensor", 75, 70, 8 * 16, "tt", segment=32, add=1),
    Product("48x64 tensor", 49, 66, 5 * 32 + 3, "nt", segment=64),
    Product("48x64 tensor", 48, 65, 6 * 32 + 1, "tn", split=4, segment=32),
    Product("32x64 tensor", 33, 64, 7 * 16, "tn", split=2, segment=32, add=1),
    Product("64x32 tensor", 64, 34, 5 * 16 + 2, "nt", segment=32),
    Product("64x32 tensor", 3, 5, 2 * 16 + 5, vanishing=True),
)
# Rows of an odd number of results, which are written by others than have them; tiles of few rows.
ROWS = (
    Product("4x64", 5, 70, 7 * 32 + 3),
    Product("4x128", 3, 130, 6 * 32, "tn", segment=64),
    Product("4x64", 4, 64, 7 * 32, split=2, segment=64, add=1),
    Product("4x128", 2, 5, 32 + 5, vanishing=True),
)
ROWS_OF_DOUBLES = (
    Product("4x64", 5, 70, 7 * 32 + 3, "tn"),
    Product("32x64 tensor deep", 33, 67, 7 * 32 + 9, "nt"),
    Product("96x128 tensor", 97, 129, 3 * 32 + 7),
    Product("80x64 tensor", 81, 67, 7 * 16 + 9, segment=32),
    Product("128x64 tensor", 130, 67, 5 * 16 + 3, "tt", segment=32, add=1),
    Product("64x64 tensor", 67, 65, 37, add=2),
    Product("32x32 tensor", 33, 31, 5 * 32, segment=32),
)
# Tiles whose operands are read across stages, and others of 5 to 7 rows or columns a thread.
BETWEEN = (
    Product("24x64", 25, 67, 7 * 32 + 5, "tt"),
    Product("24x64", 24, 64, 8 * 32, "nt", segment=64, split=-1),
    Product("40x64", 41, 66, 5 * 32 + 3, "tn", segment=64),
    Product("40x64", 39, 64, 8 * 32, "tt", split=2, segment=32, add=1),
    Product("48x64", 47, 70, 6 * 32 + 9, segment=64, split=-1),
    Product("48x64", 3, 5, 32 + 5, vanishing=True),
    Product("48x64", 20, 20, 70, add=2),
    Product("48x64 dense", 49, 65, 7 * 32 + 1, "tn", segment=64),
    Product("64x48", 65, 50, 6 * 32 + 3, "nt", segment=64),
    Product("56x64", 57, 64, 5 * 32 + 2, "tn"),
)
# Tiles of one row: all layouts, sums that end within a stage, segments in each way.
ONE_ROW = (
    Product("1x32 few", 1, 70, 9 * 64 + 5, "nt"),
    Product("1x32 few", 2, 33, 7 * 64, "tn", segment=128),
    Product("1x32 few", 1, 65, 8 * 64 + 3, segment=64, split=-1),
    Product("1x64 few", 1, 130, 6 * 64 + 3, "nt", segment=128, split=2),
    Product("1x64 few", 4, 64, 5 * 64 + 1, "tt", segment=64, split=-1),
    Product("1x64 few", 1, 5, 64 + 5, vanishing=True),
)


def drawn(stream, shape, dtype, vanishing, which):
    least = -1e-30 if dtype == "f4" else -1e-200
    if vanishing:
        return np.full(shape, (least, -least, -0.0)[which], dtype)
    return elementwise.random_fill(stream, shape).astype(dtype) / 3


def by_tiles(dtype, products):
    def run(device):
        tiles = DOUBLE_TILES if dtype == "f8" else FLOAT_TILES
        named = {tile.name: tile for tile in tiles}
        made = []
        for number, p in enumerate(products):
            s, (a_turned, b_turned) = rk.Stream.from_seed(37 + number), (c == "t" for c in p.trans)
            shapes = (p.k, p.m) if a_turned else (p.m, p.k), (p.n, p.k) if b_turned else (p.k, p.n)
            a, b, out = (
                put(drawn(s.child(c), shape, dtype, p.vanishing, c), device)
                for c, shape in enumerate((*shapes, (p.m, p.n)))
            )
            how = {"split": p.split, "add": p.add, "segment": p.segment}
            real.product(a, b, out, a_turned, b_turned, named[p.tile], **how)
            made.append(out)
        return made

    return run


# Tiles of warpgroups, and of single warps: sums in parts that are added, in all ways.
PARTS = (  # rows and columns of the result
    ("128x64", 130, 64),
    ("64x192", 64, 200),
    ("192x128", 192, 40),
    ("turned 64x16 deep", 17, 64),
    ("turned 128x64", 40, 136),
    ("thin 16x16/8", 16, 33),
    ("warps 64x64", 64, 70),
    ("warps turned 16x32", 33, 16),
)


def by_parts(tile, m, n):
    run = mma_gemm(m, n, 524, "float16", tile)
    return lambda device: [made[:, :n] for made in run(device)]


def without_slack(device):
    """Sums that begin with an array which ends at its last element."""
    s, where = rk.Stream.from_seed(45), _device.parse_device(device)
    p, q = (
        tensor.factor(put(rk.gemm.to_bfloat16(x), device), 1)
        for x in (elementwise.random_fill(s.child(c), (c, 64)) for c in (24, 136))
    )
    start = put(elementwise.random_fill(s.child(2), (24, 136)), device)
    out = _device.empty((24, 136), np.float32, where)
    tensor.multiply(p, q, out, partial=start, total=start, tile=tensor_tiles.named("turned 64x16"))
    return [out]


# More tiles than blocks on a CPU, of more stages than a ring has; factors along both sides.
RINGS = (  # tile, rows, columns, terms, whether sums lie along the rows of both, result, its width
    ("64x256", 193, 250, 5 * 64, (1, 0), np.uint16, 256),
    ("128x64", 200, 124, 9 * 64, (0, 0), np.float32, 125),
    ("turned 64x16", 40, 100, 128, (1, 1), np.uint16, 101),
    ("turned 64x16 long", 20, 200, 14 * 64, (1, 0), np.uint16, 200),
    ("turned 192x48", 40, 200, 7 * 64, (1, 1), np.float32, 200),
    ("128x128 cluster 2x1", 258, 130, 7 * 64, (1, 1), np.uint16, 136),
    ("128x192 cluster 1x2", 130, 390, 5 * 64, (0, 0), np.float32, 392),
    ("64x192 cluster 4x1", 300, 200, 7 * 64, (1, 0), np.uint16, 203),
    ("turned 64x64 deep cluster 2x2", 130, 136, 13 * 64, (0, 1), np.uint16, 136),
    ("turned 128x80 cluster 4x1", 82, 600, 8 * 64, (1, 0), np.uint16, 600),
    ("turned 128x64", 40, 386, 9 * 64, (0, 1), np.uint16, 392),
    ("turned 8x16", 20, 44, 3080, (1, 0), np.uint16, 48),
    ("turned 16x32", 40, 52, 2100, (0, 1), np.float32, 53),
    ("turned 32x16", 20, 68, 2100, (0, 0), np.uint16, 69),
    ("turned 64x16 deep cluster 4x1", 20, 300, 3000, (0, 1), np.uint16, 301),
    ("64x96 cluster 2x2", 130, 200, 11 * 64, (0, 0), np.float32, 201),
    ("turned 128x48 cluster 1x4", 200, 136, 9 * 64, (1, 0), np.uint16, 136),
)


def ring(tile, m, n, k, sums, kind, width):
    def run(device):
        s, where = rk.Stream.from_seed(43), _device.parse_device(device)
        shapes = (m, k) if sums[0] else (k, m), (n, k) if sums[1] else (k, n)
        drawn = (elementwise.random_fill(s.child(c), shape) for c, shape in enumerate(shapes))
        given = (put(rk.gemm.to_bfloat16(x), device) for x in drawn)
        p, q = (tensor.factor(x, along) for x, along in zip(given, sums, strict=True))
        make = _device.empty if width % 8 else tensor.aligned  # rows that begin anywhere, or not
        out = make((m, width), kind, where)
        tensor.multiply(p, q, out, tile=tensor_tiles.named(tile))
        return [out[:, :n]]

    return run


SHORT = (  # tile, rows, columns, segments, terms of a segment
    ("64x256", 193, 248, 3, 64),  # blocks with several tiles
    ("128x64 apart", 128, 64, 2, 128),  # whole tiles
    ("turned 64x16 apart", 16, 64, 7, 128),
    ("64x128 cluster 4x1", 200, 128, 3, 128),
    ("turned 64x64 deep cluster 2x2 apart", 130, 136, 3, 128),
    ("64x96 cluster 2x2 apart", 130, 200, 3, 128),
    ("turned 64x16 deep joined", 20, 136, 3, 256),
    ("64x64 joined", 70, 136, 2, 128),
    ("turned 64x32 joined", 40, 72, 8, 128),
    ("turned 8x16 joined", 20, 24, 3, 512),
    ("turned 64x160 joined", 150, 136, 3, 128),
    ("128x64 cluster 2x1 joined", 130, 136, 3, 128),
    ("turned 192x48 cluster 1x2 joined", 90, 200, 2, 128),
    ("turned 16x16 apart", 20, 40, 5, 256),
    ("turned 32x32 apart", 40, 72, 2, 1024),
    ("thin 32x16/4 apart", 16, 32, 6, 1024),
    ("thin 16x8/2 joined", 18, 40, 7, 1024),
    ("thin 64x64/4 joined", 70, 72, 3, 1024),
)


def by_short_segments(tile, m, n, count, length):
    """Whole segments, of fewer terms than products have."""

    def run(device):
        with mock.patch.object(tensor, "SEGMENT", length), recording() as launches:
            made = by_tile(m, n, count * length, tile)(device)
        turns = [one.args[-2] for one in launches if one.variant.entry.startswith("det_gemm")]
        if any(numbers is not None and numbers.any() for numbers in turns):
            raise AssertionError("numbers of turns are not 0 after a launch")
        return made

    return run


def infinite(device):
    """Infinite sums, and NaN, in both 16-bit formats and by all kernels of products."""
    made = []
    for to in (rk.gemm.to_bfloat16, np.float16):
        a = to(elementwise.random_fill(rk.Stream.from_seed(41), (16, 64)))
        a[1:3, 5] = to(np.array([np.inf, -np.inf], np.float32))
        a[4, 7:9] = a[1:3, 5]
        a, out = put(a, device), _device.empty((16, 16), np.uint16, _device.parse_device(device))
        for tile in ("warps turned 16x16", "turned 64x16", "64x64"):
            tensor.multiply(*(tensor.in_place(a, 1),) * 2, out, tile=tensor_tiles.named(tile))
            made.append(out.copy())
    return made


def cases() -> Iterator[tuple[str, Case]]:
    yield "align_rows", Case("cut", cut_rows((((3, 10), 9), ((3, 3), 1), ((4, 7), 7))))
    for dtype in ("f4", "f8"):
        yield "det_gemm", Case(f"{dtype}-whole", gemm(256, 256, 64, dtype, 33))
    yield "det_gemm", Case("f4-steps", by_tiles("f4", STEPS))
    yield "det_gemm", Case("f8-doubles", by_tiles("f8", DOUBLES))
    yield "det_gemm", Case("f4-clusters", by_tiles("f4", CLUSTERS))
    yield "det_gemm", Case("f4-few", by_tiles("f4", FEW))
    yield "det_gemm", Case("f8-few", by_tiles("f8", FEW_DOUBLES))
    yield "det_gemm", Case("f4-high", by_tiles("f4", HIGH))
    yield "det_gemm", Case("f8-high", by_tiles("f8", HIGH_DOUBLES))
    yield "det_gemm", Case("f4-rows", by_tiles("f4", ROWS))
    yield "det_gemm", Case("f8-rows", by_tiles("f8", ROWS_OF_DOUBLES))
    yield "det_gemm", Case("f4-between", by_tiles("f4", BETWEEN))
    for dtype in ("f4", "f8"):
        yield "det_gemm", Case(f"{dtype}-one-row", by_tiles(dtype, ONE_ROW))
    for tile, *shape in PARTS:
        by_groups = isinstance(tensor_tiles.named(tile), tensor_tiles.Tile)
        kernel = "det_gemm_tensor" if by_groups else "det_gemm_mma"
        yield kernel, Case(f"parts-{tile}", by_parts(tile, *shape))
    yield "det_gemm_tensor", Case("without-slack", without_slack)
    for tile, *how in RINGS:
        yield "det_gemm_tensor", Case(f"ring-{tile}", ring(tile, *how))
    for tile, *how in SHORT:
        kernel = "det_gemm_mma" if tile.startswith("thin") else "det_gemm_tensor"
        yield kernel, Case(f"segments-short-{tile}", by_short_segments(tile, *how))
    for kernel in ("det_gemm_mma", "det_gemm_tensor"):
        yield kernel, Case("infinite", infinite)
    # More stages than a ring has; whole segments, and rows that begin anywhere.
    for n, k, tile, skip in (
        (16, 5120, "16x8/2", 0),
        (17, 1092, "32x16/4", 2),
        (64, 1089, "64x16/8", 1),
        (144, 64, "16x8/8", 0),
    ):
        run = thin_gemm(8, n, k, "bfloat16", f"thin {tile}", skip)
        yield "det_gemm_mma", Case(f"thin {tile}-{k}-{skip}-ring", run)
