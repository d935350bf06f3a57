"""Counts of events: what products, updates, transfers, programming and readouts cause."""

import numpy as np
import pytest

import rpukit as rk
from rpukit.costs import count
from rpukit.costs.counting import bits_of

X, D = np.ones((5, 6), np.float32), np.full((5, 4), 0.1, np.float32)
PERFECT = rk.IOParameters(is_perfect=True)


def analog(cell=None, **options):
    return rk.AnalogTile((4, 6), cell or rk.ConstantStep(), seed=1, **options)


@pytest.mark.parametrize(
    ("resolution", "bound", "bits"),
    [
        (1 / 126, 1, 7),
        (1 / 510, 12, 9),
        (254, 1, 8),
        (255, 1, 8),
        (256, 1, 9),
        (0, 1, 0),
        (9, 0, 0),
    ],
)
def test_bits_of_converters(resolution, bound, bits):
    """A converter of s steps has s + 1 levels."""
    assert bits_of(resolution, bound) == bits


def test_a_forward_product():
    tile = analog()
    tile.forward(X)
    assert count(tile)["forward"] == {
        "pass": 5,
        "cell_read": 5 * 24,
        "dac:7": 30,
        "adc:9": 20,
        "multiply": 50,
        "byte": 5 * (6 * 1 + 4 * 2),
    }
    assert count(tile)["backward"] == {}


def test_a_backward_product_turns_the_lines():
    tile = analog()
    tile.backward(D)
    found = count(tile)["backward"]
    assert (found["dac:7"], found["adc:9"], found["byte"]) == (20, 30, 5 * (4 * 1 + 6 * 2))


@pytest.mark.parametrize(
    ("kind", "n_pass", "n_adc", "n_add"),
    [
        ("ONE_PASS", 5, 20, 0),
        ("POS_NEG_SEPARATE", 10, 20, 0),
        ("POS_NEG_SEPARATE_DIGITAL_SUM", 10, 40, 20),
    ],
)
def test_passes_by_sign(kind, n_pass, n_adc, n_add):
    tile = analog(forward=rk.IOParameters(mv_type=kind))
    tile.forward(X)
    found = count(tile)["forward"]
    assert (found["pass"], found["adc:9"], found.get("add", 0)) == (n_pass, n_adc, n_add)
    assert found["dac:7"] == 6 * n_pass


def test_perfect_products_are_digital():
    tile = analog(forward=PERFECT)
    tile.forward(X)
    assert count(tile)["forward"] == {"mac": 5 * 24, "byte": 5 * 10 * 4}


def test_samples_are_counted_not_places():
    tile = analog()
    tile.forward(X, first_sample=1 << 40)
    tile.forward(X, first_sample=0)
    assert tile.clocks["forward"] == 5
    assert tile.samples == {"forward": 10, "backward": 0, "update": 0}
    for other in (tile.copy(), rk.AnalogTile.from_state(tile.state())):
        assert other.samples == tile.samples
        other.forward(X[:1])
        assert other.samples["forward"] == 11


def test_a_failed_call_is_no_work():
    tile = analog()
    with pytest.raises(rk.errors.NonFiniteError):
        tile.forward(X * np.nan, first_sample=100)
    assert tile.samples["forward"] == 0


def test_counts_do_not_depend_on_the_batch_split():
    one, two = analog(), analog()
    one.forward(X)
    one.update(X, D, 0.1)
    for k in range(5):
        two.forward(X[k])
        two.update(X[k], D[k], 0.1)
    assert count(one).as_dict() == count(two).as_dict()


def test_an_update():
    tile = analog(update=rk.UpdateParameters(desired_bl=10))
    tile.update(X, D, lr=0.1)
    found = count(tile)["update"]
    assert found == {"pulse": tile.n_pulses, "slot": 50, "byte": 5 * 10 * 4}
    exact = analog(rk.Ideal())
    exact.update(X, D, lr=0.1)
    assert count(exact)["update"] == {"mac": 5 * 24, "byte": 200}


def test_transfers_are_apart_from_updates():
    cell = rk.Transfer(
        devices=(rk.SoftBounds(), rk.SoftBounds()), transfer_every=2, units_in_mbatch=False
    )
    tile = analog(cell)
    tile.update(X, D, lr=1.0)
    found = count(tile)
    fast, slow = (array.n_pulses for array in tile.arrays)
    assert found["update"]["pulse"] == fast > 0
    assert found["transfer"].get("pulse", 0) == slow
    n = tile.clocks["transfers_0"]
    assert n == 2
    assert (found["transfer"]["pass"], found["transfer"]["adc:9"]) == (n, 4 * n)
    assert found.n_device == 48
    tile.forward(X)  # only the slow array is visible, and read
    assert count(tile)["forward"]["cell_read"] == 5 * 24


def test_mixed_precision_learns_in_digital():
    tile = analog(rk.MixedPrecision(device=rk.SoftBounds(), transfer_every=1))
    tile.update(X, D, lr=1.0)
    found = count(tile)
    assert found["update"]["mac"] == 5 * 24
    assert found["transfer"].get("pulse", 0) == tile.n_pulses


def test_an_inference_tile():
    weight = np.ones((4, 6), np.float32)
    tile = rk.InferenceTile((4, 6), compensation="global", seed=1).set_weights(weight)
    tile.program(event=0).drift_to(10.0).program(event=0).drift_to(20.0)
    tile.forward(X, first_sample=100)
    for other in (tile, tile.copy()):
        found = count(other)
        assert found["program"] == {"write": 2 * 48}
        assert found["read"]["pass"] == 4 * 6  # two references and two readouts
        assert found["forward"]["cell_read"] == 5 * 48


def test_an_array_adds_what_is_between_its_tiles():
    array = rk.TileArray(
        (4, 6), rk.ConstantStep(), tile_shape=(2, 3), bias="digital", output_scale=0.5, seed=1
    )
    array.forward(X)
    array.backward(D)
    array.update(X, D, 0.1)
    found = count(array)
    assert found["forward"]["add"] == 5 * 4 + 5 * 4  # two blocks of inputs, and the bias
    assert found["backward"]["add"] == 5 * 6
    assert found["forward"]["adc:9"] == 5 * 4 * 2
    assert found["update"]["mac"] == 5 * 4
    assert found["update"]["pulse"] == array.n_pulses
    assert [part.name for part in found.parts] == [
        "tile 0, 0",
        "tile 0, 1",
        "tile 1, 0",
        "tile 1, 1",
    ]


def test_sharded_tiles_count_as_one():
    one = analog(rk.SoftBounds())
    two = rk.ShardedTile((4, 6), rk.SoftBounds(), ("cpu", "cpu"), seed=1)
    for tile in (one, two):
        tile.forward(X, first_sample=7)
        tile.update(X, D, 0.1)
    assert count(one).as_dict() == count(two).as_dict()


def test_other_objects_are_refused():
    with pytest.raises(rk.errors.DTypeError, match="obj: got str"):
        count("tile")


def test_torch_models_are_counted(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = torch.nn.Sequential(
        rk.torch.nn.AnalogLinear(6, 4, cell=rk.SoftBounds(), seed=1), torch.nn.Tanh()
    )
    model(torch.ones(5, 6)).sum().backward()
    assert count(model)["forward"]["adc:9"] == 20
