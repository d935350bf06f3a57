"""The cases behind the golden hashes of inference."""

from __future__ import annotations

from collections.abc import Iterator

import rpukit as rk
from rpukit import elementwise
from tests.golden.cases.case import SIZES, Case, batch, put

NOISES = {
    "pcm": rk.inference.PCMLike(),
    "hermes": rk.inference.Hermes(),
    "table": rk.inference.CustomDrift(),
    "independent": rk.inference.StateIndependent(),
    "wan": rk.inference.ReRamWan(),
    "cmo": rk.inference.ReRamCMO(),
}
CONVERTERS = {
    "pair": {},
    "pairs": {"converter": rk.inference.NPairs(factors=(1, 4))},
    "tables": {"converter": rk.inference.CustomPair()},
}
MODIFIERS = {
    "add_normal": {"std_dev": 0.1, "pdrop": 0.1},
    "mult_normal": {"std_dev": 0.1},
    "discretize": {"res": 20, "sto_round": True},
    "discretize_add_normal": {"res": 0.1, "std_dev": 0.1},
    "poly": {"std_dev": 1.0},
    "prog_noise": {"std_dev": 25.0},
    "dorefa": {"res": 0.1},
    "drop_connect": {"pdrop": 0.3},
    "noise_model": {"t": 3600.0, "p_low": 0.1, "p_high": 0.1, "p_any": 0.1},
}


def inference_tile(shape, device, seed, **options):
    start = elementwise.random_fill(rk.Stream.from_seed(seed).child(3), shape, "uniform")
    tile = rk.InferenceTile(shape, seed=seed, device=device, **options)
    return tile.set_weights(put(start * 2 - 1, device))


def programmed(shape, noise, converter, seed):
    def run(device):
        options = CONVERTERS[converter]
        tile = inference_tile(shape, device, seed, noise=NOISES[noise], **options)
        return [tile.program(event=2**40 + 1).get_weights(), tile.conductances.copy()]

    return run


def drifted(shape, noise, converter, compensation, seed):
    def run(device):
        options = {"compensation": compensation, **CONVERTERS[converter]}
        tile = inference_tile(shape, device, seed, noise=NOISES[noise], **options).program()
        x, _ = (put(v, device) for v in batch(shape, 5, seed))
        found = []
        for t in (86400.0, 0.0, 1.0):
            found += [tile.drift_to(t, number=3).get_weights(), tile.forward(x), tile.alpha]
        return found

    return run


def modified(shape, modifier, seed):
    def run(device):
        options = {"modifier": rk.inference.WeightModifier(type=modifier, **MODIFIERS[modifier])}
        tile = inference_tile(shape, device, seed, **options)
        return [tile.post_step().get_weights(), tile.post_step().get_weights()]

    return run


def each_sample(shape, modifier, seed):
    def run(device):
        options = {"type": modifier, "per_batch_sample": True, **MODIFIERS[modifier]}
        tile = inference_tile(
            shape, device, seed, modifier=rk.inference.WeightModifier(**options)
        ).post_step()
        x, d = (put(v, device) for v in batch(shape, 5, seed))
        return [tile.forward(x), tile.backward(d), tile.forward(x[:2], first_sample=2**33)]

    return run


def scaled_sums(shape, seed):
    def run(device):
        remap = rk.inference.WeightRemap(type="channelwise_symmetric", w_max=0.7)
        sizes = (max(shape[0] // 2, 1), max(shape[1] // 3, 1))
        options = {"max_tile": sizes, "weight_remap": remap, "seed": seed, "device": device}
        matrix = rk.inference.map_matrix(shape, **options)
        start = elementwise.random_fill(rk.Stream.from_seed(seed).child(3), shape, "uniform")
        matrix.set_weights(put(start, device)).post_step()
        x, d = (put(v, device) for v in batch(shape, 5, seed))
        return [matrix.get_weights(), matrix.forward(x), matrix.backward(d)]

    return run


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the name of its kernel."""
    for shape in SIZES:
        at = f"{shape[0]}x{shape[1]}"
        for noise in NOISES:
            run = programmed(shape, noise, "pair", 12)
            yield "program_conductance", Case(f"{noise}-{at}", run)
            run = drifted(shape, noise, "pair", "per_column", 13)
            yield "drift_conductance", Case(f"{noise}-{at}", run, small=shape[1] < 200)
        for name in ("pairs", "tables"):
            run = programmed(shape, "pcm", name, 12)
            yield "program_conductance", Case(f"{name}-{at}", run)
            run = drifted(shape, "pcm", name, "none", 14)
            yield "drift_conductance", Case(f"{name}-{at}", run)
        for name in MODIFIERS:
            yield "modify_weights", Case(f"{name}-{at}", modified(shape, name, 15))
        for name in ("discretize", "noise_model"):
            run = each_sample(shape, name, 17)
            yield "modify_weights", Case(f"{name}-each-{at}", run, small=shape[1] < 200)
        yield "add_scaled", Case(at, scaled_sums(shape, 16))
