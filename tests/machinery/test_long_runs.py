"""Many calls of one object: memory stays flat, and a saved state continues with the same bits."""

import resource

import numpy as np
import pytest

import rpukit as rk
from tools.fuzz_files import plain

RNG = np.random.default_rng(5)


def used() -> int:
    """Largest memory of the process so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(call, number):
    """Call many times; return how much the memory grew after the first tenth, in KiB."""
    for _ in range(number // 10):
        call()
    before = used()
    for _ in range(number - number // 10):
        call()
    return used() - before


@pytest.mark.slow
@pytest.mark.parametrize("cell", [rk.SoftBounds(), rk.ChoppedTransfer()], ids=["soft", "chopped"])
def test_a_million_updates(cell):
    tile = rk.AnalogTile((4, 4), cell, seed=1)
    x, d = (RNG.uniform(-1, 1, (1, 4)).astype(np.float32) for _ in range(2))
    assert run(lambda: tile.update(x, d, lr=0.01), 1_000_000) < 4096
    other = rk.AnalogTile.from_state(tile.state())
    for one in (tile, other):
        one.update(x, d, lr=0.01)
    assert plain(tile.state()) == plain(other.state())


@pytest.mark.slow
def test_a_hundred_thousand_steps_of_em():
    circuit = rk.Circuit(rk.circuits.hmm(4, 2, 3), seed=1)
    x = RNG.integers(0, 3, (8, 4))
    assert run(lambda: circuit.em_step(x), 100_000) < 4096
    assert np.isfinite(circuit.log_likelihood(x)).all()
