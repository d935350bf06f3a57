"""The random streams: Random123's known answers, coordinates, and a battery of statistical tests.

The seeds are fixed, so a test passes always or never. A p-value of the battery has to lie above
1e-5: of the few hundred that are taken, the smallest is about 1/300 if the generator is good.
"""

import numba as nb
import numpy as np
import pytest
from scipy import stats

import rpukit as rk
from rpukit._exact import philox as _philox
from rpukit._kernels import Kernel
from rpukit.errors import ParameterError
from rpukit.random import Op, Stream, philox4x32
from rpukit.testing import on_cpu

FULL = 0xFFFFFFFF
P_MIN = 1e-5

# Random123's known answers for Philox4x32-10 (kat_vectors): counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((FULL,) * 4, (FULL,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers_in_python(counter, key, words):
    assert philox4x32(counter, key) == words


@nb.njit(nogil=True)
def philox_words(c, k):
    return _philox.philox(c[0], c[1], c[2], c[3], k[0], k[1])


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers_in_numba(counter, key, words):
    assert philox_words(np.array(counter, np.uint32), np.array(key, np.uint32)) == words


PROBE = """
#include "rk_philox.cuh"
extern "C" __global__ void probe(const u32 *c, const u32 *k, u32 *out) {
    uint4 b = rk_philox(make_uint4(c[0], c[1], c[2], c[3]), make_uint2(k[0], k[1]));
    out[0] = b.x;
    out[1] = b.y;
    out[2] = b.z;
    out[3] = b.w;
}
"""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers_in_cuda(counter, key, words, tmp_path):
    path = tmp_path / "probe.cu"
    path.write_text(PROBE)
    out = np.zeros(4, np.uint32)
    with on_cpu():
        args = (np.array(counter, np.uint32), np.array(key, np.uint32), out)
        Kernel("probe", path=path).launch((1,), (1,), args)
    assert tuple(out.tolist()) == words


# ---- coordinates -----------------------------------------------------------------------------


@nb.njit(nogil=True)
def walk(key0, key1, op, index, sample, draw, out):
    for i in range(out.size):
        out[i] = _philox.word(key0[i], key1[i], op[i], index[i], sample[i], draw[i])


def words(stream, n=None, *, op=Op.FILL, index=0, sample=0, draw=0):
    """Words at coordinates; each may be an array. ``stream`` may be a list of streams."""
    streams = stream if isinstance(stream, list) else [stream]
    key0 = np.array([s.key0 for s in streams], np.uint32)
    key1 = np.array([s.key1 for s in streams], np.uint32)
    place = [np.asarray(op, np.uint32), np.asarray(index, np.uint64)]
    place += [np.asarray(sample, np.uint64), np.asarray(draw, np.uint32)]
    arrays = np.broadcast_arrays(key0, key1, *place)
    out = np.empty(arrays[0].size, np.uint32)
    walk(*(a.reshape(-1).copy() for a in arrays), out)
    return out if n is None else out[:n]


def test_layout_of_the_counter():
    """Every bit of every coordinate goes where the documentation says, up to the last."""
    stream = Stream(0x01234567, 0x89ABCDEF)
    last = (1 << 48) - 1
    for op, index, sample, draw in [
        (0, 0, 0, 0),
        (0xFFFF, last, last, 0xFFFF),
        (7, 0x1234_5678_9ABC, 0xFEDC_BA98_7654, 0x4321),
    ]:
        counter = (
            index & FULL,
            sample & FULL,
            (sample >> 32) | (op << 16),
            (draw >> 2) | (index >> 32 << 16),
        )
        want = philox4x32(counter, (stream.key0, stream.key1))[draw & 3]
        assert words(stream, op=op, index=index, sample=sample, draw=draw)[0] == want


def test_no_two_coordinates_share_a_word():
    """Around the places where a field of the counter begins or ends; few of 2^32 words agree."""
    near = [0, 1, 2, 0xFFFE, 0xFFFF]
    far = [*near, 0x10000, FULL, FULL + 1, 1 << 47, (1 << 48) - 1]
    grid = np.meshgrid(near, far, far, [0, 1, 3, 4, 0xFFFF], indexing="ij")
    op, index, sample, draw = (g.reshape(-1) for g in grid)
    found = words(Stream.from_seed(0), op=op, index=index, sample=sample, draw=draw)
    pairs = found.size * (found.size - 1) / 2
    assert found.size - np.unique(found).size <= 3 + 3 * pairs / 2**32


# ---- Stream ------------------------------------------------------------------------------------


def test_stream_from_seed_is_seed_sequence():
    for seed in (0, 1, 2**40, 2**200):
        key = np.random.SeedSequence(seed).generate_state(2)
        assert (Stream.from_seed(seed).key0, Stream.from_seed(seed).key1) == tuple(key.tolist())
    stream = Stream(1, 2)
    assert Stream.from_seed(stream) is stream
    assert Stream.from_seed(np.int64(5)) == Stream.from_seed(5)


def test_child_is_two_words_at_a_place_of_its_own():
    stream = Stream.from_seed(3)
    index = 0xABCD_1234_5678
    first, second, *_ = philox4x32(
        (index & FULL, 0, Op.CHILD << 16, index >> 32 << 16), (stream.key0, stream.key1)
    )
    assert stream.child(index) == Stream(first, second)
    op = int(Op.CHILD)
    assert words(stream, op=op, index=index)[0] == first
    assert words(stream, op=op, index=index, draw=1)[0] == second


def test_children_differ():
    stream = Stream.from_seed(0)
    family = [stream, *(stream.child(i) for i in range(2000))]
    family += [s.child(i) for s in family[1:20] for i in range(50)]
    assert len(set(family)) == len(family)
    assert len({hash(s) for s in family}) > len(family) - 10


def test_stream_is_a_value():
    stream = Stream.from_seed(1)
    with pytest.raises(AttributeError):
        stream.key0 = 5
    assert stream == Stream(stream.key0, stream.key1)
    assert {stream: 1}[Stream.from_seed(1)] == 1


@pytest.mark.parametrize("seed", [-1, 0.5, "7", True, None])
def test_wrong_seeds(seed):
    with pytest.raises(ParameterError, match="seed"):
        Stream.from_seed(seed)


def test_wrong_keys_and_children():
    with pytest.raises(ParameterError, match="key0"):
        Stream(1 << 32, 0)
    with pytest.raises(ParameterError, match="key1"):
        Stream(0, -1)
    for index in (-1, 1 << 48, 0.5):
        with pytest.raises(ParameterError, match="index"):
            Stream(0, 0).child(index)


def test_op_tags_fit_their_field():
    assert len({int(op) for op in Op}) == len(Op)
    assert all(0 <= op <= 0xFFFF for op in Op)


# ---- the battery -------------------------------------------------------------------------------

N = 1 << 19
SEED = 20_26


def sequences():
    """Sequences along each coordinate: what a bad layout or a weak mixing would correlate."""
    stream = Stream.from_seed(SEED)
    i = np.arange(N)
    yield "index", lambda: words(stream, index=i)
    yield "index beyond 2^32", lambda: words(stream, index=i + (1 << 32) - N // 2)
    yield "sample", lambda: words(stream, sample=i, op=Op.UPDATE_X)
    yield "sample beyond 2^32", lambda: words(stream, sample=i + (1 << 40))
    yield "op and draw", lambda: words(stream, op=i >> 6, draw=i & 63)
    yield "draw and index", lambda: words(stream, draw=i & 0xFFFF, index=i >> 16)
    yield "steps of 4096", lambda: words(stream, index=i << 12)
    yield (
        "keys that count",
        lambda: words([Stream(k, 0) for k in range(1 << 16)], index=i[:8, None]),
    )
    yield "children", lambda: words([stream.child(k) for k in range(1 << 13)], index=i[:64, None])


SEQUENCES = dict(sequences())
each_sequence = pytest.mark.parametrize("name", SEQUENCES)


def check(p, what):
    assert p > P_MIN, f"{what}: p = {p}"


@each_sequence
def test_equidistribution(name):
    """Chi-square of high, low and middle bytes, and of the parity of every bit."""
    found = SEQUENCES[name]()
    for shift in (24, 12, 0):
        counts = np.bincount((found >> shift) & 255, minlength=256)
        check(stats.chisquare(counts).pvalue, f"byte at {shift}")
    ones = np.array([((found >> bit) & 1).sum() for bit in range(32)])
    z = (ones - found.size / 2) / np.sqrt(found.size / 4)
    check(stats.chi2.sf((z**2).sum(), 32), "frequencies of the bits")


@each_sequence
def test_neighbours_are_independent(name):
    """Serial pairs of 6 bits, autocorrelation up to lag 64, runs, and bits that flip."""
    found = SEQUENCES[name]()
    cells = (found[:-1:2] >> 26) * 64 + (found[1::2] >> 26)
    check(stats.chisquare(np.bincount(cells, minlength=4096)).pvalue, "pairs")
    u = found / 2**32 - 0.5
    spectrum = np.fft.rfft(u, 2 * u.size)
    r = np.fft.irfft(np.abs(spectrum) ** 2)[1:65] / (u @ u)
    check(stats.chi2.sf((r**2).sum() * u.size, 64), "autocorrelation")
    above = u > 0
    n_above = above.sum()
    n_below = u.size - n_above
    mean = 1 + 2 * n_above * n_below / u.size
    spread = np.sqrt((mean - 1) * (mean - 2) / (u.size - 1))
    runs = 1 + np.count_nonzero(above[1:] != above[:-1])
    check(2 * stats.norm.sf(abs(runs - mean) / spread), "runs")
    flips = np.bitwise_count(found[1:] ^ found[:-1])
    expected = stats.binom.pmf(np.arange(33), 32, 0.5) * flips.size
    counts = np.bincount(flips, minlength=33)
    # ends with few expected are joined, as chi-square asks
    group = np.clip(np.arange(33), 6, 26) - 6
    check(
        stats.chisquare(np.bincount(group, counts), np.bincount(group, expected)).pvalue, "flips"
    )


@each_sequence
def test_distributions(name):
    """Kolmogorov-Smirnov for uniforms and normals; moments of the normals."""
    found = SEQUENCES[name]()
    uniform = ((found >> 9) + 0.5) / 2**23
    check(stats.kstest(uniform, "uniform").pvalue, "uniform")
    normal = np.empty(found.size, np.float32)
    to_normal(found, normal)
    check(stats.kstest(normal, "norm").pvalue, "normal")
    moments = [normal.mean(dtype=float), (normal.astype(float) ** 2).mean() - 1]
    moments += [(normal.astype(float) ** 3).mean(), (normal.astype(float) ** 4).mean() - 3]
    spreads = np.sqrt(np.array([1, 2, 15, 96]) / found.size)
    for moment, spread in zip(moments, spreads, strict=True):
        check(2 * stats.norm.sf(abs(moment) / spread), "moment")


@nb.njit(nogil=True)
def to_normal(found, out):
    for i in range(found.size):
        out[i] = _philox.normal(found[i])


@each_sequence
def test_birthday_spacings(name):
    """4096 birthdays among 2^32 days: 4 equal spacings are expected a time (Marsaglia)."""
    found = SEQUENCES[name]()
    groups = np.sort(found[: N // 4096 * 4096].reshape(-1, 4096).astype(np.int64), axis=1)
    spacings = np.sort(np.diff(groups, axis=1), axis=1)
    repeats = (np.diff(spacings, axis=1) == 0).sum()
    expected = groups.shape[0] * 4096.0**3 / (4 * 2.0**32)
    p = 2 * min(stats.poisson.cdf(repeats, expected), stats.poisson.sf(repeats - 1, expected))
    check(p, f"{repeats} equal spacings, {expected} expected")


def neighbours():
    """Pairs of places that differ in one coordinate only: (stream, coordinates) twice."""
    stream = Stream.from_seed(SEED)
    i = np.arange(N)
    base = (stream, {"index": i})
    yield "op", base, (stream, {"index": i, "op": 1})
    yield "sample", base, (stream, {"index": i, "sample": 1})
    yield "sample + 2^32", base, (stream, {"index": i, "sample": 1 << 32})
    yield "draw", base, (stream, {"index": i, "draw": 1})
    yield "block of draws", base, (stream, {"index": i, "draw": 4})
    yield "index + 2^32", base, (stream, {"index": i + (1 << 32)})
    yield "child", base, (stream.child(0), {"index": i})
    yield "sisters", (stream.child(0), {"index": i}), (stream.child(1), {"index": i})
    yield "next seed", base, (Stream.from_seed(SEED + 1), {"index": i})
    yield "one bit of the key", base, (Stream(stream.key0 ^ 1, stream.key1), {"index": i})
    yield "exchanged", (stream, {"index": i, "sample": 3}), (stream, {"index": 3, "sample": i})


NEIGHBOURS = {name: pair for name, *pair in neighbours()}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbouring_coordinates_are_independent(name):
    """Correlation, joint high bits, and the number of equal bits."""
    a, b = (words(stream, **place) for stream, place in NEIGHBOURS[name])
    r = np.corrcoef(a / 2.0**32, b / 2.0**32)[0, 1]
    check(2 * stats.norm.sf(abs(r) * np.sqrt(a.size)), f"{name}: correlation")
    cells = (a >> 26) * 64 + (b >> 26)
    check(stats.chisquare(np.bincount(cells, minlength=4096)).pvalue, f"{name}: joint")
    equal = 32 * a.size - int(np.bitwise_count(a ^ b).sum())
    z = (equal - 16 * a.size) / np.sqrt(8 * a.size)
    check(2 * stats.norm.sf(abs(z)), f"{name}: equal bits")


def test_the_battery_can_fail():
    """A generator with one weak bit in a thousand words, and one with short memory, are caught."""
    good = SEQUENCES["index"]()
    weak = good.copy()
    weak[::50] |= 1 << 31
    counts = np.bincount(weak >> 24, minlength=256)
    assert stats.chisquare(counts).pvalue < P_MIN
    memory = good.copy()
    memory[1::2] = np.where(np.arange(N // 2) % 40 == 0, memory[::2], memory[1::2])
    cells = (memory[:-1:2] >> 26) * 64 + (memory[1::2] >> 26)
    assert stats.chisquare(np.bincount(cells, minlength=4096)).pvalue < P_MIN


def test_random_fill_walks_the_index():
    filled = rk.elementwise.random_fill(Stream.from_seed(SEED), 1000, "bits")
    assert (filled == SEQUENCES["index"]()[:1000]).all()
