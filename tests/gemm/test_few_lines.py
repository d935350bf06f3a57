"""Products of 16-bit floats with few results, or short sums: tiles, trials and launches."""

import numpy as np
import pytest

import rpukit as rk
from rpukit._kernels import tune
from rpukit._kernels.launch import recording
from rpukit.gemm import tensor
from rpukit.gemm._tiles import tensor_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import factors


@pytest.mark.sweep
@pytest.mark.parametrize("tile", [t.name for t in tensor_tiles.TILES if t.lines < 64])
@pytest.mark.parametrize("along", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_tiles_of_few_lines_in_any_layout(tile, along):
    """Boxes of 8, 16 or 32 lines along memory; the tensor core's other rows are not written."""
    m, n, k = 19, 75, 330
    a, b = factors(m, n, k, "float16", along[0] == 1, along[1] == 0)
    p, q = tensor.factor(a, 1 - along[0]), tensor.factor(b, 1 - along[1])
    assert (p.along, q.along) == along
    expected = rk.det_gemm(
        a, b, trans_a=along[0] == 1, trans_b=along[1] == 0, out_dtype=np.float32
    )
    for dtype in (np.uint16, np.float32):
        room = np.full((m + 1, n), 7, dtype)
        with on_cpu(5):
            tensor.multiply(p, q, room[:m], tile=tensor_tiles.named(tile))
        wanted = expected if dtype == np.float32 else expected.astype(np.float16).view(np.uint16)
        assert_same_bits(room[:m], wanted)
        assert (room[m] == 7).all()


@pytest.mark.parametrize("stays", [0, 1 << 30])
def test_other_data_in_l2_before_trials_of_small_factors(stays, monkeypatch):
    """Large factors do not stay in L2; what is written before each trial would slow them down."""
    asked = []

    def choose(kernel, key, found, make_trial, **given):
        asked.append(given["cold"])
        return found[0]

    monkeypatch.setattr(tune, "choose", choose)
    monkeypatch.setattr(tune, "STAYS", stays)
    a, b = factors(40, 200, 96, "bfloat16")
    with on_cpu():
        rk.det_gemm(a, b)
    assert asked
    assert set(asked) == {stays > 0}


@pytest.mark.parametrize(
    ("tile", "k", "early"),
    [
        ("128x128", 64, True),
        ("128x128", 1032, False),
        ("128x128 early", 1032, True),
        ("turned 64x32 in threes", 64, True),
        ("turned 16x16 streamed early", 1032, True),
        ("128x128 cluster 2x1", 64, True),
        ("thin 16x8/2", 1032, True),
        ("warps 64x64", 64, False),  # does not wait for the launch before
    ],
)
def test_which_launches_begin_early(tile, k, early):
    a, b = factors(9, 16, k, "bfloat16")
    p, q, out = tensor.factor(a, 1), tensor.factor(b, 0), np.zeros((9, 16), np.uint16)
    with on_cpu(), recording() as launches:
        tensor.multiply(p, q, out, tile=tensor_tiles.named(tile))
    (one,) = launches
    assert one.early == early
