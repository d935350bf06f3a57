"""Code generator: a plan as C99 tables, kernels and a host harness."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rpukit.errors import PlanError
from rpukit.tiled.ir import Training
from rpukit.tiled.program import BasePlan, ComputeTile, Copy, Program, Wait
from rpukit.tiled.runtime.executor import Executor, PreparedTile
from rpukit.tiled.runtime.trainer import Trainer

__all__ = ["generate_c"]

_FIXED = ("exact.h", "dma.h", "dma_host.h", "dma_host.c", "network.h", "main.c", "Makefile")
_NAMES = ("training_network", "optimizer_network")
_SAFE = frozenset(string.ascii_letters + string.digits + "_-.:/@#+,() []")
_MADE = "/* Made by rpukit; make it anew rather than edit it. */\n"


@dataclass(slots=True)
class _Table:
    """Table of rows of numbers, without duplicates; `place` says where a row begins."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    places: dict[tuple[Any, ...], int] = field(default_factory=dict)
    size: int = 0

    def place(self, row: tuple[Any, ...]) -> int:
        if row not in self.places:
            self.places[row] = self.size
            self.rows.append(row)
            self.size += len(row)
        return self.places[row]


def generate_c(
    plan: BasePlan,
    training: Training,
    folder: str | Path,
    batches: Sequence[Sequence[Any]],
    *,
    n_accumulate: int = 1,
) -> list[Path]:
    """Write C99 that trains by a plan, with a harness that checks every bit on the host.

    Parameters
    ----------
    plan : Plan
    training : Training
        The graphs that the plan was made of, with values of the parameters.
    folder : str or path
        Created if it is missing; files in it are replaced.
    batches : sequence of tuple of arrays
        Data and labels or targets of each mini-batch that the harness trains with.
    n_accumulate : int

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    PlanError
        If a number does not fit the type of its table, or the graph is not float32.

    Notes
    -----
    User names are no part of the code: tensors are called ``tensor_0`` and so on, ``names.json``
    has their names, and comments show these with all unusual characters written as ``%XX``.

    The two files ``*_network.c`` are the programs of the plan, step by step; ``kernels.c``
    has the kernels that they use, ``exact.h`` their elementary functions; ``dma.h`` declares the
    functions that a target has to implement. ``make run`` in the folder builds and trains.

    Examples
    --------
    >>> import rpukit as rk
    >>> plan, training, batches = ...  # doctest: +SKIP
    >>> rk.tiled.generate_c(plan, training, "out", batches)  # doctest: +SKIP
    """
    trainer = Trainer(plan, training, n_accumulate=n_accumulate)
    executor = trainer._executor
    begin = trainer.parameters(everything=True)
    losses = trainer.fit(batches).astype(np.float32)
    end = trainer.parameters(everything=True)
    graphs = (training.train, training.optimiser)
    found = [list(executor._tiles(p, g)) for p, g in zip(plan.programs, graphs, strict=True)]
    tokens, n_tokens = _tokens(plan.programs)
    files = {name: _fixed(name) for name in _FIXED}
    for name, program, steps, small in zip(_NAMES, plan.programs, found, tokens, strict=True):
        files[f"{name}.c"] = _network(name, plan, program, steps, small)
        files[f"{name}.h"] = _network_h(name, program)
    used = sorted(
        {one.op.kernel for steps in found for one in steps if isinstance(one, PreparedTile)}
    )
    files |= {"kernels.h": _kernels_h(used), "kernels.c": _kernels_c(used)}
    files |= {"run.c": _run_c(used), "memory.c": _memory(plan), "sizes.h": _sizes(plan, n_tokens)}
    constants = _constants(executor, training)
    names: dict[tuple[int, str], str] = {}
    given = (executor, training, begin, constants, batches, n_accumulate)
    files["data.h"] = _data_h(*given, names)
    files["names.json"] = _names_json(plan, names)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="ascii")
    kinds = [training.train.tensors[name].dtype for name in training.batch]
    blobs = {
        "inputs.bin": [
            np.asarray(v, k) for pair in batches for v, k in zip(pair, kinds, strict=True)
        ],
        "weights.bin": [*begin.values(), *(value for _, _, value in constants)],
        "expected.bin": [losses, *end.values()],
    }
    for name, arrays in blobs.items():
        (target / name).write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays))
    return [target / name for name in (*files, *blobs)]


def _fixed(name: str) -> str:
    return (resources.files("rpukit.tiled") / "c" / name).read_text(encoding="ascii")


def _tokens(programs: Sequence[Program]) -> tuple[list[dict[int, int]], int]:
    """Give each transfer the smallest number that no pending transfer has."""
    most, found = 1, []
    for program in programs:
        free: list[int] = []
        small: dict[int, int] = {}
        count = 0
        for one in program.instructions:
            if isinstance(one, Copy):
                if not free:
                    free.append(count)
                    count += 1
                small[one.token] = min(free)
                free.remove(small[one.token])
            elif isinstance(one, Wait):
                free.append(small[one.token])
        most = max(most, count)
        found.append(small)
    if most > 255:
        raise PlanError(
            f"{most} transfers are pending at once; C code holds their number in a byte, need at "
            "most 255"
        )
    return found, most


def _network(
    name: str, plan: BasePlan, program: Program, steps: Sequence[Any], small: dict[int, int]
) -> str:
    """Write one program: tables of numbers, then its steps with the ops as comments."""
    levels = [level.name for level in plan.hierarchy.levels]
    ints, floats, lines = _Table(), _Table(), []
    about = {op.node: op for op in program.ops}
    seen = ""
    for one, ready in zip(program.instructions, steps, strict=True):
        if isinstance(one, Wait):
            lines.append(f"    WAIT({small[one.token]}),")
        elif isinstance(one, Copy):
            lines.append(
                f"    {_copy(one, small[one.token], levels)},  /* {_comment(one.tensor)} */"
            )
        else:
            assert isinstance(one, ComputeTile)
            if one.node != seen:
                seen, op = one.node, about[one.node]
                tiles = f"{op.n_tiles} tile{'s' * (op.n_tiles > 1)} of {op.extents[-1]}"
                lines.append(f"    /* {_comment(op.node)}: {_comment(op.op)}, {tiles} */")
            lines.append(f"    {_tile(ready, plan, ints, floats)},")
    count = len(program.instructions)
    text = [_MADE, f'#include "{name}.h"\n\n#include "kernels.h"\n\n']
    text.append("/* Numbers of the tiles: kernels.c has their meaning for each kernel. */\n")
    text += [_array("int32_t", "ints", ints, str), "\n", _array("float", "floats", floats, _float)]
    text.append(f"\nstatic const step_t steps[{count}] = {{\n" + "\n".join(lines) + "\n};\n\n")
    text.append(f"const program_t {name} = {{steps, {count}, ints, floats}};\n")
    return "".join(text)


def _network_h(name: str, program: Program) -> str:
    guard = f"{name.upper()}_H"
    copies = sum(isinstance(one, Copy) for one in program.instructions)
    about = f"{len(program.ops)} ops, {copies} transfers, {program.cycles} cycles in the model"
    text = f"/* {_comment(program.name)}: {about}. */\n#ifndef {guard}\n#define {guard}\n\n"
    return f'{_MADE}{text}#include "network.h"\n\nextern const program_t {name};\n\n#endif\n'


def _copy(one: Copy, token: int, levels: list[str]) -> str:
    ends = [
        (levels.index(level), _checked(at, "an address")) for level, at in (one.target, one.source)
    ]
    outer = list(
        zip(one.shape[:-1], one.target_strides[:-1], one.source_strides[:-1], strict=True)
    )
    if len(outer) > 3:
        raise PlanError(f"a copy of {one.tensor} has {len(one.shape)} axes, need at most 4")
    rows = ", ".join(f"ROW({n}, {t}, {s})" for n, t, s in outer or [(1, 0, 0)])
    (to_level, to), (from_level, begin) = ends
    kind = "IN" if one.engine == "in" else "OUT"
    return f"{kind}({token}, {to_level}, {to}, {from_level}, {begin}, {one.shape[-1]}, {rows})"


def _tile(tile: PreparedTile, plan: BasePlan, ints: _Table, floats: _Table) -> str:
    if tile.floats.dtype != np.float32:
        raise PlanError(f"node {tile.node.name} is {tile.floats.dtype}; C code needs float32")
    at = ints.place(tuple(_checked(int(v), "a number of a tile") for v in tile.ints))
    real = floats.place(tuple(float(v) for v in tile.floats)) if tile.floats.size else 0
    where = ", ".join("-1" if span is None else str(span[0]) for span in tile.spans)
    cycles = plan.hierarchy.compute.cycles(*tile.work)
    return f"TILE({tile.op.kernel.upper()}, {cycles}, {at}, {real}, {where})"


def _checked(value: int, what: str) -> int:
    if not -(2**31) <= value < 2**31:
        raise PlanError(f"{what} is {value}; C code needs numbers that fit 32 bits")
    return value


def _float(value: float) -> str:
    return f"{float(np.float32(value))!r}f" if math.isfinite(value) else "EXACT_NAN"


def _comment(text: str) -> str:
    """Escape a name for a comment: unusual characters as %XX, at most 60 characters."""
    raw = text.encode("utf-8", "surrogatepass")
    safe = "".join(chr(c) if chr(c) in _SAFE else f"%{c:02X}" for c in raw[:60])
    return safe + "..." * (len(raw) > 60)


def _array(kind: str, name: str, table: _Table, write: Any) -> str:
    rows = [", ".join(map(write, row)) + "," for row in table.rows] or ["0,"]
    body = "\n".join(f"    {line}" for row in rows for line in _wrapped(row))
    return f"static const {kind} {name}[] = {{\n{body}\n}};\n"


def _wrapped(row: str, width: int = 150) -> Iterator[str]:
    while len(row) > width:
        cut = row.rindex(" ", 0, width)
        yield row[:cut]
        row = row[cut + 1 :]
    yield row


def _prototype(kernel: str) -> str:
    """Find the prototype of a kernel in its source."""
    text = (resources.files("rpukit.tiled") / "c" / "kernels" / f"{kernel}.c").read_text("ascii")
    begin = text.index(f"void {kernel}(")
    return " ".join(text[begin : text.index(")", begin) + 1].split())


def _kernels_h(used: Sequence[str]) -> str:
    names = ", ".join(kernel.upper() for kernel in used)
    prototypes = "\n".join(f"{_prototype(kernel)};" for kernel in used)
    guard = "#ifndef KERNELS_H\n#define KERNELS_H\n\n#include <stdint.h>\n\n"
    return f"{_MADE}{guard}enum {{ {names} }};\n\n{prototypes}\n\n#endif\n"


def _kernels_c(used: Sequence[str]) -> str:
    folder = resources.files("rpukit.tiled") / "c" / "kernels"
    bodies = "\n".join((folder / f"{kernel}.c").read_text("ascii") for kernel in used)
    return f'{_MADE}#include "kernels.h"\n\n#include "exact.h"\n\n{bodies}'


def _run_c(used: Sequence[str]) -> str:
    """Write the interpreter of programs, with a call of each kernel that is used."""
    cases = []
    for kernel in used:
        parts = _prototype(kernel).split("(")[1].rstrip(")").split(",")
        given = ["n", "s"] if parts[1].strip() == "const float *s" else ["n"]
        buffers = parts[len(given) :]
        for k, part in enumerate(buffers):
            kind = part[: part.rindex("*")].replace("const ", "").strip()
            given.append(f"({kind} *)p[{k}]")
        cases.append(f"    case {kernel.upper()}: {kernel}({', '.join(given)}); break;")
    return _fixed("run.c").replace("    /* kernels */", "\n".join(cases))


def _sizes(plan: BasePlan, n_tokens: int) -> str:
    """Write the numbers of levels, of pending transfers at most, and of pieces of a transfer."""
    copies = [one for p in plan.programs for one in p.instructions if isinstance(one, Copy)]
    sizes = {
        "N_LEVELS": len(plan.hierarchy.levels),
        "N_TOKENS": n_tokens,
        "MOST_PIECES": max((math.prod(one.shape[:-2]) for one in copies), default=1),
    }
    lines = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
    return f"{_MADE}#ifndef SIZES_H\n#define SIZES_H\n\n{lines}\n#endif\n"


def _memory(plan: BasePlan) -> str:
    """Write the arenas, the blocks of the inner levels, and the links between levels."""
    levels = plan.hierarchy.levels
    text = [_MADE, '#include "network.h"\n\n/* The arenas; 8 bytes aligned, as labels need. */\n']
    for k, level in enumerate(levels):
        words = -(-plan.peaks[level.name] // 8) + 1
        text.append(f"static uint64_t arena_{k}[{words}]; /* {_comment(level.name)} */\n")
    names = ", ".join(f"(uint8_t *)arena_{k}" for k in range(len(levels)))
    sizes = ", ".join(f"sizeof arena_{k}" for k in range(len(levels)))
    text.append(f"\nuint8_t *const arenas[N_LEVELS] = {{{names}}};\n")
    text.append(f"const uint32_t arena_bytes[N_LEVELS] = {{{sizes}}};\n\n")
    links = ", ".join(f"{{{v.setup}, {v.row}, {v.width}, {int(v.duplex)}}}" for v in levels)
    text.append(f"const link_t links[N_LEVELS] = {{{links}}};\n\n")
    blocks = _blocks(plan)
    body = "\n".join(f"    {{{level}, {at}, {size}}}," for level, at, size in blocks)
    text.append(f"const block_t blocks[] = {{\n{body}\n}};\n")
    text.append(f"const uint32_t n_blocks = {len(blocks)};\n")
    return "".join(text)


def _blocks(plan: BasePlan) -> list[tuple[int, int, int]]:
    levels = [level.name for level in plan.hierarchy.levels]
    found = set()
    for op in plan.ops():
        for operand in op.operands:
            for place in operand.places:
                k = levels.index(place.level)
                found |= {(k, at, place.bytes) for at in place.addresses}
    for home in plan.homes:
        found.add((levels.index(home.level), home.address, home.bytes))
    return sorted(found)


def _names_json(plan: BasePlan, names: dict[tuple[int, str], str]) -> str:
    """Write the user's names of the tensors and programs that are renamed in C."""
    programs = [program.name for program in plan.programs]
    tensors = {own: {"name": name, "program": k} for (k, name), own in names.items()}
    return json.dumps({"programs": programs, "tensors": tensors}, indent=1) + "\n"


def _constants(executor: Executor, training: Training) -> list[tuple[int, str, np.ndarray]]:
    found = []
    for k, graph in enumerate((training.train, training.optimiser)):
        for name, value in graph.constants.items():
            if executor.has_home(name, k):
                found.append((k, name, value))
    return found


def _data_h(
    executor: Executor,
    training: Training,
    lasting: dict[str, np.ndarray],
    constants: Sequence[tuple[int, str, np.ndarray]],
    batches: Sequence[Any],
    n_accumulate: int,
    names: dict[tuple[int, str], str],
) -> str:
    """Write the addresses and sizes of inputs, weights and results.

    Tensors get generated names, which are noted in `names`: a user's name may not be valid C.
    """
    levels = [level.name for level in executor.plan.hierarchy.levels]

    def row(name: str, program: int = 0) -> tuple[str, int]:
        home = executor.home(name, program)
        size = executor.graphs[program].tensors[name].nbytes
        own = names.setdefault((program, name), f"tensor_{len(names)}")
        text = f'{{"{own}", {levels.index(home.level)}, {home.address}, {size}}}'
        return f"{text} /* {_comment(name)} */", size

    own = [(n, 0 if n in training.train.tensors else 1) for n in lasting]
    groups = {
        "input": [row(name) for name in training.batch],
        "weight": [*(row(*pair) for pair in own), *(row(n, k) for k, n, _ in constants)],
        "final": [row(*pair) for pair in own],
    }
    sizes = {name: sum(size for _, size in rows) for name, rows in groups.items()}
    n = len(batches)
    text = [_MADE, "#ifndef DATA_H\n#define DATA_H\n\n#include <stdint.h>\n\n"]
    text.append(
        "typedef struct { const char *name; uint8_t level; uint32_t at, bytes; } tensor_t;\n\n"
    )
    text.append(f"#define N_STEPS {n}\n#define N_ACCUMULATE {n_accumulate}\n")
    text.append(
        f"#define INPUT_BYTES {sizes['input'] * n}\n#define WEIGHT_BYTES {sizes['weight']}\n"
    )
    text.append(f"#define EXPECTED_BYTES {4 * n + sizes['final']}\n\n")
    for name, rows in groups.items():
        body = ",\n    ".join(text for text, _ in rows) + "\n"
        text.append(f"#define N_{name.upper()}{'S' * (name != 'final')} {len(rows)}\n")
        text.append(f"static const tensor_t {name}_tensors[] = {{\n    {body}}};\n\n")
    text.append(f"static const tensor_t reset_tensor = {row(training.reset)[0]};\n")
    text.append(f"static const tensor_t loss_tensor = {row(training.loss)[0]};\n\n#endif\n")
    return "".join(text)
