"""Examples run, learn, and have the bits that are promised."""

import pickle

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors

torch = pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

from rpukit.torch import nn, optim  # noqa: E402
from rpukit.torch.examples import common, lenet, lstm, resnet, text, transformer  # noqa: E402

# Of `python -m rpukit.torch.examples.lenet --hash`, also in README.md.
EPOCH = "aa6c2a3f88c204b9d9c5dbaec5b158e8692fcf56d4f84ef6eb755f0aba7f911b"


def test_the_hash_of_an_epoch():
    """One epoch of a LeNet, in whole mini-batches."""
    assert lenet.epoch_hash() == EPOCH


@pytest.mark.gpu
@pytest.mark.parametrize("n_part", [1, 3])
def test_the_hash_of_an_epoch_on_a_gpu(n_part):
    assert lenet.epoch_hash(n_part=n_part, device="cuda") == EPOCH


@pytest.mark.parametrize("n_step", [4, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in lenet.CELLS if name != "digital"])
def test_parts_of_mini_batches_change_no_bit(name, n_step):
    cell = lenet.CELLS[name]
    whole = lenet.epoch_hash(cell=cell, n_step=n_step)
    assert lenet.epoch_hash(cell=cell, n_step=n_step, n_part=3) == whole


def test_loader_workers_change_no_bit():
    """Rows that processes of a DataLoader load are those of one process, in the same order."""
    data = common.digits()
    rows = torch.utils.data.TensorDataset(data.x[:48], data.y[:48])
    found = []
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(
            rows, 16, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(3)
        )
        model = lenet.lenet(lenet.CELLS["SoftBounds"], 0)
        optimiser = optim.AnalogSGD(model.parameters(), lr=0.1)
        for x, y in loader:
            optimiser.zero_grad()
            rk.torch.cross_entropy(model(x), y).backward()
            optimiser.step()
        found.append(common.sha256(model))
    assert found[0] == found[1]


def test_soft_bounds_end_where_pulses_balance():
    """The mean gradient over the mean of its absolute value is w / b: formula and training.

    One weight w learns y = w* + sigma xi by plain SGD: gradients are w - w* - sigma xi.
    """
    target, sigma, bound = 0.3, 1.0, 0.6
    quiet = {"dw_min_dtod": 0.0, "dw_min_std": 0.0, "up_down_dtod": 0.0}
    cell = rk.SoftBounds(dw_min=0.001, w_max_dtod=0.0, w_min_dtod=0.0, **quiet)
    tile = rk.AnalogTile((64, 1), cell, seed=3)
    draw, ends = np.random.default_rng(0), []
    ones = np.ones((1, 1), np.float32)
    for step in range(4000):
        w = tile.get_weights()[:, 0]
        gradient = w - target - sigma * draw.standard_normal(64)
        tile.update(ones, gradient[None].astype(np.float32), 0.005)
        if step >= 2000:
            ends.append(w.mean())
    # E|g| of a normal of mean m and deviation s is near s sqrt(2 / pi) for small m.
    loss = bound / (sigma * np.sqrt(2 / np.pi))
    want = target * loss / (1 + loss)
    assert want < 0.45 * target
    assert np.mean(ends) == pytest.approx(want, rel=0.08)  # 64 weights that still move


@pytest.mark.parametrize("example", [resnet, lstm, transformer], ids=lambda m: m.__name__[22:])
def test_quick_forms_run(example, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    table = example.main(["--quick", "--figure", str(tmp_path / "figure.png")])
    assert len(capsys.readouterr().out.splitlines()) >= len(table.curves)
    assert (tmp_path / "figure.png").stat().st_size > 5000
    for curves in table.curves.values():
        assert np.isfinite(curves).all()


@pytest.mark.slow
def test_lenet_learns():
    table = lenet.main(["--epochs", "4", "--seeds", "1"])
    ends = {name: curves[0][-1] for name, curves in table.curves.items()}
    assert min(ends["digital"], ends["SoftBounds, Tiki-Taka v2"]) > 0.7
    assert ends["SoftBounds"] < 0.5


def test_text():
    words = text.sentences(3, seed=1)
    assert words.count(".") == 3
    assert words == text.sentences(3, seed=1) != text.sentences(3, seed=2)
    letters = text.encoded(words)
    assert "".join(text.ALPHABET[k] for k in letters) == words
    x, y = next(text.batches(letters, 8, 4, torch.Generator().manual_seed(0), 1))
    assert torch.equal(x[:, 1:], y[:, :-1])


def test_cifar_is_read(tmp_path):
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        pixels = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
        (tmp_path / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": [3, 7]}))
    data = resnet.cifar(str(tmp_path))
    assert data.x.shape == (10, 3, 32, 32)
    assert data.y_test.tolist() == [3, 7]
    torch.testing.assert_close(data.x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)


def test_an_embedding_is_no_product():
    """Its gradient needs no tile; what reads columns of tiles takes one-hot samples."""
    layer = nn.AnalogLinear(6, 3, False, cell=rk.Ideal(), seed=1)
    with pytest.raises(errors.RpukitError):
        layer(torch.tensor([1, 2]))
