"""Break kernels on purpose and see whether the tests notice: ``python tools/mutate.py``.

Each mutant (`mutants.py`) is one edit in a copy of the tree. The golden cases of its kernels run
against it under g++, or through the mirrors if a mirror was edited; the first wrong result kills
it. What survives meets the tests that name the kernel, and where a bound or an address was edited
the golden cases once more, with checks of addresses. What survives all is printed with file, line
and edit, unless ``tools/mutants.toml`` says why it is equivalent.

    python tools/mutate.py --kernels decay diffusion           # all mutants of two kernels
    python tools/mutate.py --slice 20 --seed 3                  # twenty of all
    python tools/mutate.py --part 1/4 --jobs 32 --seconds 500 --out sweep.jsonl

The table is a file of JSON lines; mutants that it holds already are not run again. Needs g++, and
pytest beside what rpukit needs. Ends with 1 if a mutant survived without a reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from mutants import EXTRA, KINDS, Equivalents, Mutant, mirror_of, of_mirror, of_source, reached

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "mutants.toml"
COPIED = ("rpukit", "kernels_cu", "tests", "tools", "setup.cfg", "pyproject.toml")
MOST_USERS = 4  # kernels that a header is tried with
LEAST_TIME = 60.0  # seconds that any trial gets; else five times what the unedited tree takes
KILLED, BROKEN = 10, 11  # what a trial ends with: a wrong result; a source that does not compile
# Headers for which some kernels show more than the others that include them.
BEST = {
    "rk_math.cuh": ("math_map",),
    "rk_math64.cuh": ("math_map",),
    "rk_special.cuh": ("math_map",),
    "rk_special64.cuh": ("math_map", "leaf_forward"),
    "rk_philox.cuh": ("random_fill", "diffusion"),
    "device_steps.cuh": ("pulsed_update", "decay"),
    "rk_bits.cuh": ("pulse_trains", "pulsed_update"),
}
# Tests of sources for each package, besides those that name the kernel or its op.
OF_PACKAGE = {
    "circuits": ("tests/circuits/test_kernels.py", "tests/circuits/test_tensor_sums.py"),
    "tiled": ("tests/tiled/test_tile_kernels.py",),
    "gemm": ("tests/gemm/test_contract.py", "tests/gemm/test_tensor.py"),
}


# --- one trial, in a process of its own ---------------------------------------------------------


def trial(kernels: list[str], mirrors: bool, share: int) -> int:
    """Compute the golden cases of kernels in the tree that this file lies in."""
    sys.path.insert(0, str(ROOT))
    from rpukit import testing
    from rpukit.errors import KernelCompileError
    from tests.golden.cases import CASES, digest
    from tests.on_cpu import runner

    testing.set_runner(runner.run)
    for kernel in kernels:
        path = ROOT / "tests" / "golden" / "hashes" / f"{kernel}.json"
        hashes = json.loads(path.read_text(encoding="utf-8"))["cases"]
        cases = [case for case in CASES[kernel] if case.small or mirrors]
        for case in (c for k, c in enumerate(cases) if k % share == 0 or k == len(cases) - 1):
            try:
                if mirrors:
                    got = digest(case.run("cpu"))
                else:
                    with testing.on_cpu(order=5):
                        got = digest(case.run("cpu"))
            except KernelCompileError as error:
                print(str(error)[:500])
                return BROKEN
            except Exception as error:
                print(f"golden {kernel}-{case.name}: {type(error).__name__}")
                return KILLED
            if got != hashes[case.name]:
                print(f"golden {kernel}-{case.name}")
                return KILLED
    return 0


# --- which mutants, which tests -----------------------------------------------------------------


@cache
def includes(path: Path) -> frozenset[str]:
    """Names of the headers that a source includes, at any depth."""
    found = set(re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")))
    return frozenset(found.union(*(includes(ROOT / "kernels_cu/include" / n) for n in found)))


def users(header: str) -> list[str]:
    """Kernels that include a header: the best known, then those with the fewest other headers."""
    sources = sorted(ROOT.glob("kernels_cu/*.cu"), key=lambda p: (len(includes(p)), p.name))
    using = [p.stem for p in sources if header in includes(p)]
    best = [name for name in BEST.get(header, ()) if name in using]
    return [*best, *(name for name in using if name not in best)][:MOST_USERS]


def collected() -> list[tuple[Mutant, list[str]]]:
    """List all mutants, each with the kernels whose tests run against it."""
    names = sorted(p.stem for p in ROOT.glob("kernels_cu/*.cu"))
    made = [(m, [name]) for name in names for m in of_source(ROOT, f"kernels_cu/{name}.cu")]
    for path in sorted(ROOT.glob("kernels_cu/include/*.cuh")):
        using = users(path.name)
        made += [(m, using) for m in of_source(ROOT, f"kernels_cu/include/{path.name}")]
    mirrors: dict[str, dict[str, list[str]]] = {}  # file, function: kernels
    for name in names:
        file, function = mirror_of(ROOT, name) or ("", "")
        if (ROOT / file).is_file():
            for part in reached((ROOT / file).read_text(encoding="utf-8"), function):
                mirrors.setdefault(file, {}).setdefault(part, []).append(name)
    for file, functions in sorted(mirrors.items()):
        for function, of in sorted(functions.items()):
            made += [(m, of[:MOST_USERS]) for m in of_mirror(ROOT, file, {function})]
    return [(m, of) for m, of in made if of]


def of_kernels(
    made: list[tuple[Mutant, list[str]]], kernels: list[str]
) -> list[tuple[Mutant, list[str]]]:
    """Those of the kernels' own sources and mirrors; all of them if no kernel is given."""
    if not kernels:
        return made
    own = [(m, [k for k in of if k in kernels]) for m, of in made if not m.file.endswith(".cuh")]
    return [(m, of) for m, of in own if of]


def tests_of(kernels: list[str]) -> list[str]:
    """Files of tests that name a kernel or its op, and those of its package."""
    found = []
    for kernel in kernels:
        head = (ROOT / "kernels_cu" / f"{kernel}.cu").read_text(encoding="utf-8")
        op = re.search(r"^// op: *(\S+)", head, re.M)
        parts = op[1].split(".") if op else [kernel, kernel]
        word = re.compile(rf"\b({kernel}|{parts[-1]})\b")
        folders = ("kernels", "circuits", "gemm", "inference")
        for path in (p for name in folders for p in sorted(ROOT.glob(f"tests/{name}/test_*.py"))):
            if word.search(path.read_text(encoding="utf-8")):
                found.append(path.relative_to(ROOT).as_posix())
        found += OF_PACKAGE.get(parts[1], ())
    return list(dict.fromkeys(found))


# --- trees and trials ---------------------------------------------------------------------------


class Bench:
    """Copies of the tree, compiled kernels of the unedited one, and how long its trials take."""

    def __init__(self, work: Path, jobs: int) -> None:
        self.work, self.base = work, work / "compiled"
        self.trees = [self._copy(work / f"tree{k}") for k in range(jobs)]
        self.plain = self._copy(work / "plain")
        self.free, self.lock = list(self.trees), threading.Lock()
        self.times: dict[tuple[str, ...], float] = {}
        self.locks: dict[tuple[str, ...], threading.Lock] = {}

    def _copy(self, tree: Path) -> Path:
        shutil.rmtree(tree, ignore_errors=True)
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, tree / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, tree / name)
        return tree

    def run(
        self, tree: Path, command: list[str], compiled: Path, limit: float, **more: str
    ) -> tuple[int, str]:
        """Run a trial in a tree; its exit code and last line, -1 if it took too long."""
        env = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RPUKIT_CACHE_DIR": str(self.work / "machine_code"),
            "RPUKIT_ON_CPU_CACHE": str(compiled),
            "RPUKIT_NUM_THREADS": "1",
            "RPUKIT_GOLDEN": "all",
            "CUDA_VISIBLE_DEVICES": "",
            **more,
        }
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            [sys.executable, *command], cwd=tree, env=env, text=True, stdout=pipe,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            text, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.communicate()
            return -1, "takes too long"
        lines = [line for line in text.splitlines() if line.strip()]
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "SUMMARY"))]
        return child.returncode, (failed or lines or [""])[-1][:200]

    def limit(self, stage: list[str], **more: str) -> float:
        """Seconds that a stage may take; it runs on the unedited tree first, once."""
        key = (*stage, *sorted(more))
        with self.lock:
            lock = self.locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self.times:
                begin = time.monotonic()
                code, line = self.run(self.plain, stage, self.base, 3000.0, **more)
                if code not in (0, 5):
                    raise RuntimeError(f"fails without an edit: {' '.join(stage)}: {line}")
                self.times[key] = time.monotonic() - begin
        return max(LEAST_TIME, 5 * self.times[key])

    def outcome(self, mutant: Mutant, kernels: list[str]) -> tuple[str, str]:
        """Try a mutant: ("killed", by what), ("survived", "") or ("broken", why)."""
        stages = stages_of(mutant, kernels)
        with self.lock:
            tree = self.free.pop()
        compiled = Path(tempfile.mkdtemp(dir=self.work))
        own = {} if mutant.file.endswith((".cu", ".cuh")) else {"RPUKIT_CACHE_DIR": str(compiled)}
        try:
            for stage, more in stages:
                limit = self.limit(stage, **more) + (600.0 if own else 0.0)
                self._link(compiled)
                old = mutant.write(tree)
                try:
                    code, line = self.run(tree, stage, compiled, limit, **more, **own)
                finally:
                    (tree / mutant.file).write_text(old, encoding="utf-8")
                if code == BROKEN:
                    return "broken", line
                if code not in (0, 5):  # 5: pytest found no test
                    return "killed", line if code in (KILLED, 1, -1) else f"ends with {code}"
        finally:
            shutil.rmtree(compiled, ignore_errors=True)
            with self.lock:
                self.free.append(tree)
        return "survived", ""

    def _link(self, compiled: Path) -> None:
        """Let a trial find what the unedited kernels were compiled to."""
        for path in self.base.rglob("*"):
            to = compiled / path.relative_to(self.base)
            if path.suffix in (".so", ".gch") and not to.exists():
                to.parent.mkdir(exist_ok=True)
                to.symlink_to(path)


def stages_of(mutant: Mutant, kernels: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """Commands that a mutant goes through until one fails, with their environment."""
    mirror = mutant.file.endswith(".py")
    golden = ["tools/mutate.py", "--trial", "mirror" if mirror else "source", *kernels]
    stages: list[tuple[list[str], dict[str, str]]] = [(golden, {})]
    files = tests_of(kernels)
    if files:
        pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
        stages.append((pytest if mirror else [*pytest, "-k", "order or on_cpu or kernel"], {}))
    if not mirror and mutant.kind in ("bounds", "draws", *EXTRA):
        asan = subprocess.run(
            [os.environ.get("CXX", "g++"), "-print-file-name=libasan.so"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        more = {
            "LD_PRELOAD": asan,
            "ASAN_OPTIONS": "detect_leaks=0",
            "RPUKIT_ON_CPU_SANITIZE": "1",
        }
        stages.append(([*golden, "--share", "5"], more))
    return stages


# --- the table ----------------------------------------------------------------------------------


def shown(record: dict[str, str]) -> str:
    where = f"{record['file']}:{record['line']} [{record['kind']}]"
    return f"{where}\n  - {record['before']}\n  + {record['after']}"


def sweep(args: argparse.Namespace, todo: list[tuple[Mutant, list[str]]]) -> list[dict[str, str]]:
    """Try mutants side by side; each result goes to the table at once."""
    began, done = time.monotonic(), []
    lock = threading.Lock()

    def work(item: tuple[Mutant, list[str]]) -> None:
        if args.seconds and time.monotonic() - began > args.seconds:
            return
        mutant, kernels = item
        result, why = bench.outcome(mutant, kernels)
        record = {**mutant.record(), "name": mutant.name, "result": result, "by": why}
        with lock:
            done.append(record)
            if args.out:
                with open(args.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            if result == "survived" or args.verbose:
                print(f"{result} {why}\n{shown(record)}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        place = args.work or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        bench = Bench(place.absolute(), args.jobs)
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(work, todo))
    return done


def report(results: list[dict[str, str]], equal: Counter[str], left: int) -> int:
    """Print what happened to the mutants of each kind; how many survived."""
    counts = Counter((r["kind"], r["result"]) for r in results)
    print(f"{'':12}{'killed':>9}{'survived':>10}{'equivalent':>12}{'broken':>8}")
    for kind in (*KINDS, *EXTRA):
        n = [counts[kind, result] for result in ("killed", "survived")]
        print(f"{kind:12}{n[0]:9}{n[1]:10}{equal[kind]:12}{counts[kind, 'broken']:8}")
    survived = [r for r in results if r["result"] == "survived"]
    print(f"{len(survived)} of {len(results)} mutants survived, {left} are left")
    for record in sorted(survived, key=lambda r: (r["file"], r["line"])):
        print(shown(record))
    return len(survived)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernels", nargs="*", default=[], help="their own sources")
    parser.add_argument("--files", nargs="*", default=[], help="these, such as a header")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=[*KINDS, *EXTRA])
    parser.add_argument("--sources", choices=["kernels", "mirrors", "all"], default="kernels")
    parser.add_argument("--seed", type=int, default=0, help="of the order of mutants")
    parser.add_argument("--slice", type=int, help="so many mutants, default: all")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, help="begin no mutant after that time")
    parser.add_argument("--out", type=Path, help="table to append to, as JSON lines")
    parser.add_argument("--work", type=Path, help="folder for copies and compiled kernels")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each mutant")
    parser.add_argument("--trial", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trial:
        return trial(args.trial[1:], args.trial[0] == "mirror", args.share)
    every, known = collected(), Equivalents(LIST)
    stale = known.stale([m for m, _ in every])
    if stale:
        print(f"{LIST.name} has entries that fit no mutant:", *stale, sep="\n  ")
        return 2
    chosen = [
        (m, of)
        for m, of in of_kernels(every, args.kernels)
        if m.kind in args.kinds
        and (args.sources == "all" or m.file.endswith(".py") == (args.sources == "mirrors"))
        and (not args.files or Path(m.file).name in args.files)
    ]
    random.Random(args.seed).shuffle(chosen)
    at, parts = map(int, args.part.split("/"))
    chosen = chosen[at - 1 :: parts]
    equal = Counter(m.kind for m, _ in chosen if known.reason(m))
    chosen = [(m, of) for m, of in chosen if not known.reason(m)][: args.slice]
    if args.list:
        for m, of in chosen:
            print(f"{shown(m.record())}  ({' '.join(of)})")
        print(f"{len(chosen)} mutants, and {equal.total()} equivalent ones")
        return 0
    there = args.out and args.out.exists()
    lines = args.out.read_text(encoding="utf-8").splitlines() if there else []
    before = {r["name"]: r for r in map(json.loads, lines)}
    results = sweep(args, [(m, of) for m, of in chosen if m.name not in before])
    results += [before[m.name] for m, _ in chosen if m.name in before]
    return 1 if report(results, equal, len(chosen) - len(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
