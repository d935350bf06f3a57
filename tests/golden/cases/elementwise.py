"""Golden cases of plain operations on arrays: draws, functions, cross-entropy, checks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit import elementwise
from rpukit.analog import deferred_errors
from tests.golden.cases.case import SEEDS, Case, put


def edges():
    """float32 of all kinds, evenly over the bit patterns, and the special ones."""
    bits = np.arange(0, 1 << 32, 40009, dtype=np.uint64).astype(np.uint32)
    special = np.array(
        [0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0x007FFFFF], np.uint32
    )
    return np.concatenate([bits, special]).view(np.float32)


def mapped(name, dtype):
    def run(device):
        x = edges()
        if name == "normal_quantile":
            x = elementwise.random_fill(rk.Stream.from_seed(1), (100_003,), "uniform")
        two = name in elementwise.ops.FUNCTIONS_OF_TWO
        arrays = (x, x[::-1]) if two else (x,)
        with np.errstate(invalid="ignore"):  # a NaN may be signalling
            arrays = [put(np.ascontiguousarray(v.astype(dtype)), device) for v in arrays]
        return [elementwise.math_map(name, *arrays)]

    return run


def cross_entropy(n, n_class, seed):
    def run(device):
        z = elementwise.random_fill(rk.Stream.from_seed(seed), (n, n_class)) * 5
        y = (np.arange(n) * 7 % n_class).astype(np.int32)
        return list(elementwise.softmax_cross_entropy(put(z, device), put(y, device)))

    return run


def filled(n, kind, seed):
    def run(device):
        s = rk.Stream.from_seed(seed)
        return [
            elementwise.random_fill(s, (n,), kind, sample=2**33 + 5, draw=6, op=9, device=device)
        ]

    return run


def checked(device):
    found = []
    for bad in (np.nan, np.inf, 1.0):
        x = np.ones(1031, np.float32)
        x[700] = bad
        status = put(np.zeros(1, np.int32), device)
        deferred_errors.check_finite(put(x, device), status=status, call=5)
        found.append(status)
    return found


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for kind in ("bits", "uniform", "normal"):
        for n in (1, 31, 100_003):
            for seed in SEEDS:
                yield "random_fill", Case(f"{kind}-{n}-seed{seed}", filled(n, kind, seed))
    for name in (*elementwise.ops.FUNCTIONS, *elementwise.ops.FUNCTIONS_OF_TWO):
        for dtype in (np.float32, np.float64):
            yield "math_map", Case(f"{name}-{np.dtype(dtype).name}", mapped(name, dtype))
    for n, n_class in ((1, 1), (33, 10), (131, 31)):
        yield "softmax_cross_entropy", Case(f"{n}x{n_class}", cross_entropy(n, n_class, 3))
    yield "check_finite", Case("nan-inf-finite", checked)
