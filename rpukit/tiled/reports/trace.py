"""Timeline of a plan as a file: events for Perfetto, or a page for a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from rpukit._checks import Real, takes
from rpukit._files.writing import write_text
from rpukit.errors import ParameterError
from rpukit.tiled.ir import BaseGraph, Training
from rpukit.tiled.program import BasePlan
from rpukit.tiled.verify.timeline import KINDS, Span, engines, live_bytes_by_step, spans

__all__ = ["trace_events", "write_trace"]

Event = dict[str, Any]

_MICROSECONDS = Real(1e-12, 1e12)


@takes(microseconds=_MICROSECONDS)
def trace_events(
    plan: BasePlan, graph: BaseGraph | Training, *, microseconds: float = 1.0
) -> list[Event]:
    """List the events of a plan's timeline in the Chrome trace event format.

    Each program (training step, optimiser) is a process, each engine a thread of it: the kernels,
    and the copies in and out over the link of each level. An arrow (flow) goes from what an
    instruction had to wait for to the instruction. Counters hold the bytes taken of each level.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training
        What the plan was made of.
    microseconds : float
        Of one cycle: 1 shows a cycle as a microsecond; 1e-3 gives true times for `gpu`, whose
        cycles are nanoseconds.

    Returns
    -------
    list of dict
        With "ph" of "M" (names), "X" (a kernel or copy, from "ts" for "dur" microseconds), "s" and
        "f" (the ends of an arrow), and "C" (counters).

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> from rpukit import tiled
    >>> x, y = (tiled.Tensor(name, (64, 64)) for name in "xy")
    >>> graph = tiled.make_graph("one", [tiled.Node("relu", "Relu", ("x",), ("y",))], [x], ["y"])
    >>> plan = tiled.plan(graph, tiled.siracusa_l2(l1=16_000))
    >>> busy = [one for one in tiled.trace_events(plan, graph) if one["ph"] == "X"]
    >>> max(one["ts"] + one["dur"] for one in busy) == plan.cycles
    True
    """
    events: list[Event] = []
    begin = flow = 0
    for number, program in enumerate(plan.programs):
        title = f"{_title(plan, number)} {program.name}, {program.cycles} cycles"
        events += _names(number, title, engines(plan))
        found = spans(plan, graph, number)
        for one in _slices(plan, number, found, flow):
            if "ts" in one:
                one["ts"] = (one["ts"] + begin) * microseconds
            if "dur" in one:
                one["dur"] *= microseconds
            events.append(one)
        flow += sum(len(span.waits_for) for span in found)
        begin += program.cycles
    return events


@takes(microseconds=_MICROSECONDS)
def write_trace(
    plan: BasePlan,
    graph: BaseGraph | Training,
    path: str | Path,
    *,
    microseconds: float = 1.0,
) -> Path:
    """Write the timeline of a plan: ``.json`` for Perfetto or Chrome's tracer, ``.html`` to open.

    The page needs nothing but a browser: it zooms, tells about each bar, and marks what a bar
    waits for. The other file is opened at ui.perfetto.dev or in chrome://tracing.

    Parameters
    ----------
    plan : Plan
    graph : Graph or Training
        What the plan was made of.
    path : str or path
        Ends in ``.json`` or ``.html``.
    microseconds : float
        Of one cycle, in the file for Perfetto; see `trace_events`.

    Returns
    -------
    Path

    Raises
    ------
    ParameterError, SaveError, OSError

    Examples
    --------
    >>> from rpukit import tiled
    >>> x, y = (tiled.Tensor(name, (64, 64)) for name in "xy")
    >>> graph = tiled.make_graph("one", [tiled.Node("relu", "Relu", ("x",), ("y",))], [x], ["y"])
    >>> plan = tiled.plan(graph, tiled.siracusa_l2(l1=16_000))
    >>> tiled.write_trace(plan, graph, "relu.html").name
    'relu.html'
    """
    path = Path(path)
    if path.suffix == ".html":
        text = _page(plan, graph)
    elif path.suffix == ".json":
        events = trace_events(plan, graph, microseconds=microseconds)
        other = {"cycles": plan.cycles, "microseconds of a cycle": microseconds}
        data = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}
        text = json.dumps(data, separators=(",", ":")) + "\n"
    else:
        raise ParameterError(f"path: got {str(path)!r}, need a name that ends in .json or .html")
    write_text(path, text)
    return path


def _title(plan: BasePlan, number: int) -> str:
    return "graph" if len(plan.programs) == 1 else ("training graph", "optimiser")[number]


def _names(pid: int, title: str, rows: list[str]) -> list[Event]:
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": title}},
        {
            "ph": "M",
            "name": "process_sort_index",
            "pid": pid,
            "tid": 0,
            "args": {"sort_index": pid},
        },
    ]
    for tid, row in enumerate(rows):
        name = "kernels" if row == "compute" else row
        head: Event = {"ph": "M", "pid": pid, "tid": tid}
        events.append({**head, "name": "thread_name", "args": {"name": name}})
        events.append({**head, "name": "thread_sort_index", "args": {"sort_index": tid}})
    return events


def _slices(plan: BasePlan, pid: int, found: list[Span], flow: int) -> Iterator[Event]:
    """Yield bars, arrows and counters of a program, in cycles from its beginning."""
    rows = {name: tid for tid, name in enumerate(engines(plan))}
    ops = plan.programs[pid].ops
    for span in found:
        tid = rows[span.engine]
        args = {"op": ops[span.step].op, "node": ops[span.step].node, "waited": span.waited}
        if span.kind != "compute":
            args |= {"tensor": span.name, "bytes": span.bytes, "rows": span.rows}
        head = {"pid": pid, "tid": tid}
        yield {
            **head,
            "ph": "X",
            "name": span.name,
            "cat": span.kind,
            "ts": span.start,
            "dur": span.end - span.start,
            "args": args,
        }
        for number in span.waits_for:
            cause = found[number]
            arrow = {"cat": "wait", "name": "waits for", "id": flow, "pid": pid}
            middle = (cause.start + cause.end) / 2  # an arrow begins in the bar around this time
            yield {**arrow, "ph": "s", "tid": rows[cause.engine], "ts": middle}
            yield {**arrow, "ph": "f", "bp": "e", "tid": tid, "ts": span.start}
            flow += 1
    yield from _counters(plan, pid, found)


def _counters(plan: BasePlan, pid: int, found: list[Span]) -> Iterator[Event]:
    """Yield the bytes taken of each level, from the first kernel of each op on."""
    first: dict[int, int] = {}
    for span in found:
        if span.kind == "compute":
            first.setdefault(span.step, span.start)
    for level in plan.hierarchy.levels:
        now = 0
        for step, taken in enumerate(live_bytes_by_step(plan, pid, level.name)):
            now = max(now, first.get(step, now))
            head = {"ph": "C", "name": f"bytes of {level.name}", "pid": pid, "tid": 0}
            yield {**head, "ts": now, "args": taken}


def _page(plan: BasePlan, graph: BaseGraph | Training) -> str:
    """Fill the page: one drawing for each program, with a bar for each kernel and copy."""
    template = resources.files("rpukit.tiled").joinpath("reports/timeline.html").read_text("utf-8")
    charts = [_chart(plan, graph, number) for number in range(len(plan.programs))]
    key = ['<span class="box compute"></span>kernels']
    moved = {kind: text for kind, text in KINDS.items() if kind != "home"}
    key += [f'<span class="box {kind}"></span>{kind}: {text}' for kind, text in moved.items()]
    levels = "; ".join(
        f"{one.name}: {plan.peaks[one.name]} of {one.bytes} bytes" for one in plan.hierarchy.levels
    )
    title = f"Plan, buffering {plan.buffering}: {plan.cycles} cycles"
    text = template.replace("@TITLE@", escape(title)).replace("@LEVELS@", escape(levels))
    text = text.replace("@KEY@", "".join(f"<li>{item}</li>" for item in key))
    return text.replace("@CHARTS@", "\n".join(charts))


def _chart(plan: BasePlan, graph: BaseGraph | Training, number: int) -> str:
    program, rows = plan.programs[number], engines(plan)
    place = {name: row for row, name in enumerate(rows)}
    bars = []
    for k, span in enumerate(spans(plan, graph, number)):
        op = program.ops[span.step]
        tone = " odd" if span.kind == "compute" and span.step % 2 else ""
        said = f"{span.engine}: {span.name}\nfor op {span.step}, {op.op} {op.node}\n"
        said += f"cycles {span.start} to {span.end}"
        said += f", {span.bytes} bytes in {span.rows} rows" if span.kind != "compute" else ""
        said += f"\nwaited {span.waited} cycles" if span.waited else ""
        waits = ",".join(map(str, span.waits_for))
        bars.append(
            f'<rect class="{span.kind}{tone}" data-k="{k}" data-w="{waits}" x="{span.start}" '
            f'y="{place[span.engine] + 0.1}" width="{max(span.end - span.start, 0)}" '
            f'height="0.8"><title>{escape(said)}</title></rect>'
        )
    labels = "".join(f"<div>{'kernels' if row == 'compute' else row}</div>" for row in rows)
    title = escape(f"{_title(plan, number)} {program.name}: {program.cycles} cycles")
    box = f"0 0 {max(program.cycles, 1)} {len(rows)}"
    return (
        f'<h2>{title}</h2><div class="chart"><div class="rows">{labels}</div>'
        f'<svg viewBox="{box}" data-end="{program.cycles}" preserveAspectRatio="none" '
        f'style="height:{1.8 * len(rows):.1f}em">\n{chr(10).join(bars)}\n</svg></div>'
        '<div class="axis"></div>'
    )
