"""Passes with samples side by side give the bits of those with nodes side by side."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits
from tests.golden.cases import CASES
from tests.golden.cases.circuits import every_leaf, images


def far_apart():
    """Weights with zeros and values far apart: sums that underflow, ways that nobody takes."""
    odd = np.arange(12) % 2
    transition = np.where(odd[:, None] == odd, 0.75 ** np.arange(12), 0)
    emission = np.where(np.arange(4) % 2 == odd[:, None], 2.0**-100, 0.5)
    emission[odd == 0, 0] = 2.0**-120
    root = circuits.hmm(3, 12, 4, transition=transition / transition.sum(1)[:, None])
    pc = rk.Circuit(root)
    pc._core.parameters.rows.parameters[:] = emission.reshape(-1)
    pc._core.parameters.refresh_all()
    return pc


MADE = {
    "far apart": far_apart,
    "shared children": lambda: rk.Circuit(every_leaf(), seed=1),
    "images": lambda: rk.Circuit(images(), seed=2),
}


@pytest.mark.parametrize("name", MADE)
def test_both_ways_to_go_through_layers(name):
    assert CASES["sum_backward"]  # of kernels, which these circuits are among
    held = []
    for most in (0, 1 << 30):
        pc = MADE[name]()
        pc._core.parameters.program.most = most
        x = pc.sample(70, first_sample=0)
        if name == "far apart":
            x = np.arange(210).reshape(70, 3) // 2 % 4
        for part in (x, x[:3]):
            held.append([pc.accumulate(part), *pc.flows(part).values()])
            held[-1] += pc.state()["arrays"].values()
    for a, b in zip(held[0] + held[1], held[2] + held[3], strict=True):
        assert_same_bits(a, b)
    assert np.isfinite(held[0][0]).all()
