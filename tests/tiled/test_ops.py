"""Every op: the whole is the formula, and tiles of any legal cut are the whole, bit for bit."""

import numpy as np
import pytest
from tile_cut import run_cut
from tile_formulas import CASES

from rpukit.testing import assert_same_bits
from rpukit.tiled import Node, Tensor, make_graph

N_OUTPUTS = {"LayerNormalization": 3, "MomentumSGD": 2, "Adam": 3}


def made(name, dtype="float32"):
    """A graph of one node, and values for its inputs."""
    op, shapes, attributes, formula = CASES[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    inputs, values = [], {}
    for place, shape in enumerate(shapes):
        kind = {"labels": "int64", "reset": "bool"}.get(shape, dtype)
        shape = {"labels": shapes[0][:1], "reset": (1,)}.get(shape, shape)
        inputs.append(Tensor(f"x{place}", shape, kind))
        if kind == "int64":
            values[f"x{place}"] = rng.integers(0, shapes[0][1], shape)
        elif kind == "bool":
            values[f"x{place}"] = np.array([False])
        else:
            draws = rng.normal(size=shape)
            positive = op.startswith("Adam") and place in (3, 4)
            positive = positive or (op == "AdamPowers")
            values[f"x{place}"] = (np.abs(draws) % 1 if positive else draws).astype(dtype)
    outputs = tuple(f"y{k}" for k in range(N_OUTPUTS.get(op, 1)))
    node = Node("node", op, tuple(values), outputs, attributes)
    return make_graph(name, [node], inputs, outputs), values, formula


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_whole_is_the_formula_and_tiles_are_the_whole(name, dtype):
    graph, values, formula = made(name, dtype)
    kept = {key: value.copy() for key, value in values.items()}
    result = graph.run(values)
    want = formula(*(v.astype(np.float64) if v.dtype.kind == "f" else v for v in kept.values()))
    for key, expected in zip(
        graph.outputs, want if isinstance(want, tuple) else [want], strict=True
    ):
        assert result[key].shape == np.shape(expected) == graph.tensors[key].shape
        size = max(1.0, np.abs(expected).max())
        # Chains of up to 40000 products, each step within 2^-24 or 2^-53 of its size.
        bound = {"float32": 3e-6, "float64": 1e-12}[dtype] * (30 if "long" in name else 1)
        assert np.abs(result[key] - expected).max() <= bound * size
    for key, value in kept.items():
        assert_same_bits(values[key], value)
    if dtype == "float64" and name not in ("gemm", "conv"):
        return
    rng = np.random.default_rng(7)
    most = 0
    for _ in range(2 if "long" in name else 6):
        tiled = {key: value.copy() for key, value in kept.items()}
        most = max(most, run_cut(graph.nodes[0], graph.tensors, tiled, rng))
        for key in graph.outputs:
            assert_same_bits(tiled[key], result[key])
    assert most > 1 or name == "adam_powers"
