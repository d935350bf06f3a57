"""Mirrors of the log-probabilities of a language-model head."""

from __future__ import annotations

import numba as nb
import numpy as np

from rpukit._exact.math import exp32, f4, f8, fma32, fma64, log32
from rpukit._exact.math64 import exp64, log64
from rpukit._exact.tensor_core import round16

_BLOCK, _LANES = 64, 32
_TREE = (8, 1, 16, 32, 2, 4)  # bits of the column's number in its block


def _make(real, exp, log, fma):
    """Mirrors for one type."""
    zero, one, lowest, nan = real(0), real(1), real(-np.inf), real(np.nan)

    @nb.njit(nogil=True, error_model="numpy", inline="always")
    def anchor(peak):
        return zero if peak == lowest else peak

    @nb.njit(nogil=True, error_model="numpy")
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
                top = lowest
                for c in range(v.size):
                    top = v[c] if v[c] > top else top
                base = anchor(top)
                e[:] = zero
                for c in range(v.size):
                    e[c] = exp(real(v[c] - base))
                done = 0
                for bit in _TREE:
                    done |= bit
                    for c in range(_BLOCK):
                        if not c & done:
                            e[c] += e[c | bit]
                peak[s, first + c0 // _BLOCK], mass[s, first + c0 // _BLOCK] = top, e[0]

    @nb.njit(nogil=True, error_model="numpy")
    def logprob_rows(start, stop, n_vocab, peak, mass, chosen, targets, normaliser, logprob):
        """Normaliser and log-probability of rows ``start`` to ``stop - 1``."""
        lanes = np.empty(_LANES, peak.dtype)
        for s in range(start, stop):
            top = lowest
            for b in range(peak.shape[1]):
                top = peak[s, b] if peak[s, b] > top else top
            base = anchor(top)
            lanes[:] = zero
            for b in range(peak.shape[1]):
                i = b % _LANES
                lanes[i] = fma(mass[s, b], exp(real(peak[s, b] - base)), lanes[i])
            half = _LANES // 2
            while half:
                for i in range(half):
                    lanes[i] += lanes[i + half]
                half //= 2
            size = log(lanes[0])
            normaliser[s, 0], normaliser[s, 1] = top, size
            if targets[s] < 0:
                logprob[s] = zero
            elif targets[s] < n_vocab:
                logprob[s] = real(real(chosen[s] - top) - size)
            else:
                logprob[s] = nan

    @nb.njit(nogil=True, error_model="numpy")
    def logprob_gradient(start, stop, half, first, z, normaliser, slope, targets, out):
        """Gradient by a slice of logits, column `first` on, of rows ``start`` to ``stop - 1``."""
        for s in range(start, stop):
            for c in range(z.shape[1]):
                p = exp(real(real(z[s, c] - normaliser[s, 0]) - normaliser[s, 1]))
                hot = one if first + c == targets[s] else zero
                v = real(slope[s] * real(hot - p))
                if targets[s] >= out.shape[1]:
                    v = nan
                if targets[s] < 0:
                    v = zero
                if out.itemsize == 2:
                    out[s, first + c] = round16(half, f4(v))
                else:
                    out[s, first + c] = v

    return logprob_blocks, logprob_rows, logprob_gradient


_BY_SIZE = {4: _make(f4, exp32, log32, fma32), 8: _make(f8, exp64, log64, fma64)}


def logprob_blocks(start, stop, first, z, *rest):
    """Blocks of rows ``start`` to ``stop - 1`` of a slice of logits, in the logits' type."""
    _BY_SIZE[z.itemsize][0](start, stop, first, z, *rest)


def logprob_rows(start, stop, n_vocab, peak, *rest):
    """Normaliser and log-probability of rows ``start`` to ``stop - 1``, in the type of peak."""
    _BY_SIZE[peak.itemsize][1](start, stop, n_vocab, peak, *rest)


def logprob_gradient(start, stop, half, first, z, *rest):
    """Gradient by the logits of rows ``start`` to ``stop - 1``, in the logits' type."""
    _BY_SIZE[z.itemsize][2](start, stop, half, first, z, *rest)
