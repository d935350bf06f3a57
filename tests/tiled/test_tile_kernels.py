"""Kernels of tiles: the sources give the bits of the mirrors, whole and cut, in any order."""

import numpy as np
import pytest

from rpukit.testing import assert_same_bits, on_cpu
from tests.tiled.cut_nodes import run_cut
from tests.tiled.op_cases import made
from tests.tiled.op_formulas import CASES


@pytest.mark.sweep
@pytest.mark.parametrize("name", [n for n in CASES if "long" not in n])
def test_kernel_is_mirror(name):
    graph, values, _ = made(name)
    want = graph.run(values)
    with on_cpu(order=1):
        whole = graph.run(values)
    tiled = {key: value.copy() for key, value in values.items()}
    with on_cpu(order=7):
        run_cut(graph.nodes[0], graph.tensors, tiled, np.random.default_rng(3))
    for key in graph.outputs:
        assert_same_bits(whole[key], want[key])
        assert_same_bits(tiled[key], want[key])
