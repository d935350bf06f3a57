"""Golden cases of analog tiles: updates, products, processes, compounds and transfer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit import elementwise
from rpukit.analog.arrays import compound_ops
from tests.golden.cases.case import SIZES, Case, batch, put

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
BOUNDED = rk.UpdateParameters(pulse_type="none_with_device")
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
        parameters = BOUNDED if update == "bounded" else UPDATES[update]
        tile = tile_of(shape, cell, device, seed, update=parameters)
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


def aged(shape, cell, step, seed):
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
        compound_ops.combine_devices(weight, devices, gamma, signs, status=status)
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
        rises = compound_ops.select_refresh(chosen, plus, minus, first, 0.6, 0.2, status=status)
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


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
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
        yield "rank_update", Case(f"bounded-{at}", updated(shape, "soft", "bounded", 40, 16))
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
            Case(at, aged(shape, "soft", lambda t: t.set_weights(t.get_weights() * 9), 5)),
        )
        yield "decay", Case(at, aged(shape, "constant", lambda t: t.decay(0.7), 6))
        yield (
            "drift",
            Case(at, aged(shape, "drifting", lambda t: t.reset(0, 1, 0.5).drift(70), 12)),
        )
        yield "diffusion", Case(at, aged(shape, "constant", lambda t: t.diffuse(), 7))
        yield "reset", Case(at, aged(shape, "constant", lambda t: t.reset(0, t.shape[1], 0.5), 8))
        yield "write_noise", Case(at, aged(shape, "soft_write_noise", lambda t: t.diffuse(), 9))
    for io in ("max", "average", "np_sum", "worst_case", "none"):
        yield "tile_scale", Case(io, scales(io, 19, 10))
