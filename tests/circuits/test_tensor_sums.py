"""Sums on tensor cores: `Circuit(precision="bf16")`, kernels round_weights, tensor_stage,
tensor_forward, tensor_backward; against the mirrors, bit for bit, and against float64.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.compiled.arena import taken_by
from rpukit.circuits.compiled.layout import SumLayer
from rpukit.circuits.ops import sum_tensor_core as _tensor
from rpukit.testing import assert_same_bits, on_cpu


def to_bfloat16(x):
    """Round to nearest, ties to even, by float64 alone."""
    significand, exponent = np.frexp(np.asarray(x, np.float64))
    unit = np.ldexp(1.0, np.maximum(exponent - 8, -133))
    return np.where(significand == 0, 0, np.rint(x / unit) * unit)


def models(dtypes=(("float32", "bf16"), ("float64", "fp32")), size=(3, 196, 9)):
    root = circuits.hmm(*size)
    return [rk.Circuit(root, seed=1, dtype=d, precision=p) for d, p in dtypes]


def both_ways(pc, x, weights=None):
    return [pc.accumulate(x, weights=weights), *pc.flows(x, weights=weights).values()]


# A ring that turns more than once; more samples than a block takes. On a GPU all others.
SHAPES = [_tensor.Tile(32, 16, (2, 1), 3), _tensor.Tile(64, 64, (4, 2), 6)]


def of_shape(tile, monkeypatch, device="cpu"):
    pc = models(size=(2, 260, 9))[0].to(device)
    x = np.random.default_rng(3).integers(0, 9, (tile.samples + 5, 2))
    monkeypatch.setattr(_tensor, "tile_for", lambda *_: tile)
    out = pc.accumulate(x if device == "cpu" else pc._core.parameters.on_device(x))
    return [out, *pc.state()["arrays"].values()]


@pytest.mark.parametrize("tile", SHAPES, ids=str)
def test_kernels_have_the_bits_of_the_mirrors(tile, monkeypatch):
    expected = of_shape(tile, monkeypatch)
    with on_cpu(7):
        got = of_shape(tile, monkeypatch)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [*SHAPES, *_tensor._TILES], ids=str)
def test_all_shapes_of_blocks_have_the_same_bits_on_a_gpu(tile, monkeypatch):
    expected = of_shape(tile, monkeypatch)
    for a, b in zip(of_shape(tile, monkeypatch, "gpu"), expected, strict=True):
        assert_same_bits(a, b)


def test_any_batch_and_any_threads_give_the_same_bits(device):
    x = np.random.default_rng(4).integers(0, 9, (37, 3))
    pc = models()[0].to(device)
    data = x if device == "cpu" else pc._core.parameters.on_device(x)
    whole = both_ways(pc, data)
    for a, b in zip(both_ways(models()[0].to(device), data[11:12]), whole, strict=True):
        assert_same_bits(a, b[11:12])
    cut = models()[0].to(device)
    for part in (slice(0, 20), slice(20, 21), slice(21, 37)):
        cut.accumulate(data[part])
    held, expected = cut.state()["arrays"], pc.state()["arrays"]
    for name in ("chains", "totals", "leaf_chains", "leaf_totals"):
        assert_same_bits(held[name], expected[name])
    assert pc.precision == pc.to("cpu").precision == "bf16"


def images():
    return circuits.pd((2, 3), 5, circuits.Categorical(n_values=4))


@pytest.mark.parametrize("root", [lambda: circuits.hmm(2, 196, 9), images])
def test_layers_by_a_formula(root):
    """Each layer both ways in float64 of what is rounded: only the chains' rounding is left."""
    pc, rng = rk.Circuit(root(), precision="bf16"), np.random.default_rng(5)
    own, n = pc._core.parameters, 6
    words, theta = _tensor.rounded_weights(own.uses, own.device), own.theta
    for first, n_child, n_node in own.uses.theta:
        if n_child > 2:
            theta[first : first + n_node // 2] = 0  # of the first child
    _tensor.round_weights(own.uses, theta, words)
    for layer in (y for y in own.layers if hasattr(y, "group_list")):
        elements = rng.normal(scale=4, size=(n, layer.n_element)).astype(np.float32)
        values = rng.normal(scale=4, size=(n, pc.layout.n_row)).astype(np.float32)
        elements[0], values[0] = -np.inf, -np.inf
        lift, flows = values.copy(), np.empty_like(elements)
        _tensor.tensor_forward(layer, words, theta, elements, values)
        arrays = (None, lift, elements, None, flows)
        _tensor.tensor_backward(layer, words, theta, *arrays)
        total = np.zeros(elements.shape)
        for g, k in enumerate(layer.group_list):
            ids = layer.list_elements[layer.list_first[k] : layer.list_first[k + 1]]
            rows = slice(layer.group_row[g], layer.group_row[g] + layer.group_size[g])
            weights = theta[layer.group_theta[g] :][: len(ids) * layer.group_size[g]]
            weights = to_bfloat16(weights).reshape(len(ids), -1)
            most, w = scaled(elements[:, ids])
            with np.errstate(divide="ignore"):
                np.testing.assert_allclose(values[:, rows], most + np.log(w @ weights), atol=2e-6)
            most, w = scaled(lift[:, rows])
            total[:, ids] += np.exp(most) * (w @ weights.T)
        np.testing.assert_allclose(flows, np.exp(elements.astype(float)) * total, rtol=2e-5)


def scaled(inputs):
    """The largest input, and rounded exponentials."""
    most = inputs.max(1, keepdims=True).astype(float)
    shifted = np.where(most > -np.inf, inputs - np.where(most > -np.inf, most, 0), -np.inf)
    return most, to_bfloat16(np.exp(shifted.astype(np.float32)))


def test_sums_that_underflow_are_made_again():
    """The largest child, and lift, has no weight: the others are below what float32 holds."""
    pc = models(size=(2, 20, 3))[0]
    theta = pc._core.parameters.theta
    held = []
    for emulated in (False, True):
        with on_cpu(1) if emulated else np.errstate():
            layer = next(y for y in pc._core.parameters.layers if getattr(y, "n_weight", 0) == 400)
            weights = theta[layer.group_theta[0] :][:400].reshape(20, 20)
            weights[0], weights[:, 0] = 0, 0
            pc._core.parameters.round()
            elements, flows = np.full((3, 20), -200.0), np.empty((3, 20), np.float32)
            lift = np.full((3, pc.layout.n_row), -200.0)
            elements[:, 0], lift[:, layer.first_row] = 0, 0
            values, room = lift.copy(), (pc._core.parameters.rounded, theta)
            _tensor.tensor_forward(layer, *room, elements, values)
            _tensor.tensor_backward(layer, *room, None, lift, elements + 190, None, flows)
            held.append((values, flows))
    for a, b in zip(*held, strict=True):
        assert_same_bits(a, b)
    rows = slice(layer.first_row + 1, layer.end_row)
    expected = np.log(weights[:, 1:].astype(float).sum(0)) - 200
    np.testing.assert_allclose(held[0][0][0, rows], expected, rtol=1e-6)
    expected = np.exp(-210.0) * weights[1:].astype(float).sum(1)
    np.testing.assert_allclose(held[0][1][0, 1:], expected, atol=1e-38)


def test_close_to_float64():
    """Log-likelihoods and flows; the guide to circuits says how close."""
    rounded, exact = models()
    x = np.random.default_rng(6).integers(0, 9, (64, 3))
    error = rounded.log_likelihood(x) - exact.log_likelihood(x)
    assert 0 < np.abs(error).max() < 4e-3
    assert abs(error.mean()) < 1e-3
    for a, b in zip(rounded.flows(x).values(), exact.flows(x).values(), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3, rtol=2e-2)


def test_other_rules_and_saved_circuits(tmp_path):
    """Rules compute in float32; a saved circuit goes on alike."""
    pc, plain = models((("float32", "bf16"), ("float32", "fp32")), (3, 20, 5))
    x = pc.sample(7)
    rule = circuits.Rule(exponent=2.0)
    assert_same_bits(pc.log_likelihood(x, rule=rule), plain.log_likelihood(x, rule=rule))
    assert_same_bits(pc.log_likelihood(x, rule=circuits.Rule()), pc.log_likelihood(x))
    pc.em_step(x)
    rk.save(tmp_path / "pc.npz", pc)
    other = rk.load(tmp_path / "pc.npz")
    assert other.precision == "bf16"
    assert_same_bits(other.log_likelihood(x), pc.log_likelihood(x))
    assert not np.array_equal(pc.log_likelihood(x), plain.log_likelihood(x))


def test_errors():
    root = circuits.mixture(2, 2, circuits.Bernoulli())
    with pytest.raises(rk.errors.DTypeError, match="need float32"):
        rk.Circuit(root, dtype="float64", precision="bf16")
    with pytest.raises(rk.errors.ParameterError, match="precision: got 'fp16'"):
        rk.Circuit(root, precision="fp16")
    assert rk.Circuit(root).precision == "fp32"


def test_a_budget_counts_the_tables_of_tensor_cores():
    pc = models(size=(2, 260, 9))[0]
    with on_cpu():
        pc.accumulate(np.zeros((3, 2), int))
    layers = [layer for layer in pc._core.parameters.layers if isinstance(layer, SumLayer)]
    keys = ("lists", "columns"), ("groups", "columns"), ("words",)
    tables = [table for layer in layers for key in keys for table in layer.tiles[key]]
    taken = sum(taken_by(table.nbytes) for table in tables if isinstance(table, np.ndarray))
    assert 0 < taken <= _tensor.most_of_tensor(pc.layout)
