"""Sums and counts by pairs of bfloat16: `Circuit(precision="bf16x3")`, kernel tensor_flow, and the
kernels of tensor cores with SPLIT; against the mirrors, bit for bit, and against float64.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.ops import counts, sum_tensor_core
from rpukit.testing import assert_same_bits, on_cpu


def learnt(size, n, cuts=(), precision="bf16x3", dtype="float32"):
    """Log-likelihoods and all state after n samples that come in pieces."""
    pc = rk.Circuit(circuits.hmm(*size), seed=1, precision=precision, dtype=dtype)
    x = np.random.default_rng(3).integers(0, size[2], (n, size[0]))
    parts = [part for part in np.split(x, list(cuts)) if len(part)]
    out = np.concatenate([pc.accumulate(part) for part in parts])
    return [out, *pc.state()["arrays"].values()]


# Uses of parts of one to four steps of 16, and of two parts; lists of two stages.
LARGE = pytest.param((10, 67, 5), marks=pytest.mark.slow)


@pytest.mark.sweep
@pytest.mark.parametrize("size", [LARGE, (34, 20, 5), (50, 9, 5), (66, 9, 5)], ids=str)
def test_kernels_have_the_bits_of_the_mirrors(size):
    expected = learnt(size, 5)
    with on_cpu(7):
        got = learnt(size, 5)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


def test_any_batch_has_the_same_bits_and_chains_end_at_blocks_of_samples():
    expected = learnt((10, 4, 5), 259)
    for a, b in zip(learnt((10, 4, 5), 259, (1, 130, 256)), expected, strict=True):
        assert_same_bits(a, b)
    with on_cpu(1):
        got = learnt((10, 4, 5), 259, (130,))
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
def test_whole_blocks_of_samples_leave_no_chain_behind(precision):
    """Chains that begin and end with a block are neither read nor written by the kernels."""
    expected = learnt((10, 4, 5), 257, (256,), precision)
    with on_cpu(7):
        got = learnt((10, 4, 5), 257, (256,), precision)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("tile", [*counts._TILES[1:3]], ids=lambda t: f"{t.outputs}x{t.samples}")
def test_tiles_of_counts_have_the_same_bits(tile, monkeypatch):
    expected = learnt((10, 70, 5), 3)
    monkeypatch.setattr(counts, "_TILES", (tile,))
    with on_cpu(5):
        got = learnt((10, 70, 5), 3)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("tile", sum_tensor_core._SPLIT_TILES[:3], ids=str)
def test_tiles_of_sums_have_the_same_bits(tile, monkeypatch):
    expected = learnt((2, 140, 5), 35)
    monkeypatch.setattr(sum_tensor_core, "tile_for", lambda *_: tile.fitted(200_000))
    with on_cpu(5):
        got = learnt((2, 140, 5), 35)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", sum_tensor_core._SPLIT_TILES, ids=str)
def test_all_shapes_of_blocks_have_the_same_bits_on_a_gpu(tile, monkeypatch):
    x = np.random.default_rng(3).integers(0, 5, (tile.samples + 5, 10))
    found = []
    for device in ("cpu", "gpu"):
        pc = rk.Circuit(circuits.hmm(10, 150, 5), seed=1, precision="bf16x3").to(device)
        if device == "gpu":
            monkeypatch.setattr(sum_tensor_core, "tile_for", lambda *_: tile.fitted(200_000))
        out = pc.accumulate(pc._core.parameters.on_device(x))
        found.append([out, *pc.state()["arrays"].values()])
    for a, b in zip(*found, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize(("precision", "n"), [("bf16x3", 5), ("bf16", 7), ("fp32", 110)])
def test_wide_steps_have_the_bits_of_the_mirror(precision, n, monkeypatch):
    """Two states that never meet, each ruled out by one end of a sequence: exponents of 71.

    110 samples of 39 uses are more steps than a chain of float32 has.
    """
    emission = np.array([[0.5, 1e-31, 0.5], [1e-31, 0.5, 0.5]]).repeat(3, axis=0)
    transition = np.kron(np.eye(2), np.full((3, 3), 1 / 3))
    x = np.full((n, 40), 2)
    x[1:, 0], x[1:, -1] = 0, 1
    name = "tensor_flow" if precision == "bf16x3" else "sum_flow"
    flags, found, counted = [], [], getattr(counts, name)

    def seen(held, uses, theta, steps):
        flags.append(steps[2])
        counted(held, uses, theta, steps)

    monkeypatch.setattr(counts, name, seen)
    for emulated in (False, True):
        with on_cpu(3) if emulated else np.errstate():
            root = circuits.hmm(40, 6, 3, transition=transition, emission=emission)
            pc = rk.Circuit(root, seed=1, precision=precision)
            found.append([pc.accumulate(x), *pc.state()["arrays"].values()])
    for a, b in zip(*found, strict=True):
        assert_same_bits(a, b)
    assert 0 < flags[0].sum() < flags[0].size
    assert_same_bits(*flags)


def test_close_to_float64():
    """Log-likelihoods and counts of a chain of 40 times, beside those of plain bfloat16."""
    split, exact, plain = (
        learnt((40, 24, 9), 32, (), *kind)
        for kind in (("bf16x3", "float32"), ("fp32", "float64"), ("bf16", "float32"))
    )
    np.testing.assert_allclose(split[0], exact[0], rtol=2e-7)
    assert np.abs(plain[0] - exact[0]).max() > 1e-3
    theta = slice(0, 600)  # counts are the arrays after parameters: chains, then totals
    found = [np.float64(a[3][theta]) + a[4][theta] for a in (split, exact)]
    np.testing.assert_allclose(*found, rtol=3e-6)


def test_steps_and_saved_circuits(tmp_path):
    pc = rk.Circuit(circuits.hmm(10, 6, 5), seed=1, precision="bf16x3")
    x = pc.sample(20)
    before = pc.log_likelihood(x).mean()
    for _ in range(3):
        pc.em_step(x)
    assert pc.log_likelihood(x).mean() > before
    rk.save(tmp_path / "pc.npz", pc)
    other = rk.load(tmp_path / "pc.npz")
    assert other.precision == pc.to("cpu").precision == "bf16x3"
    assert_same_bits(other.log_likelihood(x), pc.log_likelihood(x))
    with pytest.raises(rk.errors.DTypeError, match="bf16x3"):
        rk.Circuit(circuits.hmm(3, 2, 2), dtype="float64", precision="bf16x3")


def tied_blocks(n_time):
    """A chain of blocks of states, whose weights are tied over the layers."""
    leaf, sizes = circuits.Categorical(n_values=5), {"n_nodes": 24, "block_size": 8}
    edges = np.array([[0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 0]])
    first = below = circuits.inputs(n_time - 1, leaf, 24, block_size=8)
    tied = None
    for t in reversed(range(n_time - 1)):
        tied = tied.duplicate(below) if tied else circuits.sum(below, **sizes, edges=edges)
        below = circuits.product(first.duplicate(t), tied)
    return circuits.sum(below, n_nodes=1)


def beside_untied():
    """A chain of tied weights beside another chain whose weights are not tied, layer by layer."""
    far = circuits.inputs(11, circuits.Categorical(n_values=5), 6)
    for t in reversed(range(12, 19)):
        leaf = circuits.inputs(t, circuits.Categorical(n_values=5), 6)
        far = circuits.product(circuits.sum(far, n_nodes=6), leaf)
    near, tied = circuits.inputs(10, circuits.Categorical(n_values=5), 6), None
    for t in reversed(range(10)):
        tied = tied.duplicate(near) if tied else circuits.sum(near, n_nodes=6)
        near = circuits.product(circuits.inputs(t, circuits.Categorical(n_values=5), 6), tied)
    return circuits.sum(circuits.product(near, far), n_nodes=1)


@pytest.mark.parametrize(
    ("root", "n_variable", "precision", "kept"),
    [
        (lambda: tied_blocks(10), 10, "bf16x3", True),
        (beside_untied, 19, "bf16x3", False),
        (lambda: tied_blocks(10), 10, "bf16", True),
        (beside_untied, 19, "bf16", True),
    ],
    ids=["blocks", "mixed", "blocks, bf16", "mixed, bf16"],
)
def test_counts_take_the_exponentials_of_the_pass_down(
    root, n_variable, precision, kept, monkeypatch
):
    """They are made anew where a layer has tied weights beside others; the bits are the same."""
    taken, found, prepare = [], [], counts.flow_steps

    def seen(uses, *arrays, split, lifts):
        taken.append((split, lifts is not None))
        return prepare(uses, *arrays, split=split, lifts=lifts)

    monkeypatch.setattr(counts, "flow_steps", seen)
    x = np.random.default_rng(3).integers(0, 5, (6, n_variable))
    for emulated in (False, True):
        taken.clear()
        with on_cpu(3) if emulated else np.errstate():
            pc = rk.Circuit(root(), seed=1, precision=precision)
            found.append([pc.accumulate(x), *pc.state()["arrays"].values()])
        split = precision == "bf16x3"
        assert set(taken) == {(split, kept and emulated)} | ({(False, False)} if split else set())
    for a, b in zip(*found, strict=True):
        assert_same_bits(a, b)
