"""What people see of a plan: text, table, command line, figures."""

import re

import matplotlib as mpl
import pytest

import rpukit.__main__ as command_line
from rpukit import plot, tiled
from rpukit.tiled.verify.simulate import simulate
from tests.reference.models import load

LEVELS = tiled.siracusa_l3(l1=5_000, l2=12_000)
mpl.use("Agg")


@pytest.fixture(scope="module")
def plans():
    reference = load("models/mlp_relu")
    graph = tiled.training_from_onnx(reference.file("train"), reference.file("optimizer"))
    strategies = ("single", "double", "auto")
    return graph, {s: tiled.plan(graph, LEVELS, buffering=s, single={"SGD"}) for s in strategies}


def test_instructions_alone_take_the_planned_cycles(plans):
    graph, own = plans
    for plan in own.values():
        for number, program in enumerate(plan.programs):
            busy = simulate(plan, graph, number)
            assert max(one.end for one in busy) == program.cycles
            moving = [one for one in busy if one.engine != "compute"]
            assert sum(one.end - one.start for one in moving) == program.transferring
            assert 0 <= program.hidden <= program.transferring
        if plan.buffering == "single":
            assert all(op.cycles == op.alone == op.serial for op in plan.ops())


def test_two_tiles_or_more_hide_nine_tenths(plans):
    program = plans[1]["auto"].programs[0]
    several = [op for op in program.ops if op.n_tiles > 1 and op.hideable]
    saved = sum(op.serial - op.cycles for op in several)
    assert saved >= 0.9 * sum(op.hideable for op in several)


def test_text_says_every_reason(plans):
    text = str(plans[1]["auto"])
    assert all(level.name in text for level in LEVELS.levels)
    assert text.count("asked for: SGD") == len(plans[1]["auto"].programs[1].ops)
    assert "one tile" in text
    several = [op for op in plans[1]["auto"].programs[0].ops if op.n_tiles > 1]
    good = sum(op.hidden >= 0.9 for op in several if op.hideable)
    assert f"{good} of {sum(op.hideable > 0 for op in several)} ops of two tiles" in text
    lines = {line.split()[1]: line.split() for line in text.splitlines() if line.startswith("  ")}
    assert several
    for op in several:
        if op.hideable and len(op.node) <= 36:
            assert f"{100 * op.hidden:.0f}" in lines[op.node], op.node
    assert "strategy" in str(plans[1]["single"])
    assert "\ntraining graph network: " in text
    assert "\noptimiser network: " in text


def test_table_joins_strategies(plans):
    own = plans[1]
    lines = tiled.compare_plans({"mlp": own, "ab": {"single": own["single"]}}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["ab", "mlp"]
    cells = [cell.strip() for cell in lines[3].split("|")[1:-1]]
    single, double = (own[s].programs[0].cycles for s in ("single", "double"))
    assert cells[2:6] == [
        "5000",
        str(single),
        str(double),
        f"{100 * (double - single) / single:+.1f}",
    ]
    assert "n/a" in lines[2]
    moved = own["auto"].programs[1].moved
    assert cells[-2] == ", ".join(f"{level} {i} + {o}" for level, (i, o) in moved.items())
    assert (
        cells[8]
        == f"{100 * own['auto'].programs[0].hidden / own['auto'].programs[0].transferring:.0f}"
    )


def test_command_line_plans_a_file(tmp_path, capsys):
    path = load("models/mlp_relu").file("train")
    out = tmp_path / "plan.json"
    words = ["plan", str(path), "--levels", "siracusa_l2", "--l1", "5000", "--json", str(out)]
    assert command_line.main(words) == 0
    text = capsys.readouterr().out
    assert 'buffering "auto"' in text
    assert tiled.Plan.from_json(out.read_text()).peaks["L1"] <= 5000
    assert command_line.main([*words, "--buffering", "single", "--single", "Relu"]) == 0
    assert "asked for: Relu" in capsys.readouterr().out
    assert command_line.main(["plan", str(path), "--l1", "8"]) == 2
    assert "Give L1" in capsys.readouterr().err
    for wrong in (
        ["plan", str(tmp_path / "none.onnx")],
        [*words[:-1], str(tmp_path / "no" / "p")],
    ):
        assert command_line.main(wrong) == 2
        assert re.search(r"no\s+(file|folder)", capsys.readouterr().err)


def test_figures(plans):
    graph, own = plans
    memory, pipeline = plot.plot_plan(own["auto"], graph, first=0, last=6)
    assert any("resident" in text.get_text() for text in memory.get_legend().texts)
    assert len(memory.patches) + sum(len(c.get_paths()) for c in memory.collections) > 10
    assert "cycles" in pipeline.get_xlabel()
