"""The study of densities: it runs, goes on where it was, and its record is what the docs say."""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import study_circuits  # noqa: E402


def test_the_docs_hold_the_record():
    record = json.loads((ROOT / "docs/data/circuits.json").read_text())
    text = (ROOT / "docs/results.md").read_text()
    assert len(record) >= 4
    for line in study_circuits.table(record).splitlines():
        assert line in text
    for name, found in record.items():
        assert found["setting"] == vars(study_circuits.SETTINGS[name])
        assert found["test"] > found["independent"]


def test_the_study_runs_once(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.integers(0, 2, (90, 2)), 3, axis=1) ^ (rng.random((90, 6)) < 0.1)
    np.savez(tmp_path / "nltcs.npz", train=x[:60], valid=x[60:75], test=x[75:])
    short = study_circuits.Setting(2, 3, 20, 0.5, 0.1, 0.1)
    monkeypatch.setitem(study_circuits.SETTINGS, "nltcs", short)
    out = tmp_path / "found.json"
    args = ["--sets", "nltcs", "mnist", "--data", str(tmp_path), "--json", str(out)]
    study_circuits.main(args)
    first = capsys.readouterr().out
    result = json.loads(out.read_text())["nltcs"]
    assert len(result["valid"]) == 3
    assert result["test"] > result["independent"] + 0.3
    (tmp_path / "nltcs.npz").unlink()
    study_circuits.main(args)
    assert capsys.readouterr().out == first
