"""``python -m rpukit``: what a newcomer reads first."""

import argparse
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import rpukit as rk
from rpukit import __main__ as command_line
from rpukit import _device, demo, tiled
from rpukit._kernels import compile as compiler
from rpukit._kernels import source
from rpukit.cli import golden, info, main
from rpukit.cli.arguments import parse_levels, parse_size
from rpukit.errors import DeviceError, ParameterError

README = source.folder() / "README.md"
FOLDER = Path(__file__).parents[1] / "data" / "tiled" / "models"


TRAIN, UPDATE = (
    str(FOLDER / f"mlp_relu/mlp_relu_{part}/network.onnx") for part in ("train", "optimizer")
)


def run(capsys, *words):
    status = command_line.main([*words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_info(capsys):
    status, out, _ = run(capsys, "info")
    assert status == 0
    for word in ("rpukit", "Python", "numpy", "numba", "CuPy", "GPUs", "NVRTC", "cache", "g++"):
        assert re.search(rf"^{re.escape(word)}  +\S", out, re.M), word


def test_info_without_cupy_says_how_to_get_it(capsys, monkeypatch):
    def missing():
        raise DeviceError('CuPy is not installed: no. Try pip install "rpukit[cuda12x]"')

    monkeypatch.setattr(_device, "cupy", missing)
    monkeypatch.setattr(info, "version", lambda package: "")
    status, out, _ = run(capsys, "info")
    assert status == 0
    assert re.search(r'^CuPy +not installed: pip install "rpukit\[cuda12x\]"', out, re.M)
    assert re.search(r"^GPUs +none \(CuPy is not installed", out, re.M)
    assert re.search(r"^NVRTC +missing", out, re.M)


def test_kernels(capsys):
    status, out, _ = run(capsys, "kernels")
    assert status == 0
    flat = re.sub(r"\.\n +", ".", out)  # a long name goes on in the next line
    for name in source.names():
        header = source.load(name).header
        op = header["op"][0].removeprefix("rpukit.")
        assert re.search(rf"^{name} +{header['bits'][0]} +{re.escape(op)}$", flat, re.M), name
    assert "exact: the same bits" in out
    status, out, _ = run(capsys, "kernels", "--json")
    listed = json.loads(out)
    assert [one["kernel"] for one in listed] == source.names()


def test_one_kernel_in_full(capsys):
    status, out, _ = run(capsys, "kernels", "decay")
    header = source.load("decay").header
    assert status == 0
    for word in (*header["op"], *header["mirror"], *header["bits"], "Decay weights towards"):
        assert word in out
    status, _, err = run(capsys, "kernels", "dekay")
    assert status == 2
    assert "did you mean 'decay'? `python -m rpukit kernels` lists all" in " ".join(err.split())


def test_a_reader_that_leaves_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rpukit", "kernels"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_check(capsys):
    status, out, _ = run(capsys, "check", "decay", "write_noise")
    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    for arch in ("sm_80", "sm_90a", "sm_100a", "sm_120"):
        row = next(r for r in rows if r[:2] == ["decay", arch] and r[-1] == "BOUNDED=0")
        assert int(row[2]) > 0
        assert row[3] == "0"
    assert "20 binaries compiled" in out
    assert "0 spill registers" in out
    status, out, _ = run(capsys, "check", "decay", "--plain", "--arch", "sm_80", "--json")
    said = json.loads(out)
    assert said["spilling"] == 0
    assert [(one["kernel"], one["arch"]) for one in said["binaries"]] == [("decay", "sm_80")]


def test_check_of_less(capsys):
    status, out, _ = run(capsys, "check", "write_noise", "--plain", "--arch", "sm_80")
    assert status == 0
    assert re.search(r"^write_noise +sm_80 .* -$", out, re.M)
    assert "\n1 binaries compiled" in out
    status, _, err = run(capsys, "check", "write_noise", "--arch", "sm_9")
    assert status == 2
    assert err.startswith("error: --arch sm_9: no selected kernel")


def test_check_fails_on_a_spill(capsys, monkeypatch):
    real = compiler.build

    def spilling(text, arch, macros):
        binary = real(text, arch, macros)
        usage = {k: compiler.Usage(u.registers, 8, 8, 0) for k, u in binary.usage.items()}
        return compiler.Binary(binary.cubin, usage)

    monkeypatch.setattr(compiler, "build", spilling)
    status, out, _ = run(capsys, "check", "write_noise")
    assert status == 1
    assert "8 spill registers" in out


def test_errors_have_a_status(capsys):
    status, out, err = run(capsys, "check", "no_such")
    assert (status, out) == (2, "")
    assert err.startswith("error: no kernel 'no_such'")


def test_help_and_wrong_words(capsys):
    for words in ([], ["no-such-command"]):
        with pytest.raises(SystemExit) as caught:
            command_line.main(words)
        assert caught.value.code == 2
    assert "usage: python -m rpukit" in capsys.readouterr().err


def test_runs_as_a_module_from_anywhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rpukit", "kernels"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(command_line.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "det_gemm" in done.stdout


def test_index_says_what_the_heads_say():
    if not README.exists():
        pytest.skip("an installed package has no index")
    rows = re.findall(
        r"^\| \[(\w+)\]\((.+?)\) \| .+ \| `(.+)` \| (.+) \|$", README.read_text(), re.M
    )
    listed = {name: (file, op, bits) for name, file, op, bits in rows}
    heads = {name: source.load(name).header for name in source.names()}
    assert listed == {n: (f"{n}.cu", h["op"][0], h["bits"][0]) for n, h in heads.items()}
    assert [row[0] for row in rows] == sorted(listed)


def test_inputs_of_codegen_that_are_damaged(tmp_path, capsys):
    folder = FOLDER / "mlp_accum2"
    train, optimiser = (
        next((folder / f"mlp_accum2_{part}").glob("*.onnx")) for part in ("train", "optimizer")
    )
    path, out = tmp_path / "inputs.npz", tmp_path / "out"
    command = ["codegen", str(train), "--optimiser", str(optimiser), "--parameters", str(path)]
    np.savez(path, np.zeros(3))
    for content in (path.read_bytes(), b"", b"PK\x05\x06" + bytes(18), b"no archive at all"):
        path.write_bytes(content)
        status, _, said = run(capsys, *command, "--out", str(out))
        assert status == 2
        assert "inputs.npz: " in " ".join(said.split())
    assert not out.exists()


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        command_line.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"rpukit {rk.__version__}\n"


COMMANDS = ("info", "demo", "study", "fit", "plan", "codegen", "golden", "kernels", "check")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_eighty_columns(capsys, command):
    with pytest.raises(SystemExit) as caught:
        command_line.main([*command.split(), "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for name in COMMANDS if not command else ():
        assert re.search(rf"^    {name} +\w", out, re.M), name


@pytest.mark.parametrize(
    "words",
    [
        ["info"],
        ["kernels"],
        ["kernels", "pulsed_update", "program_conductance"],
        ["check", "write_noise", "--arch", "sm_80"],
        ["plan", str(FOLDER / "mlp_relu/mlp_relu_train/network.onnx"), "--l1", "5k"],
        ["study", "SoftBounds", "--cells", "4", "--pulses", "30"],
    ],
    ids=" ".join,
)
def test_output_fits_eighty_columns(capsys, words):
    status, out, _ = run(capsys, *words)
    assert status == 0
    too_long = [line for line in out.splitlines() if len(line) > 80 and " " in line.strip()]
    assert too_long == []


def test_nearest_names(capsys):
    for words, near in (
        (["chek"], "check"),
        (["plan", "--buffering", "doubel", "x"], "double"),
        (["plan", "--optimizr", "x", "y"], "--optimizer"),
        (["demo", "--cell", "SoftBound"], "SoftBounds"),
    ):
        with pytest.raises(SystemExit) as caught:
            command_line.main(words)
        assert caught.value.code == 2
        err = capsys.readouterr().err
        assert f"did you mean '{near}'?" in " ".join(err.split())
        assert max(map(len, err.splitlines())) <= 80
    for words, near in (
        (["study", "ReRamEs2"], "ReRamES"),
        (["study", "SoftBounds", "--set", "dw_mn=1"], "dw_min"),
        (["study", "PCM", "--set", "dw_mn=1"], "dw_min"),
        (["plan", "x", "--levels", "siracuse_l2"], "siracusa_l2"),
        (["golden", "dekay"], "decay"),
        (["plan", TRAIN, "--single", "Rely"], "Relu"),
    ):
        status, _, err = run(capsys, *words)
        assert status == 2
        assert f"did you mean '{near}'?" in " ".join(err.split()), words


def test_sizes():
    texts = {"16000": 16000, "16_000": 16000, "16k": 16000, "16kB": 16000, "16K": 16000}
    texts |= {"1.5M": 1_500_000, "64KiB": 65536, "64Ki": 65536, "2GiB": 2 << 30, "1T": 10**12}
    assert {text: parse_size(text) for text in texts} == texts
    for wrong in ("", "k", "-1", "0", "16q", "1.5", "0.5B", "16 i", "1e3", "i", "1i"):
        with pytest.raises(argparse.ArgumentTypeError, match="16k"):
            parse_size(wrong)


def test_levels():
    def sizes(text, l1=None):
        return {level.name: level.bytes for level in parse_levels(text, l1).levels}

    assert parse_levels("siracusa_l2") == tiled.siracusa_l2()
    assert parse_levels("l1=64k,l2=1M") == tiled.siracusa_l2(64_000, 1_000_000)
    assert sizes("L1=64KiB, l3=8M") == {"L3": 8_000_000, "L2": 2_000_000, "L1": 65536}
    assert parse_levels("siracusa_l3,l1=5k") == tiled.siracusa_l3(l1=5000)
    assert parse_levels("siracusa_l3", 5000) == tiled.siracusa_l3(l1=5000)
    assert parse_levels("gpu,budget=1GiB") == parse_levels("budget=1GiB") == tiled.gpu(1 << 30)
    for wrong, said in {
        "gpu": "gpu,budget=2GiB",
        "l1=64q": "l1: got '64q'",
        "siracusa_l2,l3=1M": "no level 'l3'",
        "siracusa_l2,gpu": "need siracusa_l2",
        "": "need siracusa_l2",
    }.items():
        with pytest.raises(ParameterError, match=re.escape(said)):
            parse_levels(wrong)


def test_plan_by_sizes_and_both_spellings(capsys):
    words = ["plan", "--single", "SGD,Relu", TRAIN, "--levels", "l1=5k,l2=1M"]
    texts = []
    for option in ("--optimiser", "--optimizer"):
        status, out, _ = run(capsys, *words, option, UPDATE)
        assert status == 0
        texts.append(out)
    assert texts[0] == texts[1]
    assert "of 5000 bytes" in texts[0]
    assert "of 1000000 bytes" in texts[0]
    assert re.search(r"^\(\w\): one buffer because: asked for: SGD$", texts[0], re.M)
    assert "alone: cycles of the op if nothing else runs" in texts[0]


def test_single_takes_one_word(capsys):
    """A file after it is the graph, not an op."""
    status, out, _ = run(capsys, "plan", "--l1", "5k", "--single", "Relu", TRAIN)
    assert status == 0
    assert "asked for: Relu" in out


def test_plan_as_json(capsys, monkeypatch):
    for words in (["--json"], ["--json", "-"]):
        status, out, _ = run(capsys, "plan", TRAIN, *words)
        assert status == 0
        assert tiled.Plan.from_json(out).cycles > 0
    status, out, _ = run(capsys, "plan", "--json", TRAIN)  # the graph, not a file to write
    assert status == 0
    assert tiled.Plan.from_json(out).cycles > 0
    monkeypatch.setattr(tiled, "sweep_levels", partial(tiled.sweep_levels, sizes=[4000, 8000]))
    for words, key in ((["--sweep", "l1"], "cycles"), (["--compare", "siracusa_l3"], "targets")):
        status, out, _ = run(capsys, "plan", TRAIN, "--buffering", "single", *words, "--json")
        assert status == 0
        assert len(json.loads(out)[key]) >= 2


def test_plan_as_pictures(tmp_path, capsys):
    trace, page, figure = (tmp_path / name for name in ("t.json", "t.html", "plan.png"))
    words = ["plan", TRAIN, "--levels", "gpu,budget=1M"]
    status, *_ = run(capsys, *words, "--trace", str(trace), "--figure", str(figure))
    assert status == 0
    assert json.loads(trace.read_text())["otherData"]["microseconds of a cycle"] == 1e-3
    assert figure.read_bytes()[:4] == b"\x89PNG"
    assert run(capsys, *words, "--trace", str(page))[0] == 0
    assert "<svg" in page.read_text()
    status, _, err = run(capsys, *words, "--figure", str(tmp_path / "plan.nothing"))
    assert status == 2
    assert "nothing" in err


def test_missing_files_and_options_say_what_is_missing(tmp_path, capsys):
    (tmp_path / "network.onnx").write_bytes(b"")
    near, none = str(tmp_path / "netwrk.onnx"), str(tmp_path / "no" / "x")
    parameters = ["--parameters", TRAIN, "--out", str(tmp_path / "out")]
    for words, said in (
        (["plan"], "no graph given, need an ONNX file"),
        (["plan", near], "did you mean 'network.onnx'?"),
        (["plan", none], "no folder"),
        (["plan", str(tmp_path)], "is a folder, need an ONNX file of a training graph"),
        (["plan", TRAIN, "--optimiser", near], "need an ONNX file of the graph of the optimiser"),
        (["plan", TRAIN, "--json", none], "--json"),
        (["plan", TRAIN, "--trace", str(tmp_path / "t.txt")], "ends in .json or .html"),
        (["plan", TRAIN, "--trace", none], "make it first"),
        (["plan", TRAIN, "--sweep", "L1", "--compare", "gpu"], "one at a time"),
        (["plan", TRAIN, "--sweep", "L9"], "need one of"),
        (["codegen"], "no graph given"),
        (["codegen", TRAIN, *parameters], "--optimiser is missing, need an ONNX file"),
        (["codegen", TRAIN, "--optimizer", UPDATE], "--parameters is missing, need an npz file"),
        (["codegen", TRAIN, "--optimiser", UPDATE, *parameters[:2]], "--out is missing"),
        (["study"], "no device given, need one of"),
        (["study", "ReRamES", "--figure", none], "no folder"),
        (["study", "ReRamES", "--set", "dw_min"], "need NAME=VALUE"),
        (["study", "ReRamES", "--cells", "0"], "n_cell"),
        (["study", "ReRamES", "--pulses", "-3"], "--pulses: got -3, need an integer from 1"),
    ):
        status, out, err = run(capsys, *words)
        assert (status, out) == (2, ""), words
        assert said in " ".join(err.split()), words
        assert "Traceback" not in err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["network.onnx"]


def test_demo_takes_the_device_that_is_there(monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(demo, "load_digits", lambda seed: rk.demo.Digits(*[np.zeros((1, 65))] * 4))
    monkeypatch.setattr(demo, "_warm_up", lambda data, args: asked.append(args.device) or 1 / 0)
    monkeypatch.setattr(_device, "parse_device", lambda device: None)
    for n_gpu in (0, 2):
        monkeypatch.setattr(_device, "gpu_count", lambda n=n_gpu, **_: n)
        with pytest.raises(ZeroDivisionError):
            command_line.main(["demo", "--device", "auto"])
    assert asked == ["cpu", "gpu"]


def test_study(tmp_path, capsys):
    words = ["study", "SoftBounds", "--set", "dw_min=0.02", "--cells", "20", "--json"]
    status, out, _ = run(capsys, *words)
    said = json.loads(out)
    assert status == 0
    assert said["nominal states"] == pytest.approx(60)
    assert 0.5 < said["states"]["median"] / 60 < 2
    assert said["step up"]["mean"] > 0 > said["step down"]["mean"]
    assert abs(said["symmetric point"]["mean"]) < 0.1
    figure = tmp_path / "device.png"
    words = ["study", "idealised", "--pulses", "40", "--cells", "5", "--figure", str(figure)]
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert "note: the pulses reach" in " ".join(out.split())
    assert "Idealized, a preset of ConstantStep" in out
    assert figure.read_bytes()[:4] == b"\x89PNG"


def test_golden_of_the_package(capsys, monkeypatch):
    status, out, _ = run(capsys, "golden", "--device", "cpu")
    assert status == 0
    assert f"{len(golden.RECORDED)} of {len(golden.RECORDED)} cases have the recorded" in out
    monkeypatch.setitem(golden.RECORDED, "circuit", "0" * 64)
    status, out, _ = run(capsys, "golden", "--device", "cpu", "--json")
    assert status == 1
    assert json.loads(out)["differing"] == ["circuit: sha256"]


def test_golden_of_kernels(capsys, monkeypatch, tmp_path):
    status, out, _ = run(capsys, "golden", "decay", "drift", "--device", "cpu")
    assert status == 0
    assert re.search(r"^decay +\d+ +same bits$", out, re.M)
    monkeypatch.setattr(golden, "__file__", str(tmp_path / "rpukit" / "cli" / "golden.py"))
    status, _, err = run(capsys, "golden", "--all", "--device", "cpu")
    assert status == 2
    assert "without names" in err


@pytest.mark.gpu
def test_golden_of_the_package_on_a_gpu(capsys):
    status, out, _ = run(capsys, "golden", "--device", "gpu")
    assert status == 0, out


def test_every_command_of_the_page_is_understood():
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    lines = re.findall(r"^python -m rpukit (.+)$", page.read_text(encoding="utf-8"), re.M)
    assert {line.split()[0] for line in lines} >= set(COMMANDS)
    for line in lines:
        words = line.split()
        if words != ["--version"]:
            args, rest = main._parser(words[0]).parse_known_args(words)
            assert (args.command, rest) == (words[0], []), line
    table = re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.M)
    assert table == list(main._COMMANDS)
