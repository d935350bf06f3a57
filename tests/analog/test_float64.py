"""Tiles of float64: the contract on bits, formulas to float64 rounding, what stays the same."""

import pickle

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device, _workers
from rpukit.analog.processes import ops as slow
from rpukit.analog.product import float64 as _product
from rpukit.analog.product import ops as forward
from rpukit.errors import DTypeError
from rpukit.testing import assert_same_bits, on_cpu

SHAPE = (13, 132)
LIFE = {"lifetime": 30, "diffusion": 0.01, "reset": 0.1, "dw_min": 0.02}
CELLS = {
    "ideal": rk.Ideal(lifetime=30, diffusion=0.01),
    "soft": rk.SoftBounds(write_noise_std=1, **LIFE),
    "exp": rk.ExpStep(drift=rk.DriftParameters(nu=0.1, nu_dtod=0.2), **LIFE),
    "vector": rk.Vector(devices=(rk.ConstantStep(**LIFE), rk.SoftBounds(**LIFE))),
    "chopped": rk.ChoppedTransfer(
        devices=(rk.SoftBounds(**LIFE), rk.ConstantStep(**LIFE)), in_chop_prob=0.3, fast_lr=0.2,
        auto_scale=True, units_in_mbatch=False,
    ),
    "mixed": rk.MixedPrecision(device=rk.SoftBounds(**LIFE), granularity=0.01),
}  # fmt: skip
# Of the default 1/126 half of the largest input is 31.5 steps, which rounding decides.
NO_TIES = {"inp_res": 0.0083}
PRODUCTS = {
    "default": rk.IOParameters(out_bound=2.0, **NO_TIES),
    "perfect": rk.IOParameters(is_perfect=True, out_scale=1.5),
    "worst_case": rk.IOParameters(
        out_bound=0.5, bound_management="iterative_worst_case", out_sto_round=True, **NO_TIES
    ),
    "average": rk.IOParameters(noise_management="average_abs_max", out_noise_std=0.3),
    "np_sum": rk.IOParameters(
        noise_management="abs_max_np_sum", w_noise=0.05, w_noise_type="additive_constant"
    ),
    "wires": rk.IOParameters(
        ir_drop=2.0, v_offset_std=0.05, r_series=0.01, out_nonlinearity=0.3,
        mv_type="pos_neg_separate", w_noise=0.05, w_noise_type="pcm_read", inp_sto_round=True,
        w_read_asymmetry_dtod=0.1,
    ),
    "digital_sum": rk.IOParameters(
        mv_type="pos_neg_separate_digital_sum", out_bound=0.8, **NO_TIES
    ),
}  # fmt: skip


def tile_of(cell="soft", dtype=np.float64, shape=SHAPE, **changes):
    tile = rk.AnalogTile(shape, CELLS.get(cell, cell), seed=5, dtype=dtype, **changes)
    start = np.random.default_rng(1).uniform(-0.3, 0.3, shape).astype(np.float32)
    return tile.set_weights(
        _device.to_device(start.astype(dtype), _device.parse_device(tile.device))
    )


def batch(n, dtype=np.float64, shape=SHAPE):
    rng = np.random.default_rng(0)
    made = rng.uniform(-1, 1, (n, shape[1])), rng.normal(0, 0.3, (n, shape[0]))
    return [v.astype(np.float32).astype(dtype) for v in made]


def life(tile, cuts=(24,)):
    """Some days in the life of a tile; give everything that can be seen."""
    x, d = batch(sum(cuts), tile.dtype, tile.shape)
    seen, at = [], 0
    for n in cuts:
        part = slice(at, at + n)
        tile.update(x[part], d[part], lr=0.2, batch_size=8)
        seen += [tile.forward(x[part]), tile.backward(d[part])]
        at += n
    tile.post_step().drift(3.0).drift(5.0)
    tile.reset(tile.shape[1] // 2, 5, 0.5)
    tile.update(x[:7], d[:7], lr=-0.1, batch_size=8)
    arrays = tile.state()["arrays"]
    return [np.concatenate(seen[k::2]) for k in (0, 1)], [arrays[k] for k in sorted(arrays)]


def assert_same(a, b):
    for mine, its in zip(a, b, strict=True):
        for p, q in zip(mine, its, strict=True):
            assert_same_bits(p, q)


@pytest.mark.parametrize("cell", CELLS)
class TestBits:
    @pytest.mark.sweep
    def test_the_sources_and_the_mirrors(self, cell):
        mirror = life(tile_of(cell))
        with on_cpu(order=7):
            assert_same(mirror, life(tile_of(cell)))
        assert mirror[0][0].dtype == np.float64
        assert not any(a.dtype == np.float32 for a in mirror[1])

    def test_split_of_a_batch(self, cell):
        exact = {"lr": 0.2, "batch_size": 8}
        x, d = batch(24)
        whole, parts = (tile_of(cell) for _ in range(2))
        y = whole.update(x, d, **exact).forward(x)
        for cut in (slice(0, 1), slice(1, 24)):
            parts.update(x[cut], d[cut], **exact)
        assert_same_bits(np.asarray(parts), np.asarray(whole))
        assert_same_bits(np.concatenate([parts.forward(x[:5]), parts.forward(x[5:])]), y)


def test_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(_workers, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(slow, "_GRAIN", 1)
    results = []
    for n in (1, 3):
        rk.set_num_threads(n)
        try:
            results.append(life(tile_of()))
        finally:
            rk.set_num_threads(None)
    assert_same(*results)


@pytest.mark.parametrize("io", PRODUCTS.values(), ids=PRODUCTS)
def test_every_product(io):
    x, d = batch(5)
    x[1] = 0
    how = {"forward": io, "backward": io}
    plain, other = tile_of(**how), tile_of(**how)
    y, g = plain.forward(x), plain.backward(d)
    with on_cpu(order=7):
        assert_same_bits(other.forward(x), y)
        assert_same_bits(other.backward(d), g)
    assert_same_bits(np.concatenate([tile_of(**how).forward(x[:2]), y[2:]]), y)
    narrow = tile_of(dtype=np.float32, **how)
    close = abs(narrow.forward(x.astype(np.float32)) - y)
    # The same noise, sums rounded to 2**-24; where rounding meets a half, a step of a converter.
    assert np.quantile(close, 0.9) < 2e-6
    assert close.max() > 0


@pytest.mark.parametrize("io", PRODUCTS.values(), ids=PRODUCTS)
def test_tile_product_of_float32_gives_the_bits_of_the_other_kernels(io, monkeypatch):
    """One plain kernel for all: an independent text of what the fast ones do."""
    x, _ = batch(5, np.float32)
    y = tile_of(dtype=np.float32, forward=io).forward(x)

    def plainly(weight, x, io, *, state, **at):
        state.rounds = np.array(state.rhos, np.float32)
        mode = 0 if io.exact else forward._MODES[io.noise_management]
        w_noise = 0 if io.w_noise == 0 else forward._W_NOISES[io.w_noise_type]
        assert not at.pop("transposed")
        how = _product.ProductCall(mode, w_noise, (1, 2), transposed=False)
        return _product.tile_product(weight, x, io, how, state=state, **at)

    monkeypatch.setattr("rpukit.analog.tile.tile.tile_forward", plainly)
    with on_cpu():
        assert_same_bits(tile_of(dtype=np.float32, forward=io).forward(x), y)


def test_products_by_formula():
    perfect = rk.IOParameters(is_perfect=True)
    tile = tile_of(rk.Ideal(), forward=perfect, backward=perfect)
    w, (x, d) = np.asarray(tile), batch(6)
    np.testing.assert_allclose(tile.forward(x), x @ w.T, rtol=0, atol=132 * 2**-52)
    np.testing.assert_allclose(tile.backward(d), d @ w, rtol=0, atol=13 * 2**-52)
    io = rk.IOParameters(inp_res=100, out_res=1000, out_noise=0, bound_management="none")
    tile = tile_of(rk.Ideal(), forward=io)
    largest = abs(x).max(axis=1, keepdims=True)
    v = np.rint(x / largest / (2 / 100)) * (2 / 100)
    y = np.rint(v @ w.T / (24 / 1000)) * (24 / 1000) * largest
    np.testing.assert_allclose(tile.forward(x), y, rtol=1e-14)


def test_a_pulse_by_formula():
    cell = rk.SoftBounds(dw_min=0.02, dw_min_std=0)
    tile = tile_of(cell, update=rk.UpdateParameters(pulse_type="deterministic_implicit"))
    p, w = tile.cells, np.asarray(tile)
    assert_same_bits(p["w_max"], tile_of(cell, np.float32).cells["w_max"].astype(np.float64))
    w_max = np.full(SHAPE, 1 / 3)
    tile.set_cells(w_max=w_max, w_min=-w_max, step_up=np.full(SHAPE, 0.03))
    tile.update(np.ones((1, SHAPE[1])), -np.ones((1, SHAPE[0])), lr=0.02)
    w = np.clip(w, -w_max, w_max)
    expected = np.clip(w + (0.03 + p["slope_up"] * w), -w_max, w_max)
    assert tile.n_pulses == w.size
    np.testing.assert_allclose(np.asarray(tile), expected, rtol=0, atol=2**-52)


def test_time_by_formula():
    tile = tile_of(rk.Ideal(lifetime=30, drift=rk.DriftParameters(nu=0.1)))
    w = np.asarray(tile)
    tile.decay(0.7)
    scale = tile.cells["decay_scale"]
    np.testing.assert_allclose(np.asarray(tile), w * (1 + 0.7 * (scale - 1)), atol=2**-52)
    w = np.asarray(tile)
    tile.drift(9.0)
    np.testing.assert_allclose(np.asarray(tile), w * 9.0**-0.1, rtol=1e-15 * 4)


def test_copies_and_files(tmp_path):
    tile = tile_of("chopped")
    life(tile)
    rk.save(tmp_path / "tile.npz", tile)
    x, _ = batch(3)
    copies = [tile.copy(), tile.to("cpu"), pickle.loads(pickle.dumps(tile))]
    copies.append(rk.load(tmp_path / "tile.npz"))
    y = tile.forward(x)
    for other in copies:
        assert other.dtype == other.T.dtype == np.float64
        assert_same_bits(other.forward(x), y)
    state = tile.state()
    assert state["header"]["dtype"] == "float64"
    del state["header"]["dtype"]  # as files of float32 were before there was float64
    del state["header"]["storage"]
    state["header"]["version"] = 2
    with pytest.raises(rk.errors.FormatError, match="float64.*need float32"):
        rk.AnalogTile.from_state(state)


def test_types_are_refused():
    tile = tile_of()
    with pytest.raises(DTypeError, match="x: got dtype complex128, need float64"):
        tile.forward(np.zeros((2, 132)) + 0j)
    with pytest.raises(DTypeError, match="need a dtype of NumPy"):
        rk.AnalogTile((2, 3), rk.Ideal(), dtype="no such type")
    assert rk.AnalogTile((2, 3), rk.Ideal(), dtype="float64").dtype == np.float64
    assert tile.forward([[0] * 132]).dtype == np.float64
    assert repr(tile) == "AnalogTile((13, 132), SoftBounds, device='cpu', dtype=float64)"


def test_what_is_built_on_tiles():
    tile = rk.AnalogTile(
        (4, 6), rk.ConstantStep(dw_min=0.002), seed=7, dtype=np.float64,
        forward=rk.IOParameters(is_perfect=True),
    )  # fmt: skip
    target = np.linspace(-0.2, 0.2, 24).reshape(4, 6)
    assert rk.inference.write_verify(tile, target, tolerance=0.02).converged
    assert np.asarray(tile).dtype == np.float64
    response = rk.studies.pulse_response(tile, [True] * 10)
    assert response.weight.dtype == np.float64 and response.weight.shape == (11, 24)


def test_bad_values_change_nothing(device):
    tile = tile_of(device=device, forward=PRODUCTS["average"])
    before = tile.state()
    x, d = (_device.to_device(v, _device.parse_device(tile.device)) for v in batch(3))
    x[2, 7] = np.inf

    def use():
        tile.forward(x)
        tile.update(x, d, lr=0.1)
        rk.check()

    with pytest.raises(rk.errors.NonFiniteError):
        use()
    after = tile.state()
    assert after["header"] == before["header"]
    assert_same([after["arrays"].values()], [before["arrays"].values()])
