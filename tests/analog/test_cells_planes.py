"""cell_planes: bits of the NumPy formulas of the cell classes, by the mirror and by the kernel."""

from dataclasses import replace

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.analog.cells import draw as sampling
from rpukit.analog.cells.draw import can_draw, cell_planes, draw_cells, recipe_of
from rpukit.testing import assert_same_bits, on_cpu
from tests.analog.test_cells import CELLS

CPU = _device.parse_device("cpu")
WIDE = {"w_max_dtod": 1.5, "w_min_dtod": 1.5, "dw_min_dtod": 2.0, "up_down_dtod": 0.5}
ALL = CELLS | {
    "crossed": rk.LinearStep(enforce_consistency=False, up_down=0.3, gamma_up=1, **WIDE),
    "crossed_stuck": rk.SoftBounds(enforce_consistency=False, corrupt_devices_prob=0.2, **WIDE),
    "wide": rk.SoftBounds(reverse_up=True, perfect_bias=True, corrupt_devices_prob=0.1, **WIDE),
    "log_normal": rk.presets.device("ReRamArrayOM", corrupt_devices_prob=0.1, slope_up_dtod=0.3),
    "one_bound": rk.presets.device("PCM"),
    "no_spread": rk.PowStep(w_max_dtod=0, w_min_dtod=0, dw_min_dtod=0, up_down_dtod=0),
    "few_pairs": rk.PowStepReference(
        up_down=0.3, subtract_symmetry_point=True, n_estimation_steps=7, pow_up_down_dtod=0.1
    ),
    "slopes": rk.SoftBoundsReference(slope_up_dtod=0.4, slope_down_dtod=0.2, up_down=-0.1),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(7, 132), (31, 9), (1, 1)])
def test_bits_of_the_formulas(name, shape, order):
    cell, stream = ALL[name], rk.Stream.from_seed(8)
    expected = cell.sample(stream, shape)
    planes, point = cell_planes(cell, stream, shape, CPU)
    for k, plane in enumerate(cell.PLANES):
        assert_same_bits(planes[k], expected[plane].astype(np.float32))
    if point is not None:
        plain = replace(cell, subtract_symmetry_point=False).sample(stream, shape)
        resting = plain.get("reset_bias", np.float32(0))
        assert_same_bits(resting + point, expected["reset_bias"])
    with on_cpu(order):
        drawn, drawn_point = cell_planes(cell, stream, shape, CPU)
    assert_same_bits(drawn, planes)
    if point is not None:
        assert_same_bits(drawn_point, point)


SLOW = {"diffusion": 0.1, "lifetime": 50, "lifetime_dtod": 0.3, "reset_dtod": 0.1, "reset": 0.2}


@pytest.mark.parametrize(
    "cell", [rk.Ideal(lifetime=9), *(replace(c, **SLOW) for c in ALL.values())]
)
@pytest.mark.parametrize("many", [1, 1 << 24])
def test_all_arrays_of_a_tile(cell, many, monkeypatch):
    monkeypatch.setattr(sampling, "_MANY", many)
    given = (cell, rk.Stream.from_seed(8), (7, 12), CPU)
    planes, slow = draw_cells(*given)
    host = cell.sample(*given[1:3])
    for k, name in enumerate(cell.PLANES):
        assert_same_bits(planes[k], host.pop(name).astype(np.float32))
    with on_cpu():
        drawn, drawn_slow = draw_cells(*given)
    assert (planes is None) == (drawn is None) == isinstance(cell, rk.Ideal)
    if planes is not None:
        assert_same_bits(drawn, planes)
    assert slow.keys() == drawn_slow.keys() == host.keys()
    for name, array in host.items():
        assert_same_bits(slow[name], array)
        assert_same_bits(drawn_slow[name], array)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALL)
def test_bits_on_a_gpu(name):
    given = (ALL[name], rk.Stream.from_seed(8), (67, 257))
    planes, _ = cell_planes(*given, CPU)
    drawn, _ = cell_planes(*given, _device.parse_device("gpu"))
    assert_same_bits(drawn, planes)


def test_threads_do_not_count():
    given = (ALL["crossed_stuck"], rk.Stream.from_seed(1), (300, 200), CPU)
    expected, _ = cell_planes(*given)
    n = rk.get_num_threads()
    try:
        rk.set_num_threads(1)
        assert_same_bits(cell_planes(*given)[0], expected)
    finally:
        rk.set_num_threads(n)


def test_classes_from_outside_draw_by_themselves():
    class Outside(rk.SoftBounds):
        def sample(self, stream, shape):
            raise NotImplementedError

    assert can_draw(rk.SoftBounds()) and not can_draw(Outside())
    with pytest.raises(rk.errors.ParameterError, match=r"by sample\(\)"):
        cell_planes(Outside(), rk.Stream.from_seed(1), (2, 2), CPU)


@pytest.mark.parametrize("name", ["wide", "slopes"])
def test_cells_beyond_32_bits(name):
    shape, row = (1 << 20, 1 << 14), (1 << 20) - 1  # only one row of it is ever drawn
    cell = replace(ALL[name], corrupt_devices_prob=0, **SLOW)
    recipe = recipe_of(cell, rk.Stream.from_seed(8), shape, CPU)
    drawn = recipe.draw(len(cell.PLANES), recipe.slow, (row, row + 1))
    with on_cpu():
        assert_same_bits(recipe.draw(len(cell.PLANES), recipe.slow, (row, row + 1)), drawn)
    wrapped = row % (1 << 18)  # where the low 32 bits of the numbers of cells are the same
    assert (recipe.draw(4, (), (wrapped, wrapped + 1))[:4] != drawn[:4]).any(axis=(1, 2)).all()
