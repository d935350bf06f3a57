"""Products of long sums, of the largest and of tiny numbers; planes of inference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import numpy as np

import rpukit as rk
from rpukit import _device
from rpukit.analog.arrays import mixed_precision_ops
from rpukit.circuits.ops import em as steps
from rpukit.circuits.ops import sum_tensor_core
from rpukit.inference.training import ops as training
from rpukit.random import Op
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import made, uniform
from tests.golden.cases.inference import inference_tile

BARE = {"inp_res": -1, "out_res": -1, "out_noise": 0.0, "bound_management": "none"}
LONG = 16384 + 5  # inputs of more than a segment of a sum
PERIPHERY = {  # sums of several stages, without rounding
    "read": rk.IOParameters(w_noise=20.0, w_noise_type="additive_constant", **BARE),
    "pcm": rk.IOParameters(w_noise=20.0, w_noise_type="pcm_read", **BARE),
    "average": rk.IOParameters(noise_management="average_abs_max", **BARE),
    "signs": rk.IOParameters(mv_type="pos_neg_separate", ir_drop=3.0, **BARE),
    "dropped": rk.IOParameters(ir_drop=3.0, **BARE),
    # a sample of zeros has outputs
    "noise": rk.IOParameters(inp_noise=0.1, **BARE),
    "much_dropped": rk.IOParameters(ir_drop=3.0, ir_drop_g_ratio=30.0, **BARE),
    "offset": rk.IOParameters(v_offset_std=0.2, r_series=0.3, v_offset_w_min=0.0, **BARE),
    "noise_dropped": rk.IOParameters(inp_noise=0.1, ir_drop=3.0, **BARE),
}


def signed(shape, seed, dtype="float32"):
    return (uniform(shape, seed) * 2 - 1).astype(dtype)


def product(shape, n, io, dtype, device):
    """Forward and backward, of one sample and of some, the first of them zeros."""
    tile = rk.AnalogTile(
        shape, rk.Ideal(), forward=io, backward=io, device=device, seed=101, dtype=dtype
    )
    tile.set_weights(put(signed(shape, 102, dtype), device))
    x, d = (signed((n, k), 103 + k, dtype) for k in shape[::-1])
    x[0], d[0] = 0, 0
    x, d = put(x, device), put(d, device)
    return [tile.forward(x), tile.backward(d), tile.forward(x[1:2]), tile.backward(d[1:2])]


def forward(shape, n, io, dtype, device):
    tile = rk.AnalogTile(shape, rk.Ideal(), forward=io, device=device, seed=104, dtype=dtype)
    tile.set_weights(put(signed(shape, 105, dtype), device))
    return [tile.forward(put(signed((n, shape[1]), 106, dtype), device))]


def least(shape, dtype, device):
    """Products that are all below the smallest number, and negative: sums are -0."""
    io = rk.IOParameters(is_perfect=True)
    tile = rk.AnalogTile(
        shape, rk.Ideal(), forward=io, backward=io, device=device, seed=107, dtype=dtype
    )
    tiny = np.sqrt(np.finfo(dtype).tiny) / 2**40
    tile.set_weights(put(np.full(shape, -tiny, dtype), device))
    x, d = (put(np.full((3, k), tiny, dtype), device) for k in shape[::-1])
    return [tile.forward(x), tile.backward(d)]


def shrunk(dtype, device):
    """Outputs of the least number, which the asymmetry makes -0, and which get no noise."""
    io = rk.IOParameters(noise_management="none", ir_drop=1e-3, out_asymmetry=0.7, **BARE)
    tile = rk.AnalogTile((37, 1), rk.Ideal(), forward=io, device=device, seed=119, dtype=dtype)
    least = -np.nextafter(np.zeros((), dtype), np.ones((), dtype))
    tile.set_weights(put(np.full((37, 1), least), device))
    return [tile.forward(put(np.ones((2, 1), dtype), device))]


def largest(n, io, device):
    """The largest number is finite."""
    tile = rk.AnalogTile((37, 41), rk.Ideal(), forward=io, device=device, seed=108)
    tile.set_weights(put(signed((37, 41), 109), device))
    x = signed((n, 41), 110)
    x[n - 1, 40] = np.finfo(np.float32).max
    return [tile.forward(put(x, device))]


def stuck(device):
    """Devices that are stuck at any conductance of a range that does not begin at 0."""
    modifier = rk.inference.WeightModifier(
        type="noise_model", t=3600.0, p_low=0.2, p_high=0.2, p_any=0.5
    )
    options = {"converter": rk.inference.SinglePair(g_min=0.37), "modifier": modifier}
    tile = inference_tile((13, 37), device, 111, **options)
    for _ in range(2):
        tile.post_step()
    return [tile.get_weights()]


def drifted(device):
    """Pairs whose significance is no power of two."""
    pairs = rk.inference.NPairs(factors=(1, 3))
    tile = inference_tile((13, 37), device, 118, converter=pairs).program()
    return [tile.drift_to(86400.0, number=3).get_weights()]


def between(device):
    """Stochastic rounding of weights that end at, or next to, the middle of two steps."""
    stream, step, n = rk.Stream.from_seed(112), np.float32(0.1), 700
    u = rk.elementwise.random_fill(stream, (n,), "uniform", op=Op.MODIFY, sample=3, draw=1)
    middle = (np.arange(n) % 9 + 0.5 - (u.astype("f8") - 0.5)) * float(step)
    weight = middle.astype(np.float32)
    weight += (np.arange(n) % 7 - 3).astype(np.float32) * np.spacing(weight)
    weight, out = put(weight, device), put(np.zeros(n, np.float32), device)
    status = put(np.zeros(1, np.int32), device)
    change = training.Modification(kind=3, step=float(step), spread=True)
    how = {"stream": stream, "event": 3, "status": status, "out": out}
    training.modify_weights(weight, put(np.ones(1, np.float32), device), change, **how)
    return [out]


def quantised(dtype, device):
    """Rows of zeros and of numbers whose step is 0."""
    v, found = signed((5, 37), 113, dtype), []
    v[1], v[2], v[3, ::2] = 0, np.nextafter(np.zeros((), dtype), np.ones((), dtype)), 0
    status = put(np.zeros(1, np.int32), device)
    for stochastic in (False, True):
        how = {"op": Op.UPDATE_X, "stochastic": stochastic, "first_sample": 3, "status": status}
        how["stream"] = rk.Stream.from_seed(114)
        found.append(mixed_precision_ops.quantise_rows(put(v, device), 16, **how))
    return found


def counted(device):
    """Weights of samples of many sizes, whose sum depends on its order."""
    xp = np if device == "cpu" else _device.cupy()
    held = SimpleNamespace(clock=xp.full((1,), 7, np.int64), weighed=xp.full((1,), 0.1))
    out = uniform((700, 1), 116)
    weights = np.ldexp(uniform((700, 1), 117), np.arange(700)[:, None] % 90)
    steps.count_samples(held, put(out, device), put(weights.astype(np.float32), device))
    return [held.clock, held.weighed]


def rounded(precision, device):
    """Words of weights whose lines end before a multiple of eight."""
    state = made(lambda: rk.circuits.hmm(3, 6, 5), "float32")
    state["header"]["precision"] = precision
    own = rk.Circuit.from_state(state, device)._core.parameters
    words = sum_tensor_core.rounded_weights(own.uses, own.device, split=precision == "bf16x3")
    sum_tensor_core.round_weights(own.uses, own.theta, words)
    return [words.words]


def cases() -> Iterator[tuple[str, Case]]:
    for name in ("read", "pcm", "average", "noise"):
        run = partial(product, (36, 1304), 4, PERIPHERY[name], "float32")
        yield "tile_forward", Case(f"stages-{name}-float32", run)
    for kernel, dtype, names in (
        ("tile_nonideal", "float32", ("much_dropped", "noise_dropped", "offset")),
        ("tile_product", "float64", ("average", "much_dropped")),
    ):
        for name in names:
            run = partial(product, (20, 37), 4, PERIPHERY[name], dtype)
            yield kernel, Case(f"stages-{name}-{dtype}", run)
    for kernel, dtype, names in (
        ("tile_forward", "float32", ("read",)),
        ("tile_nonideal", "float32", ("signs", "dropped")),
        ("tile_product", "float64", ("dropped",)),
    ):
        for name in names:
            run = partial(forward, (3, LONG), 1, PERIPHERY[name], dtype)
            yield kernel, Case(f"segments-{name}-{dtype}", run)
    odd = partial(product, (33, 1029), 3, PERIPHERY["noise"], "float32")
    yield "tile_forward", Case("stages-odd-float32", odd)
    many = partial(product, (20, 37), 40, PERIPHERY["read"], "float32")
    yield "tile_forward", Case("stages-many-float32", many)
    tall = partial(product, (300, 20), 3, PERIPHERY["read"], "float32")
    yield "tile_forward", Case("stages-tall-float32", tall)
    yield "tile_forward", Case("least-long-float32", partial(least, (3, 300), "float32"))
    yield "tile_nonideal", Case("shrunk-float32", partial(shrunk, "float32"))
    for kernel, n in (("tile_forward", 3), ("tile_scale", 11)):
        yield kernel, Case(f"finite-{n}", partial(largest, n, rk.IOParameters()))
    yield "program_conductance", Case("stuck-any", stuck)
    yield "modify_weights", Case("between", between)
    yield "drift_conductance", Case("thrice", drifted)
    yield "count_samples", Case("wide", counted)
    yield "round_weights", Case("lines-bf16x3", partial(rounded, "bf16x3"))
    yield "quantise_rows", Case("steps-float64", partial(quantised, "float64"))
