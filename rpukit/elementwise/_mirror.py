"""Mirrors of the elementwise kernels."""

from __future__ import annotations

import numpy as np

from rpukit._exact import math as _math
from rpukit._exact import math64 as _math64
from rpukit._exact import special as _math_special
from rpukit._exact.jit import jit
from rpukit._exact.math import NAN, exp32, log32
from rpukit._exact.philox import normal, uniform, word

f4, u4, u8 = np.float32, np.uint32, np.uint64


def function(name, bits):
    """Return the function of a public name and a width, 32 or 64."""
    name = {"power": "pow"}.get(name, name) + str(bits)
    for module in (_math_special, _math64, _math):
        if hasattr(module, name):
            return getattr(module, name)
    raise KeyError(name)


@jit
def _as_word(w):
    return w


TRANSFORMS = {"bits": _as_word, "uniform": uniform, "normal": normal}


@jit
def random_fill(start, stop, transform, op, sample, draw, k0, k1, out):
    """Draw elements ``start`` to ``stop - 1``."""
    for i in range(start, stop):
        out[i] = transform(word(k0, k1, u4(op), u8(i), u8(sample), u4(draw)))


@jit
def math_map(start, stop, function, x, out):
    """Apply a function to elements ``start`` to ``stop - 1``."""
    for i in range(start, stop):
        out[i] = function(x[i])


@jit
def math_map_two(start, stop, function, x, y, out):
    """Apply a function of two arguments to elements ``start`` to ``stop - 1``."""
    for i in range(start, stop):
        out[i] = function(x[i], y[i])


@jit
def softmax_cross_entropy(start, stop, logits, labels, loss, gradient):
    """Loss and gradient of rows ``start`` to ``stop - 1``, classes ascending."""
    n_class = logits.shape[1]
    for s in range(start, stop):
        label = labels[s]
        m = logits[s, 0]
        for k in range(1, n_class):
            if logits[s, k] > m:
                m = logits[s, k]
        total = f4(0.0)
        for k in range(n_class):
            gradient[s, k] = exp32(f4(logits[s, k] - m))
            total = f4(total + gradient[s, k])
        known = label >= 0 and label < n_class
        for k in range(n_class):
            hot = f4(1.0) if k == label else f4(0.0)
            gradient[s, k] = f4(f4(gradient[s, k] / total) - hot) if known else NAN
        loss[s] = f4(f4(log32(total) + m) - logits[s, label]) if known else NAN
