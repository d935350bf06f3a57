"""Random programs for `fuzz_devices`: the objects they create and the calls they make.

A program is text. It finds `np`, `rk`, `data` and `integers` (inputs by seed), `put` (to where the
object is), `keep` (for the comparison), `cut` (a batch in pieces), `moved` and `reloaded`, `split`
(an object on one device, or on all) and `linear` (products of a weight that may be split).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Random = np.random.Generator

NOISE = "dw_min=0.01, dw_min_std=0.3"
PULSED = (
    f"rk.ConstantStep({NOISE})",
    f"rk.LinearStep(gamma_up=0.4, gamma_down=0.2, {NOISE})",
    f"rk.SoftBounds({NOISE})",
    "rk.SoftBoundsPmax(p_max=100, alpha=0.02, dw_min_std=0)",
    f"rk.SoftBoundsReference(reference_std=0.1, subtract_symmetry_point=True, {NOISE})",
    f"rk.ExpStep({NOISE})",
    f"rk.PowStep(pow_gamma=1.7, write_noise_std=1, {NOISE})",
    f"rk.PowStepReference(reference_mean=0.1, {NOISE})",
    f"rk.PiecewiseStep(piecewise_up=(1.5, 1, 0.2), piecewise_down=(0.1, 2), {NOISE})",
    "rk.presets.device('PCM')",
    "rk.presets.device('ReRamES', dw_min=0.01)",
)
COMPOUND = (
    "rk.OneSided(device=rk.SoftBounds(dw_min=0.02, w_min=0), refresh_every=5)",
    "rk.Vector(devices=(rk.SoftBounds(dw_min=0.02), rk.ConstantStep(dw_min=0.01)))",
    "rk.Reference(devices=(rk.SoftBounds(dw_min=0.02), rk.SoftBounds(dw_min=0.02)))",
    "rk.Transfer(devices=(rk.SoftBounds(), rk.SoftBounds()), transfer_every=2)",
    "rk.BufferedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()), transfer_every=1)",
    "rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()))",
    "rk.DynamicTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()))",
    "rk.MixedPrecision(device=rk.SoftBounds(dw_min=0.02))",
)
IO = (
    "",
    "is_perfect=True",
    "out_noise=0.1, inp_noise=0.01",
    "inp_res=1 / 16, inp_sto_round=True, out_bound=0.3",
    "noise_management='NONE'",
    "noise_management='CONSTANT', nm_thres=0.7",
    "bound_management='NONE', out_noise_std=0.2",
    "w_noise=0.02, w_noise_type='ADDITIVE_CONSTANT'",
    "ir_drop=0.3",
    "out_nonlinearity=0.1, v_offset_std=0.01, v_offset_w_min=-1.0",
)
UPDATES = (
    "",
    "desired_bl=7",
    "desired_bl=63, update_bl_management=False",
    "pulse_type='MEAN_COUNT'",
    "pulse_type='DETERMINISTIC_IMPLICIT', x_res_implicit=0.02, d_res_implicit=0.02",
    "pulse_type='STOCHASTIC'",
)
NOISES = (
    "rk.inference.PCMLike()",
    "rk.inference.Hermes()",
    "rk.inference.CustomDrift()",
    "rk.inference.StateIndependent()",
    "rk.inference.ReRamWan()",
    "rk.inference.ReRamCMO()",
)
CONVERTERS = (
    "None",
    "rk.inference.NPairs(factors=(1, 4))",
    "rk.inference.SinglePair(g_max=20.0)",
)
MODIFIERS = (
    "None",
    "rk.inference.WeightModifier(type='ADD_NORMAL', std_dev=0.1)",
    "rk.inference.WeightModifier(type='DISCRETIZE', res=20, sto_round=True)",
    "rk.inference.WeightModifier(type='DROP_CONNECT', pdrop=0.3)",
    "rk.inference.WeightModifier(type='MULT_NORMAL', std_dev=0.1, per_batch_sample=True)",
)
CIRCUITS = (
    ("rk.circuits.hmm({0}, {1}, 7)", 7),
    ("rk.circuits.hmm({0}, 131, 7)", 7),
    ("rk.circuits.pd((2, {0}), {1}, rk.circuits.Categorical(n_values=4))", 4),
    ("rk.circuits.rat_spn({0} + 2, {1}, rk.circuits.Categorical(n_values=5))", 5),
)
FUNCTIONS = ("exp", "log1p", "tanh", "sigmoid", "erf", "sqrt", "expm1")


class Lines:
    """Program under construction, with random choices."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.lines = rng, []

    def add(self, *lines: str) -> None:
        self.lines += lines

    def one(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """Draw a number up to `high`, uniform in its logarithm."""
        return int(np.exp(self.rng.uniform(np.log(low), np.log(high + 1))))

    def seed(self) -> int:
        return int(self.rng.integers(1 << 20))

    def often(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def steps(self, choices: Sequence[Callable[[], None]], low: int = 2, high: int = 7) -> None:
        """Add some steps, which move the object, or load it again, now and then."""
        for _ in range(int(self.rng.integers(low, high))):
            self.one(choices)()
            if self.often(0.2):
                self.add(f"t = {self.one(['moved', 'reloaded'])}(t)")


def program(kind: str, rng: Random) -> str:
    """Write a program of a kind."""
    lines = Lines(rng)
    KINDS[kind](lines)
    return "\n".join(lines.lines) + "\n"


def _tile(own: Lines) -> None:
    n_out, n_in = own.number(1, 150), own.number(1, 150)
    if own.often(0.1):
        n_out, n_in = own.one([(512, 512), (1, 700), (300, 4)])
    cell = own.one(["rk.Ideal()", *PULSED, *COMPOUND])
    real = "f8" if own.often(0.2) and cell.startswith(("rk.Ideal", "rk.SoftB", "rk.C")) else "f4"
    options = [
        f"forward=rk.IOParameters({own.one(IO)})",
        f"backward=rk.IOParameters({own.one(IO[:6])})",
        f"update=rk.UpdateParameters({own.one(UPDATES)})",
        f"seed={own.seed()}",
        f"dtype=np.dtype('{real}')",
        "device=world.device",
    ]
    if own.often(0.2):
        options.append("storage='procedural'")
    if own.often(0.2):
        options.append("count_pulses=True")
    own.add(f"t = rk.AnalogTile(({n_out}, {n_in}), {cell}, {', '.join(options)})")

    def batch(width: int) -> str:
        return f"data(({own.number(1, 40)}, {width}), {own.seed()}, '{real}')"

    def forward() -> None:
        own.add(f"keep(cut(t.forward, {batch(n_in)}))")

    def backward() -> None:
        own.add(f"keep(cut(t.backward, {batch(n_out)}))")

    def update() -> None:
        n, lr = own.number(1, 40), own.one([0.1, 0.01, -0.05, 1.0])
        x, d = (f"data(({n}, {width}), {own.seed()}, '{real}')" for width in (n_in, n_out))
        call = f"lambda x, d: t.update(x, d, {lr}, batch_size={n})"
        own.add(f"cut({call}, {x}, {d}, join=False)")

    def again() -> None:
        n = own.number(1, 20)
        x, d = (f"put(data(({n}, {width}), {own.seed()}, '{real}'))" for width in (n_in, n_out))
        own.add(f"x, d = {x}, {d}", "for _ in range(5):")
        own.add(f"    keep(t.forward(x)); t.update(x, d, 0.05, batch_size={n})")

    def weights() -> None:
        own.add(f"t.set_weights(put(data(({n_out}, {n_in}), {own.seed()}, '{real}', 0.3)))")

    def look() -> None:
        own.add("keep(t.get_weights(), t.n_pulses, dict(t.clocks))")

    def process() -> None:
        own.add(
            own.one(["t.decay()", "t.diffuse()", "t.reset(0, 1)", "t.post_step()", "t.drift()"])
        )

    def wrong() -> None:
        own.add(own.one([
            f"t.forward(put(np.zeros((2, {n_in + 1}), '{real}')))",
            f"t.update(put(np.zeros((2, {n_in}), '{real}')), put(np.ones((3, {n_out}), 'f4')), 1)",
            f"t.forward(put(np.full((2, {n_in}), np.nan, '{real}'))); rk.check()",
            "t.decay(np.inf)",
        ]))  # fmt: skip

    usual = [forward, backward, update, update, again, weights, look, process]
    own.steps([*usual, wrong] if own.often(0.1) else usual)
    own.add("keep(t.state()['arrays'])")


def _inference(own: Lines) -> None:
    n_out, n_in = own.number(1, 140), own.number(1, 140)
    noise = own.one(NOISES)
    options = [
        f"noise={noise}",
        f"forward=rk.IOParameters({own.one(IO[:6])})",
        f"modifier={own.one(MODIFIERS)}",
        f"compensation='{own.one(['NONE', 'GLOBAL', 'GLOBAL_EXACT', 'PER_COLUMN'])}'",
        f"seed={own.seed()}",
        "device=world.device",
    ]
    if "Re" not in noise:
        options.append(f"converter={own.one(CONVERTERS)}")
    if own.often(0.2):
        own.add(f"t = rk.inference.map_matrix(({n_out}, {n_in}), max_tile=(50, 60), "
                f"{', '.join(options)})")  # fmt: skip
    else:
        own.add(f"t = rk.InferenceTile(({n_out}, {n_in}), {', '.join(options)})")
    own.add(f"t.set_weights(put(data(({n_out}, {n_in}), {own.seed()}, 'f4', 0.4)))")

    def forward() -> None:
        own.add(f"keep(cut(t.forward, data(({own.number(1, 30)}, {n_in}), {own.seed()})))")

    def backward() -> None:
        own.add(f"keep(cut(t.backward, data(({own.number(1, 30)}, {n_out}), {own.seed()})))")

    def update() -> None:
        n = own.number(1, 30)
        x, d = (f"put(data(({n}, {width}), {own.seed()}))" for width in (n_in, n_out))
        own.add(f"t.update({x}, {d}, 0.05)")

    def program() -> None:
        own.add("t.program()", f"t.drift_to({own.one([0.0, 1.0, 3600.0])})")

    def post_step() -> None:
        own.add("t.post_step()")

    def look() -> None:
        own.add("keep(t.get_weights())")

    own.steps([forward, forward, backward, update, program, post_step, look])
    own.add("keep(t.state()['arrays'])")


def _circuit(own: Lines) -> None:
    text, n_value = own.one(CIRCUITS)
    root = text.format(own.number(2, 4), own.number(2, 40))
    dtype = own.one(["float32", "float32", "float64"])
    own.add(f"t = rk.Circuit({root}, device=world.device, seed={own.seed()}, dtype='{dtype}')")
    own.add("n = t.n_variables")

    def codes() -> str:
        return f"integers({n_value}, ({own.number(1, 300)}, n), {own.seed()})"

    def likelihood() -> None:
        own.add(f"keep(cut(t.log_likelihood, {codes()}))")

    def learn() -> None:
        own.add(f"cut(t.accumulate, {codes()}, join=False)")
        own.add(f"t.em_step(put({codes()}), step={own.one([1.0, 0.3])}, pseudocount=0.1)")

    def again() -> None:
        own.add(f"x = put({codes()})", "for _ in range(4):")
        own.add("    keep(t.log_likelihood(x)); t.em_step(x, step=0.2)")

    def flows() -> None:
        own.add(f"keep(list(t.flows(put({codes()})).values()))")

    def query() -> None:
        own.add(f"x = {codes()}", f"m = data(x.shape, {own.seed()}) > 0.4")
        own.add(own.one([
            "keep(t.conditional(put(x), missing=put(m)))",
            "keep(t.most_probable(put(x), missing=put(m)))",
            "keep(t.sample(x=put(x), missing=put(m)))",
        ]))  # fmt: skip

    def sample() -> None:
        own.add(f"keep(t.sample({own.number(1, 200)}))")

    own.steps([likelihood, likelihood, learn, learn, again, flows, query, sample])
    own.add("keep(t.state()['arrays'])")


def _product(own: Lines) -> None:
    m, n, k = (own.number(1, 130) for _ in range(3))
    dtype = own.one(["f4", "f4", "f8", "f2", "u2"])
    made = [f"data(({a}, {b}), {own.seed()}, '{'f4' if dtype == 'u2' else dtype}')" for a, b in
            ((m, k), (k, n), (m, n))]  # fmt: skip
    if dtype == "u2":
        made = [f"rk.gemm.to_bfloat16({text})" for text in made]
    own.add(f"a, b, c = {', '.join(made)}")
    own.add("right = put(b)", "keep(cut(lambda rows: rk.det_gemm(rows, right), a))")
    own.add("left = put(a)", "for _ in range(4):", "    keep(rk.det_gemm(left, right))")
    if own.often(0.5):
        own.add("keep(rk.det_gemm_backward(left, right, put(c)))")
    if own.often(0.5):
        own.add(
            f"y = put(integers({n}, ({m},), {own.seed()}))", "w = put(np.ascontiguousarray(b.T))"
        )
        own.add("keep(rk.linear_logprob(left, w, y))")
    if dtype in ("f2", "u2") and own.often(0.5):
        own.add(f"g = rk.gemm.WeightGradient(({k}, {n}), a.dtype, world.device)")
        own.add("cut(g.add, a, c, join=False)", "keep(g.result())")


def _elementwise(own: Lines) -> None:
    name, n = own.one(FUNCTIONS), own.number(1, 5000)
    dtype = own.one(["f4", "f8"])
    x = f"np.abs(data(({n},), {own.seed()}, '{dtype}', 3.0))"
    own.add(f"x = put({x})", f"keep(rk.elementwise.math_map('{name}', x))")
    own.add(f"keep(rk.elementwise.math_map('power', x, put({x})))")
    kind = own.one(["normal", "uniform", "bits"])
    made = f"rk.Stream.from_seed({own.seed()}), ({n},), '{kind}', device=world.device"
    own.add(f"keep(rk.elementwise.random_fill({made}))")
    rows, classes = own.number(1, 60), own.number(1, 40)
    logits, labels = f"data(({rows}, {classes}), {own.seed()})", own.seed()
    own.add(f"z, y = put({logits}), put(integers({classes}, ({rows},), {labels}))")
    own.add("keep(rk.elementwise.softmax_cross_entropy(z, y))")


SINGLE = ("rk.Ideal()", *PULSED, *(cell for cell in COMPOUND if cell[3:6] in ("Vec", "Ref")))
TRANSFERS = tuple(cell for cell in COMPOUND if "edTransfer" in cell or "cTransfer" in cell)


def _split(own: Lines) -> None:
    own.one([_split_tile, _split_tile, _split_inference, _split_linear, _split_circuit])(own)


def _split_tile(own: Lines) -> None:
    n_out, n_in = own.number(2, 150), own.number(33, 200)
    cell = own.one([*SINGLE, *TRANSFERS])
    axes = ("outputs",) if "Transfer" in cell else ("outputs", "inputs")
    options = (
        f"forward=rk.IOParameters({own.one(IO[:7])}), "
        f"backward=rk.IOParameters({own.one(IO[:6])}), "
        f"update=rk.UpdateParameters({own.one(UPDATES)}), seed={own.seed()}"
    )
    made = f"({n_out}, {n_in}), {cell}, axes={axes}, {options}"
    own.add(f"t = split(rk.AnalogTile, rk.ShardedTile, {made})")

    def forward() -> None:
        own.add(f"keep(cut(t.forward, data(({own.number(1, 40)}, {n_in}), {own.seed()})))")

    def backward() -> None:
        own.add(f"keep(cut(t.backward, data(({own.number(1, 40)}, {n_out}), {own.seed()})))")

    def update() -> None:
        n, lr = own.number(1, 40), own.one([0.1, 0.01, -0.05])
        x, d = (f"data(({n}, {width}), {own.seed()})" for width in (n_in, n_out))
        own.add(f"cut(lambda x, d: t.update(x, d, {lr}, batch_size={n}), {x}, {d}, join=False)")

    def process() -> None:
        own.add(own.one(["t.decay()", "t.diffuse()", "t.reset(0, 1)", "t.post_step()"]))

    def look() -> None:
        own.add("keep(t.get_weights(), t.n_pulses, dict(t.clocks))")

    own.steps([forward, backward, update, update, process, look])
    own.add("keep(t.state()['arrays'])")


def _split_inference(own: Lines) -> None:
    n_out, n_in = own.number(9, 140), 4 * own.number(3, 40)
    kind = own.one(["NONE", "GLOBAL", "GLOBAL_EXACT", "PER_COLUMN"])
    made = f"({n_out}, {n_in}), noise={own.one(NOISES)}, compensation='{kind}', seed={own.seed()}"
    own.add(f"t = split(rk.InferenceTile, rk.ShardedInferenceTile, {made})")
    own.add(f"t.set_weights(put(data(({n_out}, {n_in}), {own.seed()}, 'f4', 0.4)))")
    for _ in range(own.number(1, 3)):
        own.add("t.program()", f"t.drift_to({own.one([0.0, 1.0, 3600.0])})")
        own.add(f"keep(cut(t.forward, data(({own.number(1, 30)}, {n_in}), {own.seed()})))")
        own.add(f"keep(cut(t.backward, data(({own.number(1, 30)}, {n_out}), {own.seed()})))")
    own.add("keep(t.get_weights(), t.state()['arrays'])")


def _split_linear(own: Lines) -> None:
    m, n_out, n_in = own.number(1, 130), 64 * own.number(3, 6), 16 * own.number(9, 20)
    dtype = own.one(["f4", "f8", "f2", "u2"])
    kind = "f4" if dtype == "u2" else dtype
    made = [f"data({shape}, {own.seed()}, '{kind}')" for shape in
            ((n_out, n_in), (m, n_in), (m, n_out))]  # fmt: skip
    if dtype == "u2":
        made = [f"rk.gemm.to_bfloat16({text})" for text in made]
    own.add(f"keep(linear({', '.join(made)}, integers({n_out}, ({m},), {own.seed()})))")


def _split_circuit(own: Lines) -> None:
    n_time, n_state = own.number(2, 40), own.number(2, 30)
    dtype, root = own.one(["float32", "float32", "float64"]), f"hmm({n_time}, {n_state}, 7)"
    made = f"rk.circuits.{root}, seed={own.seed()}, dtype='{dtype}'"
    own.add(f"t = split(rk.Circuit, rk.Circuit, {made})")

    def learn() -> None:
        x = f"integers(7, ({own.number(200, 1500)}, {n_time}), {own.seed()})"
        own.add(f"cut(t.accumulate, {x}, join=False)")
        own.add(own.one(["t.em_step(step=0.3, pseudocount=0.1)", "keep(t.state()['arrays'])"]))

    def captured() -> None:
        x = f"integers(7, ({own.number(1, 900)}, {n_time}), {own.seed()})"
        own.add(f"keep(captured(t, {x}, 0.4))")

    def likelihood() -> None:
        x = f"integers(7, ({own.number(1, 300)}, {n_time}), {own.seed()})"
        own.add(f"keep(cut(t.log_likelihood, {x}))")

    own.steps([learn, learn, captured, likelihood], 1, 4)
    own.add("keep(t.state()['arrays'])")


KINDS: dict[str, Callable[[Lines], None]] = {
    "circuit": _circuit,
    "elementwise": _elementwise,
    "inference": _inference,
    "product": _product,
    "split": _split,
    "tile": _tile,
}
