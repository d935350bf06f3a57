"""Mirrors of expected counts and EM steps.

Statistics are chains over (sample, then use of tied parameters) inside blocks of 256 absolute
samples, and of 4096 steps at most in float32; chains are added in float64, ascending. See
``docs/semantics/circuits.md``.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from rpukit._exact.chains import go_on
from rpukit._exact.jit import jit
from rpukit._exact.lines import copy_turned
from rpukit._exact.math import exp32, fma32, round_up32

f4, f8, i8 = np.float32, np.float64, np.int64

CATEGORICAL, BERNOULLI, BINOMIAL, DISCRETE_LOGISTIC, INDICATOR, GAUSSIAN, POISSON = range(7)
NOTHING = f4(-np.inf)
IMPOSSIBLE = f8(-np.inf)  # as a value
WIDE = f4(60.0)
BLOCK = 256  # samples whose statistics are one chain
CHAIN = 4096  # most steps (sample, use) of a chain of float32
# Of a logistic distribution: standard deviation / scale, and its square, pi^2 / 3.
SCALE, SPREAD = f8(1.8137993642342178), f8(3.289868133696453)
SINGLE = f4(1.0).itemsize == 4
# A variance is not resolved below this part of the mean square about the centre.
LOST = f8(9.5367431640625e-07) if SINGLE else f8(1.7763568394002505e-15)
# Chains of counts are held here: totals of 2^34 of them are finite.
LARGEST = f4(3.4028234663852886e38) if SINGLE else f8(1.0463951242053392e298)

FAST = SINGLE  # the chains of vectors are for float32
STEPS, TOGETHER = 64, 16  # steps and nodes of a tile; the result does not depend on them


@jit
def leaf_flow(
    start,
    stop,
    position,
    kinds,
    n_statistic,
    use_first,
    use_row,
    variable,
    place,
    centre,
    codes,
    numbers,
    parameters,
    flows,
    chains,
    totals,
):
    """Accumulate the statistics of leaves: nodes start to stop - 1 of the sources.

    Of a table: flow for each value. Of numbers: sums of flow d, flow d^2, flow; d is x, for a
    Gaussian x minus its mean. Last of each node comes the flow of missing values. ``position``:
    samples before.
    """
    n0 = start
    while n0 < stop:
        n1 = _alike(n0, stop, kinds, n_statistic, use_first, use_row, variable)
        width = n_statistic[n0] + 1
        first, end = place[n0], place[n1 - 1] + width
        of_values = np.empty((width, n1 - n0), f4)
        by_values = kinds[n0] < GAUSSIAN and width <= 4 * flows.shape[0]
        if by_values:
            copy_turned(of_values, chains[first:end].reshape(n1 - n0, width))
        step = position % BLOCK * (use_first[n0 + 1] - use_first[n0])
        for b in range(flows.shape[0]):
            for u in range(use_first[n0], use_first[n0 + 1]):
                if SINGLE and step and step % CHAIN == 0:
                    _end_chains(by_values, of_values, chains[first:end], totals[first:end])
                step += 1
                f = flows[b, use_row[u] : use_row[u] + n1 - n0]
                if kinds[n0] < GAUSSIAN:
                    x = codes[b, variable[use_row[u]]]
                    if x >= width - 1:  # outside the support of these leaves
                        continue
                    x = x if x >= 0 else width - 1
                    if by_values:
                        line = of_values[x]
                        for n in range(f.size):
                            line[n] = f4(line[n] + f[n])
                        continue
                    for n in range(f.size):
                        i = first + n * width + x
                        chains[i] = f4(chains[i] + f[n])
                    continue
                v = numbers[b, variable[use_row[u]]]
                for n in range(f.size):
                    if not f[n] > f4(0.0):  # 0 times infinity would be NaN
                        continue
                    i, d = first + n * width, v
                    if v != v:
                        chains[i + 3] = f4(chains[i + 3] + f[n])
                        continue
                    if kinds[n0] == GAUSSIAN:
                        d = f4(v - parameters[centre[n0 + n]])
                    chains[i] = fma32(f[n], d, chains[i])
                    chains[i + 1] = fma32(f[n], f4(d * d), chains[i + 1])
                    if kinds[n0] != GAUSSIAN:
                        chains[i] = min(chains[i], LARGEST)
                        chains[i + 1] = min(chains[i + 1], LARGEST)
                    chains[i + 2] = f4(chains[i + 2] + f[n])
            if (position + b + 1) % BLOCK == 0:
                _end_chains(by_values, of_values, chains[first:end], totals[first:end])
                step = 0
        if SINGLE and step and step % CHAIN == 0:
            _end_chains(by_values, of_values, chains[first:end], totals[first:end])
        elif by_values:
            copy_turned(chains[first:end].reshape(n1 - n0, width), of_values)
        n0 = n1


@jit
def _end_chains(by_values, of_values, chains, totals):
    """Settle the chains of leaves, which ``of_values`` holds the other way round, or not."""
    if by_values:
        copy_turned(chains.reshape(of_values.shape[1], of_values.shape[0]), of_values)
        of_values[:] = f4(0.0)
    _settle(chains, totals)


@jit
def _alike(n0, stop, kinds, n_statistic, use_first, use_row, variable):
    """End of the leaves of one kind and width from n0 on whose uses lie side by side."""
    n_use, n1 = use_first[n0 + 1] - use_first[n0], n0 + 1
    while n1 < min(n0 + STEPS, stop):
        if kinds[n1] != kinds[n0] or n_statistic[n1] != n_statistic[n0]:
            return n1
        if use_first[n1 + 1] - use_first[n1] != n_use:
            return n1
        for u in range(use_first[n1], use_first[n1] + n_use):
            r, before = use_row[u], use_row[u - n_use]
            if r != before + 1 or variable[r] != variable[before]:
                return n1
        n1 += 1
    return n1


@jit
def flow_steps(
    start,
    stop,
    use_row,
    use_up,
    use_size,
    use_child,
    use_count,
    use_base,
    use_width,
    use_x,
    children,
    lift,
    elements,
    up,
    child,
    wide,
):
    """Prepare the steps (sample, use) of ``sum_flow``.

    A step's exp(lift + value) is split into exp(lift - s) exp(value + s) with the largest lift s,
    but where the second is too large: then ``wide`` is set, and the exponents stay as they are.
    """
    shifts = np.empty(use_row.size, f8)
    for b in range(start, stop):
        for u in range(use_row.size):
            row, size, x, n_child = use_row[u], use_size[u], use_x[u], use_count[u]
            to = use_up[u]
            at = lift.shape[0] * use_base[u] + b * use_width[u]
            above, below = IMPOSSIBLE, IMPOSSIBLE
            for m in range(row, row + size):
                above = max(above, lift[b, m])
            for c in range(n_child):
                below = max(below, elements[at + children[use_child[u] + c]])
            s, most = round_up32(above), round_up32(below)
            some = s > NOTHING
            wide[b, u] = some and f8(most) + f8(s) > WIDE
            for m in range(size):
                up[b, to + m] = f4(lift[b, row + m] - f8(s)) if some else NOTHING
            for c in range(n_child):
                child[b, x + c] = f4(elements[at + children[use_child[u] + c]] + f8(s))
            shifts[u] = f8(s) if SINGLE else f8(0.0)
        for line in (up[b], child[b]):
            for i in range(line.size):
                line[i] = exp32(line[i])
        for u in range(use_row.size):
            if wide[b, u]:
                row, x, at = use_row[u], use_x[u], lift.shape[0] * use_base[u] + b * use_width[u]
                for m in range(use_size[u]):
                    up[b, use_up[u] + m] = f4(lift[b, row + m] - shifts[u])
                for c in range(use_count[u]):
                    v = elements[at + children[use_child[u] + c]]
                    child[b, x + c] = f4(v + shifts[u])


@jit
def sum_flow(
    start,
    stop,
    position,
    size,
    first_use,
    use_up,
    use_x,
    theta,
    up,
    child,
    wide,
    chains,
    totals,
):
    """Accumulate the counts of a block of weights: children start to stop - 1.

    Steps are (sample, use), see ``flow_steps``; the samples before are ``position``. Added up is
    exp(lift + value), without the weight; where a step is wide, of edges that have a weight.
    """
    n_child = stop - start
    a, x = np.empty((STEPS, size), f4), np.empty((STEPS, n_child), f4)
    turned = np.empty((n_child, STEPS), f4)
    own, whole = chains[start * size : stop * size], totals[start * size : stop * size]
    sums = own.reshape(n_child, size)
    n = i8(0)  # a literal would be a type of its own to Numba
    step = position % BLOCK * use_up.size
    for b in range(up.shape[0]):
        for u in range(use_up.size):
            if SINGLE and step and step % CHAIN == 0:
                _go_on(n, a, x, turned, sums)
                n = i8(0)
                _settle(own, whole)
            step += 1
            row, at, is_wide = use_up[u], use_x[u] + start, wide[b, first_use + u]
            if n == STEPS or is_wide:
                _go_on(n, a, x, turned, sums)
                n = i8(0)
            if is_wide:
                for c in range(n_child):
                    for m in range(size):
                        if theta[(start + c) * size + m] > f4(0.0):
                            term = exp32(f4(up[b, row + m] + child[b, at + c]))
                            sums[c, m] = f4(sums[c, m] + term)
                continue
            for m in range(size):
                a[n, m] = up[b, row + m]
            for c in range(n_child):
                x[n, c] = child[b, at + c]
            n += 1
        if (position + b + 1) % BLOCK == 0:
            _go_on(n, a, x, turned, sums)
            n = i8(0)
            _settle(own, whole)
            step = 0
    _go_on(n, a, x, turned, sums)
    if SINGLE and step and step % CHAIN == 0:
        _settle(own, whole)


@jit
def _go_on(n, a, x, turned, sums):
    """sums[c, m] = fma(a[t, m], x[t, c], sums[c, m]) for t from 0 to n - 1."""
    if FAST and x.shape[1] > 1 and n > 1:
        for c0 in range(0, x.shape[1], TOGETHER):
            for t in range(n):
                for c in range(c0, min(c0 + TOGETHER, x.shape[1])):
                    turned[c, t] = x[t, c]
        go_on(a, np.bool_(True), False, turned, i8(0), n, sums)
        return
    for t in range(n):
        for c in range(sums.shape[0]):
            v = x[t, c]
            for m in range(sums.shape[1]):
                sums[c, m] = fma32(a[t, m], v, sums[c, m])


@jit
def _settle(chains, totals):
    """Add chains that end to the totals, and restart them at 0."""
    for i in range(chains.size):
        totals[i] = totals[i] + f8(chains[i])
        chains[i] = f4(0.0)


@jit
def count_samples(start, stop, out, weights, clock, weight):
    """Count samples, and add the flows of their roots in order, as one chain."""
    for _ in range(start, stop):
        total = weight[0]
        for b in range(out.shape[0]):
            for k in range(out.shape[1]):
                if out[b, k] > NOTHING:
                    total = total + f8(weights[b, k])
        weight[0] = total
        clock[0] += out.shape[0]


@jit
def sum_maximise(start, stop, n_child, step, pseudocount, keep_zeros, chains, totals, theta):
    """EM step of nodes start to stop - 1 of a block of weights; a node without flow stays."""
    size = theta.size // n_child
    for m in range(start, stop):
        whole = f8(0.0)
        part = pseudocount / f8(n_child)
        for c in range(n_child):
            i = c * size + m
            w = f8(theta[i])
            if keep_zeros and w < f8(1e-12):
                continue
            whole = whole + w * (totals[i] + f8(chains[i]))
            if keep_zeros:
                whole = whole + part
        if not keep_zeros:
            whole = whole + pseudocount
        if not whole > f8(0.0):
            continue
        for c in range(n_child):
            i = c * size + m
            w = f8(theta[i])
            if keep_zeros and w < f8(1e-12):
                theta[i] = f4(0.0)
                continue
            new = (w * (totals[i] + f8(chains[i])) + part) / whole
            theta[i] = f4((f8(1.0) - step) * w + step * new)


@jit
def _maximise_gaussian(p, flow, step, least):
    """Move mean and standard deviation by moments about the mean."""
    std, missing = f8(p[1]), flow[3]
    whole = flow[2] + missing
    if not whole > f8(0.0):
        return
    shift = step * (flow[0] / whole)
    square = (f8(1.0) - step) * (std * std) + step * ((flow[1] + missing * (std * std)) / whole)
    if not square < f8(np.inf):
        return
    var = max(square - shift * shift, square * LOST)
    p[0] = f4(f8(p[0]) + shift)
    p[1] = f4(least if var < least * least else np.sqrt(var))


@jit
def _maximise_bins(p, n_values, low, width, least, flow, step):
    """Move mean and scale of a logistic distribution by moments of the middles of its bins."""
    mean, own = f8(p[0]), f8(p[1])
    s0, s1, s2, missing = f8(0.0), f8(0.0), f8(0.0), flow[n_values]
    for x in range(n_values):
        v = low + (f8(x) + f8(0.5)) * width
        s0 = s0 + flow[x] * v
        s1 = s1 + flow[x] * (v * v)
        s2 = s2 + flow[x]
    s0 = s0 + missing * mean
    s1 = s1 + missing * (own * own * SPREAD + mean * mean)
    s2 = s2 + missing
    if not s2 > f8(0.0):
        return
    std = own * SCALE
    t1 = (f8(1.0) - step) * mean + step * (s0 / (s2 + f8(1e-10)))
    t2 = (f8(1.0) - step) * (std * std + mean * mean) + step * (s1 / (s2 + f8(1e-10)))
    var = t2 - t1 * t1
    p[0] = f4(t1)
    p[1] = f4((least if var < least * least else np.sqrt(var)) / SCALE)


@jit
def leaf_maximise(
    start,
    stop,
    kind,
    n_values,
    c0,
    c1,
    c2,
    step,
    pseudocount,
    keep_zeros,
    chains,
    totals,
    parameters,
):
    """EM step of leaves start to stop - 1 of one source; a node without flow stays."""
    n_node = totals.size // ((n_values if kind < GAUSSIAN else 3) + 1)
    n_statistic = totals.size // n_node - 1
    n_parameter = parameters.size // n_node
    flow = np.empty(n_statistic + 1, f8)
    for n in range(start, stop):
        for i in range(n_statistic + 1):
            at = n * (n_statistic + 1) + i
            flow[i] = totals[at] + f8(chains[at])
        p = parameters[n * n_parameter : (n + 1) * n_parameter]
        if kind == CATEGORICAL:
            _maximise_table(p, flow, step, pseudocount, keep_zeros)
        elif kind in (BERNOULLI, BINOMIAL):
            trials, hits, count = f8(n_values - 1), f8(0.0), f8(0.0)
            for x in range(n_values):
                hits = hits + flow[x] * f8(x)
                count = count + flow[x]
            q = f8(p[0])
            hits = hits + flow[n_values] * (trials * q)
            count = count + flow[n_values] + pseudocount
            if count > f8(0.0):
                new = (hits + f8(0.5) * pseudocount * trials) / (trials * count)
                p[0] = f4((f8(1.0) - step) * q + step * new)
        elif kind == DISCRETE_LOGISTIC:
            _maximise_bins(p, n_values, c0, c1, c2, flow, step)
        elif kind == GAUSSIAN:
            _maximise_gaussian(p, flow, step, c2)
        elif kind == POISSON:
            rate = f8(p[0])
            hits, count = flow[0] + flow[3] * rate, flow[2] + flow[3] + pseudocount
            if count > f8(0.0):
                new = (hits + pseudocount * rate) / count
                p[0] = f4((f8(1.0) - step) * rate + step * new)


@jit
def _maximise_table(p, flow, step, pseudocount, keep_zeros):
    part = pseudocount / f8(p.size)
    whole = f8(0.0)
    for x in range(p.size):
        w = f8(p[x])
        if not (keep_zeros and w < f8(1e-12)):
            whole = whole + (flow[x] + flow[p.size] * w)
            if keep_zeros:
                whole = whole + part
    if not keep_zeros:
        whole = whole + pseudocount
    if not whole > f8(0.0):
        return
    for x in range(p.size):
        w = f8(p[x])
        if keep_zeros and w < f8(1e-12):
            p[x] = f4(0.0)
        else:
            new = (flow[x] + flow[p.size] * w + part) / whole
            p[x] = f4((f8(1.0) - step) * w + step * new)
