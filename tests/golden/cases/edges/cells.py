"""Cells at their bounds, without a range, with one node; wires without noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import rpukit as rk
from rpukit import _device
from tests.golden.cases.case import Case, batch, put
from tests.golden.cases.circuits import uniform
from tests.golden.cases.devices import drawn
from tests.golden.cases.edges.tiles import aged

SHAPE, EXACT = (13, 37), {"dw_min_std": 0.0}
AT_BOUNDS = {  # weights begin at the bounds, or without a range
    "pow_flat": rk.PowStep(pow_gamma=0.0, pow_gamma_dtod=0.0, **EXACT),
    "pow_stuck": rk.PowStep(pow_gamma=1.3, corrupt_devices_prob=0.4),
    "exp_stuck": rk.ExpStep(corrupt_devices_prob=0.4),
    "piecewise_nodes": rk.PiecewiseStep(
        piecewise_up=(0.13, 0.71, 0.3), piecewise_down=(0.37,), **EXACT
    ),
    "piecewise_one": rk.PiecewiseStep(
        piecewise_up=(0.77,), piecewise_down=(0.3, 0.1, 0.71), **EXACT
    ),
    "soft": rk.SoftBounds(dw_min=0.02, **EXACT),
}
DRAWN = {
    "reference_low": rk.SoftBoundsReference(
        w_min=0.0, w_min_dtod=0.0, subtract_symmetry_point=True, slope_up_dtod=0.1
    ),
    "reference_high": rk.SoftBoundsReference(
        w_max=0.0, w_max_dtod=0.0, subtract_symmetry_point=True, slope_down_dtod=0.1
    ),
    "pow_found": rk.PowStepReference(n_estimation_steps=0, subtract_symmetry_point=True),
    "pow_found_stuck": rk.PowStepReference(
        corrupt_devices_prob=0.4, subtract_symmetry_point=True, up_down=0.2
    ),
}
WIRES = {
    "dropped": {"ir_drop": 40.0},
    "series": {"r_series": 0.3, "ir_drop": 3.0},
    "offset": {"v_offset_std": 0.2},
    "offset_series": {"v_offset_std": 0.2, "r_series": 0.3},
    "read": {"w_noise": 0.05, "w_noise_type": "pcm_read", "ir_drop": 2.0},
}


def at_bounds(cell, n, dtype, device):
    """Updates of weights of which a third are at either bound."""
    tile = rk.AnalogTile(SHAPE, cell, device=device, seed=61, dtype=dtype)
    low, high = (_device.to_numpy(tile.cells[name]) for name in ("w_min", "w_max"))
    drawn = uniform(SHAPE, 62)
    tile.set_weights(put(np.where(drawn < 1 / 3, low, np.where(drawn < 2 / 3, high, 0)), device))
    x, d = (put(v.astype(dtype), device) for v in batch(SHAPE, n, 63))
    tile.update(x, d, lr=0.3).update(x[:2], d[:2], lr=-0.3)
    return [tile.get_weights()]


def wired(options, dtype, device):
    io = rk.IOParameters(
        inp_res=-1, out_res=-1, out_bound=0.0, out_noise=0.0, bound_management="none", **options
    )
    tile = rk.AnalogTile(
        SHAPE, rk.Ideal(), forward=io, backward=io, device=device, seed=64, dtype=dtype
    )
    tile.set_weights(put((uniform(SHAPE, 65) - np.float32(0.5)).astype(dtype), device))
    x, d = (put(v.astype(dtype), device) for v in batch(SHAPE, 7, 66))
    return [tile.forward(x), tile.backward(d)]


def cases() -> Iterator[tuple[str, Case]]:
    for name, cell in AT_BOUNDS.items():
        run = partial(at_bounds, cell, 30, "float32")
        yield "pulsed_update", Case(f"bounds-{name}", run)
        run = partial(at_bounds, cell, 2, "float32")
        yield "pulsed_samples", Case(f"bounds-{name}", run)
    for name, cell in DRAWN.items():
        yield "cell_planes", Case(f"edges-{name}", drawn(SHAPE, cell, 67))
    high = rk.SoftBounds(dw_min=0.01, w_max=0.0, w_max_dtod=0.0)
    for dtype in ("float32", "float64"):
        run = aged(high, lambda t: t.set_weights(-t.get_weights()), dtype)
        yield "clip_weights", Case(f"edges-high-{dtype}", run)
        kernel = "tile_nonideal" if dtype == "float32" else "tile_product"
        for name, options in WIRES.items():
            yield kernel, Case(f"{name}-{dtype}", partial(wired, options, dtype))
