"""Kernels of the transfer family: chop_samples, transfer_read, transfer_write, sample_maxima,
auto_scale.

Each source gives the bits of its mirror for every order of threads, and both the formula, or the
bits of what they stand for: the update of a whole array.
"""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.transfer import ops as transfer
from rpukit.analog.transfer.reads import Reading, Replay
from rpukit.analog.transfer.schedule import Events, events, repeats, slices_of
from rpukit.analog.update import ops as update
from rpukit.testing import assert_same_bits, on_cpu

OK = np.zeros(1, np.int32)
STREAM = rk.Stream.from_seed(5)
SOFT = rk.SoftBounds(dw_min=0.02)
NOISY = rk.SoftBounds(dw_min=0.02, write_noise_std=2)


def uniform(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def array_of(cell, shape, seed=3):
    tile = rk.AnalogTile(shape, cell, seed=seed, count_pulses=True)
    return tile.set_weights(0.3 * uniform(*shape, seed=9)).devices[0]


def both(run, order):
    """Run with the mirrors and with the sources."""
    results = []
    for context in (nullcontext(), on_cpu(order)):
        with context:
            results.append(run())
    for ours, theirs in zip(*results, strict=True):
        assert_same_bits(theirs, ours)
    return results[0]


@pytest.mark.parametrize("n_slice", [1, 130])
@pytest.mark.parametrize("prob", [0.0, 0.4])
def test_chop_samples(n_slice, prob, order):
    n = 21
    due = events(2, 1, n, 4096 * 7 + 4090, 1, n_slice)
    due = replace(due, n=min(due.n, n_slice))
    v, rng = uniform(n, n_slice), np.random.default_rng(2)
    chopper = rng.choice(np.array([-1, 1], np.int8), n_slice)
    switched = rng.choice(np.array([0, 1], np.int8), n_slice)
    kept = chopper.copy()

    def run():
        regular = (False, True)
        args = (v, chopper, switched, due, regular, prob)
        return transfer.chop_samples(*args, stream=STREAM, status=OK)

    out, turns = both(run, order)
    assert_same_bits(chopper, kept)  # all blocks read it: transfer_read changes it
    exact, number = v * kept.astype(np.float32), due.number
    for e, i in enumerate(slices_of(due, n_slice, None)):
        block = rk.elementwise.random_fill(
            STREAM, (4096,), "uniform", op=rk.random.Op.CHOPPER, sample=(number + e) // 4096
        )
        flips = block[(number + e) % 4096] < np.float32(prob) or i < due.first_slice
        assert turns[e] == (kept[i] < 0) + 2 * switched[i] + 4 * flips
        exact[due.offset + e * due.period + 1 :, i] *= -1 if flips else 1
    assert_same_bits(out, exact)


RULES = {  # kind; threshold, length, momentum, keep, mu, cap, forget
    "ttv1": (1, 0, 1, 0, 1, 0, 0, 1),
    "ttv2": (2, 0.3, 1, 0.1, 1, 0, 0, 1),
    "ttv2_keep": (2, 0.3, 2, 0, 1, 0, 0, 0),
    "ttv3": (3, 0, 1, 0, 1, 0, 0, 1),
    "ttv3_no_buffer": (3, 0, 3, 0.2, 0, 0, 0, 1),
    "ttv4": (4, 0, 1, 0, 1, 0.4, 0, 1),
    "ttv4_cap": (4, 0, 2, 0.1, 1, 0.4, 2.5, 0),
}


def reading_of(rule, n_slice, n_line, *, columns=True, periphery=0):
    kind, *numbers = rule
    numbers = np.array((*numbers, periphery, 0, columns), np.float32)
    states = [uniform(n_slice, n_line, seed=k) for k in (1, 2, 3)] if kind > 1 else [None] * 3
    signs = np.random.default_rng(4).choice(np.array([-1, 1], np.int8), n_slice)
    choppers = (signs if kind > 2 else None, np.zeros(n_slice, np.int8) if kind > 3 else None)
    return Reading(
        kind, columns, numbers, np.ones(16, np.float32), None, STREAM, *states, *choppers
    )


def exact_buffer(z, reading, slices, kappas, turns, line_sign, rates):
    """The recursion in float64; gives d and changes the states."""
    threshold, length, momentum, keep, mu, cap, forget = reading.rule[:7].astype("f8")
    d = -z
    for e, i in enumerate(slices if reading.kind > 1 else ()):
        u = kappas[e] / rates[e]
        if reading.kind == 2:
            omega, unit = reading.buffer[i] + u * z[e], threshold
        else:
            fresh, unit = z[e], 1
            if reading.kind == 4:
                reading.past[i] = reading.mean[i] if turns[e] & 2 else reading.past[i]
                fresh = z[e] - reading.past[i]
                reading.mean[i] = (1 - mu) * reading.mean[i] + mu * z[e]
            sign = -1 if turns[e] & 1 else 1
            omega = reading.buffer[i] * keep + sign * line_sign * fresh * u
        n = np.clip(np.trunc(omega / unit), -length, length)
        out = momentum * omega if forget else omega - (1 - momentum) * n * unit
        if cap > 0 and not forget:
            out = np.clip(out, -cap, cap)
        reading.buffer[i] = np.where(n != 0, out, omega)
        d[e] = -n
    return d


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize(("n_line", "rated"), [(1, False), (33, True), (130, False)])
def test_transfer_read(rule, n_line, rated, order):
    n_slice, n_event = 12, 9
    due = Events(40, n_event, 1, 2, 1, 7)
    slices, turns = (7 + np.arange(n_event)) % n_slice, np.arange(n_event, dtype=np.int32) % 8
    z, sign = uniform(n_event, n_line, seed=6), np.sign(uniform(n_line, seed=7)).astype(np.int8)
    rates = 1.5 + 0.5 * uniform(20, seed=8) if rated else None
    cells = array_of(SOFT, (n_line, n_slice)).record
    kept = []

    def run():
        kept.append(reading_of(rule, n_slice, n_line))
        how = {"turns": turns, "line_sign": sign, "rates": rates, "z": z, "status": OK}
        d = transfer.transfer_read(cells, kept[-1], due, (2.5, -1.5), (True, False), **how)
        last = kept[-1]
        own = (last.buffer, last.mean, last.past, last.chopper, last.switched)
        return [d, *(a for a in own if a is not None)]

    d, *states = both(run, order)
    ours = reading_of(rule, n_slice, n_line)
    exact = replace(
        ours, **{k: getattr(ours, k).astype("f8") for k in ("buffer", "mean", "past") if states}
    )
    later = np.arange(n_event) + 7 >= n_slice
    wide = np.ones(n_event) if rates is None else rates[1 + 2 * np.arange(n_event)].astype("f8")
    kappas = np.where(later, -1.5, 2.5)
    want = exact_buffer(z.astype("f8"), exact, slices, kappas, turns, sign, wide)
    if ours.kind > 1:
        want[later] = 0  # the next pass does not write
        for array, name in zip(states, ("buffer", "mean", "past"), strict=False):
            # one float32 step of size 3
            np.testing.assert_allclose(array, getattr(exact, name), atol=2e-6)
    np.testing.assert_array_equal(d, want)
    if ours.kind > 2:
        before, flips = ours.chopper.copy(), slices[turns & 4 > 0]
        before[flips] = np.where(turns[turns & 4 > 0] & 1, 1, -1)
        assert_same_bits(states[3], before)
        assert ours.kind == 3 or states[4][flips].all()


TRAINS = {
    "managed": rk.UpdateParameters(),
    "long": rk.UpdateParameters(desired_bl=80, update_bl_management=False),
    "implicit": rk.UpdateParameters(pulse_type="deterministic_implicit"),
    "counted": rk.UpdateParameters(pulse_type="mean_count"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("parameters", TRAINS.values(), ids=TRAINS)
@pytest.mark.parametrize("cell", [NOISY, rk.ConstantStep(dw_min=0.05)], ids=["soft", "constant"])
@pytest.mark.parametrize("columns", [False, True])
def test_a_read_sees_the_pulses_before_it(parameters, cell, columns, order):
    """What a slice shows is what an update by the samples up to its read leaves in it."""
    shape, n = (130, 5) if columns else (5, 132), 40
    x, d = uniform(n, shape[1]), uniform(n, shape[0], seed=1)
    due = Events(3, 4, 6, 11, 1, 3)
    stream, number = STREAM.child(1), 2**33 + 5
    array = array_of(cell, shape)
    reading = reading_of(RULES["ttv1"], 5, max(shape), columns=columns)
    how = {"stream": STREAM, "first_sample": number, "status": OK}

    def trains(m=n):
        return update.pulse_trains(x[:m], d[:m], 0.1, array.granularity, parameters, **how)

    def run():
        replay = Replay(trains(), True, stream, number)
        return [transfer.transfer_read(array.record, reading, due, replay=replay, status=OK)]

    (read,) = both(run, order)
    for e in range(4):
        other = array_of(cell, shape)
        other.pulse(trains(7 + 11 * e), True, number, stream=stream)
        seen = other.weight if columns else other.weight.T
        assert_same_bits(read[e], np.ascontiguousarray(-seen[:, (3 + e) % 5]))


WRITES = {
    "one": rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False),
    "managed": rk.UpdateParameters(),
    "long": rk.UpdateParameters(desired_bl=80, update_bl_management=False, res=0.03),
    "rounded": rk.UpdateParameters(res=0.1, sto_round=True),
    "grows": rk.UpdateParameters(
        desired_bl=2, fixed_bl=False, update_management=False, update_bl_management=False
    ),
}


@pytest.mark.parametrize("parameters", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("cell", [NOISY, rk.ConstantStep(dw_min=0.05)], ids=["soft", "constant"])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_write_is_the_update_by_one_hot_samples(parameters, cell, drawn, order):
    shape = (130, 6) if not drawn else (6, 132)
    values, lr = 0.4 * uniform(5, max(shape), seed=3), 0.3 if drawn else -0.3
    values[:, ::7], values[2] = 0, 0
    slices = np.array([5, 0, 3, 2, 4], np.int32) if drawn else (4 + np.arange(5)) % 6
    due = Events(2**33 + 9, 5, first_slice=4, slices=slices if drawn else None)
    one_hot = np.zeros((5, 6), np.float32)
    one_hot[np.arange(5), slices] = 1

    def result(array):
        state = ("weight", "persistent", "n_pulses", "pulse_counts")
        return [array.arrays()[name] for name in state if name in array.arrays()]

    def run():
        array = array_of(cell, shape)
        how = {"columns": not drawn, "stream": STREAM, "status": OK}
        transfer.transfer_write(array.record, values, due, lr, parameters, **how)
        return result(array)

    dense = array_of(cell, shape)
    sides = (values, one_hot) if drawn else (one_hot, values)
    dense.write(*sides, lr, parameters, due.number, STREAM)
    assert dense.n_pulses > 0
    for ours, theirs in zip(both(run, order), result(dense), strict=True):
        assert_same_bits(ours, theirs)


def test_a_write_that_needs_too_long_trains_says_so():
    grows = WRITES["grows"]
    cells, due = array_of(SOFT, (2, 3)).record, Events(0, 1)
    how = {"columns": True, "stream": STREAM, "status": OK}
    with pytest.raises(rk.errors.ParameterError, match="slots"):
        transfer.transfer_write(cells, np.ones((1, 2), np.float32), due, 1e4, grows, **how)


def test_repeats():
    slices = np.array([0, 1, 2, 3, 1, 4, 0, 5, 5, 2, 2, 3])
    assert repeats(slices, 2) == [2, 4, 5]
    assert repeats(slices[:4], 2) == []


@pytest.mark.parametrize(("n_in", "n_out"), [(1, 3), (300, 132)])
@pytest.mark.parametrize("bad", [None, np.nan, -np.inf])
def test_sample_maxima(n_in, n_out, bad, order):
    x, d = uniform(5, n_in), uniform(5, n_out, seed=1)
    if bad is not None:
        d[3, -1] = bad

    def run():
        status = np.zeros(1, np.int32)
        maxima = transfer.sample_maxima(x, d, status=status, call=7)
        assert status[0] == (0 if bad is None else 7)
        return [maxima[:, :3]]

    (maxima,) = both(run, order)
    assert_same_bits(maxima, np.stack([abs(v).max(axis=1)[:3] for v in (x, d)]))


@pytest.mark.parametrize("n", [1, 9])
def test_auto_scale(n, order):
    maxima = abs(uniform(2, n))
    maxima[1, 0] = 0
    running = []

    def run():
        running.append(np.zeros(2, np.float32))
        return [transfer.auto_scale(maxima, 0.5, 0.1, running[-1], status=OK)]

    (rates,) = both(run, order)
    assert_same_bits(*running)
    m, exact = [0.0, 0.0], []
    for largest in maxima.T.astype("f8"):
        for k, v in enumerate(largest):
            m[k] = v if m[k] <= 0 else (0.9 * m[k] + 0.1 * v if v > 0 else m[k])
        exact.append(0.5 / (m[0] * m[1] if min(m) > 0 else 1))
    np.testing.assert_allclose(rates, exact, rtol=1e-6)
    np.testing.assert_allclose(running[0], m, rtol=1e-6)


def test_a_raised_status_stops_all():
    raised = np.ones(1, np.int32)
    running, v = np.full(2, 5, np.float32), np.ones((1, 3), np.float32)
    array, due = array_of(SOFT, (3, 3)), Events(0, 1)
    before, cells = array.weight.copy(), array.record
    reading = reading_of(RULES["ttv4"], 3, 3)
    kept = [a.copy() for a in (reading.buffer, reading.mean, reading.chopper)]
    how = {"stream": STREAM, "status": raised}
    with on_cpu():
        transfer.auto_scale(np.ones((2, 3), np.float32), 1.0, 0.5, running, status=raised)
        transfer.chop_samples(v, reading.chopper, None, due, (True, True), 1.0, **how)
        turns = np.full(1, 4, np.int32)
        transfer.transfer_read(cells, reading, due, (1.0, 1.0), turns=turns, status=raised)
        transfer.transfer_write(cells, v, due, 1.0, WRITES["one"], columns=True, **how)
    assert (running == 5).all()
    assert_same_bits(array.weight, before)
    for ours, theirs in zip((reading.buffer, reading.mean, reading.chopper), kept, strict=True):
        assert_same_bits(ours, theirs)
