"""Compile a source to a cubin by NVRTC, with exactly our options; no GPU is needed.

CuPy's own compile path appends ``-ftz=true`` after the caller's options and asks for a device, so
the binary is made here and handed to ``cupy.RawModule(path=...)``.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpukit import _cache as cache
from rpukit import _device
from rpukit._kernels.source import Source
from rpukit.errors import KernelCompileError

_log = logging.getLogger("rpukit")

OPTIONS = (
    "-std=c++17",
    "-fmad=false",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "--ptxas-options=-v",
)
# Architectures whose newest instructions (wgmma and its followers) need the "a".
_WITH_A = frozenset({"90", "100", "101", "103", "110"})
_USAGE = re.compile(
    r"Function properties for '?(\w+)'?\s*\n"
    r"[^\n]*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s*\n"
    r"[^\n]*Used (\d+) registers([^\n]*)"
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of one entry point: registers, spilled bytes and shared memory."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Binary:
    """A cubin and the assembler's report, by entry point."""

    cubin: bytes
    usage: Mapping[str, Usage]
    log: str = ""


def architecture(capability: str) -> str:
    """Name of the architecture of a compute capability: ``"90"`` becomes ``"sm_90a"``."""
    return f"sm_{capability}a" if capability in _WITH_A else f"sm_{capability}"


def defines(macros: Mapping[str, Any]) -> tuple[str, ...]:
    """Compiler options for macros, in a fixed order."""
    return tuple(f"-D{name}={value}" for name, value in sorted(macros.items()))


def compiler_version() -> str:
    """Version of NVRTC, as in ``"12.9"``."""
    return "{}.{}".format(*_device.nvrtc().getVersion())


def cubin(source: Source, arch: str, macros: Mapping[str, Any]) -> bytes:
    """Return the binary of a source, from the cache if possible."""
    name = source.digest(arch, *OPTIONS, *defines(macros), compiler_version()) + ".cubin"
    known = cache.read(name)
    if known is not None:
        return known
    data = build(source, arch, macros).cubin
    cache.write(name, data)
    return data


def usage(source: Source, arch: str, macros: Mapping[str, Any]) -> Mapping[str, Usage]:
    """Compile, and return the assembler's report on each entry point.

    Raises
    ------
    KernelCompileError
        If it does not compile, or the assembler's report cannot be parsed.
    """
    binary = build(source, arch, macros)
    if set(binary.usage) != set(source.entries):
        raise KernelCompileError(
            f"{source.path.name}: the assembler's report for {arch} does not name each of "
            f"{', '.join(source.entries)}:\n{binary.log}",
            log=binary.log,
            source=source.text,
        )
    return binary.usage


def _no_cache() -> tuple[str, ...]:
    """Options that turn NVRTC's cache off, since cached binaries come without a report."""
    return ("-no-cache",) if _device.nvrtc().getVersion() >= (12, 9) else ()


def build(source: Source, arch: str, macros: Mapping[str, Any]) -> Binary:
    """Compile, and read the assembler's report, if it gives one.

    Raises
    ------
    KernelCompileError
        With the compiler's log.
    DeviceError
        Where NVRTC is missing.
    """
    nvrtc = _device.nvrtc()
    start = time.perf_counter()
    program = nvrtc.createProgram(source.text, source.path.name, (), ())
    try:
        options = (*OPTIONS, *_no_cache(), f"-arch={arch}", *defines(macros))
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise KernelCompileError(
                f"{source.path.name} does not compile for {arch} with {' '.join(options)}: "
                f"{error}\n{log}",
                log=log,
                source=source.text,
            ) from error
        log = nvrtc.getProgramLog(program)
        data = nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)
    _log.info("compiled %s for %s in %.2f s", source.name, arch, time.perf_counter() - start)
    return Binary(data, _usage(log), log)


def _usage(log: str) -> dict[str, Usage]:
    usage = {}
    for name, stack, stores, loads, registers, rest in _USAGE.findall(log):
        shared = _SHARED.search(rest)
        usage[name] = Usage(
            registers=int(registers),
            spill_bytes=int(stores) + int(loads),
            stack_bytes=int(stack),
            shared_bytes=int(shared.group(1)) if shared else 0,
        )
    return usage
