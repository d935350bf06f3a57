"""Tables of costs: formulas, files, totals."""

import json

import numpy as np
import pytest

import rpukit as rk
from rpukit.costs import Cost, CostTable, adc_cost, preset, preset_names, survey_energy, total

X, D = np.ones((5, 6), np.float32), np.full((5, 4), 0.1, np.float32)


@pytest.fixture
def tile():
    made = rk.AnalogTile((4, 6), rk.ConstantStep(), seed=1)
    made.forward(X)
    made.backward(D)
    made.update(X, D, lr=0.1)
    return made


def table(**costs):
    return CostTable(costs, name="test")


def test_energy_is_events_times_costs(tile):
    costs = {"pulse": Cost(energy=1e-14), "adc": Cost(energy=2e-12, bits=9)}
    found = total(tile, table(**costs))
    assert found.energy["forward"] == {"adc:9": pytest.approx(20 * 2e-12)}
    assert found.energy["backward"] == {"adc:9": pytest.approx(30 * 2e-12)}
    assert found.energy["update"] == {"pulse": pytest.approx(tile.n_pulses * 1e-14)}
    assert found.total_energy == pytest.approx(50 * 2e-12 + tile.energy(1e-14))
    assert found.missing == ("pass", "cell_read", "dac:7", "multiply", "byte", "slot")


@pytest.mark.parametrize(("share", "turns", "units"), [(1, 1, 4), (3, 3, 2), (8, 4, 1), (0, 4, 1)])
def test_lines_take_turns_at_a_unit(tile, share, turns, units):
    cost = Cost(latency=1e-9, area=1e-10, bits=9, share=share)
    found = total(tile, table(adc=cost))
    assert found.latency["forward"] == pytest.approx(5 * turns * 1e-9)
    back = -(-6 // share) if share else 1  # six lines of the backward product
    assert found.area == pytest.approx((units + back) * 1e-10)


def test_area_of_devices_and_of_used_converters():
    tile = rk.AnalogTile((4, 6), rk.ConstantStep(), seed=1)
    costs = table(adc=Cost(area=1.0, bits=9), cell_read=Cost(area=0.01))
    assert total(tile, costs).area == pytest.approx(4 + 0.24)
    tile.backward(D)
    assert total(tile, costs).area == pytest.approx(4 + 6 + 0.24)


def test_tiles_of_an_array_work_together_and_layers_one_after_another():
    array = rk.TileArray((4, 6), rk.ConstantStep(), tile_shape=(4, 3), seed=1)
    array.forward(X)
    costs = table(**{"pass": Cost(latency=1e-7), "add": Cost(latency=1e-9, share=0)})
    found = total(array, costs)
    assert found.latency["forward"] == pytest.approx(5 * 1e-7 + 20 * 1e-9)
    both = total([array, array], costs)
    assert both.latency["forward"] == pytest.approx(2 * found.latency["forward"])
    assert both.total_energy == 2 * found.total_energy


def test_a_resolution_is_exact_or_grows():
    fixed, grows = Cost(energy=1.0, bits=8), Cost(energy=1.0, bits=6, growth="exponential")
    assert table(adc=(fixed, grows))["adc:8"].energy == 1.0
    assert table(adc=(fixed, grows))["adc:9"].energy == 8.0
    assert table(adc=Cost(energy=1.0, bits=8, growth="linear"))["adc:4"].energy == 0.5
    slow = Cost(latency=1.0, bits=4, growth="linear", latency_growth="exponential")
    assert table(adc=slow)["adc:6"].latency == 4.0
    with pytest.raises(rk.errors.ParameterError, match="test has adc of 8 bits only, and 9 are"):
        table(adc=fixed).find("adc:9")
    assert table(adc=fixed).find("dac:9") is None
    with pytest.raises(rk.errors.ParameterError, match="no cost of 'acd', but of adc; did you"):
        table(adc=fixed)["acd"]
    with pytest.raises(rk.errors.ParameterError, match="such as 'adc:9'"):
        table(adc=fixed).find("adc:nine")


def test_survey_energy_is_the_larger_of_two_lines():
    low = survey_energy(4, walden=1e-14, schreier=180)
    high = survey_energy(16, walden=1e-15, schreier=180)
    assert low == pytest.approx(16e-14)
    # FOM_S = SNDR + 10 log10(f_s / 2 / P), and P = energy f_s
    assert 6.02 * 16 + 1.76 + 10 * np.log10(1 / (2 * high)) == pytest.approx(180)


@pytest.mark.parametrize(("kind", "periods"), [("flash", 1), ("sar", 6), ("ramp", 64)])
def test_latency_follows_the_architecture(kind, periods):
    cost = adc_cost(kind, 6, clock=1e-9, walden=1e-14, schreier=180)
    assert cost.latency == pytest.approx(periods * 1e-9)
    assert cost.energy == survey_energy(6, walden=1e-14, schreier=180)


def test_isaac_has_the_figures_of_its_paper():
    """Of a unit: converters 16 mW and 4 mW, arrays 2.4 mW, in a cycle of 100 ns."""
    found = preset("isaac")
    cycle, rows, cells = 100e-9, 1024, 131072
    powers = [found["adc:8"].energy * rows, found["dac:1"].energy * rows]
    powers.append(found["cell_read"].energy * cells)
    assert np.array(powers) / cycle == pytest.approx([16e-3, 4e-3, 2.4e-3])
    assert 128 * found["adc:8"].latency == pytest.approx(cycle)
    assert found["adc:8"].area * 8 == pytest.approx(0.0096e-6)


def test_every_figure_of_a_preset_has_a_source():
    for name in preset_names():
        found = preset(name)
        assert found.source
        if name != "example":
            assert all(cost.source for every in found._costs.values() for cost in every)
    assert "round figures" in preset("example").source


def test_presets_join():
    joined = preset("isaac", "horowitz45")
    assert joined["add"].energy == preset("isaac")["add"].energy
    assert joined["mac"].energy == preset("horowitz45")["mac"].energy
    with pytest.raises(rk.errors.ParameterError, match="did you mean 'isaac'"):
        preset("issac")


# ---- files --------------------------------------------------------------------------------------


def test_json_and_back(tmp_path, tile):
    path = tmp_path / "table.json"
    preset("example").save(path)
    assert str(CostTable.load(path)) == str(preset("example"))
    assert total(tile, CostTable.load(path)).as_dict() == total(tile, preset("example")).as_dict()


def test_csv(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("event,energy,bits,share\npulse,1e-14,,\nadc,2e-12,8,16\nadc,1e-12,6,\n")
    found = CostTable.load(path)
    assert (found["adc:6"].energy, found["adc:8"].share, found.name) == (1e-12, 16, "mine")
    path.write_text("event,energy\nadc,much\n")
    with pytest.raises(rk.errors.FormatError, match="mine, line 2"):
        CostTable.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "need a dictionary with"),
        ({"version": 9}, "version 9"),
        ({"costs": {"pulse": [{"energy": -1}]}}, "costs.pulse"),
        ({"costs": {"pulse": [{"energy": float("nan")}]}}, "finite"),
        ({"costs": {"spark": [{"energy": 1}]}}, "no event is called 'spark'"),
        ({"costs": {"adc": [{"energy": 1}]}}, "got no bits"),
        ({"units": {"energy": "pJ"}}, "table.units"),
    ],
)
def test_damaged_tables_are_refused(change, message):
    data = {**preset("example").as_dict(), **change}
    with pytest.raises(rk.errors.FormatError, match=message):
        CostTable.from_dict(data)


ERT = """ERT:
  version: 0.4
  tables:
  - name: system.macro.adc[1..64]
    actions:
    - {name: convert, arguments: {}, energy: 2.5}
    - {name: leak, arguments: {}, energy: 0.1}
  - name: system.macro.row_drivers[1..128]
    actions:
    - {name: drive, arguments: {value: 0}, energy: 0.1}
    - {name: drive, arguments: {value: 1}, energy: 0.3}
"""
SUMMARY = """ERT_summary:
  version: 0.3
  table_summary:
  - name: system.macro.adc[1..64]
    actions: [{name: convert, energy: 2.5}]
  - name: system.macro.row_drivers[1..128]
    actions: [{name: drive, average_energy: 0.2, max_energy: 0.3, min_energy: 0.1}]
"""
OLD = """ERT:
  version: 0.2
  tables:
    system.macro.adc[1..64]: {convert: {arguments: null, energy: 2.5}}
    system.macro.row_drivers[1..128]:
      drive: [{arguments: {value: 0}, energy: 0.1}, {arguments: {value: 1}, energy: 0.3}]
"""
ART = """ART:
  version: 0.4
  tables:
  - {name: "system.macro.adc[1..64]", area: 300.0}
  - {name: "system.macro.row_drivers[1..128]", area: 2.0}
"""


@pytest.mark.parametrize("text", [ERT, SUMMARY, OLD], ids=["0.4", "summary", "0.2"])
def test_accelergy(tmp_path, text):
    """Energies are picojoules, areas square micrometres; several energies give their mean."""
    ert, art = tmp_path / "ERT.yaml", tmp_path / "ART.yaml"
    ert.write_text(text)
    art.write_text(ART)
    events = {"adc:8": ("adc", "convert"), "dac:1": ("system.macro.row_drivers", "drive")}
    found = rk.costs.read_accelergy(
        ert, events, art=art, latency={"adc:8": 1e-9}, share={"adc:8": 8}
    )
    adc, dac = found["adc:8"], found["dac:1"]
    assert (adc.energy, adc.latency, adc.share) == (pytest.approx(2.5e-12), 1e-9, 8)
    assert (adc.area, dac.energy) == (pytest.approx(3e-10), pytest.approx(0.2e-12))


def test_accelergy_names_what_is_missing(tmp_path):
    ert = tmp_path / "ERT.yaml"
    ert.write_text(ERT)
    with pytest.raises(rk.errors.ParameterError, match="no component 'dac'"):
        rk.costs.read_accelergy(ert, {"dac:1": ("dac", "convert")})
    with pytest.raises(rk.errors.ParameterError, match="no action 'converts'.*did you mean"):
        rk.costs.read_accelergy(ert, {"adc:8": ("adc", "converts")})
    ert.write_text("other: 1")
    with pytest.raises(rk.errors.FormatError, match="need ERT or ERT_summary"):
        rk.costs.read_accelergy(ert, {"adc:8": ("adc", "convert")})


# ---- what people see ----------------------------------------------------------------------------


def test_summary_shows_costs(tile):
    found = rk.summary(tile, costs=preset("example"))
    assert found["energy"]["energy"] == total(tile, preset("example")).total_energy
    assert "forward" in str(found) and "mm2" in str(found)
    json.dumps(found.as_dict())
    with pytest.raises(rk.errors.DTypeError, match="need a CostTable"):
        rk.summary(tile, costs={"pulse": 1})


def test_totals_print_within_80_columns(tile):
    found = total(tile, preset("example"))
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("AnalogTile") and lines[-1].startswith("all")
    assert found._repr_html_().count("<tr>") == len(lines) - 1


def test_the_demo_writes_costs(tmp_path):
    from rpukit.__main__ import main

    options = ["--epochs", "1", "--hidden", "8", "--no-figure", "--quiet", "--out", str(tmp_path)]
    assert main(["demo", *options]) == 0
    costs = json.loads((tmp_path / "digits.json").read_text())["costs"]
    assert costs["energy"] > 0 and costs["events"]["update"]["pulse"] > 0


def test_accelergy_without_pyyaml(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("rpukit.costs.accelergy.import_module", missing)
    with pytest.raises(rk.errors.RpukitError, match="pip install pyyaml"):
        rk.costs.read_accelergy(tmp_path / "ERT.yaml", {"adc:8": ("adc", "convert")})
