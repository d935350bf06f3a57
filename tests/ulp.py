"""How far float32 functions are from float64 references, over any walk of the 2^32 inputs.

A reference in float64 is off by some 2^-29 units of the last place (ulp) of float32, so it decides
every bound that is not within 1e-8 of the error. The errors of special values are counted apart.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numba as nb
import numpy as np

from rpukit import _device, elementwise
from rpukit._exact import math as _math
from rpukit._exact import special as _special

f4, u4, f8 = np.float32, np.uint32, np.float64
OVERFLOW = f8(2.0**128 - 2.0**103)  # from here on the nearest float32 is infinity

# Stated bounds in ulp: float32 over all inputs, float64 over samples. lgamma is measured in ulp of
# the larger of 1 and the result, since it has zeros among the negative numbers.
BOUNDS = {
    "exp": 1.0, "log": 1.0, "log1p": 1.0, "expm1": 1.0, "sqrt": 0.5000001, "reciprocal": 0.5000001,
    "tanh": 2.5, "sigmoid": 2.5, "erf": 2.0, "lgamma": 13.0,
}  # fmt: skip
FLOORS = {"lgamma": 1.0}
BOUNDS64 = {
    "exp": 1.0, "log": 1.0, "log1p": 1.0, "expm1": 1.0, "sqrt": 0.5000001, "reciprocal": 0.5000001,
    "tanh": 2.5, "sigmoid": 2.5, "erf": 2.0, "lgamma": 6.0, "normal_quantile": 5.0,
}  # fmt: skip


@nb.njit(nogil=True, error_model="numpy")
def _sigmoid(x):
    e = math.exp(-abs(x))
    return (e if x < 0.0 else 1.0) / (1.0 + e)


REFERENCES = {
    "exp": nb.njit(lambda x: np.exp(x)),
    "log": nb.njit(lambda x: np.log(x)),
    "log1p": nb.njit(lambda x: np.log1p(x)),
    "expm1": nb.njit(lambda x: np.expm1(x)),
    "sqrt": nb.njit(lambda x: np.sqrt(x)),
    "reciprocal": nb.njit(lambda x: f8(1.0) / x, error_model="numpy"),
    "tanh": nb.njit(lambda x: np.tanh(x)),
    "sigmoid": _sigmoid,
    "erf": nb.njit(lambda x: math.erf(x)),
    "lgamma": nb.njit(lambda x: math.lgamma(x)),
}


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk over inputs found.

    max_ulp is the largest error in units of the last place of the true result (of 2^-149 where
    that is subnormal); at is its input; n_special counts results of the wrong class (NaN,
    infinity, or the sign of a zero), and special_at is the first such input.
    """

    n: int
    max_ulp: float
    at: float
    n_special: int
    special_at: float


@nb.njit(nogil=True, error_model="numpy")
def _ulp(value):
    """Unit in the last place of float32 at a float64 value."""
    e = math.frexp(abs(value))[1] - 1
    return math.ldexp(1.0, max(e, -126) - 23)


@nb.njit(nogil=True, error_model="numpy")
def _walk(function, reference, floor, start, stop, stride):
    worst, at, n_special, special_at, n = -1.0, f4(0.0), 0, f4(0.0), 0
    for bits in range(start, stop, stride):
        x = _math.u2f(u4(bits))
        got, want = function(x), reference(f8(x))
        n += 1
        if want != want:
            right = got != got
        elif abs(want) >= OVERFLOW and abs(f8(got)) == np.inf:
            right = f8(got) == math.copysign(np.inf, want)
        elif want == 0.0:
            right = got == f4(0.0) and math.copysign(1.0, f8(got)) == math.copysign(1.0, want)
        else:
            right = abs(f8(got)) < np.inf
            error = abs(f8(got) - want) / _ulp(min(max(abs(want), floor), f8(2.0**127)))
            if error > worst:
                worst, at = error, x
        if not right:
            if n_special == 0:
                special_at = x
            n_special += 1
    return n, worst, f8(at), n_special, f8(special_at)


def walk(name, start=0, stop=1 << 32, stride=1, *, floor=0.0, n_threads=2):
    """Compare a float32 function with its reference over the bit patterns of a range.

    ``floor`` counts errors of smaller results in ulp of ``floor``: an absolute bound there.
    """
    function = getattr(_special if hasattr(_special, name + "32") else _math, name + "32")
    edges = [start + (stop - start) * i // (4 * n_threads) for i in range(4 * n_threads + 1)]
    edges[1:-1] = [start + (e - start) // stride * stride for e in edges[1:-1]]
    _walk(function, REFERENCES[name], floor, 0, 0, stride)  # compile once
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [
            pool.submit(_walk, function, REFERENCES[name], floor, a, b, stride)
            for a, b in pairwise(edges)
        ]
        found = [job.result() for job in jobs]
    worst = max(found, key=lambda part: part[1])
    special = [part for part in found if part[3]] or [(0, 0.0, 0.0, 0, 0.0)]
    n_special = sum(part[3] for part in found)
    return Walk(sum(p[0] for p in found), worst[1], worst[2], n_special, special[0][4])


def call(name, x, device="cpu", y=None):
    """Apply a public function on a device; the result comes back to the CPU."""
    where = _device.parse_device(device)
    inputs = [_device.to_device(a, where) for a in (x, y) if a is not None]
    return _device.to_numpy(getattr(elementwise, name)(*inputs))
