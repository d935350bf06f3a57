"""Compare products of random shapes, types, layouts and views, GPU against CPU, to the bit.

python tools/fuzz_products.py [--count 2000] [--seed 0] [--seconds 300]        (needs a GPU)
python tools/fuzz_products.py --on-cpu --kernels 40                            (needs g++)

Each product is made by `det_gemm`, as a user calls it, and by a random one of the tiles that take
it; on a GPU also once more into the same array, after other numbers at the same addresses. Some
sums are longer than a segment, some factors are views that begin at any element or take every
other one, some numbers are zero, subnormal, huge or not finite. The exit status says whether a bit
differed. `--kernels` limits the compiled variants: products that need others are drawn again. With
`--on-cpu` the kernels run under the runner of the tests, blocks and threads in three orders.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import scan_tiles
from random_products import Shape

import rpukit as rk
from rpukit import _device, tuning
from rpukit.gemm import tensor
from rpukit.gemm._tiles import real_tiles, tensor_choice, tensor_tiles
from rpukit.testing import on_cpu, set_runner

_DTYPES = ("float32", "float64", "bfloat16", "float16")
_LONG = dict(zip(_DTYPES, (1000, 1000, 16300, 16300), strict=True))  # terms of long sums, at least
_LAYOUTS = ("NN", "NT", "TN", "TT")
_WORK = 3e6  # multiply-adds of a product, at most
_WORK_OF_RUNNER = 3e5  # under the runner, which takes a microsecond for a few of them
_ORDERS = (0, 1, 7)  # of blocks and threads under the runner: ascending, descending, shuffled
_TOLD = 100  # products after which the number of them is printed
Task = tuple[str, tuple[tuple[str, Any], ...]]


@dataclass(frozen=True)
class Case:
    """Product with the tile that is forced, and where its factors begin in longer rows."""

    shape: Shape
    tile: Any
    skip: int
    seed: int


def draw(
    count: int, seed: int, n_kernel: int | None = None, work: float = _WORK
) -> tuple[list[Case], list[Task]]:
    """Draw products whose results a CPU makes in milliseconds, and list the kernels they need.

    ``n_kernel``: at most so many kernels; ``work``: multiply-adds of a product.
    """
    rng, cases, known = np.random.default_rng(seed), list[Case](), dict[Task, None]()
    full = False
    while len(cases) < count:
        like = None
        if full:  # most others would need more kernels: this tile for other sizes
            kind = _DTYPES[len(cases) % len(_DTYPES)]
            alike = [x for x in cases if x.shape.dtype == kind] or cases
            like = alike[int(rng.integers(len(alike)))]
        case = draw_case(rng, work, like)
        if case is None:
            continue
        needed = dict.fromkeys([*known, *kernels_of(case)])
        if n_kernel is None or len(needed) <= n_kernel:
            cases.append(case)
            known = needed
        else:
            full = bool(cases)
    return cases, list(known)


def draw_case(rng: np.random.Generator, work: float, like: Case | None) -> Case | None:
    """Draw a product, of the type, layout and tile of another one if given; None: too large."""
    dtype, layout = (x[int(rng.integers(len(x)))] for x in (_DTYPES, _LAYOUTS))
    unit, long = (1, 4, 8)[int(rng.integers(3))], bool(rng.random() < 0.15)
    skip = int(rng.integers(1, 8)) if rng.random() < 0.2 else 0
    if like is not None:
        s, skip = like.shape, like.skip
        dtype, layout, long = s.dtype, s.layout, s.k >= _LONG[s.dtype]
        unit = next(x for x in (8, 4, 1) if all(size % x == 0 for size in (s.m, s.n, s.k)))
    least = _LONG[dtype]
    k = int(rng.integers(least, 3 * least)) if long else round(float(np.exp(rng.uniform(0, 8))))
    m, n = (round(float(np.exp(rng.uniform(0, 3 if long and least > 1000 else 7)))) for _ in "mn")
    m, n, k = (-(-x // unit) * unit for x in (m, n, k))
    shape = Shape(m, k, n, layout, dtype)
    if m * n * k > work:
        return None
    tiles = [like.tile] if like is not None else _tiles_of(shape)
    return Case(shape, tiles[int(rng.integers(len(tiles)))], skip, int(rng.integers(1 << 30)))


def kernels_of(case: Case) -> list[Task]:
    """Name the kernels, with their macros, that make the product in both ways."""
    return [
        (name, tuple(macros.items()))
        for tile in (case.tile, scan_tiles.choice(case.shape, case.skip))
        for name, macros in scan_tiles.macros_of(case.shape, tile, case.skip)
    ]


def _tiles_of(s: Shape) -> list[Any]:
    """Tiles that take the product."""
    if s.dtype in ("float32", "float64"):
        every = real_tiles.FLOAT_TILES if s.dtype == "float32" else real_tiles.DOUBLE_TILES
        splits = [x for x in real_tiles.SPLITS if x < 2 * -(-s.k // real_tiles.SEGMENT)]
        splits += real_tiles.WORDS
        return [
            scan_tiles.Way(t, split)
            for t in every
            if s.layout[1] == "N" or not t.across
            for split in splits
            if t.splits_by(split)
        ]
    alone = [*tensor_tiles.ALONE, *tensor_choice.fitted(s.m), *tensor_choice.fitted_columns(s.n)]
    fit = [*alone, *(one for tile in alone for one in tensor_tiles.clusters(tile))]
    parts = scan_tiles.joined([*fit, *tensor_tiles.THIN_TILES], s)
    fit += [tensor_tiles.streamed(t) for t in fit]
    several = [*fit, *tensor_tiles.THIN_TILES] if s.k > tensor.SEGMENT else []
    parts += [tensor_tiles.apart(t) for t in several if kept(t, s) <= 1 << 28]
    return [*fit, *tensor_tiles.WARP_TILES, *tensor_tiles.THIN_TILES, *parts]


def kept(t: Any, s: Shape) -> int:
    """Bytes of the results of segments, if a block makes each."""
    n_segment = -(-s.k // tensor.SEGMENT)
    return int(4 * scan_tiles.tensor_count(t, s) * t.rows * t.columns * n_segment)


def factors_of(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Draw both factors, some with numbers from the ends of their type's range."""
    s, rng = case.shape, np.random.default_rng(case.seed)
    shapes = (s.k, s.m) if s.layout[0] == "T" else (s.m, s.k)
    shapes = shapes, ((s.n, s.k) if s.layout[1] == "T" else (s.k, s.n))
    kind = np.float64 if s.dtype == "float64" else np.float32
    made = []
    for rows, columns in shapes:
        x = rng.standard_normal((rows, columns + case.skip)).astype(kind)
        if rng.random() < 0.2:
            x *= kind(2.0) ** rng.integers(-40, 40, x.shape).astype(kind)
        if rng.random() < 0.2:
            x[rng.random(x.shape) < 0.01] = rng.choice([0.0, -0.0, 1e-40, np.inf, np.nan])
        if s.dtype == "float16":
            with np.errstate(over="ignore"):
                x = x.astype(np.float16)
        elif s.dtype == "bfloat16":
            x = rk.gemm.to_bfloat16(x)
        made.append(x[:, case.skip :])
    return made[0], made[1]


def same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two results have the same bits, but for the payload of NaN."""
    if x.dtype == np.uint16:
        x, y = (rk.gemm.from_bfloat16(v) for v in (x, y))
    word = f"u{x.dtype.itemsize}"
    return bool(((x.view(word) == y.view(word)) | (np.isnan(x) & np.isnan(y))).all())


def by_mirror(case: Case) -> np.ndarray:
    """Make the product on the CPU."""
    with np.errstate(all="ignore"):
        return rk.det_gemm(*factors_of(case), **transposes(case))


def transposes(case: Case) -> dict[str, bool]:
    """Arguments of `det_gemm` for the layout of a case."""
    return {"trans_a": case.shape.layout[0] == "T", "trans_b": case.shape.layout[1] == "T"}


def compare(case: Case, expected: np.ndarray, order: int | None = None) -> list[str]:
    """Return the names of the ways to make the product that differ from the CPU's bits.

    ``order``: of blocks and threads under the runner; without it the product is made on a GPU.
    """
    (a, b), trans, xp = factors_of(case), transposes(case), np
    if order is None:
        step = 2 if case.seed % 5 == 0 else 1
        xp, a, b = _device.cupy(), _on_gpu(a, case.skip, step), _on_gpu(b, case.skip)
    forced = xp.empty(expected.shape, expected.dtype)
    ways: dict[str, Callable[[], Any]] = {
        "det_gemm": lambda: rk.det_gemm(a, b, **trans),
        scan_tiles.label(case.tile): lambda: forced_product(case, a, b, forced),
    }
    if order is None:
        ways["repeated"] = lambda: repeated(a, b, trans, xp.empty_like(forced))
    with contextlib.nullcontext() if order is None else on_cpu(order), np.errstate(all="ignore"):
        made = {name: run() for name, run in ways.items()}
    results = {name: x if order is not None else x.get() for name, x in made.items()}
    return [name for name, x in results.items() if not same(x, expected)]


def forced_product(case: Case, a: Any, b: Any, out: Any) -> Any:
    """Multiply by the tile of the case."""
    scan_tiles.run_tile(case.shape, case.tile, a, b, out)
    return out


def repeated(a: Any, b: Any, trans: dict[str, bool], out: Any) -> Any:
    """Multiply other numbers at the same addresses first, so that the launches are replayed."""
    numbers = a.copy()
    a.fill(0)
    for _ in range(2):
        rk.det_gemm(a, b, **trans, out=out)
    a[...] = numbers
    return rk.det_gemm(a, b, **trans, out=out)


def _on_gpu(x: np.ndarray, skip: int, step: int = 1) -> Any:
    """Copy a factor to the GPU, as a view of longer rows if it is one here, or by a step."""
    cupy = _device.cupy()
    room = cupy.zeros((x.shape[0], step * (x.shape[1] + skip)), x.dtype)[:, ::step]
    room[:, skip:] = cupy.asarray(np.ascontiguousarray(x))
    return room[:, skip:]


def fuzz(
    cases: list[Case], results: Iterable[np.ndarray], seconds: float, orders: tuple[int, ...] = ()
) -> int:
    """Compare products until the time is over, tell what differs, and count it."""
    begin, n_case, bad = time.perf_counter(), 0, 0
    for n_case, (case, expected) in enumerate(zip(cases, results, strict=True), 1):
        order = orders[n_case % len(orders)] if orders else None
        different = compare(case, expected, order)
        bad += bool(different)
        if different:
            print(f"differs: {case} {different}", flush=True)
        spent = time.perf_counter() - begin
        if n_case % _TOLD == 0:
            print(f"{n_case} products, {bad} differ, {spent:.0f} s", flush=True)
        if spent > seconds:
            break
    print(f"{n_case} products in {time.perf_counter() - begin:.0f} s, of which differ: {bad}")
    return bad


def fuzz_under_runner(cases: list[Case], seconds: float) -> int:
    """Compare kernels under the runner of the tests with the mirrors; count what differs."""
    from tests.on_cpu import runner

    set_runner(runner.run)
    return fuzz(cases, map(by_mirror, cases), seconds, _ORDERS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kernels", type=int, help="compiled variants, at most")
    parser.add_argument("--jobs", type=int, default=14, help="processes that compile")
    parser.add_argument("--compile", action="store_true", help="only compile, for a later run")
    parser.add_argument("--on-cpu", action="store_true", help="kernels under the tests' runner")
    given = parser.parse_args()
    begin = time.perf_counter()
    tuning.off()
    scan_tiles.DEVICE = "cpu" if given.on_cpu else "gpu"
    work = _WORK_OF_RUNNER if given.on_cpu else _WORK
    cases, tasks = draw(given.count, given.seed, given.kernels, work)
    print(f"{len(cases)} products, {len(tasks)} kernels", flush=True)
    if given.on_cpu:
        return int(fuzz_under_runner(cases, given.seconds) > 0)
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        compiled = pool.map_async(scan_tiles.build, tasks, chunksize=1)
        for case in {case.shape.dtype: case for case in cases}.values():
            by_mirror(case)  # the mirrors are compiled once, not by each process
        compiled.wait()
        print(f"kernels compiled in {time.perf_counter() - begin:.0f} s", flush=True)
        if given.compile:
            return 0
        left = given.seconds - (time.perf_counter() - begin)
        bad = fuzz(cases, pool.imap(by_mirror, cases, 8), left)
        pool.terminate()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
