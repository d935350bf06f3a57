"""Measured pulses as laboratories write them; shipped sets; errors with their place."""

import hashlib
import io

import numpy as np
import pytest

from rpukit import studies
from rpukit.errors import FormatError, ParameterError
from tools import make_pulse_data

GOOD = "device,pulse,direction,conductance (uS)\na,0,,10\na,1,up,12.5\na,2,down,11\n"


def read(text, **options):
    return studies.read_pulses(io.StringIO(text), **options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (GOOD, {}),
        ("\ufeff# a comment\n" + GOOD, {}),
        (GOOD.replace(",", ";").replace("12.5", "12,5"), {}),
        (GOOD.replace(",", "\t"), {}),
        (GOOD.replace("(uS)", "[nS]").replace("10", "1e4").replace("12.5", "12500")
         .replace("11\n", "11000\n"), {}),
        (GOOD.replace(" (uS)", ""), {"unit": "uS"}),
        (GOOD.replace("conductance (uS)", "Conductance_µS"), {}),
        (GOOD.replace("pulse", "Pulse number").replace("up", "+1").replace("down", "-1"), {}),
        (GOOD.replace("device", "cell id"), {"columns": {"device": "cell id"}}),
        ("device,pulse,direction,conductance (uS)\na,2,down,11\na,0,x,10\na,1,SET,12.5\n", {}),
    ],
)  # fmt: skip
def test_forms_that_are_read(text, options):
    data = read(text, **options)
    np.testing.assert_allclose(data.conductance, [10, 12.5, 11])
    np.testing.assert_array_equal(data.pulse, [0, 1, 2])
    np.testing.assert_array_equal(data.up[1:], [True, False])
    assert data.devices == ("a",) and data.read_noise is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        (GOOD.splitlines()[0] + "\n", "no lines below"),
        (GOOD.replace("12.5", "high"), "line 3, column 'conductance .uS.': got 'high', need"),
        (GOOD.replace("12.5", "nan"), "line 3, .*: got 'nan'"),
        (GOOD.replace("a,2", "a,2.5"), "line 4, column 'pulse': got '2.5', need an integer"),
        (GOOD.replace("a,2", "a,1"), "line 4, column 'pulse': got '1', need each pulse of a"),
        (GOOD.replace("down", "sideways"), "line 4, column 'direction': got 'sideways', need up"),
        (GOOD.replace("a,2", ",2"), "line 4, column 'device': got '', need a value"),
        (GOOD + "b,0,,3\n", "line 5, column 'pulse': .* two reads or more"),
        (GOOD + "a,3,up\n", "line 5: got 3 values, need 4"),
        (GOOD.replace("a,2,", "a,20000000,"), "line 4, .* at most 10000000 pulses"),
        (GOOD.replace("(uS)", ""), "column 'conductance': got no unit"),
        (GOOD.replace("direction", "directoin"), "no column 'direction'.*mean 'directoin'"),
        (GOOD.replace("(uS)", "(uS),read_noise (uS)").replace("0,,10", "0,,10,-1")
         .replace("12.5", "12.5,1").replace("11\n", "11,1\n"), "line 2, .*: got '-1', need a num"),
    ],
)  # fmt: skip
def test_errors_name_line_and_column(text, message):
    with pytest.raises(FormatError, match=message):
        read(text)


def test_arguments_that_are_refused(tmp_path):
    with pytest.raises(FormatError, match="no UTF-8"):
        studies.read_pulses(io.BytesIO(b"\xff\xfe\x00"))
    with pytest.raises(ParameterError, match="need a path"):
        studies.read_pulses(3)
    with pytest.raises(ParameterError, match="unit: got 'ohm'"):
        read(GOOD, unit="ohm")
    with pytest.raises(ParameterError, match="did you mean 'device'"):
        read(GOOD, columns={"devise": "device"})
    with pytest.raises(FormatError, match="no column 'cell'"):
        read(GOOD, columns={"device": "cell"})
    with pytest.raises(OSError, match="none.csv"):
        studies.read_pulses(tmp_path / "none.csv")


def test_files_and_tables_say_the_same(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(GOOD)
    data = studies.read_pulses(path)
    assert data.source["name"] == "a.csv"
    assert data.source["sha256"] == hashlib.sha256(GOOD.encode()).hexdigest()
    pandas = pytest.importorskip("pandas")
    for table in (pandas.read_csv(path), dict(pandas.read_csv(path))):
        again = studies.read_pulses(table)
        np.testing.assert_array_equal(again.conductance, data.conductance)
        np.testing.assert_array_equal(again.up[1:], data.up[1:])
        assert again.source["sha256"] != data.source["sha256"]


@pytest.mark.parametrize("name", studies.example_names())
def test_shipped_sets_are_what_their_generator_draws(name):
    text = getattr(make_pulse_data, name)()
    shipped = (make_pulse_data.FOLDER / f"{name}.csv").read_text()
    assert shipped == text and len(text) < 100_000
    data = studies.example_pulses(name)
    assert data.source["name"] == f"{name}.csv"
    assert repr(data).startswith(f"PulseData({len(data.devices)} devices")
    response = data.response(data.devices[1])
    assert response.weight.shape[0] == response.up.size + 1
    assert (data.read_noise is None) == (name == "reram")


def test_names_of_sets():
    with pytest.raises(ParameterError, match='need "ecram" or "reram"'):
        studies.example_pulses("reramm")


def test_cycles_are_where_directions_begin_again():
    data = studies.example_pulses("reram")
    cycles = data.cycles(data.default_map())
    assert cycles.read.shape == (101, 15)
    np.testing.assert_array_equal(cycles.read[-1, 0], cycles.read[0, 1])
    assert cycles.up[:50].all() and not cycles.up[50:].any()
    columns = {
        "device": ["a"] * 5,
        "pulse": [0, 1, 2, 3, 4],
        "direction": [1, 1, -1, 1, -1],
        "conductance_uS": [1.0, 2.0, 1.5, 2.5, 1.0],
        "cycle": [0, 0, 0, 1, 1],
    }
    own = studies.read_pulses(columns)
    np.testing.assert_array_equal(own.cycles(own.default_map()).up.T, [[True, False]] * 2)
