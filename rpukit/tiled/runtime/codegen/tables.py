"""Tables of generated C: programs as 16-bit words, and what their steps have in common."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import numpy as np

from rpukit.errors import PlanError
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Program, Wait
from rpukit.tiled.runtime.codegen.chains import Key, chain_loops, long_rows, split_chain
from rpukit.tiled.runtime.codegen.loops import Step, depth_of
from rpukit.tiled.runtime.executor import PreparedTile

__all__ = ["Tables", "comment", "kernel_source", "tokens_of", "wrapped"]

MADE = "/* Made by rpukit; make it anew rather than edit it. */\n"
_SAFE = frozenset(string.ascii_letters + string.digits + "_-.:/@#+,() []")
_MOST_NUMBER = (
    2**14
)  # of tokens, and of different tiles: what a word holds beside the kind of a step
_STRUCT = re.compile(r"typedef struct \{\n(.*?)\} (\w+)_t;\n", re.DOTALL)
_FIELD = re.compile(r"(\w+)(?:\[(\d+)\])?")


def comment(text: str) -> str:
    """Escape a name for a comment: unusual characters as %XX, at most 60 characters."""
    raw = text.encode("utf-8", "surrogatepass")
    safe = "".join(chr(c) if chr(c) in _SAFE else f"%{c:02X}" for c in raw[:60])
    return safe + "..." * (len(raw) > 60)


def wrapped(row: str, width: int = 120) -> Iterator[str]:
    """Break a line at spaces."""
    while len(row) > width and " " in row[1:width]:
        cut = row.rindex(" ", 1, width)
        yield row[:cut]
        row = row[cut + 1 :]
    yield row


def kernel_source(kernel: str) -> str:
    """Read the C source of a kernel."""
    path = resources.files("rpukit.tiled") / "c" / "kernels" / f"{kernel}.c"
    if not path.is_file():
        raise PlanError(
            f"kernel {kernel} has no C source; need a graph without analog tiles, whose ops run "
            "on the CPU and GPU executors alone"
        )
    return path.read_text("ascii")


def tokens_of(
    programs: Sequence[Program], again: bool = False
) -> tuple[list[dict[int, int]], int]:
    """Give each transfer the smallest number that no pending transfer has.

    With `again`, it rather gets the number that the last transfer from or to its place had.
    """
    most, found = 1, []
    for program in programs:
        free: list[int] = []
        small: dict[int, int] = {}
        last: dict[tuple[str, int], int] = {}
        count = 0
        for one in program.instructions:
            if isinstance(one, Copy):
                if not free:
                    free.append(count)
                    count += 1
                known = (last.get(place) for place in (one.target, one.source) if again)
                own = next((token for token in known if token in free), min(free))
                small[one.token] = last[one.target] = last[one.source] = own
                free.remove(own)
            elif isinstance(one, Wait):
                free.append(small[one.token])
        most = max(most, count)
        found.append(small)
    if most > _MOST_NUMBER:
        raise PlanError(
            f"{most} transfers are pending at once; C code needs at most {_MOST_NUMBER}"
        )
    return found, most


@dataclass(slots=True)
class _Record:
    """The structure of a kernel's numbers: fields in their order, the rows and chains in use."""

    body: str
    fields: list[tuple[str, str, int]]
    rows: dict[tuple[float, ...], int] = field(default_factory=dict)
    chains: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: str) -> _Record:
        found = _STRUCT.search(kernel_source(kernel))
        assert found is not None and found[2] == kernel
        bare = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
        fields = []
        for kind, names in re.findall(r"(int32_t|float) ([^;]+);", bare):
            for name, count in _FIELD.findall(names):
                fields.append((kind, name, int(count or 1)))
        return cls(found[1], fields)

    def place(self, tile: PreparedTile) -> int:
        """Find the row of a tile's numbers."""
        ints = [int(v) for v in tile.ints]
        if tile.op.kernel == "tiled_map":
            ints = long_rows(ints)
        elif tile.op.kernel == "tiled_fused":
            ints, chain = split_chain(ints)
            ints[1] = self.chains.setdefault(chain, len(self.chains))
            ints = long_rows(ints)
        real = [float(v) for v in tile.floats]
        n_int = sum(n for kind, _, n in self.fields if kind == "int32_t")
        n_real = sum(n for kind, _, n in self.fields if kind == "float")
        assert (len(ints) == n_int and len(real) <= n_real) or not n_real
        for value in ints:
            _checked(value, f"a number of a tile of {comment(tile.node.name)}")
        row = (*ints, *real[:n_real], *(0.0,) * (n_real - len(real)))
        return self.rows.setdefault(row, len(self.rows))

    def columns(self) -> Iterator[tuple[str, str, list[tuple[float, ...]]]]:
        """Iterate over fields: type, name, and the values of every row."""
        at = 0
        for kind, name, count in self.fields:
            yield kind, name, [row[at : at + count] for row in self.rows]
            at += count

    def declared(self, kernel: str) -> str:
        """Write the structure; each field has the smallest type that holds its values."""
        kinds = {
            name: kind if kind == "float" else _smallest(v for row in rows for v in row)
            for kind, name, rows in self.columns()
        }
        lines = []
        for kind in ("float", "int32_t", "uint16_t", "int16_t", "uint8_t", "int8_t"):
            own = [
                name + (f"[{count}]" if count > 1 else "")
                for _, name, count in self.fields
                if kinds[name] == kind
            ]
            lines += [f"    {line}" for line in wrapped(f"{kind} {', '.join(own)};")] * bool(own)
        return "typedef struct {\n" + "\n".join(lines) + f"\n}} {kernel}_t;\n"

    def array(self, kernel: str) -> str:
        """Write the rows, with the fields by name where they are not zero."""
        fields = list(self.columns())
        body = []
        for k in range(len(self.rows)):
            parts = []
            for kind, name, rows in fields:
                values = [_written(kind, v) for v in rows[k]]
                while values and _zero(values[-1]):
                    values.pop()
                if values:
                    parts.append(
                        f".{name} = "
                        + (values[0] if len(rows[k]) == 1 else f"{{{', '.join(values)}}}")
                    )
            row = f"{{{', '.join(parts)}}},"
            body += [("    " if j == 0 else "     ") + line for j, line in enumerate(wrapped(row))]
        return f"static const {kernel}_t {kernel}_tiles[] = {{\n" + "\n".join(body) + "\n};\n"


def _zero(text: str) -> bool:
    return text in ("0", "0.0f")


def _written(kind: str, value: float) -> str:
    if kind == "int32_t":
        return str(int(value))
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return f"{float(np.float32(value))!r}f"


def _smallest(values: Iterator[float]) -> str:
    """Find the smallest type that holds all values."""
    found = list(values)
    low, high = int(min(found)), int(max(found))
    for bits in (8, 16):
        if low >= 0 and high < 1 << bits:
            return f"uint{bits}_t"
        if low >= -(1 << (bits - 1)) and high < 1 << (bits - 1):
            return f"int{bits}_t"
    return "int32_t"


def _checked(value: int, what: str) -> int:
    if not -(2**31) <= value < 2**31:
        raise PlanError(f"{what} is {value}; C code needs numbers that fit 32 bits")
    return value


class Tables:
    """What the steps of all programs have in common, without duplicates.

    Parameters
    ----------
    plan : Plan
    steps : sequence of list
        The instructions of each program, with every tile prepared.
    """

    def __init__(self, plan: BasePlan, steps: Sequence[Sequence[Any]]) -> None:
        self.plan = plan
        self.levels = [level.name for level in plan.hierarchy.levels]
        self.copies: dict[tuple[Any, ...], int] = {}
        self.tiles: dict[tuple[str, int, int, int], int] = {}
        tiles = [one for own in steps for one in own if isinstance(one, PreparedTile)]
        self.kernels = sorted({one.op.kernel for one in tiles})
        self.records = {kernel: _Record.of(kernel) for kernel in self.kernels}
        self.depth = 0  # of loops
        self.n_buffers = max((len(one.spans) for one in tiles), default=1)
        self._measure(steps)

    def _measure(self, steps: Sequence[Sequence[Any]]) -> None:
        """Find the unit of addresses, and the levels whose addresses need two words."""
        inner = self.levels[-1]
        most, self.unit = dict.fromkeys(self.levels, 0), 4
        for one in (one for own in steps for one in own):
            if isinstance(one, Copy):
                ends = [one.target, one.source]
            elif isinstance(one, PreparedTile):
                ends = [(inner, span[0]) for span in one.spans if span is not None]
            else:
                continue
            for level, at in ends:
                most[level] = max(most[level], _checked(at, "an address"))
                if at % 4:
                    self.unit = 1
        self.far = [most[level] // self.unit >= 1 << 16 for level in self.levels]

    def address(self, level: str, at: int) -> str:
        """Write an address in a level."""
        return f"{'FAR' if self.far[self.levels.index(level)] else 'NEAR'}({at})"

    def _copy(self, one: Copy) -> int:
        outer = list(
            zip(one.shape[:-1], one.target_strides[:-1], one.source_strides[:-1], strict=True)
        )
        if len(outer) > 3:
            raise PlanError(f"a copy of {one.tensor} has {len(one.shape)} axes, need at most 4")
        ends = (self.levels.index(one.target[0]), self.levels.index(one.source[0]))
        key = (*ends, one.shape[-1], tuple(outer or [(1, 0, 0)]))
        for value in (one.shape[-1], *(n for loop in key[3] for n in loop)):
            _checked(value, "a length of a copy")
        place = self.copies.setdefault(key, len(self.copies))
        if place >= 1 << 16:
            raise PlanError(f"the plan has more than {1 << 16} kinds of copies; need larger tiles")
        return place

    def _tile(self, tile: PreparedTile) -> Step:
        if tile.floats.dtype != np.float32:
            raise PlanError(f"node {tile.node.name} is {tile.floats.dtype}; C code needs float32")
        numbers = self.records[tile.op.kernel].place(tile)
        mask = sum(1 << k for k, span in enumerate(tile.spans) if span is not None)
        cycles = self.plan.hierarchy.compute.tile(tile.node.op, *tile.work)
        key = (tile.op.kernel, mask, numbers, cycles)
        place = self.tiles.setdefault(key, len(self.tiles))
        if place >= _MOST_NUMBER or numbers >= 1 << 16:
            raise PlanError(
                f"the plan has more than {_MOST_NUMBER} kinds of tiles; need larger tiles"
            )
        where = [(self.levels[-1], span[0]) for span in tile.spans if span is not None]
        return self._step("TILE", (place,), where)

    def _step(
        self, name: str, numbers: tuple[int, ...], ends: Sequence[tuple[str, int]], about: str = ""
    ) -> Step:
        """Write a line of a program: what it does, then addresses."""
        far = tuple(self.far[self.levels.index(level)] for level, _ in ends)
        written = [*map(str, numbers), *(self.address(*end) for end in ends)]
        line = f"    {name}({', '.join(written)}),{about}"
        at = tuple(place // self.unit for _, place in ends)
        return Step((name, *numbers), at, far, len(written) + sum(far), (line,))

    def steps(self, program: Program, ready: Sequence[Any], small: dict[int, int]) -> list[Step]:
        """Write the steps of a program, with the ops as comments."""
        about = {op.node: op for op in program.ops}
        seen, found = "", []
        for one, own in zip(program.instructions, ready, strict=True):
            if isinstance(one, Wait):
                found.append(self._step("WAIT", (small[one.token],), ()))
            elif isinstance(one, Copy):
                numbers = (small[one.token], self._copy(one))
                text = f"  /* {comment(one.tensor)} */"
                found.append(self._step("COPY", numbers, (one.target, one.source), text))
            else:
                assert isinstance(one, ComputeTile)
                found.append(self._tile(own))
                if one.node != seen:
                    seen, op = one.node, about[one.node]
                    tiles = f"{op.n_tiles} tile{'s' * (op.n_tiles > 1)} of {op.extents[-1]}"
                    text = f"    /* {comment(op.node)}: {comment(op.op)}, {tiles} */"
                    found[-1] = replace(found[-1], about=text)
        return found

    def network(self, name: str, program: Program, steps: Sequence[Step]) -> str:
        """Write a program, whose steps may be loops."""
        self.depth = max(self.depth, depth_of(steps))
        copies = sum(isinstance(one, Copy) for one in program.instructions)
        counts = (
            f"{len(program.ops)} ops, {copies} transfers, {program.cycles} cycles in the model"
        )
        text = f'{MADE}/* {comment(program.name)}: {counts}. */\n#include "network.h"\n\n'
        lines = [k for one in steps for k in ((one.about,) if one.about else ()) + one.lines]
        body = "\n".join(lines or ["    0"])
        text += f"static const uint16_t words[] = {{\n{body}\n}};\n\n"
        count = "sizeof words / sizeof *words" if lines else "0"
        return f"{text}const program_t {name} = {{words, {count}}};\n"

    def text(self) -> str:
        """Write the tables, and the function that computes a tile."""
        parts = [MADE, '#include "kernels.h"\n#include "network.h"\n\n']
        parts.append(
            "/* Copies: to and from a level, bytes of a row, then for each axis around it how\n"
            " * often and how far each side goes on. */\n"
        )
        rows = []
        for to, source, size, loops in self.copies:
            own = ", ".join(f"{{{n}, {t}, {s}}}" for n, t, s in loops)
            rows.append(f"    {{{to}, {source}, {size}, {{{own}}}}},")
        parts.append("const copy_t copies[] = {\n" + "\n".join(rows or ["    {0}"]) + "\n};\n\n")
        parts += [record.array(kernel) + "\n" for kernel, record in self.records.items()]
        parts.append(
            "/* Tiles: kernel, which buffers it has, its numbers above, cycles in the model. */\n"
        )
        tiles = [
            f"    {{{kernel.upper()}, {mask}, {numbers}, {cycles}}},"
            for kernel, mask, numbers, cycles in self.tiles
        ]
        parts.append("const tile_t tiles[] = {\n" + "\n".join(tiles or ["    {0}"]) + "\n};\n\n")
        parts.append(self._calls())
        return "".join(parts)

    def _calls(self) -> str:
        cases = []
        for kernel in self.kernels:
            buffers = prototype(kernel).split("(")[1].rstrip(")").split(",")[2:]
            given = ["team", f"&{kernel}_tiles[t->numbers]"]
            given += [f"p[{k}]" for k in range(len(buffers))]
            cases.append(f"    case {kernel.upper()}: {kernel}({', '.join(given)}); break;\n")
        head = "void compute_tile(team_t team, const tile_t *t, void *const *p) {\n"
        return (
            f"{head}    switch (t->kernel) {{\n{''.join(cases)}    default: break;\n    }}\n}}\n"
        )

    def kernels_h(self) -> str:
        """Write the structures and prototypes of the kernels that are used."""
        names = ", ".join(kernel.upper() for kernel in self.kernels)
        records = "\n".join(record.declared(kernel) for kernel, record in self.records.items())
        prototypes = "\n".join(f"{prototype(kernel)};" for kernel in self.kernels)
        guard = '#ifndef KERNELS_H\n#define KERNELS_H\n\n#include "team.h"\n\n'
        about = "/* The numbers of each kernel's tiles; kernels.c says what they mean. */\n"
        return f"{MADE}{guard}enum {{ {names} }};\n\n{about}{records}\n{prototypes}\n\n#endif\n"

    def kernels_c(self) -> str:
        """Write the kernels that are used, of elementwise ops the kinds that are used."""
        bodies = []
        for kernel in self.kernels:
            text = _STRUCT.sub(_as_comment, kernel_source(kernel), count=1)
            if kernel == "tiled_map":
                kinds = {int(row[1]) for row in self.records[kernel].rows}
                text = "".join(
                    line
                    for line in text.splitlines(keepends=True)
                    if not (case := re.match(r"    case (\d+):", line)) or int(case[1]) in kinds
                )
            if kernel == "tiled_fused":
                maps = kernel_source("tiled_map")
                text = chain_loops(text, maps, self.records[kernel].chains)
            bodies.append(text)
        return f'{MADE}#include "kernels.h"\n\n#include "helpers.h"\n\n' + "\n".join(bodies)

    def sizes(self, n_tokens: int, counts: dict[str, int]) -> str:
        """Write the numbers of levels, tokens, pieces and so on."""
        numbers = [v for key in self.copies for v in (key[2], *(n for x in key[3] for n in x))]
        wide = max(numbers, default=0) >= 1 << 16 or min(numbers, default=0) < 0
        sizes = {
            "N_LEVELS": len(self.levels),
            "N_TOKENS": n_tokens,
            "MOST_PIECES": max(
                (math.prod(n for n, _, _ in key[3][:-1]) for key in self.copies), default=1
            ),
            "N_LOOPS": max((len(key[3]) for key in self.copies), default=1),
            "N_BUFFERS": self.n_buffers,
            "UNIT": self.unit,
            "LOOP_DEPTH": self.depth,
            "FAR_LEVELS": sum(1 << k for k, far in enumerate(self.far) if far),
            **counts,
        }
        lines = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        kind = f"typedef uint{32 if wide else 16}_t copy_number_t;\n"
        some = 16 if self.n_buffers > 8 else 8
        kind += f"typedef uint{some}_t buffer_set_t; /* of a tile: a bit for each */\n"
        guard = "#ifndef SIZES_H\n#define SIZES_H\n\n#include <stdint.h>\n\n"
        return f"{MADE}{guard}{lines}\n{kind}\n#endif\n"


def _as_comment(found: re.Match[str]) -> str:
    """Turn the declaration of a structure, which is in kernels.h, into a comment on its fields."""
    lines = [line.strip() for line in found[1].splitlines()]
    fields = [re.sub(r"^(?:int32_t|float) ", "", line) for line in lines]
    bare = [re.sub(r"/\* (.*?) \*/", r"(\1)", line) for line in fields]
    return "/* Numbers of a tile:\n" + "\n".join(f" *   {line}" for line in bare) + " */\n"


def prototype(kernel: str) -> str:
    """Find the prototype of a kernel in its source."""
    text = kernel_source(kernel)
    begin = text.index(f"void {kernel}(")
    return " ".join(text[begin : text.index(")", begin) + 1].split())
