"""Rounds of bound management: forecasts that come true and that do not; few and many samples."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np

import rpukit as rk
from rpukit.analog.product import ops
from rpukit.analog.product.launch_shapes import SQUARE
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform

SHAPE = (68, 36)
FINE = {"inp_res": -1, "out_bound": 0.0008}  # without steps, rounds go on to the largest factor
CASES = {  # parameters, numbers of samples
    "6": ([{"out_bound": bound} for bound in (0.5, 0.012, 0.0008)], (1, 6)),
    "20": ([{"out_bound": bound} for bound in (0.5, 0.012, 0.0008)], (9, 20, 32)),
    "listed": ([{"out_bound": bound} for bound in (0.5, 0.012, 0.0008)], (33, 40)),
    "by_round": ([{"max_bm_factor": 2**17, **FINE}], (6, 40)),  # which are forecast
    "without_forecast": ([{"max_bm_factor": 2**30, **FINE}], (6, 12)),
}


def of(device, x, w=None, **options):
    tile = rk.AnalogTile(
        SHAPE, rk.Ideal(), forward=rk.IOParameters(**options), device=device, seed=81
    )
    if w is None:
        w = uniform(SHAPE, 82) / np.float32(8)
        w[:, ::7] *= -1
    tile.set_weights(put(w, device))
    return tile.forward(put(x, device), first_sample=2**33)


def rounds(name, management):
    """Inputs of sizes from 1/64 to 1, the third 0; those that are not scaled are clipped."""

    def run(device):
        made = []
        for n in CASES[name][1]:
            x = uniform((n, SHAPE[1]), 83)
            x[1:] *= np.float32(2) ** -np.floor(uniform((n - 1, 1), 84) * np.float32(7))
            x[2:3] = 0
            x = x if management == "abs_max" else x * np.float32(6)
            for options in CASES[name][0]:
                made.append(of(device, x, noise_management=management, **options))
        return made

    return run


def as_many_as_rows(device):
    """Samples that should pass in the second round, as many as a launch has rows."""
    made = []
    for n, n_failed in ((48, 16), (64, 64)):
        x = np.zeros((n, SHAPE[1]), np.float32)
        x[:, 1] = 1
        x[:n_failed] = 1
        made.append(of(device, x, out_bound=1.5))
    return made


def clipped(device):
    """Inputs that stay above their bound: forecasts of the second round, which fails too."""
    made = []
    sizes = ((1, 6), (9, 6), (12, 6), (20, 6), (28, 6), (40, 6), (20, 6e3), (40, 6e3))
    for n, size in sizes:
        x = np.full((n, SHAPE[1]), size, np.float32)
        x[1::2, :5] = 0
        made.append(of(device, x, out_bound=1.5, noise_management="none"))
    return made


def others(device):
    """Noise of inputs; no bound, with noise; the largest number; scales of 0; sums of -0."""
    x = uniform((6, SHAPE[1]), 85)
    largest, negative = x.copy(), -x
    largest[1, 3] = np.finfo(np.float32).max
    made = [of(device, x, inp_noise=0.01, inp_sto_round=True, out_bound=0.5)]
    made.append(of(device, x, inp_noise=0.3, out_noise=0.0, out_res=-1, out_bound=0.0))
    made.append(of(device, x, out_bound=0.0))
    made.append(of(device, largest))
    for n in (6, 12):
        given = np.concatenate([negative, x, negative])[:n]
        made.append(of(device, given, noise_management="max"))
        highest = given - given.max(1, keepdims=True)  # 0: a scale of 0
        made.append(of(device, highest, noise_management="max", inp_noise=0.01))
        made.append(of(device, given, noise_management="constant", nm_thres=0.0))
    io = {"w_noise": 0.02, "w_noise_type": "pcm_read", "out_noise": 0.0, "out_res": -1}
    x = x / np.float32(4) + np.float32(0.1)
    x[:, 0] = 1
    w = np.full(SHAPE, -1e-45, np.float32)
    w[:, 0] = 0
    made.append(of(device, x, w, **io))
    return made


def by_wide_tiles(device):
    """Tiles with two peaks, of which the last has one; only the first outputs meet the bound."""
    w = np.zeros(SHAPE, np.float32)
    w[:32] = np.float32(1 / 16)
    with mock.patch.object(ops, "pick", return_value=SQUARE):
        made = []
        for n in (9, 12, 70, 140):
            x = np.ones((n, SHAPE[1]), np.float32)
            made.append(of(device, x, w, out_bound=1.5))
        return made


def wires(device):
    """Large losses in wires, whose terms are rounded; outputs of -0 without noise."""
    x, bare = uniform((6, SHAPE[1]), 86), {"inp_res": -1, "out_res": -1, "out_noise": 0.0}
    bare |= {"bound_management": "none", "out_bound": 0.0}
    at_0 = {"r_series": 0.3, "v_offset_w_min": 0.0}
    made = [of(device, x, ir_drop=1.0, ir_drop_g_ratio=8.0, **bare)]
    made.append(of(device, x, v_offset_std=0.2, **at_0, **bare))
    first, least = np.eye(1, SHAPE[1], dtype=np.float32), np.full(SHAPE, -1e-45, np.float32)
    made.append(of(device, first, least, out_asymmetry=0.9, **at_0, **bare))
    return made


def cases() -> Iterator[tuple[str, Case]]:
    for name in CASES:
        for management in ("abs_max", "none"):
            run = rounds(name, management)
            yield "tile_forward", Case(f"rounds-{name}-{management}", run)
    yield "tile_forward", Case("rounds-whole", as_many_as_rows)
    yield "tile_forward", Case("rounds-clipped", clipped)
    yield "tile_forward", Case("rounds-wide", by_wide_tiles)
    yield "tile_forward", Case("other-inputs", others)
    yield "tile_scale", Case("other-inputs", others)
    yield "tile_nonideal", Case("wires-rounded", wires)
