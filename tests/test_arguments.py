"""Checks of arguments: the mechanism, and a slice of the sweep of `tools/fuzz_arguments.py`."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

import rpukit as rk
from rpukit._checks import Checked, Kind, Many, Maybe, OneOf, Real, Whole, held, need_memory, takes
from rpukit.errors import DTypeError, MemoryLimitError, ParameterError
from tools import fuzz_arguments, fuzz_calls


class Way(str, Enum):
    UP = "UP"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(Checked):
    width: float = 1.0
    n: int = 1
    on: bool = False
    way: Way = Way.UP
    several: tuple[float, ...] = ()
    other: float | None = None
    name: str = "a"


def test_fields_are_converted():
    made = Sizes(
        width=np.float32(0.5),
        n=np.array(3),
        on=np.True_,
        way="down",
        several=[1, np.int8(2)],
        other=np.longdouble(0.5),
    )
    want = Sizes(width=0.5, n=3, on=True, way=Way.DOWN, several=(1, 2), other=0.5)
    assert made == want and hash(made) == hash(want)
    assert type(made.width) is float and type(made.n) is int and type(made.other) is float


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": "a"}, "Sizes.width: got 'a', need a number"),
        ({"width": 3.5e38}, "Sizes.width: got 3.5e.38, need a finite number, 0 or of a size"),
        ({"width": 1e-320}, "Sizes.width: got 1e-320"),
        ({"width": 10**400}, "Sizes.width: got 1000"),
        ({"width": np.ma.masked}, "Sizes.width: got masked"),
        ({"n": 2.0}, "Sizes.n: got 2.0, need an integer"),
        ({"n": True}, "Sizes.n: got True"),
        ({"on": 1}, "Sizes.on: got 1, need True or False"),
        ({"way": "dwn"}, "Sizes.way: got 'dwn', need one of UP, DOWN; did you mean 'DOWN'"),
        ({"several": 1.0}, "Sizes.several: got 1.0, need a tuple"),
        ({"several": (1.0, None)}, r"Sizes.several\[1\]: got None"),
        ({"other": "x"}, "Sizes.other: got 'x'"),
        ({"name": b"a"}, "Sizes.name: got b'a', need text"),
        ({"widht": 1.0}, "Sizes has no parameter 'widht'; did you mean 'width'"),
    ],
)
def test_fields_are_refused(values, message):
    with pytest.raises((ParameterError, DTypeError), match=message):
        Sizes(**values)


def test_arguments_are_checked_by_annotation():
    @takes(n=Whole(1), rate=Real(0))
    def call(n: int, rate: float = 0.5, *, cell: rk.SoftBounds | None = None, x: object = None):
        return n, rate, cell, x

    assert call(np.int8(2), rate=np.array(3.0), x="anything") == (2, 3.0, None, "anything")
    for given, message in (
        ({"n": 0}, "n: got 0, need an integer from 1"),
        ({"n": 1, "rate": -1}, "rate: got -1, need a finite number from 0"),
        ({"n": 1, "cell": rk.SoftBounds}, "an object, as SoftBounds()"),
    ):
        with pytest.raises(ParameterError, match=message):
            call(**given)
    with pytest.raises(TypeError, match="missing a required argument"):
        call()


def test_kinds():
    pairs: list[tuple[Kind, object, object]] = [
        (Maybe(Whole(0)), None, None),
        (Many(Whole(0)), range(3), (0, 1, 2)),
        (Many(Real()), np.array([1.0, 2.0]), (1.0, 2.0)),
        (Real(infinite=True), np.inf, np.inf),
    ]
    for kind, given, want in pairs:
        assert kind.take(given, "v") == want
    assert type(Real().take(2**64, "v")) is float
    assert type(Real().take(3, "v")) is int
    for duration in (np.timedelta64(1), np.datetime64(1, "D")):
        with pytest.raises(ParameterError):
            Whole(0).take(duration, "v")
    with pytest.raises(ParameterError, match='need "fast" or "slow"; did you mean \'fast\''):
        OneOf(("fast", "slow")).take("Fst", "v")
    assert held(1e300) == pytest.approx(3.4028235e38)


def test_sizes_are_compared_with_memory():
    with pytest.raises(MemoryLimitError, match="hmm of 7 states needs 64 TiB.*there are 1 GiB"):
        need_memory(1 << 46, "hmm of 7 states", limit=1 << 30)
    for build in (
        lambda: rk.circuits.hmm(4, 2**31, 3),
        lambda: rk.circuits.hmm(2**40, 2, 3),
        lambda: rk.AnalogTile((2**31, 2**31), rk.SoftBounds()),
        lambda: rk.inference.map_matrix((2**31, 2**31)),
        lambda: rk.Circuit(rk.circuits.hmm(4, 2, 3)).sample(2**47),
        lambda: rk.elementwise.random_fill(rk.Stream(1, 2), (2**31, 2**20)),
        lambda: rk.AnalogTile((2**36, 1), rk.SoftBounds()),  # whose weights alone may fit
        lambda: rk.SoftBounds().sample(rk.Stream(1, 2), (2**36, 1)),
    ):
        with pytest.raises(MemoryError):
            build()


def test_numbers_and_lists_at_the_edge_raise_typed_errors():
    blocks = [rk.tiled.Block("a", 0, 2, 16), rk.tiled.Block("b", 1, 3, 16)]
    x, y = np.zeros((4, 3)), np.array([0, 1, 0, 1])
    network = rk.estimators.AnalogClassifier((2,), epochs=1)
    for call, message in (
        (lambda: rk.tiled.pack(blocks, align=10**400), "align: got 1000"),
        (lambda: network.partial_fit(x, y, classes=[[1, 2], [3]]), "need a list of labels"),
        (lambda: network.partial_fit(x, y, classes=[1, "a", None]), "need a list of labels"),
        (lambda: rk.circuits.reblock(rk.circuits.hmm(4, 2, 3), 3), "need a power of two"),
        (lambda: rk.ChoppedTransfer(transfer_every=2**64), "a size up to"),
        (lambda: rk.tiled.fuse(np.ones((1, 1))), "graph: got"),
        (lambda: rk.tiled.fuse_pointwise("x"), "graph: got 'x'"),
    ):
        with pytest.raises((ParameterError, DTypeError), match=message):
            call()
    assert rk.circuits.reblock(rk.circuits.hmm(4, 2, 3), 2, max_padding=2**64)
    power = rk.inference.PowerLaw(a=1e30, b=-1e30, high=25.0)
    np.testing.assert_array_equal(power([0.0, 1.0]), 25.0)
    pc = rk.Circuit(rk.circuits.mixture(3, 2, rk.circuits.Poisson()), dtype="float64")
    pc.scaled_em_step(np.full((4, 3), 1e300))
    assert all(np.isfinite(a).all() for n, a in pc.state()["arrays"].items() if "momenta" in n)


def test_every_public_call_has_arguments():
    """The sweep knows what to call each function and method with; a new one needs an example."""
    world = fuzz_arguments.world()
    some = {name: fuzz_calls.OBJECTS[name] for name in ("soft", "hmm", "inference", "builder")}
    table = [*fuzz_calls.calls(), *fuzz_calls.methods(some, world)]
    assert len(table) > 200


def test_a_slice_of_the_sweep():
    done, found = fuzz_arguments.fuzz(range(600), seed=7, seconds=6, alarm=120)
    assert done
    assert not found, "\n".join(f"# {kind}\n{text}" for kind, (_, text) in found.items())
