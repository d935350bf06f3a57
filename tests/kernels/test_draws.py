"""Draws that equal a probability: kernels and mirrors decide them in the same way.

A probability is searched at which one more draw counts; the next smaller number is that draw
itself, which no random number would meet.
"""

from functools import cache, partial

import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.transfer.ops import chop_samples
from rpukit.analog.transfer.schedule import Events
from rpukit.testing import assert_same_bits, on_cpu

BITS = {"desired_bl": 4, "update_management": False, "update_bl_management": False}
STEP = 2.0**-7  # so that probabilities are the inputs, and each of four slots can be met
PLAIN = dict.fromkeys(
    ("dw_min_dtod", "dw_min_std", "up_down_dtod", "w_max_dtod", "w_min_dtod"), 0.0
)


def draws(count, most):
    """Floats in (0, 1) at which `count` grows with the next float, for each number of draws."""
    found = []
    for wanted in range(most):
        low, high = np.array([0.0, 1.0], np.float32).view(np.int32)
        while high - low > 1:
            middle = (low + high) // 2
            number = float(np.int32(middle).view(np.float32))
            low, high = (middle, high) if count(number) <= wanted else (low, middle)
        found.append(float(np.int32(low).view(np.float32)))
    return found


def reset(prob):
    tile = rk.AnalogTile((3, 5), rk.SoftBounds(reset=0.1), seed=4)
    tile.set_weights(np.full((3, 5), 0.25, np.float32))
    return tile.reset(prob=prob).get_weights() if prob else tile.get_weights()


def dropped(prob):
    modifier = rk.inference.WeightModifier(pdrop=prob)
    tile = rk.InferenceTile((3, 5), modifier=modifier, seed=4)
    tile.set_weights(np.full((3, 5), 0.25, np.float32))
    tile.post_step()
    return tile.forward(np.eye(5, dtype=np.float32))


def corrupted(prob):
    cell = rk.ConstantStep(corrupt_devices_prob=prob, **PLAIN)
    return rk.AnalogTile((3, 5), cell, seed=4).cells["step_up"]


def stuck(prob, name, **more):
    """Most devices are stuck, of a few of which it is asked where."""
    share = prob / 8 if more else prob
    modifier = rk.inference.WeightModifier(type="noise_model", **{name: share}, **more)
    tile = rk.InferenceTile((3, 15), modifier=modifier, seed=4)
    tile.set_weights(np.full((3, 15), 0.25, np.float32))
    return tile.post_step().get_weights()


def chopped(prob):
    due, chopper = Events(0, 9), np.ones(9, np.int8)
    how = {"stream": rk.Stream.from_seed(4), "status": np.zeros(1, np.int32)}
    values = np.ones((1, 9), np.float32)
    return chop_samples(values, chopper, None, due, (False, False), prob, **how)[1]


def pulsed(prob, n_sample=1):
    cell = rk.ConstantStep(dw_min=STEP, w_max=9.0, w_min=-9.0, **PLAIN)
    tile = rk.AnalogTile((1, 1), cell, seed=4, update=rk.UpdateParameters(**BITS))
    x = np.zeros((n_sample, 1), np.float32)
    x[-1] = prob
    d = np.ones((n_sample, 1), np.float32)
    return tile.update(x, d, -STEP * BITS["desired_bl"]).get_weights()


def changed(run):
    before = cache(lambda: run(0.0))
    return lambda prob: int((run(prob) != before()).sum())


def pulses(**options):
    return lambda prob: int(np.rint(abs(pulsed(prob, **options)).sum() / STEP))


STUCK = {
    "p_any": partial(stuck, name="p_any"),
    "p_low": partial(stuck, name="p_low", p_any=0.875),
    "p_high": partial(stuck, name="p_high", p_any=0.875),
}


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (reset, changed(reset)),
        (dropped, changed(dropped)),
        (corrupted, changed(corrupted)),
        (chopped, changed(chopped)),
        *((run, changed(run)) for run in STUCK.values()),
        (pulsed, pulses()),
        (lambda p: pulsed(p, n_sample=40), pulses(n_sample=40)),
    ],
    ids=[
        *("reset", "modify_weights", "cell_planes", "chop_samples"),
        *(f"program_conductance-{name}" for name in STUCK),
        *("pulsed_samples", "pulse_trains"),
    ],
)
def test_a_draw_that_equals_its_probability(run, count):
    found = draws(count, 4)
    assert len(set(found)) == 4 and min(found) > 0
    for prob in found:
        want = run(prob)
        with on_cpu(order=5):
            got = run(prob)
        assert_same_bits(np.asarray(got), np.asarray(want))
