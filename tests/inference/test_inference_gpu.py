"""On a GPU: the bits of the CPU, deferred errors, and moving between devices."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device, errors, inference
from rpukit.testing import assert_same_bits
from tests.inference.test_inference_tile import OPTIONS, batch, made, story, weights
from tests.inference.test_mapping import CLEAN, numbers

pytestmark = pytest.mark.gpu


def on_gpu(array):
    return _device.to_device(array, _device.parse_device("gpu"))


def gpu_story(tile):
    x, d = (on_gpu(a) for a in batch(tile.shape))
    seen = [tile.forward(x), tile.backward(d)]
    tile.program()
    seen += [tile.get_weights(), tile.conductances.copy(), tile.forward(x)]
    for t in tile.noise.TIMES or (3600.0, 0.0, 1.0):
        tile.drift_to(t)
        seen += [tile.get_weights(), tile.alpha, tile.forward(x), tile.backward(d)]
    tile.read()
    return [_device.to_numpy(a) for a in (*seen, tile.get_weights())]


@pytest.mark.parametrize("shape", [(13, 132), (257, 300)])
@pytest.mark.parametrize("name", OPTIONS)
def test_same_bits(name, shape):
    tile = made(name, shape)
    twin = tile.to("gpu")
    for a, b in zip(gpu_story(twin), story(tile), strict=True):
        assert_same_bits(a, b)
    assert_same_bits(twin.to("cpu").get_weights(), tile.get_weights())


@pytest.mark.parametrize("each", [False, True])
def test_training(each):
    options = {
        "modifier": inference.WeightModifier(
            type="noise_model", t=3600.0, p_any=0.1, pdrop=0.05, per_batch_sample=each
        ),
        "weight_clip": inference.WeightClip(type="layer_gaussian", sigma=1.5),
        "weight_remap": inference.WeightRemap(type="channelwise_symmetric"),
        "input_range": inference.InputRange(learned=True, n_init=2),
    }
    tiles = [made(**options), made(**options).to("gpu")]
    x, d = batch((13, 132))
    for tile in tiles:
        put = on_gpu if tile.device == "gpu" else np.copy
        for k in range(5):
            y, grad = tile.forward(put(x)), tile.backward(put(d))
            tile.learn_range(put(x), grad, 0.01)
            tile.update(put(x), put(d), 0.02).update_scales(y, put(d), 1e-3 * k).post_step()
    assert tiles[0].range == tiles[1].range
    assert_same_bits(_device.to_numpy(tiles[1].get_weights()), tiles[0].get_weights())
    assert_same_bits(_device.to_numpy(tiles[1].scales), tiles[0].scales)


def test_mapped_matrix():
    matrix = inference.map_matrix((70, 100), max_tile=(32, 40), seed=1, **CLEAN)
    matrix.set_weights(numbers(70, 100))
    twin = matrix.to("gpu")
    x = numbers(6, 100, seed=1)
    assert_same_bits(_device.to_numpy(twin.forward(on_gpu(x))), matrix.forward(x))


def test_bad_values_are_deferred():
    tile = made("columns").to("gpu").program().drift_to(10.0)
    x, _ = batch(tile.shape)
    before, alpha = tile.get_weights(), tile.alpha
    x[3, 5] = np.nan
    tile.forward(on_gpu(x))
    tile.drift_to(20.0)
    with pytest.raises(errors.NonFiniteError, match="x holds"):
        rk.check()
    assert_same_bits(_device.to_numpy(tile.get_weights()), _device.to_numpy(before))
    assert_same_bits(_device.to_numpy(tile.alpha), _device.to_numpy(alpha))
    assert tile.time == 10.0
    with pytest.raises(errors.DeviceError, match="on cpu"):
        tile.forward(batch(tile.shape)[0])
    with pytest.raises(errors.DeviceError, match="np.asarray"):
        np.asarray(tile)
    with pytest.raises(errors.NonFiniteError, match="weight"):
        tile.set_weights(on_gpu(weights(tile.shape) * np.float32(np.inf)))
