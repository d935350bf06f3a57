"""Summaries: true facts, 80 columns, nothing drawn, nothing changed."""

import html.parser
import json

import numpy as np
import pytest

import rpukit as rk
from rpukit.errors import DTypeError, NonFiniteError, ParameterError
from rpukit.summaries import histogram_of

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(0, 0.1, (5, 300)).astype(np.float32)


def training():
    b = rk.tiled.Builder("a_line_with_a_name_that_is_longer_than_others")
    x, y = b.input("x", (4, 3)), b.input("y", (4, 2))
    w = b.parameter("w", np.zeros((3, 2), np.float32))
    loss = b.apply("MSELoss", b.apply("Gemm", x, w), y)
    return b.training(loss, rk.tiled.SGD(lr=0.1))


def plan():
    return rk.tiled.plan(training(), rk.tiled.siracusa_l3())


def trainer():
    own = training()
    return rk.tiled.plan(own, rk.tiled.siracusa_l2()).trainer(own)


def tile(cell, **options):
    return rk.AnalogTile((5, 300), cell, seed=1, **options).set_weights(WEIGHT)


def inference(**options):
    return rk.InferenceTile((5, 300), seed=1, **options).set_weights(WEIGHT)


MAKERS = {
    "ideal": lambda: tile(rk.Ideal()),
    "pulsed": lambda: tile(rk.SoftBounds()),
    "procedural": lambda: tile(rk.SoftBounds(), storage="procedural"),
    "float64": lambda: rk.AnalogTile((2, 3), rk.ExpStep(), seed=1, dtype="float64"),
    "vector": lambda: tile(rk.Vector(devices=(rk.SoftBounds(), rk.ConstantStep(dw_min=0.1)))),
    "transfer": lambda: tile(rk.ChoppedTransfer()),
    "mixed": lambda: tile(rk.MixedPrecision()),
    "array": lambda: tile(rk.OneSided()).devices[1],
    "inference": inference,
    "programmed": lambda: inference(compensation="global").program(),
    "read": lambda: inference().program().drift_to(1e7),
    "mapped": lambda: rk.inference.map_matrix((30, 50), max_tile=(16, 16)).program(),
    "circuit": lambda: rk.Circuit(rk.circuits.hmm(12, 16, 30)),
    "leaf": lambda: rk.Circuit(rk.circuits.inputs(0, rk.circuits.Bernoulli(), 2)),
    "plan": plan,
    "trainer": trainer,
}
TAGS = ("<td", "<th", "<tr", "<table", "<div")


class Balanced(html.parser.HTMLParser):
    """Fails on a tag that is closed in the wrong order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def state_of(thing):
    """All that an object is, as text; a plan never changes."""
    if isinstance(thing, rk.tiled.Plan):
        return thing.to_json()
    if hasattr(thing, "context"):
        return repr((thing.context.clocks, {n: a.tobytes() for n, a in thing.arrays().items()}))
    if not hasattr(thing, "state"):
        return repr({k: v.tobytes() for k, v in thing.parameters(everything=True).items()})
    state = thing.state()
    arrays = {name: a.tobytes() for name, a in state["arrays"].items()}
    now = getattr(thing, "_now", None)
    return repr((state["header"], arrays, now))


@pytest.mark.parametrize("name", MAKERS)
def test_prints_in_80_columns_and_changes_nothing(name):
    thing = MAKERS[name]()
    before = state_of(thing)
    found = rk.summary(thing)
    assert state_of(thing) == before
    assert found == rk.summary(thing)
    assert found.kind == type(thing).__name__
    lines = str(found).splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80
    again = json.loads(json.dumps(found.as_dict()))
    assert again == found.as_dict()
    page = thing._repr_html_()
    assert page == found._repr_html_()
    reader = Balanced()
    reader.feed(page)
    assert not reader.open
    assert all(part in page for part in TAGS)


def test_tile_facts():
    cell = rk.Vector(devices=(rk.ConstantStep(dw_min=0.01), rk.ConstantStep(dw_min=0.02)))
    made = rk.AnalogTile((2, 3), cell, seed=1, count_pulses=True)
    made.update(np.ones((4, 3), np.float32), np.ones((4, 2), np.float32), lr=0.1)
    made.forward(np.ones((5, 3), np.float32))
    found = rk.summary(made, energy_per_pulse=2.0)
    assert made.n_pulses > 0
    assert found["pulses"] == made.n_pulses
    assert found["energy"] == 2.0 * made.n_pulses
    assert found["devices"] == 12
    assert found["states"] == [device.cell.n_states for device in made.devices]
    assert found["memory"] == made.nbytes
    assert found["samples"] == {"forward": 5, "backward": 0, "update": 4}
    assert found["macs_per_sample"] == 6
    assert found["shape"] == [2, 3]
    assert sum(found["weights"]["counts"]) == 6


def test_circuit_facts():
    pc = rk.Circuit(rk.circuits.hmm(8, 4, 5))
    pc.accumulate(np.zeros((7, 8), np.int64))
    found = rk.summary(pc)
    assert found["edges"] == found["macs_per_sample"] == pc.n_edges
    assert found["parameters"] == pc.n_parameters
    assert found["samples"] == 7
    assert sum(found["nodes"].values()) >= pc.layout.n_row


def test_inference_facts():
    made = inference()
    assert rk.summary(made)["devices"] == 0
    made.program()
    assert rk.summary(made)["weights_are"] == "digital"  # reading would make the weights
    made.drift_to(100.0)
    found = rk.summary(made)
    assert found["devices"] == made.conductances.size
    assert found["time"] == 100.0
    assert found["weights"]["low"] == np.asarray(made).min()


def test_trainer_counts_products():
    made = trainer()
    made.step((np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)))
    found = rk.summary(made)
    assert found["steps"] == 1
    assert found["macs_per_step"] % (4 * 3 * 2) == 0
    assert found["macs_per_step"] >= 2 * 4 * 3 * 2  # the product, and the gradient of w


def test_histogram_counts_as_numpy_does():
    values = RNG.normal(size=(100, 80)).astype(np.float32)
    found = histogram_of(values)
    counts, _ = np.histogram(values.astype(np.float64), bins=32)
    # A value on an edge may count on either side of it in NumPy, which rounds in another order.
    assert np.abs(np.array(found.counts) - counts).max() <= 1
    assert sum(found.counts) == found.n_counted == found.n_total == 8000
    assert (found.low, found.high) == (values.min(), values.max())
    np.testing.assert_allclose(found.mean, values.mean(), atol=1e-5 * found.high)
    np.testing.assert_allclose(found.std, values.std(), rtol=1e-4)


def test_histogram_of_many_equal_and_bad_values():
    many = np.arange(3 << 20, dtype=np.float32)
    found = histogram_of(many)
    assert found.n_counted <= 1 << 20
    assert found.n_total == many.size
    assert (found.low, found.high) == (0, many[-1])
    assert max(found.counts) - min(found.counts) <= 1
    assert histogram_of(np.full(5, 2.5)).counts == (5,)
    bad = histogram_of(np.array([1.0, np.nan, 2.0, np.inf]))
    assert (bad.low, bad.high, bad.n_bad, sum(bad.counts)) == (1, 2, 2, 2)
    assert histogram_of(np.array([np.nan])).n_counted == 0
    largest = np.finfo(np.float64).max
    assert histogram_of(np.array([-1e308, 1e308])).counts[::31] == (1, 1)
    assert histogram_of(np.array([5e-324, -largest])).n_bad == 0


def test_waiting_error_stays():
    """On a GPU, errors come later; a summary names one and leaves it."""
    with rk.testing.on_cpu():
        made = rk.AnalogTile((2, 3), rk.Ideal(), seed=1)
        made.forward(np.full((1, 3), np.nan, np.float32))
        assert rk.summary(made)["error"]
        with pytest.raises(NonFiniteError):
            rk.check()
        assert "error" not in rk.summary(made).as_dict()


def test_names_are_escaped():
    fact = rk.Summary("<b>", "a < b", (rk.summaries.Fact("<i>", "&", 1),))
    assert "<b>" not in fact._repr_html_()
    assert "&lt;i&gt;" in fact._repr_html_()


def test_refusals():
    with pytest.raises(DTypeError, match=r"got ndarray.*need a tile"):
        rk.summary(np.zeros(3))
    with pytest.raises(ParameterError, match="counts no pulses"):
        rk.summary(inference(), energy_per_pulse=1.0)
    with pytest.raises(ParameterError, match=r"energy_per_pulse: got -1"):
        rk.summary(tile(rk.Ideal()), energy_per_pulse=-1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["pulsed", "vector", "inference", "circuit"])
def test_same_on_a_gpu(name):
    made = MAKERS[name]()
    here, there = rk.summary(made).as_dict(), rk.summary(made.to("gpu")).as_dict()
    here.pop("memory")
    there.pop("memory")
    assert here == there
