"""``python -m rpukit fit``: from a table of pulses to a cell."""

import json

import numpy as np
import pytest

import rpukit as rk
from rpukit import __main__ as command_line


@pytest.fixture(scope="module")
def pulses(tmp_path_factory):
    """Two devices with soft bounds at 20 uS and 40 uS a weight unit, and little noise."""
    cell = rk.SoftBounds(dw_min=0.05, dw_min_std=0.1, dw_min_dtod=0.1, w_max_dtod=0, w_min_dtod=0)
    ups = np.tile(np.repeat([True, False], 40), 3)
    response = rk.studies.pulse_response(cell, ups, n_cell=2, seed=3)
    lines = ["device,pulse,direction,conductance (uS)"]
    for k, name in enumerate(("A", "B")):
        for pulse, weight in enumerate(response.weight[:, k]):
            way = "" if not pulse else "up" if ups[pulse - 1] else "down"
            lines.append(f"{name},{pulse},{way},{20 + 10 * weight:.5f}")
    path = tmp_path_factory.mktemp("fit") / "pulses.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(capsys, *words):
    status = command_line.main(["fit", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_fit_is_told_drawn_and_saved(pulses, tmp_path, capsys):
    figure, saved = tmp_path / "fit.png", tmp_path / "fit.json"
    status, out, _ = run(capsys, pulses, "--figure", figure, "--plotted", "B", "--out", saved)
    assert status == 0
    assert "SoftBounds fitted to" in out
    assert max(map(len, out.splitlines())) <= 80
    for word in ("dw_min", "w_max", "standard error", "uS"):
        assert word in out
    assert figure.read_bytes()[:4] == b"\x89PNG"
    cell = rk.studies.load_fit(saved).cell
    assert isinstance(cell, rk.SoftBounds)
    assert rk.AnalogTile((2, 3), cell, seed=1).shape == (2, 3)


def test_several_models_as_json(pulses, capsys):
    status, out, _ = run(capsys, pulses, "--model", "ConstantStep,SoftBounds", "--json")
    said = json.loads(out)
    assert status == 0
    assert said["model"] == "SoftBounds"
    assert [line["model"] for line in said["ranking"]] == ["SoftBounds", "ConstantStep"]
    assert said["devices"] == ["A", "B"]
    unit = said["g_per_weight_uS"] / 10  # of the weights here in those of the file
    assert said["parameters"]["w_max"]["value"] * unit + (said["g_zero_uS"] - 20) / 10 == (
        pytest.approx(0.6, abs=0.05)
    )


def test_other_headings(pulses, tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text(pulses.read_text().replace("device,", "cell id,").replace(" (uS)", ""))
    status, _, err = run(capsys, path)
    assert status == 2
    assert "device" in err
    words = [path, "--column", "device=cell id", "--unit", "uS"]
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert "2 devices" in out


def test_what_is_missing(pulses, tmp_path, capsys):
    for words, said in (
        ([], "no data given, need a CSV file"),
        ([tmp_path / "none.csv"], "no file"),
        ([pulses, "--model", "SoftBond"], "did you mean 'SoftBounds'?"),
        ([pulses, "--plotted", "C"], "there are A, B"),
        ([pulses, "--column", "device"], "need NAME=TEXT"),
        ([pulses, "--out", tmp_path / "no" / "fit.json"], "make it first"),
    ):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, ""), words
        assert said in " ".join(err.split()), words
