"""Trials of the mutants of mirrors, as Python without Numba: `mutate.py` starts it.

The process reads a job from its input and prints a line of JSON for each mutant, as
`mutant_trials.py` does. The edit is made in a copy of rpukit; a fork imports it with
``NUMBA_DISABLE_JIT=1``, so that nothing is compiled, and runs golden cases of the kernel. Cases
that take long in that way are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [p for p in sys.path if p and Path(p).resolve() != ROOT]
sys.path.insert(0, str(ROOT / "tools"))

import numba  # noqa: E402, F401  (what every fork needs)
from mutant_forks import forked  # noqa: E402
from mutants import Mutant  # noqa: E402

# Seconds of a processor: of a case, of all cases of a kernel that are taken, and tried; and of a
# case where none is as quick.
LONGEST, ALL, TRIED, ALONE = 4.0, 15.0, 90.0, 40.0


class TooLong(Exception):
    """A case takes too long without Numba."""


class Bench:
    """A copy of rpukit, and the cases of a kernel that are quick enough."""

    def __init__(self, kernel: str, folder: Path) -> None:
        self.kernel, self.tree = kernel, folder
        shutil.copytree(
            ROOT / "rpukit", folder / "rpukit", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in ("tests", "kernels_cu", "tools"):
            (folder / name).symlink_to(ROOT / name)
        path = ROOT / "tests" / "golden" / "hashes" / f"{kernel}.json"
        self.hashes = json.loads(path.read_text(encoding="utf-8"))["cases"]
        self.times: dict[str, float] = {}
        self.kills = Counter[str]()
        sys.path.insert(0, str(folder))

    def cases(self) -> tuple[list[Any], Any]:
        """Import the cases, in a fork."""
        from tests.golden.cases import CASES, digest

        return [case for case in CASES[self.kernel] if case.small], digest

    def ready(self) -> str:
        found, why = forked(self._try_all, 300.0)
        if found is None or not found["times"]:
            return why or "no case is quick enough without Numba"
        if found["wrong"]:
            return f"wrong without an edit: {found['wrong']}"
        self.times = found["times"]
        return ""

    def _try_all(self) -> dict[str, Any]:
        def stop(*_: object) -> None:
            raise TooLong

        signal.signal(signal.SIGPROF, stop)
        cases, digest = self.cases()
        times, wrong, begin = {}, [], time.process_time()
        for limit, some in ((LONGEST, cases), (ALONE, cases[::-1][:3])):
            for case in () if times else some:
                if sum(times.values()) > ALL or time.process_time() - begin > TRIED + limit:
                    break
                start = time.process_time()
                signal.setitimer(signal.ITIMER_PROF, limit)
                try:
                    if digest(case.run("cpu")) != self.hashes[case.name]:
                        wrong.append(case.name)
                    times[case.name] = time.process_time() - start
                except TooLong:
                    continue
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
        return {"times": times, "wrong": wrong}

    def golden(self) -> dict[str, str]:
        """Run the cases, in a fork that imports the edited file."""
        cases, digest = self.cases()
        by_name = {case.name: case for case in cases}
        for name in sorted(self.times, key=lambda n: self.times[n] / (1 + 9 * self.kills[n])):
            try:
                wrong = digest(by_name[name].run("cpu")) != self.hashes[name]
            except Exception as error:
                return {"killed": f"{name}: {type(error).__name__}", "case": name}
            if wrong:
                return {"killed": name, "case": name}
        return {}

    def outcome(self, mutant: Mutant) -> dict[str, str]:
        """Try a mutant: {"killed": by what} or {}."""
        old = mutant.write(self.tree)
        try:
            found, why = forked(self.golden, 20.0 + 10 * sum(self.times.values()))
        finally:
            (self.tree / mutant.file).write_text(old, encoding="utf-8")
        if found is None:
            return {"killed": why}
        if "case" in found:
            self.kills[found["case"]] += 1
        return found


def main() -> int:
    job = json.loads(sys.stdin.readline())
    end = job.get("end") or float("inf")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(job["kernel"], Path(folder))
        fault = bench.ready()
        for mutant in (Mutant(**m) for m in job["mutants"]):
            if time.time() > end:
                break
            found = {"broken": fault} if fault else bench.outcome(mutant)
            result, by = next(iter(found.items()), ("survived", ""))
            print(json.dumps({"name": mutant.name, "result": result, "by": by}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
