"""Functions of many numbers where their terms matter, and beside the middles between powers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rpukit import elementwise
from tests.golden.cases.case import Case, put
from tests.golden.cases.circuits import uniform

LN2 = 0.6931471805599453
LIMITS = (  # of comparisons in rk_math, rk_special and their twins
    *(0.0, 0.25, 0.41, 1.0, 2.0, 2.5, 3.95, 4.25, 6.0, 8.0, 9.2, 10.0, 18.0, 20.0, 22.0, 40.0),
    *(87.0, 89.0, 104.0, 200.0, 710.0, 746.0, 2000.0, 1e9, 1e17, 2.0**24, 2.0**53, np.inf, np.nan),
    *(1.17549435e-38, 2.2250738585072014e-308, 5.9604645e-08, 0.5, 1e-18, 1e18),
)


def numbers(dtype):
    """Over the range of exp, about 0, over powers of two, and where exp changes its power."""
    # A third has all 53 bits.
    wide = uniform((40_000,), 81).astype(np.float64) / 3 * 579 - 104
    near = uniform((12_000,), 82).astype(np.float64) / 3 * 24 - 4
    powers = np.floor(uniform((6_000,), 83) * np.float32(60)).astype(np.int32) - 30
    scaled = np.ldexp(1 + uniform((6_000,), 84).astype(np.float64) / 3, powers)
    middles = ((np.arange(-150, 128) + 0.5) * LN2).astype(dtype)
    steps = [middles]
    for _ in range(2):
        steps.append(np.nextafter(steps[-1], dtype(200)))
    for _ in range(2):
        steps.insert(0, np.nextafter(steps[0], dtype(-200)))
    return np.concatenate([v.astype(dtype) for v in (wide, near, scaled, *steps)])


def mapped(name, dtype):
    def run(device):
        x = numbers(dtype)
        if name == "normal_quantile":
            x = (x + dtype(104)) / dtype(194)
        with np.errstate(over="ignore"):
            ends = np.array([*LIMITS, *(-v for v in LIMITS)]).astype(dtype)
        arrays = (np.concatenate([x, ends]),)
        if name in elementwise.ops.FUNCTIONS_OF_TWO:
            y = x[::-1] / dtype(5) if name == "power" else x[::-1]
            pairs = np.repeat(ends, ends.size), np.tile(ends, ends.size)
            x = abs(x) if name == "power" else x
            arrays = tuple(np.concatenate(both) for both in zip((x, y), pairs, strict=True))
        arrays = [put(np.ascontiguousarray(v), device) for v in arrays]
        return [elementwise.math_map(name, *arrays)]

    return run


def found(device):
    """Numbers where one rounding more shows; `tools/mutant_numbers.py` found them."""
    x = np.array([6.23739719, 28.0724621], np.float32)
    return [elementwise.math_map("exp", put(x, device))]


def cases() -> Iterator[tuple[str, Case]]:
    for name in (*elementwise.ops.FUNCTIONS, *elementwise.ops.FUNCTIONS_OF_TWO):
        for dtype in (np.float32, np.float64):
            yield "math_map", Case(f"{name}-terms-{np.dtype(dtype).name}", mapped(name, dtype))
    yield "math_map", Case("exp-found", found)
