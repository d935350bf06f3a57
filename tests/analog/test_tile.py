"""The contract of a tile: bits under any schedule; copies continue; errors change nothing."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest

import rpukit as rk
from rpukit import _workers
from rpukit.analog.processes import ops as slow
from rpukit.errors import (
    DeviceError,
    DTypeError,
    FormatError,
    NonFiniteError,
    ParameterError,
    ShapeError,
)
from rpukit.testing import assert_same_bits, on_cpu

SHAPE = (17, 23)
CELLS = {
    "ideal": rk.Ideal(lifetime=50, diffusion=0.01),
    "constant": rk.ConstantStep(
        dw_min=0.02, lifetime=40, diffusion=0.01, reset=0.1, reset_dtod=0.1
    ),
    "soft": rk.SoftBounds(dw_min=0.02, corrupt_devices_prob=0.1, lifetime=40, lifetime_dtod=0.2),
    "soft_write_noise": rk.SoftBounds(
        dw_min=0.02, write_noise_std=2.0, mult_noise=False, diffusion=0.01
    ),
}
UPDATES = {
    "managed": rk.UpdateParameters(),
    "long": rk.UpdateParameters(desired_bl=100, update_bl_management=False),
    "implicit": rk.UpdateParameters(pulse_type="deterministic_implicit", x_res_implicit=0.02),
    "rounded": rk.UpdateParameters(
        res=0.1, sto_round=True, update_management=False, update_bl_management=False
    ),
}


def batch(n, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, shape[1])).astype(np.float32)
    d = rng.normal(0, 0.3, (n, shape[0])).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = 0
    return x, d


def make(cell="soft", update="managed", **changes):
    return rk.AnalogTile(SHAPE, CELLS[cell], **{"update": UPDATES[update], "seed": 3} | changes)


def life(tile, cuts=(128,), seed=0):
    """Some days in the life of a tile; give everything that can be seen."""
    x, d = batch(sum(cuts), tile.shape, seed)
    seen, at = [], 0
    for n in cuts:
        part = slice(at, at + n)
        tile.update(x[part], d[part], lr=0.3)
        at += n
    tile.post_step()
    tile.reset(tile.shape[1] // 2, min(5, tile.shape[1]), 0.5)
    for product, v in ((tile.forward, x), (tile.backward, d)):
        at, outs = 0, []
        for n in cuts:
            outs.append(product(v[at : at + n]))
            at += n
        seen.append(np.concatenate(outs))
    tile.update(x[:7], d[:7], lr=-0.1)
    return [*seen, np.asarray(tile), np.array([tile.n_pulses])]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("cell", CELLS)
class TestBits:
    def test_any_split_of_a_batch(self, cell, update):
        whole = life(make(cell, update))
        for cuts in ((1, 127), (64, 64), (1,) * 128):
            for a, b in zip(whole, life(make(cell, update), cuts), strict=True):
                assert_same_bits(a, b)

    def test_mirror_equals_cuda_on_cpu(self, cell, update):
        mirror = life(make(cell, update), (40,))
        for order in (0, 1, 7):
            with on_cpu(order=order):
                for a, b in zip(mirror, life(make(cell, update), (33, 7)), strict=True):
                    assert_same_bits(a, b)


@pytest.mark.parametrize("cell", CELLS)
def test_any_number_of_threads(cell, monkeypatch):
    monkeypatch.setattr(_workers, "_WORTH_A_THREAD", 1)  # so that these small tiles are shared out
    monkeypatch.setattr(slow, "_GRAIN", 1)
    results = []
    for n in (1, 2, 16):
        rk.set_num_threads(n)
        try:
            results.append(life(make(cell)))
        finally:
            rk.set_num_threads(None)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert_same_bits(a, b)


@pytest.mark.parametrize("cell", ["constant", "soft_write_noise"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 31), (33, 1), (9, 132), (11, 1028), (3, 1031)])
def test_awkward_shapes(shape, cell):
    """One row, one column, primes, four cells a thread, several blocks."""
    x, d = batch(9, shape)
    tiles = [rk.AnalogTile(shape, CELLS[cell], seed=5) for _ in range(2)]
    seen = [[*(life(tiles[0], (9,))), np.asarray(tiles[0].update(x, d, lr=0.2))]]
    with on_cpu(order=7):
        seen.append([*(life(tiles[1], (9,))), np.asarray(tiles[1].update(x, d, lr=0.2))])
    for a, b in zip(*seen, strict=True):
        assert_same_bits(a, b)


def test_a_batch_longer_than_a_chunk_of_the_kernel():
    tile, again = make("constant"), make("constant")
    x, d = batch(300)
    tile.update(x, d, lr=0.05)
    with on_cpu():
        again.update(x, d, lr=0.05)
    assert_same_bits(np.asarray(tile), np.asarray(again))


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_a_row_equals_the_same_row_in_a_batch(way):
    tile = make()
    x, d = batch(20)
    v = x if way == "forward" else d
    product = getattr(tile, way)
    whole = product(v, first_sample=100)
    for k in (0, 7, 19):
        assert_same_bits(product(v[k], first_sample=100 + k), whole[k])


def test_noise_follows_the_clock_and_the_seed():
    x, _ = batch(4)
    tile = make().set_weights(np.full(SHAPE, 0.2, np.float32))
    first, second = tile.forward(x), tile.forward(x)
    assert not np.array_equal(first, second)
    assert_same_bits(tile.forward(x, first_sample=0), first)
    other = make(seed=4).set_weights(np.full(SHAPE, 0.2, np.float32))
    assert not np.array_equal(other.forward(x), first)


def save_and_load(tile, folder):
    rk.save(folder / "tile.npz", tile)
    return rk.load(folder / "tile.npz")


COPIES = {
    "copy": lambda tile, folder: tile.copy(),
    "pickle": lambda tile, folder: pickle.loads(pickle.dumps(tile)),
    "state": lambda tile, folder: rk.AnalogTile.from_state(tile.state()),
    "file": save_and_load,
    "to": lambda tile, folder: tile.to("cpu"),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("how", COPIES)
def test_copies_continue_to_the_same_bits(how, cell, tmp_path):
    io = rk.IOParameters(noise_management="average_abs_max", out_noise_std=0.2)
    tile = make(cell, forward=io)
    life(tile)
    again = COPIES[how](tile, tmp_path)
    assert again.clocks == tile.clocks
    for a, b in zip(life(tile, seed=1), life(again, seed=1), strict=True):
        assert_same_bits(a, b)


def test_a_copy_shares_nothing():
    tile = make()
    before = np.asarray(tile)
    life(tile.copy())
    assert_same_bits(np.asarray(tile), before)


class TestArrayFace:
    def test_matmul(self):
        tile = make(
            forward=rk.IOParameters(is_perfect=True), backward=rk.IOParameters(is_perfect=True)
        )
        life(tile)
        w = np.asarray(tile)
        x, d = batch(5)
        for got, exact in (
            (tile @ x[0], w @ x[0]),
            (tile @ x.T, w @ x.T),
            (x @ tile.T, x @ w.T),
            (d @ tile, d @ w),
            (tile.T @ d[0], w.T @ d[0]),
            (tile.T @ d.T, w.T @ d.T),
        ):
            assert got.shape == exact.shape
            np.testing.assert_allclose(got, exact, atol=1e-5)
        assert tile.T.T is tile and tile.T.shape == SHAPE[::-1]
        assert_same_bits(np.asarray(tile.T), w.T)

    def test_asarray_is_a_copy(self):
        tile = make()
        np.asarray(tile)[...] = 9
        assert abs(np.asarray(tile)).max() < 9
        with pytest.raises(ParameterError, match="copy"):
            np.array(tile, copy=False)

    def test_what_it_says_of_itself(self):
        tile = make()
        assert (tile.shape, tile.dtype, tile.ndim, tile.device) == (SHAPE, np.float32, 2, "cpu")
        assert repr(tile) == "AnalogTile((17, 23), SoftBounds, device='cpu')"


def test_weights_stay_within_their_bounds_and_stuck_cells_stay_stuck():
    tile = make("soft")
    x, d = batch(128)
    tile.update(x, d, lr=5.0)
    w, cells = np.asarray(tile), tile.cells
    assert ((cells["w_min"] <= w) & (w <= cells["w_max"])).all()
    stuck = cells["step_up"] == 0
    assert stuck.any() and not stuck.all()
    assert_same_bits(w[stuck], cells["w_max"][stuck])


def test_mean_of_many_updates_is_the_gradient():
    shape, n = (8, 9), 4000
    cell = rk.ConstantStep(
        dw_min=1e-4,
        w_max=100,
        w_min=-100,
        w_max_dtod=0,
        w_min_dtod=0,
        dw_min_dtod=0,
        up_down_dtod=0,
    )
    tile = rk.AnalogTile(shape, cell, seed=1)
    x, d = batch(1, shape)
    tile.update(np.repeat(x, n, 0), np.repeat(d, n, 0), lr=0.001)
    exact = -n * 0.001 * np.outer(d, x)
    # Binomial counts and step noise: at most sqrt(n BL) (1/2 + 0.3) steps of deviation, five
    # times.
    assert abs(np.asarray(tile) - exact).max() < 5 * np.sqrt(n * 31) * 0.8 * 1e-4


def unchanged_by(error, match, call):
    """The call raises, and the tile is as it was, clocks and all."""
    for cell in ("ideal", "soft_write_noise"):
        tile = make(cell)
        life(tile)
        before = tile.state()
        with pytest.raises(error, match=match):
            call(tile)
        after = tile.state()
        assert before["header"] == after["header"]
        for name, array in before["arrays"].items():
            assert_same_bits(array, after["arrays"][name])


NAN = np.full((2, 23), np.nan, np.float32)
X, D = batch(2)
BAD_CALLS = {
    "x too narrow": (ShapeError, "x: got shape", lambda t: t.forward(X[:, 1:])),
    "d too wide": (ShapeError, "d: got shape", lambda t: t.backward(X)),
    "batches differ": (ShapeError, "samples", lambda t: t.update(X, D[:1], lr=0.1)),
    "three axes": (ShapeError, "leading axes", lambda t: t.update(X[None], D, lr=0.1)),
    "complex": (DTypeError, "complex", lambda t: t.update(X.astype(complex), D, lr=0.1)),
    "nan x": (NonFiniteError, "x holds", lambda t: t.forward(NAN)),
    "inf d": (NonFiniteError, "d holds", lambda t: t.backward(D * np.float32(np.inf))),
    "nan in update": (NonFiniteError, "x holds", lambda t: t.update(NAN, D, lr=0.1)),
    "nan lr": (ParameterError, "lr", lambda t: t.update(X, D, lr=float("nan"))),
    "text lr": (DTypeError, "lr", lambda t: t.update(X, D, lr="fast")),
    "negative sample": (ParameterError, "first_sample", lambda t: t.forward(X, first_sample=-1)),
    "clock overflow": (
        ParameterError,
        "2\\*\\*48",
        lambda t: t.forward(X, first_sample=2**48 - 1),
    ),
    "weights of another shape": (ShapeError, "weight", lambda t: t.set_weights(X)),
    "nan weights": (
        NonFiniteError,
        "weight",
        lambda t: t.set_weights(np.full(SHAPE, np.nan, "f4")),
    ),
    "unknown cell array": (ParameterError, "nu", lambda t: t.set_cells(nu=np.ones(SHAPE, "f4"))),
    "decay backwards": (ParameterError, "alpha", lambda t: t.decay(-1)),
    "reset outside": (ParameterError, "first_col", lambda t: t.reset(23)),
    "reset probability": (ParameterError, "prob", lambda t: t.reset(prob=1.5)),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call_changes_nothing(case):
    unchanged_by(*BAD_CALLS[case])


BAD_TILES = {
    "shape": (ShapeError, lambda: rk.AnalogTile((0, 3), rk.Ideal())),
    "one axis": (ShapeError, lambda: rk.AnalogTile((3,), rk.Ideal())),
    "cell": (ParameterError, lambda: rk.AnalogTile((2, 3), "soft")),
    "dtype": (DTypeError, lambda: rk.AnalogTile((2, 3), rk.Ideal(), dtype=np.float16)),
    "device": (ParameterError, lambda: rk.AnalogTile((2, 3), rk.Ideal(), device="tpu")),
    "seed": (ParameterError, lambda: rk.AnalogTile((2, 3), rk.Ideal(), seed=-1)),
    "validate": (ParameterError, lambda: rk.AnalogTile((2, 3), rk.Ideal(), validate="never")),
    "bounds": (ParameterError, lambda: rk.ConstantStep(w_max=-0.1)),
    "step": (ParameterError, lambda: rk.SoftBounds(dw_min=0)),
    "spread": (ParameterError, lambda: rk.SoftBounds(w_max_dtod=-0.1)),
    "nan": (ParameterError, lambda: rk.ConstantStep(dw_min_std=float("nan"))),
    "text": (ParameterError, lambda: rk.ConstantStep(dw_min="small")),
    "bit length": (ParameterError, lambda: rk.UpdateParameters(desired_bl=0)),
    "pulse type": (ParameterError, lambda: rk.UpdateParameters(pulse_type="laser")),
}


@pytest.mark.parametrize("case", BAD_TILES)
def test_a_bad_description_is_refused(case):
    error, build = BAD_TILES[case]
    with pytest.raises(error):
        build()


def test_trains_longer_than_possible_are_refused():
    parameters = rk.UpdateParameters(fixed_bl=False, update_bl_management=False)
    tile = rk.AnalogTile(SHAPE, rk.ConstantStep(), update=parameters)
    with pytest.raises(ParameterError, match="slots"):
        tile.update(X, D, lr=1000.0)
    assert tile.clocks["update"] == 0


def test_a_gpu_that_is_not_there():
    try:
        import cupy

        has_gpu = cupy.cuda.is_available()
    except ImportError:
        has_gpu = False
    if has_gpu:
        with pytest.raises(DeviceError, match="gpu:99"):
            rk.AnalogTile(SHAPE, rk.Ideal(), device="gpu:99")
    else:
        with pytest.raises(DeviceError, match="pip install|driver"):
            rk.AnalogTile(SHAPE, rk.Ideal(), device="gpu")


@pytest.mark.parametrize("cell", CELLS)
def test_deferred_errors_of_kernels(cell):
    """Where kernels run, a bad value is found by them: that call and all after it do nothing."""
    tile = make(cell)
    life(tile)
    before = tile.state()
    with on_cpu():
        tile.update(X, D * np.float32(np.nan), lr=0.1)
        tile.forward(X)
        tile.diffuse()
        tile.update(X, D, lr=0.1)
        with pytest.raises(NonFiniteError, match="d holds"):
            np.asarray(tile)
    after = tile.state()  # the error was told once
    assert before["header"] == after["header"]
    for name, array in before["arrays"].items():
        assert_same_bits(array, after["arrays"][name])
    tile.update(X, D, lr=0.1)
    assert tile.clocks["update"] == before["header"]["clocks"]["update"] + 2


def test_sync_validation_raises_at_once():
    tile = make(validate="sync")
    with on_cpu(), pytest.raises(NonFiniteError):
        tile.forward(NAN)
    rk.check()


class TestStates:
    def test_a_state_of_another_kind(self):
        for state in (None, {}, {"header": {"format": "other"}, "arrays": {}}):
            with pytest.raises(FormatError):
                rk.AnalogTile.from_state(state)

    def test_a_newer_format(self):
        state = make().state()
        state["header"]["version"] = 99
        with pytest.raises(FormatError, match="update rpukit"):
            rk.AnalogTile.from_state(state)

    def test_missing_and_misshapen_arrays(self):
        state = make().state()
        planes = state["arrays"].pop("planes")
        with pytest.raises(FormatError, match="planes"):
            rk.AnalogTile.from_state(state)
        state["arrays"]["planes"] = planes[:, :3]
        with pytest.raises(FormatError, match="planes"):
            rk.AnalogTile.from_state(state)

    def test_files_that_are_not_ours(self, tmp_path):
        with pytest.raises(ParameterError, match="npz"):
            rk.save(tmp_path / "tile.dat", make())
        path = tmp_path / "other.npz"
        np.savez(path, a=np.ones(3))
        with pytest.raises(FormatError):
            rk.load(path)
        path.write_bytes(b"not a zip file")
        with pytest.raises(FormatError):
            rk.load(path)
        assert [p.name for p in tmp_path.iterdir()] == ["other.npz"]

    def test_files_of_version_1_load_and_continue(self):
        """Written by rpukit 0.1.0; files of every format version load for ever."""
        tile = rk.load(Path(__file__).parents[1] / "data" / "tile_v1.npz")
        x = np.linspace(-1, 1, 21, dtype=np.float32).reshape(3, 7)
        d = np.linspace(0.5, -0.5, 15, dtype=np.float32).reshape(3, 5)
        before = np.asarray(tile)
        seen = tile.forward(x).tobytes() + before.tobytes()
        expected = "674ad884c081de77313aa92e29b80b3a224cc6c32ea774756ac467fbbcb8455b"
        assert hashlib.sha256(seen).hexdigest() == expected
        assert (np.asarray(tile.update(x, d, 0.1)) != before).any()
