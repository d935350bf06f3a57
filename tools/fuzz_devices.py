"""Compare random programs on several devices: the same bits, or the same kind of error.

    python tools/fuzz_devices.py --devices cpu,gpu:0,gpu:1 --cases 10000 --seconds 600 --seed 1
    python tools/fuzz_devices.py --devices cpu,gpu:1 --seed 1 --case 17

A case is a short program: it makes an object (a tile of any cell, an inference tile, a mapped
matrix, a circuit, products) and calls it. It is run once from each device of the list; objects
that can be split are on one device in the first run, and on all GPUs of the list in the others.
Batches are cut at random places, objects are moved between the devices of the run, saved and
loaded, while any GPU is the current one and any stream is current on it. What a run keeps is
compared to the bit with that of the first device. A case that differs is printed as a program,
with the command that runs it alone. ``runner`` among the devices stands for the CUDA sources on
the CPU; with ``--pretend`` two GPUs that are none notice work on the wrong device or stream.

A program that is new compiles kernels and times variants, which takes longer than the program.
``--programs 60`` takes the programs of all cases from 60, on other data each time; these are the
same for all seeds, so that processes share what they compile. Now and then the memory that the
allocator keeps is given back, so that an address comes again, perhaps on another GPU.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import rpukit as rk  # noqa: E402
from rpukit import _device  # noqa: E402
from tools.fuzz_programs import KINDS, program  # noqa: E402

RUNNER, LOST = "runner", "the GPU was lost:"
FORGET = 0.03  # how often memory is given back between calls
SPLITS = ("outputs", "inputs")


class World:
    """Devices of a run, and the functions that the program of a case calls.

    Parameters
    ----------
    start : str
        Device that objects are made on.
    devices : list of str
        Devices that they may be moved to.
    seed : int
        Of what differs from run to run: cuts, moves, current devices and streams.
    several : bool
        Whether objects that can be split are on all devices of the run.
    """

    def __init__(self, start: str, devices: list[str], seed: int, several: bool = False) -> None:
        self.device = "cpu" if start == RUNNER else start
        self.devices = [d for d in devices if d != RUNNER] if start != RUNNER else ["cpu"]
        if start == "cpu":
            self.devices = ["cpu"]
        self.gpus = [int(d.partition(":")[2] or 0) for d in devices if d.startswith("gpu")]
        self.rng, self.kept, self.streams = np.random.default_rng(seed), [], {}
        gpus = sorted({d for d in devices if d.startswith("gpu")})
        here = gpus if self.device.startswith("gpu") else ["cpu", "cpu"]
        self.places = here if several and len(here) > 1 else []

    # ---- what programs call --------------------------------------------------------------------

    def put(self, array: Any) -> Any:
        """Copy an array to the present device of the object."""
        return _device.to_device(np.asarray(array), _device.parse_device(self.device))

    def keep(self, *values: Any) -> None:
        """Keep results for the comparison, on the CPU."""
        for value in values:
            self.kept.extend(flat(value))
        self.wander()

    def split(self, plain: Any, sharded: Any, *args: Any, axes: Any = None, **options: Any) -> Any:
        """Make an object on one device, or on all of them in any order."""
        axis = {} if sharded is rk.Circuit else {"split": str(self.rng.choice(axes or SPLITS))}
        if not self.places or (sharded is rk.Circuit and self.device == "cpu"):
            return plain(*args, device=self.device, **options)
        places = tuple(map(str, self.rng.permutation(self.places)))
        self.device = places[0]
        if sharded is rk.Circuit:
            return rk.Circuit(*args, devices=places, **options)
        return sharded(*args, places, **axis, **options)

    def linear(self, weight: Any, x: Any, dy: Any, targets: Any) -> list[Any]:
        """Multiply by a weight, on one device or split over all of them."""
        if not self.places:
            w, rows, slopes, codes = map(self.put, (weight, x, dy, targets))
            y = rk.det_gemm(rows, w, trans_b=True)
            back = rk.det_gemm_backward(rows, w, slopes, trans_b=True)[0]
            return [y, back, rk.linear_logprob(rows, w, codes)]
        split = str(self.rng.choice(SPLITS))
        layer = rk.ShardedLinear.cut(weight, tuple(self.places), split=split)
        self.device = self.places[0]
        rows, slopes, codes = map(self.put, (x, dy, targets))
        return [layer.forward(rows), layer.backward(rows, slopes)[0], layer.logprob(rows, codes)]

    def captured(self, circuit: Any, x: Any, step: float) -> Any:
        """Take a step of EM, on GPUs as a graph."""
        x = self.put(x)
        if not (_device.is_cupy(x) and hasattr(_device.cupy().cuda, "MemoryPool")):
            return circuit.em_step(x, step=step)
        with circuit.captured(len(x), step=step) as call:
            self.wander()
            return flat(call(x))

    def cut(self, call: Callable[..., Any], *arrays: Any, join: bool = True) -> Any:
        """Split a batch at random, make a call for each piece, and join the results."""
        n = len(arrays[0])
        n_cut = int(self.rng.integers(0, min(3, n))) if n > 1 else 0
        edges = [0, *sorted(self.rng.choice(np.arange(1, n), n_cut, replace=False).tolist()), n]
        parts = []
        for start, stop in pairwise(edges):
            parts.append(call(*(self.put(a[start:stop]) for a in arrays)))
            self.wander()
        return [np.concatenate([flat(p)[0] for p in parts])] if join else None

    def moved(self, thing: Any) -> Any:
        """Move an object to any device of the run."""
        self.device = str(self.rng.choice(self.devices))
        return thing.to(self.device)

    def reloaded(self, thing: Any) -> Any:
        """Save an object, or pickle it, and load it to any device of the run."""
        self.device = str(self.rng.choice(self.devices))
        if self.rng.random() < 0.3:
            return pickle.loads(pickle.dumps(thing)).to(self.device)
        with tempfile.TemporaryDirectory() as folder:
            rk.save(Path(folder) / "thing.npz", thing)
            return rk.load(Path(folder) / "thing.npz", self.device)

    # ---- what must not matter ------------------------------------------------------------------

    def wander(self) -> None:
        """Make a random GPU the current one, and a random stream its current stream."""
        if not self.gpus:
            return
        cuda = _device.cupy().cuda
        if self.rng.random() < FORGET:
            self.forget()
        for gpu in self.gpus:
            if self.rng.random() < 0.2:
                cuda.Device(gpu).use()
                cuda.get_current_stream().synchronize()  # a user orders his own streams
                self.stream(gpu).use()
        cuda.Device(int(self.rng.choice(self.gpus))).use()

    def forget(self) -> None:
        """Give back the memory that the allocator keeps."""
        cupy = _device.cupy()
        if not hasattr(cupy, "get_default_memory_pool"):  # simulated GPUs
            return
        for gpu in self.gpus:
            with cupy.cuda.Device(gpu) as device:
                device.synchronize()
                cupy.get_default_memory_pool().free_all_blocks()

    def stream(self, gpu: int) -> Any:
        """One of two streams of a GPU, which is the current one."""
        cuda = _device.cupy().cuda
        if self.rng.random() < 0.5:
            return cuda.Stream.null
        if gpu not in self.streams:
            self.streams[gpu] = cuda.Stream(non_blocking=True)
        return self.streams[gpu]

    def leave(self) -> None:
        """Restore the first GPU and the default streams."""
        cuda = _device.cupy().cuda if self.gpus else None
        for gpu in self.gpus[::-1]:
            cuda.Device(gpu).use()
            cuda.get_current_stream().synchronize()
            cuda.Stream.null.use()


def flat(value: Any) -> list[np.ndarray]:
    """List the arrays of a result, on the CPU."""
    if isinstance(value, dict):
        return [a for name in sorted(value, key=str) for a in flat(value[name])]
    if isinstance(value, (tuple, list)):
        return [a for v in value for a in flat(v)]
    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return [np.array(0 if value is None else value)]
    return [np.array(_device.to_numpy(value))]


def run(
    text: str, start: str, devices: list[str], seed: int, shift: int = 0, several: bool = False
) -> tuple[str, list[np.ndarray]]:
    """Run a program from a device; return the kind of its error, or "", and its results.

    ``shift`` is added to the seeds of its data.
    """
    world = World(start, devices, seed, several)
    names = {
        "np": np,
        "rk": rk,
        "world": world,
        "data": lambda shape, own, *more: data(shape, own + shift, *more),
        "integers": lambda high, shape, own: integers(high, shape, own + shift),
    }
    calls = ("put", "keep", "cut", "moved", "reloaded", "split", "linear", "captured")
    names |= {name: getattr(world, name) for name in calls}
    try:
        with on(start, seed):
            world.wander()
            exec(compile(text, "<case>", "exec"), names)
    except rk.errors.RpukitError as error:
        return type(error).__name__, world.kept
    finally:
        world.leave()
    return "", world.kept


def on(start: str, seed: int) -> AbstractContextManager[None]:
    """Use the CPU runner for kernels, in a random order of threads, if requested."""
    return rk.testing.on_cpu(seed % 3) if start == RUNNER else nullcontext()


def data(shape: Any, seed: int, dtype: str = "f4", scale: float = 1.0) -> np.ndarray:
    """Numbers in [-scale, scale)."""
    return (np.random.default_rng(seed).uniform(-scale, scale, shape)).astype(dtype)


def integers(high: int, shape: Any, seed: int) -> np.ndarray:
    """Numbers from 0, below a bound."""
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)


def difference(one: tuple[str, list], two: tuple[str, list]) -> str:
    """Describe how two runs differ; "" if they agree."""
    if one[0] != two[0]:
        return f"{one[0] or 'no error'} and {two[0] or 'no error'}"
    if one[0]:
        return ""  # an error on a GPU may come some calls later
    if len(one[1]) != len(two[1]):
        return f"{len(one[1])} and {len(two[1])} results"
    for k, (a, b) in enumerate(zip(one[1], two[1], strict=True)):
        try:
            rk.testing.assert_same_bits(b, a)
        except AssertionError as error:
            return f"result {k}: {error}"
    return ""


@contextmanager
def installed(devices: list[str], *, pretend: bool) -> Iterator[None]:
    """Install the runner of the tests or simulated GPUs, if requested."""
    if RUNNER in devices or pretend:
        from tests.on_cpu import runner

        rk.testing.set_runner(runner.run)
    if not pretend:
        yield
        return
    import pytest

    from tests.on_cpu import two_gpus

    with two_gpus.installed(pytest.MonkeyPatch()):
        yield


def case(
    seed: int, number: int, devices: list[str], kinds: list[str], n_program: int | None = None
) -> tuple[str, str, str]:
    """Run one case; return its kind, its program and the differences between devices."""
    rng = np.random.default_rng([seed, number])
    written = rng if n_program is None else np.random.default_rng(int(rng.integers(n_program)))
    shift = 0 if n_program is None else int(rng.integers(1 << 20))
    kind = str(written.choice(kinds))
    text = program(kind, written)
    expected, found = None, ""
    for k, device in enumerate(devices):
        try:
            result = run(text, device, devices, int(rng.integers(1 << 31)), shift, k > 0)
        except Exception as error:  # what is no RpukitError is a fault by itself
            first = error
            while first.__context__ is not None:
                first = first.__context__
            text_of = "".join(traceback.format_exception(first, limit=-12))
            found = f"{device}: {text_of}"
            if "cudaError" in str(first):  # of which a GPU does not recover
                found = f"{LOST} {found}"
            break
        if k == 0:
            expected = result
        elif difference(expected, result):
            found = f"{devices[0]} and {device}: {difference(expected, result)}"
            break
    return kind, text, found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", default="cpu,runner")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case alone, and print its program")
    parser.add_argument(
        "--pretend", action="store_true", help="two GPUs of tests/on_cpu/two_gpus.py"
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--programs", type=int, help="take programs from so many")
    options = parser.parse_args()
    devices, kinds = options.devices.split(","), options.kinds.split(",")
    numbers = range(options.cases) if options.case is None else [options.case]
    begin, counts, failed = time.monotonic(), collections.Counter(), 0
    with installed(devices, pretend=options.pretend):
        for number in numbers:
            if time.monotonic() - begin > options.seconds:
                break
            kind, text, found = case(options.seed, number, devices, kinds, options.programs)
            counts[kind] += 1
            if sum(counts.values()) % 100 == 0:
                print(
                    f"# {sum(counts.values())} cases, {time.monotonic() - begin:.0f} s", flush=True
                )
            if options.case is not None:
                print(text)
            if found:
                failed += 1
                command = f"--seed {options.seed} --case {number} --kinds {options.kinds}"
                command += f" --programs {options.programs}" if options.programs else ""
                print(f"\n# {found}\n# python tools/fuzz_devices.py --devices {options.devices} "
                      f"{command}\n{text}", flush=True)  # fmt: skip
                if found.startswith(LOST):
                    break
    done = ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items()))
    print(f"{sum(counts.values())} cases ({done}) on {', '.join(devices)}: {failed} differ")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
