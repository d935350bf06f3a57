"""Measure layers and whole training steps of networks in tiles beside plain PyTorch.

    python tools/measure_networks.py [--device cuda] [--small] [--only PART] [--match TEXT]
                                     [--json out.json]

Times of a GPU are those between CUDA events, of a CPU those of the host: medians of several
rounds, in microseconds. `eager` includes the host's share. `graph` is the replay of a captured
CUDA graph: of a product or an update with the draws of its capture, of a whole step by
`rk.torch.captured_step`, with fresh draws and the copy of its inputs. `calls` is the time of the
host, which enqueues the work. With ``--small`` all sizes are a sixteenth.
"""

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit.torch import bridge, nn, optim

Call = Callable[[], object]
N_WARM, N_ROUND = 6, 7
WINDOW, N_WINDOW = 20, 200
# aihwkit 1.2.0 on the same kind of GPU, one tile of 4096 x 4096.
ANCHOR = {"forward": 436, "update": 1724, "transfer": 2690}
CELLS = {
    "ConstantStep": rk.ConstantStep(),
    "ChoppedTransfer": rk.ChoppedTransfer(devices=(rk.ConstantStep(), rk.ConstantStep())),
}
STEPS = {
    "torch": None,
    "ConstantStep": rk.ConstantStep(),
    "Tiki-Taka v2": rk.presets.config("TTv2EcRam"),
    "hardware-aware": rk.InferenceCell(
        modifier=rk.inference.WeightModifier(type="add_normal", std_dev=0.05),
        weight_clip=rk.inference.WeightClip(type="layer_gaussian", sigma=2.5),
        input_range=rk.inference.InputRange(value=2.0),
    ),
}


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


def of_host(call: Call) -> float:
    """Time what a call costs the host: the least mean of short windows, in microseconds."""
    best = float("inf")
    for _ in range(N_WINDOW):
        start = time.perf_counter()
        for _ in range(WINDOW):
            call()
        best = min(best, (time.perf_counter() - start) / WINDOW)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return 1e6 * best


def captured(call: Call, device: str) -> Call | None:
    """Capture a call in a CUDA graph; None on a CPU."""
    if device == "cpu":
        return None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def both(call: Call, device: str, n_call: int = 20) -> dict[str, float | None]:
    """Time a call as it is and as a graph."""
    for _ in range(N_WARM):
        call()
    eager = timed(call, device, n_call)
    replay = captured(call, device)
    return {"eager": eager, "graph": None if replay is None else timed(replay, device, n_call)}


def on_layers(device: str, factor: int) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Products and updates of large layers."""
    n = 4096 // factor
    for size, cut in ((None, "one tile"), ((512 // factor,) * 2, "64 tiles")):
        for name, cell in CELLS.items():
            settings = nn.AnalogSettings(cell=cell, tile_shape=size)
            digital = torch.nn.Linear(n, n, False, device=device)
            layer = nn.AnalogLinear.from_digital(digital, settings, seed=1)
            for way, batch in (
                *(("forward", 512), ("forward", 128), ("forward", 1)),
                *(("update", 128), ("update", 1)),
            ):
                if cut == "64 tiles" and (batch == 1 or name == "ChoppedTransfer"):
                    continue
                rows = 2 * torch.rand(max(batch // factor, 1), n, device=device) - 1
                where = f"{name}, {n} x {n}, {cut}, {way}, batch {len(rows)}"
                yield where, lambda m=layer, x=rows, w=way: one_layer(m, x, w, device)
    linear = torch.nn.Linear(n, n, False, device=device)
    for batch in (512, 128, 1):
        rows = torch.randn(max(batch // factor, 1), n, device=device)
        where = f"torch.nn.Linear, {n} x {n}, forward, batch {len(rows)}"
        yield where, lambda x=rows: one_layer(linear, x, "forward", device)


def one_layer(layer: torch.nn.Module, rows: torch.Tensor, way: str, device: str) -> dict:
    """Time a product, or an update of the tiles."""
    d = 0.01 * torch.randn_like(rows)

    def call() -> None:
        if way == "forward":
            with torch.no_grad():
                layer(rows)
            return
        with bridge.on_device(rows):
            layer.array.update(bridge.array_of(rows), bridge.array_of(d), 0.01)

    return both(call, device)


def on_calls(device: str, factor: int) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Calls of small layers beside those of their tile: time of the host."""
    yield "calls, 256 x 256, batch 8", lambda: calls(device, 256 // factor)


def calls(device: str, n: int) -> dict[str, float]:
    """Time the host's share of calls of a layer and of its tile."""
    cell = nn.AnalogSettings(cell=rk.ConstantStep())
    linear = torch.nn.Linear(n, n, False, device=device)
    layer = nn.AnalogLinear.from_digital(linear, cell, seed=1)
    x = torch.randn(8, n, device=device, requires_grad=True)
    d, tile = torch.randn(8, n, device=device), layer.array.tiles[0][0]
    found = {}
    with bridge.on_device(d):
        rows, errors = bridge.array_of(x), bridge.array_of(d)
        found["tile, forward"] = of_host(lambda: tile.forward(rows))
        found["tile, backward"] = of_host(lambda: tile.backward(errors))
    with torch.no_grad():
        found["layer, no gradient"] = of_host(lambda: layer(x))
    found["layer, forward"] = of_host(lambda: layer(x))
    y = layer(x)
    found["layer, backward"] = of_host(lambda: torch.autograd.backward(y, d, retain_graph=True))
    found["torch, forward"] = of_host(lambda: linear(x))
    y = linear(x)
    found["torch, backward"] = of_host(lambda: torch.autograd.backward(y, d, retain_graph=True))
    return found


def lenet(cell: object, device: str) -> torch.nn.Module:
    """LeNet for images of 28 x 28."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 5), torch.nn.Tanh(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(16, 32, 5), torch.nn.Tanh(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(512, 128), torch.nn.Tanh()),
        torch.nn.Linear(128, 10),
    ).to(device)
    return model if cell is None else rk.torch.convert(model, cell, seed=1)


def on_steps(device: str, factor: int) -> Iterator[tuple[str, Callable[[], dict]]]:
    """Whole training steps of LeNet."""
    batch = 64 // factor
    for name, cell in STEPS.items():
        yield f"LeNet, step, batch {batch}, {name}", lambda c=cell: step(c, device, batch)


def step(cell: object, device: str, batch: int) -> dict:
    """Time a training step, as it is and captured, whose losses and weights have to be the same.

    A product for a test comes in between, and another learning rate.
    """
    x = torch.rand(batch, 1, 28, 28, device=device)
    y = torch.arange(batch, device=device) % 10
    loss, models = torch.nn.functional.cross_entropy, [lenet(cell, device) for _ in range(2)]
    optimisers = [optim.AnalogSGD(model.parameters(), lr=0.01) for model in models]

    def eager() -> torch.Tensor:
        optimisers[0].zero_grad()
        found = loss(models[0](x), y)
        found.backward()
        optimisers[0].step()
        return found.detach()

    replayed = rk.torch.captured_step(models[1], loss, optimisers[1])
    ends: list[list[float]] = [[], []]
    for k in range(3 * N_WARM):
        for run, end in zip((eager, lambda: replayed(x, y)), ends, strict=True):
            end.append(float(run()))
        for model, optimiser in zip(models, optimisers, strict=True):
            if k == N_WARM:
                with torch.no_grad():
                    model(x)
            if k == 2 * N_WARM:
                optimiser.param_groups[0]["lr"] = 0.02
    same = cell is None or (ends[0] == ends[1] and alike(*models))
    note = replayed.reason + ("" if same else f" bits differ, losses {ends}")
    times = {"eager": timed(eager, device, 10), "graph": None, "note": note}
    if replayed.captured:
        times["graph"] = timed(lambda: replayed(x, y), device, 10)
    return times


def alike(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """Whether two models have the same weights in their tiles."""
    layers = zip(*(rk.torch.analog_layers(model).values() for model in (a, b)), strict=True)
    return all(torch.equal(one.get_weights(), other.get_weights()) for one, other in layers)


PARTS = {"layers": on_layers, "calls": on_calls, "steps": on_steps}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--match", default="", help="measure rows whose name has this text")
    parser.add_argument("--json")
    given = parser.parse_args()
    rows = {}
    if given.device == "cpu":  # threads that wait for each other are slow on a busy machine
        torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if given.device != "cpu" else "CPU"
    print(f"{where}, PyTorch {torch.__version__}, rpukit {rk.__version__}")
    print(f"{'':56}{'eager':>10}{'graph':>10}  us")
    for part, made in PARTS.items():
        if given.only not in (None, part):
            continue
        for name, run in made(given.device, 16 if given.small else 1):
            if given.match not in name:
                continue
            try:
                rows[name] = run()
            except Exception as error:  # the other figures are wanted, too
                rows[name] = {"note": f"{type(error).__name__}: {error}"[:300]}
                traceback.print_exc()
            show(name, rows[name])
    print(f"aihwkit 1.2.0, one tile of 4096 x 4096: {ANCHOR}, added up {sum(ANCHOR.values())} us")
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def show(name: str, row: dict) -> None:
    """Print a line, or several of them for calls."""
    if "tile, forward" in row:
        print(name + "\n" + "\n".join(f"  {key:30}{value:10.1f}" for key, value in row.items()))
        return
    cells = [row.get(key) for key in ("eager", "graph")]
    texts = "".join(f"{'-':>10}" if cell is None else f"{cell:10.1f}" for cell in cells)
    print(f"{name:56}{texts}  {row.get('note', '')}", flush=True)


if __name__ == "__main__":
    main()
