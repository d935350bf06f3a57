"""Kernels of the transfer family: transfer_buffer and auto_scale.

Each source gives the bits of its mirror for every order of threads, and both the formula.
"""

import numpy as np
import pytest

from rpukit.analog import transfer
from rpukit.testing import assert_same_bits, on_cpu

OK = np.zeros(1, np.int32)


def exact_buffer(z, rule, events, kappas, line_sign, buffer, mean, past, rates):
    """The recursion in float64; gives d and changes the states."""
    d = np.zeros(z.shape)
    for t, (i, _, flags, offset) in enumerate(events):
        u = kappas[t, 1] / (1 if rates is None else rates[offset])
        if rule.kind == 2:
            omega = buffer[i] + u * z[t]
            q, unit = omega / rule.threshold, rule.threshold
        else:
            fresh = z[t]
            if rule.kind == 4:
                past[i] = mean[i] if flags & transfer.BEGINS else past[i]
                fresh = z[t] - past[i]
                mean[i] = (1 - rule.mu) * mean[i] + rule.mu * z[t]
            omega = buffer[i] * (rule.keep if rule.kind == 3 else 1)
            omega = omega + kappas[t, 0] * line_sign * fresh * u
            q, unit = omega, 1
        n = np.clip(np.trunc(q), -rule.length, rule.length)
        out = rule.momentum * omega if rule.forget else omega - (1 - rule.momentum) * n * unit
        if rule.cap > 0 and not rule.forget:
            out = np.clip(out, -rule.cap, rule.cap)
        buffer[i] = np.where(n != 0, out, omega)
        d[t] = -n if flags & transfer.WRITES else 0
    return d


RULES = {
    "ttv2": transfer.Rule(2, 0.3, 1.0, 0.1, True),
    "ttv2_keep": transfer.Rule(2, 0.3, 2.0, 0.0, False),
    "ttv3": transfer.Rule(3, 0.0, 1.0, 0.0, True),
    "ttv3_no_buffer": transfer.Rule(3, 0.0, 3.0, 0.2, True, keep=0.0),
    "ttv4": transfer.Rule(4, 0.0, 1.0, 0.0, True, mu=0.4),
    "ttv4_cap": transfer.Rule(4, 0.0, 2.0, 0.1, False, mu=0.4, cap=2.5),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("n_line", [1, 33, 130])
def test_transfer_buffer(rule, rated, n_line, order):
    rng = np.random.default_rng(0)
    n_slice, n_event = 5, 12
    slices = rng.integers(0, n_slice, n_event).astype(np.int32)
    events = np.zeros((n_event, 4), np.int32)
    events[:, 0] = slices
    for t, i in enumerate(slices):
        later = np.flatnonzero(slices[t + 1 :] == i)
        events[t, 1] = t + 1 + later[0] if later.size else -1
        events[t, 2] = (transfer.FIRST if i not in slices[:t] else 0) + rng.integers(0, 4)
    events[:, 3] = np.arange(n_event)
    make = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)  # noqa: E731
    kappas = np.stack([np.sign(make(n_event)), 2 + make(n_event)], 1)
    sign, z = np.sign(make(n_line)), make(n_event, n_line)
    rates = 1.5 + make(n_event) if rated else None
    start = [make(n_slice, n_line) for _ in range(3)]
    results = []
    for source in (False, True):
        states = [a.copy() for a in start]
        args = (z, rule, events, kappas, sign, states[0], tuple(states[1:]), rates)
        if source:
            with on_cpu(order):
                d = transfer.transfer_buffer(*args, status=OK)
        else:
            d = transfer.transfer_buffer(*args, status=OK)
        results.append([d, *states])
    for ours, theirs in zip(*results, strict=True):
        assert_same_bits(theirs, ours)
    exact = [a.astype("f8") for a in start]
    wide = None if rates is None else rates.astype("f8")
    d = exact_buffer(z.astype("f8"), rule, events, kappas, sign, *exact, wide)
    np.testing.assert_array_equal(results[0][0], d)
    for ours, theirs in zip(results[0][1:], exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)  # twelve float32 steps of size 3


@pytest.mark.parametrize("n", [1, 9])
def test_auto_scale(n, order):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (n, 7)).astype(np.float32)
    d = rng.uniform(-1, 1, (n, 4)).astype(np.float32)
    d[0] = 0
    running, source = np.zeros(2, np.float32), np.zeros(2, np.float32)
    rates = transfer.auto_scale(x, d, 0.5, 0.1, running, status=OK)
    with on_cpu(order):
        assert_same_bits(transfer.auto_scale(x, d, 0.5, 0.1, source, status=OK), rates)
    assert_same_bits(source, running)
    m, exact = [0.0, 0.0], []
    for row_x, row_d in zip(x, d, strict=True):
        for k, v in enumerate((abs(row_x).max(), abs(row_d).max())):
            m[k] = v if m[k] <= 0 else (0.9 * m[k] + 0.1 * v if v > 0 else m[k])
        exact.append(0.5 / (m[0] * m[1] if min(m) > 0 else 1))
    np.testing.assert_allclose(rates, exact, rtol=1e-6)
    np.testing.assert_allclose(running, m, rtol=1e-6)


def test_a_raised_status_stops_both():
    raised = np.ones(1, np.int32)
    running, buffer = np.full(2, 5, np.float32), np.full((1, 3), 5, np.float32)
    v = np.ones((1, 3), np.float32)
    events = np.array([[0, -1, transfer.WRITES + transfer.FIRST, 0]], np.int32)
    with on_cpu():
        transfer.auto_scale(v, v, 1.0, 0.5, running, status=raised)
        kappas, sign = np.ones((1, 2), np.float32), np.ones(3, np.float32)
        transfer.transfer_buffer(v, RULES["ttv3"], events, kappas, sign, buffer, status=raised)
    assert (running == 5).all()
    assert (buffer == 5).all()
