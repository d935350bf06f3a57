"""The CUDA kernels of circuits against their mirrors, bit for bit; errors of devices.

One run of everything that a circuit does launches leaf_table, leaf_forward, product_forward,
sum_stage, sum_forward, sum_lift, sum_backward, product_backward, flow_steps, sum_flow, leaf_flow,
sum_maximise, leaf_maximise, leaf_posterior, largest_forward, choose_down, mark_products and
leaf_choose. What the mirrors compute is compared with independent formulas in the other files.
"""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit._kernels import tune
from rpukit.circuits._mirror import layers
from rpukit.circuits.compiled.layout import SumLayer
from rpukit.circuits.learning.cuda_graph import kept_by_its_arrays
from rpukit.circuits.ops import counts
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.ops import small_batch as _chains
from rpukit.circuits.ops import sum_launch as _mixing
from rpukit.circuits.queries.passes import Propagation, both_ways
from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases import CASES
from tests.golden.cases.circuits import CIRCUITS, of


@pytest.mark.sweep
@pytest.mark.parametrize("name", CIRCUITS)
def test_any_order_of_threads_gives_the_bits_of_the_mirrors(name, order):
    assert f"float32-{name}" in {case.name for case in CASES["sum_flow"]}
    expected = of(name, "float32", "cpu", 0)
    with on_cpu(order):
        got = of(name, "float32", "cpu", 10 + order)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


def uneven():
    """States in two parts that nothing joins; symbols 0 and 1 exclude one each."""
    odd = np.arange(70) % 2
    transition = np.where(odd[:, None] == odd, 0.75 ** np.arange(70), 0)
    emission = np.where(np.arange(4) % 2 == odd[:, None], 2.0**-100, 0.5)
    emission[odd == 0, 0] = 2.0**-120
    pc = rk.Circuit(circuits.hmm(3, 70, 4, transition=transition / transition.sum(1)[:, None]))
    pc._core.parameters.rows.parameters[:] = emission.reshape(-1)
    pc._core.parameters.refresh_all()
    x = np.arange(51).reshape(17, 3) // 2 % 4
    x[2] = [0, 1, 1]
    return pc, x


@pytest.mark.parametrize("n", [1, 3, 17])
def test_any_batch_gives_the_bits_of_the_mirrors(n):
    """Weights with zeros and values far apart: sums that underflow, steps that are wide."""
    states = []
    for emulated in (False, True):
        pc, x = uneven()
        with on_cpu() if emulated else np.errstate():
            pc.accumulate(x[:n])
            pc.accumulate(x[2:3])
            states.append([pc.log_likelihood(x[:n]), *pc.state()["arrays"].values()])
        assert np.isfinite(states[-1][0]).all()
    for a, b in zip(*states, strict=True):
        assert_same_bits(a, b)


MANY = [
    (circuits.hmm(3, 132, 9), 37),
    (circuits.hmm(3, 70, 9), 130),
    (circuits.pd((2, 3), 4, circuits.Categorical(n_values=9)), 130),  # products in several sums
    (circuits.hmm(2, 34, 300), 150),  # leaves in parts
]


@pytest.mark.sweep
@pytest.mark.parametrize(("root", "n"), MANY)
def test_blocks_of_many_samples_give_the_bits_of_the_mirrors(root, n):
    """More samples than a block takes; weights read one by one, and four at a time."""
    held = []
    for emulated in (False, True):
        pc = rk.Circuit(root, seed=1)
        values = int(pc._core.parameters.rows.support.max())
        x = np.random.default_rng(n).integers(0, values, (n, pc.n_variables))
        with on_cpu(7) if emulated else np.errstate():
            held.append([pc.accumulate(x), pc.accumulate(x), *pc.state()["arrays"].values()])
    for a, b in zip(*held, strict=True):
        assert_same_bits(a, b)


SHAPES = [
    *_mixing._TILES,
    _mixing._MANY_BLOCKS,
    _mixing._SHORT,
    _mixing.Mixing(64, 4, 64, 8, 8),  # for elements of many rows
    _mixing.Mixing(64, 8, 32, 8, 4, stages=2),
    _mixing.Mixing(8, 8, 4),
    _mixing.Mixing(32, 1, 2),
]


def of_shape(shape, monkeypatch, device="cpu"):
    """Two segments of children, the last one short; more samples than the smallest tiles take."""
    x = np.random.default_rng(3).integers(0, 5, (21, 2))
    pc = rk.Circuit(circuits.hmm(2, 68, 5), seed=1, device=device)
    if shape:
        number = SHAPES.index(shape) % len(_mixing._GATHERINGS)
        monkeypatch.setattr(_mixing, "_GATHERINGS", _mixing._GATHERINGS[number : number + 1])
        monkeypatch.setattr(_mixing, "mixing", lambda *_: shape)
    x = x if device == "cpu" else pytest.importorskip("cupy").asarray(x)
    return [pc.accumulate(x), *pc.state()["arrays"].values()]


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_shapes_of_blocks_have_the_same_bits(shape, monkeypatch):
    expected = of_shape(None, monkeypatch)
    with on_cpu(7):
        got = of_shape(shape, monkeypatch)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_shapes_of_blocks_have_the_same_bits_on_a_gpu(shape, monkeypatch):
    expected = of_shape(None, monkeypatch)
    for a, b in zip(of_shape(shape, monkeypatch, "gpu"), expected, strict=True):
        assert_same_bits(a, b)


CHAINS = [
    _chains.Chained(_mixing.Mixing(8, 8, 2)),
    _chains.Chained(_mixing.Mixing(16, 2, 4)),
    _chains.Chained(_mixing.Mixing(8, 16, 8), together=False),
]
ALONE = [_chains.Chained(_mixing.Mixing(n, 1, 1), alone=True) for n in (32, 64)]


def of_chain(how, monkeypatch, device="cpu"):
    """By values_up and flows_down: tied layers, more parts than blocks, a last segment short."""
    x = np.random.default_rng(3).integers(0, 5, (7, 5))
    pc = rk.Circuit(circuits.hmm(5, 132, 5), seed=1, device=device)
    if how:
        monkeypatch.setattr(_chains, "_choose", lambda *_: how)
    x = x if device == "cpu" else pytest.importorskip("cupy").asarray(x)
    return [pc.accumulate(x), pc.accumulate(x), *pc.state()["arrays"].values()]


def of_small_layers(how, monkeypatch, device="cpu", dtype="float32"):
    """Layers that a block has alone; flows are scaled between, and some evidence is missing."""
    x = np.random.default_rng(3).integers(0, 5, (5, 19))
    pc = rk.Circuit(circuits.hmm(19, how.shape.outputs - 3, 5), seed=1, device=device, dtype=dtype)
    monkeypatch.setattr(_chains, "_choose", lambda *_: how)
    x = pc._core.parameters.on_device(x)
    missing = pc._core.parameters.on_device(np.random.default_rng(4).random(x.shape) < 0.2)
    found = [pc.accumulate(x, missing=missing), *pc.flows(x).values()]
    return [*found, *pc.state()["arrays"].values()]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ALONE, ids=lambda how: how.name)
def test_small_layers_need_no_other_block(how, dtype, monkeypatch, order):
    expected = of_small_layers(how, monkeypatch, dtype=dtype)
    with on_cpu(order):
        got = of_small_layers(how, monkeypatch, dtype=dtype)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ALONE, ids=lambda how: how.name)
def test_small_layers_need_no_other_block_on_a_gpu(how, dtype, monkeypatch):
    expected = of_small_layers(how, monkeypatch, dtype=dtype)
    for a, b in zip(of_small_layers(how, monkeypatch, "gpu", dtype), expected, strict=True):
        assert_same_bits(a, b)


def test_blocks_alone_are_a_choice_where_layers_are_one_tile():
    for n_state, want in ((20, ["blocks of 32"]), (33, ["blocks of 64"]), (65, [])):
        layers = rk.Circuit(circuits.hmm(3, n_state, 5), seed=1).layout.layers
        sums = [y for y in layers if isinstance(y, SumLayer)]
        for kernel in (_chains._VALUES_UP, _chains._FLOWS_DOWN):
            assert [how.name for how in _chains._alone(kernel, sums)] == want
    assert _chains.Chained(_mixing.Mixing(32, 1, 1), alone=True).valid(512)
    assert not _chains.Chained(_mixing.Mixing(32, 1, 1)).valid(512)


@pytest.mark.sweep
@pytest.mark.parametrize("how", CHAINS, ids=lambda how: how.name)
def test_layers_in_one_launch_have_the_same_bits(how, monkeypatch, order):
    expected = of_chain(None, monkeypatch)
    with on_cpu(order):
        got = of_chain(how, monkeypatch)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


def test_the_tuner_picks_among_them(monkeypatch):
    """And finds that all have the same bits."""
    monkeypatch.setenv("RPUKIT_TUNE_VERIFY", "1")
    expected = of_chain(None, monkeypatch)
    with on_cpu(), tune.use_clock(lambda how, run: float(how.name != "chain of 16")):
        got = of_chain(None, monkeypatch)
        entries = {e.kernel: e for e in rk.tuning.report().entries if e.device == "cpu"}
        assert not rk.tuning.report().rejected
    for kernel in ("values_up", "flows_down"):
        assert entries[kernel].variant == "chain of 16"
        assert list(entries[kernel].microseconds) == ["layers", "launches of 16", "chain of 16"]
        assert entries[kernel].verified
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("how", [None, *CHAINS], ids=str)
def test_layers_in_one_launch_have_the_same_bits_on_a_gpu(how, monkeypatch):
    expected = of_chain(None, monkeypatch)
    for a, b in zip(of_chain(how, monkeypatch, "gpu"), expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("kilobytes", [226, 162, 98])
def test_shapes_fit_the_shared_memory_of_any_gpu(kilobytes):
    """Of data centres, older ones, and desktops; a round of segments ends with whole threads."""
    for tile in _mixing._TILES:
        made = tile.fitted(16, np.dtype("float32"), kilobytes * 1024)
        assert made.shared(np.dtype("float32")) <= kilobytes * 1024
        assert made.threads % made.samples == 0
        assert made.lanes <= tile.fitted(16, np.dtype("float32"), 1 << 30).lanes == tile.lanes


@pytest.mark.parametrize("width", [0, 1, 2])
def test_staged_exponentials(width, order):
    """sum_stage: the mirror, a float64 formula; a segment and a sample of impossible values."""
    rng = np.random.default_rng(width)
    values = rng.normal(scale=9, size=(37, 150))
    flows = np.abs(values).astype(np.float32) if width == 0 else None
    values[3], values[:, :64] = -np.inf, -np.inf
    rows = rng.integers(0, 150, (130, max(width, 1))).astype(np.int32)
    if width == 0:
        rows = np.arange(130, dtype=np.int32)[:, None]
    rows[:64, 0], rows[100:, 1:] = np.arange(64), -1
    segments = np.array([0, 64, 128]), np.array([64, 64, 2], np.int32)
    with on_cpu(order):
        given = rows if width else None
        dtype = np.dtype(np.float32)
        w, top = _mixing.sum_stage(segments, given, values, flows, width, dtype)
    inputs = values
    if flows is not None:
        inputs = np.empty_like(values)
        ops.sum_lift(values, flows, inputs, (0, 150))
    mirror_w, mirror_top = np.empty_like(w), np.empty_like(top)
    layers.sum_stage(0, 3, *segments, rows, inputs, mirror_w, mirror_top)
    assert_same_bits(w, mirror_w)
    assert_same_bits(top, mirror_top)
    whole = np.full((37, 192), -np.inf)
    parts = [np.where(rows[:, k] < 0, 0, inputs[:, rows[:, k]]) for k in range(rows.shape[1])]
    whole[:, :130] = sum(part.astype(float) for part in parts)
    largest = whole.reshape(37, 3, 64).max(2)
    with np.errstate(invalid="ignore"):
        formula = np.nan_to_num(np.exp(whole.reshape(37, 3, 64) - largest[..., None]))
    np.testing.assert_allclose(top[:, :37].T, largest, rtol=1e-6)
    assert (largest <= top[:, :37].T).all()  # rounded up to float32
    # Differences of up to 60, also from a rounded maximum, are rounded to float32.
    np.testing.assert_allclose(w[:, :37].T, formula.reshape(37, 192), rtol=2e-5, atol=1e-30)


def test_a_wide_step_is_there():
    """The test above would not see the second way of `sum_flow` without one."""
    pc, x = uneven()
    weights = np.ones((17, 1), np.float32)
    evidence = pc._core.encoder(x, None)
    run = both_ways(pc._core, Propagation(pc._core.parameters), evidence, weights)
    given = (run.lift, run.elements, run.values, run.flows)
    wide = counts.flow_steps(pc._core.parameters.uses, *given)[2]
    assert wide.any()
    assert not wide.all()


@pytest.mark.gpu
def test_arrays_have_to_be_on_the_device():
    pc = rk.Circuit(circuits.mixture(3, 2, circuits.Bernoulli()), device="gpu")
    with pytest.raises(rk.errors.DeviceError, match="x is on cpu"):
        pc.log_likelihood(np.zeros((2, 3), int))
    assert pc.to("cpu").log_likelihood([[0, 1, 0]]).shape == (1,)
    assert_same_bits(pc.log_likelihood([[0, 1, 0]]), pc.to("cpu").log_likelihood([[0, 1, 0]]))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 100, 300])
def test_captured_steps_have_the_bits_of_eager_ones(n):
    """Also with work on another stream, over the end of a block of samples, and after a step."""
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(np.random.default_rng(1).integers(0, 5, (3, n, 4)))
    made = [rk.Circuit(circuits.hmm(4, 33, 5), seed=2, device="gpu") for _ in range(2)]
    with made[0].captured(n) as step, cupy.cuda.Stream(non_blocking=True):
        other = cupy.random.random((512, 512))
        for k in range(3):
            other = other @ other / 256
            assert_same_bits(step(x[k]).copy(), made[1].accumulate(x[k]))
            if k == 1:
                for pc in made:
                    pc.em_step(pseudocount=0.1)
    states = [pc.state() for pc in made]
    assert states[0]["header"] == states[1]["header"]
    for name, array in states[0]["arrays"].items():
        assert_same_bits(array, states[1]["arrays"][name])
    with pytest.raises(rk.errors.DeviceError, match="closed"):
        step(x[0])


@pytest.mark.gpu
def test_what_a_captured_step_made_outlives_it():
    """Results, and tables of the layout that were made for its first launch."""
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(np.random.default_rng(1).integers(0, 5, (300, 4)))
    made = [rk.Circuit(circuits.hmm(4, 33, 5), seed=2, device="gpu") for _ in range(2)]
    with made[0].captured(300) as step:
        found = step(x)
    del step
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    others = [cupy.full(2**k, 255, np.uint8) for k in range(9, 23) for _ in range(8)]
    assert_same_bits(found, made[1].accumulate(x))
    assert_same_bits(made[0].accumulate(x), made[1].accumulate(x))
    for pc in made:
        pc.em_step()
    assert_same_bits(made[0].log_likelihood(x), made[1].log_likelihood(x))
    assert all(bool((a == 255).all()) for a in others)


def test_memory_lives_as_long_as_its_arrays():
    class Pool:
        def malloc(self, size):
            return SimpleNamespace(ptr=size and 4096)

    pool, cuda = Pool(), SimpleNamespace(UnownedMemory=lambda *a: a, MemoryPointer=lambda *a: a)
    malloc = kept_by_its_arrays(pool, cuda, 1)
    (address, size, (kept, _), index), offset = malloc(512)
    assert (address, size, index, offset) == (4096, 512, 1, 0)
    assert kept is pool
    assert malloc(0).ptr == 0


def test_a_captured_step_needs_a_gpu():
    pc = rk.Circuit(circuits.mixture(3, 2, circuits.Bernoulli()))
    with pytest.raises(rk.errors.DeviceError, match="on a GPU"):
        pc.captured(3)
    with pytest.raises(rk.errors.ParameterError, match="batch_size"):
        pc.captured(0)


def test_a_copy_on_a_device_goes_on_alike():
    pc = rk.Circuit(circuits.hmm(4, 3, 5), seed=2)
    x = pc.sample(9)
    pc.accumulate(x)
    other = pc.to("cpu")
    assert other.device == "cpu"
    for one in (pc, other):
        one.em_step()
    assert_same_bits(other.log_likelihood(x), pc.log_likelihood(x))
    assert_same_bits(other.sample(3), pc.sample(3))
