"""The study of the transfer family: it runs, its record is reproduced, and agrees with others."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import study_transfer  # noqa: E402

RECORD = json.loads((ROOT / "docs" / "data" / "transfer.json").read_text())
POINTS = {(p["part"], p["row"], p["column"]): p for p in RECORD}
REFERENCE = json.loads((ROOT / "tests/data/analog/f_toy_offset.json").read_text())


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("part", "row", "column"),
    [
        ("offset", "100 states, spread 0.5", "TTv2"),
        ("offset", "100 states, spread 0.5", "TTv4"),
        ("residual", "10 states", "SGD"),
    ],
)
def test_a_recorded_value_comes_out_again(part, row, column):
    todo = [t for t in study_transfer.jobs([part], 1, 1.0, None) if t[1:3] == (row, column)]
    (point,) = study_transfer.compute(todo, workers=1)
    assert point["values"] == POINTS[part, row, column]["values"][:1]


@pytest.mark.parametrize("row", REFERENCE)
def test_the_record_agrees_with_the_reference_toolkit(row):
    """Means of ten seeds on both sides; each within one deviation between seeds."""
    for name, (mean, std) in REFERENCE[row].items():
        own, spread = study_transfer.summary(POINTS["offset", row, name])
        assert abs(own - mean) < max(std, spread), name


@pytest.mark.parametrize("part", ["digits", "mnist"])
def test_what_is_published_is_in_the_record(part):
    mean = {key[1:]: study_transfer.summary(p)[0] for key, p in POINTS.items() if key[0] == part}
    exact = mean["spread 0.0", "floating point"]
    for spread in study_transfer.SPREADS[part]:
        row = f"spread {spread}"
        assert mean[row, "SGD"] < exact - 10
        assert mean[row, "TTv4"] > exact - 1.5
        assert abs(mean[row, "TTv4"] - mean["spread 0.0", "TTv4"]) < 0.5
    for name in ("TTv2", "TTv3"):
        assert mean["spread 0.0", name] > exact - 1.5
        assert mean[row, name] < mean["spread 0.0", name] - (5 if name == "TTv2" else 0.5)


def test_the_study_runs(tmp_path, capsys):
    out, figure = tmp_path / "points.json", tmp_path / "study.png"
    short = ["--seeds", "1", "--scale", "0.01", "--workers", "1", "--parts", "offset", "residual"]
    study_transfer.main([*short, "--json", str(out)])
    points = json.loads(out.read_text())
    wanted = {key for key in POINTS if key[0] in ("offset", "residual")}
    assert {(p["part"], p["row"], p["column"]) for p in points} == wanted
    assert all(np.isfinite(p["values"]).all() for p in points)
    printed = capsys.readouterr().out
    study_transfer.main(["--from", str(out)])
    assert capsys.readouterr().out == printed
    pytest.importorskip("matplotlib")
    study_transfer.draw(RECORD, figure)
    assert figure.stat().st_size > 10_000


def test_networks_learn():
    pytest.importorskip("sklearn")
    for name in ("mixed precision", "TTv4"):
        assert study_transfer.network_job("digits", 0.5, name, 1, 0.01, None)[-1] > 70
    assert study_transfer.few_states_job(10, 0.1, 1, 0.1)[-1] > 60
