"""Compile a kernel with g++ against ``cuda_on_cpu.h`` and run it with the arguments of a launch.

Environment variables: ``CXX`` names the compiler; ``RPUKIT_ON_CPU_CACHE`` the folder of compiled
kernels (`store`); ``RPUKIT_ON_CPU_SANITIZE=1`` builds with AddressSanitizer and UBSan (the process
then needs libasan preloaded); ``RPUKIT_ON_CPU_RACES=1`` finds races on shared memory (`races.h`);
``RPUKIT_ON_CPU_UCONTEXT=1`` switches stacks in the way of other
processors than x86-64.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rpukit import testing
from rpukit._kernels.launch import Variant
from rpukit.errors import KernelCompileError, LaunchError
from tests.on_cpu import store

HERE = Path(__file__).parent
HEADERS = ("cuda_on_cpu.h", "fibers.h", "fibers.cpp", "intrinsics.h")
CLUSTERS = "CLUSTER"  # macro of kernels whose blocks run in clusters, by clusters.h
# Contraction off: a product and a sum are two roundings, as NVRTC gets it by -fmad=false.
FLAGS = (
    "-std=c++17",
    "-march=native",
    "-DRK_ON_CPU",
    "-Werror=frame-larger-than=49152",  # of the 64 KiB that a thread has
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-ftls-model=local-dynamic",  # initial-exec: no room after some two hundred libraries
    "-Wno-unknown-pragmas",
)
SANITIZE = (
    "-O1",
    "-g1",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fsanitize-sections=oncpu_shared",  # one number behind a __shared__ array is found, too
    "-fno-sanitize-recover=all",
)
# Calls of -fsanitize=thread come to races.h: without the library that g++ would link.
BY_MEMORY = "rk_barrier_init"
RACES = (
    "-O1",
    "-g1",
    "-fsanitize=thread",
    "-nodefaultlibs",
    "-lstdc++",
    "-lm",
    "-lc",
    "-lgcc_s",
)
FAULTS = {
    1: "a barrier was not reached by all threads of a block",
    2: "lanes of a warp wait for lanes that never came, or name different lanes",
    4: "threads race on shared memory: one reads what another writes, with no barrier between",
    3: "a thread needs more than 64 KiB of stack: it calls itself too deeply",
    5: "a copy to shared memory begins, or ends, at an address that its size does not divide",
    6: "copies to shared memory are under way when a thread ends: it did not wait for them",
    7: "shared memory was written to, by a thread or a copy, while a copy to it was under way",
}
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_libraries: dict[str, ctypes.CDLL] = {}
# Names of libraries, by kernel and whatever else they depend on: a second launch hashes no text.
_keys: WeakKeyDictionary[Variant, dict[tuple[Any, ...], str]] = WeakKeyDictionary()
_lock = threading.Lock()


def flags(races: bool = False) -> tuple[str, ...]:
    """Options of the compiler, as the environment asks; to find races."""
    portable = os.environ.get("RPUKIT_ON_CPU_UCONTEXT") == "1"
    sanitize = os.environ.get("RPUKIT_ON_CPU_SANITIZE") == "1"
    if races:
        return (*FLAGS, *RACES)
    return (
        *FLAGS,
        *(("-DON_CPU_UCONTEXT",) if portable else ()),
        *(SANITIZE if sanitize else ("-O1",)),  # -O2 takes a third longer, most of it to compile
    )


def finds_races(variant: Variant) -> bool:
    """Whether a kernel is built to find races; those with barriers in memory are not."""
    return os.environ.get("RPUKIT_ON_CPU_RACES") == "1" and BY_MEMORY not in variant.source.text


def text_of(variant: Variant) -> str:
    """The translation unit: the header, the macros, the source, an exported launcher."""
    defines = "".join(f"#define {name} {value}\n" for name, value in variant.macros.items())
    body = _DYNAMIC.sub(r"ON_CPU_DYNAMIC_SHARED(\1, \2);", variant.source.text)
    launcher = f"ON_CPU_EXPORT({variant.entry})\n"
    races = '#include "races.h"\n' if finds_races(variant) else ""
    clusters = '#include "clusters.h"\n' * (CLUSTERS in variant.macros)
    top = f'#include "cuda_on_cpu.h"\n{races}{defines}{clusters}'
    return f'{top}{body}\n#line 1 "launcher"\n{launcher}'


def library(variant: Variant) -> ctypes.CDLL:
    """The compiled kernel, from memory, from the store, or made now."""
    races = finds_races(variant)
    options = flags(races)
    with _lock:
        known = _keys.setdefault(variant, {})
        key = known.get((text_of, options))
        if key not in _libraries:
            text, common, key = keys(variant, options, races)
            path = store.kept(
                f"{variant.source.name}-{key}.so",
                lambda target: build(variant, text, options, target, common),
            )
            known[text_of, options] = key
            _libraries[key] = ctypes.CDLL(str(path))
        return _libraries[key]


def keys(variant: Variant, options: Sequence[str], races: bool) -> tuple[str, str, str]:
    """The translation unit, what names that which all kernels share, and what names this one."""
    text = text_of(variant)
    headers = (*HEADERS, "races.h") if races else HEADERS
    ours = "\0".join((HERE / name).read_text(encoding="utf-8") for name in headers)
    common = store.key_of(ours, *options)
    more = (HERE / "clusters.h").read_text(encoding="utf-8") if CLUSTERS in variant.macros else ""
    return text, common, store.key_of(common, text, *([more] if more else []))


def compiled(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the compiler, without a sanitizer's library that this process may have been given."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(
        command, input=text, text=True, capture_output=True, check=False, env=env
    )


def header(compiler: str, options: Sequence[str], key: str) -> Path:
    """Where our header is, precompiled: a third of the time of a small kernel."""

    def make(target: Path) -> None:
        flags = [option for option in options if option != "-shared"]
        command = [compiler, "-x", "c++-header", str(HERE / "cuda_on_cpu.h"), *flags]
        compiled([*command, "-o", str(target)])  # if it fails the compiler reads the header itself

    return store.kept(f"header-{key}/cuda_on_cpu.h.gch", make).parent


def fibers(compiler: str, options: Sequence[str], key: str) -> Path:
    """What all kernels share, compiled once: half of the time of a small kernel."""

    def make(target: Path) -> None:
        flags = [option for option in options if option != "-shared"]
        command = [compiler, "-c", str(HERE / "fibers.cpp"), *flags, "-O2"]  # it runs a lot
        done = compiled([*command, "-o", str(target)])
        if done.returncode:
            raise KernelCompileError(
                f"fibers.cpp does not compile with {compiler}:\n{done.stderr}"
            )

    return store.kept(f"fibers-{key}.o", make)


def build(variant: Variant, text: str, options: Sequence[str], target: Path, common: str) -> None:
    """Compile a kernel to a file."""
    compiler = gxx()
    units = ["-x", "none", str(fibers(compiler, options, common))]
    # A quarter of the time of a small kernel less than with the usual linker.
    linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
    given = [*units, *options, *linker, "-o", str(target)]
    run_compiler(variant, text, given, header(compiler, options, common))


def check(variant: Variant) -> None:
    """Check the syntax of a kernel; raise `KernelCompileError` if the compiler refuses it."""
    options = flags()
    text, common, _ = keys(variant, options, races=False)
    alone = [option for option in options if option != "-shared" and not option.startswith("-l")]
    run_compiler(variant, text, [*alone, "-fsyntax-only"], header(gxx(), options, common))


def gxx() -> str:
    """Return the path of the C++ compiler."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        raise KernelCompileError("no g++ to run kernels on the CPU: install g++, or set CXX")
    return found


def run_compiler(variant: Variant, text: str, given: Sequence[str], ours: Path) -> None:
    """Run the compiler on a kernel; ``ours``: the folder of our header."""
    compiler = gxx()
    done = compiled([compiler, "-x", "c++", "-", *given, f"-I{ours}", f"-I{HERE}"], text)
    if done.returncode:
        raise KernelCompileError(
            f"{variant.source.path.name} does not compile with {compiler}:\n{done.stderr}",
            log=done.stderr,
            source=text,
        )


def run(
    variant: Variant,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: Sequence[Any],
    shared: int,
) -> None:
    """Run one launch to its end; the arguments have been checked."""
    function = getattr(library(variant), f"{variant.entry}__launch")
    grid3, block3 = ((ctypes.c_uint * 3)(*(*map(int, n), 1, 1)[:3]) for n in (grid, block))
    held = [holder(a) for a in args]
    addresses = (ctypes.c_void_p * len(held))(*[ctypes.addressof(h) for h in held])
    order = ctypes.c_uint(testing.order())
    fault = function(grid3, block3, ctypes.c_uint(shared), order, addresses)
    if fault:
        raise LaunchError(f"{variant.entry}: {FAULTS[fault]}")


def holder(a: Any) -> Any:
    """A place in memory that holds an argument as the kernel takes it."""
    if a is None:
        return ctypes.c_void_p(None)
    if isinstance(a, np.ndarray) and a.dtype.kind == "V":  # a structure, by value
        return (ctypes.c_char * a.nbytes).from_buffer_copy(a.tobytes())
    if isinstance(a, np.ndarray):
        return ctypes.c_void_p(a.ctypes.data)
    return np.ctypeslib.as_ctypes_type(type(a))(a.item())  # a NumPy scalar of the declared type
