"""Products through the periphery against the reference toolkit: exact and noisy sets."""

from dataclasses import fields

import numpy as np
import pytest

import rpukit as rk
from tests.reference import analog as reference

KIND = "c_forward"
OURS = [
    name
    for name in reference.sets(KIND)
    if name != "iterative_no_neg_test"  # a defect there; a test below says what is right
]


def parameters(io):
    known = {field.name for field in fields(rk.IOParameters)}
    return rk.IOParameters(**{name: value for name, value in io.items() if name in known})


def tile_and_inputs(name, **changes):
    s, z = reference.sets(KIND)[name], reference.arrays(KIND)
    io = parameters(s["io"])
    forward = s["direction"] == "fwd"
    tile = rk.AnalogTile((8, 12), rk.Ideal(), forward=io, backward=io, **changes).set_weights(
        z["W"]
    )
    product = tile.forward if forward else tile.backward
    use_lines_of_the_reference(tile._states["forward" if forward else "backward"], s)
    return s, product, (z["X"] if forward else z["D"])


def use_lines_of_the_reference(state, s):
    """What is drawn once for each line is given by the set."""
    lines = {name: value for name, value in s["fb_params"].items() if np.size(value)}
    if s["io"]["out_noise_std"] > 0:
        state.line_noise[:] = lines["out_noise_values"]
    if state.wires is None:
        return
    if "v_offset" in lines:
        state.wires.offset[:] = lines["v_offset"]
    if "out_nonlinearity" in lines:
        state.wires.slope[:] = lines["out_nonlinearity"]
    if "out_nonlinearity_factor" in lines:
        state.wires.more[4] = np.ravel(lines["out_nonlinearity_factor"])[0]
    if "w_asymmetry" in lines:
        state.wires._factor = np.array(lines["w_asymmetry"], np.float32).reshape(8, 12)


def test_all_sets_are_here():
    assert len(OURS) >= 40


@pytest.mark.parametrize("name", [n for n in OURS if reference.sets(KIND)[n]["exact"]])
def test_noise_free(name):
    _, product, x = tile_and_inputs(name)
    # float32 sums in another order; no value lies so close to a tie that it would be rounded
    # otherwise
    np.testing.assert_allclose(
        product(x), reference.arrays(KIND)[f"{name}/mean"], atol=2e-5, rtol=0
    )


@pytest.mark.parametrize("name", [n for n in OURS if not reference.sets(KIND)[n]["exact"]])
def test_noisy(name):
    s, product, x = tile_and_inputs(name, seed=21)
    z = reference.arrays(KIND)
    n = 4000
    y = product(np.repeat(x, n, axis=0)).reshape(len(x), n, -1).astype(np.float64)
    mean, std = z[f"{name}/mean"], z[f"{name}/std"]
    sem = std * np.sqrt(1 / n + 1 / s["n"])
    # 56 values a set: four standard errors, and the common bias of the reference's Gaussian table
    assert (np.abs(y.mean(1) - mean) <= 4.2 * sem + 0.015 * std + 2e-5).all()
    seen = std > 0.05 * std.max()
    ratio = y.std(1)[seen] / std[seen]
    assert (
        ratio.min() > 0.9 and ratio.max() < 1.1
    )  # the deviation of 3000 samples is known to 1.3 %


def test_a_negative_bound_does_not_clear_a_failure():
    """There, without the negative test, a later negative output hides an earlier failure."""
    io = rk.IOParameters(
        out_bound=1.0, out_noise=0, bm_test_negative_bound=False, inp_res=0, out_res=0
    )
    tile = rk.AnalogTile((2, 1), rk.Ideal(), forward=io)
    tile.set_weights(np.array([[1.5], [-1.5]], np.float32))
    np.testing.assert_allclose(tile.forward(np.ones((1, 1), np.float32)), [[1.5, -1.5]], atol=1e-6)
