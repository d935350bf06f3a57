"""Reports of plans: a table of ops and memory, and a comparison of strategies."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from rpukit._checks import shown, takes
from rpukit.errors import ParameterError
from rpukit.tiled.program import BasePlan, OpPlan, Program

__all__ = ["compare_plans", "describe"]


_KEY = {
    "tiles": "how many tiles of the shape beside it the op is cut into",
    "buffers": "per operand, in the innermost level: 1, 2 or 3 rotating buffers, r: the whole "
    "value is resident (stays for several tiles or ops), h: it is used where it lives (its home)",
    "cycles": "from the end of the previous tile of the program to the end of each of its own",
    "alone": "cycles of the op if nothing else runs before or beside it",
    "hidden %": "share of the transfer time that can overlap with kernels and does; given for "
    "ops of two tiles or more",
    "band": "ops with the same number are interleaved, tile by tile",
}


def describe(plan: BasePlan, width: int | None = None) -> str:
    """Write a plan as text: levels, every op with tiles, buffers and cycles, and a key.

    "hidden %" is the hidden share of the hideable transfer time, for ops of two tiles or more. Ops
    with the same number under "band" are interleaved, tile by tile.

    Parameters
    ----------
    plan : Plan
    width : int, optional
        Characters of a line, 60 or more: long names are shortened, only the innermost tile is
        given, and reasons are letters. Default: lines as long as they need be.

    Returns
    -------
    str
    """
    lines = [f'plan, buffering "{plan.buffering}", {plan.cycles} cycles']
    for level in plan.hierarchy.levels:
        used = plan.peaks[level.name]
        homes = sum(home.level == level.name for home in plan.homes)
        lines.append(f"  {level.name}: {used} of {level.bytes} bytes, home of {homes} values")
    kinds = ("training graph", "optimiser") if len(plan.programs) > 1 else ("graph",)
    reasons: dict[str, str] = {}
    for kind, program in zip(kinds, plan.programs, strict=True):
        moved = ", ".join(f"{name} {i} in, {o} out" for name, (i, o) in program.moved.items())
        lines += ["", f"{kind} {program.name}: {program.cycles} cycles; bytes moved: {moved}"]
        several = [op for op in program.ops if op.n_tiles > 1 and op.hideable]
        if several:
            good = sum(op.hidden >= 0.9 for op in several)
            lines.append(
                f"{good} of {len(several)} ops of two tiles or more hide nine tenths or more of "
                "the transfers that can be hidden"
            )
        lines += _wide(program) if width is None else _narrow(program, width, reasons)
    key = {name: text for name, text in _KEY.items() if name != "band" or _banded(plan)}
    key |= {letter: f"one buffer because: {text}" for text, letter in reasons.items()}
    lines += [""]
    lines += [f"{name}: {text}" for name, text in key.items()]
    if width is None:
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in _wrapped(line, width))


def _banded(plan: BasePlan) -> bool:
    return any(op.band for op in plan.ops())


def _wrapped(line: str, width: int) -> list[str]:
    """Break a line that is too long at spaces; the rest is indented."""
    if len(line) <= width:
        return [line]
    indent = " " * (4 + len(line) - len(line.lstrip()))
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


def _wide(program: Program) -> list[str]:
    """Write the table of a program with one column a subject, as wide as it need be."""
    head = "op", "node", "tile", "tiles", "buffers", "cycles", "alone", "hidden %", "band"
    rows: list[tuple[str, ...]] = [(*head, "single because")]
    rows += [_row(op) for op in program.ops]
    return _aligned(rows, right=(3, 5, 6, 7, 8), gap="  ")


def _narrow(program: Program, width: int, reasons: dict[str, str]) -> list[str]:
    """Write the table of a program in lines of a given width; reasons get letters."""
    banded = any(op.band for op in program.ops)
    head = ["node", "tile", "tiles", "buffers", "cycles", "alone", "hidden %", "band", "why"]
    rows: list[tuple[str, ...]] = [tuple(head)]
    for op in program.ops:
        own, _, tile, n, buffers, cycles, alone, hidden, band, reason = _row(op)
        if reason and reason not in reasons:
            reasons[reason] = f"({chr(ord('a') + len(reasons) % 26)})"
        name = op.node if own.lower() in op.node.lower() else f"{own} {op.node}"
        inner = tile.split(" > ")[-1]
        numbers = n, buffers.replace(" ", ""), cycles, alone, hidden, band
        rows.append((name, inner, *numbers, reasons.get(reason, "")))
    if not banded:
        rows = [(*row[:7], row[8]) for row in rows]
    rest = [max(len(row[k]) for row in rows) for k in range(1, len(rows[0]))]
    room = max(12, width - 2 - sum(rest) - len(rest))
    rows = [(_shortened(row[0], room), *row[1:]) for row in rows]
    return _aligned(rows, right=(2, 4, 5, 6, *((7,) if banded else ())), gap=" ")


def _aligned(rows: list[tuple[str, ...]], right: tuple[int, ...], gap: str) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if k in right else text.ljust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + gap.join(cells).rstrip())
    return lines


def _shortened(name: str, room: int) -> str:
    """Leave out the middle of a name that is too long: both ends tell names apart."""
    ahead = (room - 3) * 5 // 11
    return name if len(name) <= room else f"{name[:ahead]}...{name[ahead + 3 - room :]}"


def _row(op: OpPlan) -> tuple[str, ...]:
    tile = " > ".join("x".join(map(str, extents)) for extents in op.extents)
    numbers = str(op.n_tiles), _buffers(op), str(op.cycles), str(op.alone)
    hidden = f"{100 * op.hidden:.0f}" if op.n_tiles > 1 and op.hideable else ""
    node = _shortened(op.node, 36)
    return (op.op, node, tile, *numbers, hidden, str(op.band or ""), op.reason)


def _buffers(op: OpPlan) -> str:
    """List buffers of each operand in the innermost level: a number, r(esident) or h(ome)."""
    words = []
    for operand in op.operands:
        place = operand.places[-1] if operand.places else None
        if place is None:
            words.append("h")
        else:
            words.append("r" if place.kind == "resident" else str(len(place.addresses)))
    return " ".join(words)


@takes()
def compare_plans(plans: Mapping[str, Mapping[str, BasePlan]]) -> str:
    """Compare single, double and automatic buffering in a Markdown table.

    Parameters
    ----------
    plans : mapping of str to (mapping of str to Plan)
        By a label such as "Autoencoder, L1 32000", then by strategy: "single", "double" and,
        optionally, "auto". The first program is the training graph, the second one the
        optimiser's.

    Returns
    -------
    str
        Differences are (other - single) / single in per cent: negative is faster. Overlap is the
        share of the transfers' time in which a kernel runs as well, of "auto" where it is given;
        bytes are those in and out over the link of each level.
    """
    head = ["test", "level", "bytes"]
    for name in ("train", "opt"):
        head += [f"single {name}", f"double {name}", f"{name} %", f"auto {name}"]
        head += [f"auto {name} %", f"overlap {name} %", f"bytes {name}: single", "auto"]
    head += ["ops with 2+ tiles"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for label in sorted(plans):
        own = plans[label]
        if not (
            isinstance(label, str) and own and all(isinstance(p, BasePlan) for p in own.values())
        ):
            raise ParameterError(f"plans: got {shown(plans)}, need plans by label and strategy")
        some = next(iter(own.values()))
        best = own.get("auto", own.get("double", some))
        inner = some.hierarchy.levels[-1]
        cells = [label, inner.name, str(inner.bytes)]
        for program in (0, 1):
            cycles = {name: _cycles(plan, program) for name, plan in own.items()}
            single, double, auto = (cycles.get(name) for name in ("single", "double", "auto"))
            cells += [_text(single), _text(double), _change(single, double)]
            cells += [_text(auto), _change(single, auto), _overlap(best, program)]
            cells += [_moved(own.get("single"), program), _moved(own.get("auto"), program)]
        several = sum(op.n_tiles > 1 for op in best.ops())
        cells += [f"{several} of {sum(1 for _ in best.ops())}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cycles(plan: BasePlan, program: int) -> int | None:
    return plan.programs[program].cycles if program < len(plan.programs) else None


def _text(cycles: int | None) -> str:
    return "n/a" if cycles is None else str(cycles)


def _change(single: int | None, other: int | None) -> str:
    if not single or other is None:
        return "n/a"
    return f"{100 * (other - single) / single:+.1f}"


def _overlap(plan: BasePlan, program: int) -> str:
    """Compute the share of the transfers' time in which a kernel runs as well."""
    if program >= len(plan.programs) or not plan.programs[program].transferring:
        return "n/a"
    one = plan.programs[program]
    return f"{100 * one.hidden / one.transferring:.0f}"


def _moved(plan: BasePlan | None, program: int) -> str:
    """List the bytes in and out over each link."""
    if plan is None or program >= len(plan.programs):
        return "n/a"
    moved = plan.programs[program].moved
    return ", ".join(f"{name} {i} + {o}" for name, (i, o) in moved.items())
