"""Runs of pulses on strips of cells, for the mirror of the update.

The cells that a sample pulses are scattered over a row. Their weights and planes are first copied
to adjacent places, so that the loop over them has no branches or gaps and vectorises: a scalar
exponential costs more than the rest of a pulse.

Nothing is allocated here (``_nrt=False``): reference counts of all these arrays would take as long
as the pulses of a short strip.
"""

# mypy: ignore-errors

from __future__ import annotations

import llvmlite.ir as ir
import numba as nb
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from rpukit._exact.jit import jit
from rpukit._exact.math import choose
from rpukit._exact.philox import normal

f4, i4, u4, u8 = np.float32, np.int32, np.uint32, np.uint64

UP, COLUMN = u4(0x80000000), u4(0x7FFFFFFF)  # a hit: its direction, and its column

CAP = 512  # cells of a strip: with their planes they fit into the nearest cache
PAD = 16  # lanes of a vector: strips are padded to whole vectors, without a scalar remainder

if nb.config.DISABLE_JIT:

    def _planes_of(planes, at, distance, blank):
        return tuple(planes[int(at) + k * int(distance)] for k in range(len(blank)))

else:

    @intrinsic
    def _planes_of(typing, planes, at, distance, blank):
        """Numbers at ``at``, ``at + distance`` and so on: a tuple of as many as ``blank`` has."""

        def code(context, builder, sig, args):
            data = context.make_array(sig.args[0])(context, builder, args[0]).data
            steps = [builder.mul(args[2], ir.Constant(args[2].type, k)) for k in range(n)]
            places = [builder.gep(data, [builder.add(args[1], step)]) for step in steps]
            return context.make_tuple(builder, sig.return_type, list(map(builder.load, places)))

        n = len(blank)
        return types.UniTuple(planes.dtype, n)(planes, types.intp, types.intp, blank), code


@jit(forceinline=True)
def philox2x32(c0, c1, k):
    """Compute one Philox2x32-10 block; all arguments and results are uint32."""
    a, b = u8(c0), u8(c1)  # only the low halves matter, as in _exact/philox.py
    for _ in range(10):
        p = u8(u8(0xD256D193) * u8(a & u8(0xFFFFFFFF)))
        a, b = u8(u8(u8(p >> u8(32)) ^ u8(k)) ^ b), p
        k = u4(k + u4(0x9E3779B9))
    return u4(a), u4(b)


@jit(forceinline=True)
def _whole(n):
    return (n + PAD - 1) // PAD * PAD


@jit(_nrt=False)
def _first(step, run, o, n, w, strip, blank, hit, count, g, xi, left):
    """Apply runs taken at once and first pulses; ``left`` gets the lengths of the other runs."""
    for a in range(_whole(n)):
        p, up, number = _planes_of(strip, a, CAP, blank), hit[o + a] >= UP, count[o + a]
        one = step(w[a], p, g, up, xi[o + a])
        taken, whole = run(w[a], p, g, up, number, xi[o + a])
        many = number > i4(1)
        taken = taken & many
        left[a] = choose(many & (not taken), number, i4(0))
        w[a] = choose(taken, whole, one)


@jit(constants=True, _nrt=False)
def _pulse(step, o, n, pulse, w, strip, blank, hit, count, g, xi):
    """Apply pulse number ``pulse`` to those of n cells that get so many pulses."""
    for a in range(_whole(n)):
        v = step(w[a], _planes_of(strip, a, CAP, blank), g, hit[o + a] >= UP, xi[o + a])
        w[a] = choose(count[o + a] > pulse, v, w[a])


@jit(_nrt=False)
def _longest_first(n, left, places, order):
    """Sort the cells with remaining pulses by their number; return the count of these cells."""
    most = i4(0)
    for a in range(n):
        most = max(most, left[a])
    if most == 0:
        return 0
    for k in range(most + 1):
        places[k] = 0
    for a in range(n):
        places[u4(left[a])] += 1
    at = i4(0)
    for k in range(most, 0, -1):
        here = places[k]
        places[k] = at
        at += here
    for a in range(n):
        k = u4(left[a])
        if k:
            order[u4(places[k])] = a
            places[k] += 1
    return at


@jit(_nrt=False)
def _walk(step, n, s0, s1, first_col, w, strip, blank, hit, count, g, xi0, xi1):
    """Apply the pulses after the first of n cells, those with most pulses first."""
    noisy = g[0] != f4(0.0)
    pulse = u4(1)
    while n:
        if noisy:
            number = u4(u4(pulse + u4(1)) >> u4(1))
            for a in range(_whole(n)):
                b0, b1 = philox2x32(u4(first_col + u4(hit[a] & COLUMN)), u4(s1 ^ number), s0)
                xi0[a], xi1[a] = normal(b0), normal(b1)
        _pulse(step, 0, n, i4(pulse), w, strip, blank, hit, count, g, xi0)
        pulse = u4(pulse + u4(1))
        while n and count[u8(n - 1)] <= pulse:
            n -= 1
        if n:
            _pulse(step, 0, n, i4(pulse), w, strip, blank, hit, count, g, xi1)
        pulse = u4(pulse + u4(1))
        while n and count[u8(n - 1)] <= pulse:
            n -= 1


@jit(_nrt=False, forceinline=True)
def pulse_row(
    step, run, dear, s0, s1, first_col, planes, at, n_cell, blank, g, stored, n_hit, hit, count,
    most, xi, w, strip, left, order, places, rest_w, rest_strip, rest_hit, rest_count, xi0, xi1,
):  # fmt: skip
    """Apply the runs of one sample to the cells of one row that it pulses.

    ``planes`` and ``stored`` are flat, the row begins at ``at``; ``hit`` are the columns with
    their directions, counted from column ``first_col`` of the tile; ``count`` the pulses of each,
    up to ``most``, ``xi`` the normals of the first ones; ``blank`` is a tuple of as many zeros as
    there are planes; ``dear`` says that a step costs more than to bring cells together. What
    follows ``xi`` is scratch.
    """
    if most == 1 and not dear:
        for a in range(n_hit):
            cell, up = u8(at + u8(hit[u8(a)] & COLUMN)), hit[u8(a)] >= UP
            p = _planes_of(planes, cell, n_cell, blank)
            stored[cell] = step(stored[cell], p, g, up, xi[u8(a)])
        return
    for o in range(0, n_hit, CAP):
        n = min(CAP, n_hit - o)
        for a in range(n):
            cell = u8(at + u8(hit[u8(o + a)] & COLUMN))
            w[a] = stored[cell]
            for k in range(len(blank)):
                strip[u8(k * CAP + a)] = planes[u8(cell + u8(u8(k) * n_cell))]
        if most == 1:
            _pulse(step, o, n, 0, w, strip, blank, hit, count, g, xi)
        else:
            _first(step, run, o, n, w, strip, blank, hit, count, g, xi, left)
            n_rest = _longest_first(n, left, places, order)
            if n_rest:
                for b in range(n_rest):
                    a = u4(order[b])
                    rest_w[b], rest_count[b], rest_hit[b] = w[a], left[a], hit[u8(o) + u8(a)]
                for k in range(len(blank)):
                    for b in range(n_rest):
                        rest_strip[u8(k * CAP + b)] = strip[u8(k * CAP) + u8(order[b])]
                _walk(
                    step, n_rest, s0, s1, first_col, rest_w, rest_strip, blank, rest_hit,
                    rest_count, g, xi0, xi1,
                )  # fmt: skip
                for b in range(n_rest):
                    w[u4(order[b])] = rest_w[b]
        for a in range(n):
            stored[at + u8(hit[u8(o + a)] & COLUMN)] = w[a]
