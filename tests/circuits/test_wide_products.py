"""Products of many rows: these are computed first, so that kernels gather all other elements."""

from __future__ import annotations

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.testing import assert_same_bits, on_cpu

LEAF = circuits.Categorical(n_values=4)


def boxes():
    """Images in boxes of 9 pixels and of 6: wide products beside narrow ones."""
    return circuits.pd((9, 8), 3, LEAF, n_splits=2)


def overlapping():
    """A row that is in a wide and in a narrow element of one layer."""
    leaves = [circuits.inputs(v, LEAF, 4) for v in range(8)]
    inner = circuits.sum(circuits.product(*leaves[:7]), n_nodes=4)
    children = (circuits.product(*leaves), circuits.product(inner, leaves[7]))
    return circuits.sum(*children, n_nodes=1)


def samples(root, n):
    return np.random.default_rng(n).integers(0, 4, (n, rk.Circuit(root).n_variables))


def learned(root, x, precision):
    """Likelihoods, and what is left after a step."""
    pc = rk.Circuit(root, seed=2, precision=precision)
    value = pc.log_likelihood(x)
    pc.em_step(x, step=0.5)
    pc.accumulate(x)
    return value, pc.state()["arrays"]


@pytest.mark.sweep
@pytest.mark.parametrize(("precision", "n"), [("fp32", 3), ("fp32", 40), ("bf16x3", 3)])
def test_kernels_have_the_bits_of_the_mirrors(precision, n):
    root = boxes()
    x = samples(root, n)
    value, arrays = learned(root, x, precision)
    with on_cpu():
        got = learned(root, x, precision)
    assert_same_bits(got[0], value)
    for name, expected in arrays.items():
        assert_same_bits(got[1][name], expected)


def test_wide_products_have_rows_behind_all_nodes():
    layout = rk.Circuit(boxes()).layout
    assert 0 < layout.width <= 6
    assert layout.n_wide > 0
    assert max(rows.max() for rows in layout.rows.values()) < layout.n_node
    narrow = rk.Circuit(circuits.hmm(4, 3, 4)).layout
    assert narrow.n_wide == 0 and narrow.tree


def test_rows_of_wide_and_narrow_elements_of_a_layer_stay_together():
    """Their flows are added in the order of elements: no row may come first."""
    layout = rk.Circuit(overlapping()).layout
    assert layout.n_wide == 4  # of the inner sum: nothing else is made of its rows in that layer
    assert layout.width == 0


def test_a_mixture_of_many_variables_adds_up_its_leaves():
    root = circuits.mixture(40, 3, LEAF)
    pc = rk.Circuit(root, seed=0, dtype="float64")
    x = samples(root, 5)
    weights = pc.parameters(pc.layout.roots[0]).ravel()
    each = [pc.parameters(nodes) for nodes in pc.layout.inputs]
    tables = [np.log(table / table.sum(axis=1, keepdims=True)) for table in each]
    found = np.array([nodes.var for nodes in pc.layout.inputs])
    values = sum(tables[k][:, x[:, found[k]]] for k in range(40))
    expected = np.log(weights @ np.exp(values))
    np.testing.assert_allclose(pc.log_likelihood(x), expected, rtol=1e-13)  # 40 roundings
