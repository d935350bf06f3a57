"""Fixtures of the whole suite; installs the runner of ``rpukit.testing.on_cpu``."""

from __future__ import annotations

import gc
import os
import zlib
from datetime import UTC, datetime

import pytest

import rpukit as rk
from rpukit import _device, testing
from tests.on_cpu import runner, store

testing.set_runner(runner.run)
gc.disable()  # while tests are collected: what is made then stays

ORDERS = (0, 1, 7)


@pytest.fixture(params=ORDERS, ids=lambda order: f"order{order}")
def order(request):
    """Order in which the runner takes threads and blocks."""
    return request.param


@pytest.fixture(params=["cpu", "on_cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request):
    """Compute device of a test; ``on_cpu`` is the CPU with the ``.cu`` sources."""
    if request.param == "gpu":
        yield "gpu"
    elif request.param == "on_cpu":
        with testing.on_cpu():
            yield "cpu"
    else:
        yield "cpu"


@pytest.fixture(autouse=True)
def threads_of_others():
    """No test leaves its number of threads to those after it."""
    yield
    rk.set_num_threads(None)


NEEDS = {"gpu": 1, "multi_gpu": 2}
SWEEPS = 8  # one case in so many of a test marked `sweep` runs, others every day
WHY = {  # tests that are left out, and why
    "devices": "they need a GPU, or two, and this machine has {n_gpu}",
    "targets": "they build for microcontrollers and need QEMU; make targets",
    "sweeps": "other cases of sweeps; RPUKIT_SWEEPS=all runs them all, RPUKIT_SWEEPS={day} these",
}
LATE = "machinery"  # tests of whatever there is: others have compiled its machine code by then
left_out = pytest.StashKey[dict[str, int]]()


def pytest_configure():
    """Choose the day whose cases of sweeps run, before other processes are started."""
    os.environ.setdefault("RPUKIT_SWEEPS", str(datetime.now(UTC).toordinal()))


def beyond_sweeps(items, day):
    """Cases of sweeps that do not run today: all of them do within some days."""
    cases = {}
    for item in items:
        if item.get_closest_marker("sweep") and not item.get_closest_marker("gpu"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for some in cases.values():
        some.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
    return [
        item
        for some in cases.values()
        for k, item in enumerate(some)
        if (k - day) % min(SWEEPS, len(some))
    ]


@pytest.hookimpl(trylast=True)  # of what -k and -m have left
def pytest_collection_modifyitems(config, items):
    """Leave out what needs more GPUs than there are, `make targets`, and most cases of sweeps."""
    n_gpu = _device.gpu_count()
    missing = [mark for mark, need in NEEDS.items() if n_gpu < need]
    out = {"devices": [m for m in items if any(m.get_closest_marker(mark) for mark in missing)]}
    if "qemu" not in config.option.markexpr:
        out["targets"] = [item for item in items if item.get_closest_marker("qemu")]
    if (day := os.environ["RPUKIT_SWEEPS"]) != "all":
        out["sweeps"] = beyond_sweeps(items, int(day))
    config.stash[left_out] = {why: len(some) for why, some in out.items()}
    left = {item for some in out.values() for item in some}
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: LATE in item.path.parts)


def pytest_collection_finish():
    """Search seldom, and not among the tests themselves: a tenth of the time that Numba takes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_sessionfinish(session):
    """Tell the process that writes the summary; the last one to leave tidies the store."""
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        store.prune()
    else:
        output["left_out"] = session.config.stash.get(left_out, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over what a process of xdist left out; each of them collects all tests."""
    node.config.stash[left_out] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter, config):
    for why, n in config.stash.get(left_out, {}).items():
        if n:
            day = os.environ["RPUKIT_SWEEPS"]
            text = WHY[why].format(n_gpu=_device.gpu_count(), day=day)
            terminalreporter.write_line(f"{n} tests were left out: {text}")
