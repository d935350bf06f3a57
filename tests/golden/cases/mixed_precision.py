"""The cases behind the golden hashes of mixed precision."""

from __future__ import annotations

from collections.abc import Iterator

import rpukit as rk
from rpukit import elementwise
from tests.golden.cases.case import SIZES, Case, batch, put

SOFT = rk.SoftBounds(dw_min=0.02)
CELLS = {
    "plain": rk.MixedPrecision(device=SOFT),
    "rows": rk.MixedPrecision(
        device=SOFT, granularity=0.05, n_rows_per_transfer=5, random_row=True
    ),
    "one_sided": rk.MixedPrecision(
        device=rk.OneSided(
            device=rk.SoftBounds(dw_min=0.02, w_min=0),
            refresh_every=2,
            refresh_upper_thres=0.3,
            refresh_lower_thres=0.05,
        )
    ),
}
BINS = {
    "rounded": rk.MixedPrecision(
        device=SOFT, n_x_bins=16, n_d_bins=9, stoc_round_x=False, stoc_round_d=False
    ),
    "stochastic": rk.MixedPrecision(device=SOFT, n_x_bins=16, n_d_bins=9),
}


def learned(shape: tuple[int, int], cell: rk.MixedPrecision, seed: int):
    def run(device: str) -> list:
        tile = rk.AnalogTile(shape, cell, device=device, seed=seed)
        start = elementwise.random_fill(rk.Stream.from_seed(seed).child(3), shape, "uniform")
        tile.set_weights(put((start - 0.5).astype("f4"), device))
        x, d = (put(v, device) for v in batch(shape, 23, seed))
        tile.update(x, d, lr=0.3, batch_size=3).update(x[:5], d[:5], lr=-0.3, batch_size=3)
        arrays = tile.state()["arrays"]
        return [arrays[name] for name in sorted(arrays)]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for shape in SIZES:
        for kernel, cells in (("take_pulses", CELLS), ("quantise_rows", BINS)):
            for name, cell in cells.items():
                case = f"{name}-{shape[0]}x{shape[1]}"
                yield kernel, Case(case, learned(shape, cell, 23), small=shape[1] < 200)
