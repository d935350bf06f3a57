"""What a tile of a 16-bit product takes: parts of a sum, sums to go on from, layouts, segments."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import _device
from rpukit.errors import ParameterError
from rpukit.gemm import _tiles, tensor
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import factors, words


@pytest.mark.parametrize("tile", ["turned 64x16 deep", "64x64", "128x128 cluster 2x1"])
@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("part", [(0, 192), (64, 150)])
def test_a_part_may_end_within_a_stage(tile, along, part):
    """A stage has up to 256 terms."""
    a, b = factors(20, 72, 330, "bfloat16", False, not along)
    p, q = tensor.factor(a, 1), tensor.factor(b, 1 - along)
    inside = slice(*part)
    some = b[inside] if along else b[:, inside]
    alone = rk.det_gemm(a[:, inside], some, trans_b=not along, out_dtype=np.float32)
    out = tensor.aligned((20, 72), np.float32, _device.CPU)
    with on_cpu(5):
        tensor.multiply(p, q, out, part=part, tile=_tiles.named(tile))
    assert_same_bits(out, alone)


def test_tiles_that_cannot_make_a_product_are_named():
    p = tensor.factor(words((64, 64), "float16", 1), 1)
    sums = tensor.aligned((64, 64), np.float32, _device.CPU)
    with pytest.raises(ParameterError, match="tile: got '64x128 cluster 4x1', need one without"):
        tensor.multiply(p, p, sums, partial=sums, tile=_tiles.named("64x128 cluster 4x1"))
    p = tensor.factor(words((8, 7 * 4096), "float16", 1), 1)
    with pytest.raises(ParameterError, match="'turned 64x16 joined', it takes no 7 segments"):
        tensor.multiply(
            p, p, np.zeros((8, 8), np.uint16), tile=_tiles.named("turned 64x16 joined")
        )
    p = tensor.factor(words((40, 64), "float16", 1), 0)
    with pytest.raises(ParameterError, match="got 'turned 64x16', need a multiple of 64 columns"):
        tensor.multiply(p, p, sums, tile=_tiles.named("turned 64x16"))
