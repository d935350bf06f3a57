"""Go on from files at random points, and kill processes while they save.

    python tools/fuzz_resume.py --points 200 --kills 200 --seed 1
    python tools/fuzz_resume.py --points 200 --kills 0 --device gpu

A point: an object (a tile of any cell, an inference tile, a circuit, a trainer) makes some calls
twice, the second time with a save and a load, or a pickle, at a random place among them. Results
and the final state have to agree to the bit. A kill: a process saves two states to one file, over
and over, until SIGKILL ends it. The file then has to load, and to hold one of the two.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import rpukit as rk  # noqa: E402
from rpukit import _device  # noqa: E402
from tools.fuzz_files import plain  # noqa: E402
from tools.fuzz_programs import COMPOUND, PULSED  # noqa: E402

Random = np.random.Generator
LEAST, MOST = 2, 9  # calls

OPTIONS = ("", ", storage='procedural'", ", count_pulses=True", ", dtype='float64'",
           ", forward=rk.IOParameters(out_noise_std=0.2, w_noise=0.1, "
           "w_noise_type='ADDITIVE_CONSTANT')",
           ", update=rk.UpdateParameters(pulse_type='MEAN_COUNT')",
           ", forward=rk.IOParameters(noise_management='AVERAGE_ABS_MAX')")  # fmt: skip
CIRCUITS = (
    "rk.circuits.hmm(5, 3, 6)",
    "rk.circuits.pd((2, 2), 2, rk.circuits.Categorical(n_values=6))",
    "rk.circuits.rat_spn(6, 2, rk.circuits.Binomial(n_trials=5))",
)


def numbers(rng: Random, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape)


def on_host(value: Any) -> Any:
    """Give arrays of a GPU, within lists and dictionaries, as NumPy's."""
    if isinstance(value, dict):
        return {name: on_host(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [on_host(member) for member in value]
    return _device.to_numpy(value) if hasattr(value, "dtype") and hasattr(value, "ndim") else value


class Tile:
    """A tile of any cell and option."""

    device = "cpu"

    def __init__(self, rng: Random) -> None:
        cell = str(rng.choice(["rk.Ideal()", *PULSED, *COMPOUND]))
        options = str(rng.choice(OPTIONS))
        self.text = f"rk.AnalogTile((5, 7), {cell}, seed={int(rng.integers(99))}{options})"
        try:
            self.make()
        except rk.errors.RpukitError:  # not every cell takes every option
            self.text = f"rk.AnalogTile((5, 7), {cell})"

    def make(self) -> Any:
        return eval(f"{self.text[:-1]}, device={self.device!r})", {"rk": rk})

    def put(self, array: np.ndarray) -> Any:
        """Copy inputs to the device of the object."""
        return _device.to_device(array, _device.parse_device(self.device))

    def call(self, tile: Any, rng: Random) -> Any:
        """Make one call; return its result."""
        n, how = int(rng.integers(1, 6)), int(rng.integers(9))
        x, d = (self.put(numbers(rng, n, k).astype(tile.dtype)) for k in (7, 5))
        if how == 0:
            return tile.forward(x)
        if how == 1:
            return tile.backward(d)
        if how == 2:
            tile.set_weights(self.put(numbers(rng, 5, 7).astype(tile.dtype) / 4))
        elif how == 3:
            process = str(rng.choice(["decay", "diffuse", "post_step"]))
            getattr(tile, process)()
        elif how == 4:
            tile.reset(0, 2)
        elif how == 5:
            tile.drift(1.5)
        else:
            tile.update(x, d, 0.1)
        return tile.get_weights()

    def load(self, path: Path) -> Any:
        return rk.load(path, device=self.device)

    save, show = staticmethod(rk.save), staticmethod(lambda t: t.state())


class Inference(Tile):
    """An inference tile or a mapped matrix."""

    TEXTS = (
        "rk.InferenceTile((5, 7), compensation='per_column', seed=4)",
        "rk.InferenceTile((5, 7), modifier=rk.inference.WeightModifier(type='ADD_NORMAL', "
        "std_dev=0.1), input_range=rk.inference.InputRange())",
        "rk.InferenceTile((5, 7), noise=rk.inference.ReRamCMO())",
        "rk.inference.map_matrix((5, 7), max_tile=(3, 4), seed=2)",
    )

    def __init__(self, rng: Random) -> None:
        self.text = str(rng.choice(self.TEXTS))

    def call(self, tile: Any, rng: Random) -> Any:
        n, how = int(rng.integers(1, 6)), int(rng.integers(7))
        x, d = (self.put(numbers(rng, n, k).astype("f4")) for k in (7, 5))
        if how == 0:
            tile.set_weights(self.put(numbers(rng, 5, 7).astype("f4") / 4))
        elif how == 1:
            tile.update(x, d, 0.01)
        elif how == 2:
            tile.post_step()
        elif how == 3:
            tile.program().drift_to(25.0)
        elif how == 4:
            tile.program().read()
        return tile.forward(x), tile.backward(d)


class Circuit(Tile):
    """A circuit that learns and draws."""

    def __init__(self, rng: Random) -> None:
        dtype = str(rng.choice(["float32", "float64"]))
        self.text = f"rk.Circuit({rng.choice(CIRCUITS)}, seed=3, dtype='{dtype}')"

    def call(self, pc: Any, rng: Random) -> Any:
        x = self.put(rng.integers(0, 6, (int(rng.integers(1, 300)), pc.n_variables)))
        how = int(rng.integers(7))
        if how == 0:
            return pc.sample(4)
        if how == 1:
            return pc.em_step(x)
        if how == 2:
            return pc.gradient_step(x, method=str(rng.choice(["adam", "sgd"])))
        if how == 3:
            return pc.scaled_em_step(x)
        if how == 4:
            pc.fit(x, n_epochs=1, batch_size=64)
        return pc.accumulate(x)


class Trainer:
    """A trainer of a small network."""

    device = "cpu"

    def __init__(self, rng: Random) -> None:
        kind = str(rng.choice(["SGD", "MomentumSGD", "Adam"]))
        b = rk.tiled.Builder("net")
        x, y = b.input("x", (4, 3)), b.input("y", (4, 2))
        start = np.random.default_rng(1)
        hidden = b.apply("Relu", b.apply("Gemm", x, b.parameter("w", numbers(start, 3, 5))))
        out = b.apply("Gemm", hidden, b.parameter("v", numbers(start, 5, 2)))
        self.training = b.training(b.apply("MSELoss", out, y), getattr(rk.tiled, kind)(lr=0.05))
        self.plan = rk.tiled.plan(self.training, rk.tiled.siracusa_l2())
        self.n = int(rng.choice([1, 2, 3])) if self.training.accumulators else 1
        self.text = f"a trainer by {kind}, {self.n} mini-batches for an update"

    def make(self) -> Any:
        return self.plan.trainer(self.training, n_accumulate=self.n, device=self.device)

    def call(self, one: Any, rng: Random) -> Any:
        return one.step((numbers(rng, 4, 3).astype("f4"), numbers(rng, 4, 2).astype("f4")))

    @staticmethod
    def save(path: Path, one: Any) -> None:
        one.save(path)

    def load(self, path: Path) -> Any:
        made = self.make()
        made.load(path)
        return made

    @staticmethod
    def show(one: Any) -> Any:
        return one.n_step, one.parameters(everything=True)


KINDS: dict[str, Callable[[Random], Any]] = {
    "tile": Tile,
    "inference": Inference,
    "circuit": Circuit,
    "trainer": Trainer,
}


def point(
    seed: int, number: int, kinds: tuple[str, ...] = tuple(KINDS), device: str = "cpu"
) -> tuple[str, str]:
    """Run a case; return the object as text, and how the two runs differ ("" if they do not)."""
    rng = np.random.default_rng([seed, number])
    own = KINDS[kinds[number % len(kinds)]](rng)
    n_call, calls = int(rng.integers(LEAST, MOST)), int(rng.integers(1 << 31))
    cut, pickled = int(rng.integers(n_call)), rng.random() < 0.2
    runs = []
    own.device = device
    for place in (None, cut):
        thing, results = own.make(), []
        for k in range(n_call):
            if k == place:
                thing = reloaded(own, thing, pickled)
            results.append(own.call(thing, np.random.default_rng([calls, k])))
        runs.append([plain(on_host(one)) for one in (*results, own.show(thing))])
    wrong = [k for k, (a, b) in enumerate(zip(*runs, strict=True)) if a != b]
    return own.text, f"saved before call {cut} of {n_call}: {wrong} differ" if wrong else ""


def reloaded(own: Any, thing: Any, pickled: bool) -> Any:
    """Save and load an object."""
    if pickled and not isinstance(own, Trainer) and own.device == "cpu":
        return pickle.loads(pickle.dumps(thing))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thing.npz"
        own.save(path, thing)
        return own.load(path)


def killed_saves(path: Path, both: list[Any], n: int, rng: Random) -> Iterator[Any]:
    """Kill n processes that save two objects to a file in turn; yield what the file holds."""
    begin = time.monotonic()
    rk.save(path, both[0])
    span = 2 * (time.monotonic() - begin)
    for _ in range(n):
        child = os.fork()
        if child == 0:
            try:
                while True:
                    for one in both:
                        rk.save(path, one)
            finally:
                os._exit(1)
        time.sleep(0.01 + float(rng.uniform(0, 2 * span)))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        assert os.WTERMSIG(status) == signal.SIGKILL, "the process ended before it was killed"
        yield rk.load(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--device", default="cpu", help="of the objects")
    options = parser.parse_args()
    kinds, failed, texts = tuple(options.kinds.split(",")), 0, set()
    for number in range(options.points):
        text, wrong = point(options.seed, number, kinds, options.device)
        texts.add(text)
        if number % 10 == 9:
            print(f"{number + 1} points, {len(texts)} different objects", flush=True)
        if wrong:
            failed += 1
            print(f"--seed {options.seed}, point {number}: {text}: {wrong}", flush=True)
    print(f"{options.points} points of {len(texts)} different objects: {failed} differ")
    big = [rk.AnalogTile((200, 300), rk.SoftBounds(), seed=seed) for seed in (1, 2)]
    states = [plain(one.state()) for one in big]
    held = [0, 0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tile.npz"
        rng = np.random.default_rng(options.seed)
        for found in killed_saves(path, big, options.kills, rng):
            held[states.index(plain(found.state()))] += 1
        left = len(os.listdir(folder)) - 1
    print(f"{options.kills} processes killed: the file held the first state {held[0]} times, the "
          f"second {held[1]} times; {left} hidden files were left")  # fmt: skip
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
