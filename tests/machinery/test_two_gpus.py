"""Every call works on the device of its object, whichever GPU is current: two pretended GPUs."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit._kernels import launch, tune
from rpukit._kernels.replay import Replay, Replays
from rpukit.testing import assert_same_bits, on_cpu
from tests.on_cpu import two_gpus
from tests.on_cpu.fake_cupy import Device, Misplaced, Stream

GPU1 = _device.Device("gpu", 1)


@pytest.fixture
def gpus(monkeypatch):
    with two_gpus.installed(monkeypatch) as machine:
        yield machine


def put(array, index=1):
    with Device(index):
        return _device.cupy().array(array)


def data(*shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


class TestTheStandIn:
    def test_other_devices_are_noticed(self, gpus):
        x = put(data(3))
        with pytest.raises(Misplaced, match="gpu:1, current is gpu:0"):
            x + x
        with pytest.raises(Misplaced, match="copy to the host"):
            x.get()
        with Device(1):
            assert_same_bits((x + x).get(), 2 * data(3))

    def test_streams_without_order_are_noticed(self, gpus):
        with Device(1):
            x = put(data(3))
            with Stream(non_blocking=True) as stream, pytest.raises(Misplaced, match="not wait"):
                x * 2
            event = Stream.null.record()
            stream.wait_event(event)
            with stream:
                y = x * 2
            stream.synchronize()
            assert_same_bits(y.get(), 2 * data(3))

    def test_launches_elsewhere_are_noticed(self, gpus):
        x = put(data(5))
        rk.elementwise.exp(x)
        variant = next(v for v in rk.elementwise.ops._MATH_MAP._variants.values() if v._functions)
        with pytest.raises(Misplaced, match="of gpu:1 on gpu:0"):
            variant._functions[1]((1,), (32,), (5, x, None, x), 0)


class TestEntering:
    def test_using_keeps_the_stream_of_the_device(self, gpus):
        with Device(1):
            own = Stream(non_blocking=True).use()
        with _device.using(GPU1):
            assert gpus.device == 1
            assert _device.current_stream() == own.ptr
        assert gpus.device == 0
        assert _device.current_stream() == 0

    def test_the_device_before_comes_back_after_an_error(self, gpus):
        with pytest.raises(ValueError, match="^$"), _device.using(GPU1):
            raise ValueError
        assert gpus.device == 0

    def test_copies_between_gpus_wait_for_both(self, gpus):
        with Device(0), Stream(non_blocking=True):
            x = _device.cupy().array(data(4, 3))
            y = _device.to_device(x, GPU1)
            x[...] = 0  # waits for the copy
        assert_same_bits(_device.to_numpy(y), data(4, 3))
        turned = _device.to_device(put(data(4, 3), 0).T, GPU1, np.float64)
        assert_same_bits(_device.to_numpy(turned), data(4, 3).T.astype("f8"))
        assert gpus.device == 0


class TestReplay:
    """Valid where it was recorded, and nowhere else."""

    def recorded(self, **options):
        self.y = put(np.zeros(5, np.float32))
        with launch.recording() as launches:
            rk.elementwise.math_map("exp", put(data(5)), out=self.y)
        changing = [[(0, 1)]]  # the first input
        return Replay(launches, changing, **options)

    def test_its_device_and_stream(self, gpus):
        with Device(1):
            replay, anywhere = self.recorded(), self.recorded(any_stream=True)
            assert replay.valid()
            z = put(data(5, seed=1))
            anywhere(z.data.ptr)
            assert_same_bits(self.y.get(), rk.elementwise.exp(data(5, seed=1)))
            with Stream(non_blocking=True):
                assert not replay.valid()
                assert anywhere.valid()
        assert not replay.valid()
        assert not anywhere.valid()

    def test_its_variants(self, gpus):
        with Device(1):
            replay = self.recorded()
            tune._drop_decisions()
            assert not replay.valid()

    def test_calls_for_a_graph_are_made_anew(self, gpus):
        """And the next as well: results may be elsewhere since."""
        replays, made = Replays(), []

        def run(x):
            def call():
                made.append(rk.elementwise.exp(x))

            replays.run("key", (x,), {}, call)
            assert_same_bits(made[-1], rk.elementwise.exp(data(5)))
            return len(made)

        with Device(1), Stream(non_blocking=True) as stream:
            x = put(data(5))
            assert [run(x) for _ in range(4)] == [1, 2, 2, 2]
            stream.capturing = True
            assert run(x) == 3
            stream.capturing = False
            assert [run(x) for _ in range(3)] == [4, 5, 5]
        assert run(x) == 6  # from another device

    def test_a_recording_lists_launches_that_a_replay_would_hide(self, gpus):
        with Device(1):
            replay = self.recorded(any_stream=True)
            with launch.recording() as outer:
                assert not replay.valid()
                with launch.recording() as inner:
                    rk.elementwise.exp(put(data(5)))
                with launch.not_recording():
                    rk.elementwise.exp(put(data(5)))
            assert [one.device for one in outer] == [one.device for one in inner] == [1]


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_products(gpus, current, dtype):
    a, b, c = data(9, 24, dtype=dtype), data(24, 16, seed=1, dtype=dtype), data(9, 16, dtype=dtype)
    with on_cpu():
        expected = [rk.det_gemm(a, b), *rk.det_gemm_backward(a, b, c)]
    left, right, back = put(a), put(b), put(c)
    with Device(current):
        out = put(np.empty_like(c))
        for _ in range(4):
            rk.det_gemm(left, right, out=out)
            found = [out, *rk.det_gemm_backward(left, right, back)]
            for one, two in zip(found, expected, strict=True):
                assert_same_bits(one, two)
        assert gpus.device == current
    replays = [line for line in gpus.log if line.startswith("replay")]
    assert len(replays) >= 2
    assert {line[-5:] for line in gpus.log} == {"gpu:1"}


def test_products_of_bfloat16_in_pieces(gpus):
    bits = rk.gemm.to_bfloat16(data(40, 16))
    with on_cpu():
        expected = rk.det_gemm(bits, bits, trans_a=True)
    rows = put(bits)
    gradient = rk.gemm.WeightGradient((16, 16), np.uint16, "gpu:1")
    for part in (slice(0, 7), slice(7, 40)):
        gradient.add(rows[part], rows[part])
    assert_same_bits(gradient.result(), expected)
    assert_same_bits(rk.gemm.from_bfloat16(rk.gemm.to_bfloat16(put(data(5)))),
                     rk.gemm.from_bfloat16(rk.gemm.to_bfloat16(data(5))))  # fmt: skip


def test_log_probabilities(gpus):
    hidden, weight, targets = data(7, 12), data(70, 12, seed=1), np.arange(7)
    slope = data(7)
    with on_cpu():
        expected = [rk.linear_logprob(hidden, weight, targets),
                    *rk.linear_logprob_backward(hidden, weight, targets, slope)]  # fmt: skip
    there = [put(v) for v in (hidden, weight, targets, slope)]
    found = [rk.linear_logprob(*there[:3]), *rk.linear_logprob_backward(*there)]
    for one, two in zip(found, expected, strict=True):
        assert_same_bits(one, two)


def test_elementwise(gpus):
    stream = rk.Stream.from_seed(3)
    with on_cpu():
        expected = [
            rk.elementwise.random_fill(stream, (50,)),
            rk.elementwise.math_map("logaddexp", data(6, 5), data(5)),
            *rk.elementwise.softmax_cross_entropy(data(6, 5), np.arange(6, dtype="i4") % 5),
        ]
    found = [
        rk.elementwise.random_fill(stream, (50,), device="gpu:1"),
        rk.elementwise.math_map("logaddexp", put(data(6, 5)), put(data(5))),
        *rk.elementwise.softmax_cross_entropy(put(data(6, 5)), put(np.arange(6, dtype="i4") % 5)),
    ]
    for one, two in zip(found, expected, strict=True):
        assert_same_bits(one, two)


def lived(tile, put):
    """Train, write and read an inference tile; everything that it gives."""
    tile.set_weights(put(data(6, 9)))
    found = []
    for _ in range(3):
        found += [tile.forward(put(data(5, 9))), tile.backward(put(data(5, 6)))]
        tile.update(put(data(5, 9)), put(data(5, 6)), 0.1)
        tile.post_step()
    tile.update_scales(put(data(5, 6)), put(data(5, 6, seed=2)), 0.1)
    tile.program()
    for t in (0.0, 3600.0):
        found += [tile.drift_to(t).forward(put(data(5, 9))), tile.alpha, tile.get_weights()]
    return [_device.to_numpy(a) for a in found]


@pytest.mark.parametrize("compensation", ["NONE", "PER_COLUMN"])
def test_inference_tiles(gpus, compensation):
    options = {
        "compensation": compensation,
        "modifier": rk.inference.WeightModifier(type="ADD_NORMAL", std_dev=0.1),
        "seed": 4,
    }
    with on_cpu():
        plain = rk.InferenceTile((6, 9), **options)
        expected = lived(plain, np.array)
    tile = rk.InferenceTile((6, 9), **options, device="gpu:1")
    for one, two in zip(lived(tile, put), expected, strict=True):
        assert_same_bits(one, two)
    moved = tile.to("gpu").to("gpu:1")
    assert_same_bits(moved.get_weights(), plain.get_weights())
    assert gpus.device == 0


CELLS = {
    "ideal": rk.Ideal(),
    "soft": rk.SoftBounds(dw_min=0.01, dw_min_std=0.3),
    "chopped": rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds())),
    "one_sided": rk.OneSided(device=rk.SoftBounds(dw_min=0.02, w_min=0), refresh_every=2),
    "mixed": rk.MixedPrecision(device=rk.SoftBounds(dw_min=0.02)),
}


def trained(tile, put):
    """Multiply and pulse, the same shapes again and again; everything that the tile gives."""
    found = []
    for k in range(4):
        found += [tile.forward(put(data(2, 9, seed=k))), tile.backward(put(data(2, 6, seed=k)))]
        tile.update(put(data(2, 9, seed=k)), put(data(2, 6, seed=k)), 0.1, batch_size=2)
    tile.decay().post_step()
    found += [tile.get_weights(), *(array.get_weights() for array in tile.devices)]
    found.append(np.array(tile.n_pulses))
    tile.set_weights(put(data(6, 9, seed=9) / 4))
    return [_device.to_numpy(a) for a in (*found, tile.get_weights())]


@pytest.mark.parametrize("name", CELLS)
def test_tiles(gpus, name):
    options = {"forward": rk.IOParameters(out_noise_std=0.1), "seed": 4}
    with on_cpu():
        plain = rk.AnalogTile((6, 9), CELLS[name], **options)
        expected = trained(plain, np.array)
    tile = rk.AnalogTile((6, 9), CELLS[name], **options, device="gpu:1")
    for one, two in zip(trained(tile, put), expected, strict=True):
        assert_same_bits(one, two)
    assert "replay of tile_forward on gpu:1" in gpus.log
    assert {line[-5:] for line in gpus.log} == {"gpu:1"}
    for moved in (tile.to("gpu"), tile.copy(), tile.to("cpu")):
        assert_same_bits(moved.get_weights(), plain.get_weights())
    assert gpus.device == 0


def learned(pc, put):
    """Learn from samples in two batches; everything that the circuit gives."""
    codes = np.random.default_rng(0).integers(0, 7, (40, 3)).astype(np.int32)
    missing, weights = data(40, 3) > 0.4, np.abs(data(40, seed=1))
    found = []
    for _ in range(4):
        found += [pc.log_likelihood(put(codes)), pc.accumulate(put(codes), weights=put(weights))]
        pc.em_step(put(codes[:9]), step=0.3, pseudocount=0.1)
    pc.gradient_step(put(codes))
    found += [pc.sample(20), pc.conditional(put(codes), missing=put(missing))]
    found += [*pc.most_probable(put(codes), missing=put(missing)), pc.log_likelihood(put(codes))]
    return [_device.to_numpy(a) for a in found]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_circuits(gpus, dtype):
    root = rk.circuits.hmm(3, 20, 7)
    with on_cpu():
        expected = learned(rk.Circuit(root, dtype=dtype, seed=1), np.array)
    pc = rk.Circuit(root, dtype=dtype, seed=1, device="gpu:1")
    for one, two in zip(learned(pc, put), expected, strict=True):
        assert_same_bits(one, two)
    assert any(line.startswith("replay of") for line in gpus.log)
    x = np.zeros((4, 3), np.int32)
    assert_same_bits(pc.to("gpu").log_likelihood(put(x, 0)), pc.log_likelihood(put(x)))
    assert gpus.device == 0


def test_tiles_move_from_gpu_to_gpu(gpus):
    """By peer copies: the host sees the status only."""
    tile = rk.AnalogTile((6, 9), CELLS["soft"], seed=4, device="gpu:1")
    tile.update(put(data(2, 9)), put(data(2, 6)), 0.1)
    gpus.log.clear()
    moved = tile.to("gpu:0")
    assert sum(line.startswith("peer copy") for line in gpus.log) >= len(moved.state()["arrays"])
    assert sum("host" in line for line in gpus.log if "gpu:1" in line) <= 1
    assert_same_bits(moved.get_weights(), tile.get_weights())


def test_tiles_of_the_stand_in_are_not_seen_after_it(monkeypatch):
    with two_gpus.installed(monkeypatch):
        tile = rk.AnalogTile((2, 2), rk.Ideal(), device="gpu:1")
    rk.check()  # the tile is alive, and its array cannot be read without the stand-in
    assert tile.shape == (2, 2)
