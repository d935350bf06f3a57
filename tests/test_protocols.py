"""What other libraries ask of tiles, streams and circuits: operators, DLPack, seeds, copies."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.sparse.linalg import aslinearoperator, cg, lsqr, svds

import rpukit as rk
from rpukit.circuits.compiled.frames import numbers_of
from rpukit.errors import CopyError, DTypeError, NonFiniteError, ParameterError, ShapeError
from rpukit.testing import assert_same_bits
from tests.foreign import OnlyDLPack

EXACT = rk.IOParameters(is_perfect=True)
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(0, 0.1, (8, 5)).astype(np.float32)


def analog(weight=WEIGHT, **options):
    periphery = {"forward": EXACT, "backward": EXACT, **options}
    return rk.AnalogTile(weight.shape, rk.Ideal(), seed=1, **periphery).set_weights(weight)


def inference(weight=WEIGHT):
    return rk.InferenceTile(weight.shape, forward=EXACT, backward=EXACT).set_weights(weight)


KINDS = {
    "analog": (analog, WEIGHT),
    "inference": (inference, WEIGHT),
    "transposed": (lambda: analog().T, WEIGHT.T),
    "transposed inference": (lambda: inference().T, WEIGHT.T),
}


@pytest.fixture(params=KINDS)
def pair(request):
    """A tile with exact products, and its matrix."""
    make, weight = KINDS[request.param]
    return make(), weight


def test_sizes(pair):
    tile, weight = pair
    assert (tile.shape, tile.ndim, tile.size, len(tile)) == (weight.shape, 2, 40, len(weight))
    assert (np.shape(tile), np.ndim(tile), np.size(tile)) == (weight.shape, 2, 40)
    assert tile.dtype == weight.dtype
    assert tile.device == "cpu"
    np.testing.assert_array_equal(tile.get_weights(), weight)


def test_products_by_scipys_names(pair):
    tile, weight = pair
    n_out, n_in = weight.shape
    # Sums of 5 or 8 products in float32.
    close = {"rtol": 0, "atol": 1e-6}
    for n, product, matrix in ((n_in, "mat", weight), (n_out, "rmat", weight.T)):
        v, columns = RNG.normal(size=n), RNG.normal(size=(n, 3))
        y = getattr(tile, product + "vec")(v)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, matrix @ v, **close)
        assert getattr(tile, product + "vec")(v[:, None]).shape == (len(matrix), 1)
        np.testing.assert_allclose(
            getattr(tile, product + "mat")(columns), matrix @ columns, **close
        )
        with pytest.raises(ShapeError, match=f"need \\({n},\\)"):
            getattr(tile, product + "vec")(np.zeros(n + 1))
        with pytest.raises(ShapeError, match=f"need \\({n}, n_columns\\)"):
            getattr(tile, product + "mat")(v)


def test_solvers():
    """SciPy's solvers run on a tile; exact products, so their own tolerances are what is left."""
    b = RNG.normal(size=8)
    found = lsqr(analog(), b, atol=1e-6, btol=1e-6)[0]
    np.testing.assert_allclose(found, np.linalg.lstsq(WEIGHT, b)[0], rtol=1e-3, atol=1e-4)
    spd = (WEIGHT.T @ WEIGHT + np.eye(5)).astype(np.float32)
    x, info = cg(analog(spd), b[:5], rtol=1e-5)
    assert info == 0
    np.testing.assert_allclose(spd @ x, b[:5], rtol=1e-3, atol=1e-4)
    values = svds(analog(), k=2, return_singular_vectors=False, v0=np.ones(5))
    want = np.linalg.svd(WEIGHT, compute_uv=False)[:2]
    np.testing.assert_allclose(np.sort(values)[::-1], want, rtol=1e-4)


def test_operator_draws_as_forward_does():
    noisy = {"forward": rk.IOParameters(out_noise=0.05), "backward": rk.IOParameters()}
    one, two = analog(**noisy), analog(**noisy)
    x = RNG.uniform(-1, 1, (3, 5)).astype(np.float32)
    rows = one.forward(x)
    operator = aslinearoperator(two)
    np.testing.assert_array_equal(np.array([operator.matvec(row) for row in x]), rows)
    assert one.clocks == two.clocks
    np.testing.assert_array_equal(analog(**noisy).matmat(x.T), rows.T)


def test_rounding_is_checked():
    tile = analog()
    with pytest.raises(DTypeError, match="complex128, need real"):
        tile.matvec(np.ones(5, complex))
    with pytest.raises(DTypeError, match="object"):
        tile.matvec([None] * 5)
    with pytest.raises(NonFiniteError, match=r"1e\+300.*range of float32"):
        tile.matvec([1e300, 0, 0, 0, 0])
    with pytest.raises(NonFiniteError):
        tile.matvec([np.nan, 0, 0, 0, 0])
    assert tile.clocks["forward"] == 0
    wide = rk.AnalogTile((1, 1), rk.Ideal(), forward=EXACT, dtype="float64").set_weights([[1.0]])
    assert wide.matvec([1e300]) == [1e300]


class Asking:
    """Ask a tile for a copy, or for none, as ``np.from_dlpack(copy=)`` does from NumPy 2.1 on."""

    def __init__(self, tile, copy):
        self.tile, self.copy = tile, copy

    def __dlpack__(self, **options):
        return self.tile.__dlpack__(**{**options, "copy": self.copy})

    def __dlpack_device__(self):
        return self.tile.__dlpack_device__()


def test_dlpack_gives_a_copy(pair):
    tile, weight = pair
    assert tile.__dlpack_device__() == (1, 0)
    taken = np.from_dlpack(tile)
    np.testing.assert_array_equal(taken, weight)
    again = np.from_dlpack(Asking(tile, True))
    if again.flags.writeable:  # from NumPy 2.1 on
        again[...] = 7
    np.testing.assert_array_equal(np.from_dlpack(tile), weight)
    with pytest.raises(CopyError, match="as a copy"):
        np.from_dlpack(Asking(tile, False))
    assert issubclass(CopyError, BufferError)
    assert not hasattr(tile, "__cuda_array_interface__")


@pytest.mark.gpu
def test_weights_on_a_gpu():
    cupy = pytest.importorskip("cupy")
    tile = analog().to("gpu")
    assert tile.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(cupy.from_dlpack(tile).get(), WEIGHT)
    shown = tile.__cuda_array_interface__
    assert shown["data"][1]  # read-only
    np.testing.assert_array_equal(cupy.array(tile).get(), WEIGHT)
    y = tile.matvec(cupy.arange(5.0))
    assert isinstance(y, cupy.ndarray)
    np.testing.assert_array_equal(y.get(), analog().matvec(np.arange(5.0)))
    np.testing.assert_array_equal(cupy.from_dlpack(inference().to("gpu")).get(), WEIGHT)


# ---- seeds --------------------------------------------------------------------------------------


def test_seed_sequences():
    sequence = np.random.SeedSequence(7)
    assert rk.Stream.from_seed(sequence) == rk.Stream.from_seed(7)
    assert rk.Stream.from_seed(sequence) == rk.Stream.from_seed(7)  # it was not advanced
    assert rk.Stream.from_seed(np.array(7)) == rk.Stream.from_seed(np.uint8(7))
    children = [rk.Stream.from_seed(child) for child in sequence.spawn(3)]
    assert len({*children, rk.Stream.from_seed(7)}) == 4
    one, two = (rk.AnalogTile((2, 3), rk.SoftBounds(), seed=seed) for seed in (sequence, 7))
    np.testing.assert_array_equal(one.cells["w_max"], two.cells["w_max"])


@pytest.mark.parametrize(
    ("seed", "hint"),
    [
        (np.random.default_rng(1), r"got a Generator.*int\(generator.integers\(2\*\*63\)\)"),
        (np.random.PCG64(1), "got a PCG64.*SeedSequence"),
        (np.random.RandomState(1), r"got a RandomState.*int\(state.randint\(2\*\*31\)\)"),
        ([1, 2], r"give numpy.random.SeedSequence\(seed\)"),
        (None, "got None, need an integer from 0"),
        (True, "got True"),
        (-1, "got -1"),
        (1.5, "got 1.5"),
    ],
)
def test_other_seeds_are_refused(seed, hint):
    with pytest.raises(ParameterError, match=hint):
        rk.Stream.from_seed(seed)


# ---- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda pc: pickle.loads(pickle.dumps(pc))]
)
def test_copies_of_circuits_share_nothing(duplicate):
    x = RNG.integers(0, 4, (50, 6))
    pc = rk.Circuit(rk.circuits.hmm(6, 3, 4), seed=3)
    pc.accumulate(x)
    other = duplicate(pc)
    before = pc.log_likelihood(x)
    np.testing.assert_array_equal(other.log_likelihood(x), before)
    other.accumulate(x[:10])
    other.em_step(x)
    other.sample(4)
    assert (other.log_likelihood(x) != before).any()
    np.testing.assert_array_equal(pc.log_likelihood(x), before)
    header = pc.state()["header"]
    assert (header["n_sample"], header["n_drawn"]) == (50, 0)


# ---- tables of pandas ---------------------------------------------------------------------------


def table():
    return pd.DataFrame(
        {
            "colour": pd.Categorical(["red", "blue", None, "red"], categories=["red", "blue"]),
            "count": pd.array([1, None, 3, 0], dtype="Int64"),
            "flag": pd.array([True, False, None, True], dtype="boolean"),
            "value": np.array([0.5, np.nan, 1.5, -1.0], np.float32),
        },
        index=list("abcd"),
    )


def test_tables_as_numbers():
    frame = table()
    made = numbers_of(frame)
    assert list(made.columns) == list(frame.columns)
    assert list(made.index) == list("abcd")
    nan = np.nan
    want = [[0, 1, 1, 0.5], [1, nan, 0, nan], [nan, 3, nan, 1.5], [0, 0, 1, -1]]
    np.testing.assert_array_equal(made.to_numpy(np.float64), want)
    # Codes are places in the list that is given, not in the column's own.
    turned = numbers_of(frame, {0: ["blue", "red"]})
    np.testing.assert_array_equal(turned["colour"], [1, 0, nan, 1])
    with pytest.raises(ParameterError, match="'blue' is not among the categories"):
        numbers_of(frame, {0: ["red"]})
    with pytest.raises(ParameterError, match="that of the fit had not"):
        numbers_of(frame, {})
    with pytest.raises(DTypeError, match=r"'a' holds .*frame.astype\(\{'a': \"category\"\}\)"):
        numbers_of(pd.DataFrame({"a": ["x", "y"]}))


def test_circuits_read_tables():
    leaves = [
        rk.circuits.inputs(v, leaf, 2)
        for v, leaf in enumerate(
            [
                rk.circuits.Categorical(n_values=2),
                rk.circuits.Categorical(n_values=4),
                rk.circuits.Bernoulli(),
                rk.circuits.Gaussian(),
            ]
        )
    ]
    pc = rk.Circuit(rk.circuits.sum(rk.circuits.product(*leaves), n_nodes=1), seed=1)
    numbers = numbers_of(table()).to_numpy(np.float64)
    np.testing.assert_array_equal(pc.log_likelihood(table()), pc.log_likelihood(numbers))


# ---- arrays of other libraries -----------------------------------------------------------------


def test_circuits_read_dlpack():
    pc = rk.Circuit(rk.circuits.hmm(3, 2, 4), seed=1)
    x, known = RNG.integers(0, 4, (5, 3)), RNG.random((5, 3)) < 0.5
    weights = RNG.integers(1, 3, 5).astype(np.float32)
    assert_same_bits(pc.log_likelihood(OnlyDLPack(x)), pc.log_likelihood(x))
    assert_same_bits(
        pc.log_likelihood(x, missing=OnlyDLPack(known)), pc.log_likelihood(x, missing=known)
    )
    other = pc.to("cpu")
    pc.em_step(OnlyDLPack(x), weights=OnlyDLPack(weights))
    other.em_step(x, weights=weights)
    assert_same_bits(pc.log_likelihood(x), other.log_likelihood(x))
