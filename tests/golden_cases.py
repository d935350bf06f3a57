"""The cases behind the golden hashes: each computes arrays through the public face of the library.

``tools/record_golden.py`` runs them on a GPU and keeps their sha256 in ``tests/golden``;
``test_golden.py`` computes them with the mirrors, and the small ones with the ``.cu`` sources on
the CPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

import rpukit as rk
from rpukit import _device, elementwise
from rpukit.analog import deferred_errors as _guard
from rpukit.analog.arrays import compound_ops as combine

SIZES = ((1, 1), (31, 33), (33, 1), (13, 132), (67, 257))
SEEDS = (0, 12345)


@dataclass(frozen=True)
class Case:
    """One case: ``run(device)`` gives arrays on that device."""

    name: str
    run: Callable[[str], list]
    small: bool = field(default=True)


def put(array: np.ndarray, device: str):
    return _device.to_device(array, _device.parse_device(device))


def digest(arrays: list) -> str:
    """sha256 of types, shapes and bits."""
    h = hashlib.sha256()
    for a in (np.ascontiguousarray(_device.to_numpy(v)) for v in arrays):
        h.update(f"{a.dtype.str}{a.shape}".encode())
        h.update(a.tobytes())
    return h.hexdigest()


def batch(shape, n, seed):
    """Inputs made by integers and exact divisions, the same on any NumPy."""
    s = rk.Stream.from_seed(seed)
    x = elementwise.random_fill(s.child(1), (n, shape[1]), "uniform") * 2 - 1
    d = (elementwise.random_fill(s.child(2), (n, shape[0]), "uniform") - np.float32(0.5)) / 2
    x[np.abs(x) < np.float32(0.2)] = 0
    return x, d


CELLS = {
    "ideal": rk.Ideal(lifetime=50, diffusion=0.01),
    "constant": rk.ConstantStep(
        dw_min=0.01, lifetime=40, diffusion=0.01, reset=0.1, reset_dtod=0.1
    ),
    "drifting": rk.ConstantStep(
        drift=rk.DriftParameters(
            nu=0.1,
            nu_dtod=0.2,
            nu_std=0.3,
            nu_k=0.02,
            g_offset=1.0,
            w_noise_std=0.01,
        )
    ),
    "vector": rk.Vector(
        devices=(rk.ConstantStep(dw_min=0.01), rk.SoftBounds(dw_min=0.02)),
        update_policy="SINGLE_RANDOM",
        gamma_vec=(0.7, 0.3),
    ),
    "one_sided": rk.OneSided(
        device=rk.SoftBounds(dw_min=0.02, w_min=0),
        refresh_every=13,
        units_in_mbatch=False,
        refresh_upper_thres=0.3,
        refresh_lower_thres=0.05,
    ),
    "chopped": rk.ChoppedTransfer(
        devices=(rk.SoftBounds(dw_min=0.02), rk.ConstantStep(dw_min=0.01)),
        gamma=0.3,
        in_chop_prob=0.2,
        auto_scale=True,
        fast_lr=0.2,
        correct_gradient_magnitudes=True,
    ),
    "dynamic": rk.DynamicTransfer(
        devices=(rk.SoftBounds(dw_min=0.02),) * 2, in_chop_prob=0.5, forget_buffer=False
    ),
    "buffered": rk.BufferedTransfer(
        devices=(rk.SoftBounds(dw_min=0.02),) * 2, units_in_mbatch=False, transfer_columns=False
    ),
    "soft": rk.SoftBounds(dw_min=0.01, corrupt_devices_prob=0.1, lifetime=40, lifetime_dtod=0.2),
    "soft_write_noise": rk.SoftBounds(
        dw_min=0.01, write_noise_std=2, mult_noise=False, diffusion=0.01
    ),
}
UPDATES = {
    "managed": rk.UpdateParameters(),
    "fixed_31": rk.UpdateParameters(update_management=False, update_bl_management=False),
    "long_100": rk.UpdateParameters(desired_bl=100, update_bl_management=False),
    "implicit": rk.UpdateParameters(pulse_type="deterministic_implicit", d_res_implicit=0.02),
    "rounded": rk.UpdateParameters(res=0.1, sto_round=True),
    "mean_count": rk.UpdateParameters(pulse_type="mean_count"),
}
PRODUCTS = {
    "default": rk.IOParameters(),
    "small_bound": rk.IOParameters(out_bound=1.0, inp_sto_round=True),
    "worst_case": rk.IOParameters(
        out_bound=0.5, bound_management="iterative_worst_case", out_sto_round=True
    ),
    "perfect": rk.IOParameters(is_perfect=True, out_scale=1.5),
    "max": rk.IOParameters(noise_management="max", inp_noise=0.02, inp_asymmetry=0.1),
    "average": rk.IOParameters(
        noise_management="average_abs_max", out_noise_std=0.3, out_asymmetry=0.05
    ),
    "np_sum": rk.IOParameters(
        noise_management="abs_max_np_sum", w_noise=0.05, w_noise_type="additive_constant"
    ),
    "pcm_read": rk.IOParameters(w_noise=0.05, w_noise_type="pcm_read", inp_res=6, out_res=30),
    "wires": rk.IOParameters(
        ir_drop=2.0,
        v_offset_std=0.05,
        r_series=0.01,
        out_nonlinearity=0.3,
        slope_calibration=0.5,
        w_noise=0.02,
        w_noise_type="pcm_read",
    ),
    "digital_sum": rk.IOParameters(
        mv_type="pos_neg_separate_digital_sum", w_read_asymmetry_dtod=0.1, out_bound=0.8
    ),
    "separate": rk.IOParameters(
        mv_type="pos_neg_separate", ir_drop=1.0, v_offset_std=0.05, inp_sto_round=True
    ),
    "none": rk.IOParameters(noise_management="none", bound_management="none", inp_bound=0.5),
}


def tile_of(shape, cell, device, seed, **changes):
    tile = rk.AnalogTile(shape, CELLS[cell], device=device, seed=seed, **changes)
    start = elementwise.random_fill(
        rk.Stream.from_seed(seed).child(3), shape, "uniform"
    ) - np.float32(0.5)
    return tile.set_weights(put(start, device))


def updated(shape, cell, update, n, seed):
    def run(device):
        tile = tile_of(shape, cell, device, seed, update=UPDATES[update])
        x, d = (put(v, device) for v in batch(shape, n, seed))
        tile.update(x, d, lr=0.1)
        tile.update(x[:1], d[:1], lr=-0.05)
        return [tile.get_weights(), np.array([tile.n_pulses])]

    return run


# The same results for several kernels: each has a part in them.
TRANSFERS = {
    "auto_scale": ("chopped",),
    "chop_samples": ("chopped", "dynamic"),
    "sample_maxima": ("chopped",),
    "transfer_read": ("dynamic", "buffered"),
    "transfer_write": ("chopped", "buffered"),
}


def transferred(shape, cell, seed):
    def run(device):
        tile = tile_of(shape, cell, device, seed)
        x, d = (put(v, device) for v in batch(shape, 70, seed))
        tile.update(x, d, lr=0.3).update(x[:9], d[:9], lr=0.3)
        arrays = tile.state()["arrays"]
        return [arrays[name] for name in sorted(arrays)]

    return run


def trains(shape, update, n, seed):
    def run(device):
        from rpukit.analog.update.ops import pulse_trains

        x, d = (put(v, device) for v in batch(shape, n, seed))
        status = put(np.zeros(1, np.int32), device)
        made = pulse_trains(
            x,
            d,
            0.1,
            0.01,
            UPDATES[update],
            stream=rk.Stream.from_seed(seed),
            first_sample=2**40 + 7,
            status=status,
        )
        return [made.x, made.d]

    return run


def slow(shape, cell, step, seed):
    def run(device):
        tile = tile_of(shape, cell, device, seed)
        for _ in range(3):
            step(tile)
        return [tile.get_weights()]

    return run


def combined(shape, n_device, seed, *, signed):
    def run(device):
        s, weight = rk.Stream.from_seed(seed), put(np.empty(shape, np.float32), device)
        devices = elementwise.random_fill(s, (n_device, *shape), "normal", device=device)
        gamma = elementwise.random_fill(s.child(1), (n_device,), "normal", device=device)
        signs = [
            (elementwise.random_fill(s.child(2 + k), (n,), "bits") & 2).astype(np.int8)
            - np.int8(1)
            for k, n in enumerate(shape)
        ]
        signs = tuple(put(v, device) if signed else None for v in signs)
        status = put(np.zeros(1, np.int32), device)
        combine.combine_devices(weight, devices, gamma, signs, status=status)
        return [weight]

    return run


def refreshed(shape, seed):
    def run(device):
        s, chosen = rk.Stream.from_seed(seed), put(np.zeros(shape, np.float32), device)
        first, n_col = shape[1] // 3, shape[1] - shape[1] // 3
        plus, minus = (
            elementwise.random_fill(s.child(k), (n_col, shape[0]), "uniform", device=device)
            for k in (1, 2)
        )
        status = put(np.zeros(1, np.int32), device)
        rises = combine.select_refresh(chosen, plus, minus, first, 0.6, 0.2, status=status)
        return [chosen, *rises]

    return run


def product(shape, io, n, seed):
    def run(device):
        tile = tile_of(shape, "soft", device, seed, forward=PRODUCTS[io], backward=PRODUCTS[io])
        x, d = (put(v, device) for v in batch(shape, n, seed))
        return [tile.forward(x), tile.forward(x[:1]), tile.backward(d), tile.backward(d[:1])]

    return run


def scales(io, n, seed):
    def run(device):
        tile = tile_of((5, 77), "ideal", device, seed, forward=PRODUCTS[io])
        x, _ = batch((5, 77), n, seed)
        x[0] = 0
        return [tile.forward(put(x, device))]

    return run


def gemm(m, n, k, dtype, seed, **trans):
    def run(device):
        s = rk.Stream.from_seed(seed)
        a, b = (
            elementwise.random_fill(s.child(c), shape).astype(dtype) / 3
            for c, shape in enumerate(((m, k), (k, n)))
        )
        a, b = (
            (a.T.copy() if trans.get("trans_a") else a),
            (b.T.copy() if trans.get("trans_b") else b),
        )
        return [rk.det_gemm(put(a, device), put(b, device), **trans)]

    return run


def tensor_gemms():
    """16-bit floats in all layouts, rounded and not."""
    for m, n, k in ((1, 1, 1), (3, 264, 132), (33, 31, 67), (200, 136, 320), (17, 40, 16500)):
        for form in ("bfloat16", "float16"):
            for trans_a, trans_b in ((False, False), (True, False), (False, True)):
                run = tensor_gemm(m, n, k, form, 13, trans_a=trans_a, trans_b=trans_b)
                name = f"{m}x{n}x{k}-{form}-{int(trans_a)}{int(trans_b)}"
                yield "det_gemm_tensor", Case(name, run, small=k < 300)

    for tile in ("warps 64x64", "warps turned 32x16"):
        for form in ("bfloat16", "float16"):
            yield "det_gemm_mma", Case(f"{tile}-{form}", mma_gemm(70, 40, 332, form, tile))


def mma_gemm(m, n, k, form, tile):
    """Two parts of a sum, the second on top of a total."""

    def run(device):
        from rpukit.gemm import _tiles, tensor

        s = rk.Stream.from_seed(17)
        a, b = (elementwise.random_fill(s.child(c), (lines, k)) for c, lines in enumerate((m, n)))
        to = rk.gemm.to_bfloat16 if form == "bfloat16" else np.float16
        p, q = (tensor.factor(put(to(x), device), 1) for x in (a, b))
        where = _device.parse_device(device)
        half, out = (tensor.aligned((m, n), kind, where) for kind in (np.float32, np.uint16))
        options = {"tile": _tiles.named(tile)}
        tensor.multiply(p, q, half, part=(0, 192), **options)
        tensor.multiply(p, q, out, part=(192, k), partial=half, total=half, **options)
        return [half, out]

    return run


def tensor_gemm(m, n, k, form, seed, **trans):
    def run(device):
        s = rk.Stream.from_seed(seed)
        shapes = (k, m) if trans["trans_a"] else (m, k), (n, k) if trans["trans_b"] else (k, n)
        a, b = (elementwise.random_fill(s.child(c), shape) for c, shape in enumerate(shapes))
        to = rk.gemm.to_bfloat16 if form == "bfloat16" else np.float16
        a, b = (put(to(x), device) for x in (a, b))
        wide = rk.det_gemm(a, b, out_dtype=np.float32, **trans)
        return [wide, rk.det_gemm(a, b, **trans)]

    return run


def edges():
    """float32 of all kinds, evenly over the bit patterns, and the special ones."""
    bits = np.arange(0, 1 << 32, 40009, dtype=np.uint64).astype(np.uint32)
    special = np.array(
        [0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0x007FFFFF], np.uint32
    )
    return np.concatenate([bits, special]).view(np.float32)


def mapped(name, dtype):
    def run(device):
        x = edges()
        if name == "normal_quantile":
            x = elementwise.random_fill(rk.Stream.from_seed(1), (100_003,), "uniform")
        two = name in elementwise.ops.FUNCTIONS_OF_TWO
        arrays = (x, x[::-1]) if two else (x,)
        with np.errstate(invalid="ignore"):  # a NaN may be signalling
            arrays = [put(np.ascontiguousarray(v.astype(dtype)), device) for v in arrays]
        got = _device.to_numpy(elementwise.math_map(name, *arrays))
        return [np.where(np.isnan(got), dtype(np.nan), got)]  # payloads of NaN are not promised

    return run


def cross_entropy(n, n_class, seed):
    def run(device):
        z = elementwise.random_fill(rk.Stream.from_seed(seed), (n, n_class)) * 5
        y = (np.arange(n) * 7 % n_class).astype(np.int32)
        return list(elementwise.softmax_cross_entropy(put(z, device), put(y, device)))

    return run


def filled(n, kind, seed):
    def run(device):
        s = rk.Stream.from_seed(seed)
        return [
            elementwise.random_fill(s, (n,), kind, sample=2**33 + 5, draw=6, op=9, device=device)
        ]

    return run


def checked(device):
    found = []
    for bad in (np.nan, np.inf, 1.0):
        x = np.ones(1031, np.float32)
        x[700] = bad
        status = put(np.zeros(1, np.int32), device)
        _guard.check_finite(put(x, device), status=status, call=5)
        found.append(status)
    return found


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for kind in ("bits", "uniform", "normal"):
        for n in (1, 31, 100_003):
            for seed in SEEDS:
                yield "random_fill", Case(f"{kind}-{n}-seed{seed}", filled(n, kind, seed))
    for name in (*elementwise.ops.FUNCTIONS, *elementwise.ops.FUNCTIONS_OF_TWO):
        for dtype in (np.float32, np.float64):
            yield "math_map", Case(f"{name}-{np.dtype(dtype).name}", mapped(name, dtype))
    for n, n_class in ((1, 1), (33, 10), (131, 31)):
        yield "softmax_cross_entropy", Case(f"{n}x{n_class}", cross_entropy(n, n_class, 3))
    yield "check_finite", Case("nan-inf-finite", checked)
    for shape in SIZES:
        at = f"{shape[0]}x{shape[1]}"
        for update in UPDATES:
            yield "pulse_trains", Case(f"{update}-{at}", trains(shape, update, 9, 1))
            for cell in ("constant", "soft", "soft_write_noise"):
                run = updated(shape, cell, update, 40, 2)
                yield "pulsed_update", Case(f"{cell}-{update}-{at}", run, small=shape[1] < 200)
        for cell in ("vector", "one_sided"):
            yield "pulsed_update", Case(f"{cell}-{at}", updated(shape, cell, "managed", 40, 13))
        for signed in (False, True):
            name = f"{at}{'-signed' * signed}"
            yield "combine_devices", Case(name, combined(shape, 3, 13, signed=signed))
        for name, cells in TRANSFERS.items():
            yield from ((name, Case(f"{c}-{at}", transferred(shape, c, 15))) for c in cells)
        yield "select_refresh", Case(at, refreshed(shape, 14))
        yield "rank_update", Case(at, updated(shape, "ideal", "managed", 40, 3))
        for io in PRODUCTS:
            for n in (3, 37):
                run = product(shape, io, n, 4)
                wires = io in ("wires", "digital_sum", "separate")
                yield (
                    "tile_nonideal" if wires else "tile_forward",
                    Case(f"{io}-batch{n}-{at}", run, small=shape[1] < 200 and n == 3),
                )
        yield (
            "clip_weights",
            Case(at, slow(shape, "soft", lambda t: t.set_weights(t.get_weights() * 9), 5)),
        )
        yield "decay", Case(at, slow(shape, "constant", lambda t: t.decay(0.7), 6))
        yield (
            "drift",
            Case(at, slow(shape, "drifting", lambda t: t.reset(0, 1, 0.5).drift(70), 12)),
        )
        yield "diffusion", Case(at, slow(shape, "constant", lambda t: t.diffuse(), 7))
        yield "reset", Case(at, slow(shape, "constant", lambda t: t.reset(0, t.shape[1], 0.5), 8))
        yield "write_noise", Case(at, slow(shape, "soft_write_noise", lambda t: t.diffuse(), 9))
    for io in ("max", "average", "np_sum", "worst_case", "none"):
        yield "tile_scale", Case(io, scales(io, 19, 10))
    topics = {path.stem for path in Path(__file__).parent.glob("golden_*.py")} - {"golden_cases"}
    for topic in sorted(topics):
        yield from import_module(topic).cases()
    for m, n, k in ((1, 1, 1), (33, 31, 67), (65, 130, 16387)):
        for dtype in ("f4", "f8"):
            for trans_a, trans_b in ((False, False), (True, False), (False, True)):
                run = gemm(m, n, k, dtype, 11, trans_a=trans_a, trans_b=trans_b)
                name = f"{dtype}-{m}x{n}x{k}{'-ta' * trans_a}{'-tb' * trans_b}"
                yield "det_gemm", Case(name, run, small=k < 1000)
    yield from tensor_gemms()


CASES: dict[str, list[Case]] = {}
for _kernel, _case in cases():
    CASES.setdefault(_kernel, []).append(_case)
