"""Damage files of every kind, and load them: refused by name, or the same state as before.

    python tools/fuzz_files.py --cases 10000 --seconds 600 --seed 1
    python tools/fuzz_files.py --seed 1 --case 17 --write damaged.npz

A case writes an object to a file, damages the file (`tools/file_damage.py`) and loads it. Good
outcomes are a `FormatError`, after which objects that existed before are as they were, and an
object in the very state that was saved. A file that says another state itself, because it has no
checksum or one that was computed anew, may give that state, which then has to work or to raise
errors of rpukit. All else is a failure: other errors,
another state, warnings, loads that take more than some seconds, requests of more than a gigabyte
of memory, a crash. A failure is printed with the commands that repeat it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import rpukit as rk  # noqa: E402
from tools import file_damage  # noqa: E402

SECONDS = 10  # of a processor, of one load
ROOM = 1 << 30  # bytes that a load may ask for
CHUNK = 250  # cases of one child process, whose crash ends no more than these
REFUSED, EQUAL, SAID, FAILED = "refused", "identical", "another state that the file says", "failed"

Loader = Callable[[Path], Any]
Counts = collections.Counter[tuple[str, str]]


class Source:
    """A file, what loads it, and what shows the state of a loaded object."""

    def __init__(
        self,
        save: Callable[[Path], None],
        load: Loader,
        show: Callable[[Any], Any],
        use: Callable[[Any], Any],
        kind: str,
    ) -> None:
        suffix = {"json": ".json", "csv": ".csv"}.get(kind, ".npz")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            save(path)
            self.data = path.read_bytes()
            self.load, self.show, self.use, self.suffix = load, show, use, suffix
            self.right = pickle.dumps(plain(show(load(path))))
        table = {"json": file_damage.JSON, "csv": file_damage.TABLE}
        self.damages = table.get(kind, file_damage.ARCHIVE)


def plain(value: Any) -> Any:
    """Turn a state into what compares to the bit."""
    if isinstance(value, dict):
        return {str(name): plain(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return repr(value)


# ---- objects -----------------------------------------------------------------------------------

TILES = {
    "tile ideal": ("rk.Ideal()", ""),
    "tile soft bounds": ("rk.SoftBounds(diffusion=0.01, lifetime=9.0)", "count_pulses=True"),
    "tile drawn": ("rk.SoftBounds()", "storage='procedural'"),
    "tile float64": ("rk.ExpStep()", "dtype='float64'"),
    "tile power": ("rk.PowStep(write_noise_std=1.0)", "forward=rk.IOParameters(ir_drop=0.3)"),
    "tile piecewise": ("rk.PiecewiseStep(piecewise_up=(1.5, 1, 0.2))", ""),
    "tile drift": ("rk.ConstantStep(drift=rk.DriftParameters(nu=0.1))", ""),
    "tile one-sided": ("rk.OneSided(device=rk.SoftBounds(w_min=0), refresh_every=2)", ""),
    "tile vector": ("rk.Vector(devices=(rk.SoftBounds(), rk.LinearStep()))", ""),
    "tile chopped": ("rk.ChoppedTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()))", ""),
    "tile dynamic": ("rk.DynamicTransfer(devices=(rk.SoftBounds(), rk.SoftBounds()))", ""),
    "tile mixed": ("rk.MixedPrecision(device=rk.SoftBounds())", ""),
}
INFERENCE = {
    "inference": "rk.InferenceTile((3, 4), seed=2, compensation='global')",
    "inference digital": "rk.InferenceTile((3, 4), modifier=rk.inference.WeightModifier("
    "type='ADD_NORMAL', std_dev=0.1))",
    "inference pairs": "rk.InferenceTile((3, 4), converter=rk.inference.NPairs(factors=(1, 4)), "
    "input_range=rk.inference.InputRange())",
    "mapped": "rk.inference.map_matrix((3, 4), max_tile=(2, 2), seed=2)",
}


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).uniform(-1, 1, shape).astype("f4")


def _tile(cell: str, options: str) -> Any:
    names = {"rk": rk}
    tile = eval(f"rk.AnalogTile((3, 4), {cell}, seed=3, {options})", names)
    real = tile.dtype
    tile.update(data(5, 4).astype(real), data(5, 3).astype(real), 0.1)
    tile.drift(2.0)
    tile.forward(data(2, 4).astype(real))
    return tile


def _inference(text: str, digital: bool) -> Any:
    tile = eval(text, {"rk": rk}).set_weights(data(3, 4) / 4)
    if digital:
        return tile.post_step()
    return tile.program().drift_to(3600.0)


def _circuit(kind: str) -> Any:
    if kind == "circuit":
        pc = rk.Circuit(rk.circuits.hmm(4, 3, 5), seed=1)
    elif kind == "circuit gaussian":
        leaves = [rk.circuits.inputs(v, rk.circuits.Gaussian(), 2) for v in range(2)]
        pc = rk.Circuit(rk.circuits.sum(rk.circuits.product(*leaves), n_nodes=1), seed=1)
        pc.accumulate(data(6, 2))
        return pc
    else:
        pc = rk.Circuit(rk.circuits.pd((2, 3), 2, rk.circuits.Categorical(n_values=5)), seed=1)
    x = np.random.default_rng(1).integers(0, 5, (7, pc.n_variables))
    pc.gradient_step(x)
    pc.accumulate(x)
    return pc


@cache
def _training() -> tuple[Any, Any]:
    b = rk.tiled.Builder("line")
    x, y = b.input("x", (4, 3)), b.input("y", (4, 1))
    out = b.apply("Gemm", x, b.parameter("w", data(1, 3)), transB=1)
    training = b.training(b.apply("MSELoss", out, y), rk.tiled.Adam(lr=0.1))
    return training, rk.tiled.plan(training, rk.tiled.siracusa_l2())


def trainer(steps: int) -> Any:
    """A trainer after some steps."""
    training, plan = _training()
    made = plan.trainer(training)
    made.fit([(data(4, 3), data(4, 1))] * steps)
    return made


def _loaded_trainer(path: Path) -> Any:
    one = trainer(1)
    before = plain(_of_trainer(one))
    try:
        one.load(path)
    except Exception:
        assert plain(_of_trainer(one)) == before, "a refused file changed the trainer"
        raise
    return one


def _of_trainer(one: Any) -> Any:
    return one.n_step, one.parameters(everything=True)


def _table(path: Path) -> None:
    from rpukit.tiled.planner.addresses import Block, write_csv

    blocks = [Block(f"b{k}", k, k + 2, 64) for k in range(4)]
    write_csv(path, blocks, {block.name: 64 * k for k, block in enumerate(blocks)})


def _read_table(path: Path) -> Any:
    from rpukit.tiled.planner.addresses import read_csv

    return read_csv(path)


def _use_tile(tile: Any) -> None:
    n_out, n_in = tile.shape
    real = getattr(tile, "dtype", np.float32)
    x, d = data(2, n_in).astype(real), data(2, n_out).astype(real)
    tile.forward(x)
    tile.backward(d)
    tile.update(x, d, 0.1)


def _use_circuit(pc: Any) -> None:
    x = np.zeros((2, pc.n_variables), np.int64)
    pc.log_likelihood(x)
    pc.em_step(x)
    pc.sample(2)


def _network() -> Any:
    """A network with a layer of every form in files."""
    nn = rk.layers
    first = nn.Conv2d(2, 2, (2, 1), rk.SoftBounds(), stride=(1, 2), tile_shape=(2, 3))
    last = nn.Dense(4, 3, rk.Ideal())
    return nn.Network([first, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), last])


@cache
def source(name: str) -> Source:
    """Make a file of a kind."""
    if name == "trainer":
        return Source(
            lambda path: trainer(3).save(path),
            _loaded_trainer,
            _of_trainer,
            lambda one: one.step((data(4, 3), data(4, 1))),
            "npz",
        )
    if name == "plan":
        plan = _training()[1]
        return Source(
            lambda path: Path(path).write_text(plan.to_json(), encoding="utf-8") and None,
            lambda path: rk.tiled.Plan.from_json(path.read_bytes().decode("utf-8", "replace")),
            lambda one: one.to_json(),
            lambda one: one.trainer(_training()[0]).step((data(4, 3), data(4, 1))),
            "json",
        )
    if name == "table":
        return Source(_table, _read_table, lambda both: both, lambda both: None, "csv")
    if name in TILES:
        made = _tile(*TILES[name])
    elif name in INFERENCE:
        made = _inference(INFERENCE[name], name == "inference digital")
    elif name in CIRCUITS:
        made = _circuit(name)
    use = _use_circuit if name in CIRCUITS else _use_tile
    if name == "network":
        made, use = _network(), lambda one: one.forward(data(2, 2, 4, 3))
    return Source(lambda path: rk.save(path, made), rk.load, lambda one: one.state(), use, "npz")


CIRCUITS = ("circuit", "circuit gaussian", "circuit grid")
KINDS = (*TILES, *INFERENCE, *CIRCUITS, "network", "trainer", "plan", "table")


# ---- cases -------------------------------------------------------------------------------------


class TooSlow(BaseException):
    """A load took too long."""


def _alarm(*_: Any) -> None:
    raise TooSlow


@contextlib.contextmanager
def bounded(room: int | None) -> Iterator[None]:
    """Bound the time and the memory of a load."""
    old = [signal.signal(one, _alarm) for one in (signal.SIGALRM, signal.SIGPROF)]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if room is not None:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + room, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # others may keep the machine busy
    signal.setitimer(signal.ITIMER_REAL, 20 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for one, handler in zip((signal.SIGALRM, signal.SIGPROF), old, strict=True):
            signal.signal(one, handler)


def damaged(seed: int, number: int, kinds: tuple[str, ...]) -> tuple[str, str, bytes, bool]:
    """Make the file of a case; return its kind, the damage, its bytes and if it may differ."""
    rng = np.random.default_rng([seed, number])
    kind = kinds[int(rng.integers(len(kinds)))]
    own = source(kind)
    damage = own.damages[int(rng.integers(len(own.damages)))]
    content, may_differ = damage(own.data, rng)
    return kind, damage.__name__, content, may_differ


def outcome(kind: str, content: bytes, may_differ: bool, room: int | None = ROOM) -> str:
    """Load a damaged file; return the outcome, with what went wrong after a colon."""
    own = source(kind)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        path = Path(folder) / f"file{own.suffix}"
        path.write_bytes(content)
        try:
            with bounded(room):
                loaded = own.load(path)
                found = pickle.dumps(plain(own.show(loaded)))
                if found != own.right and may_differ:
                    with contextlib.suppress(rk.errors.RpukitError):
                        own.use(loaded)
        except rk.errors.FormatError as error:
            asked = isinstance(error.__cause__, MemoryError) or "MemoryError" in str(error)
            found = b"" if not asked else f"{FAILED}: memory asked for: {error}".encode()
        except TooSlow:
            return f"{FAILED}: took {SECONDS} s"
        except Exception as error:
            return f"{FAILED}: {type(error).__name__}: {str(error)[:200]}"
        gc.collect(1)
    if told:
        return f"{FAILED}: {told[0].category.__name__}: {told[0].message}"
    if not found:
        return REFUSED
    if found.startswith(FAILED.encode()):
        return found.decode()
    if found == own.right:
        return EQUAL
    return SAID if may_differ else f"{FAILED}: another state"


def case(seed: int, number: int, kinds: tuple[str, ...] = KINDS) -> tuple[str, str, str]:
    """Run a case; return its kind, the damage and the outcome."""
    kind, damage, content, may_differ = damaged(seed, number, kinds)
    return kind, damage, outcome(kind, content, may_differ)


def chunk(seed: int, numbers: range, kinds: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Run cases in a child process, which may crash."""
    get, put = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(put, "wb") as file:
                for number in numbers:
                    pickle.dump(case(seed, number, kinds), file)
                    file.flush()
        except BaseException:  # of the fuzzer itself
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(put)
    found = []
    with os.fdopen(get, "rb") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except EOFError:
                break
    status = os.waitpid(child, 0)[1]
    if status:
        kind, damage, _, _ = damaged(seed, numbers[len(found)], kinds)
        found.append((kind, damage, f"{FAILED}: the process ended with status {status}"))
    return found


def report(kinds: tuple[str, ...], counts: Counts, faults: collections.Counter[str]) -> None:
    """Print the outcomes by kind of file, and the kinds of failures."""
    outcomes = (REFUSED, EQUAL, SAID, FAILED)
    print(f"\n{'kind':20}" + "".join(f"{name[:14]:>16}" for name in outcomes))
    for kind in (*kinds, "all"):
        row = [
            sum(n for (k, o), n in counts.items() if o == name and kind in (k, "all"))
            for name in outcomes
        ]
        print(f"{kind:20}" + "".join(f"{n:16}" for n in row))
    for sort, n in faults.most_common(40):
        print(f"{n:6} {sort}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--case", type=int, help="make this case alone")
    parser.add_argument("--write", type=Path, help="where the damaged file of --case is written")
    options = parser.parse_args()
    kinds = tuple(options.kinds.split(","))
    if options.case is not None:
        kind, damage, content, may_differ = damaged(options.seed, options.case, kinds)
        if options.write:
            options.write.write_bytes(content)
        print(f"{kind}, {damage}: {outcome(kind, content, may_differ)}")
        return 0
    for kind in kinds:  # once, before children are forked
        source(kind)
    begin, number = time.monotonic(), 0
    counts: Counts = collections.Counter()
    faults: collections.Counter[str] = collections.Counter()
    while number < options.cases and time.monotonic() - begin < options.seconds:
        found = chunk(options.seed, range(number, min(number + CHUNK, options.cases)), kinds)
        for kind, damage, result in found:
            what, _, why = result.partition(": ")
            counts[kind, what] += 1
            if what == FAILED:
                sort = f"{damage}: {why[:60]}"
                faults[sort] += 1
                if faults[sort] <= 2:
                    command = f"--seed {options.seed} --case {number} --write damaged.npz"
                    command += f" --kinds '{options.kinds}'" * (kinds != KINDS)
                    print(f"\n# {kind}, {damage}: {why}\npython tools/fuzz_files.py {command}")
                    print("python -c \"import rpukit as rk; rk.load('damaged.npz')\"", flush=True)
            number += 1
    report(kinds, counts, faults)
    spent = time.monotonic() - begin
    print(f"{number} files in {spent:.0f} s: {faults.total()} failures of {len(faults)} kinds")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
