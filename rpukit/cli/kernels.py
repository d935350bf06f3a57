"""``kernels`` lists the kernels; ``check`` compiles them, without a GPU."""

from __future__ import annotations

import argparse
import re
from typing import Any

from rpukit._kernels import compile as nvrtc
from rpukit._kernels import source
from rpukit.cli.arguments import named
from rpukit.cli.output import print_json, print_table, print_text
from rpukit.errors import ParameterError

__all__ = ["add_check_arguments", "add_kernels_arguments", "run_check", "run_kernels"]

_BITS = {
    "exact": "the same bits on every GPU, on the CPU and for every schedule",
    "arch-exact": "the same bits within one kind of tensor core, and on its CPU mirror",
}


def add_kernels_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("name", nargs="*", help="kernels to describe in full; default: list all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run_kernels(args: argparse.Namespace) -> int:
    """List every kernel with its class of bit contract and its op, or describe some.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
    """
    names = [named(name, "kernel", source.names()) for name in args.name] or source.names()
    kernels = [_facts(name) for name in names]
    if args.json:
        print_json(kernels)
    elif args.name:
        for k, facts in enumerate(kernels):
            if k:
                print()
            print_table([(name, str(value)) for name, value in facts.items() if value])
    else:
        rows = [("kernel", "bits", "op: the Python function that launches it")]
        rows += [
            (facts["kernel"], facts["bits"], facts["op"].removeprefix("rpukit."))
            for facts in kernels
        ]
        print_table(rows)
        print()
        for bits, text in _BITS.items():
            print_text(f"{bits}: {text}", indent=4)
        print_text("Ops are in the package rpukit. `kernels NAME` says more of one.", indent=4)
    return 0


def _facts(name: str) -> dict[str, str]:
    """Describe a kernel by the head of its source."""
    text = source.load(name)
    head = {key: " ".join(values) for key, values in text.header.items()}
    raw = text.path.read_text(encoding="utf-8")
    words = re.match(r"(?://[^\n]*\n)*?(?=//\s*\n|// \w+:|[^/])", raw)
    purpose = " ".join(line.lstrip("/ ") for line in (words[0] if words else "").splitlines())
    return {
        "kernel": name,
        "purpose": purpose,
        "bits": head.get("bits", "?"),
        "op": head.get("op", "?"),
        "mirror": head.get("mirror", "?"),
        "arch": head.get("arch", "?"),
        "source": head.get("source", ""),
        "file": str(text.path),
    }


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``check``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("name", nargs="*", help="kernels; default: all")
    text = "architecture, such as sm_90a, or several; default: those of each kernel's head"
    parser.add_argument("--arch", action="append", metavar="ARCH", help=text)
    text = "compile only with default macros, not the other sets of each kernel's head"
    parser.add_argument("--plain", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run_check(args: argparse.Namespace) -> int:
    """Compile kernels for the architectures of their heads; no GPU is needed.

    Parameters
    ----------
    args : argparse.Namespace

    Returns
    -------
    int
        1 if a kernel spills registers.
    """
    found: list[dict[str, Any]] = []
    for name in [named(name, "kernel", source.names()) for name in args.name] or source.names():
        text = source.load(name)
        known = " ".join(text.header.get("arch", ())).split()
        for macros in text.checks():
            if args.plain and macros:
                continue
            for arch in [arch for arch in known if not args.arch or arch in args.arch]:
                usage = nvrtc.usage(text, arch, text.settings(macros))[name]
                counts = {
                    "registers": usage.registers,
                    "spilled": usage.spill_bytes,
                    "shared": usage.shared_bytes,
                }
                found.append({"kernel": name, "arch": arch, **counts, "macros": macros})
    if not found:
        raise ParameterError(f"--arch {' '.join(args.arch)}: no selected kernel is built for it")
    spilled = sum(one["spilled"] > 0 for one in found)
    compiler = nvrtc.compiler_version()
    if args.json:
        print_json({"nvrtc": compiler, "spilling": spilled, "binaries": found})
        return 1 if spilled else 0
    rows: list[tuple[str, ...]] = [("kernel", "arch", "registers", "spilled", "shared", "macros")]
    for one in found:
        words = " ".join(f"{macro}={value}" for macro, value in one["macros"].items())
        rows.append((*(str(value) for value in list(one.values())[:-1]), words or "-"))
    print_table(rows, right=(2, 3, 4))
    print("\nspilled, shared: bytes; -: default macros")
    print(f"{len(found)} binaries compiled with NVRTC {compiler}, {spilled} spill registers")
    return 1 if spilled else 0
