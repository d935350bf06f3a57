"""Break kernels on purpose and see whether the tests notice: ``python tools/mutate.py``.

Each mutant (`mutants.py`) is one edit in a copy of the tree. The golden cases of its kernels run
against it under g++, or through the mirrors if a mirror was edited; the first wrong result kills
it. What survives meets the tests that name the kernel, and where a bound or an address was edited
the golden cases once more, with checks of addresses. What survives all is printed with file, line
and edit, unless ``tools/mutants.toml`` says why it is equivalent.

    python tools/mutate.py --kernels decay diffusion           # all mutants of two kernels
    python tools/mutate.py --slice 20 --seed 3                  # twenty of all
    python tools/mutate.py --stages 1 --jobs 32 --seconds 500 --work build/mutants --out t.jsonl
    python tools/mutate.py --part 1/4 --jobs 32 --seconds 500 --work build/mutants --out t.jsonl

The table is a file of JSON lines; mutants that it holds already are not run again, but survivors
of fewer ``--stages`` go through the further ones. Needs g++, and pytest beside what rpukit needs.
Ends with 1 if a mutant survived without a reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from mutant_trials import ROOT, Bench
from mutants import EXTRA, KINDS, Equivalents, Mutant, mirror_of, of_mirror, of_source, reached

LIST = ROOT / "tools" / "mutants.toml"
MOST_USERS = 4  # kernels that a header is tried with
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


# --- the table ----------------------------------------------------------------------------------


def shown(record: dict[str, str]) -> str:
    where = f"{record['file']}:{record['line']} [{record['kind']}]"
    return f"{where}\n  - {record['before']}\n  + {record['after']}"


def sweep(
    args: argparse.Namespace, todo: list[tuple[Mutant, list[str]]], tried: dict[str, int]
) -> list[dict[str, str]]:
    """Try mutants side by side; each result goes to the table at once.

    `tried` has the number of stages that a mutant survived earlier.
    """
    deadline, done = time.monotonic() + args.seconds if args.seconds else None, []
    lock = threading.Lock()

    def work(item: tuple[Mutant, list[str]]) -> None:
        mutant, kernels = item
        if deadline and time.monotonic() > deadline:
            return
        first = tried.get(mutant.name, 0)
        try:
            result, why = bench.outcome(mutant, kernels, args.share, first, args.stages)
        except TimeoutError:
            return
        except RuntimeError as error:  # without an edit
            result, why = "broken", str(error)
        record = {**mutant.record(), "name": mutant.name, "result": result, "by": why}
        record["stages"] = args.stages
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
        bench = Bench(place.absolute(), args.jobs, deadline)
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
    parser.add_argument("--seconds", type=float, help="end after that time")
    parser.add_argument("--out", type=Path, help="table to append to, as JSON lines")
    parser.add_argument("--work", type=Path, help="folder for copies and compiled kernels")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each mutant")
    parser.add_argument("--share", type=int, default=1, help="of golden cases, every N-th")
    parser.add_argument(
        "--stages", type=int, default=9, help="1: golden cases, 2: tests of kernels too; all"
    )
    args = parser.parse_args()
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
    tried = {
        name: r["stages"]
        for name, r in before.items()
        if r["result"] == "survived" and r["stages"] < args.stages
    }
    todo = [(m, of) for m, of in chosen if m.name in tried or m.name not in before]
    results = sweep(args, todo, tried)
    now = {r["name"] for r in results}
    results += [before[m.name] for m, _ in chosen if m.name in before and m.name not in now]
    return 1 if report(results, equal, len(chosen) - len(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
