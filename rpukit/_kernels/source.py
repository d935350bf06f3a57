"""Find, read and parse ``.cu`` sources: includes, signatures, header lines.

Includes of our own headers are expanded here, each once, with ``#line`` so that a compiler's
message points at the right file. What is hashed is the expanded text: CuPy's own cache would not
see a change of a header. An include inside ``#if`` is expanded at its first place only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rpukit.errors import KernelCompileError, LaunchError

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[ \t]*$', re.M)
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[ \t]*$", re.M)
_QUALIFIERS = frozenset({"const", "__restrict__", "__grid_constant__"})
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_BOUNDS = r"(?:RK_CLUSTER\(\w+\)\s*)?(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
ENTRY = re.compile(
    rf'extern\s+"C"\s+__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(([^)]*)\)', re.S
)
_DEFAULT = re.compile(r"^#ifndef (\w+)[^\n]*\n#define \1[ \t]+([^\n]*?)[ \t]*$", re.M)
_HEADER_LINE = re.compile(r"^// (mirror|op|bits|arch|check|source): *(.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    ctype: str  # without const, restrict and the star
    pointer: bool


@dataclass(frozen=True, slots=True)
class Source:
    """One ``.cu`` file, expanded and parsed."""

    name: str
    path: Path
    text: str
    entries: Mapping[str, tuple[Parameter, ...]]
    header: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)  # of macros

    def settings(self, macros: Mapping[str, Any]) -> dict[str, str]:
        """Macros as the compiler gets them: sorted, as text, without those at their defaults.

        Equal binaries therefore have equal names in the cache, however they were requested.
        """
        unknown = [m for m in macros if not re.search(rf"\b{re.escape(m)}\b", self.text)]
        if unknown:
            known = ", ".join(sorted(self.defaults)) or "none"
            raise LaunchError(f"{self.name}.cu has no macro {unknown[0]!r}; there are: {known}")
        texts = {
            name: str(int(value)) if isinstance(value, bool) else str(value)
            for name, value in sorted(macros.items())
        }
        return {name: text for name, text in texts.items() if self.defaults.get(name) != text}

    def checks(self) -> list[dict[str, str]]:
        """Sets of macros to compile: the defaults and those of the ``// check:`` lines."""
        lines = ("", *self.header.get("check", ()))
        return [dict(pair.split("=", 1) for pair in line.split()) for line in lines]

    def resolve(self, ctype: str, macros: Mapping[str, Any]) -> str:
        """Type of a parameter where a macro names it, as REAL does."""
        return str(macros.get(ctype, self.defaults.get(ctype, ctype)))

    def digest(self, *parts: str) -> str:
        """Hash of the expanded text and of whatever else decides the binary."""
        return hashlib.sha256("\0".join((self.text, *parts)).encode()).hexdigest()


def folder() -> Path:
    """Folder of the kernels, inside the installed package or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "kernels_cu", package.parent / "kernels_cu"):
        if place.is_dir():
            return place
    raise KernelCompileError(f"no folder kernels_cu in {package} or beside it: reinstall rpukit")


def names() -> list[str]:
    """Names of all kernels, sorted."""
    return sorted(path.stem for path in folder().glob("*.cu"))


@cache
def load(name: str) -> Source:
    """Read a kernel's source by its name."""
    path = folder() / f"{name}.cu"
    if not path.is_file():
        raise KernelCompileError(f"no kernel {name!r}: there are {', '.join(names())}")
    return read(path)


def read(path: Path, headers: Mapping[str, str] | None = None) -> Source:
    """Read a source file; ``headers`` are texts that replace files of those names."""
    raw = path.read_text(encoding="utf-8")
    text = _expand(raw, path, headers or {}, set())
    bare = _COMMENT.sub(" ", text)
    entries = {name: _parameters(params) for name, params in ENTRY.findall(bare)}
    if not entries:
        raise KernelCompileError(
            f'{path.name}: no entry point (extern "C" __global__ void ...)', source=text
        )
    found: dict[str, list[str]] = {}
    for key, value in _HEADER_LINE.findall(raw):
        found.setdefault(key, []).append(value.strip())
    header = {key: tuple(values) for key, values in found.items()}
    return Source(path.stem, path, text, entries, header, _defaults(bare))


def _defaults(bare: str) -> dict[str, str]:
    """Defaults of macros, without those that have different defaults in different branches."""
    pairs = _DEFAULT.findall(bare)
    return {name: text for name, text in pairs if {t for n, t in pairs if n == name} == {text}}


def _expand(text: str, path: Path, headers: Mapping[str, str], seen: set[str]) -> str:
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(text.split("\n"), 1):
        match = _INCLUDE.match(line)
        if not match:
            lines.append("" if _PRAGMA_ONCE.match(line) else line)
            continue
        name = match.group(1)
        if name not in seen:
            seen.add(name)
            lines.append(_expand(*_header(name, path, headers), headers, seen))
            lines.append(f'#line {number + 1} "{path.name}"')
        else:
            lines.append("")
    return "\n".join(lines)


def _header(name: str, includer: Path, headers: Mapping[str, str]) -> tuple[str, Path]:
    if name in headers:
        return headers[name], Path(name)
    here = includer.parent
    for place in (here / name, here / "include" / name, folder() / "include" / name):
        if place.is_file():
            return place.read_text(encoding="utf-8"), place
    raise KernelCompileError(
        f"{includer.name} includes {name!r}, which is not in kernels_cu/include"
    )


def _parameters(text: str) -> tuple[Parameter, ...]:
    parameters = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        words = re.findall(r"\w+|\*", part)
        name, words = words[-1], [w for w in words[:-1] if w not in _QUALIFIERS]
        pointer = "*" in words
        parameters.append(Parameter(name, " ".join(w for w in words if w != "*"), pointer))
    return tuple(parameters)
