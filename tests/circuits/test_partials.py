"""Partial statistics: any order of arrival, any cut into workers, the bits of `accumulate`."""

import hashlib
import pickle
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rpukit as rk
from rpukit import circuits
from rpukit.errors import DTypeError, ParameterError, ShapeError, StructureError
from rpukit.testing import assert_same_bits, on_cpu

N = 1400  # five whole blocks, and an open one


def mixed(dtype="float32", seed=1, **how):
    """Tables, tied sums and a Gaussian, with gaps in the data."""
    leaves = [circuits.inputs(v, circuits.Categorical(n_values=4), 3) for v in range(2)]
    leaves.append(circuits.inputs(2, circuits.Gaussian(std=1.5), 3))
    root = circuits.sum(circuits.product(*leaves), n_nodes=1)
    return rk.Circuit(root, dtype=dtype, seed=seed, **how)


def samples(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(0, 4, (n, 2)), rng.normal(size=n)])
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def spread(n=N, seed=5):
    """Weights from 1e-12 to 1e12: sums of blocks depend on their order."""
    return 10.0 ** np.random.default_rng(seed).uniform(-12, 12, n)


def statistics_of(pc):
    """Hash of all that the next step reads."""
    held, digest = pc._core.statistics, hashlib.sha256()
    for array in (held.chains, held.totals, held.leaf_chains, held.leaf_totals, held.weighed):
        digest.update(array.tobytes())
    return digest.hexdigest(), held.n_sample, int(held.clock[0]), held.exponent


X, W = samples(), spread()
DTYPES = ("float32", "float64")


@cache
def whole_of(dtype):
    """A circuit that has seen all samples."""
    pc = mixed(dtype)
    pc.accumulate(X, weights=W)
    return pc


@cache
def blocks_of(dtype):
    """Partial statistics of each block of samples."""
    return [
        mixed(dtype).partials(X[k : k + 256], first_sample=k, weights=W[k : k + 256])
        for k in range(0, N, 256)
    ]


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(6)), st.sampled_from(DTYPES))
def test_any_order_of_arrival(order, dtype):
    pc = mixed(dtype)
    for k in order:
        pc.absorb(blocks_of(dtype)[k])
    assert statistics_of(pc) == statistics_of(whole_of(dtype))


@settings(max_examples=15, deadline=None)
@given(st.sets(st.integers(1, 5)), st.randoms(use_true_random=False))
def test_any_cut_into_workers(edges, random):
    cuts = [0, *(256 * k for k in sorted(edges)), N]
    parts = [mixed().partials(X[a:b], first_sample=a, weights=W[a:b]) for a, b in pairwise(cuts)]
    random.shuffle(parts)
    pc = mixed().absorb(parts)
    assert statistics_of(pc) == statistics_of(whole_of("float32"))


@pytest.mark.parametrize(("n_time", "n"), [(17, 512), (18, 300), (33, 700), (70, 400)])
def test_long_chains(n_time, n):
    """Weights that a sample uses more than 16 times: chains of 4096 steps end within blocks."""
    root = circuits.hmm(n_time, 3, 5)
    x, w = np.random.default_rng(0).integers(0, 5, (n, n_time)), spread(n)
    whole, parts, saved = (rk.Circuit(root, seed=1) for _ in range(3))
    found = whole.accumulate(x, weights=w)
    made = [
        parts.partials(x[k : k + 256], first_sample=k, weights=w[k : k + 256])
        for k in range(0, n, 256)
    ]
    assert_same_bits(np.concatenate([p.log_likelihoods[:, 0] for p in made]), found)
    assert made[0].n_piece == len(parts._core.pieces) > 1
    parts.absorb(made[::-1])
    saved.absorb([rk.circuits.Partials.from_state(p.state()) for p in made])
    assert statistics_of(parts) == statistics_of(saved) == statistics_of(whole)
    for pc in (parts, whole):
        pc.em_step()
    assert_same_bits(parts.log_likelihood(x), whole.log_likelihood(x))


def test_small_passes_of_long_chains():
    """A budget for passes of fewer samples than a block, which end within its pieces."""
    root, x = circuits.hmm(40, 3, 5), np.random.default_rng(0).integers(0, 5, (300, 40))
    whole, small = rk.Circuit(root, seed=1), rk.Circuit(root, seed=1, budget=1_950_000)
    assert small._core.memory.samples(learns=True) < 256
    whole.accumulate(x)
    assert statistics_of(small.absorb(small.partials(x))) == statistics_of(whole)


def test_ends_of_chains():
    ends_of = rk.circuits.partials.ends_of_chains
    assert ends_of([]) == ends_of([0, 1, 16]) == (0, 256)
    assert ends_of([17, 31, 32, 33]) == (0, 125, 128, 133, 241, 249, 256)
    assert len(ends_of([4096])) == 257
    with pytest.raises(ParameterError, match="used 4097 times by a sample"):
        ends_of([4097])
    from rpukit.circuits._mirror import learning, tensor

    own = rk.circuits.partials
    assert (own.BLOCK, own.CHAIN, own.PART) == (learning.BLOCK, learning.CHAIN, tensor.PART)


def test_pieces():
    """A piece holds one end of each chain; the last one's are all at the end of the block."""
    made = rk.circuits.partials.pieces_of
    assert made([]).ends == made([0, 1, 16]).ends == (0, 256)
    assert made([31, 32]).ends == (0, 133, 256)
    assert made([31, 32]).chains == (0, 128, 133, 256)
    assert [made([31, 32]).settled(n) for n in (1, 127, 128, 132, 133, 255, 256)] == [
        0, 0, 1, 1, 1, 1, 2
    ]  # fmt: skip
    for counts in ([17, 31, 32, 33], [48, 31, 20, 100], [4096, 5], range(16, 70)):
        pieces = made(counts)
        for n in counts:
            own = rk.circuits.partials.ends_of_chains([n])[1:]
            held = [sum(a < e <= b for e in own) for a, b in pairwise(pieces.ends)]
            assert max(held) == 1
            assert sum(e > pieces.ends[-2] for e in own) == 1


def test_counts_of_earlier_versions_are_absorbed():
    """They have a row for each sample of a block after which some chain has ended."""
    root = circuits.hmm(40, 3, 5)
    x = np.random.default_rng(0).integers(0, 5, (700, 40))
    whole, pc, then = (rk.Circuit(root, seed=1) for _ in range(3))
    cut = then._core.pieces
    then._core.cut = type(cut)(cut.chains, cut.chains)
    whole.accumulate(x[:600])
    part = then.partials(x[:600])
    assert part.n_piece > pc.partials(x[:3]).n_piece
    assert statistics_of(pc.absorb(part)) == statistics_of(whole)


def test_partials_of_another_number_of_pieces():
    x = np.zeros((300, 40), np.int64)
    pc = rk.Circuit(circuits.hmm(40, 3, 5), seed=1)
    state = pc.partials(x).state()
    state["arrays"] |= {k: state["arrays"][k][:2] for k in ("chains", "leaf_chains")}
    del state["header"]["n_piece"]  # as earlier versions wrote it
    with pytest.raises(ShapeError, match="1 rows a block, need"):
        pc.absorb(rk.circuits.Partials.from_state(state))


def test_another_order_of_addition_would_show():
    """Blocks added in descending order, and cuts elsewhere, give other statistics."""
    held = whole_of("float64")._core.statistics
    chains = [b.leaf_chains[0] for b in blocks_of("float64")[:5]]
    backwards = np.zeros_like(held.leaf_totals)
    for block in chains[::-1]:
        backwards += block
    assert (backwards != held.leaf_totals).any()
    elsewhere = mixed()
    for part in (slice(0, 100), slice(100, N)):  # as if a worker began in a block
        made = mixed().partials(X[part], weights=W[part])
        elsewhere._core.statistics.totals += made.chains.sum(axis=0, dtype=np.float64)
    held = whole_of("float32")._core.statistics
    assert (elsewhere._core.statistics.totals != held.totals + held.chains).any()


@pytest.mark.parametrize("rule", [None, {"temperature": 2.0}, {"exponent": np.inf}])
@pytest.mark.parametrize("method", ["em_step", "scaled_em_step", "gradient_step"])
def test_steps_after_partials(rule, method):
    """Parameters, momenta and log-likelihoods over two steps."""
    if method == "gradient_step" and rule is not None:
        rule = None
    rule = rule and rk.circuits.Rule(**rule)
    one, two = mixed(), mixed()
    for _ in range(2):
        options = {} if rule is None else {"rule": rule}
        found = one.accumulate(X, **options)
        parts = [two.partials(X[k:][:512], first_sample=k, **options) for k in (1024, 512, 0)]
        got = np.concatenate([part.log_likelihoods[:, 0] for part in parts[::-1]])
        assert_same_bits(got, found)
        two.absorb(parts)
        assert statistics_of(one) == statistics_of(two)
        getattr(one, method)()
        getattr(two, method)()
    for name in ("theta", "leaf_parameters"):
        assert_same_bits(two.state()["arrays"][name], one.state()["arrays"][name])


@pytest.mark.sweep
@pytest.mark.parametrize("step", [64, 256, 512])
def test_passes_of_any_length(step, monkeypatch):
    """Of the mirrors and of the kernels, whose launches are replayed."""
    want = statistics_of(whole_of("float32"))  # before the length is another one
    monkeypatch.setattr(rk.circuits.circuit.blocks, "block_step", lambda core: step)
    part = mixed().partials(X, weights=W)
    assert statistics_of(mixed().absorb(part)) == want
    n, few = 300 + step, mixed()
    few.accumulate(X[:n], weights=W[:n])
    with on_cpu():
        pc = mixed()
        parts = [pc.partials(X[:n], weights=W[:n]) for _ in range(3)]
    for part in parts:
        assert statistics_of(mixed().absorb(part)) == statistics_of(few)


def test_accumulating_goes_on_in_the_open_block():
    pc = mixed().absorb(mixed().partials(X[:700], weights=W[:700]))
    pc.accumulate(X[700:], weights=W[700:])
    assert statistics_of(pc) == statistics_of(whole_of("float32"))


def test_they_travel(tmp_path):
    part = mixed().partials(X, weights=W)
    rk.save(tmp_path / "part.npz", part)
    for other in (
        pickle.loads(pickle.dumps(part)),
        rk.load(tmp_path / "part.npz"),
        part.to("cpu"),
    ):
        assert repr(other) == "<Partials of samples 0 to 1399: 6 blocks>"
        assert other.nbytes == part.nbytes
        assert statistics_of(mixed().absorb(other)) == statistics_of(whole_of("float32"))


def test_the_circuit_of_partials_is_not_changed():
    pc = mixed()
    before = pickle.dumps(pc.state())
    pc.partials(X, weights=W)
    assert pickle.dumps(pc.state()) == before


REFUSED = {
    "other parameters": (lambda: mixed(seed=2).partials(X), ParameterError, "other parameters"),
    "other graph": (
        lambda: rk.Circuit(circuits.mixture(3, 2, circuits.Bernoulli())).partials(X[:5] * 0),
        StructureError,
        "another graph",
    ),
    "other type": (lambda: mixed("float64").partials(X), DTypeError, "float64, need float32"),
    "not partials": (lambda: {"chains": 0}, DTypeError, "got str"),
    "twice": (lambda: mixed().partials(X[:512], weights=W[:512]), ParameterError, "counts once"),
    "overlapping": (
        lambda: mixed().partials(X[256:], first_sample=256, weights=W[256:]),
        ParameterError,
        "before sample 512",
    ),
    "other rule": (
        lambda: mixed().partials(X, first_sample=512, rule=rk.circuits.Rule(exponent=2.0)),
        ParameterError,
        "exponent 1 are held, got 2",
    ),
    "behind an open block": (
        lambda: [
            mixed().partials(X[:100], first_sample=512),
            mixed().partials(X[:100], first_sample=768),
        ],
        ParameterError,
        "in the middle of a block",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_unchanged(name):
    make, kind, match = REFUSED[name]
    pc = mixed().absorb(mixed().partials(X[:512], weights=W[:512]))
    before = pickle.dumps(pc.state())
    with pytest.raises(kind, match=match):
        pc.absorb(make())
    assert pickle.dumps(pc.state()) == before


@pytest.mark.parametrize("first", [100, -256, True, 2.5, "0"])
def test_blocks_begin_at_multiples_of_256(first):
    with pytest.raises(ParameterError, match="multiple of 256"):
        mixed().partials(X, first_sample=first)


def test_gaps_are_named():
    pc = mixed()
    pc.absorb(blocks_of("float32")[2])
    for call in (pc.em_step, pc.state, lambda: pc.accumulate(X), pc.gradient_step):
        with pytest.raises(ParameterError, match="samples 0 to 511 are missing"):
            call()
    with pytest.raises(ParameterError, match="waits already"):
        pc.absorb(blocks_of("float32")[2])
    pc.absorb(blocks_of("float32")[:2])
    pc.em_step()


def test_shapes_are_checked():
    part = mixed().partials(X)
    with pytest.raises(ShapeError, match="need 6 rows"):
        circuits.Partials(**{**part._values(), "chains": part.chains[:2]})
    with pytest.raises(ParameterError, match="n_sample"):
        circuits.Partials(**{**part._values(), "n_sample": 0})


def test_pickles_are_small():
    """Of a circuit without counts: its parameters and its graph, and the bits go on."""
    pc = rk.Circuit(circuits.hmm(3, 64, 8), seed=1)
    x = np.random.default_rng(0).integers(0, 8, (50, 3))
    assert len(pickle.dumps(pc)) < 5 * pc.n_parameters + 4000
    other = pickle.loads(pickle.dumps(pc))
    for each in (pc, other):
        each.accumulate(x)
    assert statistics_of(pickle.loads(pickle.dumps(other))) == statistics_of(pc)
