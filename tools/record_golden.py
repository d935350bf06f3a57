"""Record the golden hashes on a GPU: ``python tools/record_golden.py [kernel ...]``.

Each kernel's cases (``tests/golden/cases``) are run on the GPU, compared with the mirrors, and
their sha256 written to ``tests/golden/hashes/<kernel>.json`` (or below ``--out``) with GPU,
driver, CUDA, CuPy and date. With ``--new`` the hashes that are there stay, and only cases without
one are run. With ``--check`` nothing is written and no mirror runs: the GPU has to give the hashes
recorded.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HASHES = ROOT / "tests" / "golden" / "hashes"
sys.path.insert(0, str(ROOT))

from rpukit import _device  # noqa: E402
from rpukit._files.writing import write_text  # noqa: E402
from tests.golden.cases import CASES, digest  # noqa: E402


def machine() -> dict[str, str]:
    cupy = _device.cupy()
    runtime = cupy.cuda.runtime
    return {
        "gpu": runtime.getDeviceProperties(0)["name"].decode(),
        "driver": str(runtime.driverGetVersion()),
        "cuda": str(runtime.runtimeGetVersion()),
        "nvrtc": "{}.{}".format(*_device.nvrtc().getVersion()),
        "cupy": cupy.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def recorded(kernel: str) -> dict[str, str]:
    """Read the hashes recorded on a GPU; a note in the file lists those of the mirror."""
    path = HASHES / f"{kernel}.json"
    record = json.loads(path.read_text()) if path.is_file() else {"cases": {}}
    pending = record.get("note", {}).get("cases of the mirror alone", [])
    return {name: h for name, h in record["cases"].items() if name not in pending}


def check(kernels: list[str]) -> int:
    """Compare the GPU's hashes with the recorded ones."""
    wrong = n_case = 0
    for kernel in kernels:
        known = recorded(kernel)
        for case in CASES[kernel]:
            n_case += 1
            if digest(case.run("gpu")) != known.get(case.name):
                wrong += 1
                print(f"DIFFERS from the hash recorded: {kernel} {case.name}")
    print(f"{wrong} of {n_case} cases of {len(kernels)} kernels differ")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", nargs="*", help="default: all")
    parser.add_argument("--out", type=Path, default=HASHES)
    parser.add_argument("--new", action="store_true", help="only cases without a hash")
    parser.add_argument("--check", action="store_true", help="compare with the hashes recorded")
    args = parser.parse_args()
    if args.check:
        return check(args.kernel or sorted(CASES))
    args.out.mkdir(parents=True, exist_ok=True)
    where, wrong = machine(), 0
    for kernel in args.kernel or sorted(CASES):
        known = recorded(kernel) if args.new else {}
        hashes = {c.name: known[c.name] for c in CASES[kernel] if c.name in known}
        for case in (c for c in CASES[kernel] if c.name not in known):
            hashes[case.name] = digest(case.run("gpu"))
            if digest(case.run("cpu")) != hashes[case.name]:
                wrong += 1
                print(f"DIFFERS from the mirror: {kernel} {case.name}")
        record = {**where, "cases": hashes}
        write_text(args.out / f"{kernel}.json", json.dumps(record, indent=1) + "\n")
        print(f"{kernel}: {len(hashes)} cases")
    print(f"{wrong} cases differ from the mirrors on {where['gpu']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
