"""Trials of the mutants of one kernel, in a process that is ready: `mutate.py` starts it.

The process reads a job from its input (kernel, mutants, stages, time) and prints a line of JSON
for each mutant. The kernel is compiled with all its mutants behind a number (`mutant_switches`)
and loaded once; each trial is a fork of the process that sets the number. A trial ends at the
first wrong result. What has killed most, for its time, is tried first.

Stages: golden cases; the same in other orders of threads; tests that take every kernel; tests that
name the kernel; for bounds, golden cases with checks of addresses, in a process that has the
sanitizer's library. In all others arrays have guard pages (`mutant_memory`).
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from mutant_forks import forked  # noqa: E402
from mutant_memory import guard  # noqa: E402
from mutant_switches import PRELUDE, switched  # noqa: E402
from mutant_verdicts import SAME, SURVIVED, includes  # noqa: E402
from mutants import EXTRA, Mutant  # noqa: E402

from rpukit import testing  # noqa: E402
from rpukit._kernels import source  # noqa: E402
from rpukit.errors import KernelCompileError  # noqa: E402
from tests.golden.cases import CASES, digest  # noqa: E402
from tests.on_cpu import runner  # noqa: E402

ORDER, OTHER_ORDERS = 5, (1, 0, 7)
LEAST_TIME = 10.0  # seconds that any trial gets; else ten times what the unedited source takes
OF_ALL = tuple(  # tests by name of kernel
    f"tests/kernels/test_{name}.py" for name in ("status", "counters", "draws")
)
OF_PACKAGE = {  # tests of sources for each package, besides those that name the kernel or its op
    "circuits": ("tests/circuits/test_kernels.py", "tests/circuits/test_tensor_sums.py"),
    "tiled": ("tests/tiled/test_tile_kernels.py",),
    "gemm": ("tests/gemm/test_contract.py", "tests/gemm/test_tensor.py"),
}
# An index beyond an array whose length the compiler knows ends the process.
BOUNDS = (
    "-fsanitize=bounds-strict",
    "-fsanitize-undefined-trap-on-error",
    "-fno-aggressive-loop-optimizations",  # else loops end where arrays do
)
SANITIZED = os.environ.get("RPUKIT_ON_CPU_SANITIZE") == "1"


class NotCompiled(Exception):
    """A source that the compiler refused; its lines with errors."""


# --- the kernel with its mutants ----------------------------------------------------------------


class Bench:
    """One kernel, its source with switches, and what is known of its cases."""

    def __init__(
        self, kernel: str, mutants: list[Mutant], share: int, first: int, folder: Path
    ) -> None:
        self.kernel, self.folder = kernel, folder
        self.mutants = dict(enumerate(mutants, 1))
        self.alone = set[int]()  # numbers that are compiled alone
        self.number, self.at_work = 0, False
        self.used: dict[str, Any] = {}  # libraries of this trial
        self.kills, self.tests = Counter[str](), list[str]()
        self.limits: dict[str, float] = {}
        path = ROOT / "tests" / "golden" / "hashes" / f"{kernel}.json"
        self.hashes = json.loads(path.read_text(encoding="utf-8"))["cases"]
        small = [case for case in CASES[kernel] if case.small]
        chosen = [c for k, c in enumerate(small) if k % share == 0 or k == len(small) - 1]
        at = first % len(chosen)  # processes of one kernel begin to compile at different cases
        self.cases = {case.name: case for case in (*chosen[at:], *chosen[:at])}
        self.times = dict.fromkeys(self.cases, 0.0)
        self._load, self._library = source.load, runner.library
        self._text_of, self._flags = runner.text_of, runner.flags
        self.own: Any = None
        source.load = self.load  # type: ignore[assignment]
        runner.library, runner.text_of, runner.flags = self.library, self.text_of, self.flags
        finds_races = runner.finds_races
        runner.finds_races = lambda v: self.at_work and finds_races(v)
        testing.set_runner(runner.run)
        self.memory = None if SANITIZED else guard(folder)

    # ---- in place of the runner's functions

    def load(self, name: str) -> Any:
        return self.own if name == self.kernel else self._load(name)

    def flags(self, races: bool = False) -> tuple[str, ...]:
        usual = self._flags(races)
        if not self.at_work:
            return usual
        return (*usual, "-Werror=vla", *(() if races or SANITIZED else BOUNDS))

    def text_of(self, variant: Any) -> str:
        text = self._text_of(variant)
        if not self.at_work:
            return text
        first, rest = text.split("\n", 1)
        return f"{first}\n{PRELUDE}{rest}"

    def library(self, variant: Any) -> Any:
        self.at_work = variant.source.name == self.kernel
        try:
            made = self._library(variant)
        except KernelCompileError as error:
            raise NotCompiled(error.log) from error
        if self.at_work:
            ctypes.c_int.in_dll(made, "rk_mutant").value = self.number
            self.used[made._name] = made
        return made

    # ---- sources

    def write(self) -> None:
        """Write the source with all mutants that have a switch."""
        self.own = self._written(self.folder / "switched", self._switched())

    def _switched(self) -> dict[str, str]:
        texts = {}
        for file in {m.file for m in self.mutants.values()}:
            plain = (ROOT / file).read_text(encoding="utf-8")
            edits = [
                (k, m) for k, m in self.mutants.items() if m.file == file and k not in self.alone
            ]
            texts[file], held = switched(plain, edits)
            self.alone |= {k for k, _ in edits} - held
        return texts

    def _written(self, place: Path, texts: dict[str, str]) -> Any:
        (place / "include").mkdir(parents=True, exist_ok=True)
        own = f"kernels_cu/{self.kernel}.cu"
        headers = (f"kernels_cu/include/{n}" for n in includes(ROOT / own))
        for file in {own, *headers, *texts}:  # a header finds those that it includes beside itself
            text = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
            (place / Path(file).relative_to("kernels_cu")).write_text(text, encoding="utf-8")
        return source.read(place / f"{self.kernel}.cu")

    def leave_out(self, log: str) -> bool:
        """Compile alone what is in the lines of a compiler's errors; whether there was any."""
        lines = {
            (name, int(line))
            for name, line in re.findall(r"^(\w+\.cuh?):(\d+):\d+:\s+\w*\s*error", log, re.M)
        } | {(name, int(line)) for name, line in re.findall(r"(\w+\.cuh?):(\d+):\d+:   req", log)}
        bad = {
            k
            for k, m in self.mutants.items()
            if k not in self.alone and (Path(m.file).name, m.line) in lines
        }
        self.alone |= bad
        return bool(bad)

    def take(self, number: int) -> None:
        """Make this process that of a mutant."""
        self.number = number
        if number in self.alone:
            mutant = self.mutants[number]
            plain = (ROOT / mutant.file).read_text(encoding="utf-8").split("\n")
            old = plain[mutant.line - 1]
            plain[mutant.line - 1] = " " * (len(old) - len(old.lstrip())) + mutant.after
            place = self.folder / f"alone{number}"
            self.own = self._written(place, {mutant.file: "\n".join(plain)})

    # ---- golden cases

    def ready(self) -> str:
        """Compile, load, and find how long each case takes; "" or why it cannot be done."""
        self.write()
        for _ in range(40):
            found, why = forked(self._try_all, 3000.0)
            if found is None:
                return why
            if "log" not in found:
                break
            if not self.leave_out(found["log"]):
                self.alone |= set(self.mutants)
            self.write()
        if found.get("wrong"):
            return f"wrong without an edit: {found['wrong']}"
        self.times = found["times"]
        for key, path in found["libraries"].items():
            runner._libraries[key] = ctypes.CDLL(path)
        self._warm()
        return ""

    def _warm(self) -> None:
        """Import and load what every trial uses, and forget the results that cases keep."""
        for case in sorted(self.cases.values(), key=lambda c: self.times[c.name])[:2]:
            case.run("cpu")
        for name, module in list(sys.modules.items()):
            if name.startswith("tests.golden"):
                for value in vars(module).values():
                    if hasattr(value, "cache_clear"):
                        value.cache_clear()

    def _try_all(self) -> dict[str, Any]:
        times, kept, compiling = {}, {}, [0.0]
        old, build = runner.store.kept, runner.build
        runner.store.kept = lambda name, make: kept.setdefault(name, old(name, make))

        def timed(*args: Any) -> None:
            begin = time.perf_counter()
            build(*args)
            compiling[0] += time.perf_counter() - begin

        runner.build = timed
        for name, case in self.cases.items():
            compiling[0], begin = 0.0, time.perf_counter()
            try:
                if self._one(case, ORDER) != self.hashes[name]:
                    return {"wrong": name}
            except NotCompiled as error:
                return {"log": str(error)}
            times[name] = time.perf_counter() - begin - compiling[0]
        libraries = {
            Path(name).stem.split("-")[-1]: str(path)
            for name, path in kept.items()
            if name.endswith(".so")
        }
        return {"times": times, "libraries": libraries}

    @staticmethod
    def _one(case: Any, order: int) -> str:
        with testing.on_cpu(order=order):
            return digest(case.run("cpu"))

    def golden(self, number: int, orders: tuple[int, ...]) -> dict[str, str]:
        """Run the cases against a mutant, in a fork."""
        self.take(number)
        for name in sorted(self.cases, key=lambda n: self.times[n] / (1 + 9 * self.kills[n])):
            for order in orders:
                where = name if order == ORDER else f"{name} in order {order}"
                try:
                    wrong = self._one(self.cases[name], order) != self.hashes[name]
                except NotCompiled as error:
                    return {"broken": str(error)[:200]}
                except Exception as error:
                    return {"killed": f"{where}: {type(error).__name__}", "case": name}
                if wrong or (self.memory and self.memory.memory_faults()):
                    return {"killed": where, "case": name}
        return {} if self._differed() else {"same": 1}

    def _differed(self) -> bool:
        """Whether the mutant did anything else than the source, as far as one can know."""
        if self.number in self.alone:
            return True
        return any(ctypes.c_int.in_dll(lib, "rk_differed").value for lib in self.used.values())

    # ---- tests

    def pytest(self, number: int, files: list[str], only: str) -> dict[str, str]:
        """Run the tests of sources against a mutant, in a fork."""
        import pytest

        self.take(number)
        failed: list[str] = []

        class Watch:
            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    failed.append(report.nodeid)

        os.environ["PYTEST_ADDOPTS"] = ""
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        with contextlib.redirect_stdout(io.StringIO()):
            code = pytest.main([*options, "-k", only, *files], plugins=[Watch()])
        if code in (0, 5):  # 5: no test was found
            return {}
        return {"killed": failed[0] if failed else f"pytest ended with {code}"}

    # ---- all of it

    def outcome(self, number: int, stages: set[str]) -> dict[str, str]:
        """Try a mutant: {"killed": by what}, {"broken": why}, {SAME: ""} or {}."""
        limit, same = max(LEAST_TIME, 10 * sum(self.times.values())), False
        alone = 60.0 if number in self.alone else 0.0
        for stage in ("golden", "orders"):
            early = self.mutants[number].kind in ("barriers", "waits")
            if stage not in stages or (stage == "orders" and not early):
                continue
            orders = (ORDER,) if stage == "golden" else OTHER_ORDERS
            found, why = forked(
                lambda o=orders: self.golden(number, o), alone + limit * len(orders)
            )
            if found is None:
                return {"killed": why}
            if "case" in found:
                self.kills[found["case"]] += 1
            if found and "same" not in found:
                return found
            same = "same" in found
        found = self._by_tests(number, alone, stages)
        return {SAME: ""} if same and not found else found

    def _by_tests(self, number: int, alone: float, stages: set[str]) -> dict[str, str]:
        usual = "order or on_cpu or kernel"
        chosen = [(list(OF_ALL), self.kernel)] if "launches" in stages else []
        if "tests" in stages:
            chosen += [([test], usual) for test in self.tests[:3]]
            chosen.append((tests_of(self.kernel), usual))
        for some, only in chosen:
            if not some:
                continue
            key = " ".join((*some, only))
            if key not in self.limits:
                begin = time.monotonic()
                found, why = forked(lambda s=some, o=only: self.pytest(0, s, o), 3000.0)
                if found != {}:
                    return {"broken": f"fails without an edit: {found or why}"}
                self.limits[key] = 60.0 + 5 * (time.monotonic() - begin)
            found, why = forked(
                lambda s=some, o=only: self.pytest(number, s, o), alone + self.limits[key]
            )
            if found is None:
                return {"killed": f"tests: {why}"}
            if found:
                if "::" in found["killed"] and found["killed"] not in self.tests:
                    self.tests.insert(0, found["killed"])
                return found
        return {}


def tests_of(kernel: str) -> list[str]:
    """Files of tests that name a kernel or its op, and those of its package."""
    found = []
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


def main() -> int:
    job = json.loads(sys.stdin.readline())
    mutants = [Mutant(**m) for m in job["mutants"]]
    stages = set(job["stages"])
    end = job.get("end") or float("inf")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        first = job["first"]
        bench = Bench(job["kernel"], mutants, job["share"], first, Path(folder))
        fault = bench.ready()
        for number, mutant in list(bench.mutants.items())[first : first + job["count"]]:
            if time.time() > end:
                break
            if SANITIZED and mutant.kind not in ("bounds", "draws", *EXTRA):
                continue
            begin = time.perf_counter()
            found = {"broken": fault} if fault else bench.outcome(number, stages)
            result, by = next(iter(found.items()), (SURVIVED, ""))
            line = {"name": mutant.name, "result": result, "by": by}
            line["seconds"] = round(time.perf_counter() - begin, 3)
            line["alone"] = number in bench.alone
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
