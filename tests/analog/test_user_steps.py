"""Device models from outside rpukit: the same bits on both sides, whatever their text."""

from dataclasses import dataclass
from typing import ClassVar

import numba as nb
import numpy as np
import pytest

import rpukit as rk
from rpukit.analog.cells.base import Draws
from rpukit.analog.cells.user_steps import check_step
from rpukit.analog.update import launch as _launch_update
from rpukit.testing import assert_same_bits, on_cpu

f4 = np.float32


def cubic_step(w, p, g, up, xi):
    """Steps fall with the cube of the weight; the size of the noise belongs to the cell."""
    part = f4(w / p[1]) if up else f4(w / p[0])
    factor = f4(f4(1) - f4(f4(part * part) * part))
    dw = f4(f4((p[3] if up else p[2]) * factor) + f4(f4(f4(g[0] * p[4]) * g[1]) * xi))
    w = f4(w + dw) if up else f4(w - dw)
    return p[0] if w < p[0] else p[1] if w > p[1] else w


CUBIC = """
__device__ float cubic_step(float w, const float *p, const float *g, bool up, float xi) {
    float part = w / (up ? p[1] : p[0]), factor = 1.0f - part * part * part;
    float dw = (up ? p[3] : p[2]) * factor + g[0] * p[4] * g[1] * xi;
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubic(rk.PulsedCell):
    """A model with a plane and a number of its own."""

    STEP: ClassVar[str] = "cubic_step"
    PLANES: ClassVar[tuple[str, ...]] = (*rk.PulsedCell.PLANES, "unrest")

    unrest: float = 0.02

    def globals(self):
        g = rk.PulsedCell.globals(self)
        g[1] = self.unrest
        return g

    def sample(self, stream, shape):
        arrays = rk.PulsedCell.sample(self, stream, shape)
        arrays["unrest"] = np.abs(Draws(stream, shape).normal(16))
        return arrays


def learn(cell, shape=(9, 132), dtype=f4):
    rng = np.random.default_rng(0)
    tile = rk.AnalogTile(shape, cell, seed=5, dtype=dtype)
    x = rng.uniform(-1, 1, (8, shape[1])).astype(np.float32).astype(dtype)
    d = rng.normal(0, 0.3, (8, shape[0])).astype(np.float32).astype(dtype)
    return np.asarray(tile.update(x, d, lr=0.3))


@pytest.mark.sweep
def test_bits_of_both_sides(order):
    rk.register_step("cubic_step", cubic_step, CUBIC)
    expected = learn(Cubic(dw_min=0.02))
    assert np.isfinite(expected).all() and (expected != 0).any()
    with on_cpu(order):
        assert_same_bits(learn(Cubic(dw_min=0.02)), expected)


def test_a_better_text_takes_effect():
    """Registered again, as a cell of a notebook that is run again."""
    for size in ("0.5f", "0.25f"):
        cuda = f"""
        __device__ float slow_step(float w, const float *p, const float *g, bool up, float xi) {{
            return w + (up ? {size} : -{size}) * p[3];
        }}"""
        half = f4(float(size[:-1]))

        @nb.njit
        def slow_step(w, p, g, up, xi, half=half):
            return f4(w + f4((half if up else -half) * p[3]))

        rk.register_step("slow_step", slow_step, cuda)

        class Slow(rk.PulsedCell):
            STEP = "slow_step"

        expected = learn(Slow(dw_min=0.02))
        with on_cpu():
            assert_same_bits(learn(Slow(dw_min=0.02)), expected)


def test_the_text_decides_the_name_in_the_cache():
    kernel = _launch_update._PULSED_UPDATE
    macros = {"STEP": "cubic_step", "HAS_RUN": 0, "N_PLANE": 5}
    digests = set()
    for text in (CUBIC, CUBIC.replace("1.0f", "2.0f")):
        rk.register_step("cubic_step", cubic_step, text)
        digests.add(kernel.variant(macros).source.digest())
    assert len(digests) == 2
    assert kernel.variant({"N_PLANE": 4}).source.digest() == kernel.source().digest()
    assert kernel.source().digest() not in digests


def test_runs():
    """A model may take a run of pulses at once."""

    def double_step(w, p, g, up, xi):
        return f4(w + p[3]) if up else f4(w - p[3])

    def double_step_run(w, p, g, up, n, xi):
        return True, f4(w + f4(p[3] * f4(n))) if up else f4(w - f4(p[3] * f4(n)))

    cuda = """
    __device__ float double_step(float w, const float *p, const float *g, bool up, float xi) {
        return up ? w + p[3] : w - p[3];
    }
    __device__ bool double_step_run(float &w, const float *p, const float *g, bool up, int n,
                                    float xi) {
        w = up ? w + p[3] * (float)n : w - p[3] * (float)n;
        return true;
    }"""

    class Double(rk.PulsedCell):
        STEP = "double_step"
        HAS_RUN = True

    rk.register_step("double_step", double_step, cuda, run=double_step_run)
    expected = learn(Double())
    for order in (0, 1, 7):  # a step from outside is compiled anew for each test
        with on_cpu(order):
            assert_same_bits(learn(Double()), expected)
    rk.register_step("double_step", double_step, cuda)
    with on_cpu(), pytest.raises(rk.errors.ParameterError, match="registered without run="):
        learn(Double())


def test_what_is_wrong_is_said():
    fails = pytest.raises(rk.errors.ParameterError, match="is built into rpukit")
    with fails:
        rk.register_step("exp_step", cubic_step, CUBIC.replace("cubic_step", "exp_step"))
    with pytest.raises(rk.errors.ParameterError, match="no __device__ function other"):
        rk.register_step("other", cubic_step, CUBIC)
    with pytest.raises(rk.errors.ParameterError, match="no __device__ function cubic_step_run"):
        rk.register_step("cubic_step", cubic_step, CUBIC, run=cubic_step)
    with pytest.raises(rk.errors.ParameterError, match="identifier of both C and Python"):
        rk.register_step("two words", cubic_step, CUBIC)
    with pytest.raises(rk.errors.ParameterError, match="need a function"):
        rk.register_step("cubic_step", 3, CUBIC)


def test_a_step_that_nobody_registered():
    class Unknown(rk.PulsedCell):
        STEP = "unknown_step"

    with pytest.raises(rk.errors.ParameterError, match="register_step first"):
        learn(Unknown())
    with on_cpu(), pytest.raises(rk.errors.ParameterError, match="register_step first"):
        learn(Unknown())


def test_a_text_that_does_not_compile():
    rk.register_step(
        "wrong_step", cubic_step, "__device__ float wrong_step(float w) { return v; }"
    )

    class Wrong(rk.PulsedCell):
        STEP = "wrong_step"

    with on_cpu(), pytest.raises(rk.errors.KernelCompileError, match="user_step.cuh"):
        learn(Wrong())


def lazy_step(w, p, g, up, xi):
    """Half a step, whatever the type."""
    w = w + f4(0.5) * p[3] * (g[0] * xi + f4(1)) if up else w - f4(0.5) * p[2]
    return p[0] if w < p[0] else p[1] if w > p[1] else w


def lazy_run(w, p, g, up, n, xi):
    return n == 2, w


LAZY = """
template <class T> __device__ T lazy_step(T w, const T *p, const T *g, bool up, T xi) {
    return rk_clip(up ? w + (T)0.5 * p[3] * (g[0] * xi + (T)1) : w - (T)0.5 * p[2], p[0], p[1]);
}
template <class T>
__device__ bool lazy_step_run(T &w, const T *p, const T *g, bool up, int n, T xi) {
    return n == 2;
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lazy(rk.PulsedCell):
    STEP: ClassVar[str] = "lazy_step"
    HAS_RUN: ClassVar[bool] = True


def test_a_text_for_both_types():
    rk.register_step("lazy_step", lazy_step, LAZY, run=lazy_run, float64=True)
    expected = {dtype: learn(Lazy(dw_min=0.02), dtype=dtype) for dtype in (f4, np.float64)}
    for dtype, mirror in expected.items():
        with on_cpu():
            assert_same_bits(learn(Lazy(dw_min=0.02), dtype=dtype), mirror)
    gap = abs(expected[f4] - expected[np.float64])
    assert 0 < np.median(gap) < 1e-6


def test_tiles_of_float64_take_no_step_of_float32():
    rk.register_step("cubic_step", cubic_step, CUBIC)
    with pytest.raises(rk.errors.DTypeError, match="'cubic_step' was registered for float32"):
        rk.AnalogTile((2, 3), Cubic(), dtype=np.float64)


def test_models_for_the_cpu_alone():
    """Without CUDA source a model runs on the CPU; kernels say what is missing."""
    rk.register_step("plain_step", cubic_step)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Plain(Cubic):
        STEP: ClassVar[str] = "plain_step"

    assert (learn(Plain(dw_min=0.02)) != 0).any()
    with pytest.raises(rk.errors.DeviceError, match="without CUDA source.*cuda= to rk.register"):
        check_step(Plain(), f4, on_gpu=True)
    with on_cpu(0), pytest.raises(rk.errors.DeviceError, match="without CUDA source"):
        learn(Plain(dw_min=0.02))
    rk.register_step("plain_step", cubic_step, CUBIC.replace("cubic_step", "plain_step"))
    check_step(Plain(), f4, on_gpu=True)
