"""Call random objects from several threads: refused by name, or as if one came after the other.

    python tools/fuzz_threads.py --cases 1000 --seconds 600 --seed 1
    python tools/fuzz_threads.py --kinds tile --seed 1 --case 17

A case draws an object and a call (`tools/interrupt_cases.py`). Four threads make the same call on
one object. Each call is done or raises ThreadError, and the object ends in the state that as many
calls give one after the other, to the bit. Then four threads make the call on objects of their
own, each of which ends in the state of an object that was alone. The interpreter switches threads
as often as it can.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rpukit.errors import ThreadError  # noqa: E402
from tools.interrupt_cases import KINDS, Case, case, state  # noqa: E402

THREADS, CALLS = 4, 3
Counts = collections.Counter[str]


def one_object(one: Case, pool: ThreadPoolExecutor) -> Counts:
    """Share an object among threads; how many calls were done, and how many refused."""
    thing = one.make()

    def work(_: int) -> Counts:
        found = Counts()
        for _ in range(CALLS):
            try:
                one.call(thing)
                found["done"] += 1
            except ThreadError:
                found["refused"] += 1
        return found

    counts = sum(pool.map(work, range(THREADS)), Counts())
    alone = one.make()
    for _ in range(counts["done"]):
        one.call(alone)
    text = f"{one.text}: {counts['done']} calls in threads end elsewhere than one after the other"
    assert state(thing) == state(alone), text
    return counts


def side_by_side(one: Case, pool: ThreadPoolExecutor) -> Counts:
    """Give each thread an object of its own; how many calls were made."""

    def work(thing: Any) -> bytes:
        for _ in range(CALLS):
            one.call(thing)
        return state(thing)

    ends = {*pool.map(work, [one.make() for _ in range(THREADS)]), work(one.make())}
    assert len(ends) == 1, f"{one.text}: objects side by side end in {len(ends)} states"
    return Counts({"side by side": THREADS * CALLS})


def check(
    seed: int, number: int, kinds: list[str], pool: ThreadPoolExecutor
) -> tuple[Counts, str]:
    """Run a case; return how many calls ended how, and the fault or ""."""
    rng = np.random.default_rng([seed, number])
    kind = kinds[int(rng.integers(len(kinds)))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = case(kind, rng)
            counts = one_object(one, pool) + side_by_side(one, pool)
    except Exception as error:
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        return Counts({f"{kind}: fault": 1}), text
    return Counts({f"{kind}: {name}": n for name, n in counts.items()}), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    kinds, end = given.kinds.split(","), time.monotonic() + given.seconds
    numbers = range(given.cases) if given.case is None else [given.case]
    counts, done = Counts(), 0
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(THREADS) as pool:
        for number in numbers:
            if time.monotonic() > end:
                break
            more, fault = check(given.seed, number, kinds, pool)
            counts, done = counts + more, done + 1
            if fault:
                print(f"case {number} of seed {given.seed}: {fault}", flush=True)
    for name, n in sorted(counts.items()):
        print(f"{name:26} {n}")
    faults = sum(n for name, n in counts.items() if name.endswith("fault"))
    print(f"{done} cases, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
