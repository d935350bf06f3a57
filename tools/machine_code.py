"""Machine code of a kernel, with the cycles that its instructions take to issue.

python tools/machine_code.py det_gemm_mma BI=16 BJ=8 WI=1 WJ=1 ST=16 COPIERS=2 --loops HMMA
python tools/machine_code.py det_gemm COPIERS=64 TILE_M=4 TILE_N=16 TILE_K=128 RM=1 RN=1

It needs NVRTC and `nvdisasm` (of the CUDA toolkit, or the PyPI package nvidia-cuda-nvdisasm), and
no GPU. A line has the cycles until the warp's next instruction may issue; the scoreboards that it
sets when it has written (w) and read (r) registers, and a bit for each that it waits for. What
loads and taken branches add is not known. `--loops` sums up the loops that have the instructions
named, and the cycles from one of these to the next.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rpukit._kernels import compile as nvrtc
from rpukit._kernels import source

_FIRST = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(.*?)\s*;\s+/\* 0x[0-9a-f]+ \*/")
_SECOND = re.compile(r"/\* 0x([0-9a-f]+) \*/")
_BRANCH = re.compile(r"BRA.*`\((\.L\w+)\)")


class Line(NamedTuple):
    """Instruction, or a label if it has no address."""

    address: str
    text: str
    stall: int = 0
    writes: int = 7  # scoreboard; 7: none
    reads: int = 7
    waits: int = 0  # bits, of scoreboards

    def __str__(self) -> str:
        if not self.address:
            return self.text
        set_by = "".join(
            f" {word}{number}" if number < 7 else "   "
            for word, number in (("w", self.writes), ("r", self.reads))
        )
        return f"{self.address} {self.stall:2d}{set_by} {self.waits:06b} {self.text}"


def lines_of(listing: str) -> list[Line]:
    """Read what `nvdisasm -hex` prints; bits 41 to 57 of the second word control the issue."""
    rows, found = listing.splitlines(), []
    for row, after in zip(rows, [*rows[1:], ""], strict=True):
        if row.startswith(".L"):
            found.append(Line("", row.rstrip(":")))
            continue
        first, second = _FIRST.match(row), _SECOND.search(after)
        if first and second:
            control = int(second.group(1), 16) >> 41
            bits = [control >> at & mask for at, mask in ((0, 15), (5, 7), (8, 7), (11, 63))]
            found.append(Line(first.group(1), first.group(2), *bits))
    return found


def loops(lines: list[Line], words: tuple[str, ...]) -> list[str]:
    """Describe the loops with instructions of these names."""
    labels = {x.text: i for i, x in enumerate(lines) if not x.address}
    found = []
    for i, line in enumerate(lines):
        back = _BRANCH.search(line.text)
        begin = labels.get(back.group(1), i + 1) if back else i + 1
        body = lines[begin : i + 1]
        at, cycles = [], 0
        for one in body:
            if any(word in one.text for word in words):
                at.append(cycles)
            cycles += one.stall
        if at:
            apart = [b - a for a, b in pairwise(at)]
            found.append(
                f"{lines[begin].text}: {len(body)} lines, {cycles} cycles, {len(at)} of them, "
                f"apart {' '.join(map(str, apart[:64]))}"
            )
    return found


def disassembled(name: str, macros: dict[str, str], arch: str) -> list[Line]:
    """Compile a kernel and disassemble it."""
    program = shutil.which("nvdisasm")
    if program is None:
        sys.exit("nvdisasm is not on the path: it comes with the CUDA toolkit")
    text = source.load(name)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        # CuPy leaves out the last byte of a binary.
        file.write(nvrtc.cubin(text, arch, text.settings(macros)) + b"\0")
        file.flush()
        done = subprocess.run(
            [program, "-c", "-hex", file.name], capture_output=True, text=True, check=True
        )
    return lines_of(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernel")
    parser.add_argument("macros", nargs="*", help="NAME=VALUE")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--loops", default="", help="names of instructions: HMMA,FFMA")
    given = parser.parse_args()
    macros = dict(text.split("=", 1) for text in given.macros)
    lines = disassembled(given.kernel, macros, given.arch)
    words = tuple(filter(None, given.loops.split(",")))
    print(*(loops(lines, words) if words else lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
