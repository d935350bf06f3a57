"""Time the batch-invariant products on a GPU beside cuBLAS.

python tools/measure_gemm.py [--quick]        (needs a GPU and PyTorch)

Medians over replays of captured graphs, operands rotating through more than the L2 cache; cuBLAS
runs in the same process, before ours. A ratio above 1 means that ours is faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

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
_L2 = 160 << 20
_TURNS = 4  # of a graph through all operands


class Bench:
    """Graphs of calls on one stream, timed by events."""

    def __init__(self) -> None:
        import torch

        self.torch, self.cupy = torch, _device.cupy()
        torch.backends.cuda.matmul.allow_tf32 = False
        self.stream = torch.cuda.Stream()
        self.ours = self.cupy.cuda.ExternalStream(self.stream.cuda_stream)

    def time(self, calls: Sequence[Callable[[], Any]], replays: int = 7) -> float:
        """Microseconds a call."""
        torch = self.torch
        with torch.cuda.stream(self.stream), self.ours:
            for call in [*calls] * 3:  # what is prepared once, and once for a result
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream), self.ours:
            for call in [*calls] * _TURNS:
                call()
        graph.replay()
        spans = []
        for _ in range(replays):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            spans.append(start.elapsed_time(stop))
        return statistics.median(spans) * 1e3 / (len(calls) * _TURNS)

    def operands(self, shape: tuple[int, int], dtype: Any, count: int) -> tuple[list, list]:
        """Random matrices as tensors and as the arrays that share their memory."""
        torch, cupy = self.torch, self.cupy
        made = [torch.randn(shape, device="cuda").to(dtype) for _ in range(count)]
        if dtype == torch.bfloat16:
            words = [cupy.from_dlpack(t.view(torch.int16)).view(np.uint16) for t in made]
            return made, words
        return made, [cupy.from_dlpack(t) for t in made]

    def product(self, m: int, k: int, n: int, layout: str, dtype: Any) -> tuple[float, float]:
        """Time of cuBLAS and of ours; layout as in BLAS: NN, NT, TN."""
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
        return self.time([library(i) for i in numbers]), self.time([ours(i) for i in numbers])

    def gradient(self, k: int, n: int, rows: int = 4096) -> tuple[float, float]:
        """Time of cuBLAS's gradient of weights, and of ours that goes on with float32 sums."""
        (at, a), (dt, dc) = (self.operands((rows, w), self.torch.bfloat16, 4) for w in (k, n))
        sums = rk.gemm.WeightGradient((k, n), np.uint16, "gpu")
        numbers = range(4)
        return (
            self.time([lambda i=i: self.torch.mm(at[i].t(), dt[i]) for i in numbers]),
            self.time([lambda i=i: sums.add(a[i], dc[i]) for i in numbers]),
        )

    def logprob(self, m: int, k: int, n: int) -> tuple[float, float]:
        """Time of PyTorch's log-probabilities, and of ours."""
        torch, count = self.torch, 2
        (ht, h), (wt, w) = (self.operands((rows, k), torch.bfloat16, count) for rows in (m, n))
        tokens = torch.randint(0, n, (m, 1), device="cuda")
        targets = self.cupy.from_dlpack(tokens[:, 0].contiguous())

        def library(i: int) -> Any:
            return torch.log_softmax((ht[i] @ wt[i].t()).float(), dim=1).gather(1, tokens)

        return (
            self.time([lambda i=i: library(i) for i in range(count)]),
            self.time([lambda i=i: rk.linear_logprob(h[i], w[i], targets) for i in range(count)]),
        )


def report(title: str, cells: Sequence[tuple]) -> None:
    """Print a line a cell, and the geometric mean and the least of the ratios."""
    ratios = []
    print(f"\n{title}: m, k, n, library us, ours us, ratio")
    for name, measure, m, k, n, *rest in cells:
        library, ours = measure(m, k, n, *rest)
        ratios.append(library / ours)
        print(f"{name:8s} {m:5d} {k:5d} {n:5d} {library:8.1f} {ours:8.1f} {ratios[-1]:6.3f}")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few batches only")
    batches = (1, 64, 512, 4096) if parser.parse_args().quick else BATCHES
    bench = Bench()
    product, bf16 = bench.product, bench.torch.bfloat16
    print(f"host time of a call: {host_time(bench):.1f} us")
    for layout in ("NN", "NT"):
        cells = [
            (s, product, m, k, n, layout, bf16) for s, (k, n) in SHAPES.items() for m in batches
        ]
        report(f"bfloat16 {layout}", cells)
    some = [(s, k, n) for s, (k, n) in SHAPES.items() if s != "lm_head"]
    cells = [(s, product, m, n, k, "NT", bf16) for s, k, n in some for m in (64, 4096)]
    report("bfloat16 gradient of inputs", cells)
    cells = [(s, product, k, 4096, n, "TN", bf16) for s, k, n in some]
    report("bfloat16 gradient of weights", cells)
    cells = [(s, lambda m, k, n: bench.gradient(k, n), 4096, k, n) for s, k, n in some]
    report("gradient of weights going on", cells)
    k, n = SHAPES["lm_head"]
    report("log-probabilities", [("lm_head", bench.logprob, m, k, n) for m in (1, 64, 1024, 4096)])
    for dtype in (bench.torch.float32, bench.torch.float64):
        for layout in ("NN", "NT"):
            cells = [("square", product, m, 4096, 4096, layout, dtype) for m in (1, 16, 64, 4096)]
            report(f"{dtype} {layout}", cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
