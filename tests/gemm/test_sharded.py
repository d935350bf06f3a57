"""Layers split over devices: the bits of one device, wherever the weight is cut."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import DeviceError, DTypeError, ParameterError, ShapeError
from rpukit.gemm import tensor, to_bfloat16
from rpukit.gemm.split import collected, gathered, sharded
from rpukit.gemm.split import pieces as gemm_pieces
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import two_gpus
from tests.on_cpu.fake_cupy import Device

N_OUT, N_IN, N_ROW = 200, 96, 6
CUTS = {"outputs": ((64,), (128, 192), (64, 128, 192)), "inputs": ((48,), (16, 64), (16, 32, 80))}
AXIS = {"outputs": 0, "inputs": 1}


def numbers(*shape, form="float32", seed=0):
    # Exponents are spread, so that another order of a sum has other bits.
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 4, shape)).astype(np.float32)
    return to_bfloat16(x) if form == "bfloat16" else x.astype(form)


def problem(form):
    real = "float64" if form == "float64" else "float32"
    targets = np.array([0, 63, 64, 199, -1, 130])
    return {
        "w": numbers(N_OUT, N_IN, form=form),
        "x": numbers(N_ROW, N_IN, form=form, seed=1),
        "dy": numbers(N_ROW, N_OUT, form=form, seed=2),
        "targets": targets,
        "slope": numbers(N_ROW, form=real, seed=3),
    }


@pytest.mark.parametrize("form", ["float32", "float64"])
@pytest.mark.parametrize("cuts", [(1024,), (1024, 2048), (2048,), (1024, 1500)])
def test_pieces_that_begin_with_segments(form, cuts):
    """They are multiplied at once, and added in order."""
    a, b = numbers(2, 3100, form=form), numbers(3100, 3, form=form, seed=1)
    expected = rk.det_gemm(a, b)
    for trans_b in (False, True):
        parts = np.split(b, cuts)
        rights = [np.ascontiguousarray(w.T) for w in parts] if trans_b else parts
        made = gemm_pieces.chained(
            np.split(a, cuts, 1), rights, _device.CPU, 3, a.dtype, trans_b=trans_b
        )
        assert_same_bits(made, expected)


def of_one_device(w, x, dy, targets, slope):
    return [
        rk.det_gemm(x, w, trans_b=True),
        *rk.det_gemm_backward(x, w, dy, trans_b=True),
        *rk.linear_logprob(x, w, targets, with_normaliser=True),
        *rk.linear_logprob_backward(x, w, targets, slope),
    ]


def of_layer(layer, x, dy, targets, slope):
    """Everything that a layer gives; gradients of weights joined on the host."""

    def joined(weights):
        return np.concatenate([_device.to_numpy(w) for w in weights], AXIS[layer.split])

    dx, dw = layer.backward(x, dy)
    dhidden, of_head = layer.logprob_backward(x, targets, slope)
    logprob = layer.logprob(x, targets, with_normaliser=True)
    found = [layer.forward(x), dx, joined(dw), *logprob, dhidden, joined(of_head)]
    return [_device.to_numpy(a) for a in found]


def all_same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert_same_bits(one, two)


@pytest.mark.parametrize("form", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("split", ["outputs", "inputs"])
def test_cuts_do_not_matter(form, split):
    p = problem(form)
    w, rest = p.pop("w"), p
    expected = of_one_device(w, **rest)
    for cuts in CUTS[split]:
        layer = rk.ShardedLinear(np.split(w, cuts, AXIS[split]), split=split)
        all_same(of_layer(layer, **rest), expected)
    wide = np.float64 if form == "float64" else np.float32
    assert_same_bits(
        layer.forward(rest["x"], out_dtype=wide),
        rk.det_gemm(rest["x"], w, trans_b=True, out_dtype=wide),
    )


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_kernels(form):
    p = problem(form)
    w, rest = p.pop("w"), p
    expected = of_one_device(w, **rest)
    with on_cpu():
        for split, cuts in (("outputs", (64, 128)), ("inputs", (16, 64))):
            layer = rk.ShardedLinear(np.split(w, cuts, AXIS[split]), split=split)
            all_same(of_layer(layer, **rest), expected)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1023, 1025, 5000])
def test_segments(dtype, k):
    """Sums of more than 1024 terms, cut inside segments and at their ends."""
    w, x = numbers(3, k, form=dtype), numbers(2, k, form=dtype, seed=1)
    whole = rk.det_gemm(x, w, trans_b=True)
    for cuts in ((1024, 2048), (5, 1023, 1025, 4999), (2500,), (4096,)):
        cuts = [cut for cut in cuts if cut < k]
        layer = rk.ShardedLinear(np.split(w, cuts, 1), split="inputs")
        assert_same_bits(layer.forward(x), whole)
    for cuts in ((1000,), (1024, 3000)):
        with on_cpu():
            cut = np.split(w, [one for one in cuts if one < k], 1)
            assert_same_bits(rk.ShardedLinear(cut, split="inputs").forward(x), whole)


def test_segments_of_tensor_cores(monkeypatch):
    monkeypatch.setattr(tensor, "SEGMENT", 64)
    w, x = numbers(9, 330, form="float16"), numbers(4, 330, form="float16", seed=1)
    whole = rk.det_gemm(x, w, trans_b=True)
    for cuts in ((64, 128), (16, 80, 96), (320,)):
        layer = rk.ShardedLinear(np.split(w, cuts, 1), split="inputs")
        assert_same_bits(layer.forward(x), whole)


def test_a_naive_sum_of_pieces_differs():
    w, x = numbers(64, N_IN), numbers(8, N_IN, seed=1)
    parts = zip(np.split(x, (48,), 1), np.split(w, (48,), 1), strict=True)
    naive = sum(rk.det_gemm(a, b, trans_b=True) for a, b in parts)
    assert (naive != rk.det_gemm(x, w, trans_b=True)).any()


def test_lists_stay_in_pieces():
    """Two layers as tensor parallelism chains them: nothing is gathered in between."""
    w1, w2, x = numbers(128, 32), numbers(24, 128, seed=1), numbers(5, 32, seed=2)
    up = rk.ShardedLinear(np.split(w1, (64,)))
    down = rk.ShardedLinear(np.split(w2, (64,), 1), split="inputs")
    pieces = up.forward([x, x.copy()], gather=False)
    assert [p.shape for p in pieces] == [(5, 64), (5, 64)]
    hidden = rk.det_gemm(x, w1, trans_b=True)
    assert_same_bits(down.forward(pieces), rk.det_gemm(hidden, w2, trans_b=True))
    dy = numbers(5, 24, seed=3)
    slopes, _ = down.backward(pieces, dy, gather=False)
    dx, (first, second) = up.backward([x, x], slopes)
    back = rk.det_gemm(dy, w2)
    expected = rk.det_gemm_backward(x, w1, back, trans_b=True)
    all_same([dx, np.concatenate([first, second])], expected)


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["float32", "float16"])
@pytest.mark.parametrize("split", ["outputs", "inputs"])
def test_two_gpus(monkeypatch, form, split):
    for name, least in (("_LEAST", 64), ("_FEW_ROWS", 2)):  # several groups of results
        monkeypatch.setattr(gemm_pieces, name, least)
    p = problem(form)
    w, rest = p.pop("w"), p
    expected = of_one_device(w, **rest)
    with two_gpus.installed(monkeypatch) as gpus:
        for home in (0, 1):
            with Device(home):
                there = {name: _device.cupy().array(v) for name, v in rest.items()}
            with Device(1 - home):
                layer = rk.ShardedLinear.cut(w, ("gpu:0", "gpu:1"), split=split)
                all_same(of_layer(layer, **there), expected)
                assert _device.device_of(layer.forward(there["x"])).index == home
                pieces = layer.forward(there["x"], gather=split == "inputs")
            if split == "outputs":
                assert [_device.device_of(y).index for y in pieces] == [0, 1]
        assert gpus.device == 0


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_lines_of_weights_that_are_gathered(monkeypatch, form):
    """Many rows: each device makes some results whole, from lines that it gathers."""
    halves = np.split(numbers(N_OUT, N_IN, form=form), 2, 1)
    assert gathered.pays(70, halves) and not gathered.pays(6, halves)
    monkeypatch.setattr(sharded, "pays", lambda m, weights: True)
    monkeypatch.setattr(gathered, "_WINDOW", 1 << 14)  # several of them
    p = problem(form)
    w, rest = p.pop("w"), p
    expected = of_one_device(w, **rest)
    for cuts in CUTS["inputs"]:
        layer = rk.ShardedLinear(np.split(w, cuts, 1), split="inputs")
        all_same(of_layer(layer, **rest), expected)
    with two_gpus.installed(monkeypatch):
        there = {name: _device.cupy().array(v) for name, v in rest.items()}
        layer = rk.ShardedLinear.cut(w, ("gpu:0", "gpu:1"), split="inputs")
        all_same(of_layer(layer, **there), expected)


@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_results_that_are_copied_in_parts(monkeypatch, form):
    monkeypatch.setattr(collected, "_LARGE", 1)
    x, w = numbers(3, 32, form=form), numbers(1300, 32, form=form, seed=1)
    expected = rk.det_gemm(x, w, trans_b=True)
    layer = rk.ShardedLinear(np.split(w, (640,)))
    assert_same_bits(layer.forward(x), expected)
    with two_gpus.installed(monkeypatch) as gpus:
        layer = rk.ShardedLinear.cut(w, ("gpu:1", "gpu:0"))
        made = layer.forward(_device.cupy().array(x))
        assert_same_bits(made.get(), expected)
        assert sum("peer copy" in line for line in gpus.log) > 3


@pytest.mark.multi_gpu
@pytest.mark.parametrize("form", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("split", ["outputs", "inputs"])
def test_real_gpus(form, split):
    rng = np.random.default_rng(0)
    shapes = {"w": (2560, 2304), "x": (300, 2304), "dy": (300, 2560)}
    p = {
        name: numbers(*shape, form=form, seed=k) for k, (name, shape) in enumerate(shapes.items())
    }
    p["targets"] = rng.integers(-1, 2560, 300)
    p["slope"] = numbers(300, form="float64" if form == "float64" else "float32", seed=9)
    here = {name: _device.to_device(v, _device.parse_device("gpu:0")) for name, v in p.items()}
    expected = [_device.to_numpy(a) for a in of_one_device(**here)]
    w = here.pop("w")
    for devices in (("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")):
        layer = rk.ShardedLinear.cut(w, devices, split=split)
        for _ in range(3):  # the second call replays launches
            all_same(of_layer(layer, **here), expected)


def test_rows_without_work():
    layer = rk.ShardedLinear(np.split(numbers(128, 8), 2))
    assert layer.forward(np.zeros((0, 8), np.float32)).shape == (0, 128)
    assert layer.logprob(np.zeros((0, 8), np.float32), np.zeros(0, np.int64)).shape == (0,)
    assert rk.ShardedLinear(np.split(numbers(8, 64), 2, 1), split="inputs").forward(
        np.zeros((0, 64), np.float32)
    ).shape == (0, 8)


class TestErrors:
    def test_cuts_inside_a_step_or_block(self):
        half = numbers(40, 48, form="float16")
        with pytest.raises(ParameterError, match=r"cut at 24, allowed nearby are 16 and 32"):
            rk.ShardedLinear(np.split(half, (24,), 1), split="inputs")
        layer = rk.ShardedLinear(np.split(numbers(200, 8), (80,)))
        with pytest.raises(
            ParameterError, match=r"multiples of 64: got a cut at 80, .* 64 and 128"
        ):
            layer.logprob(numbers(2, 8), np.zeros(2, np.int64))

    def test_pieces(self):
        with pytest.raises(ShapeError, match="got no piece"):
            rk.ShardedLinear([])
        with pytest.raises(ShapeError, match=r"weights\[1\]: got shape \(4, 7\)"):
            rk.ShardedLinear([numbers(4, 8), numbers(4, 7)])
        with pytest.raises(DTypeError, match=r"weights\[1\]: got float64"):
            rk.ShardedLinear([numbers(4, 8), numbers(4, 8, form="float64")])
        with pytest.raises(DTypeError, match="got list"):
            rk.ShardedLinear([[[1.0]]])
        with pytest.raises(ParameterError, match="split: got 'rows'"):
            rk.ShardedLinear([numbers(4, 8)], split="rows")

    def test_cut(self):
        with pytest.raises(ShapeError, match="got 100 outputs for 3 devices"):
            rk.ShardedLinear.cut(numbers(100, 8), ("cpu",) * 3)
        with pytest.raises(ParameterError, match="need different GPUs"):
            rk.ShardedLinear.cut(numbers(100, 8), ())
        with pytest.raises(ShapeError, match="need 2 axes"):
            rk.ShardedLinear.cut(numbers(8), ("cpu",))

    def test_a_device_twice(self, monkeypatch):
        with two_gpus.installed(monkeypatch):
            with pytest.raises(ParameterError, match="need different GPUs"):
                rk.ShardedLinear.cut(numbers(128, 8), ("gpu:1", "gpu:1"))
            layer = rk.ShardedLinear.cut(numbers(128, 8), ("gpu:0", "gpu:1"))
            with pytest.raises(DeviceError, match="x is on cpu, the layer on gpu, gpu:1"):
                layer.forward(numbers(2, 8))

    def test_inputs(self):
        layer = rk.ShardedLinear(np.split(numbers(128, 8), 2))
        with pytest.raises(ShapeError, match=r"need \(n_row, 8\)"):
            layer.forward(numbers(2, 9))
        with pytest.raises(DTypeError, match="x: got dtype float64"):
            layer.forward(numbers(2, 8, form="float64"))
        with pytest.raises(DTypeError, match="out_dtype: got float64"):
            layer.forward(numbers(2, 8), out_dtype=np.float64)
        with pytest.raises(ShapeError, match="list of 1 arrays, need one for each of the 2"):
            layer.forward([numbers(2, 8)])
        with pytest.raises(ShapeError, match="dy: got 3 rows, need 2"):
            layer.backward(numbers(2, 8), numbers(3, 128))
        with pytest.raises(ParameterError, match="got 128, need at most 127"):
            layer.logprob(numbers(1, 8), np.array([128]))
        with pytest.raises(ShapeError, match="targets: got shape"):
            layer.logprob(numbers(2, 8), np.array([1]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_layers(seed):
    """Random shapes, types and cuts; mirrors and kernels."""
    rng = np.random.default_rng(seed)
    form = str(rng.choice(["float32", "float64", "float16", "bfloat16"]))
    split = str(rng.choice([*AXIS]))
    n_out, n_in, m = (int(n) for n in rng.integers(70, 700, 3))
    w, x, dy = (numbers(*s, form=form, seed=seed) for s in ((n_out, n_in), (m, n_in), (m, n_out)))
    real = "float64" if form == "float64" else "float32"
    rest = {
        "x": x,
        "dy": dy,
        "targets": rng.integers(-1, n_out, m),
        "slope": numbers(m, form=real, seed=seed),
    }
    unit = 64 if split == "outputs" else 1 if form in ("float32", "float64") else 16
    places = np.arange(unit, (n_out if split == "outputs" else n_in), unit)
    n_cut = min(len(places), int(rng.integers(1, 5)))
    cuts = sorted(rng.choice(places, n_cut, replace=False).tolist())
    layer = rk.ShardedLinear(np.split(w, cuts, AXIS[split]), split=split)
    all_same(of_layer(layer, **rest), of_one_device(w, **rest))
