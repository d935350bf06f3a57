"""Mirrors of the log-probabilities of a language-model head."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import exp32, f4, fma32, log32
from rpukit._exact.tensor_core import round16

_BLOCK, _LANES = 64, 32
_TREE = (8, 1, 16, 32, 2, 4)  # bits of the column's number in its block
REAL = np.float32  # float64 in the twin, see rpukit/_exact/twins.py
ZERO, ONE, LOWEST, NAN = REAL(0), REAL(1), REAL(-np.inf), REAL(np.nan)


@jit(inline="always")
def anchor(peak):
    """What is taken from logits before their exponential: their largest, or 0 if that is -inf."""
    return ZERO if peak == LOWEST else peak


@jit
def logprob_blocks(start, stop, first, z, targets, peak, mass, chosen):
    """Blocks of rows ``start`` to ``stop - 1`` of a slice of logits, block `first` on."""
    n_column = z.shape[1]
    e = np.empty(_BLOCK, z.dtype)
    for s in range(start, stop):
        wanted = np.int64(targets[s]) - first * _BLOCK
        if 0 <= wanted < n_column:
            chosen[s] = z[s, wanted]
        for c0 in range(0, n_column, _BLOCK):
            v = z[s, c0 : c0 + _BLOCK]
            top = LOWEST
            for c in range(v.size):
                top = v[c] if v[c] > top else top
            base = anchor(top)
            e[:] = ZERO
            for c in range(v.size):
                e[c] = exp32(REAL(v[c] - base))
            done = 0
            for bit in _TREE:
                done |= bit
                for c in range(_BLOCK):
                    if not c & done:
                        e[c] += e[c | bit]
            peak[s, first + c0 // _BLOCK], mass[s, first + c0 // _BLOCK] = top, e[0]


@jit
def logprob_rows(start, stop, n_vocab, peak, mass, chosen, targets, normaliser, logprob):
    """Normaliser and log-probability of rows ``start`` to ``stop - 1``."""
    lanes = np.empty(_LANES, peak.dtype)
    for s in range(start, stop):
        top = LOWEST
        for b in range(peak.shape[1]):
            top = peak[s, b] if peak[s, b] > top else top
        base = anchor(top)
        lanes[:] = ZERO
        for b in range(peak.shape[1]):
            i = b % _LANES
            lanes[i] = fma32(mass[s, b], exp32(REAL(peak[s, b] - base)), lanes[i])
        half = _LANES // 2
        while half:
            for i in range(half):
                lanes[i] += lanes[i + half]
            half //= 2
        size = log32(lanes[0])
        normaliser[s, 0], normaliser[s, 1] = top, size
        if targets[s] < 0:
            logprob[s] = ZERO
        elif targets[s] < n_vocab:
            logprob[s] = REAL(REAL(chosen[s] - top) - size)
        else:
            logprob[s] = NAN


@jit
def logprob_gradient(start, stop, half, first, z, normaliser, slope, targets, out):
    """Gradient by a slice of logits, column `first` on, of rows ``start`` to ``stop - 1``."""
    for s in range(start, stop):
        for c in range(z.shape[1]):
            p = exp32(REAL(REAL(z[s, c] - normaliser[s, 0]) - normaliser[s, 1]))
            hot = ONE if first + c == targets[s] else ZERO
            v = REAL(slope[s] * REAL(hot - p))
            if targets[s] >= out.shape[1]:
                v = NAN
            if targets[s] < 0:
                v = ZERO
            if out.itemsize == 2:
                out[s, first + c] = round16(half, f4(v))
            else:
                out[s, first + c] = v
