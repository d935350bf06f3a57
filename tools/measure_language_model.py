"""Train transformer layers of 1e9 parameters over a quarter of their state, beside PyTorch.

    python tools/measure_language_model.py [--width 4096] [--layers 5] [--heads 32]
        [--sequences 8] [--tokens 256] [--share 4] [--skip-torch] [--no-gpu] [--whole]
        [--ops] [--plans FOLDER]

Layers of self-attention and two dense products with layer normalisations, float32, plain SGD, a
mean squared error. The device budget of the plans is the bytes of all parameters divided by
``--share``: once by the rates of the preset, once by measured ones (`rk.tiled.calibrate`).
Milliseconds are medians by the host's clock, from a mini-batch in host memory to the loss.
``--whole`` compares losses and parameters, bit for bit, with a plan whose budget holds everything.
PyTorch trains the same layers once with all of it on the GPU, once with parameters on the CPU
(FSDP with CPUOffloadPolicy, one process). ``--no-gpu`` makes the plans alone; ``--plans`` keeps
them. ``--ops`` times the tiles of each op, and how long they wait for copies.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure_tiled import print_ops, print_waits

from rpukit import _device, tiled
from rpukit.testing import assert_same_bits

RATE = 1e-4


def weights(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Make the parameters of all layers, by name."""
    rng, d = np.random.default_rng(1), args.width
    shapes = {**dict.fromkeys("qkvo", (d, d)), "up": (4 * d, d), "down": (d, 4 * d)}
    found = {}
    first = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for layer in range(args.layers):
        for name, shape in shapes.items():
            found[f"{name}{layer}"] = first[name] * np.float32(0.5 / shape[1] ** 0.5)
        for norm in "ab":
            found[f"{norm}_scale{layer}"] = np.ones(d, np.float32)
            found[f"{norm}_bias{layer}"] = np.zeros(d, np.float32)
    return found


def network(args: argparse.Namespace, values: dict[str, np.ndarray]) -> tiled.Training:
    """Make the training graph: updates of weights are part of products."""
    d, n, t, heads = args.width, args.sequences, args.tokens, args.heads
    b = tiled.Builder("layers")
    h, y = b.input("x", (n * t, d)), b.input("y", (n * t, d))

    def dense(x: str, name: str) -> str:
        return b.apply("Gemm", x, b.parameter(name, values[name]), transB=1)

    def norm(x: str, name: str, layer: int) -> str:
        own = [f"{name}_scale{layer}", f"{name}_bias{layer}"]
        return b.apply("LayerNormalization", x, *(b.parameter(k, values[k]) for k in own))

    def split(x: str, perm: tuple[int, ...]) -> str:
        parts = b.apply("Reshape", x, shape=(n, t, heads, d // heads))
        return b.apply("Transpose", parts, perm=perm)

    scale = b.constant("scale", np.float32((heads / d) ** 0.5))
    for k in range(args.layers):
        z = norm(h, "a", k)
        q, v = (split(dense(z, f"{name}{k}"), (0, 2, 1, 3)) for name in "qv")
        scores = b.apply("MatMul", q, split(dense(z, f"k{k}"), (0, 2, 3, 1)))
        a = b.apply("MatMul", b.apply("Softmax", b.apply("Mul", scores, scale), axis=-1), v)
        a = b.apply("Reshape", b.apply("Transpose", a, perm=(0, 2, 1, 3)), shape=(n * t, d))
        h = b.apply("Add", h, dense(a, f"o{k}"))
        z = b.apply("Gelu", dense(norm(h, "b", k), f"up{k}"))
        h = b.apply("Add", h, dense(z, f"down{k}"))
    return tiled.fuse_updates(b.training(b.apply("MSELoss", h, y), tiled.SGD(lr=RATE)))


def report(name: str, times: list[float], losses: list[float], memory: float) -> None:
    """Print a row: time of a step, memory of the GPU, losses."""
    step = 1e3 * statistics.median(times[2:] or times)
    text = " ".join(f"{loss:.6f}" for loss in losses)
    print(f"{name:34}{step:9.1f} ms{memory / (1 << 20):9.0f} MiB  losses {text}", flush=True)


def timed(step: Callable[[], float], n: int) -> tuple[list[float], list[float]]:
    """Run steps; return their seconds and losses."""
    times, losses = [], []
    for _ in range(n):
        begin = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - begin)
    return times, losses


def planned(
    training: tiled.Training, levels: tiled.Hierarchy, name: str, plans: Path | None
) -> tiled.Plan:
    """Compute a plan, or read an existing one."""
    begin, file = time.perf_counter(), plans / f"layers_{name}.json" if plans else None
    if file and file.exists():
        plan = tiled.Plan.from_json(file.read_text())
    else:
        plan = tiled.plan(training, levels, buffering="single" if name == "whole" else "auto")
        if file:
            scratch = file.with_suffix(".part")
            scratch.write_text(plan.to_json())
            scratch.rename(file)
    ops = sum(len(program.ops) for program in plan.programs)
    moved = [sum(p.moved[levels[1].name][way] for p in plan.programs) / 1e9 for way in (0, 1)]
    print(f"{name}: {ops} ops, planned in {time.perf_counter() - begin:.1f} s; model"
          f" {plan.cycles * 1e-6:.1f} ms, {moved[0]:.2f} GB in, {moved[1]:.2f} GB out,"
          f" host {plan.peaks['host'] / 1e9:.1f} GB", flush=True)  # fmt: skip
    return plan


def ours(
    training: tiled.Training, plan: tiled.Plan, batch: Any, name: str, n: int, parts_too: bool
) -> Any:
    """Train by a plan; return losses and parameters."""
    pool, begin = _device.cupy().get_default_memory_pool(), time.perf_counter()
    trainer = plan.trainer(training, device="gpu")
    ready = time.perf_counter() - begin
    times, losses = timed(lambda: trainer.step(batch), n)
    report(name, times, losses, pool.total_bytes())
    own = trainer._executor.measure(0, 3)
    parts = (own.total, own.compute, own.inward, own.outward, own.copies)
    text = " ".join(f"{1e3 * seconds:.1f}" for seconds in parts)
    print(f"    ready in {ready:.1f} s; step, tiles, in, out, both ways: {text} ms;"
          f" {own.total / max(own.compute, own.copies):.3f} of the longer, hidden"
          f" {own.fraction:.2f}", flush=True)  # fmt: skip
    if parts_too:
        print_ops(trainer._executor, 0)
        print_waits(trainer._executor, 0)
    found = losses, trainer.parameters()
    pool.free_all_blocks()
    return found


def module(args: argparse.Namespace) -> Any:
    """Make the same layers as a PyTorch module, with parameters that are not initialised."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    d, n, t, heads = args.width, args.sequences, args.tokens, args.heads

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in "qkvo":
                setattr(self, name, nn.Linear(d, d, bias=False))
            self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
            self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, h: Any) -> Any:
            z = self.a(h)
            every = (getattr(self, name)(z) for name in "qkv")
            q, k, v = (x.view(n, t, heads, d // heads).transpose(1, 2) for x in every)
            out = f.scaled_dot_product_attention(q, k, v)
            h = h + self.o(out.transpose(1, 2).reshape(n * t, d))
            return h + self.down(f.gelu(self.up(self.b(h))))

    with torch.device("meta"):
        made = nn.Sequential(*(Layer() for _ in range(args.layers)))
    return made


def load(made: Any, values: dict[str, np.ndarray]) -> None:
    """Copy the parameters into a module on a CPU or a GPU."""
    import torch

    names = {"a.weight": "a_scale", "a.bias": "a_bias", "b.weight": "b_scale", "b.bias": "b_bias"}
    with torch.no_grad():
        for name, own in made.named_parameters():
            layer, rest = name.split(".", 1)
            key = names.get(rest, rest.removesuffix(".weight"))
            own.copy_(torch.from_numpy(values[f"{key}{layer}"]))


def with_torch(args: argparse.Namespace, values: dict[str, np.ndarray], batch: Any) -> None:
    """Train with PyTorch, all on the GPU, then with parameters on the CPU."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    torch.backends.cuda.matmul.allow_tf32 = False
    pinned = [torch.from_numpy(part).pin_memory() for part in batch]

    def run(made: Any, name: str) -> None:
        optimiser = torch.optim.SGD(made.parameters(), lr=RATE)

        def step() -> float:
            x, y = (part.cuda(non_blocking=True) for part in pinned)
            loss = ((made(x) - y) ** 2).mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            return float(loss)

        torch.cuda.reset_peak_memory_stats()
        times, losses = timed(step, args.steps)
        report(name, times, losses, torch.cuda.max_memory_allocated())

    resident = module(args).to_empty(device="cuda")
    load(resident, values)
    run(resident, "PyTorch, all on the GPU")
    del resident
    torch.cuda.empty_cache()
    store = dist.HashStore()
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    made = module(args).to_empty(device="cpu")
    load(made, values)
    mesh = dist.init_device_mesh("cuda", (1,))
    for layer in made:
        fully_shard(layer, mesh=mesh, offload_policy=CPUOffloadPolicy())
    fully_shard(made, mesh=mesh, offload_policy=CPUOffloadPolicy())
    run(made, "PyTorch, FSDP with CPU offload")
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("width", 4096), ("layers", 5), ("heads", 32), ("sequences", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("tokens", 256), ("share", 4), ("steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("skip-torch", "no-gpu", "whole", "ops"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--plans", type=Path, help="folder of plans to keep and to read")
    args = parser.parse_args()
    values = weights(args)
    size = sum(value.nbytes for value in values.values())
    rng = np.random.default_rng(2)
    rows = args.sequences * args.tokens
    batch = tuple(rng.standard_normal((2, rows, args.width), np.float32))
    print(f"{size / 4e9:.3f}e9 parameters, budget {size // args.share >> 20} MiB, {rows} tokens",
          flush=True)  # fmt: skip
    training = network(args, values)
    preset = tiled.gpu(size // args.share)
    machines = {"preset": preset}
    if not args.no_gpu:
        if not args.skip_torch:
            with_torch(args, values, batch)
        machines["measured"] = tiled.calibrate("gpu").levels(size // args.share)
    if args.whole:
        machines["whole"] = tiled.gpu(1 << 36)
    want = None
    for name, levels in machines.items():
        plan = planned(training, levels, name, args.plans)
        if args.no_gpu:
            continue
        found = ours(training, plan, batch, f"rpukit, {name}", args.steps, args.ops)
        want = want or found
        assert_same_bits(np.array(found[0]), np.array(want[0]))
        for key, value in found[1].items():
            assert_same_bits(value, want[1][key])
    print("all bits equal" * (want is not None))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
