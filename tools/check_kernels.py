"""Compile the kernels for GPUs by NVRTC, which needs none, and look for what makes them slow.

    python tools/check_kernels.py          what CI runs: each set of macros for one architecture
    python tools/check_kernels.py --all    for all of them, as `python -m rpukit check`

Every kernel with its default macros is compiled for sm_80, sm_90a, and sm_100a or sm_120; with
each other set of macros of its head for sm_80 or sm_90a. The day decides which; the environment
variable RPUKIT_SWEEPS gives another day, or ``all``.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any

from rpukit._kernels import compile as nvrtc
from rpukit._kernels import source

PAIRS = ("sm_80", "sm_90a"), ("sm_100a", "sm_120")
Binary = tuple[str, dict[str, Any], str]


def chosen(day: int | None) -> list[Binary]:
    """Kernels, macros and architectures of a day; None: all of them."""
    found: list[Binary] = []
    for name in source.names():
        text = source.load(name)
        known = " ".join(text.header.get("arch", ())).split()
        for number, macros in enumerate(text.checks()):
            for pair in PAIRS[:1] if macros else PAIRS:
                archs = [arch for arch in pair if arch in known]
                both = len(archs) == 2 and (bool(macros) or pair == PAIRS[1])
                if both and day is not None:
                    archs = [archs[(day + number) % 2]]
                found += [(name, macros, arch) for arch in archs]
    return found


def fault(binary: Binary) -> str:
    """Compile; describe what makes a binary slow, or return nothing.

    It spills registers, or its wgmma wait for each other: C7515 of the assembler, a third slower.
    """
    name, macros, arch = binary
    text = source.load(name)
    built = nvrtc.build(text, arch, text.settings(macros))
    words = " ".join(f"{macro}={value}" for macro, value in macros.items())
    spilled = built.usage[name].spill_bytes
    if spilled:
        return f"{name} {arch} {words}: spills {spilled} bytes"
    serial = "wgmma.mma_async instructions are serialized" in built.log
    return f"{name} {arch} {words}: wgmma instructions are serialised" if serial else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    day = os.environ.get("RPUKIT_SWEEPS") or str(datetime.now(UTC).toordinal())
    binaries = chosen(None if options.all or day == "all" else int(day))
    with ProcessPoolExecutor(options.jobs) as pool:
        faults = [found for found in pool.map(fault, binaries, chunksize=4) if found]
    print(*faults, sep="\n", end="\n" if faults else "")
    compiler = nvrtc.compiler_version()
    print(f"{len(binaries)} binaries compiled with NVRTC {compiler}, {len(faults)} of them slow")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
