"""Trials of mutants: which tests run against one, in copies of the tree, and for how long.

Run as a program it is one trial, ``python tools/mutant_trials.py source|mirror SHARE KERNEL...``:
the golden cases of some kernels in the tree that the file lies in, every SHARE-th and the last.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from mutants import EXTRA, Mutant

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("rpukit", "kernels_cu", "tests", "tools", "setup.cfg", "pyproject.toml")
LEAST_TIME = 60.0  # seconds that any trial gets; else five times what the unedited tree takes
KILLED, BROKEN = 10, 11  # what a trial ends with: a wrong result; a source that does not compile
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
        there = path.is_file()  # a new kernel or case has no hash yet: the mirror's will do
        hashes = json.loads(path.read_text(encoding="utf-8"))["cases"] if there else {}
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
            if got != (hashes.get(case.name) or digest(case.run("cpu"))):
                print(f"golden {kernel}-{case.name}")
                return KILLED
    return 0


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

    def __init__(self, work: Path, jobs: int, deadline: float | None) -> None:
        """`deadline`, by time.monotonic, ends all trials."""
        self.deadline = float("inf") if deadline is None else deadline
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
        """Run a trial in a tree; its exit code and last line, -1 if it took too long.

        Raises TimeoutError at the deadline.
        """
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
            rest = self.deadline - time.monotonic()
            text, _ = child.communicate(timeout=max(0.1, min(limit, rest)))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.communicate()
            if time.monotonic() >= self.deadline:
                raise TimeoutError from None
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

    def outcome(
        self, mutant: Mutant, kernels: list[str], share: int, first: int, last: int
    ) -> tuple[str, str]:
        """Try a mutant: ("killed", by what), ("survived", "") or ("broken", why).

        It goes through the stages from number `first` to before `last`.
        """
        stages = stages_of(mutant, kernels, share)[first:last]
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
                if code == BROKEN or "KernelCompileError" in line:
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


def stages_of(
    mutant: Mutant, kernels: list[str], share: int
) -> list[tuple[list[str], dict[str, str]]]:
    """Commands that a mutant goes through until one fails, with their environment."""
    mirror = mutant.file.endswith(".py")
    golden = ["tools/mutant_trials.py", "mirror" if mirror else "source"]
    stages: list[tuple[list[str], dict[str, str]]] = [([*golden, str(share), *kernels], {})]
    files, quick = tests_of(kernels), "tests/kernels/"
    for some in ([f for f in files if quick in f], [f for f in files if quick not in f]):
        pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *some]
        if some:
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
        stages.append(([*golden, "5", *kernels], more))
    return stages


if __name__ == "__main__":
    sys.exit(trial(sys.argv[3:], sys.argv[1] == "mirror", int(sys.argv[2])))
