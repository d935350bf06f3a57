"""Run the golden cases under compute-sanitizer on a GPU: ``python tools/sanitize.py``.

    python tools/sanitize.py --jobs 16 --seconds 200
    python tools/sanitize.py --tools memcheck racecheck --kernels sum_flow det_gemm --all

The small cases of `tests/golden/cases`, whose sizes are odd, run under memcheck, racecheck,
initcheck and synccheck, in several processes side by side, and first without a tool, which
compiles what they need. Without CuPy's pool each array is an allocation of its own, so that an
access past its end is one outside of any memory. Every result is compared with its recorded hash.

One line is printed for each tool and kernel with faults, and a summary. Kernels are tried in turn,
the last case of each first; after ``--seconds`` the cases that are left are counted. Ends with 1
after a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HASHES = ROOT / "tests" / "golden" / "hashes"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
OPTIONS = {
    "memcheck": {"--padding": "64", "--report-api-errors": "no", "--leak-check": "no"},
    # Barriers in shared memory beyond those that a tool counts by itself give reports of no fault.
    "racecheck": {"--racecheck-report": "all", "--num-cuda-barriers": "64"},
}
# Reports that are no faults, by tool, kernel, beginning of the text, part of the case's name.
KNOWN = {
    ("initcheck", "sum_flow", "Uninitialized __global__ memory read of size 16", ""): (
        "copies of 16 bytes take the padding of a line, of which no weight is computed"
    ),
    ("initcheck", "tensor_flow", "Uninitialized __global__ memory read of size 16", ""): (
        "as sum_flow"
    ),
    ("racecheck", "det_gemm_mma", "Error: Potential RAW hazard", "thin"): (
        "what lanes write to a stage is ordered by __syncwarp, one lane's mbarrier.arrive and the "
        "reader's wait, and so it is in the machine code; with all lanes arriving the tool says "
        "the same"
    ),
}
MARK = "##case"
# What a report begins with; lines that go on with it are indented further.
HEAD = re.compile(r"^========= (?=\S)(?!COMPUTE-SANITIZER|Target application|.*SUMMARY)(.*)")
NAMED = re.compile(r"\bat (?!__shared__)(?:0x\w+ in )?(?:[\w./<>-]+:\d+:)?(\w+)")  # the kernel
LEAST = 4.0  # seconds before the end in which no further case is begun


def found_tool() -> str:
    """Path of compute-sanitizer."""
    path = shutil.which("compute-sanitizer", path=os.pathsep.join((os.environ["PATH"], *PLACES)))
    if path is None:
        raise SystemExit(f"no compute-sanitizer on PATH nor in {', '.join(PLACES)}")
    return path


@cache
def sanitizer(tool: str) -> list[str]:
    """Command that runs a program under a tool, with those options that its version has."""
    path = found_tool()
    known = subprocess.run([path, "--help"], capture_output=True, text=True, check=False).stdout
    wanted = OPTIONS.get(tool, {}).items()
    options = [text for name, value in wanted if name in known for text in (name, value)]
    return [path, "--tool", tool, *options]


# --- one process, which takes cases until none is left ------------------------------------------


def order(kernels: list[str], everything: bool, skip: int = 0) -> Iterator[tuple[str, int]]:
    """Kernels with numbers of their cases, so that an early end leaves out none of the kernels."""
    from tests.golden.cases import CASES

    of = {k: [n for n, c in enumerate(CASES[k]) if c.small or everything] for k in kernels}
    for number in range(skip, max(map(len, of.values()))):
        for kernel, cases in of.items():
            if number < len(cases):  # the last, the first, the last but one, ...
                at = number // 2 if number % 2 else -1 - number // 2
                yield kernel, cases[at]


def claimed(place: Path, name: str) -> bool:
    """Whether this process is the first one to ask for a case."""
    try:
        (place / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def take_cases(kernels: list[str], place: Path, args: argparse.Namespace) -> None:
    """Run cases that no other process has taken; what happens is printed with their names."""
    sys.path.insert(0, str(ROOT))
    from rpukit import _device
    from tests.golden.cases import CASES, digest

    done = set(args.done.read_text().splitlines()) if args.done and args.done.exists() else set()
    asked = args.tools if place.name == "plain" else [place.name]
    cupy = _device.cupy()
    cupy.cuda.set_allocator(None)
    hashes = {k: json.loads((HASHES / f"{k}.json").read_text())["cases"] for k in kernels}
    for kernel, number in order(kernels, args.all, args.skip):
        if time.time() > args.end - LEAST:
            return
        case = CASES[kernel][number]
        if all(f"{tool}\t{kernel}\t{case.name}" in done for tool in asked):
            continue
        if not claimed(place, f"{kernel}.{number}"):
            continue
        print(MARK, "begin", kernel, case.name, sep="\t", flush=True)
        try:
            same = digest(case.run("gpu")) == hashes[kernel].get(case.name)
            result = "same" if same else "other bits"
        except Exception as error:
            result = f"{type(error).__name__}: {error}".replace("\n", " ")[:150]
        cupy.cuda.runtime.deviceSynchronize()  # raises where a fault ended the context
        print(MARK, "end", kernel, case.name, result, sep="\t", flush=True)
        if args.done and result == "same" and place.name != "plain":
            with open(args.done, "a", encoding="utf-8") as file:
                print(place.name, kernel, case.name, sep="\t", file=file)


# --- the processes and what they print ----------------------------------------------------------


@dataclass
class Found:
    """What the processes of one tool printed."""

    tool: str
    done: int = 0
    known: int = 0
    faults: Counter[str] = field(default_factory=Counter)  # by kernel and kind
    first: dict[str, str] = field(default_factory=dict)  # of each, the case and the report
    seconds: float = 0.0

    def add(self, key: str, text: str) -> None:
        self.faults[key] += 1
        self.first.setdefault(key, text)

    def read(self, lines: list[str]) -> None:
        """Take in the output of one process."""
        case, report = "start", list[str]()
        for line in [*lines, MARK]:
            head = HEAD.match(line)
            if report and (head or line.startswith(MARK)):
                self._end(case, report)
                report = []
            if head:
                report = [line]
            elif report and line.startswith("=========  "):
                report.append(line)
            elif line.startswith(MARK) and line != MARK:
                _, what, kernel, name, *result = line.split("\t")
                case = f"{kernel} {name}"
                if what == "end":
                    self.done += 1
                    if result != ["same"]:
                        self.add(f"{kernel}: {result[0]}", case)

    def _end(self, case: str, report: list[str]) -> None:
        names = [m[1] for m in map(NAMED.search, report[:4]) if m]
        text = report[0].removeprefix("========= ")
        kernel = names[0] if names else case.split()[0]
        for tool, name, beginning, part in KNOWN:
            if (tool, name) == (self.tool, kernel) and text.startswith(beginning) and part in case:
                self.known += 1
                return
        kind = re.sub(r"0x\w+|\(.*?\)|\b\d+ (?=hazard)", "", text)[:60]
        self.add(f"{kernel}: {kind}", "\n".join([case, *report[:9]]))


def process(
    command: list[str], tool: str, place: Path, found: Found, end: float, gpu: int
) -> bool:
    """Run one process of a tool; whether it took all the cases that it could."""
    begin = time.time()
    log = place.parent / f"{tool}-{threading.get_ident()}-{begin:.3f}.txt"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RPUKIT_TUNE": "0", "RPUKIT_NUM_THREADS": "1"}
    if gpu >= 0:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    with open(log, "w", encoding="utf-8", errors="replace") as file:
        child = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(timeout=max(1.0, end + 15.0 - time.time()))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            code = None
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    marks = [line for line in lines if line.startswith(MARK)]
    with LOCK:
        found.read(lines)
        found.seconds += time.time() - begin
        if code not in (0, None):
            at = " ".join(marks[-1].split("\t")[2:4]) if marks else "start"
            found.add(f"{at.split()[0]}: ended with {code}", "\n".join([at, *lines[-12:]]))
    return code == 0


LOCK = threading.Lock()


def run(args: argparse.Namespace, tools: list[str], place: Path, end: float) -> dict[str, Found]:
    """Share the processes out among tools, each of which has all the cases to run."""
    results = {tool: Found(tool) for tool in tools}
    left = dict.fromkeys(tools, True)

    def work(number: int) -> None:
        gpu = number % args.gpus if args.gpus > 1 else -1
        for turn in range(len(tools)):
            tool = tools[(number + turn) % len(tools)]
            for _ in range(9):  # a fault that ends a process ends its context, too
                if not left[tool] or time.time() > end - LEAST:
                    break
                own = place / tool
                own.mkdir(exist_ok=True)
                more = ["--child", str(own), "--end", str(end), *(["--all"] * args.all)]
                more += ["--skip", str(args.skip), "--tools", *args.tools]
                more += ["--done", str(args.done.resolve())] if args.done else []
                child = [sys.executable, str(Path(__file__)), *more, "--kernels", *args.kernels]
                if tool != "plain":
                    child = [*sanitizer(tool), *child]
                if process(child, tool, own, results[tool], end, gpu):
                    left[tool] = False

    threads = [threading.Thread(target=work, args=(k,)) for k in range(args.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def report(results: dict[str, Found], n_case: int, reports: Path | None) -> int:
    """Print faults and a summary; the number of faults."""
    for tool, found in results.items():
        for key, count in sorted(found.faults.items()):
            print(f"{tool:10} {key}, {count} times, first in {found.first[key].splitlines()[0]}")
    for tool, found in results.items():
        print(
            f"{tool:10} {found.done} of {n_case} cases, {sum(found.faults.values())} faults, "
            f"{found.known} known reports, {found.seconds:.0f} s of processes"
        )
    if reports:
        parts = [f"{t} {k}\n{text}" for t, f in results.items() for k, text in f.first.items()]
        reports.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return sum(sum(found.faults.values()) for found in results.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=TOOLS)
    parser.add_argument("--kernels", nargs="*", default=[], help="default: all")
    parser.add_argument("--all", action="store_true", help="large cases as well")
    parser.add_argument("--skip", type=int, default=0, help="so many cases of each kernel")
    parser.add_argument("--done", type=Path, help="file of cases: these are left out, new added")
    parser.add_argument("--tools-alone", action="store_true", help="not first without a tool")
    parser.add_argument("--gpus", type=int, default=1, help="processes use this many in turn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--reports", type=Path, help="file for the first report of each fault")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.golden.cases import CASES

    args.kernels = args.kernels or sorted(CASES)
    if args.child:
        take_cases(args.kernels, args.child, args)
        return 0
    begin = time.time()
    end, n_case = begin + args.seconds, len(list(order(args.kernels, args.all, args.skip)))
    with tempfile.TemporaryDirectory(prefix="sanitize-") as folder:
        results = {}
        if not args.tools_alone:
            results = run(args, ["plain"], Path(folder), end)
            print(f"without a tool: {time.time() - begin:.0f} s", flush=True)
        results |= run(args, args.tools, Path(folder), end)
    faults = report(results, n_case, args.reports)
    print(f"{faults} faults, {time.time() - begin:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
