"""Check and measure all GPUs of a host in one run of about four minutes.

    python tools/measure_all_gpus.py [--gpus 2] [--seconds 240] [--fuzz 100] [--processes 24]
        [--out folder] [--only fuzz,large,tests,hmm,hclt,tile,head]

First, at the same time: random programs by `fuzz_devices` in many processes (a third of them
beside the CPU, the others on the GPUs alone), a tile of 65,536 x 65,536 cells that is trained on
all GPUs and on one, and saved, and the tests that need several GPUs. Then, one after the other on
the idle machine, the tables of `measure_gpus` and `measure_split`. What does not fit into the time
is left out, and said so. Each part's output goes to a file of its own; the end of it is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(ROOT))

from tools import fuzz_devices  # noqa: E402

CHECKER = Path("/usr/local/cuda/bin/compute-sanitizer")
LINES = re.MULTILINE | re.DOTALL
PARTS = ("fuzz", "large", "tests", "tile", "hmm", "head", "hclt")
TESTS = (  # files with tests that need several GPUs
    "tests/analog/test_sharded.py",
    "tests/gemm/test_sharded.py",
    "tests/circuits/test_devices.py",
    "tests/machinery/test_launch.py",
    "tests/machinery/test_fuzz_devices.py",
)
STEP_ROWS = 2048  # rows of a weight that are hashed at a time


class Part:
    """A process with a file for its output."""

    def __init__(
        self, name: str, folder: Path, *command: Any, program: bool = False, **environment: str
    ) -> None:
        self.name, self.path, self.start = name, folder / f"{name}.txt", time.monotonic()
        self.file = self.path.open("w")
        self.process = subprocess.Popen(
            [*([] if program else [sys.executable]), *map(str, command)],
            stdout=self.file, stderr=subprocess.STDOUT, cwd=ROOT, env=os.environ | environment,
        )  # fmt: skip

    def finish(self, seconds: float) -> str:
        """Wait, stop the process if it takes longer, and return its output."""
        how = ""
        try:
            code = self.process.wait(max(seconds, 0.1))
            how = f", exit status {code}" if code else ""
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            how = ", stopped: out of time"
        self.file.close()
        taken = time.monotonic() - self.start
        return f"--- {self.name}: {taken:.0f} s{how}\n{self.path.read_text().rstrip()}"


# ---- a tile that fills GPUs --------------------------------------------------------------------


def digest(weight: Any) -> str:
    """Hash a matrix on its GPU: sums modulo 2**64 of its bits times odd numbers."""
    import cupy

    total = 0
    with weight.device:
        numbers = cupy.arange(STEP_ROWS * weight.shape[1], dtype=np.uint64) * 2654435761 * 2 + 1
        for first in range(0, len(weight), STEP_ROWS):
            words = weight[first : first + STEP_ROWS].reshape(-1).view(np.uint32)
            total = total * 31 + int((words * numbers[: words.size]).sum())
    return hashlib.sha256(str(total).encode()).hexdigest()[:16]


def trained(tile: Any, n_batch: int, size: int) -> dict[str, Any]:
    """Train a tile; return times and hashes."""
    import cupy

    from rpukit._device import to_numpy

    n_out, n_in = tile.shape
    start = time.perf_counter()
    with cupy.cuda.Device(0):
        rng = cupy.random.RandomState(1)
        for _ in range(n_batch):
            x, d = (rng.uniform(-1, 1, (size, n)).astype(np.float32) for n in (n_in, n_out))
            tile.update(*(on(v, tile.device) for v in (x, d)), lr=0.01)
        y = tile.forward(on(x, tile.device))
        found = hashlib.sha256(to_numpy(y).tobytes()).hexdigest()[:16]
        taken = time.perf_counter() - start
        weights = tile.get_weights()
        return {"trained in s": round(taken, 2), "forward": found, "weights": digest(weights)}


def on(array: Any, device: str) -> Any:
    from rpukit import _device

    return _device.to_device(array, _device.parse_device(device))


def large(n: int, n_batch: int, devices: tuple[str, ...]) -> int:
    """Make and train a large tile: with stored cells on one GPU, or on several and save it."""
    import cupy

    import rpukit as rk

    cell, start = rk.SoftBounds(dw_min=0.001, dw_min_std=0.3), time.perf_counter()
    if len(devices) > 1:  # 4 bytes a cell, so that a tile of stored cells has room beside it
        how = "drawn cells"
        tile: Any = rk.ShardedTile((n, n), cell, devices, seed=1, storage="procedural")
    else:
        how, tile = "stored cells", rk.AnalogTile((n, n), cell, device=devices[0], seed=1)
    for device in devices:
        cupy.cuda.Device(int(device[4:])).synchronize()
    made = time.perf_counter() - start
    size = f"{len(devices)} GPU(s): {tile.nbytes / 2**30:.1f} GiB"
    print(f"{n} x {n}, {how}, {size}, made in {made:.2f} s", flush=True)
    row = trained(tile, n_batch, 2)
    print(f"{n_batch} batches of 2 samples on {len(devices)} GPU(s): {row}", flush=True)
    if len(devices) > 1:
        saved(tile, devices)
    return 0


def saved(tile: Any, devices: tuple[str, ...]) -> None:
    """Save a tile, load it on all GPUs, and compare the weights."""
    import rpukit as rk

    need = 4 * tile.shape[0] * tile.shape[1] * 1.1
    places = [Path(p) for p in ("/dev/shm", tempfile.gettempdir()) if Path(p).is_dir()]
    rooms = [p for p in places if shutil.disk_usage(p).free > need]
    if not rooms:
        print(f"not saved: no folder has {need / 2**30:.0f} GiB free")
        return
    expected = digest(tile.get_weights())
    with tempfile.TemporaryDirectory(dir=rooms[0]) as folder:
        start = time.perf_counter()
        rk.save(Path(folder) / "tile.npz", tile)
        size, taken = (Path(folder) / "tile.npz").stat().st_size, time.perf_counter() - start
        print(f"saved in {rooms[0]}: {size / 2**30:.1f} GiB in {taken:.1f} s", flush=True)
        del tile
        start = time.perf_counter()
        again = rk.load(Path(folder) / "tile.npz", devices)
        taken = time.perf_counter() - start
        same = digest(again.get_weights()) == expected
    print(f"loaded in {taken:.1f} s: {'equal bits' if same else 'the bits DIFFER'}", flush=True)


# ---- parts -------------------------------------------------------------------------------------


def fuzzers(args: argparse.Namespace, folder: Path) -> list[Part]:
    """Start the processes of the fuzzer: a third of them beside the CPU."""
    gpus = [f"gpu:{k}" for k in range(args.gpus)]
    parts = []
    for k in range(args.processes):
        devices = ",".join(["cpu", *gpus] if k % 3 == 0 else gpus)
        how = ("--devices", devices, "--cases", 100000, "--seconds", args.fuzz)
        command = (TOOLS / "fuzz_devices.py", *how, "--seed", args.seed + k)
        # Some wait for each launch, so that an error is that of the launch that made it.
        waits = {"CUDA_LAUNCH_BLOCKING": "1"} if k % 5 == 1 else {}
        if k % 6 == 5:  # and some see one GPU alone
            command = tuple("gpu:0,gpu:0" if c == devices else c for c in command)
            waits["CUDA_VISIBLE_DEVICES"] = "0"
        parts.append(Part(f"fuzz_{k}", folder, *command, RPUKIT_NUM_THREADS="1", **waits))
    return parts


def told(parts: list[Part], seconds: float, lost: list[tuple[str, ...]]) -> str:
    """Add up what the fuzzers did, and show the first cases that differ.

    ``lost`` gets the arguments of cases after which a GPU did not answer.
    """
    end = time.monotonic() + seconds
    counts: dict[str, list[int]] = {}
    texts = []
    for part in parts:
        text = part.finish(end - time.monotonic())
        found = re.search(rf"# {fuzz_devices.LOST}.*?tools/fuzz_devices.py (.*?)$", text, LINES)
        if found:
            lost.append(tuple(found[1].split()))
        done = re.search(r"^(\d+) cases \(.*\) on (.*): (\d+) differ$", text, re.MULTILINE)
        if done is None:
            texts.append(text[-1500:])
            continue
        row = counts.setdefault(done[2], [0, 0, 0])
        for k, n in enumerate((1, int(done[1]), int(done[3]))):
            row[k] += n
        if int(done[3]):
            texts.append(text[:1300])
    lines = [f"fuzz on {where}: {n} cases in {processes} processes, {wrong} differ"
             for where, (processes, n, wrong) in counts.items()]  # fmt: skip
    total = sum(row[1] for row in counts.values())
    return "\n".join([*lines, f"{total} cases in all", *texts[:3]])


def examined(lost: list[tuple[str, ...]], folder: Path, seconds: float) -> str:
    """Run cases that lost a GPU once more: alone, from each GPU alone, and under memcheck."""
    parts = []
    for k, case in enumerate(lost[:3]):
        tool = (TOOLS / "fuzz_devices.py", *case)
        at = case.index("--devices") + 1
        parts.append(Part(f"alone_{k}", folder, *tool))
        for gpu in ("gpu:0", "gpu:1"):
            own = (*case[:at], f"{gpu},{gpu}", *case[at + 1 :])
            parts.append(Part(f"{gpu}_{k}", folder, TOOLS / "fuzz_devices.py", *own))
        if CHECKER.exists():
            how = (CHECKER, "--tool", "memcheck", "--print-limit", "2", sys.executable, *tool)
            parts.append(Part(f"memcheck_{k}", folder, *how, program=True))
    end, texts = time.monotonic() + seconds, []
    for part in parts:
        text = part.finish(end - time.monotonic())
        if "memcheck" in part.name:
            found = [line for line in text.splitlines() if line.startswith(("---", "====="))]
            text = "\n".join(found)[:2200]
        texts.append(text if len(text) < 2300 else text[:80] + " ... " + text[-200:])
    return "\n".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--fuzz", type=float, default=100, help="seconds of the fuzzer")
    parser.add_argument("--processes", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--side", type=int, default=65536, help="rows and columns of the tile")
    parser.add_argument("--batches", type=int, default=100, help="batches that train it")
    parser.add_argument("--out", type=Path, default=Path("build/all_gpus"))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--large", help="make and train the large tile on these GPUs, no more")
    args = parser.parse_args()
    if args.large:
        return large(args.side, args.batches, tuple(args.large.split(",")))
    end, wanted = time.monotonic() + args.seconds, args.only.split(",")
    args.out.mkdir(parents=True, exist_ok=True)
    fuzz = fuzzers(args, args.out) if "fuzz" in wanted else []
    beside = []
    if "large" in wanted:
        more = ("--side", args.side, "--batches", args.batches)
        names = [f"gpu:{k}" for k in range(args.gpus)]
        for name, where in (("large", ",".join(names)), ("large_one", names[-1])):
            beside.append(Part(name, args.out, __file__, "--large", where, *more))
    if "tests" in wanted:
        how = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", "-m")
        for file in TESTS:
            name = f"tests_{Path(file).parent.name}_{Path(file).stem}"
            beside.append(Part(name, args.out, *how, "multi_gpu", file))
    lost: list[tuple[str, ...]] = []
    if fuzz:
        print(told(fuzz, args.fuzz + 12, lost), flush=True)
    if lost:
        print(examined(lost, args.out, 40), flush=True)
    limit = args.fuzz + 20 + 40 * bool(lost) if fuzz else args.seconds
    for part in beside:
        text = part.finish(part.start + limit - time.monotonic())
        print(text if "large" in part.name else text[-700:], flush=True)
    tables: dict[str, tuple[Any, ...]] = {
        "hmm": (TOOLS / "measure_gpus.py", "--gpus", args.gpus, "--repeats", 20),
        "head": (TOOLS / "measure_split.py", "--most", args.gpus, "--only", "head"),
        "hclt": (TOOLS / "measure_gpus.py", "--gpus", args.gpus, "--structures", "hclt",
                 "--repeats", 8),
        "tile": (TOOLS / "measure_split.py", "--most", args.gpus, "--only", "tile"),
    }  # fmt: skip
    for name, command in tables.items():
        left = end - time.monotonic()
        if name not in wanted or left < 10:
            print(f"--- {name}: not run" + (", no time is left" if name in wanted else ""))
            continue
        print(Part(name, args.out, *command).finish(left), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
