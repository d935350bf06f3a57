"""float64 instances of the kernels of a tile: bits of the mirror, formulas to float64 rounding."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._exact import twins
from rpukit.analog import deferred_errors as _guard
from rpukit.analog.cells.cell_array import CellArray
from rpukit.analog.update import launch as _launch_update
from rpukit.analog.update import ops as update
from rpukit.testing import assert_same_bits, on_cpu

STREAM = rk.Stream.from_seed(3)
OK = np.zeros(1, np.int32)
NOISE = {"dw_min": 0.01, "dw_min_std": 0.4}
CELLS = [
    rk.ConstantStep(**NOISE),
    rk.SoftBounds(write_noise_std=1, **NOISE),
    rk.PowStep(**NOISE),
]


def batch(n, shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.uniform(-1, 1, (n, shape[1])), rng.normal(0, 0.3, (n, shape[0]))
    return [v.astype(np.float32).astype(dtype) for v in made]


def pulsed(cell, shape, dtype, parameters=None, n=70, lr=0.2, seed=0):
    """Trains, weights, shown weights and pulses of one update of the same cells in a dtype."""
    x, d = batch(n, shape, dtype, seed)
    at = {"stream": STREAM, "first_sample": 5, "status": OK}
    how = parameters or rk.UpdateParameters()
    trains = update.pulse_trains(x, d, lr, cell.granularity, how, **at)
    drawn = cell.sample(STREAM, shape)
    planes = np.stack([drawn[name] for name in cell.PLANES]).astype(dtype)
    weight, shown, n_pulses = np.zeros(shape, dtype), np.zeros(shape, dtype), np.zeros(1, np.int64)
    stored = weight if cell.write_noise > 0 else None
    given = (shown, planes, cell.globals().astype(dtype), n_pulses, at.pop("status"))
    update.pulsed_update(CellArray(cell, *given, persistent=stored), trains, **at)
    return trains.x, trains.d, weight, shown, n_pulses


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("cell", "tile"),
    list(zip(CELLS, _launch_update.DOUBLES, strict=True)),
    ids=lambda v: getattr(v, "name", type(v).__name__),
)
def test_pulsed_update_gives_the_bits_of_the_mirror(tile, cell, monkeypatch):
    shape = (7, 132)
    expected = pulsed(cell, shape, np.float64)
    with monkeypatch.context() as patch, on_cpu():
        patch.setattr(update, "pick", lambda _: tile)
        got = pulsed(cell, shape, np.float64)
    for mine, its in zip(got, expected, strict=True):
        assert_same_bits(mine, its)
    assert expected[3].any()


@pytest.mark.parametrize("cell", CELLS[:2], ids=lambda cell: type(cell).__name__)
def test_the_same_pulses_as_in_float32_to_its_rounding(cell):
    shape = (7, 132)
    wide, narrow = (pulsed(cell, shape, dtype) for dtype in (np.float64, np.float32))
    same = (wide[0] == narrow[0]).mean()
    assert same > 0.99  # a slot differs where a probability and a draw are a rounding apart
    columns = (wide[0] == narrow[0]).all(0)[0]
    gap = abs(wide[3] - narrow[3])[:, columns]
    assert 0 < gap.max() < 1e-4  # hundreds of steps of 0.01, each rounded to 2**-24


PULSES = {
    "managed": rk.UpdateParameters(),
    "long": rk.UpdateParameters(desired_bl=100, update_bl_management=False),
    "implicit": rk.UpdateParameters(pulse_type="deterministic_implicit", d_res_implicit=0.02),
    "mean_count": rk.UpdateParameters(pulse_type="mean_count"),
    "rounded": rk.UpdateParameters(res=0.1, sto_round=True),
}


@pytest.mark.parametrize("parameters", PULSES.values(), ids=PULSES)
def test_every_kind_of_train(parameters):
    shape = (5, 131)
    expected = pulsed(CELLS[1], shape, np.float64, parameters, n=9)
    with on_cpu(order=7):
        got = pulsed(CELLS[1], shape, np.float64, parameters, n=9)
    for mine, its in zip(got, expected, strict=True):
        assert_same_bits(mine, its)
    assert expected[4][0] > 0


def test_rank_update(order):
    shape = (67, 132)
    x, d = batch(20, shape)
    mirror, source = np.zeros(shape), np.zeros(shape)
    update.rank_update(mirror, x, d, 0.1, status=OK)
    with on_cpu(order):
        update.rank_update(source, x, d, 0.1, status=OK)
    assert_same_bits(source, mirror)
    np.testing.assert_allclose(mirror, -0.1 * d.T @ x, atol=20 * 2**-53)


def test_check_finite(order):
    x = np.full(1000, 1e300)
    for bad, expected in ((1e300, 0), (np.nan, 7), (-np.inf, 7)):
        x[700] = bad
        for run in ("mirror", "source"):
            status = np.zeros(1, np.int32)
            if run == "mirror":
                _guard.check_finite(x, status=status, call=7)
            else:
                with on_cpu(order):
                    _guard.check_finite(x, status=status, call=7)
            assert status[0] == expected


def test_twin_of_a_mirror():
    steps = twins.mirror("rpukit.analog._steps", np.float64)
    assert steps is twins.mirror("rpukit.analog._steps", np.float64)
    assert steps is not twins.mirror("rpukit.analog._steps", np.float32)
    p, g = np.array([-0.6, 0.6, 0.01, 0.02]), np.array([0.3, *[0.0] * 7])
    assert steps.constant_step(0.1, p, g, True, np.float32(0.5)) == 0.1 + 0.02 * (1 + 0.3 * 0.5)
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        twins.mirror("rpukit.no_such", np.float64)


def test_limits_of_a_twin_are_those_of_its_type():
    """Also where float32 is named inside a call."""
    for name in (np.float32, np.float64):
        layers = twins.mirror("rpukit.circuits._mirror.layers", name)
        assert np.finfo(name).tiny == layers.TINY
