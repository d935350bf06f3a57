"""Functions of many numbers where their terms matter, and beside the middles between powers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rpukit as rk
from rpukit import _device, elementwise
from rpukit.inference.conductance import ops
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


# Numbers where one rounding more in a term shows, or a limit is met; found by searches
# (`tools/mutant_numbers.py`; for powers and quantiles of float64 by their residues).
FOUND = {
    ("exp", "f4"): [(6.23739719, 28.0724621)],
    ("expm1", "f4"): [(64.462745666503906, 79.495262145996094)],
    ("log1p", "f4"): [(6.2613021e12, 6.81765136e12, 7.92041882e12)],
    ("normal_quantile", "f8"): [(0.0016873338452767827, 1.6540652641772305e-112)],
    ("power", "f4"): [
        (0.7560969, 1.629974, 0.7149475, 0.70128936, 0.70216864, 0.70333296),
        (-303.24713, -145.93324, -67.13618, 106.4542, -94.51579, -67.58356),
    ],
    ("power", "f8"): np.array(
        (
            (0.7248989319845645, -1944.6364049685408),
            (1.3864896242621239, -1940.0296609066572),
            (1.2005741278843625, 3854.8385754023825),
            (5.9059262129114845e37, 7.766655702930977),
            (0.7160221983334003, -2007.7306802212067),
            (0.7912609888488225, -37.0069419618202),
        )
    ).T,
}


def found(name, kind):
    def run(device):
        arrays = [np.array(v, kind) for v in FOUND[name, kind]]
        return [elementwise.math_map(name, *(put(v, device) for v in arrays))]

    return run


def conductances(device):
    """Powers, and quotients near the middle of two floats, in which a rounding more shows."""
    where = _device.parse_device(device)
    status, stream = _device.zeros((1,), np.int32, where), rk.Stream.from_seed(3)
    powers = np.array([[46.787433624267578, 57.537708282470703, -72.772880554199219, 0]], "f4")
    sums = np.array([[15245824, 0, 1.4489679776699533e-17, 3]], np.float32)
    found = []
    for g, nu, scale in (
        (np.ones_like(sums), -powers, 1.0),
        (sums, 0 * sums, 13109887.0),
        (sums, 0 * sums, 2.3245933245995418e17),
    ):
        split = ops.Split(
            *(put(np.array(v, np.float32), device) for v in ([scale, 0], np.zeros((1, 8)), [1]))
        )
        out = _device.empty((4,), np.float32, where)
        given = put(g, device), put(nu, device), ops.Moment(law="power", log_ratio=1.0)
        options = {"stream": stream, "sample": 0, "status": status, "out": out}
        found.append(ops.drift_conductance(*given, split, ops.ReadNoise(), **options))
    return found


def cases() -> Iterator[tuple[str, Case]]:
    for name in (*elementwise.ops.FUNCTIONS, *elementwise.ops.FUNCTIONS_OF_TWO):
        for dtype in (np.float32, np.float64):
            yield "math_map", Case(f"{name}-terms-{np.dtype(dtype).name}", mapped(name, dtype))
    for name, kind in FOUND:
        yield "math_map", Case(f"{name}-found{'-f8' * (kind == 'f8')}", found(name, kind))
    yield "drift_conductance", Case("found", conductances)
