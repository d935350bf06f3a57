"""Random objects and calls for `fuzz_interrupts`, and what the state of each object is."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import rpukit as rk
from rpukit import inference
from rpukit.estimators.network import TileNetwork
from rpukit.tiled.runtime.trainer import Trainer
from tools.fuzz_programs import COMPOUND, CONVERTERS, IO, MODIFIERS, NOISES, PULSED, UPDATES

Random = np.random.Generator
SLOW = "lifetime=30.0, lifetime_dtod=0.1, reset_std=0.02, diffusion=0.01, dw_min=0.01"
PROCESSES = (
    f"rk.ConstantStep({SLOW})",
    f"rk.SoftBounds({SLOW}, write_noise_std=1)",
    f"rk.Vector(devices=(rk.SoftBounds({SLOW}, write_noise_std=1), rk.ConstantStep({SLOW})))",
    "rk.LinearStep(drift=rk.DriftParameters(nu=0.1, nu_std=0.1, w_noise_std=0.01), dw_min=0.01)",
)
AVERAGE = "noise_management='AVERAGE_ABS_MAX'"
FITS = ("em", "scaled_em", "sgd", "adam")


@dataclass
class Case:
    """One call of an object.

    Parameters
    ----------
    text : str
        What it is, for a report.
    make : callable
        Makes the object, in the state that it has before the call; always the same.
    call, after : callable
        The call, and another one after it.
    """

    text: str
    make: Callable[[], Any]
    call: Callable[[Any], Any]
    after: Callable[[Any], Any]


def case(kind: str, rng: Random) -> Case:
    """Draw an object of a kind and a call of it."""
    made: Case = KINDS[kind](rng)
    return made


# ---- states -------------------------------------------------------------------------------------


def state(thing: Any) -> bytes:
    """Everything that later results depend on, as bytes; raises for an object cut short."""
    matrices = (rk.TileArray, inference.MappedMatrix)
    if isinstance(thing, (rk.AnalogTile, rk.InferenceTile, *matrices, rk.Circuit)):
        return _bytes(thing.state())
    if isinstance(thing, Trainer):
        return _bytes([thing.parameters(everything=True), thing.n_step])
    if isinstance(thing, rk.gemm.WeightGradient):
        return _bytes([thing.result(np.float32), thing.n_rows])
    if hasattr(thing, "circuit_"):
        return _bytes([thing.circuit_.state(), thing.trace_, thing._log_unseen])
    if hasattr(thing, "circuits_"):
        return _bytes([[pc.state() for pc in thing.circuits_], thing.classes_])
    if not hasattr(thing, "network_"):
        return b"not fitted"
    network = thing.network_
    thing.predict(np.zeros((1, thing.n_features_in_)))  # refused after an interrupt
    learned = [network.n_sample, getattr(thing, "classes_", 0), thing.scale_.width]
    return _bytes([learned, [tile.state()["arrays"] for tile in network.tiles]])


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        parts = [str(name).encode() + _bytes(value[name]) for name in sorted(value, key=str)]
        return b"{" + b",".join(parts) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(_bytes(v) for v in value) + b"]"
    if isinstance(value, np.ndarray):
        return str((value.dtype, value.shape)).encode() + value.tobytes()
    return json.dumps(value, default=str).encode()


STEPS = (
    *((rk.Circuit, name) for name in ("em_step", "scaled_em_step", "gradient_step")),
    *((rk.AnalogTile, name) for name in ("forward", "update")),
    (Trainer, "step"),
    (TileNetwork, "learn"),
)


@contextmanager
def steps_of(thing: Any, seen: set[bytes]) -> Iterator[None]:
    """Collect the state of an object before and after each step of a loop."""
    own = thing if isinstance(thing, tuple(cls for cls, _ in STEPS)) else TileNetwork
    kept = [
        (cls, name, getattr(cls, name))
        for cls, name in STEPS
        if cls is own or isinstance(own, cls)
    ]
    looking: list[int] = []

    def look() -> None:
        if not looking:  # a state may itself be found by such a call
            looking.append(1)
            seen.add(state(thing))
            looking.clear()

    def watched(method: Any) -> Any:
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            look()
            result = method(self, *args, **kwargs)
            look()
            return result

        return step

    try:
        for cls, name, method in kept:
            setattr(cls, name, watched(method))
        yield
    finally:
        for cls, name, method in kept:
            setattr(cls, name, method)


# ---- objects ------------------------------------------------------------------------------------


def _one(rng: Random, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def _data(rng: Random, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


def _named(text: str, make: Any, calls: dict[str, Any], rng: Random) -> Case:
    name, after = (_one(rng, list(calls)) for _ in range(2))
    return Case(f"{text} {name}, then {after}", make, calls[name], calls[after])


def _tile(rng: Random) -> Case:
    shape = tuple(int(n) for n in rng.integers(2, 7, 2))
    cell = _one(rng, ["rk.Ideal()", *PULSED, *COMPOUND, *COMPOUND, *PROCESSES, *PROCESSES])
    plain = cell in PULSED[:3] or cell == PROCESSES[0]
    ways = [_one(rng, (*IO, AVERAGE, AVERAGE)), _one(rng, (*IO[:6], AVERAGE))]
    options = {
        "forward": f"rk.IOParameters({ways[0]})",
        "backward": f"rk.IOParameters({ways[1]})",
        "update": f"rk.UpdateParameters({_one(rng, UPDATES)})",
        "seed": str(int(rng.integers(1000))),
        "count_pulses": str(bool(rng.random() < 0.3)),
        "storage": repr("procedural" if plain and rng.random() < 0.3 else "stored"),
        "dtype": "np.float64" if plain and rng.random() < 0.2 else "np.float32",
    }
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    text = f"rk.AnalogTile({shape}, {cell}, {given})"
    tile = eval(text)
    tile.set_weights(0.3 * _data(rng, *shape).astype(tile.dtype))
    n = int(rng.integers(1, 9))
    x, d = _data(rng, n, shape[1]).astype(tile.dtype), _data(rng, n, shape[0]).astype(tile.dtype)
    for _ in range(int(rng.integers(0, 3))):
        tile.update(x, d, 0.1)
    weight = 0.2 * _data(rng, *shape).astype(tile.dtype)
    perfect = 0.1 * weight
    calls: dict[str, Any] = {
        "forward": lambda t: t.forward(x),
        "backward": lambda t: t.backward(d),
        "update": lambda t: t.update(x, d, 0.3),
        "update again": lambda t: t.update(x, d, -0.2, batch_size=2),
        "set_weights": lambda t: t.set_weights(weight),
        "decay": lambda t: t.decay(0.5),
        "diffuse": lambda t: t.diffuse(),
        "drift": lambda t: t.drift(2.0),
        "post_step": lambda t: t.post_step(),
        "pulse": lambda t: t.arrays[-1].set_weights(weight),
        "state": lambda t: t.state(),
        "copy": lambda t: t.copy(),
        "write_verify": lambda t: inference.write_verify(t, perfect, max_rounds=2, check_every=1),
    }
    if cell in PROCESSES[:3]:
        calls["reset"] = lambda t: t.reset(0, 1, 0.7)
    if plain and tile.storage == "stored":
        calls["set_cells"] = lambda t: t.set_cells(
            w_max=np.full(shape, 0.3, t.dtype), w_min=np.full(shape, -0.2, t.dtype)
        )
    return _named(text, tile.copy, calls, rng)


def _first(tile: Any) -> Callable[[Any], Any]:
    """How to reach the first tile of a mapped matrix, or the tile itself."""
    return (lambda t: t.tiles[0][0]) if hasattr(tile, "tiles") else (lambda t: t)


def _inference(rng: Random) -> Case:
    shape = tuple(int(n) for n in rng.integers(3, 8, 2))
    noise = _one(rng, NOISES)
    mapped = rng.random() < 0.3
    options = {
        "noise": noise,
        "forward": f"rk.IOParameters({_one(rng, (*IO[:6], AVERAGE, AVERAGE))})",
        "modifier": _one(rng, MODIFIERS),
        "compensation": repr(_one(rng, ["NONE", "GLOBAL", "GLOBAL_EXACT", "PER_COLUMN"])),
        "seed": str(int(rng.integers(1000))),
    }
    if rng.random() < 0.3 and not mapped and "perfect" not in options["forward"]:
        options["input_range"] = "inference.InputRange(learned=True)"
        options["forward"] = "rk.IOParameters()"
    if "PCM" in noise:
        options["converter"] = _one(rng, CONVERTERS)
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    size = ", max_tile=(3, 4)" if mapped else ""
    text = f"{'inference.map_matrix' if mapped else 'rk.InferenceTile'}({shape}{size}, {given})"
    tile = eval(text)
    tile.set_weights(0.5 * _data(rng, *shape))
    x, d = _data(rng, 4, shape[1]), 0.3 * _data(rng, 4, shape[0])
    calls: dict[str, Any] = {
        "forward": lambda t: t.forward(x),
        "backward": lambda t: t.backward(d),
        "update": lambda t: t.update(x, d, 0.1),
        "post_step": lambda t: t.post_step(),
        "set_weights": lambda t: t.set_weights(0.4 * x[:1] + 0.1 * d[:1].T),
        "program": lambda t: t.program(),
        "unprogram": lambda t: t.unprogram(),
        "state": lambda t: t.state(),
    }
    if not mapped:
        calls |= {
            "update_scales": lambda t: t.update_scales(1 + d, d, 0.01),
            "set_scales": lambda t: t.set_scales(1 + 0.5 * d[0]),
            "learn_range": lambda t: t.learn_range(x, 0.1 * x, 0.1),
        }
    stage = int(rng.integers(4))
    if stage == 1:
        tile.post_step()
    elif stage > 1:
        tile.program()
        if stage > 2:
            tile.drift_to(1.0)
        first = _first(tile)
        calls["drift_to"] = lambda t: (
            t.drift_to(86400.0) if first(t).time is not None else t.forward(x)
        )
        calls["read"] = lambda t: t.read() if first(t).time is not None else t.forward(x)
    return _named(text, tile.copy, calls, rng)


@cache
def _circuits() -> list[Any]:
    c = rk.circuits
    mixed = [
        c.inputs(0, c.Gaussian(), 2),
        c.inputs(1, c.Bernoulli(), 2),
        c.inputs(2, c.Poisson(), 2),
    ]
    roots = [
        c.hmm(3, 2, 4),
        c.mixture(3, 3, c.Categorical(n_values=4)),
        c.sum(c.product(*mixed), n_nodes=1),
    ]
    return [
        rk.Circuit(root, seed=3, dtype=dtype) for root in roots for dtype in ("float32", "float64")
    ]


def _circuit(rng: Random) -> Case:
    number = int(rng.integers(len(_circuits())))
    pc = copy.copy(_circuits()[number])
    top = 2 if number > 3 else 4
    x = rng.integers(0, top, (int(rng.integers(2, 40)), 3)).astype(np.float64)
    many = rng.integers(0, top, (600, 3)).astype(np.float64)
    pc.em_step(x, step=0.5)
    if rng.random() < 0.3:
        pc.accumulate(x)
    if rng.random() < 0.3:
        pc.gradient_step(x)
    nodes = next(n for n in pc.layout.nodes if isinstance(n, rk.circuits.SumNodes))
    weights = rng.uniform(0.1, 1, pc.parameters(nodes).shape)
    method, size = _one(rng, FITS), int(rng.integers(3, 20))
    options = {"x_valid": x[:3]} if rng.random() < 0.5 else {}
    calls: dict[str, Any] = {
        "accumulate": lambda t: t.accumulate(x),
        "accumulate many": lambda t: t.accumulate(many),
        "em_step": lambda t: t.em_step(x, step=0.3, pseudocount=0.1),
        "scaled_em_step": lambda t: t.scaled_em_step(x, momentum=0.5),
        "sgd": lambda t: t.gradient_step(x, method="sgd", rate=0.1),
        "adam": lambda t: t.gradient_step(x),
        "fit": lambda t: t.fit(x, n_epochs=2, batch_size=size, method=method, **options),
        "sample": lambda t: t.sample(3),
        "log_likelihood": lambda t: t.log_likelihood(x),
        "flows": lambda t: list(t.flows(x).values()),
        "most_probable": lambda t: t.most_probable(x, missing=x > 1),
        "set_parameters": lambda t: t.set_parameters(nodes, weights),
        "state": lambda t: t.state(),
    }
    return _named(f"circuit {number}, fit by {method}", lambda: copy.copy(pc), calls, rng)


@cache
def _plan(adam: bool) -> tuple[Any, Any]:
    b = rk.tiled.Builder("net")
    x, y = b.input("x", (4, 5)), b.input("y", (4, 2))
    w = np.linspace(-1, 1, 35, dtype=np.float32)
    hidden = b.apply("Relu", b.apply("Gemm", x, b.parameter("v", w.reshape(5, 7))))
    out = b.apply("Gemm", hidden, b.parameter("w", w[:14].reshape(7, 2)))
    optimiser = rk.tiled.Adam(lr=0.01) if adam else rk.tiled.SGD(lr=0.1)
    training = b.training(b.apply("MSELoss", out, y), optimiser)
    return rk.tiled.plan(training, rk.tiled.siracusa_l2(), buffering="double"), training


def _trainer(rng: Random) -> Case:
    plan, training = _plan(bool(rng.random() < 0.5))
    mode = _one(rng, ("at_issue", "at_wait", "mixed", "threads"))
    options = {
        "transfers": mode,
        "n_accumulate": int(rng.integers(1, 3)),
        "undo": bool(rng.random() < 0.8),
    }
    batches = [(_data(rng, 4, 5), _data(rng, 4, 2)) for _ in range(3)]
    n_step = int(rng.integers(3))

    def make() -> Any:
        trainer = plan.trainer(training, **options)
        trainer.fit(batches[:n_step])
        return trainer

    other = make()
    other.fit(batches)

    with tempfile.TemporaryDirectory() as folder:
        other.save(Path(folder) / "state.npz")
        saved = (Path(folder) / "state.npz").read_bytes()

    def load(trainer: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.npz").write_bytes(saved)
            trainer.load(Path(folder) / "state.npz")

    calls: dict[str, Any] = {
        "step": lambda t: t.step(batches[0]),
        "another step": lambda t: t.step(batches[1]),
        "fit": lambda t: t.fit(batches),
        "load": load,
        "gradients": lambda t: t.gradients(),
    }
    return _named(f"trainer {options}", make, calls, rng)


def _product(rng: Random) -> Case:
    rows = [int(n) for n in rng.integers(1, 40, 3)]
    a, dc = rng.normal(size=(80, 3)).astype("f2"), rng.normal(size=(80, 4)).astype("f2")

    def make() -> Any:
        gradient = rk.gemm.WeightGradient((3, 4), np.float16)
        gradient.add(a[: rows[0]], dc[: rows[0]])
        return gradient

    calls: dict[str, Any] = {
        "add": lambda t: t.add(a[: rows[1]], dc[: rows[1]]),
        "add more": lambda t: t.add(a[: rows[2]], dc[: rows[2]]),
        "result": lambda t: t.result(),
    }
    return _named(f"WeightGradient with {rows}", make, calls, rng)


def _estimator(rng: Random) -> Case:
    x, seed = rng.normal(size=(30, 2)), int(rng.integers(100))
    y = (x.sum(axis=1) > 0).astype(int)
    kind = _one(
        rng, ("AnalogClassifier", "AnalogRegressor", "CircuitDensity", "CircuitClassifier")
    )
    fitted = bool(rng.random() < 0.6)
    if kind.startswith("Analog"):
        options: dict[str, Any] = {"hidden_sizes": (3,), "epochs": 2, "batch_size": 12}
    else:
        options = {"n_components": 2, "n_epochs": 2}

    def make() -> Any:
        made = getattr(rk.estimators, kind)(**options, random_state=seed)
        return made.fit(-x, y) if fitted else made

    calls: dict[str, Any] = {"fit": lambda t: t.fit(x, y)}
    if kind.startswith("Analog") and fitted:
        calls["partial_fit"] = lambda t: t.partial_fit(x[:20], y[:20])
        calls["predict"] = lambda t: t.predict(x)
    return _named(f"{kind}, fitted: {fitted}", make, calls, rng)


KINDS: dict[str, Callable[[Random], Case]] = {
    "circuit": _circuit,
    "estimator": _estimator,
    "inference": _inference,
    "product": _product,
    "tile": _tile,
    "trainer": _trainer,
}
