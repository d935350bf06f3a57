"""tile_forward, tile_scale and tile_outputs: bits of the mirror for every tile; the formula."""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.analog.product import launch as _launch_forward
from rpukit.analog.product import launch_shapes as _forward_tiles
from rpukit.analog.product import ops as forward
from rpukit.analog.product.stages import by_stages
from rpukit.random import Stream
from rpukit.testing import assert_same_bits, on_cpu

TILES = {tile.name: tile for tile in _forward_tiles.TILES}
IOS = {
    "default": rk.IOParameters(),
    "rounds": rk.IOParameters(
        out_bound=0.5, inp_noise=0.01, inp_sto_round=True, out_sto_round=True
    ),
    "worst_case": rk.IOParameters(out_bound=0.5, bound_management="iterative_worst_case"),
    "perfect": rk.IOParameters(is_perfect=True, out_scale=0.5),
    "additive": rk.IOParameters(w_noise=0.02, w_noise_type="additive_constant"),
    "pcm": rk.IOParameters(w_noise=0.02, w_noise_type="pcm_read", noise_management="max"),
}
# More of them than are forecast.
MANY_ROUNDS = {"max_bm_factor": 2**30, "inp_res": -1, "max_bm_res": 1e9}


def tile(shape, io, seed=0):
    made = rk.AnalogTile(shape, rk.Ideal(), forward=IOS[io], backward=IOS[io], seed=seed)
    rng = np.random.default_rng(seed)
    return made.set_weights(rng.uniform(-0.5, 0.5, shape).astype(np.float32))


def inputs(n, width, seed=1):
    x = np.random.default_rng(seed).uniform(-1, 1, (n, width)).astype(np.float32)
    if n > 2:
        x[1] = 0
    return x


def same_as_the_mirror(shape, n, io, order=0, ways=("forward", "backward")):
    plain, other = tile(shape, io), tile(shape, io)
    inputs_of = {"forward": inputs(n, shape[1]), "backward": inputs(n, shape[0])}
    with on_cpu(order):
        seen = [getattr(other, way)(inputs_of[way]) for way in ways]
    for got, way in zip(seen, ways, strict=True):
        assert_same_bits(got, getattr(plain, way)(inputs_of[way]))


@pytest.mark.sweep
@pytest.mark.parametrize("name", TILES)
def test_every_tile_gives_the_bits_of_the_mirror(name, order, monkeypatch):
    monkeypatch.setattr(forward, "pick", lambda _: TILES[name])
    ways = ("backward",) if name in ("flat", "wide", "large") else ("forward",)
    for shape, n in (((132, 260), 5), ((36, 68), 40)):
        same_as_the_mirror(shape, n, "rounds", order, ways)


def test_many_short_samples_take_blocks_of_fewer_threads(monkeypatch):
    io = rk.IOParameters(bound_management="none")
    monkeypatch.setitem(IOS, "plain", io)
    same_as_the_mirror((3, 40), 1100, "plain", ways=("forward",))
    manner = forward.ForwardState(io, 3, Stream.from_seed(0), _device.CPU).manner
    for n, threads in ((1100, 64), (1024, 256)):
        assert _launch_forward.scale_step(manner, n, 40, 0, {}).block == (threads,)


@pytest.mark.sweep
@pytest.mark.parametrize("io", IOS)
def test_every_periphery_gives_the_bits_of_the_mirror(io):
    same_as_the_mirror((132, 128), 35, io, ways=("backward" if io == "rounds" else "forward",))


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_sums_of_det_gemm(way, monkeypatch):
    """Of samples some fail, and one is zero."""
    monkeypatch.setattr(_launch_forward, "by_gemm", lambda *_: True)
    monkeypatch.setitem(IOS, "by_round", rk.IOParameters(out_bound=0.01, **MANY_ROUNDS))
    monkeypatch.setitem(IOS, "plain", rk.IOParameters(bound_management="none"))
    monkeypatch.setitem(IOS, "lines", rk.IOParameters(inp_noise=0.1, out_noise_std=0.3))
    for io, shape, n in (
        ("rounds", (132, 260), 40),
        ("worst_case", (33, 31), 11),
        ("by_round", (33, 31), 11),
        ("lines", (33, 31), 11),
        ("plain", (2000, 1), 9),  # few words are passed between the kernels
    ):
        same_as_the_mirror(shape, n, io, 0, (way,))


@pytest.mark.parametrize("io", ["rounds", "worst_case"])
def test_rounds_whose_sums_are_made_elsewhere(io, order, monkeypatch):
    """tile_scale and tile_outputs round by round, for the samples that wait."""
    # What is not set looks like a sample that waits.
    monkeypatch.setattr(_device, "empty", lambda shape, dtype, *_: np.full(shape, 100, dtype))
    stream, n = Stream.from_seed(9), 11
    weight, x = tile((33, 31), io).get_weights(), inputs(n, 31)
    state, seen = forward.ForwardState(IOS[io], 33, stream, _device.CPU), []
    for context in (nullcontext(), on_cpu(order)):
        given = (np.empty((n, 33), np.float32), state.io, None, state.average)
        status = np.zeros(1, np.int32)
        call = _launch_forward.Call(
            state.manner, (n, 33, 31), weight, x, *given, status, 1, stream, 9
        )
        with context:
            by_stages(call, state.reductions, lambda v: (v[:, None] * weight).sum(2))
        seen.append(call.y)
    assert_same_bits(*seen)


@pytest.mark.parametrize("n_out", [7, 132, 1030])
def test_tile_outputs(n_out, order):
    """Converted sums: the bits of the mirror, and without noise the formula."""
    io = rk.IOParameters(out_noise=0, out_res=1 / 100, out_bound=6, bound_management="none")
    rng = np.random.default_rng(n_out)
    x, sums = inputs(5, 16), rng.normal(0, 3, (5, n_out)).astype(np.float32)
    for kind in (io, IOS["rounds"]):
        stream = Stream.from_seed(n_out)
        state = forward.ForwardState(kind, n_out, stream, _device.CPU)
        seen = []
        for emulated in (False, True):
            given = (x, sums.copy(), state.io, state.line_noise, state.average)
            call = _launch_forward.Call(
                state.manner, (5, n_out, 16), x, *given, np.zeros(1, np.int32), 1, stream, 9
            )
            with on_cpu(order) if emulated else nullcontext():
                seen.append(forward.tile_outputs(call, forward.tile_scale(call)))
        assert_same_bits(*seen)
        if kind is io:
            y = np.clip(np.round(sums.astype("f8") / 0.12) * 0.12, -6, 6)
            expected = y * abs(x).max(1, keepdims=True)
            close = abs(seen[0] - expected) < 1e-5  # but for ties
            assert close.mean() > 0.98
            assert not seen[0][1].any()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize(("n", "wires"), [(1, False), (5, False), (11, False), (3, True)])
def test_an_input_that_is_not_finite(n, wires, value, order):
    """The status is that of the call, and all outputs are 0, those of tile_nonideal too."""
    io = rk.IOParameters(out_noise_std=0.3, ir_drop=2.0 if wires else 0.0)
    weight, x, stream = tile((37, 41), "default").get_weights(), inputs(n, 41), Stream.from_seed(3)
    x[-1, -1] = value
    state, status = forward.ForwardState(io, 37, stream, _device.CPU), np.zeros(1, np.int32)
    how = {"stream": stream, "first_sample": 0, "state": state, "status": status, "call": 7}
    with on_cpu(order):
        y = forward.tile_forward(weight, x, io, **how)
    assert status[0] == 7
    assert_same_bits(y, np.zeros((n, 37), np.float32))


@pytest.mark.parametrize("name", ["wide", "square", "large"])
def test_blocks_that_convert_inputs_as_they_go(name, monkeypatch):
    """A running average leaves that to them: they have more threads than results for these."""
    monkeypatch.setattr(forward, "pick", lambda _: TILES[name])
    io = rk.IOParameters(noise_management="average_abs_max", bound_management="none")
    monkeypatch.setitem(IOS, "average", io)
    same_as_the_mirror((132, 68), 70, "average", 5)


@pytest.mark.parametrize("n", [1, 7, 33])
def test_shapes_that_no_tile_divides(n):
    same_as_the_mirror((33, 31), n, "default")


@pytest.mark.sweep
@pytest.mark.parametrize("n", [1, 3, 8, 9, 17, 32, 75])
@pytest.mark.parametrize("out_bound", [0.02, 0.45, 0.9, 1.2])
def test_further_rounds_at_once(n, out_bound, monkeypatch):
    """Few, some and all samples fail, at once in the first round and until the last."""
    if n > 32:  # with a launch for few of them
        monkeypatch.setattr(forward, "pick", lambda _: _forward_tiles.SQUARE)
    if n >= 32:  # in two lots, and round by round
        monkeypatch.setattr(_launch_forward, "_LOT", 16)
    io = rk.IOParameters(out_bound=out_bound)
    plain, other = (
        rk.AnalogTile((132, 128), rk.Ideal(), forward=io).set_weights(
            np.random.default_rng(4).uniform(-0.1, 0.1, (132, 128)).astype(np.float32)
        )
        for _ in range(2)
    )
    x = inputs(n, 128)
    with on_cpu():
        got = other.forward(x)
    assert_same_bits(got, plain.forward(x))


@pytest.mark.parametrize("n", [1, 6, 20, 40, 70])
@pytest.mark.parametrize("management", ["abs_max", "none"])
def test_forecasts_of_rounds(n, management):
    """Of late rounds; those of inputs that were clipped do not come true."""
    io = rk.IOParameters(out_bound=0.3, noise_management=management)
    w = np.random.default_rng(6).uniform(0, 0.1, (132, 128)).astype(np.float32)
    w[:, ::7] *= -1
    plain, other = (
        rk.AnalogTile(w.shape, rk.Ideal(), forward=io).set_weights(w) for _ in range(2)
    )
    x = abs(inputs(n, 128)) * np.float32(1 if management == "abs_max" else 6)
    with on_cpu():
        got = other.forward(x)
    assert_same_bits(got, plain.forward(x))


@pytest.mark.parametrize("n", [5, 20])
def test_less_shared_memory_makes_smaller_stages(n, monkeypatch):
    limit = 99 * 1024
    for name in TILES:
        small = _forward_tiles.fitted(TILES[name], limit)
        assert small.stages >= 3
        assert max(small.shared(False), small.shared(True)) < limit
        assert _forward_tiles.fitted(TILES[name], 227 * 1024) is TILES[name]
    monkeypatch.setattr(_launch_forward, "shared_limit", lambda _: limit)
    same_as_the_mirror((36, 260), n, "rounds", ways=("forward",))


def test_a_sum_longer_than_a_segment():
    made = rk.AnalogTile(
        (3, 16384 + 5), rk.Ideal(), forward=rk.IOParameters(is_perfect=True), seed=2
    )
    w = np.random.default_rng(3).standard_normal(made.shape).astype(np.float32)
    made.set_weights(w)
    x = inputs(9, made.shape[1])
    one, many = np.concatenate([made.forward(x[:1]), made.forward(x[1:2])]), made.forward(x)
    assert_same_bits(one, many[:2])  # two mirrors of one definition
    with on_cpu():
        assert_same_bits(made.forward(x), many)
    bound = 16400 * np.finfo(np.float32).eps * (abs(x).astype("f8") @ abs(w.T).astype("f8"))
    assert (abs(many - x.astype("f8") @ w.T.astype("f8")) <= bound).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_formula(transposed):
    """One noise-free product with conversion, in float64."""
    io = rk.IOParameters(
        out_noise=0, inp_res=1 / 30, out_res=1 / 100, out_bound=6, bound_management="none"
    )
    made = rk.AnalogTile((9, 14), rk.Ideal(), forward=io, backward=io)
    w = np.random.default_rng(5).uniform(-1, 1, (9, 14)).astype(np.float32)
    made.set_weights(w)
    x = inputs(40, 9 if transposed else 14)
    alpha = np.maximum(abs(x).max(1, keepdims=True), 1e-30)
    v = np.round(x / alpha / (2 / 30)) * (2 / 30)
    y = np.clip(np.round(v @ (w if transposed else w.T) / 0.12) * 0.12, -6, 6) * alpha
    got = (made.backward if transposed else made.forward)(x)
    # float32: values near a tie may be rounded to the other side, one step of a converter away
    assert (abs(got - y) < 1e-5).mean() > 0.98
    assert (
        abs(got - y).max() <= 0.12 * 1.01 + 2 / 30 * abs(w).sum(1 if not transposed else 0).max()
    )


def test_zeros_stay_zero_and_small_inputs_stay_finite():
    made = tile((5, 7), "default")
    x = np.zeros((4, 7), np.float32)
    x[1:] = np.array([1e-38, 1e-42, 1e-45], np.float32)[:, None]
    with np.errstate(over="ignore"):
        y = made.forward(x)
    assert (y[0] == 0).all() and np.isfinite(y).all()


def test_average_abs_max_follows_the_samples_in_order():
    io = rk.IOParameters(noise_management="average_abs_max")
    x = inputs(30, 7)
    results = []
    for cuts in ((30,), (10, 20), (1,) * 30):
        made = rk.AnalogTile((5, 7), rk.Ideal(), forward=io).set_weights(
            np.full((5, 7), 0.3, np.float32)
        )
        edges = np.cumsum((0, *cuts))
        results.append(np.concatenate([made.forward(x[a:b]) for a, b in pairwise(edges)]))
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])
