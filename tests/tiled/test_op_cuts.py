"""Every op: the whole is the formula, and tiles of any legal cut are the whole, bit for bit."""

import numpy as np
import pytest

from rpukit.testing import assert_same_bits
from tests.tiled.cut_nodes import run_cut
from tests.tiled.op_cases import made
from tests.tiled.op_formulas import CASES


@pytest.mark.parametrize("name", CASES)
def test_whole_is_the_formula_and_tiles_are_the_whole(name):
    graph, values, formula = made(name)
    kept = {key: value.copy() for key, value in values.items()}
    result = graph.run(values)
    want = formula(*(v.astype(np.float64) if v.dtype.kind == "f" else v for v in kept.values()))
    for key, expected in zip(
        graph.outputs, want if isinstance(want, tuple) else [want], strict=True
    ):
        assert result[key].shape == np.shape(expected) == graph.tensors[key].shape
        size = max(1.0, np.abs(expected).max())
        # Chains of some 100 products (40000 in the long one), each step within 2^-24 of its size.
        bound = 1e-4 if "long" in name else 3e-6
        assert np.abs(result[key] - expected).max() <= bound * size
    for key, value in kept.items():
        assert_same_bits(values[key], value)
    rng = np.random.default_rng(7)
    most = 0
    for _ in range(2 if "long" in name else 6):
        tiled = {key: value.copy() for key, value in kept.items()}
        most = max(most, run_cut(graph.nodes[0], graph.tensors, tiled, rng))
        for key in graph.outputs:
            assert_same_bits(tiled[key], result[key])
    assert most > 1 or name == "adam_powers"
