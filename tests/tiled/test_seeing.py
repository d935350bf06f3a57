"""Timelines as files, sweeps over a level, targets compared: what helps to choose a machine."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import matplotlib as mpl
import pytest

from rpukit import plot, tiled
from rpukit.errors import ParameterError
from rpukit.tiled.runtime.report import describe
from rpukit.tiled.verify.timeline import engines, live_bytes_by_step, spans
from tests.reference.models import load

mpl.use("Agg")
LEVELS = tiled.siracusa_l3(l1=5_000, l2=12_000)


@pytest.fixture(scope="module")
def graph():
    reference = load("models/mlp_relu")
    return tiled.training_from_onnx(reference.file("train"), reference.file("optimizer"))


@pytest.fixture(scope="module", params=["single", "auto"])
def plan(request, graph):
    return tiled.plan(graph, LEVELS, buffering=request.param)


@pytest.fixture
def pyplot():
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_spans_are_the_simulation_with_reasons(plan, graph):
    for number, program in enumerate(plan.programs):
        found = spans(plan, graph, number)
        busy = tiled.simulate(plan, graph, number)
        assert [(s.engine, s.start, s.end) for s in found] == [(b[0], b[2], b[3]) for b in busy]
        for k, one in enumerate(found):
            assert all(cause < k and found[cause].end <= one.start for cause in one.waits_for)
            if one.kind == "compute":
                assert one.name == program.ops[one.step].node
        # Every cycle without a kernel before the last one is one that a later span waited.
        kernels = [one for one in found if one.kind == "compute"]
        idle = kernels[-1].end - sum(one.end - one.start for one in kernels)
        assert sum(one.waited for one in found[: found.index(kernels[-1]) + 1]) == idle


def test_a_copy_is_for_the_op_that_uses_it(plan, graph):
    program = plan.programs[0]
    for one in spans(plan, graph, 0):
        if one.kind != "compute" and one.engine.startswith("L1"):
            operands = {operand.tensor for operand in program.ops[one.step].operands}
            assert one.name in operands, one


def test_live_bytes_reach_the_peak_and_no_more(plan):
    for level in LEVELS.levels[1:]:
        taken = [
            sum(one.values())
            for number in range(2)
            for one in live_bytes_by_step(plan, number, level.name)
        ]
        assert 0 < max(taken) <= plan.peaks[level.name]


def check_schema(events):
    """Check what the Chrome trace event format asks of each kind of event."""
    needed = {"M": {"name", "args"}, "X": {"name", "ts", "dur"}, "C": {"name", "ts", "args"}}
    needed |= {"s": {"name", "id", "ts", "cat"}, "f": {"name", "id", "ts", "cat", "bp"}}
    for event in events:
        assert needed[event["ph"]] | {"pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert all(event[key] >= 0 for key in ("ts", "dur") if key in event)


def test_trace_for_perfetto(plan, graph, tmp_path):
    data = json.loads(tiled.write_trace(plan, graph, tmp_path / "t.json").read_text())
    events = data["traceEvents"]
    check_schema(events)
    assert data["otherData"]["cycles"] == plan.cycles
    bars = [one for one in events if one["ph"] == "X"]
    assert max(one["ts"] + one["dur"] for one in bars) == plan.cycles
    names = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in events
        if one["name"] == "thread_name"
    }
    assert list(names.values()) == 2 * ["kernels", "L1 in", "L1 out", "L2 in", "L2 out"]
    for pid, program in enumerate(plan.programs):
        own = [one for one in bars if one["pid"] == pid]
        moving = sum(one["dur"] for one in own if one["tid"])
        assert moving == program.transferring
        busy = tiled.simulate(plan, graph, pid)
        kernels = sum(one.end - one.start for one in busy if one.engine == "compute")
        assert sum(one["dur"] for one in own if not one["tid"]) == kernels
    # Bars of a track follow one another; arrows come in pairs and go forward in time.
    for track in names:
        own = sorted((b["ts"], b["dur"]) for b in bars if (b["pid"], b["tid"]) == track)
        assert all(a + d <= b for (a, d), (b, _) in pairwise(own))
    arrows = [one["id"] for one in events if one["ph"] == "s"]
    assert len(arrows) == len(set(arrows))
    starts, ends = ({one["id"]: one for one in events if one["ph"] == ph} for ph in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) > len(plan.programs[0].ops)
    assert all(starts[k]["ts"] <= ends[k]["ts"] for k in starts)


def test_trace_in_other_units(plan, graph):
    events = tiled.trace_events(plan, graph, microseconds=1e-3)
    end = max(one["ts"] + one["dur"] for one in events if one["ph"] == "X")
    assert end == pytest.approx(plan.cycles / 1000, rel=1e-12)
    with pytest.raises(ParameterError, match="microseconds"):
        tiled.trace_events(plan, graph, microseconds=0)


def test_page_is_complete_in_itself(plan, graph, tmp_path):
    text = tiled.write_trace(plan, graph, tmp_path / "t.html").read_text()
    assert "@" not in re.sub(r"<style>.*?</style>|<title>.*?</title>", "", text, flags=re.S)
    assert not re.search(r"(?:src|href)=|@import|https?:", text)
    bars = re.findall(r'data-k="(\d+)" data-w="([\d,]*)" x="(\d+)" y="[\d.]+" width="(\d+)"', text)
    assert len(bars) == sum(len(spans(plan, graph, number)) for number in range(2))
    assert max(int(x) + int(w) for _, _, x, w in bars) == plan.programs[0].cycles
    assert f"{plan.cycles} cycles" in text


def test_page_shows_names_as_text(tmp_path):
    x, y = (tiled.Tensor(name, (64, 64)) for name in ("x", "</title><script>"))
    node = tiled.Node("<b>&", "Relu", ("x",), ("</title><script>",))
    one = tiled.make_graph("a<b", [node], [x], [y.name])
    made = tiled.plan(one, tiled.siracusa_l2(l1=16_000))
    made = replace(made, buffering="<script>")
    text = tiled.write_trace(made, one, tmp_path / "t.html").read_text()
    assert text.count("<script>") == 1
    assert "a&lt;b" in text


def test_trace_of_another_kind(plan, graph, tmp_path):
    with pytest.raises(ParameterError, match=r"\.json or \.html"):
        tiled.write_trace(plan, graph, tmp_path / "t.txt")
    assert list(tmp_path.iterdir()) == []


def test_text_in_eighty_columns(plan):
    text = describe(plan, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"^ {6}\S", text, re.M)  # rows of the table are not broken
    for word in ("tiles:", "buffers:", "resident", "home", "alone:", "cycles:"):
        assert word in text
    assert re.search(r"^\(a\): one buffer because: ", text, re.M)
    assert ("band:" in text) == any(op.band for op in plan.ops())
    assert "alone: cycles of the op if nothing else" in str(plan)


def test_sweep(graph, pyplot):
    levels = tiled.siracusa_l2(l1=5_000)
    sizes = [8, 2_000, 5_000, 40_000]
    sweep = tiled.sweep_levels(graph, levels, "L1", sizes, buffering=("single", "auto"))
    assert sweep.cycles["single"][0] is None
    for strategy, cycles in sweep.cycles.items():
        assert cycles[2] == tiled.plan(graph, levels, buffering=strategy).cycles
        assert cycles[1] >= cycles[2] >= cycles[3]
    lines = str(sweep).splitlines()
    assert lines[0].split() == ["bytes", "of", "L1", "single", "auto"]
    assert lines[1].split() == ["8", "-", "-"]
    assert "5000 *" in lines[3]
    ax = plot.plot_sweep(sweep)
    assert list(ax.lines[0].get_xdata()) == sizes[1:]
    assert {text.get_text() for text in ax.get_legend().texts} >= {'"single"', '"auto"'}
    assert "bytes" in ax.get_xlabel()
    assert ax.get_ylim()[0] == 0
    for wrong in ({"sizes": []}, {"sizes": [0]}, {"level": "L9"}, {"buffering": "auto"}):
        with pytest.raises(ParameterError):
            tiled.sweep_levels(graph, levels, **wrong)


def test_default_sizes_of_a_sweep():
    x = tiled.Tensor("x", (64, 64))
    one = tiled.make_graph("one", [tiled.Node("r", "Relu", ("x",), ("y",))], [x], ["y"])
    sweep = tiled.sweep_levels(one, tiled.siracusa_l2(l1=8_000))
    assert sweep.sizes == (1000, 2000, 4000, 8000, 16000, 32000, 64000)


def test_targets(graph, pyplot):
    targets = {
        "L2": tiled.siracusa_l2(),
        "none": tiled.siracusa_l2(l1=64),
        "gpu": tiled.gpu(1 << 20),
    }
    how = {"buffering": "single"}
    found = tiled.compare_targets(graph, targets, clocks={"L2": 5e8}, **how)
    assert found.plans["L2"].cycles == tiled.plan(graph, targets["L2"], **how).cycles
    assert found.seconds("L2") == found.plans["L2"].cycles / 5e8
    assert found.seconds("gpu") is None
    assert found.plans["none"] is None
    assert "none does not fit: L1: " in str(found)
    assert str(found.plans["gpu"].cycles) in str(found)
    ax = plot.plot_targets(found)
    assert [one.get_text() for one in ax.get_yticklabels()] == list(targets)
    assert "cycles" in ax.get_xlabel()
    clocks = {"L2": 5e8, "gpu": 1e9, "none": 1e9}
    ax = plot.plot_targets(tiled.compare_targets(graph, targets, clocks=clocks, **how))
    assert "(ms)" in ax.get_xlabel()
    total = sum(bar.get_width() for bar in ax.patches if abs(bar.get_y() + 0.4) < 0.5)
    assert total == pytest.approx(1e3 * found.seconds("L2"))
    for wrong in ({"clocks": {"L9": 1.0}}, {"clocks": {"L2": 0.0}}):
        with pytest.raises(ParameterError, match="clocks"):
            tiled.compare_targets(graph, targets, **wrong)
    with pytest.raises(ParameterError, match="targets"):
        tiled.compare_targets(graph, {})


def test_figure_of_a_plan_has_a_key(plan, graph, pyplot):
    memory, pipeline = plot.plot_plan(plan, graph)
    words = [text.get_text() for text in memory.get_legend().texts]
    key = {handle.get_facecolor() for handle in memory.get_legend().legend_handles[:-1]}
    key |= {(0.45, 0.45, 0.45, 1.0), (0.7, 0.7, 0.7, 1.0)}  # the pair of greys
    assert any(word.startswith("fetched") for word in words)
    assert words[-1].startswith("kernels")
    for ax in (memory, pipeline):
        used = {tuple(map(float, c)) for one in ax.collections for c in one.get_facecolors()}
        assert used <= key
    assert "L1 (bytes)" in memory.get_ylabel()
    assert "cycles" in pipeline.get_xlabel()
    assert [one.get_text() for one in pipeline.get_yticklabels()] == [
        "kernels",
        *engines(plan)[1:],
    ]


def test_figure_of_a_part_of_the_time(plan, graph, pyplot):
    middle = plan.programs[0].cycles / 2
    memory, pipeline = plot.plot_plan(plan, graph, time=(middle, middle + 500))
    assert pipeline.get_xlim() == (middle, middle + 500)
    steps = [s.step for s in spans(plan, graph) if s.start < middle + 500 and s.end > middle]
    assert memory.get_xlim() == (min(steps), max(steps) + 1)
    for wrong in ((5, 5), (-1, 4), (plan.programs[0].cycles, 1e9), 3, (1, 2, 3)):
        with pytest.raises(ParameterError, match="time"):
            plot.plot_plan(plan, graph, time=wrong)
