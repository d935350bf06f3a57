"""Golden cases of updates by a few samples in one launch; `golden_cases` takes them in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from golden_cases import CELLS, UPDATES, Case, batch, put
from golden_devices import CELLS as DEVICES

import rpukit as rk

MODELS = {
    **{name: CELLS[name] for name in ("constant", "soft_write_noise")},
    **{
        name: DEVICES[name]
        for name in ("soft_reference", "exp", "pow_reference", "piecewise_many")
    },
}


def pulsed(shape: tuple[int, int], cell: rk.PulsedCell, how: str, n: int, dtype: Any):
    def run(device: str) -> list:
        tile = rk.AnalogTile(
            shape,
            cell,
            device=device,
            seed=25,
            update=UPDATES[how],
            dtype=dtype,
            count_pulses=n > 1,
        )
        x, d = (put(v.astype(dtype), device) for v in batch(shape, 6, 25))
        tile.update(x[:n], d[:n], lr=0.1).update(x[n : n + 1], d[n : n + 1], lr=-0.3)
        counts = [tile.pulse_counts] if n > 1 else []
        return [tile.get_weights(), np.array([tile.n_pulses]), *counts]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    wanted = [(name, "managed") for name in MODELS]
    wanted += [("constant", "fixed_31"), ("constant", "rounded")]
    for shape in ((13, 132), (33, 31), (67, 257)):
        for name, how in wanted:
            for n, dtype in ((1, np.float32), (4, np.float32), (3, np.float64)):
                case = f"{name}-{how}-{n}-{np.dtype(dtype).name}-{shape[0]}x{shape[1]}"
                run = pulsed(shape, MODELS[name], how, n, dtype)
                yield "pulsed_samples", Case(case, run, small=shape[1] < 200)
