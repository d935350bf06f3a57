"""``python -m rpukit``: what a newcomer reads first."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rpukit import __main__ as command_line
from rpukit import _device
from rpukit._kernels import compile as compiler
from rpukit._kernels import source
from rpukit.errors import DeviceError

README = source.folder() / "README.md"


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
    monkeypatch.setattr(command_line, "_version", lambda package: "")
    status, out, _ = run(capsys, "info")
    assert status == 0
    assert re.search(r'^CuPy +not installed: pip install "rpukit\[cuda12x\]"', out, re.M)
    assert re.search(r"^GPUs +none \(CuPy is not installed", out, re.M)
    assert re.search(r"^NVRTC +missing", out, re.M)


def test_kernels(capsys):
    status, out, _ = run(capsys, "kernels")
    assert status == 0
    for name in source.names():
        header = source.load(name).header
        line = next(line for line in out.splitlines() if line.startswith(f"{name}.cu "))
        assert line.split() == [
            f"{name}.cu",
            header["bits"][0],
            header["op"][0],
            header["mirror"][0],
        ]


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
    assert "det_gemm.cu" in done.stdout


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
    folder = Path(__file__).parents[1] / "data" / "tiled" / "models" / "mlp_accum2"
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
        assert "inputs.npz: " in said
    assert not out.exists()
