"""Time fused chains and a fused language model beside the unfused ones.

Usage: ``python tools/measure_fusion.py [--device gpu] [--small] [--plans NAME ...]``.

First chains of elementwise ops over a matrix: each op alone, fused, and by PyTorch where it is
installed. Then the blocks of a language model, from hidden values to a mean squared error: a
training step by a plan that fits into the memory of the device, and the bytes of its values.
Losses and parameters are compared bit by bit. With ``--plans`` models of `export_models.py`, as
PyTorch exports them, are planned with 64 kB of L1 instead: nodes, cycles and kilobytes that move.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import rpukit as rk
from rpukit import _device, tiled
from rpukit.testing import assert_same_bits
from rpukit.tiled import ops
from rpukit.tiled.runtime.reference import run_tile


def chain(name, shape):
    """Build a graph of one chain."""
    b = tiled.Builder(name)
    x, y = b.input("x", shape), b.input("y", shape)
    bias = b.input("bias", shape[-1:])
    if name == "SiLU":
        return b.graph(b.apply("Mul", x, b.apply("Sigmoid", x)))
    if name == "bias, GELU by tanh":
        return b.graph(gelu(b, b.apply("Add", x, bias)))
    h = b.apply("HardSwish", b.apply("Mul", b.apply("Sub", x, y), bias))
    h = b.apply("Add", b.apply("Mul", h, b.constant("decay", 0.9)), b.apply("Mul", y, y))
    return b.graph(b.apply("Sqrt", b.apply("Add", b.apply("Mul", h, h), b.constant("one", 1.0))))


def gelu(b, h):
    """GELU by tanh, as exporters write it."""

    def number(value):
        name = f"c{value}"
        return name if name in b._sketch.constants else b.constant(name, value)

    cube = b.apply("Mul", b.apply("Mul", b.apply("Mul", h, h), h), number(0.044715))
    inner = b.apply("Mul", b.apply("Add", h, cube), number(0.7978845608))
    outer = b.apply("Add", b.apply("Tanh", inner), number(1.0))
    return b.apply("Mul", b.apply("Mul", h, number(0.5)), outer)


def peer(torch, name, x, y, bias):
    """Compute a chain in PyTorch."""
    if name == "SiLU":
        return torch.nn.functional.silu(x)
    if name == "bias, GELU by tanh":
        return torch.nn.functional.gelu(x + bias, approximate="tanh")
    h = torch.nn.functional.hardswish((x - y) * bias) * 0.9 + y * y
    return torch.sqrt(h * h + 1)


def calls_of(graph, values, xp):
    """List a call for each node, over arrays of a device, and the results."""
    made, calls = dict(values), []
    for name, value in graph.constants.items():
        made[name] = xp.asarray(value)
    for node in graph.nodes:
        op = ops.find(node.op)
        space = op.space(node, graph.tensors)
        buffers = [None] * op.buffers
        for operand in space.operands:
            tensor = graph.tensors[operand.tensor]
            if operand.mode == "out":
                made[operand.tensor] = xp.empty(tensor.shape, tensor.dtype)
            buffers[operand.slot] = made[operand.tensor].reshape(-1)
        calls.append((node, graph.tensors, space.whole, buffers))
    return calls, [made[name] for name in graph.outputs]


def milliseconds(act, sync, repeat=20):
    """Time a call: the least of three means."""
    act()
    sync()
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(repeat):
            act()
        sync()
        found.append((time.perf_counter() - begin) / repeat * 1e3)
    return min(found)


def chains(device, shape):
    """Print the times of the chains."""
    xp = _device.cupy() if device == "gpu" else np
    sync = xp.cuda.Device().synchronize if device == "gpu" else lambda: None
    rng = np.random.default_rng(0)
    values = {"x": rng.normal(size=shape), "y": rng.normal(size=shape)}
    values["bias"] = rng.normal(size=shape[-1:])
    values = {name: xp.asarray(value.astype("f4")) for name, value in values.items()}
    print(f"chain over {shape}: ms of each op alone, fused, PyTorch; GB/s fused")
    for name in ("SiLU", "bias, GELU by tanh", "ten steps of two inputs"):
        graph = chain(name, shape)
        less = tiled.fuse(graph)
        assert len(less.nodes) == 1
        found, results = [], []
        for one in (graph, less):
            calls, ends = calls_of(one, values, xp)
            results.append([_device.to_numpy(end) for end in ends])
            run = lambda calls=calls: [run_tile(*call) for call in calls]  # noqa: E731
            found.append(milliseconds(run, sync))
            results[-1] = [_device.to_numpy(end) for end in ends]
        for first, second in zip(*results, strict=True):
            assert_same_bits(first, second)
        try:
            import torch
        except ImportError:
            other = ""
        else:
            where = "cuda" if device == "gpu" else "cpu"
            given = [torch.from_numpy(_device.to_numpy(v)).to(where) for v in values.values()]
            wait = torch.cuda.synchronize if device == "gpu" else lambda: None
            with torch.no_grad():
                other = f"{milliseconds(lambda: peer(torch, name, *given), wait):8.3f}"  # noqa: B023
        moved = 4 * (sum(values[i].size for i in less.inputs) + np.prod(shape))
        print(f"{name:26s} {found[0]:8.3f} {found[1]:8.3f} {other} {moved / found[1] / 1e6:8.0f}")


def model(layers, d, heads, n, batch):
    """Build blocks of a language model over hidden values, and a mini-batch."""
    rng = np.random.default_rng(1)
    b = tiled.Builder("blocks")
    shape = (batch, n, d)
    h, t = b.input("x", shape), b.input("t", shape)
    count = iter(range(10**6))

    def dense(h, wide, deep):
        k = next(count)
        w = b.parameter(f"w{k}", rng.normal(size=(wide, deep)) / wide**0.5)
        return b.apply("Add", b.apply("MatMul", h, w), b.parameter(f"b{k}", np.zeros(deep)))

    def norm(h):
        k = next(count)
        ends = b.parameter(f"s{k}", np.ones(d)), b.parameter(f"z{k}", np.zeros(d))
        return b.apply("LayerNormalization", h, *ends)

    def split(h, perm):
        h = b.apply("Reshape", h, shape=(batch, n, heads, d // heads))
        return b.apply("Transpose", h, perm=perm)

    mask = b.constant("mask", np.triu(np.full((n, n), -1e9), 1))
    scale = b.constant("scale", (heads / d) ** 0.5)
    for _ in range(layers):
        seen = norm(h)
        q, v = (split(dense(seen, d, d), (0, 2, 1, 3)) for _ in range(2))
        key = split(dense(seen, d, d), (0, 2, 3, 1))
        scores = b.apply("Add", b.apply("Mul", b.apply("MatMul", q, key), scale), mask)
        mixed = b.apply("MatMul", b.apply("Softmax", scores), v)
        mixed = b.apply("Reshape", b.apply("Transpose", mixed, perm=(0, 2, 1, 3)), shape=shape)
        h = b.apply("Add", h, dense(mixed, d, d))
        h = b.apply("Add", h, dense(gelu(b, dense(norm(h), d, 4 * d)), 4 * d, d))
    training = b.training(b.apply("MSELoss", h, t), tiled.Adam(lr=1e-3))
    return training, tuple(rng.normal(size=shape).astype("f4") for _ in range(2))


def steps(device, sizes):
    """Print the times of training steps."""
    training, batch = model(*sizes)
    print(f"blocks of a language model {sizes}: nodes, ms a step, MB of values, MB over the link")
    ends = []
    for name, one in (("unfused", training), ("fused", tiled.fuse(training))):
        plan = tiled.plan(one, tiled.gpu(20_000_000_000), buffering="single")
        trainer = plan.trainer(one, device=device)
        losses = [trainer.step(batch) for _ in range(2)]
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            trainer.step(batch)
            times.append((time.perf_counter() - begin) * 1e3)
        ends.append((losses, trainer.parameters()))
        moved = sum(sum(both) for p in plan.programs for both in p.moved.values()) / 1e6
        peak = max(plan.peaks.values()) / 1e6
        print(f"{name:10s} {len(one.train.nodes):5d} {min(times):9.2f} {peak:9.1f} {moved:9.1f}")
    assert ends[0][0] == ends[1][0]
    for name, value in ends[0][1].items():
        assert_same_bits(value, ends[1][1][name])
    print("same bits")


def plans(names, buffering, kind):
    """Print plans of exported models, unfused and fused."""
    import tempfile
    from pathlib import Path

    from compare_exports import export, in_file, made
    from export_models import MODELS

    print(f"{buffering}: nodes, cycles, kB moved in and out; unfused, fused")
    for name in names:
        net, x, t = made(MODELS[name])
        path = Path(tempfile.mkdtemp()) / "model.onnx"
        export(net, x, t, path, kind, MODELS[name].training)
        b = tiled.Builder.from_onnx(path, list(in_file(net, path)))
        cells = []
        for fuse in (False, True):
            one = b.training("loss", tiled.SGD(lr=0.1), fuse=fuse)
            plan = tiled.plan(
                one, tiled.siracusa_l2(l1=64_000, l2=100_000_000), buffering=buffering
            )
            moved = sum(sum(both) for p in plan.programs for both in p.moved.values())
            cells.append((len(one.train.nodes), plan.cycles, moved // 1000))
        less = [f"{100 * (b - a) / a:+.0f} %" for a, b in zip(*cells, strict=True)]
        print(f"{name:24s}", *(f"{n:9d}" for cell in cells for n in cell), *less, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--small", action="store_true", help="sizes that a CPU computes quickly")
    parser.add_argument("--plans", nargs="+", metavar="NAME", help="models to plan")
    parser.add_argument("--buffering", default="single")
    parser.add_argument("--exporter", default="dynamo=False")
    args = parser.parse_args()
    if args.plans:
        plans(args.plans, args.buffering, args.exporter)
        return
    print(rk.__version__)
    chains(args.device, (300, 512) if args.small else (8192, 8192))
    steps(args.device, (2, 64, 2, 32, 2) if args.small else (4, 1024, 16, 512, 8))


if __name__ == "__main__":
    main()
