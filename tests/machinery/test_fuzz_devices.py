"""The fuzzer of devices: its programs run, differences are found, and GPUs have none."""

import numpy as np
import pytest

from rpukit.errors import ShapeError
from tools import fuzz_devices
from tools.fuzz_programs import KINDS, program


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_names_a_program(kind):
    made = [program(kind, np.random.default_rng([seed, 3])) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    compile(made[0], kind, "exec")


@pytest.mark.parametrize("kind", ["elementwise", "product"])
def test_runner(kind):
    for number in range(2):
        found = fuzz_devices.case(1, number, ["cpu", "runner"], [kind])[2]
        assert not found, found


def test_differences_are_found(monkeypatch):
    one = np.ones(3, np.float32)
    assert not fuzz_devices.difference(("", [one]), ("", [one.copy()]))
    assert "result 0" in fuzz_devices.difference(("", [one]), ("", [-one]))
    assert "2 results" in fuzz_devices.difference(("", [one]), ("", [one, one]))
    assert "ShapeError" in fuzz_devices.difference(("ShapeError", []), ("", []))
    text = "keep(world.rng.random(3))\n"  # what differs from run to run by itself
    monkeypatch.setattr(fuzz_devices, "program", lambda *_: text)
    assert "3 of 3 elements differ" in fuzz_devices.case(1, 0, ["cpu", "cpu"], ["tile"])[2]


def test_errors_are_compared_by_their_kind():
    text = "rk.det_gemm(np.ones((2, 3)), np.ones((2, 3)))\n"
    assert fuzz_devices.run(text, "cpu", ["cpu"], 0)[0] == ShapeError.__name__


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_gpu(kind):
    for number in range(5):
        found = fuzz_devices.case(7, number, ["cpu", "gpu:0"], [kind])[2]
        assert not found, found


@pytest.mark.multi_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_two_gpus(kind):
    for number in range(5):
        found = fuzz_devices.case(8, number, ["cpu", "gpu:0", "gpu:1"], [kind])[2]
        assert not found, found
