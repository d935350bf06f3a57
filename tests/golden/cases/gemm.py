"""Golden cases of products of matrices: float32 and float64 chains, tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from unittest import mock

import numpy as np

import rpukit as rk
from rpukit import _device, elementwise
from rpukit._kernels.launch import recording
from tests.golden.cases.case import Case, put


def gemm(m, n, k, dtype, seed, **trans):
    def run(device):
        s = rk.Stream.from_seed(seed)
        a, b = (
            elementwise.random_fill(s.child(c), shape).astype(dtype) / 3
            for c, shape in enumerate(((m, k), (k, n)))
        )
        a, b = (
            (a.T.copy() if trans.get("trans_a") else a),
            (b.T.copy() if trans.get("trans_b") else b),
        )
        return [rk.det_gemm(put(a, device), put(b, device), **trans)]

    return run


def gemm_in_turns(m, n, k, dtype, tile, seed, split="IN_TURNS"):
    """A block makes each segment; the blocks add theirs in turns, or the last ones add all.

    Or blocks of three multiprocessors make equal shares. One block and several add the same.
    """

    def run(device):
        from rpukit.gemm import real
        from rpukit.gemm._tiles import real_tiles

        s = rk.Stream.from_seed(seed)
        a, b = (
            put(elementwise.random_fill(s.child(c), shape).astype(dtype) / 3, device)
            for c, shape in enumerate(((m, k), (n, k)))
        )
        tiles = real_tiles.DOUBLE_TILES if dtype == "f8" else real_tiles.FLOAT_TILES
        (found,) = (t for t in tiles if t.name == tile)
        out = _device.zeros((m, n), np.dtype(dtype), _device.device_of(a))
        few = mock.patch.object(real, "multiprocessors", return_value=3)
        leasts = [1 << 30] if split == "IN_TURNS" else [1, 1 << 30]
        made = []
        with recording() as launches, few if split == "STREAMED" else nullcontext():
            for least in leasts:
                with mock.patch.object(real_tiles, "_LEAST_SHARED", least):
                    for add in (0, 1):
                        way = {"split": getattr(real_tiles, split), "add": add}
                        real.product(a, b, out, False, True, found, **way)
                made.append(out.copy())
        if bool((made[0] != made[-1]).any()):
            raise AssertionError("several blocks add to other results than one")
        if any(bool(one.args[-2].any()) for one in launches):
            raise AssertionError("numbers of turns are not 0 after a launch")
        return [out]

    return run


def by_warpgroups(a, b, trans):
    """The product, unrounded and rounded, by no tile with warps that copy."""
    from rpukit.gemm import tensor

    p, q = tensor.in_place(a, 1 - trans["trans_a"]), tensor.in_place(b, int(trans["trans_b"]))
    made = [
        _device.empty((p.lines, q.lines), kind, _device.device_of(a))
        for kind in (np.float32, a.dtype)
    ]
    for out in made:
        tensor.product(p, q, out, thin=False)
    return made


def tensor_gemm(m, n, k, form, seed, **trans):
    def run(device):
        s = rk.Stream.from_seed(seed)
        shapes = (k, m) if trans["trans_a"] else (m, k), (n, k) if trans["trans_b"] else (k, n)
        a, b = (elementwise.random_fill(s.child(c), shape) for c, shape in enumerate(shapes))
        to = rk.gemm.to_bfloat16 if form == "bfloat16" else np.float16
        return by_warpgroups(*(put(to(x), device) for x in (a, b)), trans)

    return run


def mma_gemm(m, n, k, form, tile):
    """Two parts of a sum, the second on top of a total."""

    def run(device):
        from rpukit.gemm import tensor
        from rpukit.gemm._tiles import tensor_tiles

        s = rk.Stream.from_seed(17)
        a, b = (elementwise.random_fill(s.child(c), (lines, k)) for c, lines in enumerate((m, n)))
        to = rk.gemm.to_bfloat16 if form == "bfloat16" else np.float16
        p, q = (tensor.factor(put(to(x), device), 1) for x in (a, b))
        where = _device.parse_device(device)
        half, out = (tensor.aligned((m, n), kind, where) for kind in (np.float32, np.uint16))
        options = {"tile": tensor_tiles.named(tile)}
        tensor.multiply(p, q, half, part=(0, 192), **options)
        tensor.multiply(p, q, out, part=(192, k), partial=half, total=half, **options)
        return [half, out]

    return run


def loose_gemm(m, n, k, trans_a, trans_b):
    """Rows that begin at any word, at odd ones among them."""

    def run(device):
        s = rk.Stream.from_seed(19)
        shapes = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)
        a, b = (
            elementwise.random_fill(s.child(c), (rows, columns + 1))
            for c, (rows, columns) in enumerate(shapes)
        )
        a, b = (put(rk.gemm.to_bfloat16(x), device)[:, 1:] for x in (a, b))
        return by_warpgroups(a, b, {"trans_a": trans_a, "trans_b": trans_b})[::-1]

    return run


def thin_gemm(m, n, k, form, tile, skip):
    """Factors that begin `skip` words into longer rows; a along its rows, b along them or not."""

    def run(device):
        from rpukit.gemm import tensor
        from rpukit.gemm._tiles import tensor_tiles

        s, made = rk.Stream.from_seed(29), []
        to = rk.gemm.to_bfloat16 if form == "bfloat16" else np.float16
        for sum_a, sum_b in ((1, 0), (0, 1)):
            shapes = (m, k) if sum_a else (k, m), (n, k) if sum_b else (k, n)
            a, b = (
                put(to(elementwise.random_fill(s.child(c), (r, w + skip))), device)[:, skip:]
                for c, (r, w) in enumerate(shapes)
            )
            out = _device.empty((m, n), np.uint16, _device.parse_device(device))
            p, q = tensor.in_place(a, sum_a), tensor.in_place(b, sum_b)
            tensor.multiply(p, q, out, tile=tensor_tiles.named(tile))
            made.append(out)
        return made

    return run


SEGMENTS = (70, 136, 2 * 4096 + 72)  # rows, columns, terms


def by_tile(m, n, k, tile, sum_along=1):
    """Results of a tile, rounded and not; ``sum_along``: axis of both factors along the sum."""

    def run(device):
        from rpukit.gemm import tensor
        from rpukit.gemm._tiles import tensor_tiles

        s, where = rk.Stream.from_seed(47), _device.parse_device(device)
        a, b = (
            put(rk.gemm.to_bfloat16(elementwise.random_fill(s.child(c), shape)), device)
            for c, shape in enumerate(((m, k), (n, k)) if sum_along else ((k, m), (k, n)))
        )
        p, q = tensor.in_place(a, sum_along), tensor.in_place(b, sum_along)
        made = [_device.empty((m, n), kind, where) for kind in (np.float32, np.uint16)]
        for out in made:
            tensor.multiply(p, q, out, tile=tensor_tiles.named(tile))
        return made

    return run


def align_rows(shapes):
    """Copies of one or two matrices to aligned rows."""

    def run(device):
        from rpukit.gemm import lines

        s, where = rk.Stream.from_seed(23), _device.parse_device(device)
        given = [
            put(rk.gemm.to_bfloat16(elementwise.random_fill(s.child(c), shape)), device)[:, 1:]
            for c, shape in enumerate(shapes)
        ]
        rooms = [lines.aligned(x.shape, np.uint16, where) for x in given]
        lines.align_rows(*zip(given, rooms, strict=True))
        return rooms

    return run


def tensor_gemms():
    """16-bit floats in all layouts, rounded and not."""
    for m, n, k in ((1, 1, 1), (3, 264, 132), (33, 31, 67), (200, 136, 320), (17, 40, 8260)):
        for form in ("bfloat16", "float16"):
            for trans_a, trans_b in ((False, False), (True, False), (False, True)):
                run = tensor_gemm(m, n, k, form, 13, trans_a=trans_a, trans_b=trans_b)
                name = f"{m}x{n}x{k}-{form}-{int(trans_a)}{int(trans_b)}"
                yield "det_gemm_tensor", Case(name, run, small=k < 300)

    for tile in ("128x256", "192x192", "128x64 apart", "turned 64x16 apart"):
        yield "det_gemm_tensor", Case(f"segments-{tile}", by_tile(*SEGMENTS, tile))
    for m, n, k, tile in (
        (16, 9000, 136, "turned 64x16 deep streamed"),
        (152, 280, 136, "128x144"),
        (40, 200, 200, "turned 64x32 deep"),
        (136, 104, 72, "64x80 cluster 2x1"),
    ):
        for axis in (1, 0):
            run = by_tile(m, n, k, tile, axis)
            yield "det_gemm_tensor", Case(f"fitted-{tile}-{axis}", run, small=n < 300)
    for m, n, k in ((3, 33, 67), (20, 131, 70), (60, 70, 133), (70, 41, 90)):
        for trans_a, trans_b in ((False, False), (True, False), (False, True)):
            name = f"loose-{m}x{n}x{k}-{int(trans_a)}{int(trans_b)}"
            yield "det_gemm_tensor", Case(name, loose_gemm(m, n, k, trans_a, trans_b))
    for shapes in (((5, 10),), ((3, 18), (40, 66)), ((1, 2), (2, 4100))):
        yield "align_rows", Case(f"{shapes}", align_rows(shapes))

    for tile in ("warps 64x64", "warps turned 32x16"):
        for form in ("bfloat16", "float16"):
            yield "det_gemm_mma", Case(f"{tile}-{form}", mma_gemm(70, 40, 332, form, tile))
    yield "det_gemm_mma", Case("thin 16x8/2", mma_gemm(70, 40, 332, "float16", "thin 16x8/2"))
    for k, tile, skip in (
        (75, "16x8/8", 1),
        (200, "32x16/4", 2),
        (8260, "16x8/2", 0),
        (8260, "16x16/8 apart", 1),
    ):
        run = thin_gemm(17, 40, k, "bfloat16", f"thin {tile}", skip)
        yield "det_gemm_mma", Case(f"thin {tile}-{k}-{skip}", run, small=k < 300)
    for m, n, k, tile, skip in SHORT:
        run = thin_gemm(m, n, k, "float16", f"short {tile}", skip)
        yield "det_gemm_mma", Case(f"short {tile}-{k}-{skip}", run, small=k < 300)


SHORT = (  # rows, columns, terms, tile, elements before a factor
    (3, 130, 75, "64x8", 1),
    (9, 34, 129, "64x8", 1),
    (17, 70, 128, "64x16", 2),
    (40, 66, 330, "64x32", 0),
    (70, 130, 193, "64x64", 1),
)


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for m, n, k in ((1, 1, 1), (33, 31, 67), (65, 130, 16387)):
        for dtype in ("f4", "f8"):
            for trans_a, trans_b in ((False, False), (True, False), (False, True)):
                run = gemm(m, n, k, dtype, 11, trans_a=trans_a, trans_b=trans_b)
                name = f"{dtype}-{m}x{n}x{k}{'-ta' * trans_a}{'-tb' * trans_b}"
                yield "det_gemm", Case(name, run, small=k < 1000)
    for dtype, tile in (
        ("f4", "32x32"),
        ("f4", "8x32 few"),
        ("f8", "32x32 tensor"),
        ("f4", "64x32"),
        ("f8", "64x64 tensor"),
        ("f4", "4x8 few"),
    ):
        name = f"{dtype}-turns-{tile}"
        yield "det_gemm", Case(name, gemm_in_turns(40, 37, 3079, dtype, tile, 37))
    for dtype, tile in (
        ("f4", "8x64"),
        ("f4", "4x16 few"),
        ("f8", "32x32 tensor few"),
        ("f4", "16x32"),
        ("f8", "48x64 tensor"),
        ("f4", "8x16 few"),
        ("f4", "16x16 few"),
        ("f8", "16x8 tensor few"),
    ):
        name, run = (
            f"{dtype}-at-once-{tile}",
            gemm_in_turns(40, 37, 3079, dtype, tile, 37, "AT_ONCE"),
        )
        yield "det_gemm", Case(name, run)
    for dtype, tile, k in (
        ("f4", "32x32", 300),
        ("f4", "64x64", 3079),
        ("f8", "48x64 tensor", 3079),
        ("f8", "64x32 tensor", 300),
    ):
        name, run = (
            f"{dtype}-streamed-{tile}-{k}",
            gemm_in_turns(200, 77, k, dtype, tile, 37, "STREAMED"),
        )
        yield "det_gemm", Case(name, run, small=k < 1000)
    yield from tensor_gemms()
