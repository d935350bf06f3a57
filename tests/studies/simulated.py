"""Simulated measurements of devices whose parameters are known."""

import numpy as np

import rpukit as rk
from rpukit.studies.curves import CURVES
from rpukit.studies.prediction import Cycles

SPREAD = {"dw_min_dtod": 0.1, "w_max_dtod": 0.1, "w_min_dtod": 0.1}
EVEN = {"dw_min_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0, "up_down_dtod": 0.0}


def measure(cell, *, n_device=3, n_cycle=2, n_pulse=40, start=-0.5, seed=0):
    """Pulse some cells; return the response and the table that a laboratory would write."""
    up = np.tile(np.repeat([True, False], n_pulse), n_cycle)
    response = rk.studies.pulse_response(cell, up, n_cell=n_device, start=start, seed=seed)
    return response, table(response.weight, up)


def table(weight, up):
    """Write weights as conductances: weight 0 is 30 uS, weight 1 is 50 uS."""
    n, n_device = weight.shape
    return {
        "device": [f"D{d}" for d in range(n_device) for _ in range(n)],
        "pulse": [*range(n)] * n_device,
        "direction": ["", *(1 if way else -1 for way in up)] * n_device,
        "conductance (uS)": (30 + 20 * weight.astype(np.float64)).T.ravel(),
    }


SCALE = rk.studies.ConductanceMap(30.0, 20.0)


def local_of(model, response):
    """Return the true parameters of the curves, shape (n_device, n_local)."""
    cells = {name: array[:, 0].astype(float) for name, array in response.tile.cells.items()}
    for way in ("up", "down"):
        if model == "LinearStep":
            sign = -1 if way == "up" else 1
            cells[f"slope_{way}"] *= sign / cells[f"step_{way}"]
    if model == "SoftBoundsPmax":
        cells["range_min"], cells["range"] = cells["w_min"], cells["w_max"] - cells["w_min"]
        cells["alpha"] = np.full_like(cells["range"], response.tile.cell.alpha)
    return np.stack([cells[name] for name in CURVES[model].local], axis=-1)


def cycles_of(response):
    """Lay the response of each device along one cycle, in weight units."""
    read = response.weight.astype(np.float64)
    up = np.repeat(response.up[:, None], read.shape[1], axis=1)
    return Cycles(read, up, np.arange(read.shape[1]), np.zeros_like(read))
