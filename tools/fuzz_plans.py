"""Change plan files and train by them: each is refused by name, or computes the same bits.

    python tools/fuzz_plans.py --cases 2000 --seconds 600 --seed 1
    python tools/fuzz_plans.py --seed 1 --case 17

A case changes one to three places of a plan's file (numbers, texts, lists, records), half of them
outside the instructions, and leaves out the checksum, which no change would pass. The plan is
loaded, and a network is trained by it on the CPU, in a process whose crash counts as a failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from mutant_forks import forked  # noqa: E402

from rpukit import tiled  # noqa: E402
from rpukit.errors import FormatError, PlanError  # noqa: E402
from tests.tiled.reference_plans import plan_of, trained  # noqa: E402
from tests.tiled.test_plan_files import NAME, SOURCES, mutated, paths  # noqa: E402

CHUNK = 50  # cases of one process
LIMIT = 300.0  # seconds of a chunk


class Source:
    """A plan, its file, and what training by it gives."""

    def __init__(self, buffering: str, l1: int) -> None:
        plan = plan_of(NAME, l1, buffering)
        self.data = json.loads(plan.to_json())
        del self.data["checksum"]
        self.every = list(paths(self.data))
        self.heads = [path for path in self.every if "instructions" not in path]
        self.right = trained(NAME, plan)


def case(source: Source, seed: int, number: int) -> str:
    """Run a case: "refused", "the same bits", or the failure."""
    rng = np.random.default_rng([seed, number])
    changed = mutated(source.data, rng, source.heads if rng.random() < 0.5 else source.every)
    try:
        loss, arrays = trained(NAME, tiled.Plan.from_json(json.dumps(changed)))
    except (FormatError, PlanError):
        return "refused"
    except Exception:
        return f"failed: {traceback.format_exc()[-600:]}"
    same = np.array_equal(loss, source.right[0])
    same = same and all(np.array_equal(v, arrays[k]) for k, v in source.right[1].items())
    return "the same bits" if same else "failed: other bits"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone")
    given = parser.parse_args()
    sources = [Source(*source) for source in SOURCES]
    end, counts = time.monotonic() + given.seconds, Counter[str]()

    def some(numbers: range) -> list[Any]:
        return [[n, case(sources[n % len(sources)], given.seed, n)] for n in numbers]

    if given.case is not None:
        print(some(range(given.case, given.case + 1))[0][1])
        return 0
    for first in range(0, given.cases, CHUNK):
        if time.monotonic() > end:
            break
        numbers = range(first, min(first + CHUNK, given.cases))
        found, why = forked(lambda n=numbers: some(n), LIMIT)
        for n, outcome in found or [[first, f"failed: {numbers} {why}"]]:
            counts[outcome.split(":")[0]] += 1
            if outcome.startswith("failed"):
                print(f"case {n} of seed {given.seed}: {outcome}", flush=True)
    print(f"{counts.total()} files: {dict(counts)}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
