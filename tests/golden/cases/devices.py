"""Golden cases of the device models: every step function."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit import _device
from rpukit.analog.cells.draw import cell_planes
from tests.golden.cases.case import Case, batch, put

NOISE = {"dw_min": 0.01, "dw_min_std": 0.4}
CELLS = {
    "linear": rk.LinearStep(gamma_up=0.4, gamma_down=0.2, reverse_down=True, **NOISE),
    "linear_additive": rk.LinearStep(
        gamma_up=-0.4, allow_increasing=True, mean_bound_reference=False, mult_noise=False, **NOISE
    ),
    "soft_pmax": rk.SoftBoundsPmax(p_max=100, alpha=0.02, dw_min_std=0),
    "soft_reference": rk.SoftBoundsReference(
        reference_std=0.1, slope_up_dtod=0.1, subtract_symmetry_point=True, **NOISE
    ),
    "exp": rk.ExpStep(**NOISE),
    "exp_complex_noise": rk.presets.device("PCM"),
    "exp_write_noise": rk.presets.device("ReRamES", dw_min=0.01),
    "pow": rk.PowStep(pow_gamma=1.7, write_noise_std=1, corrupt_devices_prob=0.1, **NOISE),
    "pow_reference": rk.PowStepReference(
        reference_mean=0.1, subtract_symmetry_point=True, dw_min_dtod_log_normal=True, **NOISE
    ),
    "piecewise": rk.PiecewiseStep(piecewise_up=(1.5, 1, 0.2), piecewise_down=(0.1, 2), **NOISE),
    "piecewise_many": rk.PiecewiseStep(
        piecewise_up=tuple((69 - k) / 32 for k in range(70)),
        write_noise_std=1,
        perfect_bias=True,
        **NOISE,
    ),
}
SIZES = ((31, 33), (13, 132), (67, 257))


def learned(shape: tuple[int, int], cell: rk.PulsedCell, seed: int):
    def run(device: str) -> list:
        tile = rk.AnalogTile(shape, cell, device=device, seed=seed)
        x, d = (put(v, device) for v in batch(shape, 40, seed))
        tile.update(x, d, lr=0.1)
        tile.update(x[:1], d[:1], lr=-0.05)
        return [tile.get_weights(), np.array([tile.n_pulses])]

    return run


def drawn(shape: tuple[int, int], cell: rk.PulsedCell, seed: int):
    def run(device: str) -> list:
        planes, _ = cell_planes(
            cell, rk.Stream.from_seed(seed), shape, _device.parse_device(device)
        )
        return [planes]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for shape in SIZES:
        for name, cell in CELLS.items():
            case = f"{name}-{shape[0]}x{shape[1]}"
            yield "pulsed_update", Case(case, learned(shape, cell, 21), small=shape[1] < 200)
            yield "cell_planes", Case(case, drawn(shape, cell, 22))
