"""Trials of the mutants of one kernel, in a process that is ready: `mutate.py` starts it.

The process reads a job from its input (kernel, mutants, stages, time) and prints a line of JSON
for each mutant. The kernel is compiled with all its mutants behind a number (`mutant_sources`)
and loaded once. Each golden case, and each file of tests, runs once without an edit and notes
which mutants would have made a difference (`mutant_bench`); a trial is a fork of the process that
sets the number of a mutant and runs what has seen it, up to the first wrong result. What has
killed most, for its time, is tried first.

Stages: small golden cases; the same in other orders of threads; tests that take every kernel;
tests that name the kernel; large golden cases; for bounds, small ones with checks of addresses, in
a process that has the sanitizer's library. In all others arrays have guard pages
(`mutant_memory`).
"""

from __future__ import annotations

import contextlib
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

from mutant_bench import Bench, NotCompiled, forget  # noqa: E402
from mutant_forks import forked  # noqa: E402
from mutant_memory import align  # noqa: E402
from mutant_sources import Switched  # noqa: E402
from mutant_verdicts import SAME, SURVIVED  # noqa: E402
from mutants import Mutant  # noqa: E402

from rpukit import testing  # noqa: E402
from tests.golden.cases import CASES, digest  # noqa: E402

ORDER, OTHER_ORDERS = 5, (1, 0, 7)
LEAST_TIME = 10.0  # seconds that any trial gets; else ten times what the unedited source takes
FEW = 4  # golden cases that a mutant goes through in another order, but for barriers and waits
LARGE = 90.0  # seconds after which a case that is not small is left out
OF_ALL = tuple(  # tests by name of kernel
    f"tests/kernels/test_{name}.py" for name in ("status", "counters", "draws")
)
OF_PACKAGE = {  # tests of sources for each package, besides those that name the kernel or its op
    "circuits": ("tests/circuits/test_kernels.py", "tests/circuits/test_tensor_sums.py"),
    "tiled": ("tests/tiled/test_tile_kernels.py", "tests/tiled/test_tile_launches.py"),
    "gemm": tuple(f"tests/gemm/test_{name}.py" for name in ("contract", "tensor", "late_threads")),
}


class Trials:
    """One kernel, its source with switches, and what is known of its cases and tests."""

    def __init__(
        self, kernel: str, mutants: list[Mutant], job: dict[str, Any], folder: Path
    ) -> None:
        self.kernel = kernel
        self.switched = Switched(kernel, mutants, folder)
        self.bench = Bench({kernel: self.switched}, folder)
        self.kills = Counter[str]()
        path = ROOT / "tests" / "golden" / "hashes" / f"{kernel}.json"
        self.hashes = json.loads(path.read_text(encoding="utf-8"))["cases"]
        share, stages = job["share"], job["stages"]
        cases = [case for case in CASES[kernel] if case.small != ("large" in stages)]
        cases = cases if {"golden", "large"} & set(stages) else []
        chosen = [c for k, c in enumerate(cases) if k % share == 0 or k == len(cases) - 1]
        at = job["first"] % len(chosen) if chosen else 0  # where processes of a kernel begin
        self.cases = {case.name: case for case in (*chosen[at:], *chosen[:at])}
        self.only = re.compile(job["only"])
        self.wanted = set(job["wanted"])
        self.times: dict[str, float] = {}
        self.seen: dict[str, set[str]] = {}  # by case: mutants that make a difference
        self.tests: dict[str, tuple[float, list[list[Any]]]] = {}  # by file: time; test, seen

    # ---- golden cases

    def ready(self, end: float = float("inf")) -> str:
        """Compile, and find how long each case takes and what it sees; or why it cannot be."""
        for name in [n for n in self.cases if self.only.search(n)]:
            fault = self._see(name, end)
            if fault:
                return fault
        for name in self.cases:  # those of earlier runs serve other orders
            found = self.bench.known(self._key(name))
            if name not in self.seen and found:
                self.times[name], self.seen[name] = found["time"], set(found["seen"])
        fewest = {n for m in self.switched.mutants.values() for n in self._fewest(m.name)}
        for name in [n for n in self.cases if n in fewest and not self.only.search(n)]:
            fault = self._see(name, end)
            if fault:
                return fault
        for name in sorted(fewest & self.seen.keys(), key=self.times.__getitem__)[:1]:
            self.cases[name].run("cpu")  # imports and loads what every trial uses
        forget()
        return ""

    def _fewest(self, mutant: str) -> list[str]:
        """The fastest cases that see a mutant, for other orders."""
        names = [n for n in self.times if mutant in self.seen[n]] if mutant in self.wanted else []
        return sorted(names, key=self.times.__getitem__)[:FEW]

    def _see(self, name: str, end: float) -> str:
        """Find how long a case takes and what it sees; "", or why it cannot be done."""
        case, found, why = self.cases[name], {"log": ""}, ""
        while "log" in found:
            if time.time() + 5 > end:
                return "no time"
            found, why = self.bench.record(
                self._key(name), lambda: self._once(case), 3000.0 if case.small else LARGE
            )
            if "log" in found:
                if not set(self.switched.mutants) - self.switched.alone:
                    return f"does not compile: {found['log'][:80]}"
                self.switched.leave_out(found["log"])
        if not found and not case.small:
            return ""
        if not found or found["wrong"]:
            if self.bench.memory and align(self.bench.memory):
                return self._see(name, end)
            return f"wrong without an edit: {name} {why}"
        self.times[name] = found["time"]
        self.seen[name] = set(found["seen"])
        self.bench.hold(found["libraries"])
        return ""

    def _key(self, name: str) -> str:
        """What a case is known by: a case that changes has another hash."""
        return f"{self.kernel} {name} {self.hashes[name]}"

    def _once(self, case: Any) -> dict[str, Any]:
        forget()
        return {"wrong": self._one(case, ORDER) != self.hashes[case.name]}

    @staticmethod
    def _one(case: Any, order: int) -> str:
        with testing.on_cpu(order=order):
            return digest(case.run("cpu"))

    def golden(self, number: int, names: list[str], orders: tuple[int, ...]) -> dict[str, str]:
        """Run the cases against a mutant, in a fork."""
        self.switched.take(number)
        for name in sorted(names, key=lambda n: self.times[n] / (1 + 9 * self.kills[n])):
            for order in orders:
                where = name if order == ORDER else f"{name} in order {order}"
                try:
                    wrong = self._one(self.cases[name], order) != self.hashes[name]
                except NotCompiled as error:
                    return {"broken": str(error)[:200]}
                except Exception as error:
                    return {"killed": f"{where}: {type(error).__name__}", "case": name}
                if wrong or (self.bench.memory and self.bench.memory.memory_faults()):
                    return {"killed": where, "case": name}
        return {} if self.bench.differed() else {"same": 1}

    # ---- tests

    def pytest(self, number: int, chosen: list[str], only: str = "") -> dict[str, Any]:
        """Run tests against a mutant, in a fork; with number 0 all of them, and what they see."""
        import pytest

        self.switched.take(number)
        failed: list[str] = []
        seen: list[list[Any]] = []

        class Watch:
            def pytest_runtest_logreport(_, report: Any) -> None:
                if report.failed:
                    failed.append(report.nodeid)
                if report.when == "teardown" and not number:
                    new = self.bench.seen()
                    if new:
                        seen.append([report.nodeid, new])

        os.environ["PYTEST_ADDOPTS"] = ""
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        options += ["-x"] if number else []
        options += ["-k", only] if only else []
        with contextlib.redirect_stdout(io.StringIO()):
            code = pytest.main([*options, *chosen], plugins=[Watch()])
        if not number:
            return {"tests": [pair for pair in seen if pair[0] not in failed]}
        if code in (0, 5):  # 5: no test was found
            return {}
        return {"killed": failed[0] if failed else f"pytest ended with {code}"}

    def see_tests(self, stages: set[str], end: float) -> None:
        """Run files of tests without an edit, to know what each test sees."""
        usual = "order or on_cpu or kernel"
        chosen = [(file, self.kernel) for file in OF_ALL] if "launches" in stages else []
        chosen += [(file, usual) for file in tests_of(self.kernel)] if "tests" in stages else []
        for file, only in chosen:
            limit = min(3000.0, end - time.time())
            if limit < 5 or file in self.tests:
                continue
            text = (ROOT / file).read_text(encoding="utf-8")
            found, _ = self.bench.record(
                f"{self.kernel} {text} {only}",
                lambda f=file, o=only: self.pytest(0, [f], o),
                limit,
            )
            if "tests" in found:
                self.tests[file] = (found["time"], found["tests"])
                self.bench.hold(found["libraries"])

    # ---- all of it

    def outcome(self, number: int, stages: set[str]) -> dict[str, str]:
        """Try a mutant: {"killed": by what}, {"broken": why}, {SAME: ""} or {}."""
        alone = 60.0 if number in self.switched.alone else 0.0
        mutant = self.switched.mutants[number]
        names = [n for n in self.times if alone or mutant.name in self.seen[n]]
        early, same = mutant.kind in ("barriers", "waits"), not names
        of_stage = {
            "golden": ([n for n in names if self.only.search(n)], (ORDER,)),
            "orders": (
                names if early else self._fewest(mutant.name),
                OTHER_ORDERS if early else OTHER_ORDERS[:1],
            ),
        }
        of_stage["large"] = of_stage["golden"]
        for stage, (some, orders) in of_stage.items():
            if stage not in stages or not some:
                continue
            limit = max(LEAST_TIME, 10 * sum(self.times[n] for n in some))
            found, why = forked(
                lambda s=some, o=orders: self.golden(number, s, o), alone + limit * len(orders)
            )
            if found is None:
                return {"killed": why}
            if "case" in found:
                self.kills[found["case"]] += 1
            if found and "same" not in found:
                return found
            same = same and "same" in found
        found = self._by_tests(number, alone)
        return {SAME: ""} if same and not found else found

    def _by_tests(self, number: int, alone: float) -> dict[str, str]:
        """Run tests that have seen a mutant, a few of each file, against it."""
        reached = False
        for file, (seconds, tests) in self.tests.items():
            name = self.switched.mutants[number].name
            some = [test for test, seen in tests if alone or name in seen]
            some.sort(key=lambda test: -self.kills[test])
            if not some:
                continue
            reached = True
            found, why = forked(lambda s=some: self.pytest(number, s), alone + 30.0 + 10 * seconds)
            if found is None:
                return {"killed": f"{file}: {why}"}
            if found:
                self.kills[found["killed"]] += 1
                return found
        return {"survived": ""} if reached else {}


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
        trials = Trials(job["kernel"], mutants, job, Path(folder))
        fault = trials.ready(end)
        trials.see_tests(stages, end)
        for number, mutant in trials.switched.mutants.items():
            if time.time() > end or fault == "no time":
                break
            if mutant.name not in trials.wanted:
                continue
            begin = time.perf_counter()
            found = {"broken": fault} if fault else trials.outcome(number, stages)
            result, by = next(iter(found.items()), (SURVIVED, ""))
            line = {"name": mutant.name, "result": result, "by": by}
            line["seconds"] = round(time.perf_counter() - begin, 3)
            line["alone"] = number in trials.switched.alone
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
