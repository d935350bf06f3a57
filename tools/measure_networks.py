"""Measure layers and whole training steps of networks in tiles beside plain PyTorch.

    python tools/measure_networks.py [--device cuda] [--small] [--json out.json]

Times of a GPU are those between CUDA events, of a CPU those of the host: medians of several
rounds, in microseconds. `eager` includes the host's share, `graph` is the replay of a captured
CUDA graph, which makes the draws of its capture again. With ``--small`` all sizes are a sixteenth.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

import rpukit as rk
from rpukit.torch import nn, optim
from rpukit.torch.bridge import array_of

Call = Callable[[], object]
N_WARM, N_ROUND = 5, 7


def timed(call: Call, device: str, n_call: int) -> float:
    """Time a call: the median of several rounds, in microseconds."""
    found = []
    for _ in range(N_ROUND):
        if device == "cpu":
            start = time.perf_counter()
            for _ in range(n_call):
                call()
            found.append((time.perf_counter() - start) / n_call * 1e6)
            continue
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(n_call):
            call()
        last.record()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last) / n_call * 1e3)
    return statistics.median(found)


def captured(call: Call, device: str) -> Call | None:
    """Capture a call in a CUDA graph; None on a CPU, or where it waits for the host."""
    if device == "cpu":
        return None
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        print(f"not captured: {error}")
        return None
    return graph.replay


def lenet(cell: object, device: str) -> torch.nn.Module:
    """LeNet for images of 28 x 28."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 5), torch.nn.Tanh(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(16, 32, 5), torch.nn.Tanh(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(512, 128), torch.nn.Tanh()),
        torch.nn.Linear(128, 10),
    )
    model = model if cell is None else rk.torch.convert(model, cell, seed=1)
    return model.to(device)


def step_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Call:
    """Return a whole training step."""
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def cases(device: str, factor: int) -> dict[str, Call]:
    """Calls by name."""
    found: dict[str, Call] = {}
    n = 4096 // factor
    # aihwkit 1.2.0 takes 436 us for this product, 1724 us for the managed update, 2690 us for
    # that of ChoppedTransfer, on the same GPU.
    layers = {
        f"ConstantStep {n} x {n}": (nn.AnalogLinear(n, n, False, cell=rk.ConstantStep(), seed=1)),
        f"ChoppedTransfer {n} x {n}": (
            nn.AnalogLinear(n, n, False, cell=rk.ChoppedTransfer(), seed=1)
        ),
        f"torch.nn.Linear {n} x {n}": torch.nn.Linear(n, n, False),
    }
    for name, layer in layers.items():
        layer.to(device)
        for batch in (512, 128, 1):
            rows = torch.randn(max(batch // factor, 1), n, device=device)
            with torch.no_grad():
                layer(rows)

            def forward(layer: torch.nn.Module = layer, rows: torch.Tensor = rows) -> None:
                with torch.no_grad():
                    layer(rows)

            found[f"{name}, forward, batch {len(rows)}"] = forward
            if not hasattr(layer, "array"):
                continue
            tile, d = layer.array, 0.01 * torch.randn_like(rows)
            arrays = [array_of(v) for v in (rows, d)]
            found[f"{name}, update, batch {len(rows)}"] = lambda t=tile, a=arrays: t.update(
                *a, 0.01
            )
    batch = 64 // factor
    x = torch.rand(batch, 1, 28, 28, device=device)
    y = torch.arange(batch, device=device) % 10
    kinds = {
        "torch": None,
        "ConstantStep": rk.ConstantStep(),
        "Tiki-Taka v2": rk.presets.config("TTv2EcRam"),
    }
    for name, cell in kinds.items():
        found[f"LeNet, step, batch {batch}, {name}"] = step_of(lenet(cell, device), x, y)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json")
    given = parser.parse_args()
    rows = {}
    print(f"{'':48}{'eager':>12}{'graph':>12}  us")
    for name, call in cases(given.device, 16 if given.small else 1).items():
        for _ in range(N_WARM):
            call()
        eager = timed(call, given.device, 20)
        replay = captured(call, given.device) if "forward" in name else None
        graph = None if replay is None else timed(replay, given.device, 20)
        rows[name] = {"eager": eager, "graph": graph}
        print(f"{name:48}{eager:12.1f}" + (f"{graph:12.1f}" if graph else f"{'-':>12}"))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
