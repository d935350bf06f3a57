"""Time every tile on products of random shapes, beside cuBLAS and the tile that is chosen.

python tools/scan_tiles.py --random 96 --seeds 1,2 --seconds 140 --out scan.json   (needs a GPU)
python tools/scan_tiles.py --random 0 --cells times.json --below .9
python tools/scan_tiles.py --random 0 --shapes float32/NN/552x1384x248 \
    --also "32x32 / at once @rows_per_thread=4,stages=4|32x64 / streamed"

The choice of a tile is fitted to these times. `--cells` names a file of
`measure_gemm.py --random`, of which the cells that lose are scanned. `--also` names more ways: in
16-bit types tiles, in float32 and float64 tiles and how blocks share them, with other fields of
`RealTile` behind an @, and other segments, whose bits differ. Kernels are compiled by many
processes at first.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import random_products
from measure_gemm import MODE, Bench, floor

import rpukit as rk
from rpukit import _device
from rpukit._kernels import compile as nvrtc
from rpukit._kernels import replay, source
from rpukit.errors import ParameterError
from rpukit.gemm import real, tensor
from rpukit.gemm._tiles import real_choice, real_paces, real_tiles, tensor_choice, tensor_tiles
from rpukit.gemm._tiles.real_tiles import SEGMENT, STREAMED, Problem, RealTile
from rpukit.gemm.formats import bits

_TURNS = 2
_SPAN = 3e3  # microseconds that a replay lasts at most, where several turns do not fit
_WIDE = {"float32": 4, "float64": 8}
_MOST_WAYS = 10
_SEGMENTS = " segments of "  # in names
DEVICE = "gpu"  # for which `choice` chooses
Shape = random_products.Shape


@dataclass(frozen=True)
class Way:
    """Tile of float32 or float64, the blocks that share it, and the terms of a segment."""

    tile: RealTile
    split: int = 1
    segment: int = SEGMENT


def label(t: Any) -> str:
    """Name of a way to make a product, unique among those that are tried."""
    if not isinstance(t, Way):
        return str(t.name)
    own = "" if t.segment == SEGMENT else f"{_SEGMENTS}{t.segment}"
    return f"{t.tile.name} / {real_tiles.WORDS.get(t.split, t.split)}{own}"


def tiles_of(s: Shape, most: int = _MOST_WAYS) -> list[Any]:
    """Ways worth a look: not those that a rough model calls three times slower than the best."""
    if s.dtype in _WIDE or most == 0:
        return ways_of(s, most) if most else []
    along = s.layout[0] == "T", s.layout[1] == "N"
    near = tensor_choice.by_time(s.m, s.n, s.k, *along, _device.parse_device(DEVICE))[: most // 2]
    thin = [
        t for t in tensor_choice.copying(min(vectors_of(s)), s.k) if tensor_count(t, s) <= 132 * 8
    ]
    several = thin if s.k > tensor.SEGMENT else []
    return [*near, *thin, *map(tensor_tiles.apart, several), *joined(several, s)]


def joined(tiles: list[Any], s: Shape) -> list[Any]:
    """Return the joined forms of tiles, if the product has as many segments as they can join."""
    n_segment = -(-s.k // tensor.SEGMENT)
    return [tensor_tiles.joined(t) for t in tiles if tensor_tiles.joins(t, n_segment)]


def vectors_of(s: Shape, skip: int = 0) -> tuple[int, int]:
    """Elements at whose multiples the rows of both factors begin; `skip`: before it, in a view."""
    widths = s.m if s.layout[0] == "T" else s.k, s.k if s.layout[1] == "T" else s.n
    at = [
        (0 if lines == 1 else w + skip) | skip for lines, w in zip((s.m, s.n), widths, strict=True)
    ]
    a, b = (next(n for n in (8, 4, 2, 1) if x % n == 0) for x in at)
    return a, b


def problem_of(s: Shape) -> Problem:
    """The product as the choice of a tile sees it."""
    trans_a, trans_b = transposed(s)
    return Problem(s.m, s.n, s.k, _WIDE[s.dtype], trans_a, trans_b, not s.ragged)


def transposed(s: Shape) -> tuple[bool, bool]:
    """How the factors of float32 or float64 lie: a single column lies like a row."""
    return s.layout[0] == "T" and s.m > 1, s.layout[1] == "T" or s.n == 1


def ways_of(s: Shape, most: int) -> list[Way]:
    """Ways that the model calls the fastest; of large products also longer segments."""
    problem = problem_of(s)
    found = [
        (real_paces.microseconds(t, split, problem, 132), Way(t, split))
        for t, split in real_choice.ways(problem, True, 132, real_tiles.SPLITS[-1])
    ]
    found.sort(key=lambda x: x[0])
    best = [way for time, way in found if time <= 2 * found[0][0]][:most]
    if problem.n_segment > 1 and s.m * s.n * s.k > 3e10:
        best += [Way(w.tile, 1, 16384) for w in best[:2] if w.split == 1]
    return best


def named_ways(names: str, s: Shape) -> list[Any]:
    """Ways of `--also` for products of this type."""
    texts = [text.strip() for text in names.split("|") if text.strip()]
    if s.dtype not in _WIDE:
        return [tensor_tiles.named(text) for text in texts if " / " not in text]
    ways = [real_way(text, _WIDE[s.dtype]) for text in texts if " / " in text]
    return [way for way in ways if way.split != STREAMED or _has_shares(way, s)]


def _has_shares(way: Way, s: Shape) -> bool:
    """Whether the product is large enough for equal shares; if not, a block makes each tile."""
    problem = problem_of(s)._replace(segment=way.segment)
    return real_tiles.shares(way.tile, problem, 132) > 0


def real_way(text: str, size: int) -> Way:
    """The way of a name such as "32x32 / at once segments of 512 @rows_per_thread=4,stages=4"."""
    name, _, fields = (x.strip() for x in text.partition("@"))
    tile_name, blocks = name.rsplit(" / ", 1)
    blocks, _, segment = blocks.partition(_SEGMENTS)
    tiles = real_tiles.DOUBLE_TILES if size == 8 else real_tiles.FLOAT_TILES
    named = {tile.name: tile for tile in tiles}
    if tile_name not in named:
        raise ParameterError(f"tile: got {tile_name!r}, need one of {', '.join(named)}")
    tile = named[tile_name]
    for field, number in (x.split("=") for x in fields.split(",") if x):
        tile = replace(tile, word=f"{tile.word} {field}={number}", **{field: int(number)})
    splits = {word: split for split, word in real_tiles.WORDS.items()}
    split = splits[blocks] if blocks in splits else int(blocks)
    return Way(tile, split, int(segment or SEGMENT))


def tensor_count(t: Any, s: Shape) -> int:
    return t.count(s.n, s.m) if t.turned else t.count(s.m, s.n)


def rough(count: int, size: int, among: list[Any], s: Shape) -> bool:
    """Whether the tiles' area is at most 5 times the least, and blocks are not far too many."""
    least = min(
        (tensor_count(t, s) if s.dtype not in _WIDE else t.count(s.m, s.n)) * t.rows * t.columns
        for t in among
    )
    few = count <= 132 * 24 or size >= 4096
    return count * size <= 4 * max(least, 132 * 192) and few


def macros_of(s: Shape, tile: Any, skip: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Kernels and macros of the launches of a product."""
    trans_a, trans_b = (c == "T" for c in s.layout)
    if s.dtype in _WIDE:
        trans_a, trans_b = transposed(s)
        size, unit = _WIDE[s.dtype], 16 // _WIDE[s.dtype]
        rows = s.m if trans_a else s.k, s.k if trans_b else s.n
        vec = (math.gcd(rows[0], unit), math.gcd(rows[1], unit), math.gcd(s.n, unit))
        way = tile if isinstance(tile, Way) else Way(tile)
        shape = s.m, s.n, s.k
        options = {"split": way.split, "segment": way.segment, "n_multi": 132}
        launch = real.start(way.tile, shape, size, trans_a, trans_b, vec, 232448, **options)
        return [("det_gemm", dict(launch.variant.macros))]
    p, q = (int(trans_a), int(not trans_b))[:: -1 if tile.turned else 1]
    words = {"P_MN": p, "Q_MN": q, "RESULT": "u16", "FROM": 0, "ADD": 0}
    words["HALF"] = int(s.dtype == "float16")
    several = s.k > tensor.SEGMENT
    if isinstance(tile, tensor_tiles.Tile):
        tile = tile.for_columns(bool(q))
        workers = tensor_tiles.usable(tile, 132) // tile.together
        streams = tile.streams(tensor_count(tile, s), s.k, workers)
        words |= {"LOOSE": int(s.n % 8 != 0)}
        words |= tile.segment_macros(-(-s.k // tensor.SEGMENT), streams=streams)
        return [("det_gemm_tensor", {**tile.macros, **words})]
    if tile.anywhere:
        vec = vectors_of(s, skip)[:: -1 if tile.turned else 1]
        words |= {"P_VEC": vec[0], "Q_VEC": vec[1]}
        words |= {"SEGMENT": tensor.SEGMENT, "APART": int(several and tile.apart)}
        words |= {"CLUSTER": -(-s.k // tensor.SEGMENT)} if several and tile.joined else {}
        return [("det_gemm_mma", {**tile.macros, **words})]
    launches = [{"RESULT": "float"}] * several + [{"ADD": int(several)}]
    if s.k > 2 * tensor.SEGMENT:
        launches.append({"RESULT": "float", "ADD": 1})
    return [("det_gemm_mma", {**tile.macros, **words, **launch}) for launch in launches]


def build(task: tuple[str, tuple[tuple[str, Any], ...]]) -> None:
    """Compile one kernel into the cache folder."""
    text = source.load(task[0])
    nvrtc.cubin(text, "sm_90a", text.settings(dict(task[1])))


def run_tile(s: Shape, tile: Any, a: Any, b: Any, out: Any) -> None:
    """One product with a given tile."""
    trans_a, trans_b = (c == "T" for c in s.layout)
    if s.dtype in _WIDE:
        way = tile if isinstance(tile, Way) else Way(tile)
        options = {"split": way.split, "segment": way.segment}
        real.product(a, b, out, trans_a, trans_b, way.tile, **options)
        return
    out = bits(out)
    p, q = tensor.in_place(a, 0 if trans_a else 1), tensor.in_place(b, 1 if trans_b else 0)
    if getattr(tile, "anywhere", False):
        tensor.multiply(p, q, out, tile=tile)
        return
    tensor.multiply(*tensor.tight(p, q), out, tile=tile)


class Scan(Bench):
    """Times of one product by every tile."""

    def graph_of(self, calls: list[Callable[[], Any]], turns: int) -> Any:
        """Capture calls, which are made before."""
        torch = self.torch
        with torch.cuda.stream(self.stream), self.ours:
            for call in calls:
                call()
            calls[0]()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode=MODE), self.ours:
            for call in calls * turns:
                call()
        graph.replay()
        return graph

    def cell(self, s: Shape, tiles: list[Any]) -> dict[str, float]:
        """Microseconds of the library, of the choice and of each tile."""
        dtype = getattr(self.torch, s.dtype)
        size = self.torch.finfo(dtype).bits // 8
        least = floor(s.m, s.k, s.n, size)
        count = max(2, min(6, -(-(160 << 20) // ((s.k * s.n + s.m * s.k) * size))))
        turns = _TURNS if least * count * _TURNS < _SPAN else 1
        replays = 4 if least * count * turns < _SPAN else 3
        trans = {"trans_a": s.layout[0] == "T", "trans_b": s.layout[1] == "T"}
        shape_a = (s.k, s.m) if trans["trans_a"] else (s.m, s.k)
        shape_b = (s.n, s.k) if trans["trans_b"] else (s.k, s.n)
        (at, a), (bt, b) = (self.operands(x, dtype, count) for x in (shape_a, shape_b))
        out = self.cupy.empty((s.m, s.n), a[0].dtype)

        def library(i: int) -> Callable[[], Any]:
            x, y = (
                at[i].t() if trans["trans_a"] else at[i],
                bt[i].t() if trans["trans_b"] else bt[i],
            )
            return lambda: self.torch.mm(x, y)

        every = range(count)
        sides = {"library": [library(i) for i in every]}
        sides["ours"] = [lambda i=i: rk.det_gemm(a[i], b[i], out=out, **trans) for i in every]
        for t in tiles:
            sides[label(t)] = [lambda i=i, t=t: run_tile(s, t, a[i], b[i], out) for i in every]
        if tiles:
            expected = rk.det_gemm(a[0], b[0], **trans)
            check(s, a[0], b[0], expected, trans)
            for t in (t for t in tiles if getattr(t, "segment", 0) == SEGMENT):
                out.fill(1)
                run_tile(s, t, a[0], b[0], out)
                if not bool((out == expected).all()):
                    print(f"WRONG {s} {label(t)} {int((out != expected).sum())}", flush=True)
        spans: dict[str, list[float]] = {name: [] for name in sides}
        graphs = {}
        for name, calls in sides.items():
            try:
                graphs[name] = self.graph_of(calls, turns)
            except Exception as error:
                print(f"{s} {name}: {str(error)[:200]}", flush=True)
        for _ in range(replays):
            for name, graph in graphs.items():
                start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graph.replay()
                stop.record()
                stop.synchronize()
                spans[name].append(start.elapsed_time(stop))
        each = 1e3 / (count * turns)
        found = {name: statistics.median(v) * each for name, v in spans.items() if v}
        return {**found, "floor": least}


def check(s: Shape, a: Any, b: Any, made: Any, trans: dict[str, bool]) -> None:
    """Compare a corner of a result with that of the CPU."""
    if s.dtype not in _WIDE:
        return
    rows, columns = min(s.m, 2), min(s.n, 64)
    left = (a[:, :rows].T if trans["trans_a"] else a[:rows]).get()
    right = (b[:columns].T if trans["trans_b"] else b[:, :columns]).get()
    if (rk.det_gemm(left, right) != made[:rows, :columns].get()).any():
        print(f"DIFFERS from the CPU: {s}", flush=True)


def report(rows: list[dict[str, Any]]) -> None:
    """Print geometric means by class, and the worst cells of each type."""
    for dtype in sorted({r["dtype"] for r in rows}):
        mine = [r for r in rows if r["dtype"] == dtype and {"library", "ours"} <= set(r["times"])]
        classes: dict[str, list[tuple[float, float]]] = {}
        for r in mine:
            s = Shape(*(r[x] for x in ("m", "k", "n", "layout", "dtype")))
            best = min(v for x, v in r["times"].items() if x not in ("library", "floor"))
            pair = r["times"]["library"] / r["times"]["ours"], r["times"]["library"] / best
            band = next((f"m<={x}" for x in (8, 64, 512) if s.m <= x), "m>512")
            long = "k>16384" if s.k > 16384 else "k>4096" if s.k > 4096 else "k<=4096"
            for name in ("all", "ragged" if s.ragged else "aligned", band, s.layout, long):
                classes.setdefault(name, []).append(pair)
        for name, found in sorted(classes.items()):
            mean, best = np.exp(np.log(np.array(found)).mean(0))
            low, n = min(x for x, _ in found), len(found)
            print(f"{dtype:8s} {name:8s} ours {mean:.2f} best tile {best:.2f} low {low:.2f} {n}")
        mine.sort(key=lambda r: r["times"]["library"] / r["times"]["ours"])
        for r in mine[:14]:
            t = r["times"]
            tiles = {x: v for x, v in t.items() if x not in ("library", "floor", "ours")}
            best = min(tiles, key=tiles.__getitem__) if tiles else "-"
            print(
                f"{r['layout']} {r['m']}x{r['k']}x{r['n']} {t['library']:.1f} {t['ours']:.1f} "
                f"{t['library'] / t['ours']:.2f} {r['pick']} | {best} {tiles.get(best, 0):.1f}"
            )


def choice(s: Shape, skip: int = 0) -> Any:
    """Tile that the model chooses."""
    trans_a, trans_b = (c == "T" for c in s.layout)
    where = _device.parse_device(DEVICE)
    if s.dtype in _WIDE:
        most = real_tiles.SPLITS[-1]
        found = real_choice.pick(problem_of(s), True, _device.multiprocessors(where), most)
        return Way(found.tile, found.split)
    shape = s.m, s.n, s.k, trans_a, not trans_b
    first = tensor_choice.by_time_of_all(*shape, vectors_of(s, skip), where)[:1]
    return first[0] if first else tensor_choice.pick(*shape, where)


def losing(path: Path, below: float) -> list[Shape]:
    """Shapes of a file of times at which cuBLAS takes less than `below` of our time."""
    rows = [r for r in json.loads(path.read_text()) if r["library"] < below * r["ours"]]
    return [Shape(*(r[name] for name in ("m", "k", "n", "layout", "dtype"))) for r in rows]


def options() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=96)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--few", action="store_true", help="draw products of few results only")
    parser.add_argument(
        "--shapes", default="", help="more shapes, m x k x n: 64x4096x4096,bfloat16/NT/1x72x8,..."
    )
    parser.add_argument("--cells", type=Path, help="file of times, see above")
    parser.add_argument("--below", type=float, default=0.9, help="ratio of these")
    parser.add_argument("--layouts", default="NN", help="of these shapes")
    parser.add_argument("--dtypes", default="bfloat16,float32,float64")
    parser.add_argument("--ways", type=int, default=_MOST_WAYS, help="of a product, at most")
    parser.add_argument("--also", default="", help="more ways, see above, with | in between")
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    given = options()
    begin = time.perf_counter()
    dtypes = tuple(given.dtypes.split(","))
    seeds = [int(x) for x in given.seeds.split(",")]
    draw = random_products.draw_few if given.few else random_products.draw
    drawn = [list(draw(given.random, seed, dtypes)) for seed in seeds]
    print("tiles", given.dtypes, given.seeds)
    shapes = [
        Shape(*map(int, text.split("/")[-1].split("x")), layout, dtype)
        for text in filter(None, given.shapes.split(","))
        for layout in (text.split("/")[1:-1] or given.layouts.split(","))
        for dtype in (text.split("/")[:1] if "/" in text else dtypes)
    ]
    shapes += losing(given.cells, given.below) if given.cells else []
    shapes += [s for group in zip(*drawn, strict=True) for s in group]
    cells = [
        (s, list(dict.fromkeys([*tiles_of(s, given.ways), *named_ways(given.also, s)])))
        for s in shapes
    ]
    context = multiprocessing.get_context("spawn")
    tasks: dict[Any, None] = {}
    for s, tiles in cells:
        for t in (*tiles, *([choice(s)] if given.jobs else [])):
            for name, macros in macros_of(s, t):
                tasks.setdefault((name, tuple(macros.items())))
    print(f"{len(cells)} cells, {len(tasks)} kernels, {os.cpu_count()} CPUs", flush=True)
    if given.jobs == 0:
        return 0
    rows: list[dict[str, Any]] = []
    with context.Pool(given.jobs) as pool:
        jobs = {task: pool.apply_async(build, (task,)) for task in tasks}
        bench = Scan()
        waited = 0.0
        for s, tiles in cells:
            if time.perf_counter() - begin > given.seconds:
                break
            try:
                start = time.perf_counter()
                for t in (*tiles, choice(s)):
                    for name, macros in macros_of(s, t):
                        jobs[name, tuple(macros.items())].get(20)
                waited += time.perf_counter() - start
                times = bench.cell(s, tiles)
            except Exception as error:
                print(f"{s}: {str(error)[:300]}", flush=True)
                continue
            rows.append({**asdict(s), "pick": label(choice(s)), "times": times})
            replay._graph_arrays.clear()  # the graphs of this cell are gone
            bench.torch.cuda.empty_cache()
            _device.cupy().get_default_memory_pool().free_all_blocks()
            if given.out:
                given.out.write_text(json.dumps(rows))
        pool.terminate()
    print(f"{len(rows)} cells, {waited:.0f} s waited, {time.perf_counter() - begin:.0f} s in all")
    report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
