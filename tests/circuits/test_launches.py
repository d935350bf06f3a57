"""How passes are launched: again and again, as graphs, in pieces that fit a budget of memory.

Bits may not follow from any of it. Kernels: root_flows, count_samples, sum_maximise.
"""

import numpy as np
import pytest

import rpukit as rk
from rpukit import circuits
from rpukit.circuits.ops import em as steps
from rpukit.circuits.ops import layers as ops
from rpukit.circuits.parameters import LeafRows
from rpukit.testing import assert_same_bits, on_cpu
from tests.golden.cases.circuits import images


def two_roots():
    """Sums of two tied groups, and several kinds of leaves that lie side by side."""
    kinds = [circuits.Categorical(n_values=5)] * 2 + [circuits.Bernoulli(), circuits.Gaussian()]
    low = [circuits.inputs(v, leaf, 36) for v, leaf in enumerate(kinds)]
    left = circuits.sum(circuits.product(*low[:2]), n_nodes=36)
    right = circuits.sum(circuits.product(*low[2:]), n_nodes=36)
    joined = circuits.product(left, right)
    return [circuits.sum(joined, n_nodes=1), circuits.sum(joined, n_nodes=1)]


def learned(made, device="cpu", n_round=2, **options):
    """What steps leave behind whose batches are alike: launches come again."""
    pc = made(device, **options)
    xp = np if device == "cpu" else pytest.importorskip("cupy")
    shape = (4, 8, pc.n_variables)
    x = xp.asarray(np.random.default_rng(0).integers(0, 2, shape).astype(np.float32))
    out = []
    for k in range(n_round):
        out += [
            pc.accumulate(x[0]).copy(),
            pc.accumulate(x[k + 1], weights=xp.ones(8) * (k + 0.5)),
        ]
        out.append(pc.em_step(x[k, :5], step=0.25 * (k + 1), pseudocount=0.5))
    pc.accumulate(x[1])
    mask = xp.arange(pc.n_variables) > 1
    out.append(pc.conditional(x[0], missing=mask))
    if len(pc.layout.root_rows) == 1:
        out += [pc.sample(x=x[0], missing=mask), *pc.most_probable(x[0], missing=mask)]
    return [*out, pc._core.statistics.weight, *pc.state()["arrays"].values()]


def mixed(device, **options):
    return rk.Circuit(two_roots(), seed=1, device=device, **options)


def pixels(device, **options):
    return rk.Circuit(images(), seed=1, device=device, **options)


@pytest.mark.parametrize("made", [mixed, pixels])
def test_launches_that_come_again_have_the_bits_of_the_mirrors(made):
    expected = learned(made)
    with on_cpu():
        got = learned(made)
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(np.asarray(a), np.asarray(b))


@pytest.mark.gpu
@pytest.mark.parametrize("made", [mixed, pixels])
def test_on_a_gpu_too(made):
    for a, b in zip(learned(made, "gpu"), learned(made), strict=True):
        assert_same_bits(a.get() if hasattr(a, "get") else np.asarray(a), np.asarray(b))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [3, 130])
def test_captured_steps_of_em_have_the_bits_of_eager_ones(n):
    """Beside work on another stream, and after counts that were there before."""
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(np.random.default_rng(1).integers(0, 5, (4, n, 4)))
    numbers = {"step": 0.25, "pseudocount": 0.125}
    made = [rk.Circuit(circuits.hmm(4, 33, 5), seed=2, device="gpu") for _ in range(2)]
    for pc in made:
        pc.accumulate(x[3, :2])
    with made[0].captured(n, **numbers) as step, cupy.cuda.Stream(non_blocking=True):
        other = cupy.random.random((512, 512))
        for k in range(3):
            other = other @ other / 256
            assert_same_bits(step(x[k]).copy(), made[1].em_step(x[k], **numbers))
    for name, array in made[0].state()["arrays"].items():
        assert_same_bits(array, made[1].state()["arrays"][name])


@pytest.mark.parametrize("made", [mixed, pixels])
def test_a_budget_is_kept_and_changes_no_bit(made):
    with pytest.raises(rk.errors.PlanError, match="need ") as error:
        made("cpu", budget=1000)
    least = int(str(error.value).rsplit(" ", 1)[1])
    with pytest.raises(rk.errors.PlanError):
        made("cpu", budget=least - 1)
    assert made("cpu", budget=least)._core.memory.samples(learns=True) == 1
    expected = learned(made, n_round=1)  # each sample by itself: their launches come again
    for emulated in (False, True)[: 1 + (made is pixels)]:
        with on_cpu() if emulated else np.errstate():
            for a, b in zip(learned(made, n_round=1, budget=least), expected, strict=True):
                assert_same_bits(np.asarray(a), np.asarray(b))
    with pytest.raises(rk.errors.ParameterError, match="bytes"):
        made("cpu", budget=True)


@pytest.mark.gpu
def test_a_budget_is_kept_on_a_gpu():
    cupy = pytest.importorskip("cupy")
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        pc = rk.Circuit(circuits.hmm(24, 512, 50), device="gpu", budget=60_000_000)
        x = cupy.asarray(np.random.default_rng(1).integers(0, 50, (300, 24)))
        for n in (64, 300, 300, 64):
            pc.em_step(x[:n])
            pc.log_likelihood(x[:n])
        assert pool.total_bytes() < 60_000_000 + x.nbytes
        with pytest.raises(rk.errors.PlanError, match="capture at most"):
            pc.captured(300)


@pytest.mark.parametrize("emulated", [False, True])
def test_roots_and_weights_by_formula(emulated):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((1100, 300))
    values[::3, 260] = -np.inf
    roots, weights = np.array([290, 260, 290], np.int32), rng.random((1100, 3), np.float32)
    flows, out = np.full(values.shape, np.nan, np.float32), np.empty_like(weights)
    held = type("Held", (), {"clock": np.array([5]), "weighed": np.array([0.1])})
    with on_cpu() if emulated else np.errstate():
        ops.root_flows(roots, 260, weights, values, flows, out)
        steps.count_samples(held, out, weights)
    possible = np.where(values[:, roots] > -np.inf, weights, 0)
    expected = np.zeros_like(flows)
    expected[:, 260], expected[:, 290] = possible[:, 1], possible[:, 0] + possible[:, 2]
    assert_same_bits(flows, expected)
    assert_same_bits(out, values[:, roots].astype(np.float32))
    assert held.clock[0] == 1105
    assert held.weighed[0] == np.add.accumulate(np.append(0.1, possible.astype(float)))[-1]


@pytest.mark.parametrize(("most", "order"), [(40, 0), (40, 1), (0, 0)])
def test_tables_are_read_alike_from_shared_memory(most, order):
    """Of `leaf_forward`: values past a table's end, and unknown ones; a tile that is not full."""
    rng, n, n_leaf = np.random.default_rng(6), 70, 45
    sizes = rng.choice([17, 40], n_leaf).astype(np.int32)
    variable = np.sort(rng.integers(0, 5, n_leaf)).astype(np.int32)
    place = np.cumsum(sizes, dtype=np.int64) - sizes
    table = rng.standard_normal(sizes.sum(), np.float32)
    codes = rng.integers(-1, 42, (n, 5)).astype(np.int32)
    kinds, none = np.zeros(n_leaf, np.int32), np.zeros(0, np.float32)
    rows = LeafRows(kinds, variable, place, sizes, *3 * [none], table, none, most)
    found = np.zeros((n, n_leaf + 3))
    with on_cpu(order):
        ops.leaf_forward(rows, codes, np.full((n, 5), np.nan, np.float32), found)
    code = codes[:, variable]
    expected = np.where(code < sizes, table[place + np.clip(code, 0, sizes - 1)], -np.inf)
    assert_same_bits(found[:, :n_leaf], np.where(code < 0, 0, expected).astype(np.float64))
    assert not found[:, n_leaf:].any()


@pytest.mark.sweep
@pytest.mark.parametrize(("k", "n_value", "t", "n"), [(37, 300, 5, 70), (64, 257, 3, 150)])
def test_long_tables_that_leaves_share_are_read_by_parts(k, n_value, t, n, order):
    """Of `leaf_forward`: symbols at the ends of parts, unknown ones, a tile that is not full."""
    rng = np.random.default_rng(n)
    x = rng.integers(0, n_value, (n, t))
    x[0] = [0, 255, 256, n_value - 1, 1][:t]
    missing, found = rng.random(x.shape) < 0.1, []
    for emulated in (False, True):
        with on_cpu(order) if emulated else np.errstate():
            pc = rk.Circuit(circuits.hmm(t, k, n_value), seed=1)
            assert pc._core.parameters.rows.nodes is not None
            values = [pc.log_likelihood(x, missing=missing), pc.accumulate(x, missing=missing)]
            pc.em_step(x, step=0.5)
            found.append([*values, pc.log_likelihood(x), *pc.flows(x).values()])
    for a, b in zip(*found, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("keep_zeros", [False, True])
def test_steps_of_long_tables_have_the_bits_of_the_mirror(keep_zeros):
    """More values than the lanes of a warp ask for at a time, some of them masked."""
    rng, leaf, n = np.random.default_rng(4), circuits.Categorical(n_values=300), 5
    start = rng.random((n, 300), np.float32)
    start[:, ::7] = 0
    chains, totals = rng.random((n, 301), np.float32), rng.random((n, 301))
    chains[1], totals[1] = 0, 0
    made, counts = [], (chains.reshape(-1), totals.reshape(-1))
    for emulated in (False, True):
        p = start.copy()
        with on_cpu() if emulated else np.errstate():
            ops.leaf_maximise(
                leaf._traits(), n, 0.5, 0.25 * keep_zeros, keep_zeros, *counts, p.reshape(-1)
            )
        made.append(p)
    assert_same_bits(*made)
    assert np.array_equal(made[0][1], start[1]) == (not keep_zeros)


def tables_and_numbers(n_variable):
    """Variables that are tables, counts, densities, and the first one both."""
    kinds = (circuits.Categorical(n_values=5), circuits.Poisson(), circuits.Gaussian())
    low = [circuits.inputs(v, kinds[v % 3], 1) for v in range(n_variable)]
    rest = low[1:]
    return circuits.sum(
        circuits.product(low[0], *rest),
        circuits.product(circuits.inputs(0, circuits.Gaussian(), 1), *rest),
        n_nodes=1,
    )


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float64"])
def test_samples_are_read_alike_and_what_is_wrong_is_named(dtype):
    """Of `encode_samples`: its mirror and its source give what checks in NumPy give."""
    pc = rk.Circuit(tables_and_numbers(132), dtype="float32")
    rng = np.random.default_rng(2)
    x, mask = rng.integers(0, 5, (5, 132)).astype(dtype), rng.random((5, 132)) < 0.3
    if x.dtype.kind == "f":
        x[mask & (rng.random(mask.shape) < 0.5)] = np.nan
    known = ~mask & ~np.isnan(x.astype(float))
    table = np.arange(132) % 3 == 0
    number, whole = ~table | (np.arange(132) == 0), np.nan_to_num(x).astype(np.int64)
    bad = {
        "takes 0 to 4": (0, 9),
        "counts": (1, -1),
        "fraction": (3, 0.5),
        "infinity": (2, np.inf),
    }
    for emulated in (False, True):
        with on_cpu() if emulated else np.errstate():
            codes, numbers = pc._core.encoder(x, mask)
            assert_same_bits(codes, np.where(known & table, whole, -1).astype(np.int32))
            assert_same_bits(numbers, np.where(known & number, x, np.nan).astype(np.float32))
            assert_same_bits(
                pc._core.encoder(x, mask[0])[0], pc._core.encoder(x, mask[:1].repeat(5, 0))[0]
            )
            for words, (var, value) in bad.items():
                wrong = np.nan_to_num(x)
                with np.errstate(all="ignore"):
                    wrong[3, var] = np.array(value).astype(dtype)
                if wrong[3, var] == value:
                    with pytest.raises(ValueError, match=words):
                        pc._core.encoder.parts(wrong, None, 2)
            n, read = pc._core.encoder.parts(x, mask, 2)
            for part, *made in read:
                assert_same_bits(made[0], codes[part])
                assert_same_bits(made[1], numbers[part])
            assert (n, part.stop) == (5, 5)


@pytest.mark.gpu
def test_what_is_wrong_in_a_captured_step_is_told_when_asked():
    cupy = pytest.importorskip("cupy")
    pc = rk.Circuit(circuits.hmm(4, 3, 5), seed=2, device="gpu")
    x = cupy.zeros((6, 4), np.int64)
    with pc.captured(6) as step:
        expected = step(x, missing=cupy.arange(4) == 1).copy()
        x[:, 1] = 5
        assert_same_bits(step(x, validate="deferred"), expected)
        with pytest.raises(rk.errors.ParameterError, match="earlier call"):
            step.check()
        step.check()
        with pytest.raises(rk.errors.ParameterError, match="takes 0 to 4"):
            step(x)
