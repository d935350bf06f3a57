"""NumPy's functions on tiles: products, reading of the weights, refusal of the rest."""

import operator

import numpy as np
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits

SHAPE = (3, 4)
RNG = np.random.default_rng(1)
X, D = RNG.uniform(-1, 1, (5, 4)).astype("f4"), RNG.uniform(-1, 1, (5, 3)).astype("f4")
X3 = RNG.uniform(-1, 1, (2, 5, 4)).astype("f4")
W = RNG.uniform(-0.3, 0.3, SHAPE).astype("f4")


def analog(**io):
    parameters = rk.IOParameters(**io)
    tile = rk.AnalogTile(SHAPE, rk.Ideal(), seed=1, forward=parameters, backward=parameters)
    return tile.set_weights(W)


def inference():
    perfect = rk.IOParameters(is_perfect=True)
    return rk.InferenceTile(SHAPE, forward=perfect, backward=perfect).set_weights(W)


# Each takes a tile or its weights; the sign of a clock says which product it is.
FORWARD = {
    "matmul operator": lambda w: X @ w.T,
    "operator matmul": lambda w: w @ X.T,
    "vector": lambda w: w @ X[0],
    "stack": lambda w: X3 @ w.T,
    "stack of columns": lambda w: w @ X3.swapaxes(1, 2),
    "matmul": lambda w: np.matmul(X, w.T),
    "linalg.matmul": lambda w: np.linalg.matmul(X, w.T),
    "dot": lambda w: np.dot(X, w.T),
    "dot of a vector": lambda w: np.dot(w, X[0]),
    "dot of a stack": lambda w: np.dot(w, X3.swapaxes(1, 2)),
    "inner": lambda w: np.inner(X3, w),
    "inner, tile first": lambda w: np.inner(w, X3),
    "tensordot 1": lambda w: np.tensordot(X, w.T, 1),
    "tensordot": lambda w: np.tensordot(w, X3, (1, 2)),
    "tensordot, negative axes": lambda w: np.tensordot(X3, w, ([-1], [-1])),
    "linalg.tensordot": lambda w: np.linalg.tensordot(X3, w, axes=([-1], [-1])),
    "einsum": lambda w: np.einsum("kj,bij->kbi", w, X3),
    "einsum, implicit": lambda w: np.einsum("ij,kj", X, w),
    "einsum, ellipsis": lambda w: np.einsum("...j,kj->...k", X3, w, optimize=True),
    "einsum, implicit ellipsis": lambda w: np.einsum("...j,kj", X3, w),
}
BACKWARD = {
    "matmul operator": lambda w: D @ w,
    "operator matmul": lambda w: w.T @ D.T,
    "dot": lambda w: np.dot(D, w),
    "inner": lambda w: np.inner(D, w.T),
    "matmul": lambda w: np.matmul(w.T, D[0]),
    "tensordot": lambda w: np.tensordot(w, D, (0, 1)),
    "einsum": lambda w: np.einsum("kj,ik->ji", w, D),
}
if hasattr(np, "matvec"):  # from NumPy 2.2 on
    FORWARD["matvec"] = lambda w: np.matvec(w, X3)
    BACKWARD["vecmat"] = lambda w: np.vecmat(D, w)


@pytest.mark.parametrize("make", [lambda: analog(is_perfect=True), inference])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_products_go_through_the_tile(make, way):
    for name, product in {"forward": FORWARD, "backward": BACKWARD}[way].items():
        tile = make()
        got, exact = product(tile), product(W)
        assert got.shape == exact.shape, name
        # sums of four products of float32
        np.testing.assert_allclose(got, exact, atol=1e-6, err_msg=name)
        other = {"forward": "backward", "backward": "forward"}[way]
        assert tile.clocks[way] > 0 and tile.clocks[other] == 0, name


@pytest.mark.parametrize("name", FORWARD)
def test_products_have_the_noise_of_the_tile(name):
    tile = analog(out_noise=0.1, inp_res=0, out_res=0)
    assert abs(FORWARD[name](tile) - FORWARD[name](W)).max() > 0.01  # six draws or more of 0.1


def test_a_product_is_that_of_forward():
    assert_same_bits(np.dot(X, analog().T), analog().forward(X))
    assert_same_bits(np.einsum("ij,kj->ik", X, analog()), analog().forward(X))
    assert_same_bits(np.inner(D, analog().T), analog().backward(D))


def test_vdot_of_vectors():
    tile = rk.AnalogTile((1, 4), rk.Ideal(), forward=rk.IOParameters(is_perfect=True))
    tile.set_weights(W[:1])
    assert abs(float(np.vdot(X[0], tile)) - float(np.vdot(X[0], W[0]))) < 1e-6
    assert abs(float(np.vdot(tile.T, X[0])) - float(np.vdot(X[0], W[0]))) < 1e-6


@pytest.mark.parametrize("make", [analog, inference])
def test_reading_gives_the_weights(make):
    tile = make()
    for view, w in ((tile, W), (tile.T, W.T)):
        assert np.shape(view) == view.shape == w.shape
        assert np.size(view) == view.size == np.ndim(view) * 6 == view.ndim * 6
        assert np.size(view, 0) == len(w)
        for read in (np.asarray, np.array, np.copy, np.ascontiguousarray):
            assert_same_bits(np.ascontiguousarray(read(view)), np.ascontiguousarray(w))
        assert np.array_equal(view, w) and np.allclose(w, view) and np.isclose(view, w).all()
        assert np.equal(view, w).all() and (w == view).all() and not np.less(view, w).any()
        assert np.array_str(view) == np.array_str(w) and np.array_repr(view) == np.array_repr(w)
        assert np.result_type(view, np.float64) == np.float64 and np.isrealobj(view)
    assert not any(tile.clocks[way] for way in ("forward", "backward"))


REFUSED = {
    "add": lambda tile: np.add(tile, 1),
    "operator": lambda tile: X[:3] * tile,
    "reduce": lambda tile: np.add.reduce(tile),
    "mean": np.mean,
    "concatenate": lambda tile: np.concatenate([tile, tile]),
    "zeros_like": np.zeros_like,
    "norm": np.linalg.norm,
    "two tiles": lambda tile: np.dot(tile, tile.T),
    "tile @ tile": lambda tile: tile @ tile.T,
    "full contraction": lambda tile: np.tensordot(tile, W),
    "vdot of matrices": lambda tile: np.vdot(tile, W),
    "einsum of one": lambda tile: np.einsum("ij->i", tile),
    "einsum of three": lambda tile: np.einsum("ij,kj,kl", X, tile, D),
    "einsum without a sum": lambda tile: np.einsum("ij,ij->ij", W, tile),
    "einsum that sums more": lambda tile: np.einsum("ij,kj->k", X, tile),
    "matmul out": lambda tile: np.matmul(X, tile.T, out=np.empty((5, 3), "f4")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused(name):
    tile = analog()
    with pytest.raises(rk.errors.DTypeError, match=r"np\.asarray\(tile\)") as caught:
        REFUSED[name](tile)
    assert isinstance(caught.value, TypeError)
    assert not any(tile.clocks.values())


def test_numbers_are_no_operands():
    for product in (np.dot, np.matmul, operator.matmul, np.inner):
        with pytest.raises(rk.errors.ShapeError, match="scalar"):
            product(analog(), np.float32(2))
