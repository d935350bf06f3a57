"""Fixtures of the whole suite; installs the runner of ``rpukit.testing.on_cpu``."""

from __future__ import annotations

import pytest

from rpukit import _device, testing
from tests.on_cpu import runner, store

testing.set_runner(runner.run)

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


NEEDS = {"gpu": 1, "multi_gpu": 2}
left_out = pytest.StashKey[int]()
for_targets = pytest.StashKey[int]()


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that need more GPUs than there are, and those of `make targets`."""
    n_gpu = _device.gpu_count()
    missing = [mark for mark, need in NEEDS.items() if n_gpu < need]
    out = [item for item in items if any(item.get_closest_marker(mark) for mark in missing)]
    config.stash[left_out] = len(out)
    if "qemu" not in config.option.markexpr:
        own = [item for item in items if item.get_closest_marker("qemu")]
        config.stash[for_targets] = len(own)
        out += own
    if out:
        config.hook.pytest_deselected(items=out)
        left = set(out)
        items[:] = [item for item in items if item not in left]


def pytest_sessionfinish(session):
    """Tell the process that writes the summary; the last one to leave tidies the store."""
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        store.prune()
    else:
        output["left_out"] = session.config.stash.get(left_out, 0)
        output["for_targets"] = session.config.stash.get(for_targets, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over what a process of xdist left out; each of them collects all tests."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[left_out] = output.get("left_out", 0)
    node.config.stash[for_targets] = output.get("for_targets", 0)


def pytest_terminal_summary(terminalreporter, config):
    n = config.stash.get(left_out, 0)
    if n:
        n_gpu = _device.gpu_count()
        terminalreporter.write_line(
            f"{n} tests were left out: they need a GPU, or two, and this machine has {n_gpu}"
        )
    n = config.stash.get(for_targets, 0)
    if n:
        terminalreporter.write_line(
            f"{n} tests were left out: they build for microcontrollers and need QEMU; make targets"
        )
