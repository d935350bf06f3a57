"""Analog tiles in a graph: the bits of `AnalogTile`, and tiles of any legal cut give them too."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import tiled
from rpukit.errors import ParameterError
from rpukit.testing import assert_same_bits
from rpukit.tiled import ops
from tests.tiled.analog_nets import TILES, built, make
from tests.tiled.cut_nodes import run_cut


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
