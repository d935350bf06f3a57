"""Compile a kernel with g++ against ``cuda_on_cpu.h`` and run it with the arguments of a launch.

``RPUKIT_ON_CPU_SANITIZE=1`` builds with AddressSanitizer and UBSan (the process then needs libasan
preloaded); ``RPUKIT_ON_CPU_CACHE`` names the folder of the compiled kernels.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from rpukit import testing
from rpukit._kernels.launch import Variant
from rpukit.errors import KernelCompileError, LaunchError

HERE = Path(__file__).parent
HEADER = HERE / "cuda_on_cpu.h"
FLAGS = (
    "-std=c++17", "-march=native", "-DRK_ON_CPU", "-fPIC", "-shared", "-ffp-contract=off",
    "-ftls-model=initial-exec", "-fvisibility=hidden", "-Wno-unknown-pragmas",
)  # fmt: skip
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
_libraries: dict[str, ctypes.CDLL] = {}


def sanitizing() -> bool:
    return os.environ.get("RPUKIT_ON_CPU_SANITIZE") == "1"


def folder() -> Path:
    named = os.environ.get("RPUKIT_ON_CPU_CACHE")
    place = Path(named) if named else Path(tempfile.gettempdir()) / f"rpukit_on_cpu_{os.getuid()}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def text_of(variant: Variant) -> str:
    """The translation unit: the header, the macros, the source, an exported launcher."""
    defines = "".join(f"#define {name} {value}\n" for name, value in sorted(variant.macros.items()))
    body = _DYNAMIC.sub(r"ON_CPU_DYNAMIC_SHARED(\1, \2);", variant.source.text)
    launcher = f"ON_CPU_EXPORT({variant.entry}, {variant.entry})\n"
    return f'#include "cuda_on_cpu.h"\n{defines}{body}\n#line 1 "launcher"\n{launcher}'


def library(variant: Variant) -> ctypes.CDLL:
    """The compiled kernel, from memory, from the folder, or made now."""
    text = text_of(variant)
    flags = (*FLAGS, *(SANITIZE if sanitizing() else ("-O2",)))
    key = hashlib.sha256("\0".join((text, HEADER.read_text(), *flags)).encode()).hexdigest()
    if key not in _libraries:
        target = folder() / f"{key[:32]}.so"
        if not target.exists():
            scratch = target.with_suffix(f".{os.getpid()}")
            command = ["g++", "-x", "c++", "-", *flags, f"-I{HERE}", "-o", str(scratch)]
            done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
            if done.returncode:
                raise KernelCompileError(
                    f"{variant.source.path.name} does not compile with g++:\n{done.stderr}", done.stderr, text
                )
            os.replace(scratch, target)
        _libraries[key] = ctypes.CDLL(str(target))
    return _libraries[key]


def run(variant: Variant, grid: tuple, block: tuple, args: list, shared: int) -> None:
    """Run one launch to its end."""
    function = getattr(library(variant), f"{variant.entry}__launch")
    sizes = [(ctypes.c_uint * 3)(*((*map(int, size), 1, 1, 1)[:3])) for size in (grid, block)]
    if np.prod([int(n) for n in block]) > 1024:
        raise LaunchError(f"{variant.entry}: a block of {block} has more than 1024 threads")
    held = [_holder(a) for a in args]
    pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(h) for h in held])
    code = function(*sizes, ctypes.c_uint(shared), ctypes.c_uint(testing.order()), None, pointers)
    if code:
        raise LaunchError(f"{variant.entry}: a barrier was not reached by all threads of a block")


def _holder(a: object) -> ctypes._SimpleCData:
    if a is None:
        return ctypes.c_void_p(None)
    if isinstance(a, np.ndarray):
        return ctypes.c_void_p(a.ctypes.data)
    kind = np.ctypeslib.as_ctypes_type(type(a))  # a NumPy scalar of the declared type
    return kind(a.item())
