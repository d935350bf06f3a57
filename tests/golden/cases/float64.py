"""Golden cases of tiles of float64: every kernel that has an instance for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import rpukit as rk
from rpukit import elementwise
from rpukit.analog import deferred_errors as _guard
from rpukit.analog.update import ops as update
from tests.golden.cases.case import Case, batch, put
from tests.golden.cases.devices import CELLS as DEVICES
from tests.golden.cases.mixed_precision import CELLS as MIXED
from tests.golden.cases.tiles import CELLS, PRODUCTS, UPDATES

SIZES = ((13, 132), (67, 257))
SEED = 24
STEPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "clip_weights": ("soft", lambda t: t.set_weights(t.get_weights() * 9)),
    "decay": ("constant", lambda t: t.decay(0.7)),
    "diffusion": ("constant", lambda t: t.diffuse()),
    "drift": ("drifting", lambda t: t.reset(0, 1, 0.5).drift(70)),
    "reset": ("constant", lambda t: t.reset(0, t.shape[1], 0.5)),
    "write_noise": ("soft_write_noise", lambda t: t.diffuse()),
}
LEARNING = {
    "pulsed_update": {
        **{name: CELLS[name] for name in ("constant", "soft", "soft_write_noise")},
        **{name: DEVICES[name] for name in ("linear", "soft_reference", "exp", "pow_reference")},
        **{name: DEVICES[name] for name in ("piecewise", "piecewise_many")},
    },
    "rank_update": {"ideal": CELLS["ideal"]},
    "combine_devices": {"vector": CELLS["vector"]},
    "select_refresh": {"one_sided": CELLS["one_sided"]},
    "auto_scale": {"chopped": CELLS["chopped"]},
    "sample_maxima": {"chopped": CELLS["chopped"]},
    "chop_samples": {"chopped": CELLS["chopped"]},
    "transfer_read": {name: CELLS[name] for name in ("dynamic", "buffered")},
    "transfer_write": {"buffered": CELLS["buffered"]},
    "take_pulses": {"rows": MIXED["rows"]},
    "quantise_rows": {
        "stochastic": rk.MixedPrecision(device=CELLS["soft"], n_x_bins=16, n_d_bins=9)
    },
}


def inputs(shape: tuple[int, int], n: int, device: str) -> list:
    """Inputs that float32 cannot hold."""
    return [put(v.astype(np.float64) / 3, device) for v in batch(shape, n, SEED)]


def tile_of(shape: tuple[int, int], cell: rk.Cell, device: str, **changes: Any) -> rk.AnalogTile:
    tile = rk.AnalogTile(shape, cell, device=device, seed=SEED, dtype=np.float64, **changes)
    start = elementwise.random_fill(rk.Stream.from_seed(SEED), shape, "uniform")
    return tile.set_weights(put((start.astype(np.float64) - 0.5) / 3, device))


def learned(shape: tuple[int, int], cell: rk.Cell):
    def run(device: str) -> list:
        tile = tile_of(shape, cell, device)
        x, d = inputs(shape, 70, device)
        tile.update(x, d, lr=0.3).update(x[:9], d[:9], lr=-0.3)
        arrays = tile.state()["arrays"]
        return [arrays[name] for name in sorted(arrays)]

    return run


def aged(shape: tuple[int, int], cell: rk.Cell, step: Callable[[Any], Any]):
    def run(device: str) -> list:
        tile = tile_of(shape, cell, device)
        for _ in range(3):
            step(tile)
        return [tile.get_weights()]

    return run


def product(shape: tuple[int, int], io: rk.IOParameters):
    def run(device: str) -> list:
        tile = tile_of(shape, CELLS["soft"], device, forward=io, backward=io)
        x, d = inputs(shape, 7, device)
        x[2] = 0
        return [tile.forward(x), tile.backward(d), tile.forward(x[:1])]

    return run


def trains(shape: tuple[int, int], parameters: rk.UpdateParameters):
    def run(device: str) -> list:
        x, d = inputs(shape, 9, device)
        made = update.pulse_trains(
            x,
            d,
            0.1,
            0.01,
            parameters,
            stream=rk.Stream.from_seed(SEED),
            first_sample=2**40 + 7,
            status=put(np.zeros(1, np.int32), device),
        )
        return [made.x, made.d]

    return run


def checked(device: str) -> list:
    found = []
    for bad in (np.nan, np.inf, 1e300):
        x = np.ones(1031)
        x[700] = bad
        status = put(np.zeros(1, np.int32), device)
        _guard.check_finite(put(x, device), status=status, call=5)
        found.append(status)
    return found


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    yield "check_finite", Case("float64", checked)
    for shape in SIZES:
        at, small = f"float64-{shape[0]}x{shape[1]}", shape[1] < 200
        for kernel, cells in LEARNING.items():
            for name, cell in cells.items():
                yield kernel, Case(f"{name}-{at}", learned(shape, cell), small=small)
        for kernel, (name, step) in STEPS.items():
            yield kernel, Case(f"{name}-{at}", aged(shape, CELLS[name], step), small=small)
        for name, io in PRODUCTS.items():
            yield "tile_product", Case(f"{name}-{at}", product(shape, io), small=small)
        for name, parameters in UPDATES.items():
            yield "pulse_trains", Case(f"{name}-{at}", trains(shape, parameters), small=small)
