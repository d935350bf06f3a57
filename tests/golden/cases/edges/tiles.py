"""Tiles at the edge of their numbers: zeros, ties, bounds that are met, few cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit.analog import deferred_errors
from rpukit.analog.arrays import compound_ops
from rpukit.analog.update.ops import pulse_trains
from rpukit.inference.training.ops import add_scaled
from tests.golden.cases.case import Case, batch, put
from tests.golden.cases.circuits import uniform
from tests.golden.cases.inference import MODIFIERS, inference_tile, modified
from tests.golden.cases.tiles import UPDATES

SHAPE = (13, 37)
ROUGH = {"discretize": {"res": 0.25, "sto_round": False}, "dorefa": {"res": 0.25}}
EXACT = rk.UpdateParameters(pulse_type="none_with_device")
AGED = {
    "decay": (
        rk.SoftBounds(dw_min=0.01, lifetime=40, lifetime_dtod=0.3),
        lambda t: t.decay(0.7),
    ),
    "drift": (
        rk.ConstantStep(
            drift=rk.DriftParameters(nu=0.1, nu_k=0.02, g_offset=0.37, reset_tol=1e-7)
        ),
        lambda t: t.drift(70),
    ),
    "drift_at_nothing": (  # a conductance of 0
        rk.ConstantStep(drift=rk.DriftParameters(nu=0.1, nu_k=0.02, w_offset=0.25, g_offset=0.0)),
        lambda t: t.drift(70),
    ),
    "drift_at_once": (
        rk.ConstantStep(drift=rk.DriftParameters(nu=0.1, nu_k=0.02, reset_tol=0.0)),
        lambda t: t.drift(70),
    ),
    "clip_weights": (
        rk.SoftBounds(dw_min=0.01, w_min=0.0, w_min_dtod=0.0),
        lambda t: t.set_weights(-t.get_weights()),
    ),
}
IO = {
    "rounded": rk.IOParameters(inp_res=0.125, out_res=0.25, out_noise=0.0, out_bound=1.0),
    "met": rk.IOParameters(
        inp_bound=0.5,
        noise_management="none",
        bound_management="none",
        out_noise=0.0,
        out_bound=1.0,
    ),
    "off": rk.IOParameters(inp_res=0.0, out_res=0.0, out_bound=0.0, out_noise=0.0, ir_drop=0.5),
    "bare": rk.IOParameters(
        inp_res=0.0,
        out_res=0.0,
        inp_bound=0.0,
        out_bound=0.0,
        out_noise=0.0,
        noise_management="none",
        bound_management="none",
    ),
    "turned": rk.IOParameters(
        inp_asymmetry=1.5,
        out_asymmetry=1.5,
        out_noise=0.0,
        noise_management="none",
        bound_management="none",
    ),
    "noisy": rk.IOParameters(
        w_noise=0.02, w_noise_type="additive_constant", out_res=0.0, out_noise=0.3, inp_res=0.0
    ),
    "analog": rk.IOParameters(
        inp_res=-1, out_res=-1, out_bound=0.0, ir_drop=2.0, v_offset_std=0.05, r_series=0.01
    ),
    "signs": rk.IOParameters(
        mv_type="pos_neg_separate", inp_res=-1, out_res=-1, out_bound=0.0, ir_drop=1.0
    ),
    "sums": rk.IOParameters(noise_management="abs_max_np_sum", inp_res=-1, nm_thres=0.3),
    "constant": rk.IOParameters(noise_management="constant", nm_thres=0.0),
    "constant_low": rk.IOParameters(noise_management="constant", nm_thres=0.4),
    "positive": rk.IOParameters(out_noise=0.25, out_bound=0.5, bm_test_negative_bound=False),
}


def eighths(shape, seed):
    """Multiples of 1/8 from -1 to 1, zeros of both signs among them."""
    drawn = np.floor(uniform(shape, seed) * np.float32(17)) / np.float32(8) - np.float32(1)
    drawn.reshape(-1)[1::7] = np.float32(-0.0)
    return drawn


def aged(cell, step, dtype):
    def run(device):
        tile = rk.AnalogTile(SHAPE, cell, device=device, seed=51, dtype=dtype)
        tile.set_weights(put(eighths(SHAPE, 52).astype(dtype), device))
        for _ in range(3):
            step(tile)
        return [tile.get_weights()]

    return run


def product(io, dtype):
    def run(device):
        tile = rk.AnalogTile(
            SHAPE, rk.Ideal(), forward=io, backward=io, device=device, seed=53, dtype=dtype
        )
        tile.set_weights(put((eighths(SHAPE, 54) / 4).astype(dtype), device))
        x, d = (eighths((6, n), 55 + n).astype(dtype) for n in SHAPE[::-1])
        x[2], d[3] = 0, 0
        x, d = put(x, device), put(d, device)
        late = tile.forward(x[:1], first_sample=2**33 + 5)
        return [tile.forward(x), tile.backward(d), late]

    return run


def late(dtype):
    """Updates by a few samples whose numbers need more than 32 bits."""

    def run(device):
        found = []
        for name in ("rounded", "managed"):
            tile = rk.AnalogTile(
                SHAPE,
                rk.SoftBounds(dw_min=0.02),
                device=device,
                seed=76,
                dtype=dtype,
                update=UPDATES[name],
            )
            x, d = (put(v.astype(dtype), device) for v in batch(SHAPE, 5, 77))
            tile.update(x, d, lr=0.3, first_sample=2**40 + 7)
            found.append(tile.get_weights())
        return found

    return run


def added(shape, large, cell, dtype):
    """Exact updates of few cells by many samples; large ones leave the range of the type."""

    def run(device):
        tile = rk.AnalogTile(shape, cell, device=device, seed=57, dtype=dtype, update=EXACT)
        x, d = (v.astype(dtype) for v in batch(shape, 290, 58))
        lr, x = (20.0, x * (np.finfo(dtype).max / 10)) if large else (0.1, x)
        x, d = put(x, device), put(d, device)
        tile.update(x, d, lr=lr).update(x[:3], d[:3], lr=-lr)
        return [tile.get_weights()]

    return run


def scaled(device):
    part, out = (put(uniform(SHAPE, seed), device) for seed in (61, 62))
    status = put(np.zeros(1, np.int32), device)
    for by, n in (("columns", SHAPE[1]), ("rows", SHAPE[0])):
        scale = put(uniform((n,), 63), device)
        add_scaled(part, scale, out, by=by, add=True, status=status)
    return [out]


def refreshed(device):
    chosen, status = (put(np.zeros(n, k), device) for n, k in ((SHAPE, "f4"), (1, "i4")))
    plus, minus = (
        put(np.floor(uniform((25, SHAPE[0]), s) * np.float32(4)) / np.float32(4), device)
        for s in (64, 65)
    )
    rises = compound_ops.select_refresh(chosen, plus, minus, 12, 0.75, 0.25, status=status)
    return [chosen, *rises]


def checked(dtype):
    def run(device):
        found, kind = [], np.finfo(dtype)
        for value in (kind.max, -kind.max, kind.tiny / 4, -np.inf):
            x = np.full(257, value, dtype)
            status = put(np.zeros(1, np.int32), device)
            deferred_errors.check_finite(put(x, device), status=status, call=5)
            found.append(status)
        return found

    return run


def rounded(options, size):
    """Weights in the middle between two steps; weights of 0."""

    def run(device):
        tile = inference_tile(SHAPE, device, 66, modifier=rk.inference.WeightModifier(**options))
        tile.set_weights(put(eighths(SHAPE, 67) * np.float32(size), device))
        return [tile.post_step().get_weights()]

    return run


def fired(dtype):
    """Trains of the largest number, of zeros and of subnormal numbers."""

    def run(device):
        x, d = (v.astype(dtype) for v in batch(SHAPE, 9, 74))
        kind = np.finfo(dtype)
        x[0, 0], d[1, 1], x[2], d[3], x[4, :9] = kind.max, -kind.max, 0, 0, kind.tiny / 2**20
        found = []
        for parameters in UPDATES.values():
            status = put(np.zeros(1, np.int32), device)
            stream = rk.Stream.from_seed(75)
            trains = pulse_trains(
                *(put(v, device) for v in (x, d)),
                *(0.1, 0.01, parameters),
                stream=stream,
                first_sample=2**40,
                status=status,
            )
            found += [trains.x, trains.d, status]
        return found

    return run


def quantised(dtype):
    """Samples of zeros, and of subnormal numbers."""

    def run(device):
        cell = rk.MixedPrecision(device=rk.SoftBounds(dw_min=0.02), n_x_bins=16, n_d_bins=9)
        tile = rk.AnalogTile(SHAPE, cell, device=device, seed=68, dtype=dtype)
        x, d = (v.astype(dtype) for v in batch(SHAPE, 7, 69))
        least = np.nextafter(np.zeros((), dtype), np.ones((), dtype))
        x[1], d[2], x[3], d[4] = 0, 0, least, least
        tile.update(put(x, device), put(d, device), lr=0.3)
        arrays = tile.state()["arrays"]
        return [arrays[name] for name in sorted(arrays)]

    return run


def followed(dtype):
    """Running maxima that rise and fall."""

    def run(device):
        cell = rk.ChoppedTransfer(
            devices=(rk.SoftBounds(dw_min=0.02), rk.ConstantStep(dw_min=0.01)),
            auto_scale=True,
            auto_momentum=0.7,
            fast_lr=0.2,
            in_chop_prob=0.2,
        )
        tile = rk.AnalogTile(SHAPE, cell, device=device, seed=71, dtype=dtype)
        x, d = (v.astype(dtype) for v in batch(SHAPE, 19, 72))
        x *= np.arange(19, dtype=dtype)[:, None] % 5 / 7
        d[:3] = 0
        x, d = put(x, device), put(d, device)
        tile.update(x, d, lr=0.3).update(x, d, lr=0.3, first_sample=2**40 + 7)
        arrays = tile.state()["arrays"]
        return [arrays[name] for name in sorted(arrays)]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    for dtype in ("float32", "float64"):
        for kernel, (cell, step) in AGED.items():
            kernel, _, more = kernel.partition("_at_")
            yield kernel, Case(f"edges{more}-{dtype}", aged(cell, step, dtype))
        yield "check_finite", Case(f"largest-{dtype}", checked(dtype))
        yield "pulsed_samples", Case(f"late-{dtype}", late(dtype))
        yield "pulse_trains", Case(f"largest-{dtype}", fired(dtype))
        yield "quantise_rows", Case(f"zeros-{dtype}", quantised(dtype))
        for kernel in ("auto_scale", "sample_maxima", "chop_samples", "transfer_write"):
            yield kernel, Case(f"followed-{dtype}", followed(dtype))
        for name, io in IO.items():
            kernel = "tile_nonideal" if name in ("analog", "signs", "off") else "tile_forward"
            kernel = kernel if dtype == "float32" else "tile_product"
            yield kernel, Case(f"{name}-{dtype}", product(io, dtype))
        for name, cell in (("free", rk.Ideal()), ("bounded", rk.SoftBounds(dw_min=0.1))):
            for shape in ((7, 33), (70, 1)):
                for large in (False, True):
                    at = f"{name}{'-large' * large}-{shape[0]}x{shape[1]}-{dtype}"
                    yield "rank_update", Case(at, added(shape, large, cell, dtype))
    yield "add_scaled", Case("added", scaled)
    yield "select_refresh", Case("ties", refreshed)
    for kind, options in MODIFIERS.items():
        for size in (0, 1):
            run = rounded({"type": kind, **options, **ROUGH.get(kind, {})}, size)
            yield "modify_weights", Case(f"{kind}-{size}-13x37", run)
    yield "program_conductance", Case("stuck-13x37", modified(SHAPE, "noise_model", 73))
