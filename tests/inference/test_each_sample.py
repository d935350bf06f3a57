"""Weights that each sample of a product meets anew."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import errors, inference
from rpukit.testing import assert_same_bits, on_cpu

PERFECT = rk.IOParameters(is_perfect=True)
EACH = {
    "add_normal": {"std_dev": 0.2},
    "discretize": {"res": 0.2, "sto_round": True, "pdrop": 0.1},
    "drop_connect": {"pdrop": 0.3},
    "noise_model": {"t": 3600.0, "p_low": 0.1},
}


@pytest.mark.parametrize("name", EACH)
def test_each_sample_its_own_weights(name, order):
    """Sample k meets the same weights in any batch, forward and backward, on both sides."""
    rng = np.random.default_rng(0)
    w, x, d = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((12, 132), (5, 132), (5, 12)))
    modifier = inference.WeightModifier(type=name, per_batch_sample=True, **EACH[name])

    def tile():
        made = rk.InferenceTile(
            w.shape, modifier=modifier, seed=5, forward=PERFECT, backward=PERFECT
        )
        return made.set_weights(w).post_step()

    whole = tile()
    y, g = whole.forward(x), whole.backward(d)
    assert_same_bits(whole.get_weights(), w)
    parts = tile()
    assert_same_bits(np.concatenate([parts.forward(x[:2]), parts.forward(x[2:])]), y)
    assert_same_bits(parts.backward(d[3], first_sample=3), g[3])
    assert_same_bits(whole.copy().forward(x[1], first_sample=1), y[1])
    with on_cpu(order):
        source = tile()
        assert_same_bits(source.forward(x), y)
        assert_same_bits(source.backward(d), g)
    # Unit inputs read the weights of their samples: no two are the same, and a step draws anew.
    rows = [tile().forward(np.eye(132, dtype=np.float32)[[7] * 3]) for _ in range(2)]
    assert_same_bits(*rows)
    assert (rows[0][0] != rows[0][1]).any()
    later = tile().post_step().forward(x)
    assert (later != y).any()
    # Backward goes through what forward went through.
    both = rng.uniform(-1, 1, (1, 132)).astype(np.float32)
    one = tile()
    np.testing.assert_allclose(
        (one.forward(both) * d[:1]).sum(), (one.backward(d[:1]) * both).sum(), rtol=2e-4, atol=2e-4
    )


def test_each_sample_spreads_as_one_step_does():
    w, n = np.full((4, 8), 0.5, np.float32), 2000
    modifier = inference.WeightModifier(type="add_normal", std_dev=0.1, per_batch_sample=True)
    tile = rk.InferenceTile(w.shape, modifier=modifier, seed=5, forward=PERFECT)
    y = tile.set_weights(w).post_step().forward(np.ones((n, 8), np.float32))
    np.testing.assert_allclose(y.mean(0), 4.0, atol=4 * 0.05 * np.sqrt(8 / n))
    np.testing.assert_allclose(y.std(0), 0.05 * np.sqrt(8), rtol=0.08)


def test_per_batch_sample_is_true_or_false():
    with pytest.raises(errors.ParameterError, match="per_batch_sample"):
        inference.WeightModifier(type="drop_connect", per_batch_sample=2)
