"""Updates of many samples by few cells, runs of pulses at a bound, drawn planes, transfers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import rpukit as rk
from rpukit import _device
from rpukit.analog.transfer import ops as transfer
from rpukit.analog.transfer.reads import Reading
from rpukit.analog.transfer.schedule import Events
from rpukit.analog.update.ops import pulse_trains
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform
from tests.golden.cases.devices import drawn
from tests.golden.cases.edges.tiles import eighths

SHAPE = (13, 37)
# The largest d, and the rate at which a train needs the longest length: its quotient is rounded.
JUST = ((0.4515528678894043, 0.5363436341285706), (0.8065080642700195, 0.3002914786338806))
SURE = rk.UpdateParameters(update_management=False, update_bl_management=False)  # 31 slots
EXACT = {"dw_min_dtod": 0.0, "up_down_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
NODES = (0.13, 0.71, 300.3)  # a node that takes bits of its neighbours
STUCK = {"corrupt_devices_prob": 0.4, "reference_mean": 0.1, "reference_std": 0.1}


def tile_of(cell, shape, device, seed=81, **options):
    tile = rk.AnalogTile(shape, cell, device=device, seed=seed, **options)
    start = uniform(shape, seed + 1) - np.float32(0.5)
    return tile.set_weights(put(start, device))


def listed(n, device):
    """Rows that are pulsed by all samples, by just those of a block, by more, by none."""
    tile = tile_of(rk.ConstantStep(dw_min=0.002), (4, 33), device, update=SURE)
    x, d = uniform((n, 33), 83) * 2 - 1, np.zeros((n, 4), np.float32)
    for row, count in enumerate((n, 256, 300)):
        d[:count, row] = 1
    d[: n // 2] *= -1
    tile.update(put(x, device), put(d, device), lr=0.07)
    return [tile.get_weights(), np.array([tile.n_pulses])]


def full(n, n_in, dtype, device):
    """All cells are pulsed by all samples, so that lists of pulses are full."""
    cell = rk.ConstantStep(dw_min=1e-4)
    tile = tile_of(cell, (1, n_in), device, update=SURE, dtype=dtype)
    x, d = np.ones((n, n_in), dtype), np.ones((n, 1), dtype)
    tile.update(put(x, device), put(d, device), lr=0.004)
    return [tile.get_weights(), np.array([tile.n_pulses])]


def reaching(sigma, dtype, device):
    """Runs of pulses whose largest step ends at a bound, or next to it."""
    cell = rk.ConstantStep(dw_min=0.005, dw_min_std=sigma, w_max=0.75, w_min=-0.75, **EXACT)
    tile = rk.AnalogTile((2, 61), cell, device=device, seed=85, dtype=dtype, update=SURE)
    kind = np.dtype(dtype).type
    step, count = kind(np.float32(0.005)), kind(31)
    reach = step * count * (kind(np.float32(sigma)) * kind(5.3) + kind(1))
    start = np.full((2, 61), kind(0.75) - reach)
    start += (np.arange(61) - 30).astype(dtype) * np.spacing(start[0, 0])
    start[1] *= -1
    tile.set_weights(put(start, device))
    x, d = np.ones((9, 61), dtype), np.zeros((9, 2), dtype)
    d[4] = -1, 1
    tile.update(put(x, device), put(d, device), lr=0.2)
    return [tile.get_weights(), np.array([tile.n_pulses])]


def at_bounds(cell, n, device):
    """Updates of weights at their bounds."""
    tile = rk.AnalogTile(SHAPE, cell, device=device, seed=86)
    low, high = (_device.to_numpy(tile.cells[name]) for name in ("w_min", "w_max"))
    tile.set_weights(put(np.where(uniform(SHAPE, 87) < 1 / 2, low, high), device))
    x, d = (put(eighths((n, k), 88 + k), device) for k in SHAPE[::-1])
    tile.update(x, d, lr=0.3).update(x[:2], d[:2], lr=-0.3)
    return [tile.get_weights()]


def procedural(cell, n, device):
    """Planes that are drawn where they are used, those of the last column among them."""
    tile = tile_of(cell, (5, 37), device, storage="procedural")
    x, d = (put(eighths((n, k), 90 + k), device) for k in (37, 5))
    tile.update(x, d, lr=0.3).update(x[:2], d[:2], lr=-0.3)
    return [tile.get_weights()]


def planes(cell, device):
    """All arrays of cells, with those of reset."""
    tile = rk.AnalogTile(SHAPE, cell, device=device, seed=91, storage="procedural")
    return [tile.reset(0, 20, 0.5).get_weights(), *tile.cells.values()]


def trains(dtype, device):
    """A train of just the longest length, scales of 0, and the largest numbers."""
    found = []
    x, d = eighths((9, 37), 92).astype(dtype), eighths((9, 13), 93).astype(dtype)
    x[:, 0], d[:, 0] = 1, -1
    implicit = {"pulse_type": "deterministic_implicit", "x_res_implicit": 0.0}
    for options in (implicit, {**implicit, "res": 0.25, "sto_round": True}):
        for largest, lr in JUST:
            status = put(np.zeros(1, np.int32), device)
            made = pulse_trains(
                *(put(v.astype(dtype), device) for v in (x, d * np.dtype(dtype).type(largest))),
                *(lr, 2.0**-7, rk.UpdateParameters(**options)),
                stream=rk.Stream.from_seed(94),
                first_sample=0,
                status=status,
            )
            found += [made.x, made.d, status]
    return found


def transferred(dtype, device):
    """Transfers of numbers beyond 2^32, with managed trains of several warps of lines."""
    managed = rk.UpdateParameters()
    cell = rk.BufferedTransfer(
        devices=(rk.SoftBounds(dw_min=0.02, write_noise_std=1),) * 2,
        units_in_mbatch=False,
        transfer_update=managed,
        transfer_forward=rk.IOParameters(out_noise=0.1, out_res=-1, out_asymmetry=1.5),
        momentum=0.3,
        forget_buffer=False,
    )
    tile = tile_of(cell, (7, 132), device, dtype=dtype)
    x, d = (put(eighths((40, k), 95 + k).astype(dtype), device) for k in (132, 7))
    tile.update(x, d, lr=0.3, first_sample=2**40 + 7)
    arrays = tile.state()["arrays"]
    return [arrays[name] for name in sorted(arrays)]


def read(kind, dtype, device):
    """Reads by the periphery with any numbers, of weights that are 0, tiny or large."""
    n_slice, n_line, n_event = 12, 33, 9
    cells = tile_of(rk.SoftBounds(dw_min=0.02), (n_line, n_slice), device, dtype=dtype)
    weight = _device.to_numpy(cells.get_weights()).copy()
    weight[:8] = eighths((8, n_slice), 96)
    weight[8:12] = -np.nextafter(np.zeros((), dtype), np.ones((), dtype))
    cells.set_weights(put(weight, device))
    record = cells.devices[0].record
    turns = put((np.arange(n_event) % 8).astype(np.int32), device)
    status, found = put(np.zeros(1, np.int32), device), []
    states = [uniform((n_slice, n_line), 97 + k).astype(dtype) for k in range(3)]
    for state in states:
        state[:, :12] = -0.0  # which adds no zero but its own
    signs = [np.where(uniform((n_slice,), 99) < 1 / 2, -1, 1).astype(np.int8)] * 2
    for w_noise in (0, 1, 2):
        for noise, asymmetry, std, read in (
            (0, -0.5, 0, 0),
            (0.3, 0.7, 0.25, 0.1),
            (0.9, 0.7, 0, 0),
        ):
            rule = np.array((0.1, 3, 0.3, 0.7, 0.4, 0.9, 0, 2, w_noise, 1), dtype)
            io = np.ones(16, dtype)
            io[[0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11]] = (
                *(0, 0, noise, 0.7, 0, 0, std, asymmetry, read, 0, 0),
            )
            own = [put(v.copy(), device) for v in (*states, *signs)]
            stream = rk.Stream.from_seed(98)
            reading = Reading(
                *(kind, True, put(rule, device), put(io, device), None, stream),
                *(own if kind > 2 else (own[0], None, None, None, None)),
            )
            how = {"turns": turns if kind > 2 else None, "status": status}
            due = Events(40, n_event, 1, 2, 1, 7)
            made = transfer.transfer_read(record, reading, due, (2.5, -1.5), (True, True), **how)
            found += [made, *own]
    return found


def wrote(dtype, device):
    """Writes whose numbers need more than 32 bits."""
    tile = tile_of(rk.SoftBounds(dw_min=0.02), (130, 6), device, dtype=dtype)
    due = Events(2**33 + 9, 5, first_slice=4)
    values = put((eighths((5, 130), 96) * np.float32(0.7)).astype(dtype), device)
    how = {"columns": True, "stream": rk.Stream.from_seed(98)}
    how["status"] = put(np.zeros(1, np.int32), device)
    parameters = rk.UpdateParameters(update_bl_management=False)
    transfer.transfer_write(tile.devices[0].record, values, due, 0.3, parameters, **how)
    return [tile.get_weights()]


def late(dtype, device):
    """Updates of few samples whose numbers need more than 32 bits."""
    tile = tile_of(rk.SoftBounds(dw_min=0.02), SHAPE, device, dtype=dtype)
    x, d = (put(eighths((2, k), 95 + k).astype(dtype), device) for k in SHAPE[::-1])
    return [tile.update(x, d, lr=0.3, first_sample=2**40 + 7).get_weights()]


def rated(dtype, device):
    """Running maxima of which either, or both, are 0."""
    found, status = [], put(np.zeros(1, np.int32), device)
    for first in ((0, 0.5), (0.5, 0), (0, 0)):
        maxima = np.zeros((2, 5), dtype)
        maxima[:, 0], maxima[:, 3] = first, 0.25
        running = put(np.zeros(2, dtype), device)
        rates = transfer.auto_scale(put(maxima, device), 0.5, 0.1, running, status=status)
        found += [rates, running]
    return found


def largest(dtype, device):
    """The largest numbers are finite."""
    x, d = (eighths((4, k), 99 + k).astype(dtype) for k in (300, 13))
    x[1, 3], d[2, 4] = np.finfo(dtype).max, -np.finfo(dtype).max
    status = put(np.zeros(1, np.int32), device)
    found = [transfer.sample_maxima(put(x, device), put(d, device), status=status)]
    tile = tile_of(rk.SoftBounds(dw_min=0.02), (13, 300), device, dtype=dtype)
    tile.update(put(x, device), put(d, device), lr=0.1)
    return [*found, status, tile.get_weights()]


REFERENCE = {"subtract_symmetry_point": True, "w_min_dtod": 0.0, "w_max_dtod": 0.0}
BOUNDS = {
    "nodes_down": rk.PiecewiseStep(piecewise_up=NODES, piecewise_down=(0.37,), dw_min=1e-3),
    "nodes_up": rk.PiecewiseStep(
        piecewise_up=(0.2, *NODES[::-2]), piecewise_down=(*NODES[::2], 0.37), dw_min=1e-3
    ),
    "pow_reference": rk.PowStepReference(**STUCK),
}
DRAWN = {
    "soft": rk.SoftBounds(dw_min=0.02, reset=0.1, reset_dtod=0.1),
    "constant": rk.ConstantStep(dw_min=0.02, reset=0.1, perfect_bias=True),
    "pow_reference": rk.PowStepReference(reset=0.1, n_estimation_steps=3, **REFERENCE),
}
NEVER = rk.PowStepReference(up_down=-1.0, **{**EXACT, **REFERENCE})  # no step goes up


def unsigned(shape, dtype, device):
    """Exact updates that leave weights of -0 as they are."""
    exact = rk.UpdateParameters(pulse_type="none_with_device")
    tile = rk.AnalogTile(shape, rk.Ideal(), device=device, seed=99, dtype=dtype, update=exact)
    tile.set_weights(put(np.full(shape, -0.0, dtype), device))
    x, d = np.zeros((290, shape[1]), dtype), np.full((290, shape[0]), -0.0, dtype)
    return [tile.update(put(x, device), put(d, device), lr=-0.5).get_weights()]


def drifted(dtype, device):
    """One drift of cells some of whose conductances are 0."""
    drift = rk.DriftParameters(nu=0.1, nu_k=0.02, w_offset=0.25, g_offset=0.0)
    tile = rk.AnalogTile(SHAPE, rk.ConstantStep(drift=drift), device=device, dtype=dtype, seed=99)
    tile.set_weights(put(eighths(SHAPE, 98).astype(dtype), device))
    return [tile.drift(70).get_weights()]


def cases() -> Iterator[tuple[str, Case]]:
    for n in (768, 770):
        yield "pulsed_update", Case(f"scan-{n}", partial(listed, n))
    yield "pulsed_update", Case("full-64-float32", partial(full, 96, 64, "float32"))
    yield "pulsed_update", Case("full-128-float64", partial(full, 80, 128, "float64"))
    yield "pulsed_update", Case("reach-0.65-float32", partial(reaching, 0.65, "float32"))
    for name, cell in BOUNDS.items():
        yield "pulsed_update", Case(f"ends-{name}", partial(at_bounds, cell, 30))
    for name in ("constant", "pow_reference"):
        run = partial(procedural, DRAWN[name], 9)
        yield "pulsed_update", Case(f"procedural-{name}", run)
    for name in ("soft", "pow_reference"):
        yield "cell_planes", Case(f"reset-{name}", partial(planes, DRAWN[name]))
    yield "cell_planes", Case("zeros-never", drawn(SHAPE, NEVER, 100))
    yield "auto_scale", Case("zeros-float64", partial(rated, "float64"))
    yield "drift", Case("nothing-float32", partial(drifted, "float32"))
    yield "pulse_trains", Case("lengths-float32", partial(trains, "float32"))
    yield "rank_update", Case("unsigned-7x1-float32", partial(unsigned, (7, 1), "float32"))
    yield "pulsed_samples", Case("numbers-float64", partial(late, "float64"))
    yield "transfer_write", Case("numbers-float64", partial(wrote, "float64"))
    for kernel in ("transfer_read", "transfer_write"):
        yield kernel, Case("written-float32", partial(transferred, "float32"))
    for kind in (2, 4):
        yield "transfer_read", Case(f"read-{kind}-float32", partial(read, kind, "float32"))
    for dtype in ("float32", "float64"):
        for kernel in ("sample_maxima", "pulsed_samples"):
            yield kernel, Case(f"finite-{dtype}", partial(largest, dtype))
