"""Test every float32 function on all 2^32 inputs and print the table of ``docs/math.md``.

    python tools/check_math.py [name ...] [--stride N]

The references are those of ``tests/ulp.py``: the C library's in float64, whose own error is some
2^-29 ulp of float32. A function takes about a minute on two cores; exit status 1 if a stated bound
or a special value fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import ulp

# Walks that say more than one over everything: name, first and last bit pattern, floor.
PARTS = {
    "lgamma": [("lgamma, x > 0", 0, 0x7F800001, 0.0), ("lgamma, x < 0", 0x80000000, 1 << 32, 1.0)]
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"default: all of {', '.join(ulp.BOUNDS)}")
    parser.add_argument("--stride", type=int, default=1, help="take every N-th bit pattern")
    args = parser.parse_args()
    wrong = 0
    print("| function | largest error, ulp | at | wrong special values | inputs | time, s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in args.name or ulp.BOUNDS:
        for label, start, stop, floor in PARTS.get(name, [(name, 0, 1 << 32, 0.0)]):
            begin = time.perf_counter()
            found = ulp.walk(
                name, start, stop, args.stride, floor=floor, n_threads=os.cpu_count() or 1
            )
            seconds = time.perf_counter() - begin
            wrong += found.n_special > 0 or not found.max_ulp < ulp.BOUNDS[name]
            print(
                f"| {label} | {found.max_ulp:.5f} | {found.at:.9g} | {found.n_special} "
                f"| {found.n:,} | {seconds:.0f} |",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
