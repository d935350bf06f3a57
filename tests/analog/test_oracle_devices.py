"""Device models against the reference toolkit: single-pulse responses, exact and statistical."""

import golden
import numpy as np
import pytest

import rpukit as rk

ONE_PULSE = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)

DET = [n for n, s in golden.sets("a_device_det").items() if s["device"]["_class"] in golden.CELLS]
NOISY = [
    n for n, s in golden.sets("a_device_noisy").items() if s["device"]["_class"] in golden.CELLS
]


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
    s = golden.sets("a_device_det")[name]
    tile = rk.AnalogTile((len(s["w0"]), 1), golden.cell(s["device"]), update=ONE_PULSE)
    hidden = {
        "w_max": "max_bound",
        "w_min": "min_bound",
        "step_up": "dwmin_up",
        "step_down": "dwmin_down",
    }
    for ours, theirs in hidden.items():
        np.testing.assert_allclose(
            tile.cells[ours][:, 0], s["hidden_parameters"][theirs], rtol=2e-7
        )
    tile.set_weights(np.array(s["w0"], np.float32)[:, None])
    w = np.array([np.asarray(tile)[:, 0], *respond(tile, directions(s))])
    # The reference sums the same float32 steps in another order; 4.2e-6 is what a float64
    # implementation of the formulas differs from it by.
    np.testing.assert_allclose(w, golden.arrays("a_device_det")[f"{name}/w"], atol=4.2e-6, rtol=0)


@pytest.mark.parametrize("name", NOISY)
def test_statistics_with_variation(name):
    s, z = golden.sets("a_device_noisy")[name], golden.arrays("a_device_noisy")
    n = 20_000
    tile = rk.AnalogTile((n, 1), golden.cell(s["device"]), update=ONE_PULSE, seed=3)
    for ours, theirs in {
        "w_max": "max_bound",
        "w_min": "min_bound",
        "step_up": "dwmin_up",
    }.items():
        stats = s["hidden_parameter_stats"][theirs]
        sem = stats["std"] * np.sqrt(1 / n + 1 / s["cells"])
        assert abs(tile.cells[ours].mean() - stats["mean"]) <= 4 * sem + 1e-7
        # The deviation of a normal sample of 2000 is known to 1.6 %; its tails less well.
        assert tile.cells[ours].std() == pytest.approx(stats["std"], rel=0.08, abs=1e-7)
    tile.set_weights(np.full((n, 1), s["w0"], np.float32))
    curves = np.array([(w.mean(), w.std()) for w in respond(tile, directions(s))])
    mean, std = z[f"{name}/mean"][1:], z[f"{name}/std"][1:]
    # Four standard errors of the reference's 2000 cells and ours, and its common-mode bias: its
    # Gaussians come from one table of 32768 values, whose mean is off by 0.0055 deviations.
    allowed = 4 * std * np.sqrt(1 / n + 1 / s["cells"]) + 0.015 * std + 1e-6
    assert (np.abs(curves[:, 0] - mean) <= allowed).all()
    # 2000 cells, some of them at a bound: 10 %, and what is small beside the largest deviation.
    np.testing.assert_allclose(curves[:, 1], std, rtol=0.1, atol=0.05 * std.max())


def _stand_in(name, n_run):
    """One tile that stands for n_run runs of the reference's 8 x 10 tile, below each other."""
    s, z = golden.sets("e_inference")[name], golden.arrays("e_inference")
    tile = rk.AnalogTile((8 * n_run, 10), golden.cell(s["device"]), seed=11)
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
    cell = golden.cell(s["device"], drift=p)
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
