"""Fixtures of the whole suite; installs the runner of ``rpukit.testing.on_cpu``."""

from __future__ import annotations

import pytest

from rpukit import _device, testing
from tests.on_cpu import runner

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


def pytest_collection_modifyitems(config, items):
    n_gpu = _device.gpu_count()
    for mark, need in (("gpu", 1), ("multi_gpu", 2)):
        skip = pytest.mark.skip(reason=f"needs {need} GPU(s), this machine has {n_gpu}")
        for item in items:
            if item.get_closest_marker(mark) and n_gpu < need:
                item.add_marker(skip)
