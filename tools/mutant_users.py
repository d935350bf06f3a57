"""Which kernels run a line of a header: those that reach its function, by name, at any depth."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from mutant_verdicts import ROOT, includes

MOST_USERS = 4  # kernels that a header is tried with
# Headers whose functions some kernels reach by names that macros put together.
BEST = {
    "rk_math.cuh": ("math_map",),
    "rk_math64.cuh": ("math_map",),
    "rk_special.cuh": ("math_map",),
    "rk_special64.cuh": ("math_map", "leaf_forward"),
    "rk_philox.cuh": ("random_fill", "diffusion"),
    "device_steps.cuh": ("pulsed_update", "decay"),
    "cell_planes.cuh": ("cell_planes",),
    "rk_bits.cuh": ("pulse_trains", "pulsed_update"),
}
NAME = re.compile(r"(\w+)\s*\(")


@cache
def regions(path: Path) -> list[tuple[int, int, str, frozenset[str]]]:
    """Functions, structures and macros of a file: first and last line, name, names inside."""
    lines = path.read_text(encoding="utf-8").split("\n")
    found, k = [], 0
    while k < len(lines):
        line = lines[k]
        if not line.strip() or line[0] in " }/" or (line[0] == "#" and "#define" not in line):
            k += 1
            continue
        begin, macro = k, line[0] == "#"
        depth = 0
        while k < len(lines):
            code = lines[k].split("//")[0]
            depth += code.count("{") - code.count("}")
            if macro and not code.endswith("\\"):
                break
            if not macro and depth <= 0 and code.rstrip().endswith((";", "}")):
                break
            k += 1
        text = "\n".join(part.split("//")[0] for part in lines[begin : k + 1])
        found.append((begin + 1, k + 1, _name(text), frozenset(re.findall(r"\w+", text))))
        k += 1
    return found


def _name(text: str) -> str:
    head = re.sub(r"^template\s*<[^{]*?>\s*(?=struct|static|__|\w)", "", text)
    struct = re.match(r"(?:struct|enum)\s+(?:__align__\([^)]*\)\s*)?(\w+)", head)
    macro = re.match(r"#define\s+(\w+)", head)
    if struct or macro:
        return (struct or macro)[1]  # type: ignore[index]
    calls = [n for n in NAME.findall(head.split("{")[0]) if not n.startswith("__")]
    if calls:
        return str(calls[0])
    value = re.search(r"(\w+)\s*(?:\[[^]]*\])?\s*=", head)
    return value[1] if value else ""


@cache
def reached(kernel: str) -> frozenset[str]:
    """Names that a kernel reaches through its own source and its headers."""
    path = ROOT / "kernels_cu" / f"{kernel}.cu"
    inside: dict[str, set[str]] = {}
    for header in includes(path):
        for _, _, name, names in regions(ROOT / "kernels_cu/include" / header):
            inside.setdefault(name, set()).update(names)
    todo = set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))))
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo |= inside.get(name, set()) - found
    return frozenset(found)


@cache
def kernels() -> tuple[str, ...]:
    """All kernels; those with the fewest headers first, since they compile fastest."""
    paths = sorted(ROOT.glob("kernels_cu/*.cu"), key=lambda p: (len(includes(p)), p.name))
    return tuple(path.stem for path in paths)


@cache
def users(header: str, line: int) -> tuple[str, ...]:
    """Kernels that run a line of a header, the best known ones first."""
    path = ROOT / "kernels_cu/include" / header
    name = next((n for a, b, n, _ in regions(path) if a <= line <= b), "")
    using = [k for k in kernels() if header in includes(ROOT / "kernels_cu" / f"{k}.cu")]
    some = [k for k in using if name in reached(k)] or using
    best = [k for k in BEST.get(header, ()) if k in using]
    return (*best, *(k for k in some if k not in best))[:MOST_USERS]
