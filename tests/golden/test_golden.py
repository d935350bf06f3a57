"""The hashes that a GPU recorded, computed anew by the mirrors and by the sources on the CPU."""

import json
import os
from pathlib import Path

import pytest

import rpukit as rk
from rpukit import _workers
from rpukit._kernels import source
from rpukit.testing import on_cpu
from tests.golden.cases import CASES, digest

FOLDER = Path(__file__).parent / "hashes"
SHARE = 10


def share(cases):
    """Choose a tenth of the cases and the last one; with checks of addresses the last one alone.

    Each set of macros is one more run of g++, which these checks make several times longer. The
    tenth is another one every day, as of sweeps; each kernel has one of its cases at least.
    RPUKIT_GOLDEN=all asks for all cases, those of ``edges`` among them; RPUKIT_GOLDEN=rest leaves
    out what a run with checks of addresses takes.
    """
    wanted = os.environ.get("RPUKIT_GOLDEN")
    if wanted == "all":
        return cases
    *others, last = [case for case in cases if not case.edge]
    if os.environ.get("RPUKIT_ON_CPU_SANITIZE"):
        return [last]
    day = os.environ["RPUKIT_SWEEPS"]
    first = 0 if day == "all" else int(day) % max(min(SHARE, len(others)), 1)
    some = others[first::SHARE]
    return some if wanted == "rest" else [*some, last]


def parameters(cases_of):
    """Pairs of a kernel and a case, with names."""
    return [
        pytest.param(kernel, case, id=f"{kernel}-{case.name}")
        for kernel, cases in CASES.items()
        for case in cases_of(cases)
    ]


ALL = parameters(list)
SMALL = parameters(lambda cases: share([case for case in cases if case.small]))


def recorded(kernel):
    return json.loads((FOLDER / f"{kernel}.json").read_text())


@pytest.mark.parametrize("kernel", source.names())
def test_every_kernel_has_hashes_of_all_its_cases(kernel):
    record = recorded(kernel)
    assert {"gpu", "driver", "cuda", "cupy", "date"} <= record.keys()
    assert sorted(record["cases"]) == sorted(case.name for case in CASES[kernel])


@pytest.mark.sweep  # test_mirrors_by_threads takes all of them, every day
@pytest.mark.parametrize(("kernel", "case"), ALL)
def test_mirror(kernel, case):
    assert digest(case.run("cpu")) == recorded(kernel)["cases"][case.name]


@pytest.mark.parametrize("kernel", source.names())
def test_mirrors_by_threads(kernel, monkeypatch):
    """Three threads share every mirror that may be split, however little there is to do."""
    monkeypatch.setattr(_workers, "_WORTH_A_THREAD", 1)
    rk.set_num_threads(3)
    try:
        found = {case.name: digest(case.run("cpu")) for case in CASES[kernel]}
    finally:
        rk.set_num_threads(None)
    assert found == recorded(kernel)["cases"]


@pytest.mark.parametrize(("kernel", "case"), SMALL)
def test_source_on_cpu(kernel, case):
    with on_cpu(order=5):
        assert digest(case.run("cpu")) == recorded(kernel)["cases"][case.name]


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "case"), ALL)
def test_gpu(kernel, case):
    assert digest(case.run("gpu")) == recorded(kernel)["cases"][case.name]
