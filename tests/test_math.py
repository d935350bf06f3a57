"""The elementary functions against float64 and mpmath: stated errors, special values, fma, order.

The normal quantile has tests/test_quantile.py; that kernels and mirrors have the same bits is
shown in tests/kernels/test_math_map.py.
"""

import importlib.util
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numba as nb
import numpy as np
import pytest
from scipy.special import logsumexp, ndtri

import rpukit as rk
from rpukit._exact import math as _math
from rpukit._exact import math64 as _math64
from rpukit._exact import special as _math_special
from rpukit._kernels import Kernel
from rpukit.testing import assert_same_bits, on_cpu
from tests import ulp

ROOT = Path(__file__).parents[1]
INF, NAN = np.inf, np.nan
TINY32, TINY64 = 2.0**-149, 2.0**-1074  # the smallest subnormal numbers
E = rk.elementwise


@pytest.mark.parametrize("name", ulp.BOUNDS)
def test_float32_walk(name):
    """2^24 inputs, evenly over all bit patterns; 257 is odd, so low bits vary too."""
    found = ulp.walk(name, stride=257, floor=ulp.FLOORS.get(name, 0.0))
    assert found.n > 1 << 23
    assert found.n_special == 0, found
    assert found.max_ulp < ulp.BOUNDS[name], found


def test_lgamma_of_positive_numbers_is_relative():
    found = ulp.walk("lgamma", 0, 0x7F800001, 127)
    assert found.n_special == 0, found
    assert found.max_ulp < 6, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ulp.BOUNDS)
def test_float32_exhaustive(name):
    """All 2^32 inputs; tools/check_math.py prints the table of docs/math.md from the same walk."""
    found = ulp.walk(name, floor=ulp.FLOORS.get(name, 0.0), n_threads=os.cpu_count() or 1)
    assert found.n == 1 << 32
    assert found.n_special == 0, found
    assert found.max_ulp < ulp.BOUNDS[name], found


# x, f(x) for both types; TINY becomes the smallest subnormal of the type.
TINY = "tiny"
SPECIAL = {
    "exp": [(0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (1e30, INF), (-1e30, 0), (TINY, 1)],
    "log": [(0, -INF), (-0.0, -INF), (1, 0), (INF, INF), (-INF, NAN), (-1, NAN)],
    "log1p": [(0, 0), (-0.0, -0.0), (-1, -INF), (-2, NAN), (INF, INF), (-INF, NAN), (TINY, TINY)],
    "expm1": [(0, 0), (-0.0, -0.0), (INF, INF), (-INF, -1), (-1e30, -1), (TINY, TINY)],
    "sqrt": [(0, 0), (-0.0, -0.0), (4, 2), (INF, INF), (-1, NAN), (-INF, NAN)],
    "reciprocal": [(0, INF), (-0.0, -INF), (INF, 0), (-INF, -0.0), (4, 0.25), (TINY, INF)],
    "tanh": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (30, 1), (-30, -1), (TINY, TINY)],
    "sigmoid": [(0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (TINY, 0.5)],
    "erf": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (7, 1), (-7, -1), (TINY, TINY)],
    "lgamma": [(1, 0), (2, 0), (0, INF), (-0.0, INF), (-3, INF), (INF, INF), (-INF, INF)],
    "normal_quantile": [(0.5, 0), (0, -INF), (1, INF), (-0.5, NAN), (1.5, NAN), (INF, NAN)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype, device):
    tiny = TINY32 if dtype is np.float32 else TINY64
    pairs = [*SPECIAL[name], (NAN, NAN)]
    x, want = np.array([[tiny if v is TINY else v for v in row] for row in pairs], dtype).T.copy()
    assert_same_bits(ulp.call(name, x, device), want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_power_special_values(dtype, device):
    """All pairs of awkward numbers behave as C's pow."""
    values = [0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -2.5, 1e9, -1e9, INF, -INF, NAN]
    values += [16777217.0, 2.0**60, float(np.finfo(dtype).max), float(np.finfo(dtype).tiny)]
    grid = np.array(values, dtype)
    x, y = (a.ravel() for a in np.meshgrid(grid, grid))
    got = ulp.call("power", x, device, y)
    for a, b, r in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        try:
            want = math.pow(a, b)
        except OverflowError:
            want = math.copysign(INF, a) if b % 2 == 1 else INF
        except ValueError:  # 0 to a negative power, or a root of a negative number
            odd = b % 2 == 1
            want = (math.copysign(INF, a) if odd else INF) if a == 0 else NAN
        with np.errstate(over="ignore", under="ignore"):
            want = float(dtype(want))
        assert math.isnan(r) == math.isnan(want), (a, b, r, want)
        if not math.isnan(want):
            assert math.copysign(1, r) == math.copysign(1, want), (a, b, r, want)
            assert r == want or abs(r / want - 1) < 1e-6, (a, b, r, want)


def sample(name):
    """Some thousand float64 inputs of a function: its whole range, and where it is hard."""
    rng = np.random.default_rng(7)
    n = 700
    any_size = rng.integers(0, 0x7FF0 << 48, n, dtype=np.int64).view(np.float64)
    signed = np.sign(rng.normal(0, 1, n)) * 10.0 ** rng.uniform(-300, 0, n)
    exps = [rng.normal(0, 1, n), rng.normal(0, 30, n), rng.uniform(-745, 710, n), signed]
    parts = {
        "log": [any_size, rng.uniform(0.3, 3, n), 1 + rng.normal(0, 1e-4, n), [TINY64]],
        "log1p": [any_size, rng.normal(0, 0.2, n), rng.uniform(-1, 3, n), signed],
        "normal_quantile": [
            rng.uniform(0, 1, n),
            10.0 ** rng.uniform(-320, 0, n),
            0.5 + 10.0 ** rng.uniform(-16, -1, n) * 0.9,
            1 - 10.0 ** rng.uniform(-15, -1, n),
        ],
        "erf": [rng.normal(0, 1.5, n), rng.uniform(0.9, 1.1, n), rng.uniform(2.3, 2.7, n), signed],
        "lgamma": [
            rng.uniform(0, 12, n),
            1 + rng.normal(0, 1e-3, n),
            2 + rng.normal(0, 1e-3, n),
            10.0 ** rng.uniform(-300, 300, n),
        ],
        "sqrt": [any_size],
        "reciprocal": [any_size[any_size > 1e-307]],
    }
    x = np.concatenate(parts.get(name, exps))
    return x[(x > 0) & (x < 1)] if name == "normal_quantile" else x


def quantile(p):
    """Normal quantile by Newton's method on the logarithm of the tail."""
    tail = min(p, 1 - p)
    if tail == mp.mpf("0.5"):
        return mp.mpf(0)
    q = mp.mpf(float(-ndtri(float(tail)))) if tail > mp.mpf("1e-300") else mp.mpf(37)
    for _ in range(20):
        upper = mp.erfc(q / mp.sqrt(2)) / 2
        step = (mp.log(upper) - mp.log(tail)) * upper / mp.npdf(q)
        q += step
        if abs(step) < mp.mpf(10) ** -30 * abs(q):
            break
    return -q if p < mp.mpf("0.5") else q


REFERENCES = {
    "exp": mp.exp,
    "log": mp.log,
    "log1p": mp.log1p,
    "expm1": mp.expm1,
    "sqrt": mp.sqrt,
    "reciprocal": lambda x: 1 / x,
    "tanh": mp.tanh,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "erf": mp.erf,
    "lgamma": mp.loggamma,
    "normal_quantile": quantile,
}


def errors64(got, want):
    """Errors in ulp of float64 of a list of results against mpmath numbers."""
    top = mp.mpf(2) ** 1024 - mp.mpf(2) ** 970
    for g, w in zip(got.tolist(), want, strict=True):
        if abs(w) >= top:
            assert g == math.copysign(INF, w)
            continue
        exponent = max(int(mp.frexp(w)[1]) - 1, -1022)
        yield abs(mp.mpf(g) - w) / mp.mpf(2) ** (exponent - 52)


@pytest.mark.parametrize("name", REFERENCES)
def test_float64_against_mpmath(name):
    x = sample(name)
    assert x.size > 500
    with mp.workdps(45):
        want = [REFERENCES[name](mp.mpf(v)) for v in x.tolist()]
        worst = max(errors64(ulp.call(name, x), want))
    assert worst < ulp.BOUNDS64[name]


def test_lgamma64_of_negative_numbers():
    """Near its zeros the error is absolute."""
    rng = np.random.default_rng(3)
    x = -np.concatenate([rng.uniform(0, 12, 1500), 10.0 ** rng.uniform(-10, 2, 500)])
    with mp.workdps(40):
        want = [mp.log(abs(mp.gamma(mp.mpf(v)))) for v in x.tolist()]
    error = [abs(g - w) / max(1, abs(w)) for g, w in zip(E.lgamma(x).tolist(), want, strict=True)]
    assert max(error) < 8 * 2.0**-52


def power_sample(dtype, n, seed):
    """Bases of all sizes and near 1, exponents that reach over- and underflow."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(1, 0x7F800000, n, dtype=np.int64)
    x = bits.astype(np.uint32).view(np.float32).astype(dtype)
    x[::3] = np.exp(rng.normal(0, 1, x[::3].size) * 10.0 ** rng.uniform(-6, 0, x[::3].size))
    reach = 105 if dtype is np.float32 else 745
    with np.errstate(divide="ignore", over="ignore"):
        y = rng.uniform(-reach, reach, n) / np.log(x.astype(np.float64))
        y = np.where(np.isfinite(y) & (np.abs(y) < 1e30), y, 2.0).astype(dtype)
    return x, y


def test_power32():
    x, y = power_sample(np.float32, 1 << 20, 1)
    with np.errstate(over="ignore", under="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    got = E.power(x, y).astype(np.float64)
    inside = want < float(ulp.OVERFLOW)
    assert (got[~inside] == INF).all()
    unit = np.ldexp(1.0, np.maximum(np.frexp(want[inside])[1] - 1, -126) - 23)
    assert (np.abs(got[inside] - want[inside]) / unit).max() < 1.0


def test_power64():
    x, y = power_sample(np.float64, 3000, 2)
    with mp.workdps(60):
        want = [
            mp.power(mp.mpf(a), mp.mpf(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)
        ]
    assert max(errors64(E.power(x, y), want)) < 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logaddexp(dtype):
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 30, (2, 20_000)).astype(dtype)
    y[::7] = x[::7]
    with mp.workdps(30):
        pairs = zip(x[:2000].tolist(), y[:2000].tolist(), strict=True)
        want = np.array([float(mp.log(mp.exp(a) + mp.exp(b))) for a, b in pairs])
    error = np.abs(E.logaddexp(x, y)[:2000] - want) / np.maximum(1, np.abs(want))
    assert error.max() < np.finfo(dtype).eps * 2
    assert_same_bits(E.logaddexp(x, y), E.logaddexp(y, x))
    rows = [(INF, INF, INF), (INF, -INF, INF), (-INF, -INF, -INF), (3, -INF, 3), (NAN, 1, NAN)]
    a, b, joined = np.array(rows, dtype).T.copy()
    assert_same_bits(E.logaddexp(a, b), joined)


# ---- sums of logarithms --------------------------------------------------------------------


@nb.njit(nogil=True)
def chain32(m, s):
    high, total = m[0], s[0]
    for i in range(1, m.size):
        high, total = _math_special.join_sums32(high, total, m[i], s[i])
    return high, total, _math_special.log_of_sum32(high, total)


@nb.njit(nogil=True)
def chain64(m, s):
    high, total = m[0], s[0]
    for i in range(1, m.size):
        high, total = _math_special.join_sums64(high, total, m[i], s[i])
    return high, total, _math_special.log_of_sum64(high, total)


CHAIN = """
#include "rk_special64.cuh"
// Join n pairs left to right; sums of logarithms have no kernel of their own.
extern "C" __global__ void chain(int n, const REAL *m, const REAL *s, REAL *out) {
    REAL high = m[0], total = s[0];
    for (int i = 1; i < n; ++i) rk_join_sums(high, total, m[i], s[i]);
    out[0] = high;
    out[1] = total;
    out[2] = rk_log_of_sum(high, total);
}
"""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_join_sums(dtype, tmp_path):
    path = tmp_path / "chain.cu"
    path.write_text(CHAIN)
    kernel = Kernel("chain", path=path)
    chain, real = (chain32, "float") if dtype is np.float32 else (chain64, "double")
    rng = np.random.default_rng(5)
    for case in range(6):
        m, s = rng.normal(0, 50, 200).astype(dtype), rng.uniform(0, 3, 200).astype(dtype)
        if case == 1:
            m[:] = -INF
        if case == 2:
            s[:] = 0
        if case == 3:
            m[::2], s[::3] = -INF, 0
        if case == 4:
            m[:] = m[0]
        got = np.array(chain(m, s), dtype)
        on_kernel = np.empty(3, dtype)
        with on_cpu():
            kernel.launch((1,), (1,), (m.size, m, s, on_kernel), macros={"REAL": real})
        assert_same_bits(on_kernel, got)
        with np.errstate(divide="ignore"):
            want = logsumexp(m.astype(np.float64), b=s.astype(np.float64))
        if case in (1, 2):
            assert got[2] == want == -INF
        else:
            assert abs(got[2] - want) < 4 * np.finfo(dtype).eps * max(1, abs(want))


# ---- intrinsics, and the mirrors without compilation ---------------------------------------


@nb.njit(nogil=True)
def fused32(a, b, c, out):
    for i in range(a.size):
        out[i] = _math.fma32(a[i], b[i], c[i])


@nb.njit(nogil=True)
def fused64(a, b, c, out):
    for i in range(a.size):
        out[i] = _math.fma64(a[i], b[i], c[i])


@pytest.mark.parametrize(("dtype", "fused"), [(np.float32, fused32), (np.float64, fused64)])
def test_fma_is_rounded_once(dtype, fused):
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, (2, 3000)).astype(dtype)
    c = (-(a * b) * (1 + rng.integers(-3, 4, 3000) * np.finfo(dtype).eps)).astype(dtype)
    got = np.empty_like(a)
    fused(a, b, c, got)
    twice = a * b + c
    assert (got != twice).mean() > 0.5  # the sample tells one rounding from two
    for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        error = abs(Fraction(float(r)) - exact)
        for near in (np.nextafter(r, dtype(INF)), np.nextafter(r, dtype(-INF))):
            assert error <= abs(Fraction(float(near)) - exact)


PLAIN = """
import sys
import numpy as np
from rpukit._exact import math as _math, math64 as _math64, philox as _philox
from rpukit._exact import special as _math_special
from rpukit.random import philox4x32
np.seterr(all="ignore")
data = np.load(sys.argv[1])
wrong = []
for key in data.files:
    if "/" in key:
        continue
    name, bits = key[:-2], key[-2:]
    module = next(m for m in (_math_special, _math64, _math) if hasattr(m, key))
    function, want = getattr(module, key), data[key + "/out"]
    got = np.array([function(*row) for row in data[key]], want.dtype)
    word = f"u{got.itemsize}"
    same = (got.view(word) == want.view(word)) | np.isnan(got) & np.isnan(want)
    wrong += [] if same.all() else [key]
u = np.uint32
block = tuple(map(int, _philox.philox(u(1), u(2), u(3), u(4), u(5), u(6))))
wrong += [] if block == philox4x32((1, 2, 3, 4), (5, 6)) else ["philox"]
print(wrong, len(data.files) // 2)
"""


def test_mirrors_run_without_compilation(tmp_path):
    """NUMBA_DISABLE_JIT=1 gives the same bits: a mirror can be stepped through by a debugger."""
    rng = np.random.default_rng(2)
    data = {}
    for dtype, bits in ((np.float32, "32"), (np.float64, "64")):
        x = np.concatenate(
            [rng.normal(0, 3, 30), rng.uniform(0, 1, 30), 10.0 ** rng.uniform(-44, 38, 30)]
        )
        x = np.concatenate([x, [0, -0.0, INF, -INF, NAN, 1e-45, -1, 1, 88.5, -103.5]]).astype(
            dtype
        )
        for name in SPECIAL:
            data[name + bits], data[name + bits + "/out"] = x[:, None], ulp.call(name, x)
        y = rng.permutation(x)
        data["pow" + bits] = np.stack([x, y], 1)
        data["pow" + bits + "/out"] = E.power(x, y)
        data["logaddexp" + bits] = np.stack([x, y], 1)
        data["logaddexp" + bits + "/out"] = E.logaddexp(x, y)
    np.savez(tmp_path / "data.npz", **data)
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "data.npz")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] 26"


def test_every_public_function_has_its_twins():
    for name in (*E.ops.FUNCTIONS, *E.ops.FUNCTIONS_OF_TWO):
        stem = "pow" if name == "power" else name
        modules = (_math, _math64, _math_special)
        for bits in ("32", "64"):
            assert sum(hasattr(module, stem + bits) for module in modules) == 1


COEFFICIENTS = {
    "log": (_math._LOG, _math64._LOG),
    "exp": (_math._EXP[:-2], _math64._EXP[:-2]),
    "expm1": (_math._EXPM1, _math64._EXPM1),
    "erf body": (_math_special._ERF4, _math_special._ERF8),
    "erf tail": (_math_special._ERFC4, None),
    "sinpi": (_math_special._SINPI4, _math_special._SINPI8),
    "atanh": (_math_special._ATANH4, _math_special._ATANH8),
}


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_coefficients_are_those_of_the_fit(name):
    spec = importlib.util.spec_from_file_location("fit_math", ROOT / "tools" / "fit_math.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit_math"] = module  # dataclasses look it up
    with mp.workdps(mp.mp.dps):
        spec.loader.exec_module(module)
        fit = module.FITS[name]
        for degree, have in zip((fit.degree32, fit.degree64), COEFFICIENTS[name], strict=True):
            if degree is not None:
                fitted, _ = module.remez(fit, degree)
                want = np.array([float(c) for c in fitted[::-1]]).astype(type(have[0]))
                np.testing.assert_allclose(np.array(have), want, rtol=2e-6 if degree < 9 else 1e-9)
