"""What batch invariance means: nothing but its own row and column reaches a result."""

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rpukit as rk
from rpukit import _device
from rpukit._kernels.launch import recording
from rpukit.errors import DeviceError
from rpukit.gemm import formats, tensor
from rpukit.gemm._tiles import tensor_choice, tensor_tiles
from rpukit.testing import assert_same_bits, on_cpu
from tests.gemm.gemm_cases import FORMATS, factors, words

PACKAGE = Path(rk.__file__).parent
SHAPES = ((4096, 12288), (4096, 4096), (4096, 14336), (14336, 4096), (4096, 32000))  # k, n
TYPES = (*FORMATS, "float32", "float64")


def matrix(shape, form, seed):
    if form in FORMATS:
        return words(shape, form, seed)
    return np.random.default_rng(seed).standard_normal(shape).astype(form)


@st.composite
def products(draw):
    """Lengths, type, how factors lie in memory, a cut, and an order of the rows."""
    m, n, k = (draw(st.integers(1, 70)) for _ in range(3))
    steps = [draw(st.sampled_from((1, 2, -1, -3))) for _ in range(2)]
    return SimpleNamespace(
        a=matrix((m, k), draw(st.sampled_from(TYPES)), seed := draw(st.integers(0, 9))),
        n=n,
        seed=seed + 1,
        steps=steps,
        cut=draw(st.integers(0, m)),
        order=draw(st.permutations(range(m))),
    )


def strided(x, step):
    """The same matrix with gaps between its columns, or backwards."""
    room = np.zeros((x.shape[0], x.shape[1] * abs(step)), x.dtype)
    room[:, ::step][:, : x.shape[1]] = x
    return room[:, ::step][:, : x.shape[1]]


@given(products())
@settings(max_examples=25, deadline=None)
def test_no_row_knows_the_others_or_how_they_lie(case):
    a, cut, order = case.a, case.cut, np.array(case.order)
    form = "bfloat16" if a.dtype == np.uint16 else a.dtype.name
    b = matrix((a.shape[1], case.n), form, case.seed)
    whole = rk.det_gemm(a, b)
    assert_same_bits(np.concatenate([rk.det_gemm(x, b) for x in (a[:cut], a[cut:])]), whole)
    assert_same_bits(rk.det_gemm(a[order], b), whole[order])
    for left, right in (
        (strided(a, case.steps[0]), strided(b, case.steps[1])),
        (np.asfortranarray(a), b),
        (a, np.asfortranarray(b)),
    ):
        assert_same_bits(rk.det_gemm(left, right), whole)
    assert_same_bits(rk.det_gemm(a, b.T.copy(), trans_b=True), whole)
    assert_same_bits(rk.det_gemm(a.T.copy(), b, trans_a=True), whole)


def test_order_of_tiles_and_number_of_blocks(monkeypatch):
    a, b = factors(200, 264, 64, "bfloat16")
    p, q = tensor.factor(a, 1), tensor.factor(b, 0)
    expected = tensor.aligned((200, 264), np.uint16, _device.CPU)
    tensor.multiply(p, q, expected)
    for group in (1, 3, 100):
        for n_multi in (1, 7):
            monkeypatch.setattr(tensor, "GROUP", group)
            monkeypatch.setattr(tensor_tiles, "multiprocessors", lambda _, n=n_multi: n)
            got = tensor.aligned((200, 264), np.uint16, _device.CPU)
            with on_cpu(1):
                tensor.multiply(p, q, got, tile=tensor_tiles.named("64x64"))
            assert_same_bits(got, expected)


@pytest.mark.parametrize("form", FORMATS)
def test_whole_steps_of_zero_rows_change_nothing(form):
    """Sequences padded to whole steps, wherever the padding lies."""
    a, dc = words((48, 40), form, 1), words((48, 24), form, 2)
    zero = [np.zeros((32, x.shape[1]), x.dtype) for x in (a, dc)]
    longer = [np.concatenate([x[:16], z, x[16:]]) for x, z in zip((a, dc), zero, strict=True)]
    assert_same_bits(rk.det_gemm(*longer, trans_a=True), rk.det_gemm(a, dc, trans_a=True))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_gradients_do_not_know_the_order_of_keyed_rows(lengths, random):
    """Rows in any order, with padding of NaN anywhere."""
    ids = np.repeat(np.arange(len(lengths)), lengths)
    places = np.concatenate([np.arange(n) for n in lengths])
    a, dc = words((len(ids), 24), "bfloat16", 1), words((len(ids), 8), "bfloat16", 2)
    expected = rk.gemm.WeightGradient((24, 8), np.uint16)
    expected.add(a, dc, keys=(ids, places))
    order = list(range(len(ids))) + [-1] * random.randint(0, 20)
    random.shuffle(order)
    take = np.array(order, int)
    padded = [np.concatenate([x, np.full((1, x.shape[1]), 0x7FC0, np.uint16)]) for x in (a, dc)]
    got = rk.gemm.WeightGradient((24, 8), np.uint16)
    got.add(
        *(x[take] for x in padded), keys=(np.append(ids, -1)[take], np.append(places, 0)[take])
    )
    assert_same_bits(got.result(np.float32), expected.result(np.float32))
    assert got.n_rows == sum(-(-n // 16) * 16 for n in lengths)


def entries():
    """Everything that multiplies 16-bit floats."""
    a, b = factors(3, 4, 5, "float16")
    targets, slope = np.zeros(3, int), np.zeros(3, np.float32)
    return {
        "det_gemm": lambda: rk.det_gemm(a, b),
        "det_gemm_backward": lambda: rk.det_gemm_backward(a, b, np.zeros((3, 4), np.float16)),
        "WeightGradient": lambda: rk.gemm.WeightGradient((3, 4), np.float16),
        "linear_logprob": lambda: rk.linear_logprob(a, b.T, targets),
        "linear_logprob_backward": lambda: rk.linear_logprob_backward(a, b.T, targets, slope),
    }


@pytest.mark.parametrize("entry", entries())
def test_a_device_without_kernels_is_refused_by_every_entry(entry, monkeypatch):
    def refuse(device):
        raise DeviceError(f"{device} has no kernels")

    entries()[entry]()
    monkeypatch.setattr(formats, "_tensor_tag", refuse)
    with pytest.raises(DeviceError, match="no kernels"):
        entries()[entry]()


def test_other_architectures_have_names_of_their_own(monkeypatch):
    """The rule of their tensor cores has not been seen: no equality with others is promised."""
    properties = SimpleNamespace(compute_capability="90")
    fake = SimpleNamespace(cuda=SimpleNamespace(Device=lambda _: properties))
    monkeypatch.setattr(_device, "cupy", lambda: fake)
    tag = formats._tensor_tag.__wrapped__
    assert tag(_device.Device("gpu", 5)) == tag(_device.CPU)
    for properties.compute_capability in ("80", "89", "100", "120"):
        assert tag(_device.Device("gpu", 5)) == f"tc{properties.compute_capability}"
    properties.compute_capability = "75"
    with pytest.raises(DeviceError, match=r"7\.5.*float32"):
        tag(_device.Device("gpu", 5))


def test_without_warpgroups(monkeypatch):
    """Where only single warps multiply, products and sums that go on take their kernel."""
    (a, b), rows = factors(21, 120, 75, "bfloat16"), words((21, 120), "bfloat16", 8)

    def results():
        sums = rk.gemm.WeightGradient((75, 120), np.uint16)
        for part in (slice(5), slice(5, 21)):
            sums.add(a[part], rows[part])
        return rk.det_gemm(a, b), sums.result(np.float32)

    expected = results()
    monkeypatch.setattr(tensor_choice, "has_warpgroups", lambda _: False)
    monkeypatch.setattr(tensor_choice, "pick", tensor_choice.pick.__wrapped__)
    monkeypatch.setattr(tensor_choice, "by_time_of_all", lambda *_: ())
    monkeypatch.setattr(tensor, "pick_alone", tensor_choice.pick_alone.__wrapped__)
    with on_cpu(1), recording() as launches:
        found = results()
    assert {launch.variant.entry for launch in launches} == {"align_rows", "det_gemm_mma"}
    for got, wanted in zip(found, expected, strict=True):
        assert_same_bits(got, wanted)


def test_no_product_of_another_library():
    """`matmul` and its kin choose their sums by the batch."""
    files = [*(PACKAGE / "gemm").rglob("*.py"), *(PACKAGE / "torch").glob("*.py")]
    assert len(files) > 10
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", ""))
            assert name not in {"matmul", "dot", "einsum", "inner", "tensordot", "vdot"}, path
            assert not isinstance(getattr(node, "op", None), ast.MatMult), path


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_layers_of_a_language_model(shape):
    """Rows and columns of large products are those of the mirror, and of smaller batches."""
    import cupy

    k, n = shape
    stream = rk.Stream.from_seed(5)
    a, b = (
        rk.gemm.to_bfloat16(rk.elementwise.random_fill(stream.child(c), s, "normal", device="gpu"))
        for c, s in enumerate(((4096, k), (k, n)))
    )
    columns = slice(n - 72, n - 32)
    turned = cupy.ascontiguousarray(b.T)
    for m in (1, 64, 4096):
        whole = rk.det_gemm(a[:m], b)
        assert_same_bits(rk.det_gemm(a[:m], turned, trans_b=True), whole)
        for row in {0, m // 2, m - 1}:
            expected = rk.det_gemm(a[row : row + 1].get(), b[:, columns].get())
            assert_same_bits(whole[row : row + 1, columns], expected)
            assert_same_bits(rk.det_gemm(a[row : row + 1], b), whole[row : row + 1])


@pytest.mark.gpu
def test_nothing_moves_by_itself():
    import cupy

    a, b = factors(3, 8, 8, "float16")
    with pytest.raises(DeviceError, match="move"):
        rk.det_gemm(cupy.asarray(a), b)
    with pytest.raises(DeviceError, match="move"):
        rk.det_gemm(cupy.asarray(a), cupy.asarray(b), out=np.zeros((3, 8), np.float16))


@pytest.mark.multi_gpu
def test_work_is_done_where_the_arrays_are():
    import cupy

    a, b = factors(70, 40, 64, "bfloat16")
    with cupy.cuda.Device(1):
        there = [cupy.asarray(x) for x in (a, b)]
    got = rk.det_gemm(*there)  # the current device is 0
    assert got.device.id == 1
    assert_same_bits(got, rk.det_gemm(a, b))
    with pytest.raises(DeviceError, match="several"):
        rk.det_gemm(there[0], cupy.asarray(b))
