"""Analog tiles in a graph: the bits of `AnalogTile`, and tiles of any legal cut give them too."""

import numpy as np
import pytest
from tile_cut import run_cut

import rpukit as rk
from rpukit import tiled
from rpukit.errors import ParameterError
from rpukit.testing import assert_same_bits
from rpukit.tiled import ops

NOISY = rk.IOParameters(inp_noise=0.02, out_noise=0.05, out_noise_std=0.3, out_sto_round=True)
# Weights and inputs that need several rounds of bound management
TIGHT = rk.IOParameters(out_bound=0.4, bound_management="iterative_worst_case")
TILES = {
    "constant": (rk.ConstantStep(dw_min=0.01), rk.IOParameters(out_bound=0.5), {"desired_bl": 50}),
    "soft": (rk.SoftBounds(dw_min=0.01), TIGHT, {"pulse_type": "MEAN_COUNT"}),
    "ideal": (rk.Ideal(), rk.IOParameters(is_perfect=True), {}),
}


def make(name, shape, seed):
    cell, io, update = TILES[name]
    parameters = rk.UpdateParameters(**update)
    tile = rk.AnalogTile(shape, cell, forward=io, backward=NOISY, update=parameters, seed=seed)
    rng = np.random.default_rng(seed)
    return tile.set_weights(rng.uniform(-0.3, 0.3, shape).astype(np.float32))


def built(name):
    """Two tiles with a rectifier between, data for three steps, and the tiles themselves."""
    tiles = [make(name, (9, 12), 3), make(name, (5, 9), 4)]
    b = tiled.Builder("analog")
    h = b.apply("Relu", b.analog(b.input("x", (6, 12)), tiles[0], lr=0.1, name="first"), name="h")
    y = b.analog(h, tiles[1], lr=0.2, name="second")
    loss = b.apply("MSELoss", y, b.input("t", (6, 5)), name="loss")
    rng = np.random.default_rng(1)
    steps = [(rng.normal(size=(6, 12)), rng.normal(size=(6, 5))) for _ in range(3)]
    steps[0][0][2] = 0  # a sample of nothing
    return b.training(loss), [(x.astype("f4"), t.astype("f4")) for x, t in steps], tiles


@pytest.mark.parametrize("name", TILES)
def test_a_graph_of_tiles_has_the_bits_of_tiles(name):
    training, steps, tiles = built(name)
    assert training.parameters == training.accumulators == ()
    graph, kept = training.train, {key: training.initial[key] for key in training.kept}
    rng = np.random.default_rng(2)
    for x, t in steps:
        values = {**kept, **graph.constants, "x": x, "t": t}
        done = graph.run({**kept, "x": x, "t": t})
        # The same, node by node, each in tiles of some legal cut
        values = {key: value.copy() for key, value in values.items()}
        for node in graph.nodes:
            assert isinstance(ops.find(node.op), ops.Tiled)
            run_cut(node, graph.tensors, values, rng)
        h = np.maximum(tiles[0].forward(x), 0)
        y = tiles[1].forward(h)
        d = (y - t) + (y - t)
        d = d / np.float32(d.size)
        d_h = np.where(h > 0, tiles[1].backward(d), np.float32(0))
        tiles[1].update(h, d, lr=0.2)
        tiles[0].update(x, d_h, lr=0.1)
        for key, value in done.items():
            assert_same_bits(values[key], value)
        for tile, key in zip(tiles, ("first", "second"), strict=True):
            assert_same_bits(done[f"{key}.weight_updated"], np.asarray(tile))
            assert int(done[f"{key}.forward_clock_updated"][0]) == tile.clocks["forward"]
        kept = {home: done[output] for output, home in graph.aliases.items() if output in done}
    assert (kept["first.weight"] != training.initial["first.weight"]).mean() > 0.2
    assert_same_bits(training.initial["first.weight"], np.asarray(make(name, (9, 12), 3)))


def test_tiles_that_have_no_ops_are_refused():
    b = tiled.Builder("analog")
    x = b.input("x", (6, 12))
    for tile in (
        rk.AnalogTile((9, 12), rk.Reference(devices=(rk.SoftBounds(),))),
        rk.AnalogTile((9, 12), rk.ExpStep(write_noise_std=0.1)),
        rk.AnalogTile((9, 12), rk.Ideal(), forward=rk.IOParameters(w_noise=0.1)),
        rk.AnalogTile((9, 12), rk.Ideal(), backward=rk.IOParameters(ir_drop=1.0)),
        rk.AnalogTile((9, 12), rk.SoftBounds(), update=rk.UpdateParameters(pulse_type="none")),
        rk.AnalogTile((9, 12), rk.Ideal(), dtype=np.float64),
        np.ones((9, 12)),
    ):
        with pytest.raises(ParameterError):
            b.analog(x, tile, lr=0.1, name="tile")
    with pytest.raises(rk.errors.GraphError):
        b.analog(x, rk.AnalogTile((9, 11), rk.Ideal()), lr=0.1, name="tile")
