"""Builds generated C for a target with CMake, runs it under QEMU, and reads what it reports."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Programs, the packages of Debian that have them, and ticks of a board's clock for one instruction
ARM = {"arm-none-eabi-gcc": "gcc-arm-none-eabi", "qemu-system-arm": "qemu-system-arm"}
RISCV = {"riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf"}
RISCV |= {"qemu-system-riscv32": "qemu-system-misc"}
TOOLS = {
    "mps3_an547": (ARM, 2.048),
    "mps2_an500": (ARM, 1.6),
    "mps2_an505": (ARM, 1.28),
    "riscv_virt": (RISCV, 1.0),
}


@dataclass(frozen=True, slots=True)
class TargetRun:
    """What a run on a target reported.

    Parameters
    ----------
    output : str
    errors : int
        Losses and lasting values that do not have the bits of the CPU executor.
    train, update : float
        Instructions of all mini-batches, and of all steps of the optimiser.
    code, weights, arenas : int
        Bytes of instructions and constants, of weights, and of memory for the arenas.
    stack : int
        Bytes of the stack that were used.
    """

    output: str
    errors: int
    train: float
    update: float
    code: int
    weights: int
    arenas: int
    stack: int


def missing(target: str) -> list[str]:
    """List the packages without which a target cannot be built or run."""
    tools = {**TOOLS[target][0], "cmake": "cmake", "make": "make"}
    return sorted({package for tool, package in tools.items() if shutil.which(tool) is None})


def run_on(folder: Path, target: str, *options: str, timeout: float = 60) -> TargetRun:
    """Build the C of a folder for a target and run it."""
    need = missing(target)
    assert not need, f"{target} needs packages: apt-get install {' '.join(need)}"
    build = folder / f"build_{target}"
    _done(["cmake", "-S", str(folder), "-B", str(build), f"-DTARGET={target}", *options])
    _done(["cmake", "--build", str(build)])
    done = subprocess.run(
        ["cmake", "--build", str(build), "--target", "run"],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where QEMU writes what comes by semihosting
        text=True,
        timeout=timeout,
    )
    pattern = r"BENCH stack=(\d+) train_cycles=(\d+) opt_cycles=(\d+) errors=(\d+)"
    found = re.search(pattern, done.stdout)
    assert found, done.stdout
    stack, train, update, errors = map(int, found.groups())
    each = TOOLS[target][1]
    sections = _sections(build / "example", target)
    code = sections.get(".text", 0) + sections.get(".data", 0)
    arenas = sum(size for name, size in sections.items() if "arena" in name)
    return TargetRun(
        done.stdout, errors, train / each, update / each, code,
        sections.get(".weights", 0), arenas, stack,
    )  # fmt: skip


def _done(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _sections(program: Path, target: str) -> dict[str, int]:
    """Read the sizes of a program's sections."""
    compiler = next(tool for tool in TOOLS[target][0] if tool.endswith("gcc"))
    size = compiler.replace("gcc", "size")
    text = subprocess.run(
        [size, "-A", str(program)], check=True, capture_output=True, text=True
    ).stdout
    return {name: int(n) for name, n in re.findall(r"^(\.\w+)\s+(\d+)", text, re.MULTILINE)}
