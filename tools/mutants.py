"""Mutants of kernels and mirrors: one edit of one line each, and those known to be equivalent.

A mutant removes a barrier or a wait for copies, moves a bound by one, changes the order or the
rounding of a sum, drops the high half of a counter, or ignores a status. `tools/mutate.py` runs
the tests against them. Lines that only a GPU compiles, and those that stand in for a GPU's
instructions on the CPU, are left out.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

KINDS = ("barriers", "waits", "bounds", "draws", "sums", "counters", "status")
EXTRA = ("addresses",)  # 32-bit addresses fail on arrays of 2^31 elements and more alone
BARRIER = re.compile(r"\b(?:__syncthreads|__syncwarp|rk_sync_group)\([^()]*\);")
BARRIER_VALUE = re.compile(r"\b__syncthreads_(?:or|and|count)(?=\()")
WAIT = re.compile(
    r"\b(?:rk_copies_left|rk_stores_left|rk_wgmma_left)<.+?>\(\);"
    r"|\brk_wait\([^;]*\);|\brk_stores_done\(\);"
)
WAIT_LESS = re.compile(r"\b(?:rk_copies_left|rk_stores_left|rk_wgmma_left)<(.+?)>\(\)")
COMPARE = re.compile(r"(?<=[\w)\]]) (<=|>=|<|>) (?=[\w(\-*!~&])")
TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
ONE = re.compile(r" [-+] 1\b(?![.\w])")
DRAW = re.compile(r"uniform|rk_word|slots|\bdraw|\bprob|\bchosen\b|\bpassed\b", re.I)
COUNTER = re.compile(
    r"(?:first_sample|sample|event|number|index|stuck_event)\b(?! \*|\[)|first, u64 event"
)
HIGH = re.compile(r">> (?:32|u64\(32\)|u8\(32\)|np\.uint64\(32\))(?!\d)")
WIDE = re.compile(r"\b[ui]64 (?=\w)|\((?:u64|i64)\)")
LOOP = re.compile(r"for \((int|i64) (\w+) = ([^;]+); \2 < ([^;&|]+); (?:\+\+\2|\2\+\+)\)")
RANGE = re.compile(r"\bfor (\w+) in range\(([^(),]+)\):")
# A number that goes on from its own value, but for maxima, whose order does not matter.
ADDS = re.compile(r"[-+]=|(?<![\w.\[\]])([\w.\[\]]+) = (?![^;\n]*(?:\?|max))[^;=\n]*\b\1(?!\w)")
FMA = re.compile(r"\b(?:rk_fma|fma_rn|__fmaf_rn|__fma_rn|fma32|fma64|fma)(?=\()")
STATUS = re.compile(
    r"\*status \|\| |if \(\*status\) return;|(?:if \([^()]*\) )?atomicCAS\(status[^;]*;"
)
ON_CPU = re.compile(r"^\s*#\s*if.*\b(?:RK_ON_CPU|__CUDA_ARCH__)\b")
MIRROR = re.compile(r"^// mirror: *(\S+?)::(\w+)", re.M)


@dataclass(frozen=True)
class Mutant:
    """One edit: characters `begin` to `end` of a line of a file become `text`."""

    file: str
    line: int  # from 1
    begin: int
    end: int
    text: str
    kind: str
    before: str  # the line, without its indentation
    above: str = ""  # code of the line before
    below: str = ""  # code of the next line

    @property
    def after(self) -> str:
        """The line with the edit, without its indentation."""
        return self.applied(self.before, self.begin, self.end)

    def applied(self, line: str, begin: int, end: int) -> str:
        return line[:begin] + self.text + line[end:]

    @property
    def marked(self) -> str:
        """The line with what the edit replaces, as ``i «<→<=» n``."""
        old = f"«{self.before[self.begin : self.end]}→{self.text}»"
        return f"{self.before[: self.begin]}{old}{self.before[self.end :]}"

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.begin}:{self.kind}:{self.text}"

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "after": self.after}

    def write(self, root: Path) -> str:
        """Make the edit in a tree; returns the text that was there."""
        path = root / self.file
        old = path.read_text(encoding="utf-8")
        lines = old.split("\n")
        indent = len(lines[self.line - 1]) - len(lines[self.line - 1].lstrip())
        if lines[self.line - 1].strip() != self.before:
            raise ValueError(f"{self.file}:{self.line} is not {self.before!r}")
        lines[self.line - 1] = " " * indent + self.after
        path.write_text("\n".join(lines), encoding="utf-8")
        return old


def _arguments(text: str, at: int) -> tuple[list[str], int]:
    """Split the arguments of a call whose parenthesis opens at `at`; the end of the call."""
    depth, parts, begin = 0, [], at + 1
    for k in range(at, len(text)):
        depth += (text[k] in "([{") - (text[k] in ")]}")
        if (text[k] == "," and depth == 1) or depth == 0:
            parts.append(text[begin:k].strip())
            begin = k + 1
        if depth == 0:
            return parts, k + 1
    return [], at


def _fused(code: str, python: bool) -> Iterator[tuple[int, int, str]]:
    """Fused steps of a line as a product and a sum, with two roundings."""
    for m in FMA.finditer(code):
        parts, end = _arguments(code, m.end())
        if len(parts) != 3 or (python and m[0] == "fma"):
            continue
        a, b, c = parts
        split = f"f4(f4(({a}) * ({b})) + ({c}))" if python else f"(({a}) * ({b}) + ({c}))"
        yield m.start(), end, split


def _edits(code: str, below: str, python: bool) -> Iterator[tuple[str, int, int, str]]:
    """Yield (kind, begin, end, new text) for a line of code; `below` are the lines that follow."""
    for m in BARRIER.finditer(code):
        yield "barriers", m.start(), m.end(), ";"
    for m in BARRIER_VALUE.finditer(code):
        yield "barriers", m.start(), m.end(), ""
    for m in WAIT.finditer(code):
        yield "waits", m.start(), m.end(), ";"
    for m in WAIT_LESS.finditer(code):
        yield "waits", m.start(1), m.end(1), f"{m[1]} + 1"
    draws = "draws" if DRAW.search(code) else "bounds"
    for m in COMPARE.finditer(code):
        yield draws, m.start(1), m.end(1), TURNED[m[1]]
    padded = "__shared__" in code  # a longer row, against bank conflicts
    for m in ONE.finditer(code):
        if not padded or code[m.end() : m.end() + 1] != "]":
            yield "bounds", m.start(), m.end(), ""
    if not python:
        for m in LOOP.finditer(code):
            body = code[m.end() :]
            if ADDS.search(body if body.endswith(";") else body + below):
                kind, name, first, stop = m.groups()
                turned = f"for ({kind} {name} = ({stop}) - 1; {name} >= ({first}); --{name})"
                yield "sums", m.start(), m.end(), turned
    for m in RANGE.finditer(code) if python else ():
        if ADDS.search(below):
            yield "sums", m.start(2), m.end(2), f"{m[2]} - 1, -1, -1"
    for begin, end, text in _fused(code, python):
        yield "sums", begin, end, text
    for m in HIGH.finditer(code):
        yield "counters", m.start(), m.end(), m[0].replace("32", "63")
    for m in WIDE.finditer(code):
        kind = "counters" if COUNTER.match(code, m.end()) else "addresses"
        yield kind, m.start(), m.end(), m[0].replace("u64", "u32").replace("i64", "int")
    for m in STATUS.finditer(code):
        yield "status", m.start(), m.end(), ";" if m[0].endswith(";") else ""


def _skipped(lines: list[str]) -> set[int]:
    """Lines inside conditions on whether a GPU or the CPU compiles them, from 0."""
    found: set[int] = set()
    stack: list[bool] = []
    for k, line in enumerate(lines):
        if re.match(r"\s*#\s*if", line):
            stack.append(bool(ON_CPU.match(line)))
        elif re.match(r"\s*#\s*endif", line) and stack:
            stack.pop()
        if any(stack):
            found.add(k)
    return found


def _code(line: str) -> str:
    return line.split("//")[0].strip()


def of_source(root: Path, file: str) -> list[Mutant]:
    """List the mutants of a kernel or a header."""
    lines = (root / file).read_text(encoding="utf-8").split("\n")
    skipped, made = _skipped(lines), []
    for k, line in enumerate(lines):
        code = line.split("//")[0].rstrip()
        bare = code.strip()
        if k in skipped or not bare or bare.startswith(("#", "template", "static_assert", "asm")):
            continue
        indent = len(line) - len(line.lstrip())
        above = _code(lines[k - 1]) if k else ""
        below = [*map(_code, lines[k + 1 : k + 8]), ""]
        for kind, begin, end, text in _edits(bare, "\n".join(below), python=False):
            code = line[indent:].rstrip()
            made.append(Mutant(file, k + 1, begin, end, text, kind, code, above, below[0]))
    return made


@cache
def _functions(text: str) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}


@cache
def _names(text: str) -> dict[str, set[str]]:
    """Which names each function of a file has."""
    return {
        name: {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        for name, node in _functions(text).items()
    }


def reached(text: str, function: str) -> set[str]:
    """Names of the functions of a file that one of them calls, at any depth, and its own."""
    names, found, todo = _names(text), set(), [function]
    while todo:
        name = todo.pop()
        if name not in found and name in names:
            found.add(name)
            todo += names[name]
    return found


def of_mirror(root: Path, file: str, only: set[str]) -> list[Mutant]:
    """List the mutants of functions of a file of mirrors."""
    text = (root / file).read_text(encoding="utf-8")
    lines, made = text.split("\n"), []
    for node in (n for name, n in _functions(text).items() if name in only):
        body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
        for k in range(body[0].lineno - 1, node.end_lineno or node.lineno):
            bare = lines[k].strip()
            code = bare.split("  #")[0]
            if not code or code.startswith("#"):
                continue
            below = "\n".join(lines[k + 1 : k + 8])
            for kind, begin, end, new in _edits(code, below, python=True):
                made.append(Mutant(file, k + 1, begin, end, new, kind, bare))
    return made


def mirror_of(root: Path, kernel: str) -> tuple[str, str] | None:
    """File and function of a kernel's mirror, as its head says."""
    text = (root / "kernels_cu" / f"{kernel}.cu").read_text(encoding="utf-8")
    m = MIRROR.search(text)
    return (m[1], m[2]) if m else None


class Equivalents:
    """Mutants known to compute the same, with the reasons; read from a file of TOML.

    An entry names a file, or several by a pattern, and a line by its text; further `above`, the
    text of the line before, `below`, that of the next, and what is edited: `edit`, the line as
    edited, or `kind`. Without `above` and `below` it holds for all lines of the file with that
    text. An entry of a class has `marked` in place of the line: parts of lines with the edit
    marked, such as ``i «<→<=» n``.
    """

    def __init__(self, path: Path) -> None:
        self.entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get(
            "mutant", []
        )

    def reason(self, mutant: Mutant) -> str | None:
        """Why a mutant is equivalent, or None."""
        for entry in self.entries:
            if _fits(entry, mutant):
                return str(entry["reason"])
        return None

    def stale(self, mutants: list[Mutant]) -> list[str]:
        """Entries that fit no mutant, so that their line or the edit is gone."""
        return [
            f"{e['file']}: {e.get('line', '')!r} -> {e.get('edit', e.get('kind', 'any'))!r}"
            if "marked" not in e
            else f"{e['file']}: {e['marked'][0]!r}"
            for e in self._alone()
            if not any(_fits(e, m) for m in mutants)
        ]

    def _alone(self) -> Iterator[dict[str, Any]]:
        """Entries, those of a class one for each part of a line."""
        for entry in self.entries:
            if "marked" in entry:
                yield from ({**entry, "marked": [part]} for part in entry["marked"])
            else:
                yield entry


def _fits(entry: dict[str, Any], mutant: Mutant) -> bool:
    if not fnmatch(mutant.file, entry["file"]):
        return False
    if "marked" in entry and not any(part in mutant.marked for part in entry["marked"]):
        return False
    found = {
        "line": _code(mutant.before),
        "above": mutant.above,
        "below": mutant.below,
        "kind": mutant.kind,
        "edit": _code(mutant.after),
    }
    return all(entry.get(key, value) == value for key, value in found.items())
