"""Analog tiles of tiled training whose outputs meet a bound, or just do not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import rpukit as rk
from rpukit import tiled
from rpukit.tiled import ops
from rpukit.tiled.runtime.reference import run as compute
from tests.golden.cases.case import Case
from tests.golden.cases.edges.tiles import eighths
from tests.golden.cases.tiled import whole_node

PLAIN = {"noise_management": "none", "inp_res": -1, "out_noise": 0.0}
ONE = {**PLAIN, "bound_management": "none"}
IO = {
    "ties": rk.IOParameters(out_bound=0.5, out_res=0.25, **PLAIN),
    "met": rk.IOParameters(out_bound=0.5, out_res=-1, **ONE),
    "turned": rk.IOParameters(out_asymmetry=1.5, out_res=-1, **ONE),
    "unbounded": rk.IOParameters(out_bound=0.0, out_res=-1, max_bm_factor=4),
    "never": rk.IOParameters(out_bound=1e-3, out_res=-1, max_bm_factor=4),
    "rounded": rk.IOParameters(out_sto_round=True, **ONE),
    "noise": rk.IOParameters(inp_noise=0.1, out_res=-1, bound_management="none"),
}
SIZES = (24, 9, 5)  # samples, inputs, outputs


def outputs(io, device):
    """Output tiles, and all other analog ones, of a network of one layer."""
    n, n_in, n_out = SIZES
    tile = rk.AnalogTile((n_out, n_in), rk.Ideal(), forward=io, backward=io, seed=131)
    tile.set_weights(eighths((n_out, n_in), 132))
    b = tiled.Builder("analog")
    y = b.analog(b.input("x", (n, n_in)), tile, lr=0.1, name="layer")
    training = b.training(b.apply("MSELoss", y, b.input("t", (n, n_out)), name="loss"))
    x, t = eighths((n, n_in), 133), eighths((n, n_out), 134)
    x[2], x[3, 1:] = 0, 0
    inputs = {key: training.initial[key] for key in training.kept} | {"x": x, "t": t}
    values, found = {**compute(training.train, inputs), **inputs}, []
    for node in training.train.nodes:
        if ops.find(node.op).kernel.startswith("tiled_analog_"):
            found += whole_node(training.train, node, values, device)
    return found


def cases() -> Iterator[tuple[str, Case]]:
    for name, io in IO.items():
        yield "tiled_analog_outputs", Case(f"edges-{name}", partial(outputs, io))
