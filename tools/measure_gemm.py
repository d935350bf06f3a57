"""Time the batch-invariant products on a GPU beside cuBLAS.

python tools/measure_gemm.py [--quick]        (needs a GPU and PyTorch)
python tools/measure_gemm.py --random 100 --seed 1 [--dtypes bfloat16,float32] [--out times.json]
python tools/measure_gemm.py --first-use            (without PyTorch, best with nothing beside it)

Medians over replays of captured graphs, operands rotating through more than the L2 cache; replays
of cuBLAS and of ours alternate, since a GPU that is hot is slower. Batches go from few rows to
many, for all layers together: few rows are not timed on a GPU that many have just heated. A ratio
above 1 means that ours is faster. The floor is the longer of moving each matrix once and of the
arithmetic alone. `--random` draws shapes that nothing was fitted to. `--first-use` times the first
product of a process whose cache of kernels is empty, then one of more rows, then repeated calls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import random_products

import rpukit as rk
from rpukit import _device

SHAPES = {
    "qkv": (4096, 12288),
    "o_proj": (4096, 4096),
    "mlp_up": (4096, 14336),
    "mlp_dn": (14336, 4096),
    "lm_head": (4096, 32000),
}
BATCHES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
FIRST_USES = (  # type, rows, terms, columns
    ("bfloat16", 77, 1001, 1003),
    ("bfloat16", 512, 4096, 4096),
    ("float16", 300, 2000, 3000),
    ("float32", 100, 4096, 4096),
    ("float32", 512, 4096, 4096),
    ("float64", 300, 2000, 3000),
)
_MORE = 300  # rows of the second product
_L2 = 160 << 20
_BANDWIDTH = 4.3e6  # bytes a microsecond, of a copy
_RATES = {2: 790e6, 4: 67e6, 8: 67e6}  # operations a microsecond, by bytes of an element
MODE = "relaxed"  # of a capture: products that copy a factor allocate memory for each graph
_TURNS = 4  # of a graph through all operands


class Bench:
    """Graphs of calls on one stream, timed by events."""

    def __init__(self) -> None:
        import torch

        self.torch, self.cupy = torch, _device.cupy()
        torch.backends.cuda.matmul.allow_tf32 = False
        self.stream = torch.cuda.Stream()
        self.ours = self.cupy.cuda.ExternalStream(self.stream.cuda_stream)

    def times(self, *sides: Sequence[Callable[[], Any]], replays: int = 7) -> tuple[float, ...]:
        """Microseconds a call of each side."""
        torch = self.torch
        graphs = [self.graph(calls) for calls in sides]
        spans: list[list[float]] = [[] for _ in sides]
        for _ in range(replays):
            for graph, span in zip(graphs, spans, strict=True):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graph.replay()
                stop.record()
                stop.synchronize()
                span.append(start.elapsed_time(stop))
        both = zip(sides, spans, strict=True)
        return tuple(statistics.median(v) * 1e3 / (len(c) * _TURNS) for c, v in both)

    def graph(self, calls: Sequence[Callable[[], Any]]) -> Any:
        """Capture a few rounds of calls, all of which have run before."""
        torch = self.torch
        with torch.cuda.stream(self.stream), self.ours:
            for call in [*calls] * 3:  # what is prepared once, and once for a result
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode=MODE), self.ours:
            for call in [*calls] * _TURNS:
                call()
        graph.replay()
        return graph

    def operands(self, shape: tuple[int, int], dtype: Any, count: int) -> tuple[list, list]:
        """Random matrices as tensors and as the arrays that share their memory."""
        torch, cupy = self.torch, self.cupy
        made = [torch.randn(shape, device="cuda").to(dtype) for _ in range(count)]
        if dtype == torch.bfloat16:
            words = [cupy.from_dlpack(t.view(torch.int16)).view(np.uint16) for t in made]
            return made, words
        return made, [cupy.from_dlpack(t) for t in made]

    def product(self, m: int, k: int, n: int, layout: str, dtype: Any) -> tuple[float, ...]:
        """Time of cuBLAS, of ours and the least; layout as in BLAS: NN, NT, TN."""
        size = self.torch.finfo(dtype).bits // 8
        count = max(2, min(6, -(-_L2 // (k * n * size))))
        shapes = (k, m) if layout[0] == "T" else (m, k), (n, k) if layout[1] == "T" else (k, n)
        (at, a), (bt, b) = (self.operands(shape, dtype, count) for shape in shapes)
        out = self.cupy.empty((m, n), a[0].dtype)
        trans = {"trans_a": layout[0] == "T", "trans_b": layout[1] == "T"}

        def library(i: int) -> Callable[[], Any]:
            x, y = (
                at[i].t() if layout[0] == "T" else at[i],
                bt[i].t() if layout[1] == "T" else bt[i],
            )
            return lambda: self.torch.mm(x, y)

        def ours(i: int) -> Callable[[], Any]:
            return lambda: rk.det_gemm(a[i], b[i], out=out, **trans)

        numbers = range(count)
        sides = ([library(i) for i in numbers], [ours(i) for i in numbers])
        return (*self.times(*sides), floor(m, k, n, size))

    def gradient(self, rows: int, k: int, n: int) -> tuple[float, ...]:
        """Time of cuBLAS adding a gradient of weights to float32 sums, and of ours."""
        (at, a), (dt, dc) = (self.operands((rows, w), self.torch.bfloat16, 4) for w in (k, n))
        total = self.torch.zeros((k, n), device="cuda")
        sums = rk.gemm.WeightGradient((k, n), np.uint16, "gpu")
        numbers = range(4)

        def library(i: int) -> Any:
            x, y = at[i].t(), dt[i]
            return self.torch.addmm(total, x, y, out_dtype=self.torch.float32, out=total)

        calls = [lambda i=i: sums.add(a[i], dc[i]) for i in numbers]
        least = max(floor(k, rows, n, 2), (2 * rows * (k + n) + 8 * k * n) / _BANDWIDTH)
        return (*self.times([lambda i=i: library(i) for i in numbers], calls), least)

    def logprob(self, m: int, k: int, n: int, step: bool = False) -> tuple[float, ...]:
        """Time of PyTorch's log-probabilities, and of ours; `step`: with their gradients."""
        torch, count = self.torch, 2
        (ht, h), (wt, w) = (self.operands((rows, k), torch.bfloat16, count) for rows in (m, n))
        tokens = torch.randint(0, n, (m, 1), device="cuda")
        slopes = torch.rand((m, 1), device="cuda")
        targets, slope = (self.cupy.from_dlpack(x[:, 0].contiguous()) for x in (tokens, slopes))

        def library(i: int) -> Any:
            logs = torch.log_softmax((ht[i] @ wt[i].t()).float(), dim=1)
            if step:
                dz = logs.exp_().mul_(-slopes).scatter_add_(1, tokens, slopes).bfloat16()
                return dz @ wt[i], dz.t() @ ht[i]
            return logs.gather(1, tokens)

        def ours(i: int) -> Any:
            found = rk.linear_logprob(h[i], w[i], targets, with_normaliser=True)
            if step:
                return rk.linear_logprob_backward(h[i], w[i], targets, slope, normaliser=found[1])
            return found

        sides = ([lambda i=i, f=f: f(i) for i in range(count)] for f in (library, ours))
        return (*self.times(*sides), (3 if step else 1) * floor(m, k, n, 2))


def floor(m: int, k: int, n: int, size: int) -> float:
    """Lower bound on the microseconds of a product."""
    moved = (m * k + k * n + m * n) * size / _BANDWIDTH
    return max(moved, 2 * m * k * n / _RATES[size])


def report(title: str, cells: Sequence[tuple]) -> None:
    """Print a line per cell, and the geometric mean and the minimum of the ratios."""
    ratios = []
    print(f"\n{title}: m, k, n, library us, ours us, ratio, ours over floor")
    for name, measure, m, k, n, *rest in cells:
        library, ours, least = measure(m, k, n, *rest)
        ratios.append(library / ours)
        times = f"{library:8.1f} {ours:8.1f} {ratios[-1]:6.3f} {ours / least:6.2f}"
        print(f"{name:8s} {m:5d} {k:5d} {n:5d} {times}", flush=True)
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"{title}: geometric mean {mean:.3f}, least {min(ratios):.3f}, {len(ratios)} cells")


def host_time(bench: Bench) -> float:
    """Microseconds of the host in a call on a small product."""
    a = bench.operands((1, 512), bench.torch.bfloat16, 1)[1][0]
    b = bench.operands((512, 512), bench.torch.bfloat16, 1)[1][0]
    out, n = bench.cupy.empty((1, 512), np.uint16), 2000
    spans = []
    for _ in range(5):
        bench.cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(n):
            rk.det_gemm(a, b, out=out)
        spans.append((time.perf_counter() - start) / n * 1e6)
    return statistics.median(spans)


def first_uses() -> None:
    """Time first products, each in a process of its own with an empty cache of kernels."""
    for case in FIRST_USES:
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "RPUKIT_CACHE_DIR": folder}
            command = [sys.executable, __file__, "--first-use", *map(str, case)]
            subprocess.run(command, env=env, check=True)


def first_use(dtype: str, m: int, k: int, n: int) -> None:
    """Print the seconds of two products, and the host's microseconds of a repeated one."""
    cupy, rng = _device.cupy(), np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        x = rng.standard_normal(shape).astype(np.float32)
        return cupy.asarray(rk.gemm.to_bfloat16(x) if dtype == "bfloat16" else x.astype(dtype))

    b, spans, wait = draw(k, n), [], cupy.cuda.Device().synchronize
    for rows in (m, m + _MORE):
        a = draw(rows, k)
        wait()
        start = time.perf_counter()
        rk.det_gemm(a, b)
        wait()
        spans.append(time.perf_counter() - start)
    out, host = rk.det_gemm(a, b), []
    for _ in range(200):
        start = time.perf_counter()
        rk.det_gemm(a, b, out=out)
        host.append((time.perf_counter() - start) * 1e6)
        wait()
    seconds = f"{spans[0]:.2f} s, then {m + _MORE} rows {spans[1]:.2f} s"
    print(
        f"{dtype} {m} x {k} x {n}: {seconds}, again {statistics.median(host):.1f} us of the host"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few batches only")
    parser.add_argument("--random", type=int, metavar="N", help="time N shapes drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the shapes")
    parser.add_argument("--dtypes", default="bfloat16,float32,float64")
    parser.add_argument("--out", type=Path, help="JSON file for the times of random shapes")
    parser.add_argument("--first-use", nargs="*", metavar="TYPE M K N", help="default: several")
    given = parser.parse_args()
    if given.first_use is not None:
        if given.first_use:
            dtype, *sizes = given.first_use
            first_use(dtype, *map(int, sizes))
        else:
            first_uses()
        return 0
    batches = (1, 64, 512, 4096) if given.quick else BATCHES
    bench = Bench()
    if given.random:
        dtypes = tuple(given.dtypes.split(","))
        shapes = list(random_products.draw(given.random, given.seed, dtypes))
        random_products.measure(bench, shapes, given.out)
        return 0
    product, bf16 = bench.product, bench.torch.bfloat16
    print(f"host time of a call: {host_time(bench):.1f} us")
    for layout in ("NN", "NT"):
        cells = [
            (s, product, m, k, n, layout, bf16) for m in batches for s, (k, n) in SHAPES.items()
        ]
        report(f"bfloat16 {layout}", cells)
    cells = [(s, product, m, n, k, "NT", bf16) for m in batches for s, (k, n) in SHAPES.items()]
    report("bfloat16 gradient of inputs", cells)
    cells = [(s, product, k, 4096, n, "TN", bf16) for s, (k, n) in SHAPES.items()]
    report("bfloat16 gradient of weights", cells)
    cells = [(s, bench.gradient, 4096, k, n) for s, (k, n) in SHAPES.items()]
    report("gradient of weights going on", cells)
    k, n = SHAPES["lm_head"]
    for title, step in (("log-probabilities", False), ("with gradients", True)):
        report(title, [("lm_head", bench.logprob, m, k, n, step) for m in (1, 64, 1024, 4096)])
    for dtype, rows in (
        (bench.torch.float32, (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)),
        (bench.torch.float64, (4096,)),
    ):
        for layout in ("NN", "NT"):
            cells = [("square", product, m, 4096, 4096, layout, dtype) for m in rows]
            report(f"{dtype} {layout}", cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
