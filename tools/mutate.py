"""Break kernels on purpose and see whether the tests notice: ``python tools/mutate.py``.

Each mutant (`mutants.py`) is one edit. A process for each kernel compiles it with all its mutants
behind a number and tries one after the other (`mutant_trials.py`): golden cases under g++, other
orders of threads, tests that take every kernel, tests that name the kernel; for bounds golden
cases with checks of addresses, for barriers with a search for races (``tests/on_cpu/races.h``).
A mutant of a header is tried with kernels that reach its function (`mutant_users.py`). What
survives all is printed with file, line and edit, unless ``tools/mutants.toml`` says why it is
equivalent.

    python tools/mutate.py                                     # what is new since the last run
    python tools/mutate.py --kernels decay diffusion --again   # all mutants of two kernels
    python tools/mutate.py --slice 20 --seed 3 --again         # twenty of all
    python tools/mutate.py --stages golden --jobs 32 --seconds 500
    python tools/mutate.py --survivors --stages addresses tests

Mirrors run as Python, without Numba (`mutant_mirrors.py`). Verdicts are kept in
``tools/mutant_verdicts.txt`` (`mutant_verdicts.py`). Survivors of fewer stages go through further
ones with ``--survivors``. Needs g++, and pytest beside what rpukit needs. Ends with 1 if a mutant
survived without a reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from mutant_users import MOST_USERS, users
from mutant_verdicts import BROKEN, ROOT, SAME, SURVIVED, Verdicts
from mutants import EXTRA, KINDS, Equivalents, Mutant, mirror_of, of_mirror, of_source, reached

LIST = ROOT / "tools" / "mutants.toml"
WORST = ("barriers", "waits", "status", "counters", "draws", "sums", "bounds", *EXTRA)
ALIVE = (SURVIVED, SAME)
STAGES = ("golden", "orders", "launches", "tests", "large", "addresses", "races")
PART = 16  # mutants that a process tries
FOR_KINDS = {"addresses": ("bounds", "draws", *EXTRA), "races": ("barriers",)}
Chosen = list[tuple[Mutant, list[str]]]  # with the kernels whose tests run against it


# --- which mutants, which tests -----------------------------------------------------------------


def collected() -> Chosen:
    """List all mutants, each with the kernels whose tests run against it."""
    names = sorted(p.stem for p in ROOT.glob("kernels_cu/*.cu"))
    made = [(m, [name]) for name in names for m in of_source(ROOT, f"kernels_cu/{name}.cu")]
    for path in sorted(ROOT.glob("kernels_cu/include/*.cuh")):
        mutants = of_source(ROOT, f"kernels_cu/include/{path.name}")
        made += [(m, list(users(path.name, m.line))) for m in mutants]
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


def of_kernels(made: Chosen, kernels: list[str]) -> Chosen:
    """Those of the kernels' own sources and mirrors; all of them if no kernel is given."""
    if not kernels:
        return made
    own = [(m, [k for k in of if k in kernels]) for m, of in made if not m.file.endswith(".cuh")]
    return [(m, of) for m, of in own if of]


# --- the sweep ----------------------------------------------------------------------------------


def shown(mutant: Mutant) -> str:
    where = f"{mutant.file}:{mutant.line} [{mutant.kind}]"
    return f"{where}\n  - {mutant.before}\n  + {mutant.after}"


class Sweep:
    """Processes side by side, one for each kernel; verdicts go to their file at once."""

    def __init__(self, args: argparse.Namespace, verdicts: Verdicts) -> None:
        self.args, self.verdicts = args, verdicts
        self.end = time.time() + args.seconds if args.seconds else None
        self.lock = threading.Lock()
        self.begin = self.told = time.time()
        self.results: dict[str, tuple[str, str]] = {}  # by name: how it ended, by what

    def run(self, chosen: Chosen) -> None:
        """Try mutants with their kernels, all stages of one kind before those of the next."""
        todo: dict[tuple[str, bool], list[Mutant]] = {}  # by kernel, and if it is the mirror
        for mutant, kernels in chosen:
            for kernel in kernels:
                todo.setdefault((kernel, mutant.file.endswith(".py")), []).append(mutant)
        with ThreadPoolExecutor(self.args.jobs) as pool:
            for stages in self._passes():
                kinds = FOR_KINDS.get(stages[0], WORST)
                at_all = [(k, [m for m in some if m.kind in kinds]) for k, some in todo.items()]
                size = 1 << 20 if "tests" in stages else PART  # tests run once a process
                tasks = [(k, some, n) for k, some in at_all for n in range(0, len(some), size)]
                tasks.sort(key=lambda task: (task[2], -len(task[1])))
                for task in tasks:
                    pool.submit(self.process, *task, size, stages)

    def _passes(self) -> list[list[str]]:
        """Stages that one process can go through; checks while they run need one of their own."""
        together = ("golden", "orders"), ("launches", "tests"), ("large",), ("races",)
        passes = [[s for s in some if s in self.args.stages] for some in together]
        return [some for some in (*passes, ["addresses"]) if some and some[0] in self.args.stages]

    def process(
        self,
        key: tuple[str, bool],
        mutants: list[Mutant],
        first: int,
        size: int,
        stages: list[str],
    ) -> None:
        """Run a process for some mutants of a kernel, or of its mirror, and take in its output.

        All mutants go into the source, so that the processes of a kernel share what is compiled.
        """
        (kernel, mirror), program = key, "mutant_trials.py"
        part = mutants[first : first + size]
        wanted = [m.name for m in part if self.results.get(m.name, ("",))[0] in ("", *ALIVE)]
        if not wanted or (self.end and time.time() > self.end):
            return
        if mirror:
            if "golden" not in stages:
                return
            program, mutants = "mutant_mirrors.py", [m for m in part if m.name in wanted]
        env = {
            **os.environ,
            "RPUKIT_NUM_THREADS": "1",
            "RPUKIT_GOLDEN": "all",
            "RPUKIT_SWEEPS": "all",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if mirror:
            env |= {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": ""}
        share = self.args.share
        if stages == ["addresses"]:
            stages, share = ["golden"], max(share, 5)
            asan = [os.environ.get("CXX", "g++"), "-print-file-name=libasan.so"]
            env["LD_PRELOAD"] = subprocess.check_output(asan, text=True).strip()
            env |= {"ASAN_OPTIONS": "detect_leaks=0", "RPUKIT_ON_CPU_SANITIZE": "1"}
        if stages == ["races"]:
            stages = ["golden"]
            env |= {"RPUKIT_ON_CPU_RACES": "1"}
        job = {"kernel": kernel, "mutants": [asdict(m) for m in mutants], "stages": stages}
        job |= {"end": self.end, "share": share, "first": first, "wanted": wanted}
        job |= {"only": self.args.only}
        by_name = {m.name: m for m in mutants}
        child = subprocess.Popen(
            [sys.executable, str(ROOT / "tools" / program)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin and child.stdout and child.stderr
        child.stdin.write(json.dumps(job) + "\n")
        child.stdin.close()
        for line in child.stdout:
            if line.startswith("{"):
                record = json.loads(line)
                self.take(by_name[record["name"]], kernel, record)
        if child.wait():
            print(
                f"{kernel}: the process ended with {child.returncode}:", child.stderr.read()[-800:]
            )

    def take(self, mutant: Mutant, kernel: str, record: dict[str, str]) -> None:
        result, by = record["result"], record["by"]
        with self.lock:
            before = self.results.get(mutant.name, ("",))[0]
            if before and before not in ALIVE:
                return  # another kernel, or a process beside this one, has noticed it
            if result == SAME and self.verdicts.get(mutant) == SURVIVED:
                result = SURVIVED  # other cases came to it
            self.results[mutant.name] = (result, by)
            if time.time() > self.told + 20.0:
                self.told = time.time()
                ends = dict(Counter(end for end, _ in self.results.values()))
                print(f"{self.told - self.begin:.0f} s: {ends}", flush=True)
            known = {"killed": f"{kernel} {by}", BROKEN: f"{BROKEN}: {by}"}
            self.verdicts.set(mutant, known.get(result, result))
            self.verdicts.write()
            if self.args.verbose:
                print(f"{result} {kernel} {by}\n{shown(mutant)}", flush=True)


def report(
    chosen: Chosen, verdicts: Verdicts, results: dict[str, tuple[str, str]], known: Equivalents
) -> int:
    """Print what happened to the mutants of each kind; how many survived."""
    counts: Counter[tuple[str, str]] = Counter()
    survived = []
    for mutant, _ in chosen:
        by = verdicts.get(mutant)
        end = results[mutant.name][0] if mutant.name in results else ""
        if known.reason(mutant):
            end = "equivalent"
        elif not end:
            end = "left" if by is None else by.split(":")[0]
            end = end if end in ("left", SURVIVED, SAME, BROKEN) else "killed"
        counts[mutant.kind, end] += 1
        if end in ALIVE:
            survived.append(mutant)
    ends = ("killed", SURVIVED, SAME, "equivalent", BROKEN, "left")
    print(" " * 12 + "".join(f"{end:>16}" for end in ends))
    for kind in (*KINDS, *EXTRA):
        print(f"{kind:12}" + "".join(f"{counts[kind, end]:16}" for end in ends))
    total = {end: sum(counts[kind, end] for kind in (*KINDS, *EXTRA)) for end in ends}
    print(
        f"{len(survived)} of {len(chosen) - total['equivalent']} mutants survived, "
        f"{total['left']} are left"
    )
    for mutant in sorted(survived, key=lambda m: (m.file, m.line)):
        end = results.get(mutant.name, (verdicts.get(mutant),))[0]
        print(shown(mutant) + ("  (unseen)" if end == SAME else ""))
    return len(survived)


def chosen_by(args: argparse.Namespace, every: Chosen) -> Chosen:
    """The mutants that the arguments ask for: by kind in the order of `WORST`, then at random."""
    chosen = [
        (m, of)
        for m, of in of_kernels(every, args.kernels)
        if m.kind in args.kinds
        and (args.sources == "all" or m.file.endswith(".py") == (args.sources == "mirrors"))
        and (not args.files or Path(m.file).name in args.files)
    ]
    random.Random(args.seed).shuffle(chosen)
    if not args.slice:
        chosen.sort(key=lambda pair: WORST.index(pair[0].kind))
    at, parts = map(int, args.part.split("/"))
    return chosen[at - 1 :: parts]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernels", nargs="*", default=[], help="their own sources")
    parser.add_argument("--files", nargs="*", default=[], help="these, such as a header")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=[*KINDS, *EXTRA])
    parser.add_argument("--sources", choices=["kernels", "mirrors", "all"], default="kernels")
    parser.add_argument("--stages", nargs="*", default=list(STAGES), choices=STAGES)
    parser.add_argument("--seed", type=int, default=0, help="of the order of mutants")
    parser.add_argument("--slice", type=int, help="so many mutants, default: all")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th mutant")
    parser.add_argument("--again", action="store_true", help="also those with a verdict")
    parser.add_argument("--survivors", action="store_true", help="also those that survived")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, help="end after that time")
    parser.add_argument("--verdicts", type=Path, help="file of verdicts")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each mutant")
    parser.add_argument("--only", default="", help="golden cases whose name has this pattern")
    parser.add_argument("--share", type=int, default=1, help="of golden cases, every N-th")
    return parser.parse_args()


def main() -> int:
    args = parsed()
    every, known = collected(), Equivalents(LIST)
    stale = known.stale([m for m, _ in every])
    if stale:
        print(f"{LIST.name} has entries that fit no mutant:", *stale, sep="\n  ")
        return 2
    chosen = chosen_by(args, every)
    verdicts = Verdicts(args.verdicts) if args.verdicts else Verdicts()
    open_ = (None, SURVIVED, SAME) if args.survivors else (None,)
    todo = [
        (m, of)
        for m, of in chosen
        if not known.reason(m) and (args.again or verdicts.get(m) in open_)
    ][: args.slice]
    if args.slice:
        chosen = todo
    if args.list:
        for m, of in todo:
            print(f"{shown(m)}  ({' '.join(of)})")
        print(f"{len(todo)} mutants")
        return 0
    sweep = Sweep(args, verdicts)
    sweep.run(todo)
    return 1 if report(chosen, verdicts, sweep.results, known) else 0


if __name__ == "__main__":
    sys.exit(main())
