"""program_conductance and drift_conductance: source = mirror bit for bit, both the formula."""

import numpy as np
import pytest

import rpukit as rk
from rpukit import elementwise, inference
from rpukit.inference.conductance import ops
from rpukit.inference.conductance.curves import ClippedLog, Polynomial, PowerLaw, Table, pack
from rpukit.inference.noise import model as noise
from rpukit.inference.training import ops as training
from rpukit.random import Op
from rpukit.testing import assert_same_bits, on_cpu
from tests.inference import noise_formulas

STREAM = rk.Stream.from_seed(3)
OK = np.zeros(1, np.int32)
SHAPES = [(1, 1), (31, 33), (13, 132), (128, 128)]
CONVERTERS = {
    "pair": inference.SinglePair(),
    "pair_offset": inference.SinglePair(g_max=40.0, g_min=3.0),
    "pairs": inference.NPairs(factors=(2.0, 1.0, 0.5)),
    "single": inference.SingleDevice(),
    "tables": inference.CustomPair(
        nodes=(-1, -0.3, 0, 0.6, 1), plus=(2, 0, 0, 11, 25), minus=(24, 9, 0, 1, 0)
    ),
}
MODELS = {
    "pcm": inference.PCMLike(),
    "table": inference.CustomDrift(
        g_nodes=(0, 3, 12, 25), nu_mean=(0.1, 0.06, 0.05, 0.04), nu_std=(0.03, 0.02, 0.01, 0.01)
    ),
    "state_independent": inference.StateIndependent(),
    "hermes_1": inference.Hermes(n_device=1),
    "hermes_2": inference.Hermes(),
    "wan": inference.ReRamWan(),
    "cmo": inference.ReRamCMO(),
}


def weights(shape, seed=0):
    w = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    w.reshape(-1)[:: max(w.size // 7, 2)] = 0
    return w


def normals(shape, op, sample, block, stream=STREAM, kind="normal"):
    """One block of draws serves four neighbouring cells."""
    n = int(np.prod(shape))
    fill, options = elementwise.random_fill, {"op": op, "sample": sample}
    words = [
        fill(stream, (-(-n // 4),), kind, draw=4 * block + word, **options) for word in range(4)
    ]
    return np.stack(words, -1).reshape(-1)[:n].reshape(shape).astype("f8")


def both(call, order):
    """Run by the mirror and by the source; give the result of the mirror."""
    mirror = call()
    with on_cpu(order):
        source = call()
    for a, b in zip(source, mirror, strict=True):
        if a is not None or b is not None:
            assert_same_bits(a, b)
    return mirror


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CONVERTERS)
def test_targets_come_back(name, shape, order):
    converter, w = CONVERTERS[name], weights(shape)
    g, split = both_split(converter, w, order)
    assert g.shape == (converter.n_plane, *shape)
    assert g.min() >= np.float32(converter.g_min)
    assert g.max() <= np.float32(converter.g_max) * (1 + 1e-6)
    with on_cpu(order):
        source = converter.to_weight(g, split)
    again = converter.to_weight(g, split)
    assert_same_bits(source, again)
    # A few roundings of conductances up to g_max, weighed by the largest significance.
    np.testing.assert_allclose(again, w, atol=2e-6 * np.abs(w).max() + 1e-30)


def both_split(converter, w, order):
    mirror, split = converter.to_conductance(w)
    with on_cpu(order):
        source, _ = converter.to_conductance(w)
    assert_same_bits(source, mirror)
    return mirror, split


def test_targets_by_formula():
    w = weights((17, 29))
    a = np.abs(w).max()
    v = w.astype("f8") / a
    g, _ = CONVERTERS["pair_offset"].to_conductance(w)
    np.testing.assert_allclose(g[0], np.clip(v * 37, 0, 37) + 3, rtol=1e-6)
    np.testing.assert_allclose(g[1], np.clip(-v * 37, 0, 37) + 3, rtol=1e-6)
    g, _ = CONVERTERS["pairs"].to_conductance(w)
    total = np.abs(v) * 25 * 3.5  # in units of significance 1
    for k, (factor, below) in enumerate(((2, 1.5), (1, 0.5), (0.5, 0))):
        share = np.clip((total - 25 * below) / factor, 0, 25)
        np.testing.assert_allclose(g[2 * k], np.where(v > 0, share, 0), atol=1e-5)
        np.testing.assert_allclose(g[2 * k + 1], np.where(v < 0, share, 0), atol=1e-5)
    g, _ = CONVERTERS["single"].to_conductance(w)
    exact = 9 + 79.2 * (w.astype("f8") - w.min()) / (float(w.max()) - float(w.min()))
    np.testing.assert_allclose(g[0], exact, rtol=1e-6)
    t = CONVERTERS["tables"]
    g, _ = t.to_conductance(w)
    np.testing.assert_allclose(g[0], np.interp(v, t.nodes, t.plus), atol=1e-5)
    np.testing.assert_allclose(g[1], np.interp(v, t.nodes, t.minus), atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES[1:3])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("converter", ["pair", "pairs", "single", "tables"])
def test_source_is_mirror(name, converter, shape, order):
    model, converter, w = MODELS[name], CONVERTERS[converter], weights(shape)
    split = converter.split(w)
    stuck = ops.Stuck(0.05, 0.05, 0.1, event=2**40 + 4) if name == "pcm" else None
    options = {"stream": STREAM, "event": 2**40 + 3, "stuck": stuck}
    g, nu = both(lambda: noise.write(model, w, split, **options), order)
    assert g.std() > 0
    for t in (0.0, 1.0, 86400.0):
        both(
            lambda t=t: [
                ops.drift_conductance(
                    g,
                    nu,
                    model.moment(t),
                    split,
                    noise.read_noise(model, model.reading(t), pack([model.reading(t)])),
                    stream=STREAM,
                    sample=noise.sample_of(t, 2),
                    status=OK,
                    out=np.empty(w.shape, np.float32),
                )
            ],
            order,
        )


@pytest.mark.parametrize("scale", [1.0, 3.0, -0.0712345, 1 + 2.0**-23, 2 - 2.0**-23, 1e-19, 3e30])
def test_division_by_the_scale_is_rounded_once(scale):
    """Sums of all sizes, zero and the smallest numbers too."""
    rng = np.random.default_rng(0)
    g = (rng.uniform(1, 2, (1, 1 << 14)) * 2.0 ** rng.integers(-20, 21, 1 << 14)).astype("f4")
    g[0, ::64] *= np.float32(2.0) ** rng.integers(-130, 100, 256).astype("f4")
    g[0, ::97] = 0
    split = ops.Split(np.array([scale, 0], "f4"), np.zeros((1, 8), "f4"), np.ones(1, "f4"))
    out, options = np.empty(g.shape, "f4"), {"stream": STREAM, "sample": 0, "status": OK}
    with on_cpu(), np.errstate(over="ignore", under="ignore"):
        ops.drift_conductance(g, None, ops.Moment(), split, ops.ReadNoise(), out=out, **options)
        most = np.finfo("f4").max  # conductances stay in the finite range
        assert_same_bits(out, np.clip(g / np.float32(scale) + np.float32(0), -most, most))


@pytest.mark.parametrize(
    ("model", "curves"),
    [
        (inference.PCMLike(), noise_formulas.pcm),
        (inference.Hermes(n_device=1), lambda x: noise_formulas.hermes(x, 1)),
        (inference.Hermes(n_device=2), lambda x: noise_formulas.hermes(x, 2)),
        (inference.StateIndependent(), noise_formulas.state_independent),
    ],
)
def test_power_models_by_formula(model, curves):
    target = np.random.default_rng(1).uniform(0, model.g_max, 4000).astype(np.float32)
    target[:300] = 0
    sigma, mean, std, _ = curves(target.astype("f8") / model.g_max)
    xi = [normals(target.shape, Op.PROGRAM, 5, k) for k in (0, 1)]
    done = model.program(target, seed=STREAM, event=5)
    written = np.maximum(target + sigma * xi[0], 0)
    np.testing.assert_allclose(done.conductance, written, atol=1e-5)
    nu = np.abs(mean + std * xi[1])
    np.testing.assert_allclose(done.nu, nu, atol=1e-6)
    _, _, _, q = curves(written / model.g_max)
    for t in (0.0, 25.0, 86400.0, 3.15e7):
        shrunk = written * ((t + model.t_0) / model.t_0) ** -nu
        np.testing.assert_allclose(model.drift(done, t), shrunk, rtol=2e-5, atol=1e-6)
        gain = np.sqrt(np.log((t + model.t_0 + model.t_read) / (2 * model.t_read)))
        noise_of_reading = normals(
            target.shape, Op.READ_NOISE, noise.sample_of(t, 7), 0, STREAM.child(5)
        )
        read = np.maximum(shrunk * (1 + q * gain * noise_of_reading), 0)
        got = model.read(done, t, seed=STREAM, number=7)
        np.testing.assert_allclose(got, read, rtol=5e-5, atol=2e-5)


@pytest.mark.parametrize("t", [0.0, 1.0, 86400.0, 172800.0])
def test_wan_by_formula(t):
    model = inference.ReRamWan(g_max=20.0)
    target = np.linspace(0, 20, 3000, dtype=np.float32)
    x = target.astype("f8") / 20
    sigma = {
        1.0: noise_formulas.polynomial(x, 0.348, 16.030, -43.853, 45.393, -16.815),
        86400.0: noise_formulas.polynomial(x, 0.701, 22.086, -50.773, 47.095, -16.458),
        172800.0: noise_formulas.polynomial(x, 0.782, 20.274, -43.507, 37.062, -11.934),
    }[t or 1.0]
    done = model.program(target, seed=STREAM)
    xi = normals(target.shape, Op.READ_NOISE, noise.sample_of(t, 0), 0, STREAM.child(0))
    exact = np.maximum(target + sigma / 2 * xi, 0)  # g_max 20 is half of what was measured
    np.testing.assert_allclose(model.read(done, t, seed=STREAM), exact, atol=2e-5)


@pytest.mark.parametrize("acceptance", [0.2, 2.0])
def test_cmo_by_formula(acceptance):
    model = inference.ReRamCMO(acceptance=acceptance)
    target = np.linspace(9, 88.2, 3000, dtype=np.float32)
    c0, c1 = {0.2: (0.00081107, 0.00106879), 2.0: (0.0112185391, 0.01129027418)}[acceptance]
    g = target.astype("f8")
    xi = [normals(target.shape, Op.PROGRAM, 0, k) for k in (0, 1)]
    written = np.clip(g + (c0 + c1 * g) * xi[0], 9, 88.2)
    done = model.program(target, seed=STREAM)
    np.testing.assert_allclose(done.conductance, written, atol=2e-5)
    assert_same_bits(model.read(done, 0.0, seed=STREAM), done.conductance)
    for t in (1.0, 3600.0, 3.15e7):
        log = np.log(t)
        moved = written - 0.08900206 * log + (0.04201137 * log + 0.41183342) * xi[1]
        moved = np.clip(moved, 9, 88.2)
        np.testing.assert_allclose(model.drift(done, t), moved, atol=5e-5)
        spread = 0.0277316483 * np.log10(moved) * np.sqrt(np.log((t + 1e-6) / 2e-6))
        nu = normals(target.shape, Op.READ_NOISE, noise.sample_of(t, 0), 0, STREAM.child(0))
        read = np.clip(moved + spread * nu, 9, 88.2)
        np.testing.assert_allclose(model.read(done, t, seed=STREAM), read, atol=1e-4)


@pytest.mark.parametrize(
    "curve",
    [
        Polynomial((0.1, -0.2, 0.3, 0.01, 0.5, -0.7)),
        ClippedLog(-0.0387, -0.0182, 0.072, 0.13, 0.0945, (0.0736, -0.0126, -0.0436)),
        PowerLaw(0.0088, -0.65, 0.001, 0.2),
        Table((-0.2, 0.0, 0.3, 0.31, 1.1), (3.0, -1.0, 0.5, 0.7, 0.7)),
    ],
)
def test_packed_curves_are_the_curves(curve):
    from rpukit.inference._mirror import curve as evaluate

    buffer = pack([Polynomial((7.0,)), curve, Table((0.0, 1.0), (2.0, 3.0))])
    for x in (-0.5, 0.0, 1e-9, 0.05, 0.0944, 0.0946, 0.305, 0.7, 1.0, 2.0):
        if isinstance(curve, Polynomial) or x >= 0 or isinstance(curve, Table):
            got = evaluate(buffer, 1, np.float32(x))
            assert abs(got - curve(x)) < 2e-6 * max(1, abs(curve(x)))
    assert evaluate(buffer, 0, np.float32(3)) == 7
    assert evaluate(buffer, 2, np.float32(0.5)) == 2.5


def test_stuck_devices(order):
    w = weights((64, 64))
    split = CONVERTERS["pair_offset"].split(w)
    stuck = ops.Stuck(0.1, 0.2, 0.3, event=9)
    options = {"stream": STREAM, "event": 0, "stuck": stuck}
    model = inference.PCMLike(g_max=40.0)
    g, nu = both(lambda: noise.write(model, w, split, **options), order)
    u, at = (normals((w.size,), Op.STUCK, 9, block, kind="uniform") for block in (0, 1))
    assert (g[0][u < 0.1] == 3).all()
    assert (g[0][(u > 0.1) & (u < 0.3)] == 40).all()
    free = (u > 0.3) & (u < 0.6)
    np.testing.assert_allclose(g[0][free], 3 + 37 * at[free], rtol=1e-6)
    assert (nu[0][u < 0.6] == 0).all()
    assert (nu[0][u > 0.6] > 0).all()


def test_a_split_matrix_has_the_same_bits(monkeypatch):
    """Cells are named by their index: a matrix programmed by threads or blocks is the same."""
    w = weights((130, 258))
    split = CONVERTERS["pair"].split(w)
    runs = []
    for n in (1, 3):
        rk.set_num_threads(n)
        runs.append(noise.write(MODELS["pcm"], w, split, stream=STREAM, event=1))
    rk.set_num_threads(None)
    monkeypatch.setattr(ops, "_BLOCKS", 3)
    with on_cpu():  # threads take several turns
        runs.append(noise.write(MODELS["pcm"], w, split, stream=STREAM, event=1))
    for other in runs[1:]:
        for one, two in zip(runs[0], other, strict=True):
            assert_same_bits(one, two)


def test_a_raised_status_stops_every_kernel():
    w, raised = weights((9, 12)), np.ones(1, np.int32)
    split = CONVERTERS["pair"].split(w)
    g, nu = np.full((2, w.size), 5, np.float32), np.full((2, w.size), 6, np.float32)
    out = np.full(w.shape, 7, np.float32)
    one = np.ones(1, np.float32)
    with on_cpu():
        noise.write(MODELS["pcm"], w, split, stream=STREAM, event=1, status=raised, out=(g, nu))
        options = {"stream": STREAM, "status": raised, "out": out}
        read = ops.ReadNoise(pack([MODELS["pcm"].reading(1.0)]))
        ops.drift_conductance(g, nu, MODELS["pcm"].moment(1.0), split, read, sample=1, **options)
        training.modify_weights(w, one, training.Modification(1, std=0.1), event=1, **options)
        training.add_scaled(w, None, out, status=raised)
    assert (g == 5).all()
    assert (nu == 6).all()
    assert (out == 7).all()
