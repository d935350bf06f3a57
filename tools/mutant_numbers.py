"""Try mutants of functions of one float32 with all numbers: ``python tools/mutant_numbers.py``.

What no golden case notices in ``rk_math.cuh`` either changes a result somewhere, or nowhere, which
is the reason that ``tools/mutants.toml`` gives then. Each function is compiled with its mutants
behind a number, as `mutant_trials.py` does; all 2^32 numbers take a minute for each mutant.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from mutant_switches import PRELUDE, switched  # noqa: E402
from mutant_users import regions  # noqa: E402
from mutants import Mutant, of_source  # noqa: E402

HEADER = "kernels_cu/include/rk_math.cuh"
DOMAINS = {"rk_exp_near": (-87.0, 88.0)}  # of functions that take no others
FUNCTIONS = ("rk_log1p", "rk_exp", "rk_exp_near", "rk_expm1")
MAIN = """
#include <cstdio>
#include <cstdlib>
int main(int argc, char **argv) {
    int number = atoi(argv[1]);
    unsigned long long differ = 0;
    unsigned first = 0;
    for (unsigned long long k = 0; k < 1ull << 32; ++k) {
        float x = __uint_as_float((unsigned)k);
        if (!(DOMAIN)) continue;
        rk_mutant = 0;
        float is = FUNCTION(x);
        rk_mutant = number;
        float other = FUNCTION(x);
        if (__float_as_uint(is) == __float_as_uint(other)) continue;
        if (is != is && other != other) continue;
        if (!differ++) first = (unsigned)k;
    }
    printf("%llu %.9g\\n", differ, __uint_as_float(first));
}
"""


def program(function: str, mutants: list[Mutant], folder: Path) -> Path:
    """Compile a function with its mutants, to be called with the number of one of them."""
    plain = (ROOT / HEADER).read_text(encoding="utf-8")
    text, held = switched(plain, list(enumerate(mutants, 1)))
    if len(held) != len(mutants):
        raise SystemExit(f"{function}: a mutant has no switch")
    (folder / "rk_math.cuh").write_text(text, encoding="utf-8")
    low, high = DOMAINS.get(function, (0.0, 0.0))
    domain = f"x >= {low}f && x <= {high}f" if low < high else "true"
    main = MAIN.replace("FUNCTION", function).replace("DOMAIN", domain)
    source = f'#include "cuda_on_cpu.h"\n{PRELUDE}\n#include "rk_math.cuh"\n{main}'
    places = [f"-I{folder}", f"-I{ROOT / 'kernels_cu/include'}", f"-I{ROOT / 'tests/on_cpu'}"]
    options = ["-std=c++17", "-O2", "-march=native", "-DRK_ON_CPU", "-ffp-contract=off", *places]
    target = folder / function
    command = ["g++", "-x", "c++", "-", "-Wno-unknown-pragmas", *options, "-o", str(target)]
    subprocess.run(command, input=source, text=True, check=True)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--functions", nargs="*", default=FUNCTIONS)
    parser.add_argument("--lines", nargs="*", type=int, help="default: all of the functions")
    args = parser.parse_args()
    every = [m for m in of_source(ROOT, HEADER) if m.kind == "sums"]
    for function in args.functions:
        first, last = next((a, b) for a, b, name, _ in regions(ROOT / HEADER) if name == function)
        own = [m for m in every if first <= m.line <= last]
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            path = program(function, own, Path(folder))
            for number, mutant in enumerate(own, 1):
                if args.lines and mutant.line not in args.lines:
                    continue
                done = subprocess.run(
                    [str(path), str(number)], capture_output=True, text=True, check=True
                )
                differ, at = done.stdout.split()
                print(f"{function}: {differ} numbers differ, the first {at}\n  {mutant.marked}")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
