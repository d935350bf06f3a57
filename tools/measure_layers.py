"""Measure what a call of an analog layer costs beside the call of its tile, in microseconds.

    python tools/measure_layers.py [--device cuda] [--shape 16 16] [--batch 8]

Each figure is the least mean of many short windows: on a busy machine the others are longer. On a
GPU it is the time of the host, which enqueues the work.
"""

import argparse
import time
from collections.abc import Callable

import torch

import rpukit as rk
from rpukit.torch import bridge, nn

PERFECT = rk.IOParameters(is_perfect=True)
WINDOW, N_WINDOW = 20, 1500


def least(call: Callable[[], object]) -> float:
    """Time a call: the least mean of short windows, in microseconds."""
    best = float("inf")
    for _ in range(N_WINDOW):
        start = time.perf_counter()
        for _ in range(WINDOW):
            call()
        best = min(best, (time.perf_counter() - start) / WINDOW)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1e6 * best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", nargs=2, type=int, default=(16, 16))
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rk.set_num_threads(1)
    n_out, n_in = options.shape
    settings = nn.AnalogSettings(cell=rk.Ideal(), forward=PERFECT, backward=PERFECT)
    layers = {
        "layer": nn.AnalogLinear(n_in, n_out, cell=settings, seed=1, device=options.device),
        "layer, no bias": nn.AnalogLinear(
            n_in, n_out, False, cell=settings, seed=1, device=options.device
        ),
        "torch.nn.Linear": torch.nn.Linear(n_in, n_out, device=options.device),
    }
    x = torch.randn(options.batch, n_in, device=options.device, requires_grad=True)
    d = torch.randn(options.batch, n_out, device=options.device)
    tile = layers["layer"].array.tiles[0][0]
    with bridge.on_device(d):
        rows, errors = bridge.array_of(x), bridge.array_of(d)
        print(f"{'':18}{'forward':>10}{'no grad':>10}{'backward':>10}")
        forward, backward = least(lambda: tile.forward(rows)), least(lambda: tile.backward(errors))
    print(f"{'tile':18}{forward:10.1f}{forward:10.1f}{backward:10.1f}")
    for name, layer in layers.items():
        y = layer(x)
        back = least(lambda y=y: torch.autograd.backward(y, d, retain_graph=True))
        times = [least(lambda layer=layer: layer(x))]
        with torch.no_grad():
            times.append(least(lambda layer=layer: layer(x)))
        print(f"{name:18}" + "".join(f"{t:10.1f}" for t in (*times, back)))


if __name__ == "__main__":
    main()
