"""Clocks beyond 2^32 and at 2^48: no half of a counter is lost, and no clock turns over."""

from itertools import pairwise

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors
from rpukit.testing import assert_same_bits, on_cpu
from tools.fuzz_files import plain

END = 1 << 48
EVENTS = (
    "refresh",
    "transfers",
    "transfers_0",
    "transfers_1",
    "write_noise",
    "diffusion",
    "reset",
)
NOISE = rk.IOParameters(inp_noise=0.01, out_noise_std=0.1)
DEVICE = rk.SoftBounds(dw_min=0.02, dw_min_std=0.3, diffusion=0.01)
CELLS = {
    "soft_bounds": DEVICE,
    "power": rk.PowStep(dw_min=0.02, write_noise_std=0.5),
    "one_sided": rk.OneSided(
        device=rk.SoftBounds(dw_min=0.05, w_min=0), refresh_every=3, units_in_mbatch=False
    ),
    "chopped": rk.ChoppedTransfer(devices=(DEVICE, DEVICE)),
    "mixed": rk.MixedPrecision(device=DEVICE),
}


def data(*shape):
    return np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)


def made(cell, at, events=None):
    """A tile whose sample clocks, and perhaps those of events, stand at a place."""
    state = rk.AnalogTile((4, 5), CELLS[cell], forward=NOISE, seed=3, count_pulses=True).state()
    clocks = state["header"]["clocks"]
    for name in clocks:
        if name in ("forward", "backward", "update"):
            clocks[name] = at
        elif events is not None and name.split(".")[-1] in EVENTS:
            clocks[name] = events
    state["arrays"]["weight"][:] = 0
    return rk.AnalogTile.from_state(state)


def run(tile, cuts=()):
    """Learn and multiply, with the batch in pieces."""
    x, d = data(8, 5), data(8, 4)
    edges = [0, *cuts, 8]
    pairs = list(pairwise(edges))
    for a, b in pairs:
        tile.update(x[a:b], d[a:b], 0.1, batch_size=8)
    y = np.concatenate([tile.forward(x[a:b]) for a, b in pairs])
    g = np.concatenate([tile.backward(d[a:b]) for a, b in pairs])
    tile.diffuse()
    tile.reset(0, 2, 0.5)
    return plain((y, g, tile.state()))


@pytest.mark.sweep
@pytest.mark.parametrize("cell", CELLS)
def test_across_32_bits(cell):
    """A batch across 2^32 gives the bits of its two parts, and those of the kernels."""
    at = (1 << 32) - 3
    whole = run(made(cell, at, events=at))
    assert run(made(cell, at, events=at), cuts=(3,)) == whole
    with on_cpu(7):
        assert run(made(cell, at, events=at)) == whole
    assert run(made(cell, at - (1 << 32) + (1 << 33), events=at))[:2] != whole[:2]


@pytest.mark.sweep
@pytest.mark.parametrize("cell", CELLS)
def test_the_last_samples(cell):
    tile = made(cell, END - 8)
    whole = run(tile)
    assert {tile.clocks[name] for name in ("forward", "backward", "update")} == {END}
    with on_cpu(1):
        assert run(made(cell, END - 8)) == whole
    before = plain(tile.state())
    for call in (
        lambda: tile.update(data(1, 5), data(1, 4), 0.1),
        lambda: tile.forward(data(1, 5)),
        lambda: tile.backward(data(1, 4)),
    ):
        with pytest.raises(errors.ParameterError, match=r"would pass 2\*\*48"):
            call()
    assert plain(tile.state()) == before


@pytest.mark.parametrize("cell", CELLS)
def test_clocks_of_events_end(cell):
    tile = made(cell, 0, events=END - 1)
    before, refused = plain(tile.state()), 0
    for call in (
        lambda: tile.update(data(8, 5), data(8, 4), 0.1),
        tile.diffuse,
        lambda: tile.reset(0, 2),
        lambda: tile.set_weights(data(4, 5)),
    ):
        with pytest.raises(errors.ParameterError, match=r"ends at 2\*\*48"):
            call()
        refused += 1
    assert refused == 4
    assert plain(tile.state()) == before
    # Not the clocks of this update, at which more than enough is left
    assert run(made(cell, 0, events=END // 8))


@pytest.mark.parametrize("start", [(1 << 32) - 3, (1 << 53) + 1])
def test_counts_of_pulses_beyond_32_bits(start):
    results = []
    for kernels in (False, True):
        state = made("soft_bounds", 0).state()
        state["arrays"]["n_pulses"][:] = start
        state["arrays"]["pulse_counts"][:] = start
        tile = rk.AnalogTile.from_state(state)
        with on_cpu(0) if kernels else np.errstate():
            tile.update(data(8, 5), data(8, 4), 0.1)
        results.append((tile.n_pulses - start, int((tile.pulse_counts - start).sum())))
    assert results[0] == results[1]
    assert results[0][0] == results[0][1] > 3


def test_inference_tiles():
    noise = rk.inference.WeightModifier(type="ADD_NORMAL", std_dev=0.1)

    def at(**clocks):
        state = rk.InferenceTile((4, 5), modifier=noise, forward=NOISE, seed=3).state()
        state["header"]["clocks"].update(clocks)
        return rk.InferenceTile.from_state(state).set_weights(data(4, 5))

    x, start = data(8, 5), (1 << 32) - 3
    whole = at(forward=start).forward(x)
    tile = at(forward=start)
    assert_same_bits(np.concatenate([tile.forward(x[:3]), tile.forward(x[3:])]), whole)
    assert (at(forward=start & 0xFF).forward(x) != whole).any()
    tile = at(forward=END - 8, modify=END - 2, program=END - 2)
    tile.forward(x)
    tile.post_step()
    tile.program()
    before = plain(tile.state())
    for call in (lambda: tile.forward(x[:1]), tile.post_step, tile.program):
        with pytest.raises(errors.ParameterError, match=r"2\*\*48|to 281474976710654"):
            call()
    assert plain(tile.state()) == before


def test_draws_of_circuits():
    def at(n_drawn):
        state = rk.Circuit(rk.circuits.hmm(4, 3, 6), seed=1).state()
        state["header"]["n_drawn"] = n_drawn
        return rk.Circuit.from_state(state)

    start = (1 << 32) - 3
    whole, pc = at(start).sample(8), at(start)
    assert_same_bits(np.concatenate([pc.sample(3), pc.sample(5)]), whole)
    with on_cpu(7):
        assert_same_bits(at(start).sample(8), whole)
    assert (at((1 << 33) - 3).sample(8) != whole).any()
    pc = at(END - 8)
    pc.sample(8)
    with pytest.raises(errors.ParameterError, match=r"2\*\*48"):
        pc.sample(1)


@pytest.mark.sweep
@pytest.mark.parametrize("start", [(1 << 32) - 3, (1 << 48) - 300])
def test_statistics_of_circuits(start):
    x = np.random.default_rng(2).integers(0, 6, (600, 4))

    def at(cuts, kernels=False):
        state = rk.Circuit(rk.circuits.hmm(4, 3, 6), seed=1).state()
        state["header"]["n_sample"] = start
        pc = rk.Circuit.from_state(state)
        with on_cpu(1) if kernels else np.errstate():
            for part in np.split(x, cuts):
                pc.accumulate(part)
        return plain(pc.state()["arrays"])

    assert at([1, 3, 44, 259]) == at([]) == at([7], kernels=True)
