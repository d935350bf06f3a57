"""The hashes that a GPU recorded, computed anew by the mirrors and by the sources on the CPU."""

import json
import os
from pathlib import Path

import pytest

from rpukit._kernels import source
from rpukit.testing import on_cpu
from tests.golden.cases import CASES, digest

FOLDER = Path(__file__).parent / "hashes"
ALL = [
    pytest.param(kernel, case, id=f"{kernel}-{case.name}")
    for kernel in CASES
    for case in CASES[kernel]
]
# Every fifth one where g++ checks addresses, which takes several times as long to compile.
EACH = 5 if os.environ.get("RPUKIT_ON_CPU_SANITIZE") else 1
SMALL = [
    pytest.param(kernel, case, id=f"{kernel}-{case.name}")
    for kernel in CASES
    for case in [case for case in CASES[kernel] if case.small][::EACH]
]


def recorded(kernel):
    return json.loads((FOLDER / f"{kernel}.json").read_text())


@pytest.mark.parametrize("kernel", source.names())
def test_every_kernel_has_hashes_of_all_its_cases(kernel):
    record = recorded(kernel)
    assert {"gpu", "driver", "cuda", "cupy", "date"} <= record.keys()
    assert sorted(record["cases"]) == sorted(case.name for case in CASES[kernel])


@pytest.mark.parametrize(("kernel", "case"), ALL)
def test_mirror(kernel, case):
    assert digest(case.run("cpu")) == recorded(kernel)["cases"][case.name]


@pytest.mark.parametrize(("kernel", "case"), SMALL)
def test_source_on_cpu(kernel, case):
    with on_cpu(order=5):
        assert digest(case.run("cpu")) == recorded(kernel)["cases"][case.name]


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "case"), ALL)
def test_gpu(kernel, case):
    assert digest(case.run("gpu")) == recorded(kernel)["cases"][case.name]
