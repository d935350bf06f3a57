"""The number of threads: as set, or the least of what this process and others allow."""

import os
import subprocess
import sys

import pytest

import rpukit as rk

NAMES = ("RPUKIT_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")


@pytest.fixture
def cores(monkeypatch):
    """A machine of 8 cores, without limits."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 8),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2),
        ({"OMP_NUM_THREADS": "5,2"}, 5),  # of nested loops
        ({"OMP_NUM_THREADS": "100"}, 8),
        ({"OMP_NUM_THREADS": "many"}, 8),
        ({"OMP_NUM_THREADS": "0"}, 8),
        ({"OMP_NUM_THREADS": "1", "RPUKIT_NUM_THREADS": "6"}, 6),
    ],
)
def test_limits(cores, monkeypatch, limits, expected):
    for name, value in limits.items():
        monkeypatch.setenv(name, value)
    assert rk.get_num_threads() == expected


def test_what_is_set_counts(cores, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rk.set_num_threads(4)
    try:
        assert rk.get_num_threads() == 4
    finally:
        rk.set_num_threads(None)
    assert rk.get_num_threads() == 1


def test_importing_rpukit_does_not_import_dask():
    code = "import sys, rpukit.distributed; print('dask' in sys.modules, 'tqdm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
