"""Numba twins of ``kernels_cu/include/rk_philox.cuh``: the same words, uniforms and normals."""

from __future__ import annotations

import numpy as np

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32, normal_centred32

f4, u4, u8 = np.float32, np.uint32, np.uint64

_M0, _M1 = u8(0xD2511F53), u8(0xCD9E8D57)
_LOW = u8(0xFFFFFFFF)  # words stay in 64 bits: narrowing vectors would cost more than the rest
_FAR = u4(14450 << 9)  # -log(1 - x^2) reaches 5 at 14153 of 2^23 uniforms
_W0, _W1 = u4(0x9E3779B9), u4(0xBB67AE85)


@jit(forceinline=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Compute one Philox4x32-10 block; all arguments and results are uint32."""
    a, b, c, d = u8(c0), u8(c1), u8(c2), u8(c3)  # only the low halves are used: see _LOW
    for _ in range(10):
        p, q = u8(_M0 * u8(a & _LOW)), u8(_M1 * u8(c & _LOW))
        a, b = u8(u8(u8(q >> u8(32)) ^ u8(k0)) ^ b), q
        c, d = u8(u8(u8(p >> u8(32)) ^ u8(k1)) ^ d), p
        k0 = u4(k0 + _W0)
        k1 = u4(k1 + _W1)
    return u4(a), u4(b), u4(c), u4(d)


@jit(forceinline=True)
def block(k0, k1, op, index, sample, number):
    """Return the four words of one block of draws; ``index`` and ``sample`` are uint64."""
    return philox(
        u4(index),
        u4(sample),
        u4(u4(sample >> u8(32)) + u4(u4(op) << u4(16))),
        u4(u4(number) + u4(u4(index >> u8(32)) << u4(16))),
        k0,
        k1,
    )


@jit(forceinline=True)
def word(k0, k1, op, index, sample, draw):
    """Return the word of one draw."""
    b0, b1, b2, b3 = block(k0, k1, op, index, sample, u4(draw) >> u4(2))
    w = u4(draw) & u4(3)
    if w == u4(0):
        return b0
    if w == u4(1):
        return b1
    if w == u4(2):
        return b2
    return b3


@jit(forceinline=True)
def uniform(w):
    """Map a word to (0, 1): the top 23 bits and a half."""
    return f4(f4(f4(w >> u4(9)) + f4(0.5)) * f4(1.1920928955078125e-07))


@jit(forceinline=True)
def _centred(w):
    """Map a word to (-1, 1): twice the uniform, minus 1."""
    return fma32(f4(w >> u4(9)), f4(2.384185791015625e-07), f4(-0.99999988079071045))


@jit(forceinline=True)
def normal(w):
    """Map a word to a standard normal."""
    return normal_centred32(_centred(w))
