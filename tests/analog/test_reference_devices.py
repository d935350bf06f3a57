"""Device models against the reference toolkit: single-pulse responses, exact and statistical."""

import numpy as np
import pytest

import rpukit as rk
from tests.reference import analog as reference

ONE_PULSE = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)

DET = [n for n in reference.sets("a_device_det") if not n.endswith("QUIRK")]
NOISY = list(reference.sets("a_device_noisy"))
HIDDEN = {
    "w_max": "max_bound",
    "w_min": "min_bound",
    "step_up": "dwmin_up",
    "step_down": "dwmin_down",
    "slope_up": "slope_up",
    "slope_down": "slope_down",
    "gamma_up": "gamma_up",
    "gamma_down": "gamma_down",
    "reference": "reference",
    "reset_bias": "reset_bias",
}


def hidden(tile, theirs):
    """Pair our per-cell parameters with the reference's, where both have them."""
    pairs = {ours: theirs[name] for ours, name in HIDDEN.items() if name in theirs}
    return {ours: (tile.cells[ours], v) for ours, v in pairs.items() if ours in tile.cells}


def respond(tile, directions):
    """Send one pulse after another to every cell; yield the weights after each."""
    n_out = tile.shape[0]
    x = np.ones((1, 1), np.float32)
    lr = float(tile.cell.granularity)  # makes both firing probabilities 1
    for up in directions:
        tile.update(x, np.full((1, n_out), -1.0 if up else 1.0, np.float32), lr=lr)
        yield np.asarray(tile)[:, 0]


def directions(s):
    return ([True] * s["n_up"] + [False] * s["n_dn"]) * s["cycles"]


@pytest.mark.parametrize("name", DET)
def test_response_without_variation(name):
    s = reference.sets("a_device_det")[name]
    tile = rk.AnalogTile((len(s["w0"]), 1), reference.cell(s["device"]), update=ONE_PULSE)
    assert f"{tile.cell.granularity:.5g}" == f"{float(s['granularity_printed']):.5g}"
    found = hidden(tile, s["hidden_parameters"])
    assert len(found) >= 4
    for ours, theirs in found.values():
        np.testing.assert_allclose(ours[:, 0], theirs, rtol=3e-7, atol=2e-7)
    tile.set_weights(np.array(s["w0"], np.float32)[:, None])
    w = np.array([np.asarray(tile)[:, 0], *respond(tile, directions(s))])
    # The reference takes the same float32 steps with its own order of operations; a float64
    # implementation of the formulas differs from it by up to 4.2e-6.
    np.testing.assert_allclose(w, reference.arrays("a_device_det")[f"{name}/w"], atol=3e-7, rtol=0)


@pytest.mark.sweep
@pytest.mark.parametrize("name", NOISY)
def test_statistics_with_variation(name):
    s, z = reference.sets("a_device_noisy")[name], reference.arrays("a_device_noisy")
    n = 20_000
    tile = rk.AnalogTile((n, 1), reference.cell(s["device"]), update=ONE_PULSE, seed=3)
    for name_, (ours, stats) in hidden(tile, s["hidden_parameter_stats"]).items():
        if "slope" in name_ and "Linear" not in type(tile.cell).__name__:
            continue  # quotients: their means and deviations are those of a few cells
        sem = stats["std"] * np.sqrt(1 / n + 1 / s["cells"])
        assert abs(ours.mean() - stats["mean"]) <= 4 * sem + 1e-7
        # The deviation of a normal sample of 2000 is known to 1.6 %; its tails less well, and that
        # of heavy tails to 20 %.
        heavy = s["device"]["dw_min_dtod_log_normal"] or s["device"].get("slope_up_dtod")
        if not (heavy and name_ == "w_max"):
            close = pytest.approx(stats["std"], rel=0.2 if heavy else 0.08, abs=1e-7)
            assert ours.std(dtype=np.float64) == close
    tile.set_weights(np.full((n, 1), s["w0"], np.float32))
    curves = np.array([(w.mean(), w.std()) for w in respond(tile, directions(s))])
    mean, std = z[f"{name}/mean"][1:], z[f"{name}/std"][1:]
    # Standard errors of the reference's 2000 cells and ours, and its common-mode bias: its
    # Gaussians come from one table of 32768 values, whose mean is off by 0.0055 deviations, at
    # every pulse. The write noise that it draws is correlated from pulse to pulse: 1.6 times as
    # large errors.
    written = s["device"].get("write_noise_std", 0) > 0
    path = np.cumsum(np.abs(np.diff(mean, prepend=z[f"{name}/mean"][0])))
    bias = 0.015 * (std + s["device"]["dw_min_std"] * path)
    sem = std * np.sqrt(1 / n + 1 / s["cells"])
    allowed = (6.5 if written else 4) * sem + bias + 1e-6
    assert (np.abs(curves[:, 0] - mean) <= allowed).all()
    # 2000 cells, some of them at a bound: 10 %, and what is small beside the largest deviation.
    np.testing.assert_allclose(curves[:, 1], std, rtol=0.1, atol=0.05 * std.max())


def _stand_in(name, n_run):
    """One tile that stands for n_run runs of the reference's 8 x 10 tile, below each other."""
    s, z = reference.sets("e_inference")[name], reference.arrays("e_inference")
    tile = rk.AnalogTile((8 * n_run, 10), reference.cell(s["device"]), seed=11)
    tile.set_weights(np.tile(z[f"{name}/W"].astype(np.float32), (n_run, 1)))
    return s, z, tile


def _runs(tile):
    return np.asarray(tile).reshape(-1, 8, 10)


def test_decay():
    s, z, tile = _stand_in("decay", 1)
    curve = [_runs(tile)[0], *(_runs(tile.decay())[0] for _ in range(s["steps"]))]
    np.testing.assert_allclose(curve, z["decay/mean"], atol=1e-6, rtol=0)  # float32 rounding


def test_drift():
    s, z, tile = _stand_in("drift", 1)
    p = rk.DriftParameters(nu=s["device"]["drift"]["nu"], t_0=s["device"]["drift"]["t_0"])
    cell = reference.cell(s["device"], drift=p)
    tile = rk.AnalogTile(tile.shape, cell).set_weights(np.asarray(tile))
    curve = [np.asarray(tile)]
    curve += [np.asarray(tile.drift(1.0 if k else 3.0)) for k in range(s["steps"])]
    np.testing.assert_allclose(curve, z["drift/mean"], atol=1e-6, rtol=0)  # float32 rounding


SLOW_STEPS = {
    "diffusion": lambda tile: tile.diffuse(),
    "reset_stat": lambda tile: tile.reset(2, 3),
}


@pytest.mark.parametrize("name", SLOW_STEPS)
def test_diffusion_and_reset(name):
    s, z, tile = _stand_in(name, 2000)
    for k in range(1, s["steps"] + 1):
        runs = _runs(SLOW_STEPS[name](tile)).astype(np.float64)
        mean, std = z[f"{name}/mean"][k], z[f"{name}/std"][k]
        sem = std * np.sqrt(1 / 2000 + 1 / s["runs"])
        # 80 cells at a time: four standard errors, the bias of the reference's Gaussian table, and
        # its float32 sums over the runs.
        assert (np.abs(runs.mean(0) - mean) <= 4.2 * sem + 0.015 * std + 1e-4).all()
        np.testing.assert_allclose(runs.std(0), std, rtol=0.15, atol=1e-4)  # 500 runs: 3.2 %
