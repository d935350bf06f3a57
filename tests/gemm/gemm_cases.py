"""Inputs of the tests of products, and the float64 formula."""

import numpy as np

from rpukit.gemm import from_bfloat16, to_bfloat16

FORMATS = ("bfloat16", "float16")


def words(shape, form, seed=0, scale=1.0):
    """16-bit floats: uint16 bits of bfloat16, or float16."""
    x = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
    return to_bfloat16(x) if form == "bfloat16" else x.astype(np.float16)


def values(x):
    """float64 values."""
    return (from_bfloat16(x) if x.dtype == np.uint16 else x).astype(np.float64)


def factors(m, n, k, form, trans_a=False, trans_b=False, seed=0):
    a = words((k, m) if trans_a else (m, k), form, seed)
    b = words((n, k) if trans_b else (k, n), form, seed + 1)
    return a, b


def bound(a, b, segment=4096):
    """Largest error of a chain: 17 terms cut at 2^-25 of the largest and one cut at 2^-23, a step.

    5.25 n 2^-23 of the sum of absolute products, for n steps of 16; and half an ulp of float32 for
    each segment that is added.
    """
    k = a.shape[1]
    steps = -(-k // 16)
    return (5.25 * steps + k // segment) * 2.0**-23 * (abs(a) @ abs(b)) + 1e-40
